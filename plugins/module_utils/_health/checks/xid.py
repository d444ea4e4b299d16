# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of kernel messages about GPUs: XIDs, and failures of a GPU or the driver without one."""

from __future__ import annotations

import collections

from .. import kernel_events, model, nodefacts, policy, tables
from ..model import FAIL, NODE, PASS, UNKNOWN
from ..nodefacts import Checks
from . import xid_rules

ACTIONS = {
    "app": "hold",
    "service": "restart_service",
    "reset": "reset_gpu",
    "reboot": "reboot",
    "hold": "hold",
    "diag": "field_diag",
}
# Phases in which nothing but the gate's own tests ran: there an error of "the application" is an error of the GPU or
# its driver.
ALONE = ("post", "soak")

# One code on one GPU, judged.
Judged = collections.namedtuple("Judged", ["place", "code", "entry", "finding", "events", "count", "bursts"])


def map_outcome(ctx, gate) -> tuple[str, str, bool]:
    """(status, action, notice) of a gate in this phase."""
    if gate == "ok":
        return PASS, "none", False
    if gate == "warn" or gate in ("app", "service") and ctx.phase not in ALONE:
        return PASS, ACTIONS.get(gate, "hold"), True
    return FAIL, ACTIONS[gate], False


def judge_codes(ctx, log, table) -> list:
    """Every code on every GPU of the log."""
    burst_s = policy.find_limit(ctx, "xid_burst_s")
    events = []
    for event in kernel_events.of_kind(log, "xid"):
        code = event.get("xid")
        sound = isinstance(code, int) and not isinstance(code, bool)
        events.append(dict(event, xid=code if sound else None, where=kernel_events.find_place(ctx, event)))
    groups = {}
    for event in events:
        groups.setdefault((event["where"], event["xid"]), []).append(event)
    result = []
    for (where, code), mine in sorted(
        groups.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1] or 0)
    ):
        others = [event for event in events if event["where"] == where and event["xid"] != code] if where else []
        more = [
            entry
            for entry in log.suppressed
            if entry["kind"] == "xid"
            and entry.get("code") == code
            and kernel_events.find_place(ctx, {"pci": entry.get("pci"), "uuid": entry.get("pci")}) == where
        ]
        # The last one of those that were left out counts for the bursts; those between are not known.
        times = mine + [{"monotonic_us": entry["last_us"]} for entry in more]
        bursts = len(kernel_events.group_bursts(times, burst_s))
        case = xid_rules.Case(code, mine, others, events, kernel_events.gpu_at(ctx, where), burst_s, bursts)
        finding = xid_rules.decide(table, case)
        if finding.gate == "warn" and bursts > policy.find_limit(ctx, "xid_warn_bursts_max"):
            finding = xid_rules.Finding(
                "hold", "It came %d times, more often than the policy allows. %s" % (bursts, xid_rules.STEPS["hold"])
            )
        result.append(
            Judged(
                where,
                code,
                table.codes.get(code),
                finding,
                mine,
                len(mine) + sum(entry["count"] for entry in more),
                bursts,
            )
        )
    return result


def table_of(ctx) -> tuple:
    """(table, why there is none)."""
    try:
        return tables.parse_xid_table(model.item(ctx.tables, "xid")), ""
    except tables.TableError as exc:
        return (
            None,
            "XIDs cannot be judged, the collection's table of them is not usable: %s. Install the collection again."
            % (exc,),
        )


def check_xids(ctx) -> list[dict]:
    ident = "gpu.xid"
    log = kernel_events.log(ctx)
    found = kernel_events.of_kind(log, "xid")
    table, problem = table_of(ctx)
    result = []
    quiet = {}
    if found and table is None:
        result.append(model.check(ident, NODE, UNKNOWN, len(found), 0, "policy", "hold", problem))
    if table is not None:
        before = sick_before(ctx, table)
        for case in judge_codes(ctx, log, table):
            status, action, notice = map_outcome(ctx, case.finding.gate)
            if status == PASS and not notice:
                quiet["XID %s" % (case.code,)] = case.count
                continue
            result.append(xid_check(ctx, ident, case, status, action, notice, before))
    if log.problem:
        result.append(model.check(ident, NODE, UNKNOWN, None, 0, "hardware", "hold", log.problem))
    elif not any(check["status"] != PASS for check in result):
        result.append(
            model.check(ident, NODE, PASS, quiet or 0, 0, "hardware", message=log.note, notice=bool(log.note))
        )
    return result


