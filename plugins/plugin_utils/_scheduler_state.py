# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a node in its schedulers, decided from what the tasks of role gpu_scheduler returned.

Pure: facts in, a state out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction

Answer = Mapping[str, Any]

# The scheduler that a module speaks to.
MODULES = {"gpufleet.lifecycle.slurm_node": "slurm", "gpufleet.lifecycle.kube_node": "kubernetes"}
NOT_DRAINED_BY_ANYONE = {"owner": "none", "token": None, "previous": None}
UNKNOWN = {"owner": "unknown", "token": None, "previous": None}


class Facts(TypedDict, total=False):
    """Variables of the role, and the results of its tasks as they were registered."""

    backends: Sequence[str]  # the node's schedulers, in the order in which they drain it
    services: Sequence[str]  # units that may hold the GPUs of a drained node
    drain_timeout: int  # seconds; 0: the node is only closed for new work
    on_timeout: str  # lift or keep: what becomes of our drain when the node could not be drained
    slurm: Answer  # the last answer of slurm_node
    kubernetes: Answer  # the last answer of kube_node
    users: Answer  # gpu_info of the drained node
    reason: str  # why the node could not be drained
    failures: Mapping[str, str]  # schedulers that could not be told, and why
    failed_result: Answer  # ansible_failed_result
    failed_task: Answer  # ansible_failed_task: name and action


class State(TypedDict):
    """The decisions that follow from the facts."""

    drained: bool  # whether every scheduler has drained it
    ownership: dict[str, Answer]  # who drained it, by scheduler
    blockers: list[Any]  # jobs and pods that hold it
    in_use: str  # why it must be left alone: processes use its GPUs, or may
    not_drained: str  # why a node is not verified as drained; empty if it is
    failure: str  # in a rescue: why, in one line
    drain_failure: str  # the same of a drain; jobs that did not end are named
    failed: dict[str, str]  # in a rescue: the scheduler whose task failed, and why; empty if it was another task
    lift: list[str]  # after a drain that failed: schedulers in which it is lifted
    close: list[str]  # after a drain that failed: schedulers in which it is closed all the same
    resume: list[str]  # after a resume that failed: schedulers that were not asked yet
    unseen: dict[str, Answer]  # ownership in schedulers that could not be told to lift it
    drain_failed: str  # what to say of a node that could not be drained
    resume_failed: str  # what to say of a node that was not taken back


def decide(facts: Facts) -> State:
    backends, failures = list(facts.get("backends") or []), dict(facts.get("failures") or {})
    answers = {name: facts.get(name) or {} for name in backends}
    ownership = {name: answer.get("mark") or NOT_DRAINED_BY_ANYONE for name, answer in answers.items()}
    kept = [name for name, by in ownership.items() if by.get("owner") == "ours"]
    lifts, closes = facts.get("on_timeout") == "lift", _only_closes(facts)
    failure, failed_in = _failure(facts), MODULES.get((facts.get("failed_task") or {}).get("action", ""), "")
    return {
        "drained": all(answer.get("drained", False) for answer in answers.values()),
        "ownership": ownership,
        "blockers": [blocker for answer in answers.values() for blocker in answer.get("blockers") or []],
        "in_use": _gpu_use.in_use_when_drained(facts.get("users") or {}, facts.get("services") or []),
        "not_drained": _not_drained(answers),
        "failure": failure,
        "drain_failure": _waits_for_jobs(facts) or failure,
        "failed": {failed_in: failure} if failed_in else {},
        "lift": backends if lifts and kept else [],
        "close": _after(failed_in, backends) if closes else [],
        "resume": _after(failed_in, backends[::-1]),
        "unseen": dict.fromkeys(failures, UNKNOWN) if lifts else {},
        "drain_failed": _drain_failed(facts.get("reason") or "", failures, kept, lifts, closes),
        "resume_failed": _resume_failed(backends, failures),
    }


def _only_closes(facts: Facts) -> bool:
    return facts.get("on_timeout") == "keep" and not int(facts.get("drain_timeout") or 0)


def _after(failed_in: str, order: Sequence[str]) -> list[str]:
    """Schedulers that come after the one that failed; all of them if it was none of theirs."""
    return list(order[order.index(failed_in) + 1 :] if failed_in in order else order)


def _failure(facts: Facts) -> str:
    result, task = facts.get("failed_result") or {}, facts.get("failed_task") or {}
    return redaction.reason(result.get("why") or result.get("msg") or "task failed: %s" % task.get("name", ""))


def _waits_for_jobs(facts: Facts) -> str:
    slurm = (facts.get("slurm") or {}) if "slurm" in (facts.get("backends") or []) else {}
    if not slurm.get("waiting"):
        return ""
    return (
        "%s is not empty in Slurm after %s s, %s. Wait for the jobs, or have them ended, or allow more time "
        "(gpu_scheduler_drain_timeout), and run again."
        % (slurm.get("node"), facts.get("drain_timeout"), slurm.get("holding"))
    )


def _not_drained(answers: Mapping[str, Answer]) -> str:
    states = [answer.get("state", "no answer") for answer in answers.values() if not answer.get("drained", False)]
    if not states:
        return ""
    jobs = sum(len(answer.get("blockers") or []) for answer in answers.values())
    return "it is not drained any more, or not empty: %s in %s%s. See who put it back, and run again." % (
        ", ".join(states),
        " and ".join(answers),
        ", held by %d jobs" % jobs if jobs else "",
    )


def _drain_failed(reason: str, failures: Mapping[str, str], kept: Sequence[str], lifts: bool, closes: bool) -> str:
    if failures and lifts:
        reason = "%s Not lifted in %s If it was drained there it stays so, and the next run lifts it." % (
            reason,
            _words(failures),
        )
    elif failures and closes:
        reason = "not closed in %s" % _words(failures)
    return reason + (" It stays drained by us in %s." % " and ".join(kept) if kept else "")


def _resume_failed(backends: Sequence[str], failures: Mapping[str, str]) -> str:
    told = [name for name in backends if name not in failures]
    return "not taken back by %s%s" % (_words(failures), " %s has it back." % " and ".join(told) if told else "")


def _words(failures: Mapping[str, str]) -> str:
    return " ".join(re.sub(r"[.]?$", ".", "%s: %s" % item, count=1) for item in failures.items())
