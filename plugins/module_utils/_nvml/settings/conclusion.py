# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conclude what became of a plan, by what NVML answered and what is read back, and what the task returns of it."""

from __future__ import annotations

from .. import codes
from ..selection import value
from . import table as settings
from .plan import CHANGED, FAILED, NOT_SUPPORTED, UNPROVEN, fail_row, find_advice, show


def conclude_plan(plan, taken, answers, gpus, problem=None) -> list[dict]:
    """The final rows.

    ANSWERS are those of settings.act to the steps TAKEN, None if it gave none, for the reason that PROBLEM tells. GPUS
    were read again in another session, after the one that set them had ended.
    """
    again = dict((value(gpu, "uuid"), gpu) for gpu in gpus)
    told = dict(((step["gpu"], step["setting"]), answer) for step, answer in zip(taken, answers or [None] * len(taken)))
    rows = []
    for row in plan:
        if row["status"] not in (FAILED, NOT_SUPPORTED):
            if row["step"]:
                row = _apply_answer(row, told.get((row["gpu"], row["setting"])), problem)
            if settings.BY_NAME[row["setting"]].getter:
                row = _read_back(row, again.get(row["gpu"]))
        rows.append(row)
    return rows


def _apply_answer(row, answer, problem) -> dict:
    """The row after what NVML said to its step."""
    symbol = row["step"]["symbol"]
    if answer is not None and answer["rc"] == codes.SUCCESS:
        return row
    undone = dict(row, after=row["before"], changed=False)
    if answer is None:
        return fail_row(undone, problem)
    if not answer["tried"]:
        return fail_row(
            undone, "%s was not tried, as something before it failed: %s" % (symbol, find_advice(answer["rc"])), answer
        )
    if answer["rc"] in settings.UNSUPPORTED and row["step"]["optional"]:
        return dict(undone, status=NOT_SUPPORTED)
    detail = " (%s)" % (answer["detail"],) if answer.get("detail") else ""
    return fail_row(undone, "NVML refuses %s%s: %s" % (symbol, detail, find_advice(answer["rc"])), answer)


def _read_back(row, gpu) -> dict:
    """The row with what is there now: whatever NVML said, a setting is as wanted if it reads so, and not otherwise."""
    setting = settings.BY_NAME[row["setting"]]
    found = setting.read_value(gpu) if gpu is not None else codes.missing(6)
    if found["rc"] != codes.SUCCESS:
        if row["status"] in (FAILED, NOT_SUPPORTED):
            return dict(row, after=None)
        return fail_row(dict(row, after=None), "it cannot be read back: %s" % (find_advice(found["rc"]),), found)
    row = dict(row, after=found["value"], changed=found["value"] != row["before"])
    if row["status"] in (FAILED, NOT_SUPPORTED) or setting.get_requested(found["value"]) == row["wanted"]:
        return row
    if row["step"] is None:
        return fail_row(
            row,
            "it was as wanted and is %s now; look for what else sets it"
            % (settings.format_value(setting.show(found["value"])),),
        )
    reason = "NVML answered SUCCESS to %s, and it reads %s" % (
        row["step"]["symbol"],
        settings.format_value(setting.show(found["value"])),
    )
    if value(gpu, "persistence_mode") == 0 and setting.lost_at == settings.LOAD:
        return fail_row(
            row,
            reason
            + "; persistence mode is off, and then the driver forgets it with the last program: turn that on first",
        )
    return fail_row(row, reason + "; look for NVRM lines in the kernel log, and for what else sets it")


def undo_plan(rows) -> list[dict]:
    """ROWS of a plan that failed: what was to be set was not, as nothing was."""
    return [
        row if row["step"] is None else dict(row, status=FAILED, after=row["before"], changed=False) for row in rows
    ]


def update_kept(kept, rows, load) -> dict[str, dict]:
    """Return the state that the node has to keep: KEPT with the locked clocks that were set."""
    result = dict((uuid, dict(entries)) for uuid, entries in kept.items())
    for row in rows:
        if row["status"] == UNPROVEN:
            result.setdefault(row["gpu"], {})[row["setting"]] = {"value": row["wanted"], "load": load}
    return result


def fail_unproven(rows, problem) -> list[dict]:
    """ROWS if what was to be remembered could not be."""
    return [
        fail_row(row, "it is set, but cannot be remembered for the next reload: %s" % (problem,))
        if row["status"] == UNPROVEN
        else row
        for row in rows
    ]


def make_warnings(rows, gpus) -> list[str]:
    """Return make_warnings about what did not fail; GPUS in their present_row state."""
    result = []
    for row in rows:
        if row["status"] == NOT_SUPPORTED and row["wanted"] is not None and not row["was_default"]:
            result.append(
                "%s of %s was %s in the baseline, and this driver no longer has the setting: it was not restored; use "
                "locked clocks instead" % (row["setting"], row["gpu"], settings.format_value(show(row, "wanted")))
            )
    loose = [value(gpu, "uuid") for gpu in gpus if value(gpu, "persistence_mode") == 0]
    fleeting = sorted(
        set(
            row["gpu"]
            for row in rows
            if row["gpu"] in loose
            and row["status"] in (CHANGED, UNPROVEN)
            and settings.BY_NAME[row["setting"]].lost_at == settings.LOAD
        )
    )
    if fleeting:
        result.append(
            "persistence mode is off on %s: the driver forgets what was set when the last program closes the GPU; "
            "start nvidia-persistenced" % (", ".join(fleeting),)
        )
    return result


def present_row(row) -> dict:
    """A row as the task returns it."""
    name = row["setting"]
    setting = settings.BY_NAME.get(name)
    return {
        "gpu": row["gpu"],
        "setting": name,
        "before": show(row, "before"),
        "wanted": show(row, "wanted"),
        "after": show(row, "after"),
        "status": row["status"],
        "changed": row["changed"],
        "lost_at": setting.lost_at if setting else None,
        "pending_until": setting.pending_until if setting else None,
    }


def list_failures(rows) -> list[dict]:
    """The causes of failure in a result, each with what was found and expected."""
    return [
        {
            "gpu": row["gpu"],
            "setting": row["setting"],
            "found": show(row, "after" if row["changed"] else "before"),
            "expected": show(row, "wanted"),
            "code": row["failure"]["code"],
            "error": row["failure"]["error"],
            "message": row["failure"]["message"],
        }
        for row in rows
        if row["failure"]
    ]