def xid_check(ctx, ident, case, status, action, notice, before) -> dict:
    entry = case.entry or {}
    name = "XID %s" % ("that cannot be read" if case.code is None else case.code,)
    meaning = " (%s: %s)" % (entry["mnemonic"], entry["meaning"]) if entry else ""
    mig = sorted(set(event["mig"] for event in case.events if isinstance(event.get("mig"), str)))
    message = "%s%s on %s%s, %s: \"%s\". %s" % (
        name,
        meaning,
        kernel_events.name_entity(ctx, case.place),
        " (MIG %s)" % (", ".join(mig),) if mig else "",
        format_times(case.count, case.bursts),
        kernel_events.first_text(case.events),
        case.finding.step,
    )
    observed = {
        "xid": case.code,
        "mnemonic": entry.get("mnemonic"),
        "count": case.count,
        "bursts": case.bursts,
        "gate": case.finding.gate,
    }
    check = model.check(
        ident, kernel_events.name_gpu_at(ctx, case.place), status, observed, 0, "hardware", action, message, notice
    )
    check["driver_suspect"] = bool(entry.get("driver_suspect"))
    if status == FAIL and before is not None:
        check["since"] = "before" if (case.place, case.code) in before else "during"
    return check


def format_times(count, bursts) -> str:
    lines = "1 line" if count == 1 else "%d lines" % (count,)
    return lines if bursts <= 1 else "%s in %d bursts" % (lines, bursts)


def sick_before(ctx, table) -> set[tuple] | None:
    """Return the codes that failed on each GPU when the baseline was taken; None if unknown."""
    old = kernel_events.make_earlier_context(ctx)
    if old is None:
        return None
    log = kernel_events.log(old)
    if log.problem:
        return None
    return set(
        (case.place, case.code)
        for case in judge_codes(old, log, table)
        if map_outcome(old, case.finding.gate)[0] == FAIL
    )


def check_lost_gpus(ctx) -> list[dict]:
    """A GPU can be gone without an XID."""
    return check_silent_events(
        ctx,
        "gpu.fallen_off",
        ("fallen_off", "uvm_fatal", "needs_reset", "no_link_detect"),
        {
            "fallen_off": (
                "has fallen off the bus",
                "reboot",
                (
                    "Drain and reboot the node; if it comes again, power it off and check the seat and the "
                    "power of the GPU."
                ),
            ),
            "uvm_fatal": (
                "met an error from which the driver recovers by a reboot only",
                "reboot",
                "Drain and reboot the node.",
            ),
            "needs_reset": (
                "does not answer the driver any more, which takes it for locked",
                "reset_gpu",
                xid_rules.STEPS["reset"],
            ),
            "no_link_detect": (
                "could not find its NVLinks",
                "reset_gpu",
                "Look at the fabric manager. " + xid_rules.STEPS["reset"],
            ),
        },
    )


def init_failed(ctx) -> list[dict]:
    return check_silent_events(
        ctx,
        "gpu.init_failed",
        ("rm_init_failed", "probe_failed"),
        {
            "rm_init_failed": (
                "could not be initialised by the driver",
                "reboot",
                "Reboot the node; if it comes again with this driver, roll the driver back.",
            ),
            "probe_failed": (
                "was not accepted by the driver",
                "hold",
                (
                    "Look at the lines before it (dmesg): another driver may have bound it, or this driver "
                    "does not support it."
                ),
            ),
        },
    )


