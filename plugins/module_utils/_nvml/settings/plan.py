# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan which settings to set: pure functions of snapshots, options and baselines.

A wish is {"value", "explicit"}: a task that names a setting insists on it, a baseline takes what this board and driver
still have. A row of the plan has what was found, what is wanted, what is there after, and "step": what is to be called,
or None. Values are those of NVML.
"""

from __future__ import annotations

from .. import codes
from ..selection import value
from . import table as settings

NEW_BASELINE = "take a new baseline with gpu_health on a healthy node, or leave this setting out of the option settings"


SAME, CHANGED, UNPROVEN, PENDING, NOT_SUPPORTED, FAILED = (
    "same",
    "changed",
    "unproven",
    "pending",
    "not_supported",
    "failed",
)
# By NVML code: why a call was refused, and the next step.
ADVICE = {
    codes.INVALID_ARGUMENT: "this board does not take that value; look at nvidia-smi -q -d SUPPORTED_CLOCKS,POWER",
    codes.NOT_SUPPORTED: "this board or driver has no such setting; take it out of the task",
    4: "the task may not change the GPU; run it with become: true, on the host and not in a container",
    6: "NVML does not find this GPU any more; look for NVRM lines in the kernel log",
    10: "the GPU did not answer in time; look for NVRM lines in the kernel log",
    codes.FUNCTION_NOT_FOUND: "the installed driver has no such function; take the setting out of the task",
    15: "the GPU has fallen off the bus; look for NVRM: Xid 79 in the kernel log and power-cycle the node",
    16: "the GPU waits for a reset; drain the node and reset the GPU or reboot first",
    17: "the operating system refuses access to the GPU (cgroup or device permissions); look at /dev/nvidia*",
    19: "the GPU is in use; drain the node and stop what holds the GPU",
    24: "the board does not run at this frequency; look at nvidia-smi -q -d SUPPORTED_CLOCKS",
    codes.DEPRECATED: "this driver no longer has the setting; use locked clocks instead",
    29: "the GPU is in a state that does not take this change; look at its MIG mode",
    999: (
        "NVML does not know what went wrong; look for NVRM lines in the kernel log, and reboot the node if it persists"
    ),
}


def make_row(uuid, row=None, wish=None) -> dict:
    wish = wish or {}
    return {
        "gpu": uuid,
        "setting": row.name if row else None,
        "before": None,
        "wanted": wish.get("value"),
        "after": None,
        "status": None,
        "changed": False,
        "insists": bool(wish.get("explicit")),
        "was_default": bool(wish.get("was_default")),
        "step": None,
        "failure": None,
    }


def fail_row(row, reason, answer=None) -> dict:
    """ROW as a failure: REASON holds the next step, ANSWER the code of NVML if it said one."""
    subject = row["gpu"]
    if row["setting"]:
        subject = "%s of %s" % (row["setting"], row["gpu"])
        if row["wanted"] is not None:
            subject += ": found %s, expected %s" % tuple(
                settings.format_value(show(row, key)) for key in ("before", "wanted")
            )
    code = answer["rc"] if answer else None
    message = "%s: %s%s" % (subject, reason, " [NVML %s, %s]" % (code, codes.name(code)) if answer else "")
    return dict(
        row, status=FAILED, failure={"code": code, "error": codes.name(code) if answer else None, "message": message}
    )


def find_advice(rc) -> str:
    return (
        ADVICE.get(rc)
        or codes.INIT_ADVICE.get(rc)
        or "look this NVML return code up for the loaded driver, and look at the kernel log"
    )


def show(row, key):
    """Return a value of a row as the option has it."""
    content = row[key]
    return settings.BY_NAME[row["setting"]].show(content) if row["setting"] and content is not None else content


def list_task_wishes(options) -> dict[str, dict]:
    """{setting: wish} of the options of the module that name a setting."""
    return dict(
        (row.name, {"value": row.parse(options[row.name]), "explicit": True})
        for row in settings.TABLE
        if options.get(row.name) is not None
    )


def list_baseline_wishes(gpu, kept, names=settings.NAMES) -> dict[str, dict]:
    """{setting: wish} to bring a GPU back to what it was in the baseline; GPU is its part of the baseline's snapshot,
    None if it has none.

    A wish of None: the baseline tells that the board had no such setting. A wish with a "problem" cannot be granted.
    KEPT is what the node remembers of this GPU, for what NVML does not tell.
    """
    wishes = {}
    for name in names:
        row = settings.BY_NAME[name]
        if not row.getter:
            entry = (kept or {}).get(name)
            if entry and entry["value"] != settings.UNLOCKED:
                wishes[name] = {"value": entry["value"], "explicit": True}
        elif gpu is None:
            wishes[name] = {
                "problem": (
                    "the baseline does not have this GPU; was the board replaced? Take a new baseline with gpu_health"
                )
            }
        else:
            wishes[name] = _make_baseline_wish(gpu, row)
    return wishes


def _make_baseline_wish(gpu, row) -> dict:
    for key in row.getter:
        if not isinstance(gpu.get(key), dict) or "rc" not in gpu[key]:
            return {"problem": "the baseline has no %s of this GPU; %s" % (key, NEW_BASELINE)}
    found = row.read_value(gpu)
    if row.is_missing(gpu, found["rc"]):
        return {"value": None, "explicit": False}
    wanted = found.get("value")
    if found["rc"] == codes.SUCCESS:
        # A mode that waited for a reset had been requested.
        wanted = row.get_requested(wanted)
    if found["rc"] != codes.SUCCESS or not row.is_valid(wanted):
        return {
            "problem": "the baseline does not tell %s of this GPU (%s); %s"
            % (row.getter[-1], found.get("error") or "it says %r" % (wanted,), NEW_BASELINE)
        }
    wish = {"value": wanted, "explicit": False}
    if row.ends and row.default_key and wanted == value(gpu, row.default_key):
        wish["was_default"] = True
    return wish


def decide(gpus, wishes, kept, load, daemon=False, processes_ok=False) -> list[dict]:
    """The plan, a list of rows, one for each GPU and setting that is wanted.

    One that failed forbids all steps: nothing is set then.

    GPUS are of a snapshot, WISHES {uuid: {setting: wish}}, KEPT what state.read_state answers, LOAD the mark of this
    load of the driver, DAEMON whether nvidia-persistenced runs.
    """
    rows = []
    for gpu in gpus:
        uuid = value(gpu, "uuid")
        if value(gpu, "handle") is not True or not uuid:
            handle = gpu["handle"] if gpu["handle"]["rc"] != codes.SUCCESS else gpu["uuid"]
            rows.append(_make_lost_row(gpu, handle))
            continue
        for row in settings.TABLE:
            wish = wishes.get(uuid, {}).get(row.name)
            if wish is not None:
                planned = _plan_row(gpu, row, wish, (kept.get(uuid) or {}).get(row.name), load, daemon, processes_ok)
                if planned is not None:
                    rows.append(planned)
    return rows


def make_absent_rows(uuids) -> list:
    """Rows of GPUs that a baseline has and NVML does not show."""
    return [
        fail_row(
            make_row(uuid),
            "NVML does not show this GPU of the baseline; look for NVRM lines in the kernel log, and for "
            "the board in lspci",
            codes.missing(6),
        )
        for uuid in uuids
    ]


def _make_lost_row(gpu, handle) -> dict:
    who = value(gpu, "pci_bus_id") or "GPU with index %d" % (gpu["index"],)
    return fail_row(make_row(who), "NVML does not open the GPU: %s" % (find_advice(handle["rc"]),), handle)


def _plan_row(gpu, row, wish, kept, load, daemon, processes_ok) -> dict | None:
    """The planned row, or None where nothing is wanted and nothing can be said."""
    planned = make_row(value(gpu, "uuid"), row, wish)
    if "problem" in wish:
        return fail_row(planned, wish["problem"])
    if not row.getter:
        return _locked_row(gpu, row, wish, kept, load, processes_ok, planned)
    found = row.read_value(gpu)
    if wish["value"] is None:
        # The board had no such setting when the baseline was taken: if it has one now, no value was ever given.
        return dict(planned, status=NOT_SUPPORTED) if row.is_missing(gpu, found["rc"]) else None
    if row.is_missing(gpu, found["rc"]):
        if planned["insists"] or not row.ends:
            return fail_row(
                planned, "it is not supported here (%s): %s" % (row.support, find_advice(found["rc"])), found
            )
        return dict(planned, status=NOT_SUPPORTED)
    if found["rc"] != codes.SUCCESS:
        return fail_row(planned, "it cannot be read: %s" % (find_advice(found["rc"]),), found)
    wanted = row.read_default(gpu) if wish["value"] == settings.DEFAULT else wish["value"]
    planned.update(before=found["value"], wanted=wanted, after=found["value"])
    if wanted is None:
        return fail_row(planned, "NVML does not tell the default of this board; give a value")
    if row.get_requested(found["value"]) == wanted:
        return dict(planned, status=SAME if row.get_current(found["value"]) == wanted else PENDING)
    reason = row.refuse(gpu, wanted, daemon) or _find_processes(gpu, row, processes_ok)
    if reason:
        return fail_row(planned, reason)
    after = row.make_after(found["value"], wanted)
    return dict(
        planned,
        after=after,
        status=CHANGED if row.get_current(after) == wanted else PENDING,
        changed=True,
        step=_make_step(planned, row, wanted, wish["value"] == settings.DEFAULT),
    )


def _locked_row(gpu, row, wish, kept, load, processes_ok, planned) -> dict:
    """Locked clocks: what was set last is known from the node's own file alone, and only for the same load of the
    driver.
    """
    wanted = wish["value"]
    current = bool(kept) and kept["load"] == load and load is not None
    planned["before"] = kept["value"] if current else None
    # A reloaded driver has no locked clocks.
    due = not kept or kept["value"] != wanted or (not current and wanted != settings.UNLOCKED)
    reason = row.refuse(gpu, wanted, False) or (_find_processes(gpu, row, processes_ok) if due else None)
    if reason:
        return fail_row(planned, reason)
    return dict(
        planned,
        after=wanted,
        status=UNPROVEN,
        changed=due,
        step=_make_step(planned, row, wanted, wanted == settings.UNLOCKED),
    )


def _find_processes(gpu, row, processes_ok) -> str | None:
    """Return why programs on the GPU forbid a change; None if they do not."""
    if processes_ok or not row.disturbs:
        return None
    for key in ("compute_processes", "graphics_processes"):
        entry = gpu.get(key) or codes.missing(codes.UNREADABLE)
        if entry["rc"] == codes.SUCCESS and entry["value"]:
            return "processes use the GPU (pid %s); drain the node first, or allow it with processes: allow" % (
                ", ".join(str(process["pid"]) for process in entry["value"][:8]),
            )
        if entry["rc"] not in (codes.SUCCESS,) + settings.UNSUPPORTED:
            return "whether processes use the GPU is not known (%s); look for NVRM lines in the kernel log" % (
                entry.get("error"),
            )
    return None


def _make_step(planned, row, wanted, reset) -> dict:
    resets = reset and row.resetter is not None
    return {
        "gpu": planned["gpu"],
        "setting": row.name,
        "symbol": row.resetter if resets else row.setter,
        "arguments": [] if resets else row.list_arguments(wanted),
        "optional": row.ends and not planned["insists"],
    }


def list_steps(plan) -> list[dict]:
    """The steps of a plan in their order: none if a row failed.

    Persistence mode goes off last, as everything else would be lost with it.
    """
    if any(row["status"] == FAILED for row in plan):
        return []
    found = [row["step"] for row in plan if row["step"]]
    return sorted(found, key=lambda step: step["setting"] == "persistence_mode" and step["arguments"] == [0])
