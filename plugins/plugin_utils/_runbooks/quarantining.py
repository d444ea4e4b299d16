# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a node on its way into quarantine and out of it, decided from what the tasks of the role answered."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _awx, _upgrade_state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._host_answers import as_mapping as _mapping
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._host_answers import get_mapping as _of
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import leading
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import marker, recovery

Answer = Mapping[str, Any]
NEW_BASELINE = "return_to_service_new_baseline=true"


class Facts(TypedDict, total=False):
    """Options of the role, and the results of its tasks as they were registered."""

    node: str
    reason: str
    origin: str
    token: str  # whose drain it is, of a node that has no marker yet
    user: str
    controller: str
    time: str
    marks: Answer  # node_state
    note: Answer  # node_state: its marker
    flight: Answer  # rollout_node
    baseline_file: Answer  # slurp of the node's own baseline
    stat: Answer  # stat of the same file
    given_baseline: Any  # the baseline that the caller names, on the controller
    new_baseline: bool  # whether the GPUs as they are become the baseline
    health: Answer  # gpu_health
    smoke: Answer  # gpu_smoke
    smoked: bool  # whether that has to pass
    info: Answer  # gpu_info
    evidence: Answer  # gpu_evidence
    record: Answer  # quarantine_record
    not_closed: str  # why a scheduler was not told
    ownership: Mapping[str, Answer]  # gpu_scheduler_mark
    units: Answer  # systemctl show of the services that hold the GPUs
    history: Answer  # node_state: what recover_gpu did on it
    first: Any  # position in the kernel log at the verdict that led to the last action
    acted: str  # the last action of this run
    act_failed: str  # why that failed
    layout_made: Answer  # gpu_mig, after the last action
    actions: Sequence[str]  # what recover_gpu may do
    failed_result: Answer
    failed_task: Answer
    artifact_host: str
    awx_job: str  # a number where a job of AWX runs, whose container throws its files away


def decide(facts: Facts) -> dict[str, Any]:
    marks, note, health = _of(facts, "marks"), _of(facts, "note"), _of(facts, "health")
    answers = "claim" in marks and "exists" in note
    lies = marker.read_marker(note.get("note"))
    known, problem = _baseline(facts)
    # A marker that cannot be read keeps the node out as any other does.
    marked = bool(note.get("exists"))
    state = {
        "answers": answers,
        "silent": "" if answers else _describe_result(marks if "claim" not in marks else note, "it was not asked"),
        "refusal": _refusal(facts),
        "marked": marked,
        "known": marked and bool(note.get("note")) and bool(lies["record"]),
        "token": lies["token"] if marked and note.get("note") else facts.get("token") or marker.BY_HAND,
        "marked_at": lies["time"] if marked else "",
        "owned": sorted(
            name for name, by in (facts.get("ownership") or {}).items() if _mapping(by).get("owner") == "ours"
        ),
        "kept_by_others": sorted(
            name
            for name, by in (facts.get("ownership") or {}).items()
            if _mapping(by).get("owner") not in ("ours", "none")
        ),
        "baseline": known,
        "about": {key: str(facts.get(key) or "") for key in ("node", "reason", "user", "controller", "time")},
        "failure": _failure(facts),
        "failed_checks": marker.list_failed_checks(health.get("health")),
        **_mig(facts, known),
        "no_way_back": _no_way_back(facts, lies, known, problem),
        "unfit": _unfit(facts),
    }
    state["about"].update(
        evidence=_of(facts, "evidence").get("bundle") or "", silent=state["silent"] or _unread(health)
    )
    if marked and note.get("note"):
        state["about"].update(
            time=lies["time"] or state["about"]["time"], reason=lies["reason"] or state["about"]["reason"]
        )
    state["incomplete"] = _incomplete(state, facts)
    state.update(_recovery(facts))
    state["marker"] = _marker(facts, state)
    return state


def _refusal(facts: Facts) -> str:
    flight = _of(facts, "flight")
    if "held" not in flight:
        return "it cannot be told whether a rollout has it in flight: %s. Nothing was changed." % _describe_result(
            flight, "the ledger was not asked"
        ).rstrip(". ")
    return str(flight["held"])


