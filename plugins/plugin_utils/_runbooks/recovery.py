# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next action on a sick node: its verdict and what was done to it before in, the action out."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

Answer = Mapping[str, Any]
SCHEMA = "gpufleet.recovery/1"
TIME = "%Y-%m-%dT%H:%M:%SZ"
DAY_S = 86400
# Entries of the history that are kept.
KEPT = 100
NOTHING, RESTART, RESET, REBOOT, QUARANTINE, REFUSE = (
    "none",
    "restart_service",
    "reset_gpu",
    "reboot",
    "quarantine",
    "refuse",
)
ACTIONS = (RESTART, RESET, REBOOT)
GPU = re.compile(r"GPU-[0-9A-Za-z-]+")
UNIT = re.compile(r"[A-Za-z0-9@._-]+\.service")
# The service to restart for a check that names none by itself.
SERVICES = {
    "gpu.fabric": "nvidia-fabricmanager.service",
    "gpu.fabric_clique": "nvidia-fabricmanager.service",
    "gpu.persistence": "nvidia-persistenced.service",
    "node.fabric_manager": "nvidia-fabricmanager.service",
    "node.imex": "nvidia-imex.service",
    "node.sxid": "nvidia-fabricmanager.service",
}
# What tells of a GPU that NVML does not open, and what does not pass because of it: it is missing there, too.
LOST_GPU = ("gpu.handle", "gpu.xid")
FOLLOWS = ("gpu.count", "gpu.on_bus", "gpu.present")


class Step(TypedDict):
    do: str  # one of none, restart_service, reset_gpu, reboot, quarantine, refuse
    why: str
    gpus: list[str]  # UUIDs to reset
    services: list[str]  # units to restart
    checks: list[str]  # ids of the checks that did not pass


def next_step(health: Any, note: Any, problem: str, now: str, allowed: Iterable[str] = ACTIONS) -> Step:
    """Decide what to do with a node.

    HEALTH is its verdict, None if it gave none; NOTE the history on the node, None if it has none; PROBLEM the reason
    that the history cannot be read. Anything unknown leads to quarantine, and no action is taken twice a day.
    """
    if not isinstance(health, Mapping) or health.get("verdict") not in ("pass", "fail", "unknown"):
        return _make_step(QUARANTINE, "there is no verdict on the node", [])
    checks = [
        check
        for check in health.get("checks") or []
        if isinstance(check, Mapping) and check.get("status") in ("fail", "unknown")
    ]
    if health["verdict"] == "pass":
        return _make_step(NOTHING, "the node is healthy", [])
    wanted = REBOOT if _is_gpu_off_bus(health, checks) else health.get("action")
    if wanted == "restore_setting":
        return _make_step(
            REFUSE,
            "its settings differ and its hardware is not in question: bring them back with the module gpu_settings",
            checks,
        )
    if wanted == NOTHING and health["verdict"] == "unknown":
        return _make_step(
            REFUSE,
            "nothing is known to be wrong, but not what hardware it should have: say it in gpu_health_expect",
            checks,
        )
    if wanted not in ACTIONS:
        return _make_step(
            QUARANTINE, "the verdict asks for %s, which no action of this playbook is" % (wanted or "nothing",), checks
        )
    mine = [check for check in checks if check.get("action") == wanted]
    gpus = sorted({str(check.get("entity")) for check in mine if GPU.fullmatch(str(check.get("entity")))})
    services = sorted(filter(None, {_find_service(check) for check in mine}))
    if wanted == RESET and (not gpus or len(gpus) < len({str(check.get("entity")) for check in mine})):
        wanted, gpus = REBOOT, []  # which GPUs to reset is not known; a reboot resets them all
    if wanted == RESTART and not services:
        return _make_step(QUARANTINE, "the verdict asks for a service to be restarted, and names none", checks)
    if wanted not in tuple(allowed):
        return _make_step(
            QUARANTINE, "the verdict asks for %s, which recover_gpu_actions does not permit" % wanted, checks
        )
    before = _explain_repetition(note, problem, wanted, now)
    if before:
        return _make_step(QUARANTINE, "the verdict asks for %s, and %s" % (wanted, before), checks)
    return _make_step(
        wanted,
        "the verdict asks for it",
        checks,
        gpus if wanted == RESET else [],
        services if wanted == RESTART else [],
    )


