# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server with a real store, once for all tests, and a node and a namespace of its own for each."""

from __future__ import annotations

import itertools
import pathlib
import time
from unittest import mock

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import kube_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import client
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._kube.objects import pod as pod_object
from tests.lab import config
from tests.lab.kube import agent, build, server

ROOT = pathlib.Path(__file__).resolve().parents[3]
RBAC = ROOT / "roles/gpu_scheduler/files/kubernetes/rbac.yml"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
MERGE = "application/merge-patch+json"
LIFECYCLE = "lifecycle"  # the account of the manifest
STRANGER = "stranger"  # an account without any permission
READER = "reader"  # one that may look and nothing else
NO_EVICTION = "no-eviction"  # one that may do all but evict
BOUNDS = {READER: [("nodes", ["get"]), ("pods", ["list"])], NO_EVICTION: [("nodes", ["get", "patch"]), ("pods", ["list"])]}

_number = itertools.count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory):
    lab = config.current()
    lacking = build.missing(lab)
    if lacking:
        pytest.fail(lacking, pytrace=False)
    one = server.ControlPlane(tmp_path_factory.mktemp("kube"), build.binary(lab))
    one.add_service_account(LIFECYCLE, "gpufleet", "gpufleet-lifecycle")
    for name in (STRANGER, READER, NO_EVICTION):
        one.add_user(name, name, [])
    one.start()
    try:
        for document in yaml.safe_load(RBAC.read_text(encoding="utf-8"))["items"]:
            one.must("POST", PATHS[document["kind"]].format(**document["metadata"]), document)
        for name, rules in BOUNDS.items():
            grant(one, name, rules)
        node_agent = agent.NodeAgent(one)
        node_agent.start()
        yield one
        node_agent.stop()
    finally:
        one.stop()
    assert node_agent.problem is None, "lab-node-agent: %s" % node_agent.problem


def grant(one, name, rules):
    group = "rbac.authorization.k8s.io"
    one.must("POST", PATHS["ClusterRole"], {
        "apiVersion": group + "/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs} for resource, verbs in rules]})
    one.must("POST", PATHS["ClusterRoleBinding"], {
        "apiVersion": group + "/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}, "subjects": [{"apiGroup": group, "kind": "User", "name": name}]})


class World:
    """One node, one namespace, and kube_node as a task would run it."""

    def __init__(self, plane):
        number = next(_number)
        self.plane = plane
        self.node = "gpu-%d" % number
        self.space = "team-%d" % number
        self.log = []
        plane.must("POST", "/api/v1/namespaces", {"metadata": {"name": self.space}})
        self.add_node(self.node)

    def add_node(self, name, labels=None, unschedulable=False):
        spec = {"unschedulable": True} if unschedulable else {}
        return self.plane.must("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})

    def read(self, name=None):
        return self.plane.must("GET", "/api/v1/nodes/" + (name or self.node))

    def patch(self, body, name=None):
        return self.plane.must("PATCH", "/api/v1/nodes/" + (name or self.node), body, kind=MERGE)

    def add_pod(self, name, node=None, running=True, **more):
        """A pod bound to the node, as soon as the node agent says that it runs."""
        more.setdefault("grace", 1)
        body = pod_object(name, node=node or self.node, namespace=self.space, **more)
        body["metadata"].pop("uid")
        body["metadata"].setdefault("labels", {})["app"] = name
        phase = body.pop("status")["phase"]
        path = "/api/v1/namespaces/%s/pods" % self.space
        self.plane.must("POST", path, body)
        if phase != "Running":
            self.plane.must("PATCH", "%s/%s/status" % (path, name), {"status": {"phase": phase}}, kind=MERGE)
        elif running:
            self.wait(lambda: self.plane.must("GET", "%s/%s" % (path, name))["status"]["phase"] == "Running")

    def pods(self, node=None):
        found = self.plane.must("GET", "/api/v1/pods?fieldSelector=spec.nodeName=" + (node or self.node))["items"]
        return sorted(each["metadata"]["name"] for each in found)

    def add_budget(self, name, app, allowed):
        path = "/apis/policy/v1beta1/namespaces/%s/poddisruptionbudgets" % self.space
        self.plane.must("POST", path, {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}})
        self.set_budget(name, allowed)

    def set_budget(self, name, allowed):
        """What the controller of budgets would write."""
        path = "/apis/policy/v1beta1/namespaces/%s/poddisruptionbudgets/%s/status" % (self.space, name)
        status = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1}
        self.plane.must("PATCH", path, {"status": status}, kind=MERGE)

    @staticmethod
    def wait(condition, seconds=60):
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "it did not come about in %d s" % seconds
            time.sleep(0.1)

    def task(self, state, check=False, account=LIFECYCLE, kubeconfig=None, inventory_name=None, **options):
        """The result of the task; every request it sent is in LOG afterwards."""
        arguments = dict(options, state=state, kubeconfig=str(kubeconfig or self.plane.kubeconfig(account)))
        if state in ("cordoned", "drained", "resumed"):
            arguments.setdefault("token", "r7")
            arguments.setdefault("timeout_s", 60)
        task = mock.Mock(args=arguments, async_val=0, check_mode=check, diff=True, action="x", environment=None)
        action = kube_node.ActionModule(task, mock.Mock(), mock.Mock(check_mode=check), DataLoader(), mock.Mock(), None)
        action._load_name = "x"
        action._shared_loader_obj = mock.Mock()
        made = []

        def connect(*words, **more):
            made.append(original(*words, **more))
            return made[0]

        original = client.Cluster.connect
        with mock.patch.object(client.Cluster, "connect", connect):
            result = action.run(task_vars={"inventory_hostname": inventory_name or self.node})
        self.log = made[0].log if made else []
        tokens = [token for token in self.plane.tokens.values() if token in repr(result)]
        assert not tokens, "a token is in the result"
        return result

    def ok(self, state, **more):
        result = self.task(state, **more)
        assert not result.get("failed"), result.get("msg")
        return result

    def fails(self, state, **more):
        result = self.task(state, **more)
        assert result.get("failed"), result
        return result


@pytest.fixture
def world(plane):
    return World(plane)
