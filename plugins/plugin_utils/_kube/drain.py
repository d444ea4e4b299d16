# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take a node out of service: cordon it under our marker, evict its pods, wait, and prove that it is empty."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, gpus, operators, ownership, pods
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError, Node, Refused
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.session import EVICTS, LONGEST_WAIT_S, Session

NOT_COMPARED = gpus.Want()
NEEDED = ({"verb": "patch", "resource": "nodes"}, EVICTS)  # beside reading, which a drain has done by then


class Drain:
    """A drain with the OPTIONS of kube_node: operators, lays_out, reason, timeout_s and grace_period_s."""

    def __init__(
        self,
        session: Session,
        options: dict[str, Any],
        wanted: change.Change,
        policy: pods.Policy,
        want: gpus.Want = NOT_COMPARED,
    ) -> None:
        self.session = session
        self.options = options
        self.wanted = wanted
        self.policy = policy
        self.want = want
        self.result = session.result
        self.tried: dict[str, tuple[float, float]] = {}  # uid: (when to try again, how long the wait was)
        self.why: dict[str, dict[str, Any]] = {}  # uid: the blocker of the last try

    def cordon(self) -> None:
        """Close the node for new work. What runs there goes on."""
        self.session.read(self.options["timeout_s"])
        listed, decision = self.session.list_pods(self.policy)
        self._close(listed)
        self.session.report_pods(listed, decision)

    def run(self) -> None:
        """Close the node, evict its pods and wait until it is empty."""
        session = self.session
        node = session.read(self.options["timeout_s"])
        unfit = gpus.explain_unfit(node, self.want)
        if unfit and ownership.find_ours(node, session.token) is None:
            raise Refused("%s: not drained, because %s." % (session.name, unfit), self._describe_state())
        listed, decision = session.list_pods(self.policy)
        session.ask(session.api.discover_eviction)
        self._check_permissions()
        self._check_obstacles(listed, decision)
        self._close(listed)
        if session.check:
            self._predict_evictions(decision)
        else:
            session.began = session.clock()
            session.until = session.began + self.options["timeout_s"]
            self._evict_all()
            if self.options["operators"] == "pause":
                self._remove_operands()
        self.result["drained"] = not self.result["blockers"]

    def _check_permissions(self) -> None:
        """Refuse when the account may not do all of it: a node is not cordoned for a drain that cannot happen."""
        session, missing = self.session, []
        for attributes in NEEDED:
            if not session.ask(session.api.is_allowed, attributes):
                names = filter(None, (attributes["resource"], attributes.get("subresource")))
                missing.append("%s %s" % (attributes["verb"], "/".join(names)))
        if missing:
            raise Refused(
                "%s: the account may not %s in the cluster %s; nothing was changed. Give it the permissions in "
                "roles/gpu_scheduler/files/kubernetes/rbac.yml."
                % (session.name, " nor ".join(missing), session.api.cluster.shown)
            )

    def _check_obstacles(self, listed: list[Any], decision: pods.Decision) -> None:
        """Refuse for what was found on the node, before or after it is cordoned."""
        node = self.session.after
        held = (ownership.find_ours(node, self.session.token) or {"labels": {}})["labels"]
        self.result["operators"] = operators.find_operators(node, listed)
        wish, why = self.options["operators"], []
        if wish == "refuse" and self.result["operators"]:
            why = ["%s on this node, and operators is refuse" % (" and ".join(self.result["operators"]),)]
        elif wish == "pause":
            why = operators.explain_work(node, listed, held)
        if self.options.get("lays_out") and operators.explain_layout(node):
            why.append(operators.explain_layout(node))
        self.result["blockers"] = decision.blockers
        if decision.blockers:
            why.append(
                "%d pod(s) on it may not be evicted: %s" % (len(decision.blockers), pods.list_pods(decision.blockers))
            )
        if why:
            raise Refused(
                "%s: not drained, because %s." % (self.session.name, "; ".join(why)),
                self._describe_state(),
                decision.blockers,
            )

    def _describe_state(self) -> str:
        """Describe the state in which the node is left."""
        if ownership.find_ours(self.session.after, self.session.token) is None:
            return "Nothing was changed."
        return (
            "The node stays cordoned under our mark: mend it and run again, or put it back with "
            "state=resumed and token=%s." % (self.session.token,)
        )

    def _close(self, listed: list[Any]) -> None:
        """Write our marker and the cordon, in one patch."""
        session = self.session
        off = {} if self.options["operators"] != "pause" else operators.plan_keep_off(session.after, listed)
        now = session.date()  # once: a conflict with another writer does not make the marker younger
        shared = gpus.find_sharing(session.after, self.want)
        session.write(
            lambda node: ownership.place_marker(node, session.token, self.options["reason"], now, off, shared).merge(
                self.wanted
            )
        )

    def _wait(self, step: str) -> None:
        """Sleep before the next look of a step. Refuse when the node was put back into service meanwhile."""
        session = self.session
        session.pace(step, session.until)
        # What others write to the node is no part of our diff: AFTER stays as it is.
        node = session.ask(session.api.node, session.name)
        if ownership.find_ours(node, session.token) is None or not change.is_unschedulable(node):
            raise KubeError(
                "%s: no longer cordoned under the mark of %s: it was put back into service while its pods were being "
                "drained. No further pod is evicted. Ask who needs the node, and run again."
                % (session.name, session.token)
            )

    def _predict_evictions(self, decision: pods.Decision) -> None:
        """Ask the server in check mode to evict without doing it, so that a budget which forbids it is found."""
        for entry in decision.going:
            if not entry["terminating"]:
                kept, dummy = self._evict(entry)
                if kept:
                    self.result["blockers"].append(kept)
        if self.options["operators"] == "pause":
            self.session.write(self._plan_operands_off)

    def _plan_operands_off(self, node: Node) -> change.Change:
        held = ownership.find_ours(node, self.session.token)
        return (
            ownership.hold_labels(node, held, operators.plan_operands_off(node))
            if held is not None
            else change.Change()
        )

    def _evict_all(self) -> None:
        """Evict, wait and look again until nothing is left."""
        session = self.session
        while True:
            listed, decision = session.list_pods(self.policy)
            self._check_obstacles(listed, decision)
            if not decision.going:
                return
            now = session.clock()
            for entry in pods.select_due(decision.going):
                again, pause = self.tried.get(entry["uid"], (0, 1))
                if entry["terminating"] or now < again:
                    continue
                kept, asked = self._evict(entry)
                if kept is None:
                    self.why.pop(entry["uid"], None)
                else:
                    self.why[entry["uid"]] = kept
                self.tried[entry["uid"]] = (now + max(pause, asked), min(pause * 2, LONGEST_WAIT_S))
            if session.clock() >= session.until:
                self._give_up()
                return
            self._wait("empty")

    def _evict(self, entry: pods.Entry) -> tuple[dict[str, Any] | None, float]:
        """Ask the server to let one pod go.

        Returns what kept it (None when nothing did) and the seconds until it should be tried again.
        """
        try:
            self.session.api.evict(
                entry["namespace"],
                entry["pod"],
                entry["uid"],
                self.options["grace_period_s"],
                dry_run=self.session.check,
            )
        except KubeError as exc:
            return self.session.explain_refusal(entry, exc)
        if entry["uid"] not in [each["uid"] for each in self.result["evicted"]]:
            self.result["evicted"].append({key: entry[key] for key in ("namespace", "pod", "uid", "gpu")})
            self.result["changed"] = True
        return None, 0

    def _give_up(self) -> None:
        """Look once more after the timeout, and fail with the names of what is still there. Nothing may be."""
        dummy, decision = self.session.list_pods(self.policy)
        blockers = self.result["blockers"] = list(decision.blockers)
        for entry in decision.going:
            if entry["terminating"]:
                held = (
                    "its finalizers are %s" % ", ".join(entry["finalizers"])
                    if entry["finalizers"]
                    else "the node's kubelet has not ended it"
                )
                blockers.append(
                    pods.make_blocker(entry, "terminating", "terminating since %s, %s" % (entry["terminating"], held))
                )
            else:
                waits = pods.make_blocker(entry, "waiting", "its turn comes after the pods with GPUs")
                blockers.append(self.why.get(entry["uid"]) or waits)
        if blockers:
            raise KubeError(
                "%s: not drained in %d s: %s."
                % (self.session.name, self.options["timeout_s"], pods.list_pods(self.result["blockers"])),
                self._describe_state(),
            )

    def _remove_operands(self) -> None:
        """Take the GPU Operator's parts off the node, which hold the GPUs open, and wait until they are gone."""
        session = self.session
        session.write(self._plan_operands_off)
        held = (ownership.find_ours(session.after, session.token) or {"labels": {}})["labels"]
        keys = set(key for key, pair in held.items() if pair[1] == operators.PAUSED)
        while keys:
            there = operators.find_operands(session.ask(session.api.pods, session.name), keys)
            if not there:
                return
            if session.clock() >= session.until:
                self.result["blockers"] = [
                    pods.make_blocker(entry, "operand", "the GPU Operator has not taken it away") for entry in there
                ]
                raise KubeError(
                    "%s: drained of work, but the GPU Operator's parts hold the GPUs although their labels say %s: %s. "
                    "Look at the operator." % (session.name, operators.PAUSED, pods.list_pods(self.result["blockers"])),
                    self._describe_state(),
                )
            self._wait("pause")
