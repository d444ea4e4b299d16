# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin kubernetes, as ansible-inventory uses it, with a web server in the place of an API server."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("ansible", reason="an inventory plugin lives in Ansible; nodes have none")
pytest.importorskip("kubernetes", reason="ansible-test's environment has none; the plain pytest run has it")

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import webserver
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._inventory.test_kubernetes import NODE

pytestmark = pytest.mark.cores

PLUGIN = "gpufleet.lifecycle.kubernetes"
SECRET = "s3cr3t-token-of-the-test"


def node(name, **spec):
    return dict(NODE, metadata=dict(NODE["metadata"], name=name), spec=dict(NODE["spec"], **spec))


def listing(*nodes, **metadata):
    return 200, json.dumps({"kind": "NodeList", "metadata": metadata, "items": list(nodes)}).encode(), {}


class Cluster:
    def __init__(self, ansible, server):
        self.server = server
        self.kubeconfig = ansible.directory / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "one",
                    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:%d" % server.port}}],
                    "users": [{"name": "u", "user": {"token": SECRET}}],
                    "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        self.file = lambda name="a.kubernetes.yml", **more: ansible.file(
            name, plugin=PLUGIN, **dict({"kubeconfig": str(self.kubeconfig), "timeout": 5}, **more)
        )

    def answers(self, answer):
        self.server.answer = lambda number: answer

    @property
    def asked(self):
        return [path for path, dummy, dummy2 in self.server.requests]


@pytest.fixture
def cluster(ansible):
    server = webserver.Server()
    server.start()
    yield Cluster(ansible, server)
    server.stop()


def test_graph_and_list_have_all_nodes(ansible, cluster):
    cluster.answers(listing(node("gpu-1"), node("gpu-2", unschedulable=True)))
    path = cluster.file(
        label_selector="nvidia.com/gpu.present=true",
        strict=True,
        groups={"gpu_nodes": "kubernetes_gpus > 0"},
        compose={"ansible_host": "kubernetes_addresses.InternalIP | first"},
    )
    groups, variables = ansible.list(path)
    assert sorted(groups["gpu_nodes"]) == ["gpu-1", "gpu-2"] and groups["kubernetes_cordoned"] == ["gpu-2"]
    assert "kubernetes_label_nvidia_com_gpu_product_nvidia_h100_80gb_hbm3" in groups
    assert variables["gpu-1"]["ansible_host"] == "192.0.2.1"
    assert cluster.asked == ["/api/v1/nodes?labelSelector=nvidia.com%2Fgpu.present%3Dtrue"]
    cluster.answers(listing(node("gpu-1")))
    assert "|  |--gpu-1" in ansible.inventory("-i", path, "--graph")[0]


@pytest.mark.slow
def test_the_cache_spares_the_server(ansible, cluster):
    cluster.answers(listing(node("gpu-1")))
    path = cluster.file(
        cache=True, cache_plugin="ansible.builtin.jsonfile", cache_connection=str(ansible.directory / "cache")
    )
    first, second = ansible.list(path), ansible.list(path)
    assert first == second and len(cluster.asked) == 1


BAD = {
    "nothing": listing(),
    "null": (200, json.dumps({"kind": "NodeList", "items": None}).encode(), {}),
    "an empty object": (200, b"{}", {}),
    "a page of a proxy": (200, b"<html>", {}),
    "cut off": (200, listing(node("gpu-1"))[1][:-9], {}),
    "refused": (401, b"{}", {}),
    "forbidden": (403, b"{}", {}),
    "a part of the list": listing(node("gpu-1"), **{"continue": "x"}),
    "half a node": listing(node("gpu-1"), {"metadata": {"name": "gpu-2"}}),
    "twice": listing(node("gpu-1"), node("gpu-1")),
}


OPTIONS = {
    "no kubeconfig": {"kubeconfig": "/nonexistent"},
    "no such context": {"context": "two"},
    "too few": {"min_nodes": 2},
    "no number": {"timeout": "long"},
}


def test_a_server_that_gives_no_whole_answer_is_an_error_without_the_token(ansible, cluster):
    """One server for all: each case has a path of its own in the address, which its kubeconfig names."""
    paths, server = [], cluster.server
    for number in range(len(BAD)):
        own = ansible.directory / ("kubeconfig%d" % number)
        own.write_text(
            cluster.kubeconfig.read_text().replace(":%d" % server.port, ":%d/case%d" % (server.port, number))
        )
        paths.append(cluster.file("%d.kubernetes.yml" % number, kubeconfig=str(own)))
    cases = list(BAD.values())

    def answer(dummy):
        return cases[int(server.requests[-1][0].split("/")[1][4:])]

    server.answer = answer
    for case, (found, said) in zip(BAD, ansible.read(paths)):
        assert found["error"] and found["hosts"] == [], case
        assert PLUGIN in said and "127.0.0.1:%d" % server.port in said, "%s: %s" % (case, said)
        assert SECRET not in said and "Traceback" not in said, "%s: %s" % (case, said)


def test_a_wrong_option_is_an_error(ansible, cluster):
    cluster.answers(listing(node("gpu-1")))
    paths = [cluster.file("%d.kubernetes.yml" % number, **options) for number, options in enumerate(OPTIONS.values())]
    for case, (found, said) in zip(OPTIONS, ansible.read(paths)):
        assert found["error"] and found["hosts"] == [] and PLUGIN in said and "Traceback" not in said, "%s: %s" % (
            case,
            said,
        )
