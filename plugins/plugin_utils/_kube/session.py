# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of one task on one node: read it, write it, look at its pods, evict one, and wait with a deadline."""

from __future__ import annotations

import datetime
import random
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, gpus, operators, ownership, pods
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import Api, ApiError, KubeError, Node

CONFLICTS = 12  # how often another client may write first
LONGEST_WAIT_S = 15
FIRST_LOOK_S = 0.5
LONGEST_LOOK_S = 10
DENIED_S = 5  # until a pod is tried again that an admission webhook or policy keeps
EVICTS = {"verb": "create", "resource": "pods", "subresource": "eviction"}
_DENIED = re.compile(r"denied (?:the )?request")  # of admission webhooks and of ValidatingAdmissionPolicy
_BUDGET = re.compile(r"disruption budget (\S+)")
_TERMINATED_NAMESPACE = "NamespaceTerminating"
Entry = dict[str, Any]  # a pod, as pods.describe_pod() returns it


def format_now() -> str:
    """Return the date and time as a marker has it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Session:
    """RESULT is filled step by step, and is returned if the task ends with an error."""

    def __init__(
        self,
        api: Api,
        name: str,
        token: str = "",
        check: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        date: Callable[[], str] = format_now,
    ) -> None:
        self.api = api
        self.name = name
        self.token = token
        self.check = check
        self.clock = clock
        self.sleep = sleep
        self.date = date
        self.before: Node | None = None
        self.after: Node | None = None
        self.until: float | None = None  # for how long a server that is away is asked again
        self.began: float | None = None  # when it began to wait
        self.is_authenticated = False  # whether the server took the credentials
        self.waits: dict[str, float] = {}  # step: how long to wait before its next look
        self.keys = {"labels": set(), "annotations": {ownership.MARK}}
        self.result: dict[str, Any] = {
            "node": name,
            "changed": False,
            "drained": False,
            "blockers": [],
            "evicted": [],
            "left": [],
            "operators": [],
            "restarted": [],
        }

    def ask(self, request: Callable[..., Any], *words: Any) -> Any:
        """Return the answer to a request that may be repeated; the server may be away until the time is over."""
        while True:
            try:
                answer = request(*words)
            except KubeError as exc:
                if not self._may_pass(exc) or self.until is None or self.clock() >= self.until:
                    raise
            else:
                self.is_authenticated = True
                return answer
            self.pace("away", self.until)

    def _may_pass(self, exc: KubeError) -> bool:
        """Tell if a request may succeed in a moment.

        401 is also the answer of a server whose authenticator fails, such as one that asks a webhook or etcd which is
        away (WithAuthentication, k8s.io/apiserver/pkg/endpoints/filters/authentication.go): credentials that were taken
        before are tried again.
        """
        return exc.passing or self.is_authenticated and getattr(exc, "status", 0) == 401

    def pace(self, step: str, deadline: float) -> None:
        """Sleep before the next look of a step, a little longer each time."""
        grown = self.waits.get(step, FIRST_LOOK_S)
        self.waits[step] = min(grown * 1.5, LONGEST_LOOK_S)
        self.sleep(max(0.05, min(grown, deadline - self.clock())))

    def read(self, timeout_s: float | None = None) -> Node:
        """Read the node. With a timeout, the server may be away for so long from now on, otherwise for no time."""
        problem = change.find_node_name_problem(self.name)
        if problem:
            raise KubeError(
                "%s. If the cluster calls the node by another name than the inventory, set node_name." % (problem,)
            )
        self.until = None if timeout_s is None else self.clock() + timeout_s
        self.after = self.ask(self.api.node, self.name)
        self.before = self.before or self.after
        return self.after

    def answer(self) -> dict[str, Any]:
        """Return the result as it stands."""
        if self.after is not None:
            self.result["mark"] = ownership.describe_owner(self.after, self.token)
            self.result["gpus"] = gpus.count_resources(self.after)
            self.result["unschedulable"] = change.is_unschedulable(self.after)
            self.result["diff"] = {
                "before": change.select_diff(self.before, self.keys),
                "after": change.select_diff(self.after, self.keys),
            }
        self.result["state"] = (
            "" if self.after is None else "unschedulable" if change.is_unschedulable(self.after) else "schedulable"
        )
        self.result["waited_s"] = 0.0 if self.began is None else round(self.clock() - self.began, 1)
        self.result["requests"] = self.api.requests
        return self.result

    def list_pods(self, policy: pods.Policy) -> tuple[list[Any], pods.Decision]:
        """Return the pods of the node, and what becomes of them."""
        listed = self.ask(self.api.pods, self.name)
        decision = pods.decide_pods(listed, policy)
        self.result["left"] = decision.left
        return listed, decision

    def write(self, decide: Callable[[Node], change.Change]) -> bool:
        """Make the node as DECIDE(node) says, however often other clients write in between.

        Returns whether there was anything to do.
        """
        for attempt in range(CONFLICTS):
            node = self.after
            if attempt:
                node = self.ask(self.api.node, self.name)
                if not self.result["changed"]:
                    self.before = node  # what others wrote is no part of our diff
            wanted = decide(node)
            for each in change.find_foreign_taints(node, wanted):
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

    def bring(self, wanted: change.Change) -> None:
        """Read the node and make the wanted change."""
        self.read()
        self.write(lambda dummy: wanted)

    def read_pods(self, policy: pods.Policy) -> None:
        """Report the state of the node without changing anything."""
        self.read()
        self.report_pods(*self.list_pods(policy))

    def report_pods(self, listed: Iterable[Any], decision: pods.Decision) -> None:
        """Report the pods on the node without evicting them."""
        self.result["operators"] = operators.find_operators(self.after, listed)
        self.result["blockers"] = decision.blockers + [
            pods.make_blocker(each, "terminating" if each["terminating"] else "running", "it has not been evicted")
            for each in decision.going
        ]
        self.result["holding"] = [
            dict((key, entry[key]) for key in ("namespace", "pod", "gpu")) for entry in decision.going
        ]
        self.result["drained"] = change.is_unschedulable(self.after) and not self.result["blockers"]

    def explain_refusal(self, entry: pods.Entry, exc: KubeError) -> tuple[dict[str, Any] | None, float]:
        """Return what keeps a pod (None if it is gone) and the seconds until the next try; raise what is no pod's."""
        answered = isinstance(exc, ApiError)
        said = str(exc.answer.get("message") or "the server gave no reason") if answered else exc.why
        status = exc.status if answered else 0
        if status == 429:
            return _explain_busy(entry, exc)
        # The code of a denial is the webhook's own.
        if _DENIED.search(said):
            return pods.make_blocker(entry, "denied", said), DENIED_S
        # Gone, or another pod of that name: this one is gone. Or its namespace is being removed, and the pod with it.
        if status in (404, 409) or status == 403 and _TERMINATED_NAMESPACE in exc.reasons:
            return None, 0
        if self._may_pass(exc):
            return pods.make_blocker(entry, "server_error", said), 5
        if status == 403 and self.ask(self.api.is_allowed, EVICTS):
            return pods.make_blocker(entry, "denied", said), DENIED_S
        raise exc


def _explain_busy(entry: pods.Entry, exc: ApiError) -> tuple[dict[str, Any], float]:
    asked = (exc.answer.get("details") or {}).get("retryAfterSeconds") or 0
    said = "; ".join(exc.causes) or str(exc.answer.get("message") or "")
    named = _BUDGET.search(said)
    if not named and "DisruptionBudget" not in exc.reasons and "disruption budget" not in said:
        said = said or "the server asks to come again later"
        return pods.make_blocker(entry, "busy_server", said), min(asked or 1, LONGEST_WAIT_S)
    # The message calls a budget by its name alone, as it stands in the pod's namespace.
    found = pods.make_blocker(entry, "disruption_budget", said.rstrip("."), named.group(1) if named else "")
    return found, min(asked, LONGEST_WAIT_S)