def without_layout(step: Step, problem: str) -> Step:
    """STEP of a node that an action left without its MIG layout, as PROBLEM says: it does not serve, however healthy.

    Without a baseline no verdict tells that the layout is gone.
    """
    return {**step, "do": QUARANTINE, "why": problem} if problem and step["do"] == NOTHING else step


def _is_gpu_off_bus(health: Answer, checks: Sequence[Answer]) -> bool:
    """Tell if nothing but a GPU that is lost, of which a reboot is asked for, holds the node."""
    holds = {check.get("id") for check in checks if check.get("action") == "hold"}
    is_lost = any(check.get("id") in LOST_GPU and check.get("action") in (RESET, REBOOT) for check in checks)
    return health.get("action") == "hold" and is_lost and holds <= set(FOLLOWS)


def _make_step(
    do: str, why: str, checks: Iterable[Answer], gpus: Iterable[str] = (), services: Iterable[str] = ()
) -> Step:
    return {
        "do": do,
        "why": why,
        "gpus": list(gpus),
        "services": list(services),
        "checks": sorted({str(check.get("id")) for check in checks}),
    }


def _find_service(check: Answer) -> str | None:
    entity = str(check.get("entity"))
    return entity if UNIT.fullmatch(entity) else SERVICES.get(str(check.get("id")))


def _explain_repetition(note: Any, problem: str, action: str, now: str) -> str:
    """Return why ACTION may not be taken now: it was taken within a day, or that is unknown. Empty if it may."""
    if problem:
        return "whether that was done today cannot be told: %s" % problem.rstrip(".")
    if note is None:
        return ""
    entries = note.get("actions") if isinstance(note, Mapping) and note.get("schema") == SCHEMA else None
    if not isinstance(entries, list):
        return "whether that was done today cannot be told: its history is damaged"
    for entry in entries:
        if not isinstance(entry, Mapping) or entry.get("action") not in ACTIONS:
            return "whether that was done today cannot be told: its history is damaged"
        if entry["action"] == action and _is_recent(entry.get("time"), now):
            return "that was done at %s already, with the outcome %s" % (
                entry.get("time"),
                entry.get("outcome") or "unknown",
            )
    return ""


def _is_recent(time: Any, now: str) -> bool:
    """Within a day of now; a time that is none, or in the future, counts as recent."""
    try:
        return (_parse_time(now) - _parse_time(time)).total_seconds() < DAY_S
    except (TypeError, ValueError):
        return True


def _parse_time(text: Any) -> datetime.datetime:
    return datetime.datetime.strptime(text, TIME)


def record_begin(note: Any, step: Answer, now: str, who: Answer) -> dict[str, Any]:
    """The history with the action that is about to be taken, written ahead of it."""
    entry = {
        "action": step["do"],
        "time": now,
        "checks": step["checks"],
        "gpus": step["gpus"],
        "services": step["services"],
        "outcome": "begun",
        **who,
    }
    return _make_history(note, [*_read_entries(note), entry])


def record_end(note: Any, outcome: str, position: Any) -> dict[str, Any]:
    """The history with the outcome of the last action, and where the kernel log was then: what came before is known."""
    entries = _read_entries(note)
    if entries:
        entries = [*entries[:-1], dict(entries[-1], outcome=outcome)]
    made = _make_history(note, entries)
    if outcome == "pass" and isinstance(position, Mapping):
        made["seen"] = dict(position)
    return made


def _read_entries(note: Any) -> list[Answer]:
    return list(note["actions"]) if isinstance(note, Mapping) and isinstance(note.get("actions"), list) else []


def _make_history(note: Any, entries: Sequence[Answer]) -> dict[str, Any]:
    kept = {"seen": note["seen"]} if isinstance(note, Mapping) and isinstance(note.get("seen"), Mapping) else {}
    return {**kept, "schema": SCHEMA, "actions": [dict(entry) for entry in entries[-KEPT:]]}


def find_log_position(note: Any, first: Any, acted: str) -> dict[str, Any] | None:
    """Return the position from which to read the kernel log: entries that an action has dealt with do not count again.

    FIRST is the position at the verdict that led to the last action, ACTED that action; a reboot begins a new log.
    """
    place = (
        first if acted in (RESTART, RESET) else note.get("seen") if isinstance(note, Mapping) and not acted else None
    )
    if not isinstance(place, Mapping) or not place.get("boot_id"):
        return None
    return {key: place[key] for key in ("boot_id", "seq", "monotonic_us") if place.get(key) is not None}
