# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the events of GPUs in the kernel log since a position in it (schema gpufleet.kernel-log/1), and whether any may
be missing.

The ring of /dev/kmsg is read first. Where it has been overwritten, the journal of this boot may hold what is gone;
where it cannot be read at all, the journal stands in. "complete" is True only if nothing can be missing since the
watermark.
"""

from __future__ import annotations

import collections
import time

from .._node import files, identity
from .._node.runner import Runner
from . import journal, kernel_lines, kmsg, loaded

SCHEMA = "gpufleet.kernel-log/1"
TAIL_LINES = 40
MAX_EVENTS = 1000
# Of events that a verdict cannot tell apart the first ones are kept, after them the first of each burst, and always the
# last: it is the state now.
MAX_ALIKE, MAX_BURSTS = 20, 100
BURST_US = 60 * 1000 * 1000
# Different versions of clients in API mismatches, which any process tells the driver as it likes.
MAX_CLIENTS = 50
# With more different events than that the log counts as incomplete; the last of the others are kept to show how it
# ends, and of what decides whatever else there is (a report that names the driver, the recovery state of a GPU) the
# last of each GPU.
LAST_EVENTS = 100
# All events that are kept. Beyond it only the first and the last of those alike are: the answer has to fit into a
# task's result.
MOST_EVENTS = 4 * MAX_EVENTS

# The log's clock is not the one of CLOCK_MONOTONIC, which NTP slews, and runs away from it.
DRIFT, DRIFT_US = 1.001, 60 * 1000 * 1000

STEP = "Read it as root (become: true) on the node itself, not in a container without /dev/kmsg."


def read(root="/", runner=None, watermark=None, clock=time.monotonic, lines=TAIL_LINES) -> dict:
    """The kernel log since WATERMARK {boot_id, seq, monotonic_us}, a position that an earlier reading of the node
    answered.
    """
    return _answer(_Reading(root, runner or Runner(), watermark, clock), lines)


def evidence(root="/", runner=None, lines=500, clock=time.monotonic) -> dict:
    """For a bundle of evidence: {"source", "lines", "recent", "withheld", "problem"}.

    LINES lines about the driver and as many of the kernel's own last ones, each with the kernel's time. What processes
    wrote into the log is not taken, and withheld says how many lines of the kernel were not because they may hold
    secrets.
    """
    reading = _Reading(root, runner or Runner(), None, clock)
    about, recent = (collections.deque(maxlen=max(0, lines)) for dummy in range(2))
    withheld = 0
    for record in kmsg.join_records(reading.records) if reading.source == "kmsg" else reading.records:
        for line in record.text.splitlines() if record.facility == 0 else ():
            if kernel_lines.is_silent(line):
                withheld += 1
                continue
            timed = "[%5d.%06d] %s" % (
                record.monotonic_us // 1000000,
                record.monotonic_us % 1000000,
                kernel_lines.short(line),
            )
            recent.append(timed)
            if kernel_lines.is_shown(line):
                about.append(timed)
    problem = "; ".join(problem for problem in reading.problems if problem)
    return {
        "source": reading.source,
        "lines": list(about),
        "recent": list(recent),
        "withheld": withheld,
        "problem": problem,
    }


class _Reading:
    """The records there are, in their order, and what is missing between them."""

    def __init__(self, root, runner, watermark, clock) -> None:
        self.root, self.runner, self.watermark = root, runner, watermark
        self.boot_id = identity.read_boot_id(root)
        self.now_us = int(clock() * 1000000)
        self.source, self.problems = "none", []
        self.records = []
        self.position = None
        # since_us: from where on nothing is missing; 0 is the start of the kernel, None that it cannot be told.
        self.complete, self.since_us = None, None
        self.start, usable = _start(watermark, self.boot_id, self.now_us)
        if not usable:
            self.problems.append(
                "the watermark %r is no position in the kernel log up to now, so every event of this boot counts"
                % (watermark,)
            )
        if self.boot_id is None:
            self.problems.append("the boot id cannot be read, so it cannot be told which boot the log is of")
        ring = kmsg.read(files.under(root, "/dev/kmsg"), clock)
        if ring.records:
            self._ring(ring)
        else:
            self.problems.append(ring.problem)
            self._journal()
        if self.boot_id is None or not usable:
            self.complete = None

    def _ring(self, ring) -> None:
        self.source = "kmsg"
        records = ring.records
        last = max(records, key=lambda record: record.seq)
        self.position = {
            "boot_id": self.boot_id,
            "seq": last.seq,
            "monotonic_us": max(record.monotonic_us for record in records),
        }
        seq, moment = self.start
        problem = _contradiction(records, self.start)
        if problem:
            self.problems.append(problem)
            self.start = (None, None)
            seq = moment = None
            self.complete = None
        gaps = _gaps(records, seq, moment)
        self.since_us = _since(records, gaps)
        bridge = journal.read(self.runner, self.boot_id) if gaps else None
        self.records, unbridged = _bridge_gaps(records, gaps, bridge)
        if gaps and not unbridged:
            self.since_us = 0 if gaps[0].start_us is None else gaps[0].start_us
        if unbridged:
            self.problems.append(
                "the kernel log was overwritten (%s) and the journal does not hold what is gone%s"
                % ("; ".join(_lost_event(gap) for gap in unbridged), ": " + bridge.problem if bridge.problem else "")
            )
        if ring.state != "ok":
            self.problems.append(ring.problem)
            self.since_us = None
        elif not problem:
            self.complete = not unbridged

    def _journal(self) -> None:
        seq, moment = self.start
        found = journal.read(self.runner, self.boot_id)
        if not found.records:
            self.problems.append(found.problem)
            self.problems.append(STEP)
            return
        self.source = "journal"
        self.records = found.records
        self.position = {"boot_id": self.boot_id, "seq": None, "monotonic_us": found.records[-1].monotonic_us}
        if seq is not None and moment is None:
            self.problems.append(
                "the watermark has no time, and the journal has no sequence numbers to compare it with"
            )
            self.start = (None, None)
        elif not journal.reaches_back(found, moment):
            self.complete = False
            self.problems.append(
                "the journal does not reach back to the %s%s"
                % (
                    "start of the kernel" if moment is None else "watermark",
                    ": " + found.problem if found.problem else "",
                )
            )
        elif journal.is_alive(self.runner):
            self.complete, self.since_us = True, 0 if moment is None else moment
        else:
            self.problems.append("journald does not answer, so its journal may lack the newest messages")
        if self.complete is False and not found.missed and not found.problem and journal.is_alive(self.runner):
            self.since_us = found.records[0].monotonic_us


class _Gap:
    """Records that are gone: after START_US (None: since the kernel started), before the record NEXT, which is still
    there.
    """

    def __init__(self, start_us, start_seq, index, following) -> None:
        self.start_us, self.start_seq, self.index, self.following = start_us, start_seq, index, following


def _start(watermark, boot_id, now_us) -> tuple[tuple, bool]:
    """(seq, monotonic_us) after which events count, (None, None) for all of this boot; and whether the watermark could
    be used.

    One that lies in the future would hide what happens until then.
    """
    if watermark is None:
        return (None, None), True
    if not isinstance(watermark, dict) or not isinstance(watermark.get("boot_id"), str):
        return (None, None), False
    if watermark["boot_id"] != boot_id:
        return (None, None), True
    seq, moment = (_natural(watermark.get(key)) for key in ("seq", "monotonic_us"))
    if moment is not None and moment > now_us * DRIFT + DRIFT_US:
        return (None, None), False
    return (seq, moment), seq is not None or moment is not None


def _natural(value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _contradiction(records, start) -> str:
    """Return why the ring cannot be the one in which the position START was taken; "" if it can."""
    seq, moment = start
    if seq is not None and records[-1].seq < seq:
        return (
            "the kernel log ends with record %d, before the watermark's %d: it is another log, so all of it counts"
            % (records[-1].seq, seq)
        )
    if moment is not None and moment > max(record.monotonic_us for record in records):
        return (
            "the kernel log ends before the time of the watermark: it is another log, or a watermark of the future, so "
            "all of it counts"
        )
    if seq is not None and moment is not None:
        # The watermark holds the newest time of all records up to its own, so its own record is never newer.
        for record in records:
            if record.seq == seq and record.monotonic_us > moment:
                return (
                    "record %d of the kernel log is not the one of the watermark: it is another log, so "
                    "all of it counts" % (seq,)
                )
    return ""


def _gaps(records, seq, moment) -> list[_Gap]:
    gaps = []
    first = records[0]
    if seq is not None:
        if first.seq > seq + 1:
            gaps.append(_Gap(moment, seq, 0, first))
    elif moment is not None:
        if first.seq > 0 and first.monotonic_us > moment:
            gaps.append(_Gap(moment, None, 0, first))
    elif first.seq > 0:
        gaps.append(_Gap(None, None, 0, first))
    for index in range(1, len(records)):
        before, after = records[index - 1], records[index]
        if after.seq != before.seq + 1 and (seq is None or after.seq > seq + 1):
            gaps.append(_Gap(before.monotonic_us, before.seq, index, after))
    return gaps


def _since(records, gaps) -> int:
    """From where on the ring alone is whole."""
    if not gaps and records[0].seq == 0:
        return 0
    return gaps[-1].following.monotonic_us if gaps else records[0].monotonic_us


def _lost_event(gap) -> str:
    if gap.start_seq is None:
        return "records before %d" % (gap.following.seq,)
    return "records %d to %d" % (gap.start_seq + 1, gap.following.seq - 1)


def _bridge_gaps(records, gaps, bridge) -> tuple[list, list]:
    """The records with those of the journal in the gaps, and the gaps that the journal does not close."""
    if not gaps:
        return records, []
    result, done, unbridged = [], 0, []
    for gap in gaps:
        result += records[done : gap.index]
        done = gap.index
        # The first message of the kernel itself after the gap proves that the journal and the ring overlap. A message
        # of a process does not: journald takes its own ones out.
        anchor = next((record for record in records[gap.index :] if record.facility == 0), None)
        known_start = gap.start_us is not None or gap.start_seq is None
        if (
            anchor is None
            or not known_start
            or not journal.reaches_back(bridge, gap.start_us)
            or not journal.has_record(bridge, anchor)
        ):
            unbridged.append(gap)
        after = -1 if gap.start_us is None else gap.start_us
        result += [record for record in bridge.records if after < record.monotonic_us < gap.following.monotonic_us]
    return result + records[done:], unbridged


def _answer(reading, lines) -> dict:
    scanner = kernel_lines.Scanner()
    events, shown = _Kept(), []
    saw_loading = False
    followed = None
    for record in kmsg.join_records(reading.records) if reading.source == "kmsg" else reading.records:
        if record.facility:
            continue  # of a process: journald may forward the lines of any user here (ForwardToKMsg=)
        found = scanner.feed(record.text, record.monotonic_us)
        saw_loading = saw_loading or any(event["kind"] == "driver_loaded" for event in found)
        shown += record.text.splitlines()[:64]
        if len(shown) > 4096:
            shown = kernel_lines.tail(shown, lines)
        if followed is not None and scanner.followed_report is not followed:
            events.add(followed)
            followed = None
        if _counts(record, reading.start):
            for event in found:
                event.update(seq=record.seq, monotonic_us=record.monotonic_us)
                if event is scanner.followed_report:
                    followed = event  # whose report of trouble it is, its later lines say
                else:
                    events.add(event)
    if followed is not None:
        events.add(followed)
    kept = events.list_kept()
    if not saw_loading:
        _fill_driver(kept, loaded.read_driver(reading.root)["version"])
    suppressed = events.count_suppressed()
    counted = {"events": len(kept), "suppressed": len(suppressed)}
    problems = list(reading.problems)
    complete = reading.complete
    if events.overflown:
        complete = None
        problems.append("the kernel log has more than %d different events" % (MAX_EVENTS,))
    return {
        "schema": SCHEMA,
        "boot_id": reading.boot_id,
        "source": reading.source,
        "position": reading.position,
        "watermark": reading.watermark,
        "complete": complete,
        "since_us": reading.since_us,
        "read_at_us": reading.now_us,
        "events": kept,
        "suppressed": suppressed,
        "counted": counted,
        "gpus": scanner.uuids,
        "tail": kernel_lines.tail(shown, lines),
        "problem": "; ".join(problem for problem in problems if problem),
    }


def _counts(record, start) -> bool:
    """Return whether a record lies after the start. By number where both have one, else by time."""
    seq, moment = start
    if seq is not None and record.seq is not None:
        return record.seq > seq
    return moment is None or record.monotonic_us > moment


def _fill_driver(events, version) -> None:
    """No driver was loaded within this log, so the one that is loaded now wrote all of it."""
    for event in events:
        if event["kind"] == "xid" and version and "driver" not in event:
            event["driver"] = version
            nvlink = event.get("nvlink5")
            if nvlink:
                nvlink["layouts"] = kernel_lines.layouts(version)
                nvlink["units"] = [
                    kernel_lines.unit_number(nvlink["intr_info"], layout) for layout in nvlink["layouts"]
                ]


class _Kept:
    """Events, of those alike some only; the others are counted."""

    def __init__(self) -> None:
        self.alike = {}
        self.number = self.clients = 0
        self.firsts = 0
        self.latest = collections.deque(maxlen=LAST_EVENTS)
        self.decisive = {}
        self.overflown = False

    def add(self, event) -> None:
        self.number += 1
        key = _key(event)
        if event["kind"] == "api_mismatch" and key not in self.alike:
            self.clients += 1
            if self.clients > MAX_CLIENTS:
                key = _key(dict(event, client=None))
        entry = self.alike.get(key)
        if entry is None:
            if len(self.alike) >= MAX_EVENTS:
                self.overflown = True
                self.latest.append((self.number, event))
                if event["kind"] == "oops" or event.get("recovery"):
                    self._keep_decisive(event)
                return
            entry = self.alike[key] = {"first": [], "last": None, "seen": 0, "before_us": event["monotonic_us"]}
        entry["seen"] += 1
        burst = event["monotonic_us"] - entry["before_us"] >= BURST_US
        entry["before_us"] = event["monotonic_us"]
        room = MAX_BURSTS if burst else MAX_ALIKE
        if not entry["first"] or self.firsts < MOST_EVENTS and len(entry["first"]) < room:
            self.firsts += 1
            entry["first"].append((self.number, event))
            entry["last"] = None
        else:
            entry["last"] = (self.number, event)

    def _keep_decisive(self, event) -> None:
        """The last of each GPU; of more GPUs than a node can have those that came last."""
        key = (event["kind"], event.get("pci"))
        self.decisive.pop(key, None)
        self.decisive[key] = (self.number, event)
        if len(self.decisive) > LAST_EVENTS:
            del self.decisive[min(self.decisive, key=lambda each: self.decisive[each][0])]

    def list_kept(self) -> list[dict]:
        """In the order of the log."""
        numbered = list(self.latest)
        numbered += [each for each in self.decisive.values() if each not in numbered]
        for entry in self.alike.values():
            numbered += entry["first"] + ([entry["last"]] if entry["last"] else [])
        return [event for dummy, event in sorted(numbered, key=lambda item: item[0])]

    def count_suppressed(self) -> list[dict]:
        """Count the events that were left out, by kind: {"kind", "pci", "code", "count", "last_us"}."""
        totals = {}
        for entry in self.alike.values():
            left_out = entry["seen"] - len(entry["first"]) - bool(entry["last"])
            if left_out:
                event = entry["first"][0][1]
                key = (event["kind"], event.get("pci") or event.get("uuid"), event.get("xid", event.get("sxid")))
                total = totals.setdefault(
                    key, {"kind": key[0], "pci": key[1], "code": key[2], "count": 0, "last_us": 0}
                )
                total["count"] += left_out
                total["last_us"] = max(total["last_us"], entry["before_us"])
        return sorted(totals.values(), key=lambda total: (total["kind"], str(total["pci"]), str(total["code"])))


def _key(event) -> tuple:
    """Events are alike if a verdict cannot tell them apart, but for their number and time."""
    nvlink = event.get("nvlink5") or {}
    recovery = event.get("recovery") or {}
    return (
        event["kind"],
        event.get("pci"),
        event.get("uuid"),
        event.get("xid", event.get("sxid")),
        event.get("fatal"),
        event.get("place"),
        event.get("reset"),
        event.get("drain_reset"),
        event.get("version"),
        event.get("link"),
        tuple(event.get("registers") or ()),
        recovery.get("to"),
        recovery.get("to_text"),
        nvlink.get("unit"),
        nvlink.get("fatal"),
        nvlink.get("intr_info"),
        nvlink.get("error_status"),
        event.get("client"),
        event.get("module"),
        event.get("cause"),
        event.get("driver"),
        event.get("what"),
        event.get("device"),
    )
