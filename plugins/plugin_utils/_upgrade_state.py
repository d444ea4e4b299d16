# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a node on its way through role gpu_node_upgrade, decided from what the gate and the tasks answered.

Pure: facts in, a state out. A fact that no task has answered yet is an empty mapping. What is not known is left out of
the answer instead of being guessed, so that a task which needs it fails.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import mig_free
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import baseline as mig_baseline
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._host_answers import as_mapping as _mapping
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._host_answers import get_mapping as _of
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import leading

Answer = Mapping[str, Any]

# DCGM and its exporter keep the GPUs and MIG instances that there were when they started, such as at a boot before the
# layout was made.
LAYOUT_READERS = ("nvidia-dcgm.service", "nvidia-dcgm-exporter.service")
UNKNOWN_LAYOUT = (
    "its MIG layout before was not read, so that it could not be made again; nothing was changed. Read it with gpu_mig "
    "(state: exported)."
)

# States of a unit in which it may hold a GPU (systemctl(1), "ActiveState").
ACTIVE = ("active", "activating", "reloading")
_UNIT = re.compile(r"^(Id|ActiveState)=(.+)$", re.MULTILINE)
# What NVIDIA's CDI files describe, and what makes them: the toolkit's own unit from 1.18 on, else that of role
# nvidia_container_toolkit.
CDI_KIND = "nvidia.com/gpu"
CDI_UNITS = ("nvidia-cdi-refresh.service", "gpufleet-cdi-refresh.service")
FAILURE_LENGTH = 2000
# What NVML tells of a GPU's MIG layout.
MIG_KEYS = ("mig_mode_current", "mig_mode_pending", "mig_instances")


class Facts(TypedDict, total=False):
    """The facts about the node: variables of the role, and the registered results of its tasks."""

    version: str  # the driver version that the rollout wants
    to_kernel: str  # the kernel that it wants to run; empty for any
    layout: Answer  # the MIG layout that it wants; empty where it wants none
    services: Sequence[str]  # units that hold the GPUs, in the order in which they are stopped
    backends: Sequence[str]  # its schedulers
    ownership: Mapping[str, Answer]  # gpu_scheduler_mark: who drained it, by scheduler
    hardware: Answer  # gpu_health_expect, with what the plan knows of other nodes
    gate: Answer  # rollout_gate, phase drain
    before: Answer  # gpu_health before the change, or after a controller died
    drained: Answer  # gpu_health once more, after its schedulers had drained it
    after: Answer  # gpu_health after the change
    units: Answer  # systemctl show of the services
    ran: Sequence[str]  # services that were stopped earlier and have to run again
    mig_cleared: Answer  # rollout_step that opened the destruction of MIG instances
    mig_free: Answer  # gpu_health while there were none, before anything was installed
    installs: bool  # whether the driver is installed, or only the layout is made; default yes
    install: Answer  # rollout_step that opened the installation
    proof: Answer  # driver_audit of what is on disk, on the way there or back
    layout_begun: Answer  # rollout_step that opened the change of the MIG layout
    layout_made: Answer  # gpu_mig that made it
    layout_again: Answer  # gpu_mig after a reset, on GPUs whose MIG mode waited for it
    layout_read: Answer  # gpu_info after the layout was made, on the way there or back
    kernel: Answer  # boot_kernel on the way back
    reboot: Answer  # driver_reload
    booted: str  # yes, no or unknown: whether an earlier stage rebooted the node
    restored: Answer  # gpu_settings after the change
    started: Answer  # node_services after the change; skipped where there was nothing to start
    returned: Answer  # rollout_gate, phase return
    soak_interval: int  # seconds between two checks of a canary
    reason: str  # why the upgrade failed
    resume_failed: str  # why a scheduler did not take back a node with a good new driver
    lift_failed: str  # the same of a node that was put back
    failed_result: Answer  # ansible_failed_result
    failed_task: str  # name of the task that failed


