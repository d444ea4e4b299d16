# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the power limits of a node for thermal_relief: lower them, keep them lowered, or restore them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import compare, model
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import relief as waiver
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._host_answers import as_mapping as _mapping
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import cooling

Answer = Mapping[str, Any]
LOWERED, RESTORED = "lowered", "restored"
NOTHING, LOWER, KEEP, RESTORE = "none", "lower", "keep", "restore"
TIME = "%Y-%m-%dT%H:%M:%SZ"
PERCENT = 20
PERCENT_MOST, HOURS_MOST = 90, 720
END = "Nothing was changed."


class Refusal(Exception):
    """Nothing may be done; the message says why."""


class Facts(TypedDict, total=False):
    """Options of the role, and the results of its tasks as they were registered."""

    node: str
    state: str  # lowered or restored
    percent: float  # 0 where none is given
    watts: float
    hours: int
    time: str
    user: str
    controller: str
    note: Answer  # node_state
    info: Answer  # gpu_info
    sensors: Answer  # ipmitool
    limits: Mapping[str, float]  # thresholds of the alerts


class Entry(TypedDict):
    """A GPU whose limit is lowered, as the note has it."""

    uuid: str
    before_mw: int
    lowered_mw: int


def decide(facts: Facts) -> dict[str, Any]:
    """The steps for the node. With a refusal there are no steps and no note."""
    snapshot = _mapping(_mapping(facts.get("info")).get("snapshot"))
    found = cooling.read_gpus(snapshot, facts["limits"])
    told = cooling.parse_sensors(_mapping(facts.get("sensors")))
    state: dict[str, Any] = {
        "refusal": "",
        "do": NOTHING,
        "steps": [],
        "note": {},
        "gone": [],
        "gpus": [],
        "unread": [gpu["gpu"] for gpu in found if gpu["throttled"] is None],
        "throttled": [gpu["gpu"] for gpu in found if gpu["throttled"]],
        "sensors": told,
        **cooling.find_cause(found, told, facts["limits"]),
    }
    try:
        note = _note(_mapping(facts.get("note")))
        _check_read(snapshot, _mapping(facts.get("info")))
        if facts.get("state") == RESTORED:
            state.update(_find_restored(note, snapshot))
        else:
            state.update(_find_lowered(facts, note, snapshot, found))
    except Refusal as exc:
        state["refusal"] = "%s %s" % (str(exc).rstrip(".") + ".", END)
    return state


def _check_read(snapshot: Answer, info: Answer) -> None:
    if snapshot.get("status") != "ok" or not model.gpus(snapshot):
        said = " ".join(str(info.get("msg") or snapshot.get("status") or "NVML was not read").split())
        raise Refusal("its GPUs cannot be read: %s" % said)
    if not all(map(model.uuid, model.gpus(snapshot))):
        raise Refusal("a GPU does not tell its UUID; expected all of them to answer. See docs/runbooks/recovery.md")


def _note(result: Answer) -> Answer:
    """The note of an earlier relief, empty if there is none."""
    if "exists" not in result:
        raise Refusal("whether its limits are lowered already is not known: its note was not read")
    if not result["exists"]:
        return {}
    note = _mapping(result.get("note"))
    good = note.get("schema") == waiver.SCHEMA and isinstance(note.get("gpus"), list) and note["gpus"]
    if not good or not all(map(_whole, note["gpus"])):
        raise Refusal(
            "what its limits were before cannot be told: %s. Set the limits by gpu_settings, and remove %s"
            % (str(result.get("problem") or "its note is damaged").rstrip("."), result.get("path") or "the note")
        )
    return note


def _whole(entry: Any) -> bool:
    return isinstance(model.item(entry, "uuid"), str) and all(
        compare.is_a(model.item(entry, key), int) for key in ("before_mw", "lowered_mw")
    )


# ---- lowered ----


def _find_lowered(facts: Facts, note: Answer, snapshot: Answer, found: Sequence[cooling.Gpu]) -> dict[str, Any]:
    request = _request(facts)
    entries: dict[str, Entry] = {entry["uuid"]: entry for entry in note.get("gpus", [])}
    hot = [str(gpu["uuid"]) for gpu in found if gpu["throttled"]]
    if not entries and not hot:
        unread = [gpu["gpu"] for gpu in found if gpu["throttled"] is None]
        if unread:
            raise Refusal("whether it throttles for heat cannot be told of %s" % ", ".join(unread))
        return {"do": NOTHING}
    there = model.by_uuid(snapshot)
    same = note.get("request") == request
    wanted = [
        entries[uuid] if same and uuid in entries else _entry(there.get(uuid), uuid, entries.get(uuid), request)
        for uuid in sorted({*entries, *hot})
    ]
    steps = _steps(there, [(entry["uuid"], entry["lowered_mw"]) for entry in wanted if entry["uuid"] in there])
    kept = same and wanted == note["gpus"] and not _has_expired(note.get("expires"), facts["time"])
    made = note if kept else _make_answer(facts, request, wanted, note)
    return {
        "do": KEEP if kept and not steps else LOWER,
        "steps": steps,
        "note": made,
        "gone": [entry["uuid"] for entry in wanted if entry["uuid"] not in there],
        "gpus": _rows(there, wanted),
    }


