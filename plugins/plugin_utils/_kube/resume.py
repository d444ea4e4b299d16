# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a node back into service once the cluster has its GPUs, and restart its device plugin where that is needed."""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, gpus, operators, ownership, pods
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.session import Session

SETTLE_S = 15  # a kubelet reports what it has every ten seconds
PATIENCE = 4  # the device plugin gets this part of the time by itself, as after a boot, before it is restarted
NOT_COMPARED = gpus.Want()


class Resume:
    """A resume. WANT: the GPUs that the cluster has to have for the node, and the time for them."""

    def __init__(
        self, session: Session, wanted: change.Change, want: gpus.Want = NOT_COMPARED, laid_out: bool = False
    ) -> None:
        self.session = session
        self.wanted = wanted
        self.want = want
        self.laid_out = laid_out
        self.restarted = session.result["restarted"]

    def run(self) -> None:
        """Lift our marker and restore what was there. What is not ours stays."""
        session, node = self.session, self.session.read(self.want.timeout_s)
        ours = ownership.find_ours(node, session.token)
        if ours is not None:
            if self.laid_out and operators.explain_layout(node):
                raise KubeError(
                    "%s: not resumed, because %s." % (session.name, operators.explain_layout(node)),
                    self._describe_state(),
                )
            self.want = dataclasses.replace(self.want, shared=ours["shared"] or ())
            self._wait_for_gpus()
        session.write(lambda node: ownership.lift_marker(node, session.token).merge(self.wanted))

    def _wait_for_gpus(self) -> None:
        """Wait until the cluster has as many GPUs as the node. Refuse otherwise: the node stays under our marker."""
        session, want = self.session, self.want
        verdict = gpus.decide_resume(session.after, want)
        if verdict.action == gpus.SKIP or session.check or verdict.action == gpus.SAME and not want.restart:
            return
        if verdict.action == gpus.REFUSE:
            raise KubeError("%s: not resumed, because %s." % (session.name, verdict.why), self._describe_state())
        # The device plugin may be one of the parts that the drain took off the node, or not tolerate a taint that it
        # placed. The node stays unschedulable, so that nothing but pods of DaemonSets comes back.
        taints = change.Change(taints=self.wanted.taints)
        session.write(lambda node: ownership.release_labels(node, session.token, operators.PAUSED).merge(taints))
        session.began = session.clock()
        deadline = session.until = session.began + want.timeout_s
        restart_at = session.began + (0 if want.restart else want.timeout_s / PATIENCE)
        settled_at = None if want.restart else session.began
        node = session.after
        while True:
            verdict = gpus.decide_resume(node, want)
            if verdict.action == gpus.SAME and settled_at is not None and session.clock() >= settled_at:
                return
            if session.clock() >= deadline:
                why = (
                    verdict.why
                    or "its device plugin was to be restarted, and has not been running again for %d s" % (SETTLE_S,)
                )
                raise KubeError(
                    "%s: not resumed after %d s, because %s." % (session.name, want.timeout_s, why),
                    self._describe_state(),
                )
            if session.clock() >= restart_at and not self.restarted:
                self._restart_device_plugin()
            elif settled_at is None and self._is_device_plugin_back():
                settled_at = session.clock() + SETTLE_S
            session.pace("gpus", deadline)
            node = session.ask(session.api.node, session.name)
            if ownership.find_ours(node, session.token) is None:
                raise KubeError(
                    "%s: no longer under the mark of %s during the wait for its GPUs: another user returned it to "
                    "service. Ask who needs it, and run again." % (session.name, session.token)
                )

    def _describe_state(self) -> str:
        plugins = ", ".join("%(namespace)s/%(pod)s" % entry for entry in self.restarted)
        done = (
            "Its device plugin was restarted (%s)." % plugins if plugins else "No pod of a device plugin was restarted."
        )
        return (
            "%s The node stays as it was drained, under our mark. Read the log of the device plugin, and run again."
            % done
        )

    def _restart_device_plugin(self) -> None:
        """Have the DaemonSet make the device plugin's pod of the node again: it does not notice a new MIG layout."""
        session = self.session
        for entry in gpus.find_device_plugins(session.ask(session.api.pods, session.name), self.want):
            try:
                session.api.evict(entry["namespace"], entry["pod"], entry["uid"])
            except KubeError as exc:
                session.explain_refusal(entry, exc)
                continue
            self.restarted.append({"namespace": entry["namespace"], "pod": entry["pod"], "uid": entry["uid"]})
            session.result["changed"] = True

    def _is_device_plugin_back(self) -> bool:
        """Tell if the evicted pods are gone and others run in their place. Until then the numbers are the old ones."""
        evicted = {entry["uid"] for entry in self.restarted}
        listed = self.session.ask(self.session.api.pods, self.session.name)
        there = {pods.describe_pod(pod)["uid"] for pod in listed}
        return (
            bool(evicted)
            and not evicted & there
            and any(entry["running"] for entry in gpus.find_device_plugins(listed, self.want))
        )
