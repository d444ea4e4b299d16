# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for the meaning of an XID, where the table of codes alone does not decide."""

from __future__ import annotations

import collections

from .. import kernel_events, model

# gate: as in the table of codes, and: service (restart the fabric manager), diag (run the field diagnostics). step:
# what to do next.
Finding = collections.namedtuple("Finding", ["gate", "step"])
# What a rule is given about one code on one GPU: its events, the events of other codes on that GPU, all XIDs of the
# node.
Case = collections.namedtuple("Case", ["code", "events", "others", "node", "gpu", "burst_s", "bursts"])

WORST = ("ok", "app", "warn", "service", "reset", "reboot", "hold", "diag")
STEPS = {
    "ok": "",
    "app": "Ask the owner of the process, and run a known good program (gpu_smoke).",
    "warn": "Watch whether it comes again.",
    "service": "Restart the fabric manager.",
    "reset": "Drain the GPU and reset it, then read the node again.",
    "reboot": "Drain and reboot the node, then read it again.",
    "hold": "Keep the node out of service, collect nvidia-bug-report and ask NVIDIA.",
    "diag": "Keep the node out of service and run the field diagnostics.",
}
REPEATED_ON_A_LINK = 2


def decide(table, case):
    """The finding about one code on one GPU."""
    if case.code is None:
        return Finding("hold", "The line begins like an XID and cannot be understood. " + STEPS["hold"])
    entry = table.codes.get(case.code)
    if entry is None:
        what = (
            "is not used by current drivers" if case.code in table.unused else "is newer than this collection's table"
        )
        return Finding("hold", "The code %s. %s" % (what, STEPS["hold"]))
    if case.code in RULES:
        return RULES[case.code](table, case)
    if entry["gate"] == "decode":
        return Finding("hold", "There is no rule for this code. " + STEPS["hold"])
    return Finding(entry["gate"], STEPS[entry["gate"]])


def choose_worst(findings):
    return max(findings, key=lambda finding: WORST.index(finding.gate))


def has_other_cause(table, case, event) -> bool:
    """Tell if another XID of this GPU at the same time is the cause of EVENT. That XID must not be one that is
    ignored."""
    for other in case.others:
        entry = table.codes.get(other["xid"])
        if (entry is None or entry["gate"] != "ok") and kernel_events.is_near(event, other, case.burst_s):
            return True
    return False


def judge_cleanup(table, case):
    """45: the driver cleaned up.

    A consequence if something else happened to the GPU; alone it points to the fabric manager.
    """
    if all(
        has_other_cause(table, case, event)
        or isinstance(event.get("cause"), int)
        and any(other["xid"] == event["cause"] for other in case.node)
        for event in case.events
    ):
        return Finding("ok", "")
    return Finding(
        "service", "No other XID explains it: a process was killed, or the fabric manager has to be restarted."
    )


def double_bit(table, case):
    """48, with 171 or 172 that say where the error was, and with 63 or 64 if the row is remapped."""
    codes = set(event["xid"] for event in case.others)
    if 64 in codes:
        return Finding(
            "reset",
            "The row could not be recorded for remapping (XID 64). "
            "Drain the GPU and reset it; if it comes again, run the field diagnostics.",
        )
    if 63 in codes:
        return Finding(
            "reset", "The row will be remapped (XID 63): drain the GPU and reset it, then read the node again."
        )
    flag = model.item(model.reading(case.gpu, "sram_ecc").value, "threshold_exceeded")
    if flag is True:
        return Finding("diag", "The GPU has passed the limit of its SRAM errors. " + STEPS["diag"])
    if 171 in codes or case.code == 171:
        return Finding("diag", "The error was in the DRAM (XID 171) and no row was remapped. " + STEPS["diag"])
    if 172 in codes or case.code == 172:
        where = "The error was in the SRAM (XID 172)%s. " % (
            "" if flag is False else ", and whether its limit is passed is not known: read it as root"
        )
        return Finding("reset" if flag is False else "diag", where + STEPS["reset" if flag is False else "diag"])
    return Finding(
        "reset", "No row was remapped. Drain the GPU and reset it; if it comes again, run the field diagnostics."
    )


def judge_qualifier(table, case):
    """171 and 172 only say where an XID 48 was."""
    if any(event["xid"] == 48 for event in case.others):
        return Finding("ok", "")
    return double_bit(table, case)


