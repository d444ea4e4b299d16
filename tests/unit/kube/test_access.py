# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may do what: the shipped permissions, accounts that have too few, and credentials that are none."""

from __future__ import annotations

import socket
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.kube.conftest import LIFECYCLE, NO_EVICTION, READER, STRANGER


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/nodes", None),
        ("DELETE", "/api/v1/nodes/{node}", None),
        ("POST", "/api/v1/nodes", {"metadata": {"name": "new"}}),
        ("PUT", "/api/v1/nodes/{node}", {"metadata": {"name": "{node}"}}),
        ("PATCH", "/api/v1/nodes/{node}/status", {"status": {}}),
        ("GET", "/api/v1/namespaces/{space}/pods/train", None),
        ("DELETE", "/api/v1/namespaces/{space}/pods/train", None),
        ("DELETE", "/api/v1/namespaces/{space}/pods", None),
        ("PATCH", "/api/v1/namespaces/{space}/pods/train", {"metadata": {"labels": {"a": "b"}}}),
        ("POST", "/api/v1/namespaces/{space}/pods", {"metadata": {"name": "new"}}),
        ("POST", "/api/v1/namespaces/{space}/pods/train/exec", None),
        ("GET", "/api/v1/namespaces/{space}/pods/train/log", None),
        ("GET", "/api/v1/secrets", None),
        ("GET", "/api/v1/namespaces/{space}/configmaps", None),
        ("POST", "/api/v1/namespaces/gpufleet/serviceaccounts/gpufleet-lifecycle/token", {}),
        ("GET", "/apis/policy/v1beta1/poddisruptionbudgets", None),
        ("PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpufleet-lifecycle", {"rules": []}),
        ("GET", "/apis/apps/v1/daemonsets", None),
        ("GET", "/api/v1/nodes?watch=true", None),
    ],
)
def test_a_request_outside_the_shipped_permissions_is_refused(world, method, path, body):
    world.add_pod("train", gpus=1)
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    status, answer = world.plane.request(
        method, path.format(node=world.node, space=world.space), body, token=world.plane.tokens[LIFECYCLE], kind=kind
    )
    assert status == 403, answer
    assert "gpufleet-lifecycle" in answer["message"]
    assert world.pods() == ["train"] and world.read()


def test_every_request_stays_inside_them(world):
    """All that kube_node can do, with that account; and it sends nothing that the manifest does not name."""
    world.add_pod("train", gpus=1)
    sent = set()
    for state, more in (
        ("read", {}),
        ("drained", {"check": True}),
        ("drained", {}),
        ("present", {"labels": {"a": "1"}}),
        ("resumed", {}),
    ):
        world.ok(state, **more)
        sent |= {(verb, what.split(" ")[0]) for verb, what in world.log}
    assert sent == {
        ("get", "nodes"),
        ("patch", "nodes"),
        ("list", "pods"),
        ("create", "pods/eviction"),
        ("create", "selfsubjectaccessreviews"),
        ("get", "the"),
    }


@pytest.mark.parametrize(
    ("account", "words"), [(NO_EVICTION, ["create pods/eviction"]), (READER, ["patch nodes", "create pods/eviction"])]
)
def test_a_drain_that_cannot_happen_does_not_begin(world, account, words):
    world.add_pod("train", gpus=1)
    before = world.read()
    found = world.fails("drained", account=account)
    assert (
        all(word in found["msg"] for word in words)
        and "nothing was changed" in found["msg"]
        and world.node in found["msg"]
    )
    assert not found["changed"] and world.read()["spec"] == before["spec"] and world.pods() == ["train"]


def test_a_patch_that_is_not_permitted_is_named(world):
    for state, more in (("present", {"labels": {"a": "1"}}), ("cordoned", {})):
        found = world.fails(state, account=READER, **more)
        assert "patch nodes %s" % world.node in found["msg"] and "403" in found["msg"] and not found["changed"]
        assert found["mark"]["owner"] == "none" and "unschedulable" not in world.read()["spec"]


def test_no_permission_at_all(world):
    found = world.fails("drained", account=STRANGER)
    assert (
        "get nodes %s" % world.node in found["msg"]
        and "403" in found["msg"]
        and "rbac.yml" in found["msg"]
        and not found["changed"]
    )


def test_a_wrong_token(world):
    found = world.fails("read", kubeconfig=world.plane.kubeconfig("wrong", token="no-such-token"))
    assert "401" in found["msg"] and "expired" in found["msg"] and "no-such-token" not in repr(found)


def test_an_expired_token(world):
    account = world.plane.must("GET", "/api/v1/namespaces/gpufleet/serviceaccounts/gpufleet-lifecycle")
    uid = account["metadata"]["uid"]
    good = world.plane.signed_token("gpufleet", "gpufleet-lifecycle", uid, 600)
    old = world.plane.signed_token("gpufleet", "gpufleet-lifecycle", uid, -600)
    assert world.ok("read", kubeconfig=world.plane.kubeconfig("good", token=good))["mark"]["owner"] == "none"
    found = world.fails("drained", kubeconfig=world.plane.kubeconfig("old", token=old))
    assert "401" in found["msg"] and "expired" in found["msg"] and old not in repr(found) and not found["changed"]


def test_a_server_that_is_not_trusted(world, tmp_path):
    path = world.plane.kubeconfig("untrusted", token=world.plane.tokens[LIFECYCLE])
    other = tmp_path / "other.crt"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            *curve,
            "-nodes",
            "-subj",
            "/CN=another",
            "-keyout",
            str(tmp_path / "key"),
            "-out",
            str(other),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    path.write_text(path.read_text().replace(str(world.plane.authority), str(other)))
    found = world.fails("read", kubeconfig=path)
    assert "does not answer" in found["msg"] and "certificate" in found["msg"]


def test_a_server_that_is_not_there(world):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = world.fails(
        "drained",
        kubeconfig=world.plane.kubeconfig("gone", token="x", server="https://127.0.0.1:%d" % port),
        timeout_s=0,
    )
    assert (
        "127.0.0.1:%d" % port in found["msg"]
        and "does not answer" in found["msg"]
        and not found["changed"]
        and not found["drained"]
    )


def test_a_name_that_the_cluster_does_not_know(world):
    found = world.fails("drained", inventory_name="gpu-by-another-name")
    assert "has no node gpu-by-another-name" in found["msg"] and "node_name" in found["msg"] and not found["changed"]
    found = world.ok("drained", inventory_name="gpu-by-another-name", node_name=world.node)
    assert found["node"] == world.node and found["drained"]
    assert "lower-case" in world.fails("read", inventory_name="GPU_1")["msg"]


@pytest.mark.parametrize(
    ("state", "more", "word"),
    [
        ("drained", {"token": ""}, "needs a token"),
        ("resumed", {"token": "  "}, "needs a token"),
        ("cordoned", {"token": ""}, "needs a token"),
        ("drained", {"token": "a\nb"}, "unprintable"),
        ("read", {"labels": {"a": "1"}}, "state=present"),
        ("drained", {"timeout_s": -1}, "timeout_s is -1"),
        ("present", {"labels": {"a b": "1"}}, "'a b'"),
        ("present", {"taints": [{"key": "a"}]}, "effect"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_the_server_is_asked(world, state, more, word):
    found = world.fails(state, **more)
    assert word in found["msg"] and world.log == []
