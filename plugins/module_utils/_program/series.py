# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's own series in Prometheus' text format: what was read and counted in, samples and their text out. Pure.

A sample is (labels, value). What is not known has no sample. The contract (gpufleet.node-series/1) is the
collection's data file node_series.json: a sample that it does not know is refused, so that no rule waits for a series
of another name.
"""

from __future__ import annotations

import calendar
import json
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .._driver import _finding, findings_modules
from .._node import claim
from .._nvml.selection import value as read_of

Sample = Tuple[Dict[str, str], float]
Samples = Dict[str, List[Sample]]

SCHEMA = "gpufleet.node-series/1"
PREFIX = "gpufleet_"
VERDICTS = ("pass", "fail", "unknown")
WORSE = ("pass", "unknown", "fail")
CLOCKS_S = 600
KINDS = ("kernel", "driver", "other")
CLASSES = ("app", "warn", "decode", "reset", "reboot", "hold")
CODES = ("79",)
MOST_CHECKS = 20
TIME = "%Y-%m-%dT%H:%M:%SZ"


class ContractError(Exception):
    """A sample that the contract does not know, or a contract that cannot be used; the text names the series."""


def samples(found: Mapping[str, Any], counted: Mapping[str, Any]) -> Samples:
    """All samples of a node, by name without PREFIX: of the reading FOUND (see readings) and what is COUNTED."""
    result: Samples = {"textfile_timestamp_seconds": [({}, found["now"])], "nvml_answers": [({}, int(answers(found)))]}
    for part in (_node, _gpus, _verdict, _log, _service, _holds):
        result.update(part(found, counted))
    return dict((name, listed) for name, listed in result.items() if listed)


def answers(found: Mapping[str, Any]) -> bool:
    """Tell if NVML answered within its deadline."""
    return item(found.get("snapshot"), "status") == "ok"


def item(container: Any, *keys: str) -> Any:
    """container[key][key]..., or None where anything on the way is missing or no dictionary."""
    for key in keys:
        if not isinstance(container, dict):
            return None
        container = container.get(key)
    return container


def one(value: Optional[float]) -> List[Sample]:
    """The sample of a series without labels; none of what is not known."""
    return [] if value is None else [({}, value)]


def _node(found: Mapping[str, Any], counted: Mapping[str, Any]) -> Samples:
    kernels = found.get("kernels") or {}
    loaded = found.get("loaded") or {}
    on_disk = (found.get("modules") or {}).get(kernels.get("running")) or {}
    labels = {
        "driver": loaded.get("version"),
        "kernel": kernels.get("running"),
        "kernel_module": on_disk.get("version"),
        "boot_id": found.get("boot_id"),
    }
    changed = found.get("changed_files")
    return {
        "node_info": [(dict((name, text or "") for name, text in labels.items()), 1)] if kernels.get("running") else [],
        "gpus_expected": one(found.get("expected_gpus")),
        "next_kernel_has_driver": one(next_kernel(found)),
        "changed_files": one(None if changed is None else len(changed)),
    }


def next_kernel(found: Mapping[str, Any]) -> Optional[int]:
    """Tell if the kernel that boots next has the driver's kernel module on disk; None if unknown or no driver."""
    kernels = found.get("kernels")
    target = item(found.get("library"), "version") or item(found.get("loaded"), "version")
    if not kernels or not kernels.get("next_boot") or not target or found.get("modules") is None:
        return None
    if kernels["next_boot"] not in kernels["installed"]:
        return 0
    status = findings_modules.judge_module({"modules": found["modules"]}, kernels["next_boot"], target)[0]
    return {_finding.PASS: 1, _finding.FAIL: 0}.get(status)


def _gpus(found: Mapping[str, Any], counted: Mapping[str, Any]) -> Samples:
    result: Samples = dict(
        (name, [])
        for name in (
            "gpu_info",
            "gpu_recovery_action",
            "gpu_temperature_limit_celsius",
            "gpu_fabric_state",
            "mig_layout_matches",
        )
    )
    if not answers(found):
        return result
    snapshot = found["snapshot"]
    gpus = snapshot["gpus"]
    result["gpus_present"] = one(read_of(snapshot, "count"))
    for gpu, match in zip(gpus, layouts(found.get("layout"), gpus)):
        uuid = read_of(gpu, "uuid")
        if not uuid:
            continue
        labels = {"gpu": str(gpu["index"]), "UUID": uuid}
        about = (
            ("serial", "serial"),
            ("part_number", "board_part_number"),
            ("vbios", "vbios_version"),
            ("name", "name"),
        )
        texts = dict((label, str(read_of(gpu, key) or "")) for label, key in about)
        result["gpu_info"].append((dict(labels, **texts), 1))
        for name, value in (
            ("gpu_recovery_action", read_of(gpu, "recovery_action")),
            ("gpu_temperature_limit_celsius", item(read_of(gpu, "temperature_limits_c"), "gpu_max")),
            ("gpu_fabric_state", item(read_of(gpu, "fabric"), "state")),
            ("mig_layout_matches", match),
        ):
            if value is not None:
                result[name].append((labels, value))
    return result


