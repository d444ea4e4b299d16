# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""lab-node-agent: stands in for the kubelet of every node, since no container ever runs here.

It says of a pod that is bound to a node that it runs, ends one that is being deleted once its grace period is over, and
renews the nodes' leases. A pod with the annotation lab.gpufleet/stuck never ends, as on a node whose kubelet is gone.
"""

from __future__ import annotations

import calendar
import threading
import time

from .server import ControlPlane

STUCK = "lab.gpufleet/stuck"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PERIOD_S = 0.2
LEASE_S = 10
MERGE = "application/merge-patch+json"


def due(pod: dict, now: float) -> bool:
    """Whether a pod that is being deleted has had its time.

    The server writes the end of the grace period into deletionTimestamp.
    """
    meta = pod["metadata"]
    if not meta.get("deletionTimestamp") or STUCK in (meta.get("annotations") or {}):
        return False
    return calendar.timegm(time.strptime(meta["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ")) <= now


class NodeAgent(threading.Thread):
    """One agent for all nodes of a control plane."""

    def __init__(self, plane: ControlPlane):
        super().__init__(name="lab-node-agent", daemon=True)
        self.plane = plane
        self.problem: Exception | None = None
        self._ended = threading.Event()
        self._renewed = 0.0

    def stop(self) -> None:
        self._ended.set()
        self.join(timeout=30)

    def run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            try:
                self.once(time.time())
            except Exception as problem:  # noqa: BLE001 - told by the fixture at its end; the next round may work
                self.problem = problem

    def once(self, now: float) -> None:
        for pod in self.plane.must("GET", "/api/v1/pods?fieldSelector=spec.nodeName!=")["items"]:
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            if due(pod, now):
                options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
                self.plane.request("DELETE", path, options)
            elif pod["status"].get("phase") == "Pending":
                ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                # As it was when it was read, so that what another says of the pod meanwhile is not overwritten.
                same = {"resourceVersion": pod["metadata"]["resourceVersion"]}
                self.plane.request("PATCH", path + "/status", {"metadata": same, "status": ready}, kind=MERGE)
        if now - self._renewed >= LEASE_S:
            self._renewed = now
            self._renew(now)

    def _renew(self, now: float) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(now))
        for lease in self.plane.must("GET", LEASES)["items"]:
            self.plane.request(
                "PATCH", f"{LEASES}/{lease['metadata']['name']}", {"spec": {"renewTime": stamp}}, kind=MERGE
            )