def _request(facts: Facts) -> dict[str, float]:
    percent, watts, hours = facts.get("percent") or 0, facts.get("watts") or 0, facts.get("hours") or 0
    if percent and watts:
        raise Refusal("both a share (%g percent) and a limit (%g W) are given; expected one of them" % (percent, watts))
    if not watts and not 0 < (percent or PERCENT) <= PERCENT_MOST:
        raise Refusal("the share is %g percent; expected more than 0, and at most %d" % (percent, PERCENT_MOST))
    if watts < 0:
        raise Refusal("the limit is %g W; expected a number above 0" % watts)
    if not 1 <= hours <= HOURS_MOST:
        raise Refusal("the relief is for %g hours; expected 1 to %d" % (hours, HOURS_MOST))
    return {"hours": hours, **({"watts": watts} if watts else {"percent": percent or PERCENT})}


def _entry(gpu: Any, uuid: str, old: Entry | None, request: Mapping[str, float]) -> Entry:
    """The limit that a GPU had before any relief, and the one that it gets."""
    before = old["before_mw"] if old else _limit(gpu, "power_limit_mw", uuid)
    lowered = (
        round(request["watts"] * 1000)
        if "watts" in request
        else int(before * (100 - request["percent"]) / 100 / 1000) * 1000
    )
    if lowered >= before:
        raise Refusal(
            "%s has a power limit of %s W, and %s W would not lower it" % (uuid, _text(before), _text(lowered))
        )
    return {"uuid": uuid, "before_mw": before, "lowered_mw": lowered}


def _limit(gpu: Any, key: str, uuid: str) -> int:
    told = compare.read_typed(_mapping(gpu), key, int)
    if not told.known:
        raise Refusal("%s does not tell its %s: %s" % (uuid, key, model.format_reading(told)))
    return told.value


def _make_answer(facts: Facts, request: Mapping[str, float], entries: Sequence[Entry], note: Answer) -> dict[str, Any]:
    now = datetime.datetime.strptime(facts["time"], TIME)
    return {
        "schema": waiver.SCHEMA,
        "node": facts["node"],
        "time": note.get("time") or facts["time"],
        "expires": (now + datetime.timedelta(hours=request["hours"])).strftime(TIME),
        "user": facts.get("user") or "",
        "controller": facts.get("controller") or "",
        "request": dict(request),
        "gpus": [dict(entry) for entry in entries],
    }


def _has_expired(text: Any, now: str) -> bool:
    """Tell if a waiver has expired. One whose time cannot be read has."""
    try:
        return datetime.datetime.strptime(text, TIME) <= datetime.datetime.strptime(now, TIME)
    except (TypeError, ValueError):
        return True


# ---- restored ----


def _find_restored(note: Answer, snapshot: Answer) -> dict[str, Any]:
    if not note:
        return {"do": NOTHING}
    there = model.by_uuid(snapshot)
    return {
        "do": RESTORE,
        "steps": _steps(
            there, [(entry["uuid"], entry["before_mw"]) for entry in note["gpus"] if entry["uuid"] in there]
        ),
        "gone": [entry["uuid"] for entry in note["gpus"] if entry["uuid"] not in there],
        "gpus": _rows(there, note["gpus"]),
    }


# ---- both ----


def _steps(there: Mapping[str, Answer], wanted: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """The tasks of gpu_settings, one for each limit. One limit out of a card's range refuses them all."""
    due: dict[int, list[str]] = {}
    for uuid, milliwatts in wanted:
        if _limit(there[uuid], "power_limit_mw", uuid) == milliwatts:
            continue
        low, high = (_limit(there[uuid], "power_limit_%s_mw" % end, uuid) for end in ("min", "max"))
        if not low <= milliwatts <= high:
            raise Refusal(
                "%s W is out of the range of %s, which takes %s to %s W"
                % (_text(milliwatts), uuid, _text(low), _text(high))
            )
        due.setdefault(milliwatts, []).append(uuid)
    return [{"watts": _text(milliwatts), "gpus": due[milliwatts]} for milliwatts in sorted(due)]


def _rows(there: Mapping[str, Answer], entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Describe the limits of each GPU for an operator, in watts."""
    return [
        {
            "gpu": entry["uuid"],
            "before_w": entry["before_mw"] / 1000,
            "lowered_w": entry["lowered_mw"] / 1000,
            "now_w": _limit(there[entry["uuid"]], "power_limit_mw", entry["uuid"]) / 1000
            if entry["uuid"] in there
            else None,
        }
        for entry in entries
    ]


def _text(milliwatts: int) -> str:
    return ("%.3f" % (milliwatts / 1000)).rstrip("0").rstrip(".")
