# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane with the account that the collection ships, and what a test puts into it: nodes, pods and disruption
budgets.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

import yaml

from ..common import LabError
from ..config import CHECKOUT, current
from . import agent, build, objects, server

RBAC = CHECKOUT / "roles/gpu_scheduler/files/kubernetes/rbac.yml"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
MERGE = "application/merge-patch+json"
LIFECYCLE = "lifecycle"  # the account of the manifest
ACCOUNT = "system:serviceaccount:gpufleet:gpufleet-lifecycle"  # as the server calls it


@contextlib.contextmanager
def running(directory: Path, users: Iterable[str] = ()):
    """The control plane, with the stand-in for the nodes' agent.

    ``users`` are other accounts, which may do nothing yet.
    """
    lab = current()
    lacking = build.missing(lab)
    if lacking:
        raise LabError(lacking)
    plane = server.ControlPlane(directory, build.binary(lab))
    plane.add_service_account(LIFECYCLE, "gpufleet", "gpufleet-lifecycle")
    for name in users:
        plane.add_user(name, name, [])
    plane.start()
    try:
        for document in yaml.safe_load(RBAC.read_text(encoding="utf-8"))["items"]:
            plane.must("POST", PATHS[document["kind"]].format(**document["metadata"]), document)
        node_agent = agent.NodeAgent(plane)
        node_agent.start()
        try:
            yield plane
        finally:
            node_agent.stop()
    finally:
        plane.stop()
    if node_agent.problem is not None:
        raise LabError(f"lab-node-agent: {node_agent.problem}")


class Space:
    """A namespace for pods and budgets, and the nodes they are on; ``node`` is the one that is meant where none is
    named.
    """

    def __init__(self, plane: server.ControlPlane, space: str, node: str = ""):
        self.plane = plane
        self.space = space
        self.node = node
        plane.must("POST", "/api/v1/namespaces", {"metadata": {"name": space}})

    def add_node(
        self,
        name: str,
        labels: dict | None = None,
        unschedulable: bool = False,
        taints: list | None = None,
        gpus: int | dict | None = None,
    ) -> dict:
        """A node, with the GPUs that its kubelet would tell: their number, or {resource: number}."""
        body = objects.node(name, unschedulable, labels, taints=taints)
        body["metadata"].pop("resourceVersion")
        made = self.plane.must("POST", "/api/v1/nodes", body)
        return made if gpus is None else self.give_gpus(gpus, name)

    def give_gpus(self, gpus: int | dict, name: str = "") -> dict:
        return self.plane.must(
            "PATCH", f"/api/v1/nodes/{name or self.node}/status", {"status": objects.gpu_status(gpus)}, kind=MERGE
        )

    def read(self, name: str = "") -> dict:
        return self.plane.must("GET", "/api/v1/nodes/" + (name or self.node))

    def patch(self, body: dict, name: str = "") -> dict:
        return self.plane.must("PATCH", "/api/v1/nodes/" + (name or self.node), body, kind=MERGE)

    def add_pod(self, name: str, node: str = "", running: bool = True, **more) -> None:
        """A pod bound to the node, as soon as the node agent says that it runs."""
        more.setdefault("grace", 1)
        body = objects.pod(name, node=node or self.node, namespace=self.space, **more)
        body["metadata"].pop("uid")
        body["metadata"].setdefault("labels", {})["app"] = name
        phase = body.pop("status")["phase"]
        path = f"/api/v1/namespaces/{self.space}/pods"
        self.plane.must("POST", path, body)
        if phase != "Running":
            self.plane.must("PATCH", f"{path}/{name}/status", {"status": {"phase": phase}}, kind=MERGE)
        elif running:
            self.wait(lambda: self.plane.must("GET", f"{path}/{name}")["status"]["phase"] == "Running")

    def pods(self, node: str = "") -> list[str]:
        found = self.plane.must("GET", "/api/v1/pods?fieldSelector=spec.nodeName=" + (node or self.node))["items"]
        return sorted(each["metadata"]["name"] for each in found)

    def ending(self) -> list[str]:
        """The node's pods that were told to end."""
        found = self.plane.must("GET", "/api/v1/pods?fieldSelector=spec.nodeName=" + self.node)["items"]
        return sorted(each["metadata"]["name"] for each in found if each["metadata"].get("deletionTimestamp"))

    def add_budget(self, name: str, app: str, allowed: int) -> None:
        path = f"/apis/policy/v1beta1/namespaces/{self.space}/poddisruptionbudgets"
        self.plane.must(
            "POST",
            path,
            {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}},
        )
        self.set_budget(name, allowed)

    def set_budget(self, name: str, allowed: int) -> None:
        """What the controller of budgets would write."""
        path = f"/apis/policy/v1beta1/namespaces/{self.space}/poddisruptionbudgets/{name}/status"
        status = {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
            "observedGeneration": 1,
        }
        self.plane.must("PATCH", path, {"status": status}, kind=MERGE)

    @staticmethod
    def wait(condition, seconds: float = 600) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "it did not come about in %d s" % seconds
            time.sleep(0.1)
