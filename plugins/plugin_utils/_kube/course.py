# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node's way out of service and back: cordon under our mark, evict, wait, prove; and lift what is ours."""

from __future__ import annotations

import dataclasses
import datetime
import random
import re
import time

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, gpus, mark, operators, pods
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.words import (
    MARK,
    ApiError,
    KubeError,
    Refused,
    node_name_problem,
)

CONFLICTS = 12  # how often another client may write first
LONGEST_WAIT_S = 15
FIRST_LOOK_S = 0.5
LONGEST_LOOK_S = 10
SETTLE_S = 15  # a kubelet tells what it has every ten seconds
PATIENCE = 4  # the device plugin gets this part of the time by itself, as after a boot, before it is restarted
NOT_COMPARED = gpus.Want()
DENIED_S = 5  # until a pod is tried again that an admission webhook or policy keeps
EVICTS = {"verb": "create", "resource": "pods", "subresource": "eviction"}
NEEDED = ({"verb": "patch", "resource": "nodes"}, EVICTS)  # beside reading, which a drain has done by then
_DENIED = re.compile(r"denied (?:the )?request")  # of admission webhooks and of ValidatingAdmissionPolicy
_BUDGET = re.compile(r"disruption budget (\S+)")
_TERMINATED_NAMESPACE = "NamespaceTerminating"