class State(TypedDict, total=False):
    """The decisions that follow from the facts. The key marked with a star is omitted if it is unknown."""

    resume: str  # where an earlier controller left the node; empty if none had begun
    recover: bool  # whether an earlier controller had begun
    previous: str  # * the driver version to go back to; empty if there is none
    current: bool  # whether an earlier controller had upgraded it, and it is healthy
    touched: bool  # whether a failure has to be undone on the node
    active: list[str]  # services that run now
    running: list[str]  # services that run now or have to run again, in the order of Facts.services
    # units to start after the change: those that have to run again, and the one that makes the CDI file, where there is
    # one
    start: list[str]
    restart: list[str]  # those of them that may run already with the MIG layout before: they read it when they start
    scheduled: bool  # whether a scheduler gives it work
    drained_by_us: bool  # whether it is drained by this rollout, or may be
    expected_gpus: int  # GPUs or MIG devices that a scheduler has to know of (filter schedulable_gpus)
    booted: str  # yes, no or unknown: whether the node was rebooted on purpose since its baseline
    expect: Answer  # option expect of gpu_health after the change
    hardware: Answer  # option expect of gpu_health before the change
    unfit: str  # why the node must not be changed: it is unhealthy, or has no version to go back to
    in_use: str  # why the node must not be changed: GPUs are in use
    mig: bool  # whether a GPU was in MIG mode and no other layout is wanted, so that its layout has to be made again
    reboot_due: bool  # * whether the driver on disk, or the kernel that boots next, needs a reboot or a reload
    layout: bool  # whether another MIG layout is wanted
    layout_before: list[Answer]  # * the layout before, as option layout of gpu_mig
    clear_mig: bool  # whether its instances have to go before the installation, to read what MIG hides
    mig_unfit: str  # why the node must not be changed: what MIG hid is bad, or is not told without instances either
    serving: Answer  # option expect of gpu_health for a node that serves, of which MIG hides some
    joining: bool  # whether GPUs that join their NVLink fabric are all that the comparison waits for
    hung: bool  # whether NVML did not answer within its deadline
    not_returned: str  # why the node is not as it was after the change, although its health may have passed
    soak_looks: list[int]  # numbers of the checks of a canary at work
    failure: str  # in a rescue: why, in one line
    failed_checks: list[str]  # in a rescue: ids of the checks that did not pass
    findings: list[Answer]  # in a rescue: these checks for the report, the one that leads first
    outcome: str  # what to say of a node that failed and got no quarantine marker


class Documents(TypedDict, total=False):
    """Documents of the node, which are large. Each is left out where it is not known."""

    baseline: Answer  # the node before anything was changed
    # what it has to be like after the change: the baseline, with the MIG layout that was made if another one was wanted
    reference: Answer
    mig_free: Answer  # the same node without MIG instances, before anything was installed
    health_before: Answer  # the last verdict before the change
    proof: Answer  # the last verdict after the change, or that of a node which an earlier controller had changed
    layout_proof: Answer  # the wanted MIG layout, if it was made, and what gpu_mig read back of each GPU
    snapshot: Answer  # what that check read of the GPUs; empty if there was none
    identified: Answer  # what was read of the GPUs before the change, or else after it; empty if neither was


def documents(facts: Facts) -> Documents:
    before, passed = _before(facts), _has_passed(facts)
    recover, _current = _progress(facts)
    without_mig = _of(facts, "mig_free").get("baseline") or _of(_of(facts, "gate"), "documents").get("mig-free")
    found = {
        "mig_free": without_mig,
        "baseline": _of(_of(facts, "gate"), "documents").get("baseline") if recover else before.get("baseline"),
        "health_before": before.get("health"),
        "proof": passed.get("health"),
        "layout_proof": _layout_proof(facts),
        "snapshot": _of(_of(passed, "baseline"), "snapshot"),
    }
    found["reference"] = (
        _reference(found["baseline"], _layout_made(facts)) if facts.get("layout") else found["baseline"]
    )
    found["identified"] = _of(_mapping(found["baseline"]), "snapshot") or found["snapshot"]
    return {name: document for name, document in found.items() if isinstance(document, Mapping)}


