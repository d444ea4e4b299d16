# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings in their order: read, decide, set, read again, remember. Each call of NVML is in a child with a deadline.

What is set is read back by another child: what the driver forgets when the last program closes a GPU is found out that
way.
"""

from __future__ import annotations

from .. import binding as binding_module
from .. import selection, session, snapshot
from . import conclusion, plan, state
from . import table as settings
from .plan import FAILED, PENDING


class TaskError(Exception):
    """Nothing could be decided, and nothing was set; the text says why and what to do.

    With the snapshot if that is the reason.
    """

    def __init__(self, text, taken=None) -> None:
        super().__init__(text)
        self.snapshot = taken


def run(
    options,
    check_mode,
    load=None,
    stuck_file=None,
    root="/",
    state_directory=state.DIRECTORY,
    take=snapshot.take,
    child=session.run,
) -> dict:
    """The result of the module for its OPTIONS. LOAD answers the binding, as snapshot.take has it."""

    def look() -> dict:
        return take(deadline_s=options["timeout_s"], stuck_file=stuck_file, gather=list(settings.GATHER), load=load)

    before = look()
    if before["status"] != "ok":
        raise TaskError(
            "NVML cannot be read (%s), and nothing was set: %s" % (before["status"], before["message"]), before
        )
    if not before["gpus"]:
        raise TaskError(
            "NVML shows no GPU, so nothing was set; look at lspci -d 10de: and for NVRM lines in the kernel log", before
        )
    mark = state.load_mark(root)
    warned = []
    kept = _read_kept(options, state_directory, warned)
    try:
        gpus = selection.choose_gpus(before["gpus"], options["gpus"])
        wishes, missing = _collect_wishes(options, before["gpus"], gpus, kept)
    except (selection.Choice, settings.WishError) as exc:
        raise TaskError("%s; nothing was set" % (exc,)) from exc
    rows = plan.decide(gpus, wishes, kept, mark, state.daemon_runs(root), options["processes"] == "allow")
    rows += plan.make_absent_rows(missing)
    taken = plan.list_steps(rows)
    blocked = any(row["status"] == FAILED for row in rows)
    now = gpus
    if blocked:
        # Nothing is set on any GPU if one cannot be.
        rows = conclusion.undo_plan(rows)
    elif taken and not check_mode:
        outcome = child(_make_work(taken, load), options["timeout_s"], stuck_file)
        answers = outcome.value if outcome.status == "ok" else None
        after = look()
        now = after["gpus"]
        rows = conclusion.conclude_plan(rows, taken, answers, now, outcome.message or None)
        if after["status"] != "ok":
            warned.append("what was set could not be read back: %s" % (after["message"],))
        rows = _keep_state(rows, kept, mark, state_directory)
    return _make_result(rows, blocked, before, warned + conclusion.make_warnings(rows, now))


def _make_work(taken, load):
    def work(progress):
        progress("loading the binding")
        nvml = (load or binding_module.load_own)()[0]
        if nvml is None:
            raise ValueError(binding_module.NO_BINDING)
        return settings.act(nvml, taken, progress)

    return work


def _read_kept(options, directory, warned) -> dict:
    """Return the node's stored state. An unreadable one cannot be restored; a task that names its values does not need
    it."""
    try:
        return state.read_state(directory)
    except state.StateError as exc:
        if options["state"] == "restored" and any(
            not settings.BY_NAME[name].getter for name in options["settings"] or settings.NAMES
        ):
            raise TaskError(
                "the locked clocks of this node are not known, and nothing was set: %s. Next step: remove the file, "
                "then set the locked clocks again, or leave them out of the option settings" % (exc,)
            ) from exc
        warned.append("%s; it is written again if clocks are locked" % (exc,))
        return {}


def _collect_wishes(options, everyone, gpus, kept) -> tuple[dict, list]:
    """({uuid: {setting: wish}}, UUIDs that the baseline has and this node does not)."""
    uuids = [uuid for uuid in (selection.value(gpu, "uuid") for gpu in gpus) if uuid]
    if options["state"] == "present":
        wish = plan.list_task_wishes(options)
        if not wish:
            raise settings.WishError(
                "no setting is named; name one of %s, or use state: restored with a baseline"
                % (", ".join(settings.NAMES),)
            )
        return dict((uuid, wish) for uuid in uuids), []
    try:
        old = dict((selection.value(gpu, "uuid"), gpu) for gpu in options["baseline"]["snapshot"]["gpus"])
    except (KeyError, TypeError, AttributeError) as exc:
        raise settings.WishError(
            "the baseline holds no reading of its GPUs (snapshot.gpus); take a new one with gpu_health"
        ) from exc
    wishes = dict(
        (uuid, plan.list_baseline_wishes(old.get(uuid), kept.get(uuid), options["settings"] or settings.NAMES))
        for uuid in uuids
    )
    present = set(selection.value(gpu, "uuid") for gpu in everyone)
    return wishes, [] if options["gpus"] else sorted(uuid for uuid in old if uuid and uuid not in present)


def _keep_state(rows, kept, mark, directory) -> list[dict]:
    remembered = conclusion.update_kept(kept, rows, mark)
    if remembered == kept:
        return rows
    try:
        state.write(remembered, directory)
    except state.StateError as exc:
        return conclusion.fail_unproven(rows, exc)
    return rows


def _make_result(rows, blocked, before, warned) -> dict:
    failures = conclusion.list_failures(rows)
    shown = [conclusion.present_row(row) for row in rows]
    result = {
        "changed": any(row["changed"] for row in shown),
        "reset_required": any(row["status"] == PENDING for row in shown),
        "settings": shown,
        "failures": failures,
        "simulated": before["simulated"],
        "driver_version": selection.value(before["system"], "driver_version"),
        "warnings": warned,
        "diff": {"before": _make_diff_side(shown, "before"), "after": _make_diff_side(shown, "after")},
    }
    if failures:
        result["failed"] = True
        result["msg"] = "%s: %s" % (
            "Nothing was set" if blocked else "%d of %d settings failed" % (len(failures), len(rows)),
            "; ".join(failure["message"] for failure in failures),
        )
    else:
        counts = [
            (status, sum(row["status"] == status for row in shown))
            for status in sorted(set(row["status"] for row in shown))
        ]
        result["msg"] = "GPU settings: %s%s" % (
            ", ".join("%d %s" % (number, status.replace("_", " ")) for status, number in counts) or "none wanted",
            "; a GPU reset or reboot is required" if result["reset_required"] else "",
        )
    return result


def _make_diff_side(rows, key) -> dict[str, dict]:
    """One side of the difference: only what is not the same on both."""
    result = {}
    for row in rows:
        if row["changed"] and row["before"] != row["after"]:
            result.setdefault(row["gpu"], {})[row["setting"]] = row[key]
    return result