def utc_now():
    """The date and time as a mark has it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Course:
    """The work of one task on one node; RESULT is filled step by step, and is returned if the task ends with an
    error."""

    def __init__(self, api, name, token="", check=False, clock=time.monotonic, sleep=time.sleep, date=utc_now):
        self.api = api
        self.name = name
        self.token = token
        self.check = check
        self.clock = clock
        self.sleep = sleep
        self.date = date
        self.before = None
        self.after = None
        self.until = None  # for how long a server that is away is asked again
        self.began = None  # when it began to wait
        self.waits = {}  # step: how long to wait before its next look
        self.tried = {}  # uid: (when to try again, how long the wait was)
        self.why = {}  # uid: the blocker of the last try
        self.keys = {"labels": set(), "annotations": {MARK}}
        self.result = {
            "node": name,
            "changed": False,
            "drained": False,
            "blockers": [],
            "evicted": [],
            "left": [],
            "operators": [],
            "restarted": [],
        }

    def ask(self, request, *words):
        """Return the answer to a request that may be repeated; the server may be away until the time is over."""
        while True:
            try:
                return request(*words)
            except KubeError as exc:
                if not exc.passing or self.until is None or self.clock() >= self.until:
                    raise
            self.pace("away", self.until)

    def wait(self, step, deadline):
        """Before the next look of a step, a little longer each time; refuses to go on when the node was put back
        meanwhile.
        """
        self.pace(step, deadline)
        # What others write to the node is no part of our diff: AFTER stays as it is.
        self.see_closed(self.ask(self.api.node, self.name))

    def pace(self, step, deadline):
        """Sleep before the next look of a step, a little longer each time."""
        grown = self.waits.get(step, FIRST_LOOK_S)
        self.waits[step] = min(grown * 1.5, LONGEST_LOOK_S)
        self.sleep(max(0.05, min(grown, deadline - self.clock())))

    # Reading

    def read(self):
        problem = node_name_problem(self.name)
        if problem:
            raise KubeError(
                "%s. If the cluster calls the node by another name than the inventory, set node_name." % (problem,)
            )
        self.note(self.api.node(self.name))
        return self.after

    def note(self, node):
        self.before = self.before or node
        self.after = node

    def answer(self):
        """The result as it stands."""
        if self.after is not None:
            self.result["mark"] = mark.standing(self.after, self.token)
            self.result["gpus"] = gpus.resources(self.after)
            self.result["unschedulable"] = change.unschedulable(self.after)
            self.result["diff"] = {
                "before": change.shown(self.before, self.keys),
                "after": change.shown(self.after, self.keys),
            }
        self.result["state"] = (
            "" if self.after is None else "unschedulable" if change.unschedulable(self.after) else "schedulable"
        )
        self.result["waited_s"] = 0.0 if self.began is None else round(self.clock() - self.began, 1)
        self.result["requests"] = self.api.requests
        return self.result

    def look(self, policy):
        """The pods of the node, and what becomes of them."""
        listed = self.ask(self.api.pods, self.name)
        decision = pods.decide(listed, policy)
        self.result["left"] = decision.left
        return listed, decision

    # Changing the node object

    def write(self, decide):
        """Make the node as DECIDE(node) says, however often other clients write in between.

        Says whether there was anything to do.
        """
        for attempt in range(CONFLICTS):
            node = self.after
            if attempt:
                node = self.ask(self.api.node, self.name)
                if not self.result["changed"]:
                    self.before = node  # what others wrote is no part of our diff
            wanted = decide(node)
            for each in change.foreign_taints(node, wanted):
                self.result.setdefault("warnings", []).append("%s: %s." % (self.name, each))
            self.keys["labels"] |= set(wanted.labels)
            self.keys["annotations"] |= set(wanted.annotations)
            body = change.patch(node, wanted)
            if body is None:
                self.after = node
                return False
            if self.check:
                self.after = change.applied(node, body)
                self.result["changed"] = True
                return True
            try:
                self.after = self.ask(self.api.patch_node, self.name, body)
            except ApiError as exc:
                if exc.status != 409:
                    raise
                self.sleep(0.05 * (attempt + 1) * random.uniform(0.5, 1.5))
                continue
            self.result["changed"] = True
            return True
        raise KubeError(
            "%s: the node object was changed by other clients %d times during the update. None of their changes was "
            "overwritten; run again." % (self.name, CONFLICTS)
        )

    # Out of service

    def permitted(self):
        """Refuse when the account may not do all of it: a node is not cordoned for a drain that cannot happen."""
        missing = []
        for attributes in NEEDED:
            if not self.ask(self.api.allowed, attributes):
                missing.append(
                    "%s %s"
                    % (
                        attributes["verb"],
                        "/".join(filter(None, (attributes["resource"], attributes.get("subresource")))),
                    )
                )
        if missing:
            raise Refused(
                "%s: the account may not %s in the cluster %s; nothing was changed. Give it the permissions in "
                "roles/gpu_scheduler/files/kubernetes/rbac.yml."
                % (self.name, " nor ".join(missing), self.api.cluster.shown)
            )

    def refuse(self, listed, decision, options):
        """Refuse for what was found on the node, before or after it is cordoned."""
        held = (mark.ours(self.after, self.token) or {"labels": {}})["labels"]
        self.result["operators"] = operators.found(self.after, listed)
        wish, why = options["operators"], []
        if wish == "refuse" and self.result["operators"]:
            why = ["%s on this node, and operators is refuse" % (" and ".join(self.result["operators"]),)]
        elif wish == "pause":
            why = operators.at_work(self.after, listed, held)
        if options.get("lays_out") and operators.makes_layout(self.after):
            why.append(operators.makes_layout(self.after))
        self.result["blockers"] = decision.blockers
        if decision.blockers:
            why.append(
                "%d pod(s) on it may not be evicted: %s" % (len(decision.blockers), pods.names(decision.blockers))
            )
        if why:
            raise Refused(
                "%s: not drained, because %s." % (self.name, "; ".join(why)), self.stands(), decision.blockers
            )

    def stands(self):
        """Describe the state in which the node is left."""
        if mark.ours(self.after, self.token) is None:
            return "Nothing was changed."
        return (
            "The node stays cordoned under our mark: mend it and run again, or put it back with "
            "state=resumed and token=%s." % (self.token,)
        )

    def close(self, options, wanted, listed, want=NOT_COMPARED):
        """Our mark and the cordon, in one write."""
        off = {} if options["operators"] != "pause" else operators.keep_off(self.after, listed)
        now = self.date()  # once: a conflict with another writer does not make the mark younger
        shared = gpus.shared(self.after, want)
        self.write(lambda node: mark.place(node, self.token, options["reason"], now, off, shared).merged(wanted))

    def cordon(self, options, wanted, policy):
        """No new work, and what runs there goes on."""
        self.read()
        listed, decision = self.look(policy)
        self.close(options, wanted, listed)
        self.tell(listed, decision)

    def drain(self, options, wanted, policy, want=NOT_COMPARED):
        self.read()
        unfit = gpus.unfit(self.after, want)
        if unfit and mark.ours(self.after, self.token) is None:
            raise Refused("%s: not drained, because %s." % (self.name, unfit), self.stands())
        self.until = self.clock() + options["timeout_s"]
        listed, decision = self.look(policy)
        self.ask(self.api.discover_eviction)
        self.permitted()
        self.refuse(listed, decision, options)
        self.close(options, wanted, listed, want)
        if self.check:
            self.foretell(decision, options)
            self.result["drained"] = not self.result["blockers"]
        else:
            self.began = self.clock()
            self.wait_until_empty(options, policy)

    def see_closed(self, node):
        """Refuse when the node was uncordoned, or its mark removed, while its pods were waited for."""
        if mark.ours(node, self.token) is None or not change.unschedulable(node):
            raise KubeError(
                "%s: no longer cordoned under the mark of %s: it was put back into service while its pods were being "
                "drained. No further pod is evicted. Ask who needs the node, and run again." % (self.name, self.token)
            )

    def wait_until_empty(self, options, policy):
        deadline = self.until = self.began + options["timeout_s"]
        self.empty(options, policy, deadline)
        if options["operators"] == "pause":
            self.pause(policy, deadline)
        self.result["drained"] = not self.result["blockers"]

    def foretell(self, decision, options):
        """In check mode the server is asked to evict without doing it, so that a budget which forbids it is seen."""
        for entry in decision.going:
            if not entry["terminating"]:
                kept, dummy = self.evict(entry, options["grace_period_s"])
                if kept:
                    self.result["blockers"].append(kept)
        if options["operators"] == "pause":
            self.write(self.off)

    def off(self, node):
        held = mark.ours(node, self.token)
        return mark.hold(node, held, operators.operands_off(node)) if held is not None else change.Change()

    def empty(self, options, policy, deadline):
        """Evict, wait and look again until nothing is left."""
        while True:
            listed, decision = self.look(policy)
            self.refuse(listed, decision, options)
            if not decision.going:
                return
            now = self.clock()
            for entry in pods.now_due(decision.going):
                again, pause = self.tried.get(entry["uid"], (0, 1))
                if entry["terminating"] or now < again:
                    continue
                kept, asked = self.evict(entry, options["grace_period_s"])
                if kept is None:
                    self.why.pop(entry["uid"], None)
                else:
                    self.why[entry["uid"]] = kept
                self.tried[entry["uid"]] = (now + max(pause, asked), min(pause * 2, LONGEST_WAIT_S))
            if self.clock() >= deadline:
                self.give_up(options, policy)
                return
            self.wait("empty", deadline)

    def evict(self, entry, grace_period_s):
        """Ask the server to let one pod go.

        Returns what kept it (None when nothing did) and how long it wants to be left alone.
        """
        try:
            self.api.evict(entry["namespace"], entry["pod"], entry["uid"], grace_period_s, dry_run=self.check)
        except KubeError as exc:
            return self.refused(entry, exc)
        if entry["uid"] not in [each["uid"] for each in self.result["evicted"]]:
            self.result["evicted"].append(
                {"namespace": entry["namespace"], "pod": entry["pod"], "uid": entry["uid"], "gpu": entry["gpu"]}
            )
            self.result["changed"] = True
        return None, 0

    def refused(self, entry, exc):
        """Return what keeps a pod (None if it is gone) and the seconds until the next try; raise what is no pod's."""
        answered = isinstance(exc, ApiError)
        said = str(exc.answer.get("message") or "the server gave no reason") if answered else exc.why
        status = exc.status if answered else 0
        if status == 429:
            return self.kept(entry, exc)
        # The code of a denial is the webhook's own.
        if _DENIED.search(said):
            return pods.blocker(entry, "denied", said), DENIED_S
        # Gone, or another pod of that name: this one is gone. Or its namespace is being removed, and the pod with it.
        if status in (404, 409) or status == 403 and _TERMINATED_NAMESPACE in exc.reasons:
            return None, 0
        if exc.passing:
            return pods.blocker(entry, "server_error", said), 5
        if status == 403 and self.ask(self.api.allowed, EVICTS):
            return pods.blocker(entry, "denied", said), DENIED_S
        raise exc

    @staticmethod
    def kept(entry, exc):
        asked = (exc.answer.get("details") or {}).get("retryAfterSeconds") or 0
        said = "; ".join(exc.causes) or str(exc.answer.get("message") or "")
        named = _BUDGET.search(said)
        if not named and "DisruptionBudget" not in exc.reasons and "disruption budget" not in said:
            return pods.blocker(entry, "busy_server", said or "the server asks to come again later"), min(
                asked or 1, LONGEST_WAIT_S
            )
        # The message calls a budget by its name alone, as it stands in the pod's namespace.
        return pods.blocker(entry, "disruption_budget", said.rstrip("."), named.group(1) if named else ""), min(
            asked, LONGEST_WAIT_S
        )

    def give_up(self, options, policy):
        """Time is up: look once more, and fail with the names of what is still there. Nothing may be."""
        dummy, decision = self.look(policy)
        self.result["blockers"] = list(decision.blockers)
        for entry in decision.going:
            if entry["terminating"]:
                held = (
                    "its finalizers are %s" % ", ".join(entry["finalizers"])
                    if entry["finalizers"]
                    else "the node's kubelet has not ended it"
                )
                self.result["blockers"].append(
                    pods.blocker(entry, "terminating", "terminating since %s, %s" % (entry["terminating"], held))
                )
            else:
                self.result["blockers"].append(
                    self.why.get(entry["uid"])
                    or pods.blocker(entry, "waiting", "its turn comes after the pods with GPUs")
                )
        if self.result["blockers"]:
            raise KubeError(
                "%s: not drained in %d s: %s." % (self.name, options["timeout_s"], pods.names(self.result["blockers"])),
                self.stands(),
            )

    def pause(self, policy, deadline):
        """Take the GPU Operator's parts off the node, which hold the GPUs open, and see them gone."""
        self.write(self.off)
        keys = set(
            key
            for key, pair in (mark.ours(self.after, self.token) or {"labels": {}})["labels"].items()
            if pair[1] == operators.PAUSED
        )
        while keys:
            there = operators.operands(self.ask(self.api.pods, self.name), keys)
            if not there:
                return
            if self.clock() >= deadline:
                self.result["blockers"] = [
                    pods.blocker(entry, "operand", "the GPU Operator has not taken it away") for entry in there
                ]
                raise KubeError(
                    "%s: drained of work, but the GPU Operator's parts hold the GPUs although their labels say %s: %s. "
                    "Look at the operator." % (self.name, operators.PAUSED, pods.names(self.result["blockers"])),
                    self.stands(),
                )
            self.wait("pause", deadline)

    # Everything else

    def resume(self, wanted, want=NOT_COMPARED, laid_out=False):
        """Lift our mark and put back what was there, once the cluster has the GPUs of the node; what is not ours
        stays.
        """
        self.read()
        self.until = self.clock() + want.timeout_s
        ours = mark.ours(self.after, self.token)
        if ours is not None:
            if laid_out and operators.makes_layout(self.after):
                raise KubeError(
                    "%s: not resumed, because %s." % (self.name, operators.makes_layout(self.after)), self.stands()
                )
            self.have_gpus(dataclasses.replace(want, shared=ours["shared"] or ()), wanted)
        self.write(lambda node: mark.lift(node, self.token).merged(wanted))

    def have_gpus(self, want, wanted):
        """Wait until the cluster has as many GPUs as the node, and refuse otherwise: the node stays as it is, under our
        mark.
        """
        verdict = gpus.judge(self.after, want)
        if verdict.action == gpus.SKIP or self.check or verdict.action == gpus.SAME and not want.restart:
            return
        if verdict.action == gpus.REFUSE:
            raise KubeError("%s: not resumed, because %s." % (self.name, verdict.why), self.stays_closed())
        # The device plugin may be one of the parts that the drain took off the node, or not tolerate a taint that it
        # placed. The node stays unschedulable, so that nothing but pods of DaemonSets comes back.
        self.write(
            lambda node: mark.release(node, self.token, operators.PAUSED).merged(change.Change(taints=wanted.taints))
        )
        self.began = self.clock()
        deadline = self.until = self.began + want.timeout_s
        restart_at = self.began + (0 if want.restart else want.timeout_s / PATIENCE)
        settled_at = None if want.restart else self.began
        node = self.after
        while True:
            verdict = gpus.judge(node, want)
            if verdict.action == gpus.SAME and settled_at is not None and self.clock() >= settled_at:
                return
            if self.clock() >= deadline:
                why = (
                    verdict.why
                    or "its device plugin was to be restarted, and has not been running again for %d s" % (SETTLE_S,)
                )
                raise KubeError(
                    "%s: not resumed after %d s, because %s." % (self.name, want.timeout_s, why), self.stays_closed()
                )
            if self.clock() >= restart_at and not self.result["restarted"]:
                self.restart_plugin(want)
            elif settled_at is None and self.plugin_is_back(want):
                settled_at = self.clock() + SETTLE_S
            self.pace("gpus", deadline)
            node = self.ask(self.api.node, self.name)
            if mark.ours(node, self.token) is None:
                raise KubeError(
                    "%s: no longer under the mark of %s during the wait for its GPUs: another user returned it to "
                    "service. Ask who needs it, and run again." % (self.name, self.token)
                )

    def stays_closed(self):
        plugins = ", ".join("%(namespace)s/%(pod)s" % entry for entry in self.result["restarted"])
        done = (
            "Its device plugin was restarted (%s). " % plugins
            if plugins
            else "No pod of a device plugin was restarted on it. "
        )
        return (
            done + "The node stays as it was drained, under our mark: see the log of the device plugin, and run again."
        )

    def restart_plugin(self, want):
        """Have the DaemonSet make the device plugin's pod of the node again: it does not see that a MIG layout has
        changed.
        """
        for entry in gpus.plugins(self.ask(self.api.pods, self.name), want):
            try:
                self.api.evict(entry["namespace"], entry["pod"], entry["uid"])
            except KubeError as exc:
                self.refused(entry, exc)
                continue
            self.result["restarted"].append({"namespace": entry["namespace"], "pod": entry["pod"], "uid": entry["uid"]})
            self.result["changed"] = True

    def plugin_is_back(self, want):
        """Tell if the evicted pods are gone, and others run in their place.

        Until then the numbers are those of the old pods.
        """
        evicted = [entry["uid"] for entry in self.result["restarted"]]
        listed = self.ask(self.api.pods, self.name)
        there = [pods.describe(pod)["uid"] for pod in listed]
        return (
            bool(evicted)
            and not set(evicted) & set(there)
            and any(entry["running"] for entry in gpus.plugins(listed, want))
        )

    def bring(self, wanted):
        self.read()
        self.write(lambda dummy: wanted)

    def info(self, policy):
        """Report the state of the node without changing anything."""
        self.read()
        self.tell(*self.look(policy))

    def tell(self, listed, decision):
        """Report the pods on the node without evicting them."""
        self.result["operators"] = operators.found(self.after, listed)
        self.result["blockers"] = decision.blockers + [
            pods.blocker(each, "terminating" if each["terminating"] else "running", "it has not been evicted")
            for each in decision.going
        ]
        self.result["holding"] = [
            dict((key, entry[key]) for key in ("namespace", "pod", "gpu")) for entry in decision.going
        ]
        self.result["drained"] = change.unschedulable(self.after) and not self.result["blockers"]