def decide(facts: Facts) -> State:
    gate, after, before = _of(facts, "gate"), _of(facts, "after"), _before(facts)
    resume = gate.get("resume") or ""
    recover, current = _progress(facts)
    known = documents(facts)
    baseline = known.get("baseline")
    previous = gate.get("from_version") if recover else _version_before(facts.get("version") or "", baseline)
    touched = resume not in ("", "stopped") or any(
        "progress" in _of(facts, step) for step in ("install", "mig_cleared", "layout_begun")
    )
    mig, layout = in_mig_mode(_of(_mapping(baseline), "snapshot")), bool(facts.get("layout"))
    layout_before = mig_layout(_of(_mapping(baseline), "snapshot")) if layout else None
    active = active_units(_of(facts, "units").get("stdout") or "")
    runs = [*active, *(facts.get("ran") or [])]
    running = [unit for unit in facts.get("services") or [] if unit in runs]
    booted = _was_booted(recover, _of(facts, "reboot"), facts.get("booted"))
    hardware = {key: value for key, value in (facts.get("hardware") or {}).items() if key in ("hardware", "peers")}
    failed = _of(facts, "failed_result")
    state: State = {
        "resume": resume,
        "recover": recover,
        "current": current,
        "touched": touched,
        "active": active,
        "running": running,
        "start": [*reversed(running), *cdi_units(_of(_mapping(baseline), "system"))],
        "restart": [unit for unit in running if unit in LAYOUT_READERS] if mig or layout else [],
        "scheduled": bool(facts.get("backends")),
        "drained_by_us": any(
            _mapping(by).get("owner") in ("ours", "unknown") for by in (facts.get("ownership") or {}).values()
        ),
        "expected_gpus": _expected_gpus(_layout_made(facts) or _of(_mapping(baseline), "snapshot"), known["snapshot"]),
        "booted": booted,
        "expect": {**({} if booted == "unknown" else {"reboot": booted == "yes"}), **hardware},
        "hardware": hardware,
        "unfit": _unfit(_of(before, "health"), previous)
        or ("" if not layout or layout_before is not None else UNKNOWN_LAYOUT),
        "in_use": _gpu_use.in_use(_of(_mapping(baseline), "snapshot").get("gpus")),
        "mig": mig and not layout,
        "layout": layout,
        "clear_mig": mig and "mig_free" not in known,
        "mig_unfit": _mig_unfit(_of(_of(facts, "mig_free"), "health")),
        "serving": {**hardware, "mig_hidden": mig_free.ALL},
        "joining": _health.joining(_open_checks(after)),
        "hung": any(
            check.get("id") == "nvml.answers" and check.get("observed") in ("timeout", "stuck")
            for check in _open_checks(after)
        ),
        "not_returned": _not_returned(after, _of(facts, "restored"), _of(facts, "started")),
        "soak_looks": _soak_looks(_of(facts, "returned").get("soak_s"), facts.get("soak_interval")),
        "failure": _failure(failed, facts.get("failed_task") or ""),
        "failed_checks": sorted({str(check.get("id")) for check in _open_checks(failed)}),
    }
    if isinstance(previous, str):
        state["previous"] = previous
    if layout_before is not None:
        state["layout_before"] = layout_before
    due = _of(_of(facts, "proof"), "audit").get("reboot_required") if facts.get("installs", True) else False
    if isinstance(due, bool):
        state["reboot_due"] = due
    state["findings"] = leading.tabulate(_find_failed_checks(facts, state))
    state["outcome"] = _outcome(facts, state, _of(_mapping(baseline), "audit"))
    return state


def mig_layout(snapshot: Answer) -> list[Answer] | None:
    """The MIG layout of a snapshot as option layout of gpu_mig; None where it does not tell all of it."""
    try:
        return mig_baseline.entries(snapshot)
    except mig_baseline.BaselineProblem:
        return None


def _layout_made(facts: Facts) -> Answer:
    """Return what was read of the GPUs after their layout was made; empty before."""
    return _of(_of(facts, "layout_read"), "snapshot")


