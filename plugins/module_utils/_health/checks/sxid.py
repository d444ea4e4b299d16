# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SXids: what the driver of the NVSwitches says. The word fatal or non-fatal in the line decides, with few exceptions.

The exceptions are codes whose repair is the same whatever the word: NVIDIA's guide has GPUs and switches reset after
19084 and its kin, which the driver prints as non-fatal.
"""

from __future__ import annotations

from .. import kernel_events, model, policy, tables
from ..model import FAIL, NODE, PASS
from ..nodefacts import Checks

ACTIONS = {"warn": "hold", "service": "restart_service", "reset": "reset_gpu", "reboot": "reboot", "hold": "hold"}
FABRIC = "Reset all GPUs and NVSwitches of the node together, with the fabric manager stopped, or reboot it."
HOLD = "Keep the node out of service, collect nvidia-bug-report and ask NVIDIA."


def decide(codes, code, events) -> tuple[str, str]:
    """(gate, what to do) of one code on one switch."""
    if code is None:
        return "hold", "The line begins like an SXid and cannot be understood. " + HOLD
    words = [event.get("fatal") for event in events if event.get("part") != "data" or event.get("fatal") is not None]
    entry = codes.get(code)
    if any(word is True for word in words):
        gate = entry["fatal"] if entry else "reset"
        return gate, entry["step"] if entry and entry["step"] and gate == entry["gate"] else FABRIC
    if not words or any(word is not False for word in words):
        return "hold", "The line does not say whether it is fatal. " + HOLD
    if entry is None:
        return (
            "warn",
            "The code is not in this collection's table; the driver calls it non-fatal. Watch whether it comes again.",
        )
    return entry["nonfatal"], entry["step"] or "Watch whether it comes again."


def check_sxids(ctx) -> list[dict]:
    ident = "node.sxid"
    checks = Checks(ident, source="hardware")
    log = kernel_events.log(ctx)
    found = kernel_events.of_kind(log, "sxid")
    result, quiet = [], {}
    if found:
        try:
            codes = tables.parse_sxid_table(model.item(ctx.tables, "sxid"))
        except tables.TableError as exc:
            return [
                checks.unknown(
                    len(found),
                    0,
                    "SXids cannot be judged, the collection's table of them is not usable: %s. Install the "
                    "collection again." % (exc,),
                    source="policy",
                )
            ]
        groups = {}
        for event in found:
            code = event.get("sxid")
            code = code if isinstance(code, int) and not isinstance(code, bool) else None
            groups.setdefault((model.pci_address(event.get("pci")) or "", -1 if code is None else code), []).append(
                event
            )
        for (where, code), events in sorted(groups.items()):
            one = one_check(ctx, ident, log, codes, where, None if code < 0 else code, events)
            if one is None:
                quiet["SXid %d" % (code,)] = len(events)
            else:
                result.append(one)
    if log.problem:
        result.append(checks.unknown(None, 0, log.problem))
    elif not any(check["status"] != PASS for check in result):
        result.append(checks.good(quiet or 0, 0))
    return result


def one_check(ctx, ident, log, codes, where, code, events) -> dict | None:
    gate, step = decide(codes, code, events)
    if gate == "ok":
        return None
    entry = codes.get(code) or {}
    count = len(events) + sum(
        other["count"]
        for other in log.suppressed
        if other["kind"] == "sxid"
        and other.get("code") == code
        and (model.pci_address(other.get("pci")) or "") == where
    )
    bursts = len(kernel_events.group_bursts(events, policy.find_limit(ctx, "xid_burst_s")))
    links = sorted(set(event["link"] for event in events if isinstance(event.get("link"), int)))
    notice = gate == "warn"
    name = "SXid %s" % ("that cannot be read" if code is None else code,)
    meaning = " (%s)" % (", ".join(text for text in (entry.get("family"), entry.get("name")) if text),) if entry else ""
    lines = "1 line" if count == 1 else "%d lines" % (count,)
    message = "%s%s on NVSwitch %s%s, %s%s: \"%s\". %s" % (
        name,
        meaning,
        where or "(no address)",
        ", link %s" % (", ".join(str(link) for link in links),) if links else "",
        lines,
        " in %d bursts" % (bursts,) if bursts > 1 else "",
        kernel_events.first_text(events),
        step,
    )
    check = Checks(ident, "nvswitch %s" % (where,) if where else NODE, "hardware").make(
        PASS if notice else FAIL,
        {"sxid": code, "count": count, "links": links, "gate": gate},
        0,
        ACTIONS[gate],
        message,
        notice=notice,
    )
    check["driver_suspect"] = bool(entry.get("driver_suspect"))
    return check


ROWS = (
    model.node_row(
        "node.sxid",
        check_sxids,
        "No NVSwitch reported an error that needs a repair",
        ("kernel_log.events", "kernel_log.complete"),
        "NVIDIA Fabric Manager user guide, appendix D",
    ),
)