def check_silent_events(ctx, ident, kinds, meanings) -> list[dict]:
    log = kernel_events.log(ctx)
    groups = {}
    for event in kernel_events.of_kind(log, *kinds):
        groups.setdefault((kernel_events.find_place(ctx, event), event["kind"]), []).append(event)
    result = []
    for (where, kind), events in sorted(groups.items()):
        what, action, step = meanings[kind]
        count = len(events) + sum(
            entry["count"]
            for entry in log.suppressed
            if entry["kind"] == kind and (kernel_events.find_place(ctx, {"pci": entry.get("pci")}) == where)
        )
        check = Checks(ident, kernel_events.name_gpu_at(ctx, where), source="hardware").fail(
            {"event": kind, "count": count},
            0,
            "%s %s, %s: \"%s\". %s"
            % (
                kernel_events.name_entity(ctx, where),
                what,
                format_times(count, 1),
                kernel_events.first_text(events),
                step,
            ),
            action,
        )
        check["driver_suspect"] = True
        result.append(check)
    return complete_checks(ident, log, result)


def complete_checks(ident, log, result) -> list[dict]:
    """The checks, with the one about the node if nothing failed or not everything is known."""
    if log.problem:
        result.append(model.check(ident, NODE, UNKNOWN, None, 0, "hardware", "hold", log.problem))
    elif not result:
        result.append(model.check(ident, NODE, PASS, 0, 0, "hardware"))
    return result


def check_mismatches(ctx) -> list[dict]:
    """A process calls the loaded driver with the library of another one.

    One that called the driver before this one is history.
    """
    ident = "driver.client_mismatch"
    log = kernel_events.log(ctx)
    loaded = nodefacts.collect_versions(ctx.snapshot, ctx.audit)["loaded"]
    groups = {}
    for event in kernel_events.of_kind(log, "api_mismatch"):
        module = event.get("module")
        if loaded is None or not isinstance(module, str) or module == loaded:
            groups.setdefault((str(event.get("client")), str(module)), []).append(event)
    result = []
    for (client, module), events in sorted(groups.items()):
        failed = ctx.phase in ALONE
        who = sorted(
            set(
                "%s (pid %s)" % (event["name"], event.get("pid"))
                for event in events
                if isinstance(event.get("name"), str)
            )
        )
        result.append(
            Checks(ident, NODE, "hardware").make(
                FAIL if failed else PASS,
                {"client": client, "module": module, "count": len(events)},
                loaded,
                "restart_service",
                "A process%s calls the loaded driver %s with a library of version %s: \"%s\". Restart it, or update "
                "the container it runs in."
                % (", %s," % (", ".join(who),) if who else "", module, client, kernel_events.first_text(events)),
                notice=not failed,
            )
        )
    if log.problem or not any(check["status"] != PASS for check in result):
        return [check for check in result if check["status"] != PASS or check["notice"]] + complete_checks(
            ident, log, []
        )
    return result


ROWS = (
    model.node_row(
        "gpu.xid",
        check_xids,
        "No XID that says that a GPU is broken, and since an upgrade none at all",
        ("kernel_log.events", "kernel_log.complete", "snapshot.gpus.sram_ecc"),
        "NVIDIA XID catalogue; the phases are this collection's",
    ),
    model.node_row(
        "gpu.fallen_off",
        check_lost_gpus,
        "No GPU has left the bus, locked up or lost its NVLinks without an XID",
        ("kernel_log.events", "kernel_log.complete"),
        "messages of the driver",
    ),
    model.node_row(
        "gpu.init_failed",
        init_failed,
        "The driver initialised every GPU",
        ("kernel_log.events", "kernel_log.complete"),
        "messages of the driver",
    ),
    model.node_row(
        "driver.client_mismatch",
        check_mismatches,
        "No process calls the loaded driver with another version's library",
        ("kernel_log.events", "kernel_log.complete", "audit.versions.loaded"),
        "messages of the driver",
    ),
)