def _marker(facts: Facts, state: Mapping[str, Any]) -> dict[str, Any]:
    """The marker to write; empty as long as it is not known what it shall say."""
    note, record, about = _of(facts, "note").get("note"), _of(facts, "record"), state["about"]
    if not about["node"] or not about["time"] or not about["reason"]:
        return {}
    given = {
        "node": about["node"],
        "time": about["time"],
        "reason": about["reason"],
        "user": about["user"],
        "controller": about["controller"],
        "origin": facts.get("origin") or "quarantine",
        "evidence": _find_kept_place(facts, about["evidence"]),
        "record": _find_kept_place(facts, record.get("path") or ""),
        "token": facts.get("token") or marker.BY_HAND,
        "schedulers": state["owned"],
        "gpus": record.get("gpus") or [],
        "checks": record.get("checks") or [],
        "snapshot": _of(_of(facts, "health"), "baseline").get("snapshot"),
        "health": _of(facts, "health").get("health"),
        "baseline": state["baseline"],
    }
    return marker.complete(note, given)


def _find_kept_place(facts: Facts, path: str) -> str:
    """Return where the files at a PATH of the controller are kept; empty if a job of AWX throws them away."""
    host = str(facts.get("artifact_host") or "")
    if path and host not in _awx.HERE:
        return "%s:%s" % (host, path)
    return "" if facts.get("awx_job") else path


def _mig(facts: Facts, baseline: Answer | None) -> dict[str, Any]:
    """The MIG layout: as gpu_info read it, else that of the baseline, else as it was at the last verdict.

    One without a device is the last choice: a run that died while the instances were destroyed leaves the node so.
    """
    readings = [
        _of(_of(facts, "info"), "snapshot"),
        _of(_mapping(baseline), "snapshot"),
        _of(_of(_of(facts, "health"), "baseline"), "snapshot"),
    ]
    in_mig = any(_upgrade_state.in_mig_mode(reading) for reading in readings)
    told = list(filter(None, (_upgrade_state.mig_layout(reading) for reading in readings if reading)))
    made = [layout for layout in told if any(entry.get("mig_devices") for entry in layout)]
    return {"in_mig": in_mig, "mig_layout": next(iter(made + told), None) if in_mig else None}


def _layout_lacks(made: Answer) -> str:
    """Return why the MIG layout is not there after an action; empty if it is, or none had to be made."""
    if not made or made.get("skipped"):
        return ""
    if made.get("failures") == [] and made.get("reset_required") is False:
        return ""
    return "its MIG layout was not made again: %s" % _describe_result(made, "gpu_mig gave no answer").rstrip(".")


def _recovery(facts: Facts) -> dict[str, Any]:
    """Return the decision for recover_gpu: the next step, and the history before and after it."""
    history, now = _of(facts, "history"), str(facts.get("time") or "")
    note, verdict = history.get("note"), _of(facts, "health").get("health")
    problem = str(history.get("problem") or ("" if "exists" in history else "its history was not read"))
    step = recovery.next_step(verdict, note, problem, now, facts.get("actions") or ())
    step = recovery.without_layout(step, _layout_lacks(_of(facts, "layout_made")))
    outcome = _mapping(verdict).get("verdict") or "unknown"
    outcome = "%s: %s" % (outcome, facts["act_failed"]) if facts.get("act_failed") else outcome
    position = _of(_of(_of(facts, "health"), "baseline"), "kernel_log").get("position")
    return {
        "step": step,
        "reason": "%s%s"
        % (step["why"], ", since these checks did not pass: %s" % ", ".join(step["checks"]) if step["checks"] else ""),
        "begun": recovery.record_begin(
            note, step, now, {"user": facts.get("user") or "", "controller": facts.get("controller") or ""}
        ),
        "ended": recovery.record_end(note, outcome, position),
        "position": position,
        "running": _upgrade_state.active_units(str(_of(facts, "units").get("stdout") or "")),
        "since": recovery.find_log_position(note, facts.get("first"), facts.get("acted") or ""),
    }


def _incomplete(state: Mapping[str, Any], facts: Facts) -> str:
    """Return what is still to do for a node that is put in quarantine; empty if nothing is."""
    said = []
    if facts.get("not_closed"):
        said.append("its scheduler may give it work: %s" % str(facts["not_closed"]).rstrip("."))
    if not state["answers"]:
        said.append("no marker was left on it, since it does not answer (%s)" % state["silent"].rstrip("."))
    return "; ".join(said)


