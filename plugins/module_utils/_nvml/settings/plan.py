# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan which settings to set, and report the results: pure functions of snapshots and wishes.

A wish is {"value", "explicit"}: a task that names a setting insists on it, a baseline takes what this board and driver
still have. Values are those of NVML (milliwatts, numbers of modes), and present() shows them as the options have them.
A row of the plan has what was found, what is wanted, what is there after, and "step": what is to be called, or None.
"""

from __future__ import annotations

from .. import codes
from ..selection import value
from . import table as settings

SAME, CHANGED, UNPROVEN, PENDING, NOT_SUPPORTED, FAILED = (
    "same",
    "changed",
    "unproven",
    "pending",
    "not_supported",
    "failed",
)
COMPUTE_MODES = {"default": 0, "prohibited": 2, "exclusive_process": 3}
UNLOCKED = "unlocked"
DEFAULT = "default"
NEW_BASELINE = "take a new baseline with gpu_health on a healthy node, or leave this setting out of the option settings"
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


class WishError(ValueError):
    """The task or the baseline asks for something that cannot be understood; the text names it."""


# ---- what is wanted ----


def of_task(options):
    """{setting: wish} of the options of the module that name a setting."""
    wishes = {}
    for name in settings.NAMES:
        given = options.get(name)
        if given is not None:
            wishes[name] = {"value": PARSERS[name](given), "explicit": True}
    return wishes


def _power(given):
    if given == DEFAULT:
        return DEFAULT
    try:
        watts = float(given)
    except ValueError:
        watts = 0.0
    if not 0 < watts < 1000000:
        raise WishError("power_limit_w is %r; expected a number of watts, or default" % (given,))
    return int(round(watts * 1000))


def _application(given):
    if given.get("default"):
        return DEFAULT
    clocks = {"graphics": given.get("graphics"), "mem": given.get("memory")}
    if not all(isinstance(clock, int) and clock > 0 for clock in clocks.values()):
        raise WishError("application_clocks_mhz needs default: true, or graphics and memory in MHz")
    return clocks


def _locked(name):
    def parse(given):
        if given.get("unlocked"):
            return UNLOCKED
        low, high = given.get("min"), given.get("max")
        if not isinstance(low, int) or not isinstance(high, int) or not 1 < low <= high:
            raise WishError("%s needs unlocked: true, or min and max in MHz, min no higher than max" % (name,))
        return {"min": low, "max": high}

    return parse


PARSERS = {
    "power_limit_w": _power,
    "application_clocks_mhz": _application,
    "locked_graphics_clocks_mhz": _locked("locked_graphics_clocks_mhz"),
    "locked_memory_clocks_mhz": _locked("locked_memory_clocks_mhz"),
    "compute_mode": lambda given: COMPUTE_MODES[given],
    "persistence_mode": int,
    "ecc_mode": int,
}


def of_baseline(gpu, kept, names=settings.NAMES):
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
            if entry and entry["value"] != UNLOCKED:
                wishes[name] = {"value": entry["value"], "explicit": True}
        elif gpu is None:
            wishes[name] = {
                "problem": (
                    "the baseline does not have this GPU; was the board replaced? Take a new baseline with gpu_health"
                )
            }
        else:
            wishes[name] = _of_baseline(gpu, row)
    return wishes


def _of_baseline(gpu, row):
    for key in row.getter:
        if not isinstance(gpu.get(key), dict) or "rc" not in gpu[key]:
            return {"problem": "the baseline has no %s of this GPU; %s" % (key, NEW_BASELINE)}
    found = read(gpu, row.name)
    if lacks(gpu, row.name, found["rc"]):
        return {"value": None, "explicit": False}
    wanted = found.get("value")
    if row.name == "ecc_mode" and found["rc"] == codes.SUCCESS:
        # A mode that waited for a reset had been requested.
        wanted = wanted["pending"]
    if found["rc"] != codes.SUCCESS or not _sane(row.name, wanted):
        return {
            "problem": "the baseline does not tell %s of this GPU (%s); %s"
            % (row.getter[-1], found.get("error") or "it says %r" % (wanted,), NEW_BASELINE)
        }
    wish = {"value": wanted, "explicit": False}
    if row.name == "application_clocks_mhz" and wanted == value(gpu, "applications_clocks_default_mhz"):
        wish["was_default"] = True
    return wish


def _sane(name, wanted):
    if name == "application_clocks_mhz":
        return isinstance(wanted, dict) and all(_whole(wanted.get(key)) for key in ("graphics", "mem"))
    return _whole(wanted)


def _whole(number):
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


# ---- what to do ----


def decide(gpus, wishes, kept, load, daemon=False, processes_ok=False):
    """The plan, a list of rows, one for each GPU and setting that is wanted.

    One that failed forbids all steps: nothing is set then.

    GPUS are of a snapshot, WISHES {uuid: {setting: wish}}, KEPT what settings_state.read answers, LOAD the mark of this
    load of the driver, DAEMON whether nvidia-persistenced runs.
    """
    rows = []
    for gpu in gpus:
        uuid = value(gpu, "uuid")
        if value(gpu, "handle") is not True or not uuid:
            handle = gpu["handle"] if gpu["handle"]["rc"] != codes.SUCCESS else gpu["uuid"]
            rows.append(_lost(gpu, handle))
            continue
        for row in settings.TABLE:
            wish = wishes.get(uuid, {}).get(row.name)
            if wish is not None:
                planned = _row(gpu, row, wish, (kept.get(uuid) or {}).get(row.name), load, daemon, processes_ok)
                if planned is not None:
                    rows.append(planned)
    return rows


def absent(uuids):
    """Rows of GPUs that a baseline has and NVML does not show."""
    return [
        _failed(
            _blank(uuid),
            "NVML does not show this GPU of the baseline; look for NVRM lines in the kernel log, and for "
            "the board in lspci",
            codes.missing(6),
        )
        for uuid in uuids
    ]


def _blank(uuid, row=None, wish=None):
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


def _lost(gpu, handle):
    who = value(gpu, "pci_bus_id") or "GPU with index %d" % (gpu["index"],)
    return _failed(_blank(who), "NVML does not open the GPU: %s" % (advice(handle["rc"]),), handle)


def _row(gpu, row, wish, kept, load, daemon, processes_ok):
    """The planned row, or None where nothing is wanted and nothing can be said."""
    planned = _blank(value(gpu, "uuid"), row, wish)
    if "problem" in wish:
        return _failed(planned, wish["problem"])
    if not row.getter:
        return _locked_row(gpu, row, wish, kept, load, processes_ok, planned)
    found = read(gpu, row.name)
    if wish["value"] is None:
        # The board had no such setting when the baseline was taken: if it has one now, no value was ever given.
        return dict(planned, status=NOT_SUPPORTED) if lacks(gpu, row.name, found["rc"]) else None
    if lacks(gpu, row.name, found["rc"]):
        if planned["insists"] or not row.ends:
            return _failed(planned, "it is not supported here (%s): %s" % (row.support, advice(found["rc"])), found)
        return dict(planned, status=NOT_SUPPORTED)
    if found["rc"] != codes.SUCCESS:
        return _failed(planned, "it cannot be read: %s" % (advice(found["rc"]),), found)
    wanted = _default(gpu, row.name) if wish["value"] == DEFAULT else wish["value"]
    planned.update(before=found["value"], wanted=wanted, after=found["value"])
    if wanted is None:
        return _failed(planned, "NVML does not tell the default of this board; give a value")
    if reached(row.name, found["value"], wanted):
        return dict(planned, status=SAME if in_force(row.name, found["value"], wanted) else PENDING)
    reason = _forbidden(gpu, row, wanted, daemon) or _busy(gpu, row, processes_ok)
    if reason:
        return _failed(planned, reason)
    after = {"current": found["value"]["current"], "pending": wanted} if row.pending_until else wanted
    return dict(
        planned,
        after=after,
        status=CHANGED if in_force(row.name, after, wanted) else PENDING,
        changed=True,
        step=_step(planned, row, wanted, wish["value"] == DEFAULT),
    )


def _locked_row(gpu, row, wish, kept, load, processes_ok, planned):
    """Locked clocks: what was set last is known from the node's own file alone, and only for the same load of the
    driver.
    """
    wanted = wish["value"]
    current = bool(kept) and kept["load"] == load and load is not None
    planned["before"] = kept["value"] if current else None
    # A reloaded driver has no locked clocks.
    due = not kept or kept["value"] != wanted or (not current and wanted != UNLOCKED)
    reason = _forbidden(gpu, row, wanted, False) or (_busy(gpu, row, processes_ok) if due else None)
    if reason:
        return _failed(planned, reason)
    return dict(
        planned, after=wanted, status=UNPROVEN, changed=due, step=_step(planned, row, wanted, wanted == UNLOCKED)
    )


def _forbidden(gpu, row, wanted, daemon):
    """Return why WANTED cannot be set on this GPU; None if nothing is known against it."""
    if row.name == "persistence_mode" and daemon:
        return "nvidia-persistenced runs and decides on the mode; %s" % (
            "start it without --no-persistence-mode (role nvidia_persistenced)"
            if wanted
            else "stop and disable its unit, or take a new baseline",
        )
    mig = gpu.get("mig_mode_current") or codes.missing(codes.UNREADABLE)
    if row.name == "compute_mode":
        if mig["rc"] == codes.SUCCESS and mig["value"]:
            return (
                "the GPU is in MIG mode, and NVML sets the compute mode of MIG devices only; leave compute_mode out, "
                "or switch MIG off first"
            )
        if mig["rc"] not in (codes.SUCCESS,) + settings.UNSUPPORTED:
            return "whether the GPU is in MIG mode is not known (%s); look for NVRM lines in the kernel log" % (
                mig.get("error"),
            )
    if row.name == "power_limit_w":
        low, high = value(gpu, "power_limit_min_mw"), value(gpu, "power_limit_max_mw")
        if low is None or high is None:
            return "NVML does not tell the range of power limits of this board; look at nvidia-smi -q -d POWER"
        if not low <= wanted <= high:
            return "the board takes %s to %s W; choose a limit in this range" % (
                text(shown(row.name, low)),
                text(shown(row.name, high)),
            )
    return _too_high(gpu, row.name, wanted)


def _too_high(gpu, name, wanted):
    limits = value(gpu, "clocks_max_mhz") or {}
    asked = {}
    if name == "application_clocks_mhz":
        asked = wanted
    elif name in ("locked_graphics_clocks_mhz", "locked_memory_clocks_mhz") and wanted != UNLOCKED:
        asked = {"graphics" if name == "locked_graphics_clocks_mhz" else "mem": wanted["max"]}
    for kind in sorted(asked):
        if limits.get(kind) is not None and asked[kind] > limits[kind]:
            return "the %s clock of this board is %d MHz at most; choose a lower one" % (
                {"mem": "memory"}.get(kind, kind),
                limits[kind],
            )
    return None


def _busy(gpu, row, processes_ok):
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


def _default(gpu, name):
    wanted = value(
        gpu,
        {"power_limit_w": "power_limit_default_mw", "application_clocks_mhz": "applications_clocks_default_mhz"}[name],
    )
    return wanted if _sane(name, wanted) else None


def _step(planned, row, wanted, reset):
    symbol = row.resetter if reset and row.resetter else row.setter
    if symbol == row.resetter:
        arguments = []
    elif isinstance(wanted, dict):
        # NVML takes the memory clock first, and the lower limit first.
        arguments = [wanted[key] for key in (("mem", "graphics") if "mem" in wanted else ("min", "max"))]
    else:
        arguments = [wanted]
    return {
        "gpu": planned["gpu"],
        "setting": row.name,
        "symbol": symbol,
        "arguments": arguments,
        "optional": row.ends and not planned["insists"],
    }


def steps(plan):
    """The steps of a plan in their order: none if a row failed.

    Persistence mode goes off last, as everything else would be lost with it.
    """
    if any(row["status"] == FAILED for row in plan):
        return []
    found = [row["step"] for row in plan if row["step"]]
    return sorted(found, key=lambda step: step["setting"] == "persistence_mode" and step["arguments"] == [0])


# ---- what became of it ----


def conclude(plan, taken, answers, gpus, problem=None):
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
                row = _answered(row, told.get((row["gpu"], row["setting"])), problem)
            if settings.BY_NAME[row["setting"]].getter:
                row = _read_back(row, again.get(row["gpu"]))
        rows.append(row)
    return rows


def _answered(row, answer, problem):
    """The row after what NVML said to its step."""
    symbol = row["step"]["symbol"]
    if answer is not None and answer["rc"] == codes.SUCCESS:
        return row
    undone = dict(row, after=row["before"], changed=False)
    if answer is None:
        return _failed(undone, problem)
    if not answer["tried"]:
        return _failed(
            undone, "%s was not tried, as something before it failed: %s" % (symbol, advice(answer["rc"])), answer
        )
    if answer["rc"] in settings.UNSUPPORTED and row["step"]["optional"]:
        return dict(undone, status=NOT_SUPPORTED)
    detail = " (%s)" % (answer["detail"],) if answer.get("detail") else ""
    return _failed(undone, "NVML refuses %s%s: %s" % (symbol, detail, advice(answer["rc"])), answer)


def _read_back(row, gpu):
    """The row with what is there now: whatever NVML said, a setting is as wanted if it reads so, and not otherwise."""
    found = read(gpu, row["setting"]) if gpu is not None else codes.missing(6)
    if found["rc"] != codes.SUCCESS:
        if row["status"] in (FAILED, NOT_SUPPORTED):
            return dict(row, after=None)
        return _failed(dict(row, after=None), "it cannot be read back: %s" % (advice(found["rc"]),), found)
    row = dict(row, after=found["value"], changed=found["value"] != row["before"])
    if row["status"] in (FAILED, NOT_SUPPORTED) or reached(row["setting"], found["value"], row["wanted"]):
        return row
    if row["step"] is None:
        return _failed(
            row,
            "it was as wanted and is %s now; look for what else sets it"
            % (text(shown(row["setting"], found["value"])),),
        )
    reason = "NVML answered SUCCESS to %s, and it reads %s" % (
        row["step"]["symbol"],
        text(shown(row["setting"], found["value"])),
    )
    if value(gpu, "persistence_mode") == 0 and settings.BY_NAME[row["setting"]].lost_at == settings.LOAD:
        return _failed(
            row,
            reason
            + "; persistence mode is off, and then the driver forgets it with the last program: turn that on first",
        )
    return _failed(row, reason + "; look for NVRM lines in the kernel log, and for what else sets it")


def unset(rows):
    """ROWS of a plan that failed: what was to be set was not, as nothing was."""
    return [
        row if row["step"] is None else dict(row, status=FAILED, after=row["before"], changed=False) for row in rows
    ]


def remembered(kept, rows, load):
    """Return the state that the node has to keep: KEPT with the locked clocks that were set."""
    result = dict((uuid, dict(entries)) for uuid, entries in kept.items())
    for row in rows:
        if row["status"] == UNPROVEN:
            result.setdefault(row["gpu"], {})[row["setting"]] = {"value": row["wanted"], "load": load}
    return result


def forgotten(rows, problem):
    """ROWS if what was to be remembered could not be."""
    return [
        _failed(row, "it is set, but cannot be remembered for the next reload: %s" % (problem,))
        if row["status"] == UNPROVEN
        else row
        for row in rows
    ]


def _failed(row, reason, answer=None):
    """ROW as a failure: REASON holds the next step, ANSWER the code of NVML if it said one."""
    subject = row["gpu"]
    if row["setting"]:
        subject = "%s of %s" % (row["setting"], row["gpu"])
        if row["wanted"] is not None:
            subject += ": found %s, expected %s" % tuple(
                text(shown(row["setting"], row[key])) for key in ("before", "wanted")
            )
    code = answer["rc"] if answer else None
    message = "%s: %s%s" % (subject, reason, " [NVML %s, %s]" % (code, codes.name(code)) if answer else "")
    return dict(
        row, status=FAILED, failure={"code": code, "error": codes.name(code) if answer else None, "message": message}
    )


def advice(rc):
    return (
        ADVICE.get(rc)
        or codes.INIT_ADVICE.get(rc)
        or "look this NVML return code up for the loaded driver, and look at the kernel log"
    )


# ---- what is told ----


def warnings(rows, gpus):
    """Return warnings about what did not fail; GPUS in their present state."""
    result = []
    for row in rows:
        if row["status"] == NOT_SUPPORTED and row["wanted"] is not None and not row["was_default"]:
            result.append(
                "%s of %s was %s in the baseline, and this driver no longer has the setting: it was not restored; use "
                "locked clocks instead" % (row["setting"], row["gpu"], text(shown(row["setting"], row["wanted"])))
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


def present(row):
    """A row as the task returns it."""
    name = row["setting"]
    setting = settings.BY_NAME.get(name)
    return {
        "gpu": row["gpu"],
        "setting": name,
        "before": shown(name, row["before"]),
        "wanted": shown(name, row["wanted"]),
        "after": shown(name, row["after"]),
        "status": row["status"],
        "changed": row["changed"],
        "lost_at": setting.lost_at if setting else None,
        "pending_until": setting.pending_until if setting else None,
    }


def failures(rows):
    """The causes of failure in a result, each with what was found and expected."""
    return [
        {
            "gpu": row["gpu"],
            "setting": row["setting"],
            "found": shown(row["setting"], row["after"] if row["changed"] else row["before"]),
            "expected": shown(row["setting"], row["wanted"]),
            "code": row["failure"]["code"],
            "error": row["failure"]["error"],
            "message": row["failure"]["message"],
        }
        for row in rows
        if row["failure"]
    ]


# ---- values ----


def read(gpu, name):
    """The value of a setting in a snapshot; the ECC mode as {"current", "pending"}."""
    parts = [gpu.get(key) or codes.missing(codes.UNREADABLE) for key in settings.BY_NAME[name].getter]
    for part in parts:
        if part["rc"] != codes.SUCCESS:
            return part
    if name == "ecc_mode":
        return codes.value({"current": parts[0]["value"], "pending": parts[1]["value"]})
    if name == "application_clocks_mhz" and isinstance(parts[0]["value"], dict) and None in parts[0]["value"].values():
        return codes.missing(codes.NOT_SUPPORTED)
    return parts[0]


def lacks(gpu, name, rc):
    """Tell if RC means that the GPU has no such setting, and not that it could not be read.

    A GPU in MIG mode has no compute mode of its own: NVML then refuses its handle as an invalid argument.
    """
    return rc in settings.UNSUPPORTED or (
        name == "compute_mode" and rc == codes.INVALID_ARGUMENT and value(gpu, "mig_mode_current") == 1
    )


def reached(name, found, wanted):
    """Tell if nothing is left to set; a setting that waits for a reset counts as set."""
    return (found["pending"] if name == "ecc_mode" else found) == wanted


def in_force(name, found, wanted):
    return (found["current"] if name == "ecc_mode" else found) == wanted


def shown(name, content):
    """A value in the form of the options."""
    if content is None or content in (DEFAULT, UNLOCKED):
        return content
    if name == "power_limit_w":
        return content / 1000.0
    if name == "compute_mode":
        return dict((number, word) for word, number in COMPUTE_MODES.items()).get(content, str(content))
    if name == "application_clocks_mhz":
        return {"graphics": content["graphics"], "memory": content["mem"]}
    if name == "ecc_mode" and isinstance(content, dict):
        return dict((key, bool(mode)) for key, mode in content.items())
    return bool(content) if name in ("ecc_mode", "persistence_mode") else content


def text(content):
    """A shown value for a sentence."""
    if content is None:
        return "no known value"
    if isinstance(content, dict):
        return ", ".join("%s %s" % (key, text(content[key])) for key in sorted(content))
    if isinstance(content, bool):
        return "on" if content else "off"
    return ("%.3f" % (content,)).rstrip("0").rstrip(".") if isinstance(content, float) else str(content)
