# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The events of the kernel log as a judge may use them: well-formed, of this boot, and with the word whether they are
all there are.
"""

from __future__ import annotations

import collections

from . import model, policy

SCHEMA = "gpufleet.kernel-log/1"
STEP = (
    "Read the node as root (become: true); if the log is overwritten too fast, enlarge it (log_buf_len=) or "
    "keep the journal."
)

# problem: why what is not in the events is not known; "" if they are all there are. note: what a person should know of
# a log that will do.
Log = collections.namedtuple("Log", ["events", "suppressed", "problem", "note"])
Burst = collections.namedtuple("Burst", ["first_us", "last_us"])


def log(ctx):
    """The log of this reading. Damaged events are left out, and then the log has a problem."""
    found = ctx.kernel_log
    if not isinstance(found, dict):
        return Log([], [], "The kernel log was not read. " + STEP, "")
    listed, suppressed = found.get("events"), found.get("suppressed")
    events = [event for event in listed if _is_sound(event)] if isinstance(listed, list) else []
    counts = [entry for entry in suppressed if _sound_count(entry)] if isinstance(suppressed, list) else []
    problem, note = _find_problem(ctx, found, listed, suppressed, events, counts)
    return Log(events, counts, problem, note)


def _find_problem(ctx, found, listed, suppressed, events, counts) -> tuple[str, str]:
    boot_id = found.get("boot_id")
    if found.get("schema") != SCHEMA:
        return (
            "The kernel log has schema %r, expected %r: node and controller run different versions of the collection."
            % (found.get("schema"), SCHEMA),
            "",
        )
    if not isinstance(boot_id, str) or boot_id != model.item(ctx.reading, "boot_id"):
        return "The kernel log is of boot %s and the reading of boot %s: read the node again." % (
            boot_id,
            model.item(ctx.reading, "boot_id"),
        ), ""
    if not isinstance(listed, list) or not isinstance(suppressed, list) or "watermark" not in found:
        return "The reading of the kernel log is damaged. Read the node again.", ""
    if (
        len(events) != len(listed)
        or len(counts) != len(suppressed)
        or found.get("counted") != {"events": len(listed), "suppressed": len(suppressed)}
    ):
        return (
            (
                "The reading of the kernel log is damaged: it has events that are none, or not as many as were found. "
                "Read the node again."
            ),
            "",
        )
    if found.get("complete") is True:
        return "", ""
    why = "%s. %s" % (str(found.get("problem") or "no reason is given").rstrip("."), STEP)
    if found.get("complete") is False:
        reach = _reach_h(found)
        if (
            found["watermark"] is None
            and ctx.phase in ("adhoc", "baseline")
            and reach is not None
            and reach >= policy.find_limit(ctx, "kernel_log_reach_min_h")
        ):
            return (
                "",
                (
                    "The kernel log reaches back %.0f h only, not to the start of the kernel; what happened "
                    "before is not known." % (reach,)
                ),
            )
        return "What the kernel logged is not all known: %s" % (why,), ""
    return "Whether the kernel log is all there cannot be told: %s" % (why,), ""


def _reach_h(found) -> float | None:
    since, now = found.get("since_us"), found.get("read_at_us")
    if not _is_number(since) or not _is_number(now):
        return None
    return (now - since) / 3600e6


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_sound(event) -> bool:
    return (
        isinstance(event, dict)
        and isinstance(event.get("kind"), str)
        and _is_number(event.get("monotonic_us"))
        and isinstance(event.get("text"), str)
    )


def _sound_count(entry) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("kind"), str)
        and isinstance(entry.get("count"), int)
        and entry["count"] > 0
        and _is_number(entry.get("last_us"))
    )


def of_kind(found, *kinds) -> list:
    return [event for event in found.events if event["kind"] in kinds]


def group_bursts(events, seconds) -> list:
    """The events' times as bursts: one fault prints many lines."""
    result = []
    for moment in sorted(event["monotonic_us"] for event in events):
        if result and moment - result[-1].last_us <= seconds * 1e6:
            result[-1] = result[-1]._replace(last_us=moment)
        else:
            result.append(Burst(moment, moment))
    return result


def is_near(event, other, seconds) -> bool:
    return abs(event["monotonic_us"] - other["monotonic_us"]) <= seconds * 1e6


def first_text(events) -> str:
    return min(events, key=lambda event: (event["monotonic_us"], event["text"]))["text"]


def find_place(ctx, event) -> str:
    """Return the GPU that an event is about: its PCI address, or its UUID if it has no address; "" if it names none."""
    address = model.pci_address(event.get("pci"))
    if address:
        return address
    uuid = event.get("uuid")
    if not isinstance(uuid, str):
        return ""
    gpu = model.by_uuid(ctx.snapshot).get(uuid)
    return (model.address(gpu) if gpu else None) or uuid


def gpu_at(ctx, where) -> dict | None:
    for gpu in model.gpus(ctx.snapshot):
        if where and where in (model.address(gpu), model.uuid(gpu)):
            return gpu
    return None


def name_gpu_at(ctx, where) -> str:
    """Return the name of the GPU at a place for the verdict.

    The log may have the UUID of a GPU that NVML does not show.
    """
    gpu = gpu_at(ctx, where)
    if gpu is not None:
        return model.entity(gpu)
    logged = model.item(ctx.kernel_log, "gpus", where)
    return logged if isinstance(logged, str) and logged else where or model.NODE


def name_entity(ctx, where) -> str:
    gpu = gpu_at(ctx, where)
    if gpu is not None:
        return model.name_gpu(gpu)
    if not where:
        return "a GPU that the line does not name"
    who = name_gpu_at(ctx, where)
    return "%s (NVML does not show it)" % (who if who == where else "%s at %s" % (who, where),)


def make_earlier_context(ctx):
    """The context of the baseline, to see what was there before; None if there is nothing to see."""
    if not isinstance(ctx.baseline, dict) or not isinstance(ctx.baseline.get("kernel_log"), dict):
        return None
    snapshot = ctx.baseline.get("snapshot")
    return ctx._replace(
        reading=ctx.baseline,
        snapshot=snapshot if isinstance(snapshot, dict) else None,
        kernel_log=ctx.baseline["kernel_log"],
        phase="baseline",
        baseline=None,
        expected_driver=None,
    )