def _layout_proof(facts: Facts) -> Answer | None:
    again = _of(facts, "layout_again")
    made = again if again and not again.get("skipped") else _of(facts, "layout_made")
    if not facts.get("layout") or not made:
        return None
    return {
        "layout": facts["layout"],
        "gpus": [
            {"gpu": _mapping(row).get("gpu"), "status": _mapping(row).get("status")} for row in made.get("gpus") or []
        ],
    }


def _reference(baseline: Any, made: Answer) -> Answer | None:
    """The baseline with the MIG layout that was made and read, GPU by GPU; None before.

    A GPU that was not read keeps that of the baseline.
    """
    if not isinstance(baseline, Mapping) or not made:
        return None
    read = {_of(gpu, "uuid").get("value"): gpu for gpu in made.get("gpus") or [] if isinstance(gpu, Mapping)}
    gpus = []
    for gpu in _of(baseline, "snapshot").get("gpus") or []:
        now = read.get(_of(gpu, "uuid").get("value")) or {}
        gpus.append({**gpu, **{key: now[key] for key in MIG_KEYS if key in now}})
    return {**baseline, "snapshot": {**_of(baseline, "snapshot"), "gpus": gpus}}


def in_mig_mode(snapshot: Answer) -> bool:
    """Return whether a GPU of the snapshot is in MIG mode. One that could not be asked is not."""
    return any(
        _of(gpu, "mig_mode_current").get("value") == 1 for gpu in snapshot.get("gpus") or [] if isinstance(gpu, Mapping)
    )


def cdi_units(system: Answer) -> list[str]:
    """The unit that makes the CDI file again, of a node that had one before the change; none where there was no file,
    or no unit for it.

    The file names libraries by the driver's version and MIG devices by their UUIDs: neither a driver that was reloaded
    nor a layout that was made after the boot is seen by what runs at boot. As a unit of type oneshot, it runs whenever
    it is started.
    """
    specs, units = _of(system, "cdi").get("specs") or [], _of(system, "units")
    if not any(_mapping(spec).get("kind") == CDI_KIND for spec in specs):
        return []
    return [unit for unit in CDI_UNITS if _of(units, unit).get("load") == "loaded"][:1]


def active_units(shown: str) -> list[str]:
    """Units that run, of what C(systemctl show --property=Id,ActiveState) printed: a paragraph for each."""
    units = (dict(_UNIT.findall(paragraph)) for paragraph in shown.split("\n\n"))
    return [unit["Id"] for unit in units if unit.get("ActiveState") in ACTIVE and "Id" in unit]


def complaint(health: Answer) -> str:
    """Return the finding that leads, with its next step, and the checks that it does not explain."""
    return leading.describe_findings(_not_passed(health), "verdict %s" % health.get("verdict", ""))


def _before(facts: Facts) -> Answer:
    """The last check before the change.

    One after the drain that says nothing is not made up for by the one before it.
    """
    drained = _of(facts, "drained")
    return drained if drained and not drained.get("skipped") else _of(facts, "before")


def _progress(facts: Facts) -> tuple[bool, bool]:
    """Tell if an earlier controller had begun, and if the node is upgraded, healthy, and on the planned kernel.

    A node that is to have another MIG layout goes through all of its steps again: its baseline has the previous layout,
    and does not show if the new one was made.
    """
    recover = bool(_of(facts, "gate").get("resume"))
    health, kernel = _of(_before(facts), "health"), facts.get("to_kernel")
    has_kernel = not kernel or health.get("kernel") == kernel
    return recover, recover and has_kernel and not facts.get("layout") and health.get("verdict") == "pass"


def _has_passed(facts: Facts) -> Answer:
    _recover, current = _progress(facts)
    return _before(facts) if current else _of(facts, "after")


def _version_before(wanted: str, baseline: Any) -> str | None:
    """The version that is loaded, or the package's where the wanted one names a package's (with its revision)."""
    if not isinstance(baseline, Mapping):
        return None
    versions = _of(_of(baseline, "audit"), "versions")
    package = versions.get("package") if "-" in wanted else None
    return package or versions.get("loaded") or ""