def _baseline(facts: Facts) -> tuple[Answer | None, str]:
    """(the baseline to compare with, why there is none)."""
    if facts.get("given_baseline"):
        return _mapping(facts["given_baseline"]), ""
    file, stat = _of(facts, "baseline_file"), _of(facts, "stat")
    if "content" not in file:
        if _of(stat, "stat").get("exists") is False:
            kept = _of(_of(facts, "flight"), "baseline")
            return (kept, "") if kept else (None, "the node keeps none, and none was given")
        return None, _describe_result(file, "it was not read")
    try:
        found = json.loads(base64.b64decode(str(file["content"])).decode("utf-8"))
    except (binascii.Error, ValueError, RecursionError) as exc:
        return None, "%s is no JSON: %s" % (file.get("source") or "the baseline on the node", exc)
    if not isinstance(found, Mapping):
        return None, "%s holds no dictionary" % (file.get("source") or "the baseline on the node")
    answer = _answers.accept("gpu_health", {"baseline": found})
    return (None, str(answer["msg"])) if answer.get("failed") else (answer["baseline"], "")


def _no_way_back(facts: Facts, lies: Answer, baseline: Answer | None, problem: str) -> str:
    """Return why the node cannot be compared with its baseline: it has none, or its GPUs are others. Empty if it
    can."""
    note = _of(facts, "note")
    if note.get("exists") and not note.get("note"):
        return (
            "its marker does not say whose quarantine it is: %s. Correct the file, or write why it is there. "
            "Nothing was changed." % (str(note.get("problem") or "it is empty").rstrip("."))
        )
    if facts.get("new_baseline"):
        return ""
    if baseline is None:
        return (
            "there is no baseline to compare the node with: %s. Name a directory with one "
            "(return_to_service_baseline_dir), or take a new one on purpose: %s. Nothing was changed."
            % (problem.rstrip("."), NEW_BASELINE)
        )
    now = marker.describe_gpus(_of(facts, "info").get("snapshot"))
    if not now or any(not gpu["uuid"] for gpu in now):
        return (
            "which GPUs the node has cannot be told (%s); expected all of them to answer. "
            "See docs/runbooks/quarantine.md. Nothing was changed."
            % (_describe_result(_of(facts, "info"), "a GPU does not tell its UUID" if now else "NVML shows none"))
        )
    for what, before in (
        ("the baseline", marker.describe_gpus(_mapping(baseline).get("snapshot"))),
        ("the quarantine record", lies["gpus"]),
    ):
        found = marker.find_exchanged(before, now)
        if found["gone"] or found["new"]:
            said = [
                words + ", ".join(map(marker.format_gpu, found[key]))
                for key, words in (("gone", "missing is "), ("new", "new is "))
                if found[key]
            ]
            return (
                "its GPUs are others than in %s: %s. If they were exchanged, a new baseline has to be taken on "
                "purpose: %s. Nothing was changed." % (what, "; ".join(said), NEW_BASELINE)
            )
    return ""


def _unfit(facts: Facts) -> str:
    """Return why the node is not healthy; empty if both its verdict and its smoke test pass."""
    smoke, health = _of(facts, "smoke"), _of(facts, "health")
    said = []
    smoked = facts.get("smoked", True)
    for name, result in ((("smoke test", smoke),) if smoked else ()) + (("health", health),):
        verdict = _of(result, "health").get("verdict")
        if verdict == "pass":
            continue
        checks = _of(result, "health").get("checks") or []
        found = leading.describe_findings(checks, _describe_result(result, "no answer"))
        ident = next((" (%s)" % one.get("id") for one, cause in leading.sort_findings(checks)), "")
        said.append("%s is %s%s: %s" % (name, verdict or "unknown", ident, found))
    if not said and smoked and smoke.get("tested") is not True:
        said.append(
            "smoke test is unknown: no GPU of the node was tested (%s). GPUs in MIG mode cannot be: "
            "return_to_service_smoke_level=none." % (str(smoke.get("msg") or "no reason is given").rstrip("."))
        )
    if any(_of(result, "health").get("action") in ("reset_gpu", "reboot") for result in (smoke, health)):
        said.append(
            "Reboot the node, since what the kernel logged in an earlier boot does not count: "
            "ansible %s -b -m ansible.builtin.reboot. Then run return_to_service again." % (facts.get("node") or "NODE")
        )
    return " ".join(said)


def _unread(health: Answer) -> str:
    """Return why a node that is reachable reported nothing about its GPUs."""
    return "" if not health or "health" in health else _describe_result(health, "its health could not be read")


def _failure(facts: Facts) -> str:
    failed, task = _of(facts, "failed_result"), _of(facts, "failed_task")
    return redaction.reason(failed.get("msg") or "task failed: %s" % task.get("name", ""))


def _describe_result(result: Answer, otherwise: str) -> str:
    return redaction.reason(result.get("msg") or otherwise)