def judge_recovery(table, case):
    """154: what the driver asks for now, which is what it said last."""
    # Of two at the same time the one that stands later in the log.
    last = max(enumerate(case.events), key=lambda item: (item[1]["monotonic_us"], item[0]))[1]
    change = last.get("recovery")
    code, text = model.item(change, "to"), model.item(change, "to_text")
    by_code = [entry for entry in table.recovery if entry["code"] == code]
    if not by_code or not isinstance(text, str) or not text:
        return Finding(
            "hold", "The driver asks for a recovery action that this collection does not know. " + STEPS["hold"]
        )
    by_text = [entry for entry in table.recovery if text.strip().lower() in [known.lower() for known in entry["texts"]]]
    if by_text and by_text != by_code or not by_text and by_code[0]["gate"] == "ok":
        return Finding(
            "hold",
            "Number %s and text %s of the recovery action do not belong together. %s" % (code, text, STEPS["hold"]),
        )
    return Finding(by_code[0]["gate"], by_code[0]["step"])


def judge_sympathetic(table, case):
    """159: a consequence if there is another XID, else to be repaired by a reset."""
    if all(has_other_cause(table, case, event) for event in case.events):
        return Finding("ok", "")
    return Finding("reset", "No other XID explains it. " + STEPS["reset"])


def judge_contained_error(table, case):
    """94: the application's, unless the line says that the GPU must be reset, at once or once it is drained."""
    quiet = ("no", "not said")
    if all(event.get("reset") in quiet and event.get("drain_reset", "not said") in quiet for event in case.events):
        return Finding(
            "app",
            "The memory error was contained; the process it hit is gone. A row may be waiting for remapping: see "
            "gpu.remap_pending.",
        )
    asked = "RST: Yes" if any(event.get("reset") not in quiet for event in case.events) else "D-RST: Yes"
    return Finding("reset", "The line asks for a reset (%s). %s" % (asked, STEPS["reset"]))


def judge_smoothing(table, case):
    """163: power smoothing was disengaged, until 162 says that it is engaged again. The GPU computes on."""
    last = max(event["monotonic_us"] for event in case.events)
    if any(event["xid"] == 162 and event["monotonic_us"] > last for event in case.others):
        return Finding("ok", "")
    return Finding(
        "warn", "Power smoothing was not engaged again (XID 162); a reset of the GPU engages it. " + STEPS["warn"]
    )


def judge_exception(table, case):
    """13: the application's, unless the same unit of the GPU is named again and again."""
    places = [event["place"] for event in case.events if isinstance(event.get("place"), str)]
    for place in sorted(set(places)):
        again = kernel_events.group_bursts(
            [event for event in case.events if event.get("place") == place], case.burst_s
        )
        if len(again) > 1:
            return Finding(
                "app",
                "%s was named %d times: run dcgmi diag -r 3 on this GPU, then the field diagnostics."
                % (place, len(again)),
            )
    return Finding("app", STEPS["app"])


def page_fault(table, case):
    """31: the application's, unless it comes again on this GPU alone."""
    elsewhere = any(event["xid"] == 31 and event not in case.events for event in case.node)
    if case.bursts > 1 and not elsewhere:
        return Finding(
            "app",
            "It came %d times and on no other GPU: run dcgmi diag -r 3 on this GPU, then the field diagnostics."
            % (case.bursts,),
        )
    return Finding("app", STEPS["app"])


def judge_nvlink(table, case):
    """74: by the bits of the registers in the line."""
    return choose_worst([_judge_registers(table, case, event) for event in case.events])


def _judge_registers(table, case, event):
    registers = event.get("registers")
    if (
        not isinstance(registers, list)
        or not registers
        or not all(isinstance(value, int) and not isinstance(value, bool) for value in registers)
    ):
        return Finding("hold", "The line has no registers that can be read. " + STEPS["hold"])
    bits = [
        (number, bit)
        for number, value in enumerate(registers, 1)
        for bit in range(value.bit_length())
        if value >> bit & 1
    ]
    if not bits:
        return Finding("hold", "No bit is set in the registers. " + STEPS["hold"])
    return choose_worst([_judge_bit(table, case, event, bits, number, bit) for number, bit in bits])


def _judge_bit(table, case, event, bits, number, bit):
    name = "Register %d bit %d" % (number, bit)
    for entry in table.registers:
        if entry["register"] == number and bit in entry["bits"]:
            break
    else:
        return Finding("hold", "%s is not in this collection's table. %s" % (name, STEPS["hold"]))
    what, rule = "%s is %s. " % (name, entry["text"]), entry["rule"]
    if rule in ("ignore", "counted"):
        return Finding("ok" if rule == "ignore" else "warn", what + STEPS["warn"])
    if rule == "sympathetic":
        alone = len(bits) == 1 and not has_other_cause(table, case, event)
        return Finding("hold", what + "It stands alone. " + STEPS["hold"]) if alone else Finding("ok", "")
    if rule == "repeated":
        return (
            Finding("diag", what + STEPS["diag"])
            if _on_link(case, event) > REPEATED_ON_A_LINK
            else Finding("reset", what + STEPS["reset"])
        )
    if rule == "mechanics":
        return Finding("hold", what + "Check the mechanical connection of the link, then run the field diagnostics.")
    if rule == "signal":
        if len(bits) > 1 or has_other_cause(table, case, event):
            return Finding("reset", what + "Other errors came with it: follow those. " + STEPS["reset"])
        return Finding("hold", what + "Check the mechanical connection of the link, then run the field diagnostics.")
    if rule == "fabric":
        return Finding("reset", what + "Reset all GPUs and NVSwitches of the node together, or reboot it.")
    if rule == "diagnose":
        return Finding("diag", what + STEPS["diag"])
    return Finding("hold", what + STEPS["hold"])