def _was_booted(recover: bool, reboot: Answer, earlier: str | None) -> str:
    """Unknown after a controller died, or a reboot failed.

    A driver that is reloaded on the way back does not undo a reboot.
    """
    if reboot.get("rebooted") or earlier == "yes":
        return "yes"
    return "unknown" if recover or reboot.get("failed") or earlier == "unknown" else "no"


def _expected_gpus(*snapshots: Answer) -> int:
    """Those of the baseline, or where they could not be counted then, those that the last check saw; else no number of
    GPUs.
    """
    counts = [_gpu_use.schedulable(snapshot) for snapshot in snapshots]
    return next((count for count in counts if count >= 0), min(counts))


def _unfit(health: Answer, previous: Any) -> str:
    if health.get("verdict") != "pass":
        return "unhealthy before the upgrade, nothing was changed: %s" % complaint(health)
    return "" if previous else "no loaded driver was found to go back to; nothing was changed. Bring the node up first."


def _mig_unfit(health: Answer) -> str:
    """Of the checks of a node without instances those count that MIG had hidden: its services are stopped, and it is
    not at work.
    """
    hidden = [check for check in health.get("checks") or [] if check.get("id") in mig_free.HIDES]
    bad = complaint({"checks": hidden}) if _not_passed({"checks": hidden}) else ""
    if not bad and not any(check.get("status") == "pass" for check in hidden):
        bad = "none of it was read."
    return bad and "unhealthy without its MIG instances, nothing was installed: %s" % bad


def _not_passed(health: Answer) -> list[Answer]:
    return [check for check in health.get("checks") or [] if check.get("status") in ("fail", "unknown")]


def _open_checks(result: Answer) -> list[Answer]:
    return _not_passed(_of(result, "health"))


def _find_failed_checks(facts: Facts, state: State) -> list[Answer]:
    """Return the checks that a failure is about: of the task that failed, or of the verdict for which it failed."""
    failed = _of(facts, "failed_result")
    if not failed.get("msg") or _open_checks(failed):
        return _open_checks(failed)
    judged = ((state["unfit"], _before(facts)), (state["mig_unfit"], _of(facts, "mig_free")))
    return next((_open_checks(result) for why, result in judged if why == failed["msg"]), [])


def _not_returned(after: Answer, restored: Answer, started: Answer) -> str:
    if after.get("unreachable"):
        return "the node does not answer after the change: %s" % after.get("msg", "no answer")
    if restored.get("failures") != []:
        return restored.get("msg") or "its settings were not brought back"
    if started.get("skipped") or started.get("failures") == []:
        return ""
    return "services that ran before do not start: %s" % (started.get("msg") or "no answer")


def _soak_looks(seconds: Any, interval: Any) -> list[int]:
    return list(range(-(-int(seconds or 0) // max(int(interval or 0), 1))))


def _failure(failed: Answer, task: str) -> str:
    said = (
        complaint(failed["health"])
        if isinstance(failed.get("health"), Mapping)
        else failed.get("msg") or "task failed: %s" % task
    )
    words = " ".join(str(said).split())
    short = textwrap.shorten(words, FAILURE_LENGTH, placeholder="...")
    return short if short != "..." else words[:FAILURE_LENGTH]


def _outcome(facts: Facts, state: State, audit: Answer) -> str:
    """It serves as before, or it is well and a scheduler keeps it out."""
    reason, kernel = facts.get("reason") or "", _of(facts, "kernel")
    resume_failed, lift_failed = facts.get("resume_failed") or "", facts.get("lift_failed") or ""
    said = re.sub(r"[.]$", "", reason) if lift_failed or state["touched"] and not resume_failed else reason
    if state["touched"] and not resume_failed:
        running = _of(audit, "kernel").get("running", "unknown")
        said += ". The node is back on driver %s" % state.get("previous", "unknown")
        said += " and kernel %s" % running if kernel.get("changed") else ""
        said += ", which passed against its baseline"
        said += "" if lift_failed else ", and serves." + (" " + kernel["msg"] if kernel.get("msg") else "")
    if lift_failed:
        return "%s. It was %s The next run tries again." % (said, lift_failed)
    return said + " The next run asks again." if resume_failed else said