def layouts(wanted: Optional[Mapping[str, Any]], gpus: Sequence[Dict[str, Any]]) -> List[Optional[int]]:
    """Tell for each of GPUS if it has the WANTED layout, as mig.read_layout returns it; None if not known."""
    if wanted is None:
        return [None] * len(gpus)
    from .._mig import plan, task  # here, since most nodes want none

    try:
        each = task.layouts_of(dict(wanted, state=task.PRESENT), gpus)
    except task.TaskError:
        return [0] * len(gpus)  # it is about a GPU that is not there, so that it is never made
    result: List[Optional[int]] = []
    for gpu, layout in zip(gpus, each):
        decided = plan.decide(gpu, layout, {}) if read_of(gpu, "handle") else None
        if decided is None or decided.problems and all(problem.code == "unreadable" for problem in decided.problems):
            result.append(None)
        else:
            result.append(int(decided.status == plan.SAME))
    return result


def _verdict(found: Mapping[str, Any], counted: Mapping[str, Any]) -> Samples:
    last = latest(found.get("verdicts") or [], found.get("boot_id"), found["now"])
    if last is None:
        return {}
    checks = last.get("checks")
    failed = sorted(
        set(
            str(check["id"])
            for check in (checks if isinstance(checks, list) else [])
            if isinstance(check, dict) and check.get("status") == "fail" and check.get("id")
        )
    )
    return {
        "health_verdict": [({"verdict": verdict}, int(last["verdict"] == verdict)) for verdict in VERDICTS],
        "health_verdict_timestamp_seconds": one(moment(last.get("time"))),
        "health_check_failed": [({"check": ident}, 1) for ident in failed[:MOST_CHECKS]],
    }


def latest(verdicts: Iterable[Any], boot_id: Optional[str], now: float) -> Optional[Dict[str, Any]]:
    """The last of the verdicts (schema gpufleet.health/1) that are usable, None without one.

    One of this boot is later than one of another, whatever their times: the check at boot has them of the node's
    clock, which may be wrong that early, role gpu_health of the controller's. If a time lies in the future, which of
    the verdicts is later is not known, and the worst counts.
    """
    usable = [
        health
        for health in verdicts
        if item(health, "schema") == "gpufleet.health/1"
        and health.get("verdict") in VERDICTS
        and moment(health.get("time")) is not None
    ]
    found = [health for health in usable if boot_id and health.get("boot_id") == boot_id] or usable
    if any((moment(health["time"]) or 0) > now + CLOCKS_S for health in found):
        return max(found, key=lambda health: WORSE.index(health["verdict"]))
    return max(found, key=lambda health: health["time"]) if found else None


def moment(text: Any) -> Optional[int]:
    """Seconds of a time in UTC like 2026-01-31T12:00:00Z; None if it is none."""
    try:
        return calendar.timegm(time.strptime(text, TIME))
    except (TypeError, ValueError):
        return None


def _log(found: Mapping[str, Any], counted: Mapping[str, Any]) -> Samples:
    """XIDs have nothing to do with whether NVML answers: a GPU that was seen in this boot keeps its counters."""
    if counted["xids"] is None:
        return {}
    xids, codes = [], []
    for labels, row in (told for dummy, told in sorted(rows(counted).items())):
        xids += [(dict(labels, xid_class=name), row["classes"].get(name, 0)) for name in CLASSES]
        codes += [(dict(labels, xid=code), row["codes"].get(code, 0)) for code in CODES]
    sxids = [({"fatal": word}, counted["sxids"].get(word, 0)) for word in ("yes", "no")]
    return {"xid_total": xids, "xid_code_total": codes, "sxid_total": sxids}