def _on_link(case, event) -> int:
    """Count how often this link of the GPU was named; an unknown link counts for every link."""
    link = event.get("link")
    return len([other for other in case.events if link is None or other.get("link") in (None, link)])


def judge_nvlink5(table, case):
    """144 to 150: by the unit and the status in the line."""
    return choose_worst([_unit_event(table, case, event) for event in case.events])


def _unit_event(table, case, event):
    words = event.get("nvlink5")
    layouts, numbers = model.item(words, "layouts"), model.item(words, "units")
    sound = (
        isinstance(layouts, list)
        and isinstance(numbers, list)
        and layouts
        and len(layouts) == len(numbers)
        and all(layout in (1, 2) for layout in layouts)
        and all(_is_count(model.item(words, key)) for key in ("error_status", "subcode"))
        and isinstance(model.item(words, "unit"), str)
    )
    if not sound:
        return Finding("hold", "The line cannot be decoded. " + STEPS["hold"])
    answers = [_judge_unit(table, case, words, layout, number) for layout, number in zip(layouts, numbers)]
    if len(set(finding.gate for finding in answers)) > 1:
        return Finding(
            "hold",
            "Which driver wrote the line is not known, and before and since R575 it means different things. "
            + STEPS["hold"],
        )
    return answers[0]


def _judge_unit(table, case, words, layout, number):
    """One line under one layout. The name in the line and the number in its first word must belong together."""
    names = [name for name in words["unit"].upper().split("/") if name]
    key = "unit_v1" if layout == 1 else "unit_v2"
    rows = [
        entry
        for entry in table.units
        if entry["xid"] == case.code and entry[key] == number and set(names) & set(entry["names"])
    ]
    if not rows:
        return Finding(
            "hold", "Unit %s (%s) is not in this collection's table. %s" % (words["unit"], number, STEPS["hold"])
        )
    answers = [_judge_status(table, case, words, entry) for entry in rows]
    return choose_worst(answers)


def _judge_status(table, case, words, entry):
    status = words["error_status"]
    if entry["by"] == "any":
        return _unit_gate(table, case, words, entry["rows"][0]["gate"])
    values = [words["subcode"]] if entry["by"] == "subcode" else [status]
    if entry["by"] == "bits":
        values = [1 << bit for bit in range(status.bit_length()) if status >> bit & 1]
    answers = []
    for value in values:
        gates = [row["gate"] for row in entry["rows"] if "%x" % value in row["values"]]
        if not gates:
            return Finding(
                "hold",
                "Status 0x%x of unit %s is not in this collection's table. %s" % (value, words["unit"], STEPS["hold"]),
            )
        answers.append(_unit_gate(table, case, words, gates[0]))
    if not answers:
        return Finding("hold", "Unit %s gives no status. %s" % (words["unit"], STEPS["hold"]))
    return choose_worst(answers)


def _unit_gate(table, case, words, gate):
    if gate == "ok_fatal":
        return Finding("ok", "")
    if gate == "ok":
        if words.get("fatal") is False:
            return Finding("ok", "")
        return Finding("reset", "The error is harmless by itself and was promoted to fatal. " + STEPS["reset"])
    if gate == "follow":
        if words.get("fatal") is not False:
            return Finding("reset", STEPS["reset"])
        asked = [event for event in case.others if event["xid"] == 154]
        wanted = judge_recovery(table, case._replace(events=asked)) if asked else Finding("ok", "")
        if wanted.gate != "ok":
            return wanted
        return Finding(
            "app", "Packets of the application were lost and the driver asks for no recovery action. " + STEPS["app"]
        )
    return Finding(gate, STEPS[gate])


def _is_count(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


RULES = {
    13: judge_exception,
    31: page_fault,
    45: judge_cleanup,
    48: double_bit,
    74: judge_nvlink,
    94: judge_contained_error,
    154: judge_recovery,
    159: judge_sympathetic,
    163: judge_smoothing,
    171: judge_qualifier,
    172: judge_qualifier,
}
RULES.update((code, judge_nvlink5) for code in range(144, 151))