def rows(counted: Mapping[str, Any]) -> Dict[str, Tuple[Dict[str, str], Dict[str, Any]]]:
    """By place: the labels of a GPU, and what is counted of it; a GPU of which nothing was logged is there too."""
    nothing: Dict[str, Any] = {"classes": {}, "codes": {}}
    known = dict((place, dict(gpu)) for place, gpu in counted["gpus"].items())
    for place, row in counted["xids"].items():
        known.setdefault(place, {"gpu": "", "UUID": row.get("UUID", "")})
    return dict((place, (labels, counted["xids"].get(place, nothing))) for place, labels in known.items())


def _service(found: Mapping[str, Any], counted: Mapping[str, Any]) -> Samples:
    """Return the reasons that keep the node out of service. A claim that cannot be read may be held or not; any marker
    keeps the node out."""
    reasons: Dict[str, Optional[int]] = {}
    held = found.get("claim")
    if held is not None and not held["problem"]:
        reasons["rollout"] = int(item(held["claim"], "state") == claim.HELD)
    drain = found.get("drain")
    # A note that cannot be read may be there or not, and silences nothing.
    if drain is not None and not drain["problem"]:
        reasons["drain"] = int(drain["note"] is not None)
    marker = found.get("quarantine")
    if marker is not None:
        closed = item(held, "claim", "state") == claim.QUARANTINED
        reasons["quarantine"] = int(bool(marker["note"] or marker["problem"] or closed))
    since = moment(item(marker, "note", "time"))
    return {
        "node_out_of_service": [
            ({"reason": reason}, value) for reason, value in sorted(reasons.items()) if value is not None
        ],
        "quarantine_start_timestamp_seconds": one(since),
    }


def _holds(found: Mapping[str, Any], counted: Mapping[str, Any]) -> Samples:
    holds = item(found, "holds", "rows")
    if holds is None:
        return {}
    ages, updates, now = [], [], found["now"]
    for kind in KINDS:
        since = [moment(row.get("since")) for row in holds[kind] if row.get("since")]
        # The age of a hold is unknown unless this collection set it.
        if since or not holds[kind]:
            ages.append(({"kind": kind}, max([0] + [now - begun for begun in since if begun is not None])))
        if all(row.get("security") is not None for row in holds[kind]):
            updates.append(({"kind": kind}, sum(len(row["security"]) for row in holds[kind])))
    result: Samples = {"hold_age_seconds": ages, "held_security_updates": updates}
    if len(updates) == len(KINDS):
        seen = counted["updates"].values()
        result["held_security_update_age_seconds"] = one(max([0] + [now - first for first in seen]))
    return result


# ---- the text ----


def render(contract: Mapping[str, Any], found: Samples) -> str:
    """The samples FOUND as text, in the order of the CONTRACT. ContractError for one that it does not have."""
    if contract.get("schema") != SCHEMA:
        raise ContractError("node_series.json has schema %r; expected %s" % (contract.get("schema"), SCHEMA))
    known = dict((row["name"], row) for row in contract["series"])
    strange = sorted(PREFIX + name for name in found if PREFIX + name not in known)
    if strange:
        raise ContractError("%s: not in the contract" % (", ".join(strange),))
    lines = []
    for name, row in known.items():
        listed = found.get(name[len(PREFIX) :], [])
        if listed:
            lines += ["# HELP %s %s" % (name, _help(row["help"])), "# TYPE %s %s" % (name, row["type"])]
        for labels, value in listed:
            _check_row(row, labels)
            lines.append("%s%s %s" % (name, _labels(row, labels), number(value)))
    return "\n".join(lines) + "\n"


def _check_row(row: Mapping[str, Any], labels: Mapping[str, str]) -> None:
    if set(labels) != set(row["labels"]):
        raise ContractError("%s: labels %s; expected %s" % (row["name"], sorted(labels), sorted(row["labels"])))
    for label, about in row["labels"].items():
        if "values" in about and labels[label] not in about["values"]:
            raise ContractError(
                "%s: %s is %r; expected one of %s" % (row["name"], label, labels[label], about["values"])
            )


def _labels(row: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    words = ",".join('%s="%s"' % (label, _quote_label(labels[label])) for label in row["labels"])
    return "{%s}" % (words,) if words else ""


def _quote_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def number(value: float) -> str:
    """A number as the format has it: whole ones without a point."""
    return json.dumps(int(value) if float(value).is_integer() else float(value))
