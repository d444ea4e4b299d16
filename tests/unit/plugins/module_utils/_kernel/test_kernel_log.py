# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel log since a watermark: what is in it, and whether that is all."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import tempfile

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import journal, kernel_log, kmsg

pytestmark = pytest.mark.pythons

BOOT = "dea7c902-66eb-48ec-83a1-ac93694122df"
OTHER = "11111111-66eb-48ec-83a1-ac93694122df"
FIRST = "Linux version 6.1.0-50-amd64 (debian-kernel@lists.debian.org)"
XID = "NVRM: Xid (PCI:0000:%s:00): %d, pid=7, name=python3, text"


def record(seq, text, us=None, prefix=6, flags="-"):
    escaped = "".join(
        char if 31 < ord(char) < 127 and char != "\\" else "".join("\\x%02x" % byte for byte in char.encode())
        for char in text
    )
    return "%d,%d,%d,%s;%s\n" % (prefix, seq, 1000 * seq if us is None else us, flags, escaped)


class Machine:
    """A tree with a kernel log in a file, and a journal."""

    def __init__(self, path):
        self.path = path
        self.entries, self.missed, self.asked = [], [], []
        self.journal_rc, self.sync_rc = 0, 0
        self.boot(BOOT)
        (path / "dev").mkdir()

    def boot(self, boot_id):
        folder = self.path / "proc" / "sys" / "kernel" / "random"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "boot_id").write_text(boot_id + "\n")

    def kmsg(self, *records):
        (self.path / "dev" / "kmsg").write_text("".join(records))
        return self

    def ring(self, first, last, **texts):
        """Records FIRST to LAST; texts are of the records with that number."""
        return self.kmsg(
            *[
                record(seq, texts.get("r%d" % seq, FIRST if seq == 0 else "message %d" % seq))
                for seq in range(first, last + 1)
            ]
        )

    def module(self, version):
        folder = self.path / "sys" / "module" / "nvidia"
        folder.mkdir(parents=True)
        (folder / "version").write_text(version + "\n")

    def kept(self, seq, text=None, boot=BOOT, facility="0", transport="kernel"):
        """An entry of the journal for the record SEQ."""
        self.entries.append(
            {
                "MESSAGE": text or (FIRST if seq == 0 else "message %d" % seq),
                "SYSLOG_FACILITY": facility,
                "_TRANSPORT": transport,
                "_BOOT_ID": boot.replace("-", ""),
                "_SOURCE_MONOTONIC_TIMESTAMP": str(1000 * seq),
                "__MONOTONIC_TIMESTAMP": str(1000 * seq + 50),
            }
        )

    def __call__(self, argv, timeout=60):
        self.asked.append(argv)
        if argv == ["journalctl", "--sync"]:
            return self.sync_rc, "", ""
        if argv[-1].startswith("MESSAGE_ID="):
            return (
                (0 if self.missed else 1),
                "".join(
                    json.dumps({"_BOOT_ID": BOOT.replace("-", ""), "__MONOTONIC_TIMESTAMP": str(moment)}) + "\n"
                    for moment in self.missed
                ),
                "",
            )
        if self.journal_rc:
            return self.journal_rc, "", "journalctl: command not found"
        return 0, "".join((entry if isinstance(entry, str) else json.dumps(entry)) + "\n" for entry in self.entries), ""

    def read(self, watermark=None, **change):
        return kernel_log.read(str(self.path), self, watermark, **change)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def mark(seq, boot=BOOT, us=None):
    return {"boot_id": boot, "seq": seq, "monotonic_us": 1000 * seq if us is None else us}


def codes(found):
    return [event["xid"] for event in found["events"] if event["kind"] == "xid"]


def test_only_what_came_after_the_watermark_counts(machine):
    machine.ring(0, 9, r3=XID % ("1b", 79), r6=XID % ("1b", 48), r7=XID % ("1c", 63))
    assert codes(machine.read()) == [79, 48, 63]
    found = machine.read(mark(6))
    assert codes(found) == [63] and found["complete"] is True and found["source"] == "kmsg" and found["problem"] == ""
    assert found["position"] == mark(9) and found["watermark"] == mark(6)
    assert (found["events"][0]["seq"], found["events"][0]["monotonic_us"], found["events"][0]["pci"]) == (
        7,
        7000,
        "0000:1c:00.0",
    )
    assert found["counted"] == {"events": 1, "suppressed": 0}
    assert machine.asked == [], "nothing was missing, so the journal is not asked"
    # The position of a reading is the watermark of the next one.
    assert codes(machine.read(found["position"])) == []


def test_another_boot_makes_everything_of_this_one_count(machine):
    machine.ring(0, 9, r3=XID % ("1b", 79))
    found = machine.read(mark(900, boot=OTHER))
    assert codes(found) == [79] and found["complete"] is True
    machine.ring(2, 9, r3=XID % ("1b", 79))
    assert machine.read(mark(900, boot=OTHER))["complete"] is False, "the beginning of this boot is gone"


def test_a_ring_that_wrapped_past_the_watermark_is_not_complete(machine):
    machine.ring(20, 29, r25=XID % ("1b", 79))
    for seq, complete in ((19, True), (20, True), (18, False), (3, False)):
        found = machine.read(mark(seq))
        assert (found["complete"], codes(found)) == (complete, [79]), seq
    assert "records 4 to 19" in found["problem"] and "no message of the kernel" in found["problem"]
    assert machine.read()["complete"] is False and machine.read()["since_us"] == 20000
    assert machine.read(mark(30))["complete"] is None, "the log went backwards"


def bridge(machine, first=5, last=24):
    machine.ring(20, 29, r25=XID % ("1b", 79))
    for seq in range(first, last):
        machine.kept(seq, XID % ("1b", 48) if seq == 12 else None)


def test_the_journal_bridges_what_the_ring_has_lost(machine):
    bridge(machine)
    found = machine.read(mark(8))
    assert (found["complete"], codes(found), found["problem"]) == (True, [48, 79], "")
    assert [(event["seq"], event["monotonic_us"]) for event in found["events"]] == [(None, 12000), (25, 25000)]
    assert found["position"] == mark(29)
    assert codes(machine.read(mark(12))) == [79], "the record of the watermark itself is not after it"
    assert machine.read(mark(5))["complete"] is True
    assert machine.read(mark(4))["complete"] is False, "the journal begins later"
    machine.kept(0)
    assert machine.read()["complete"] is True and machine.read()["since_us"] == 0


@pytest.mark.parametrize(
    "harm",
    [
        "no overlap",
        "other text",
        "missed",
        "missed unreadable",
        "other boot",
        "other transport",
        "garbage",
        "fails",
        "a process's",
    ],
)
def test_a_journal_that_may_lack_something_bridges_nothing(machine, harm):
    if harm == "no overlap":
        bridge(machine, last=20)
    else:
        bridge(machine)
    if harm == "other text":
        machine.entries[15]["MESSAGE"] = "another one"
    elif harm == "missed":
        machine.missed = [15000]
    elif harm == "missed unreadable":
        machine.missed = ["x"]
    elif harm in ("other boot", "other transport"):
        for entry in machine.entries:
            entry.update({"_BOOT_ID": OTHER.replace("-", "")} if harm == "other boot" else {"_TRANSPORT": "syslog"})
    elif harm == "garbage":
        machine.entries.append("{")
    elif harm == "fails":
        machine.journal_rc = 127
    elif harm == "a process's":
        for entry in machine.entries:
            entry["SYSLOG_FACILITY"] = "3"
    found = machine.read(mark(8))
    assert found["complete"] is False and found["problem"]
    assert 79 in codes(found)


def test_no_other_program_can_say_that_the_journal_missed_messages(machine):
    bridge(machine)
    assert machine.read(mark(8))["complete"] is True
    (asked,) = [argv for argv in machine.asked if argv[-1].startswith("MESSAGE_ID=")]
    assert "_TRANSPORT=driver" in asked


def test_messages_that_the_journal_missed_long_before_do_not_matter(machine):
    machine.kmsg(record(200, FIRST, 200000000), record(201, XID % ("1b", 79), 201000000))
    for seq, moment in ((90, 90000000), (150, 150000000), (200, 200000000)):
        machine.kept(seq, FIRST if seq == 200 else None)
        machine.entries[-1]["_SOURCE_MONOTONIC_TIMESTAMP"] = str(moment)
    machine.missed = [50000000]
    assert machine.read(mark(100, us=100000000))["complete"] is True
    machine.missed = [99000000]
    assert machine.read(mark(100, us=100000000))["complete"] is False


def test_a_hole_in_the_middle_is_a_hole(machine):
    last = XID % ("1b", 43)
    texts = [
        record(seq, last if seq == 13 else "message %d" % seq) for seq in list(range(10, 14)) + list(range(16, 20))
    ]
    machine.kmsg(*texts)
    assert machine.read(mark(11))["complete"] is False
    assert machine.read(mark(15))["complete"] is True and machine.read(mark(14))["complete"] is False
    for seq in range(12, 18):
        machine.kept(seq, {13: last, 14: XID % ("1b", 79)}.get(seq))
    found = machine.read(mark(11))
    assert (found["complete"], codes(found)) == (True, [43, 79]), "what is in the ring too counts once"


def test_the_journal_stands_in_where_the_log_cannot_be_read(machine):
    for seq in range(0, 9):
        machine.kept(seq, XID % ("1b", seq) if seq in (3, 6) else None)
    found = machine.read(mark(4))
    assert (found["source"], found["complete"], codes(found)) == ("journal", True, [6])
    assert found["position"] == {"boot_id": BOOT, "seq": None, "monotonic_us": 8000}
    assert codes(machine.read()) == [3, 6] and machine.read()["complete"] is True
    assert codes(machine.read({"boot_id": BOOT, "seq": None, "monotonic_us": 5000})) == [6]
    assert machine.read({"boot_id": BOOT, "seq": 4})["complete"] is None, "sequence numbers cannot be compared"
    machine.sync_rc = 1
    found = machine.read(mark(4))
    assert (found["complete"], codes(found)) == (None, [6]) and "does not answer" in found["problem"]
    del machine.entries[:3]
    machine.sync_rc = 0
    assert (
        machine.read(mark(4))["complete"] is True
        and machine.read()["complete"] is False
        and machine.read(mark(2))["complete"] is False
    )


def test_a_watermark_from_the_journal_fits_the_ring(machine):
    machine.ring(20, 29, r25=XID % ("1b", 79), r22=XID % ("1b", 13))
    found = machine.read({"boot_id": BOOT, "seq": None, "monotonic_us": 23000})
    assert (found["complete"], codes(found)) == (True, [79])
    assert machine.read({"boot_id": BOOT, "seq": None, "monotonic_us": 19000})["complete"] is False


def test_nothing_readable_is_not_known(machine):
    found = machine.read(mark(4))
    assert (found["source"], found["complete"], found["events"], found["position"]) == ("none", None, [], None)
    assert "does not exist" in found["problem"] and "root" in found["problem"]


def test_no_permission_is_not_known(machine, monkeypatch):
    machine.ring(0, 3)

    def refuse(path, flags):
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    monkeypatch.setattr(kmsg.os, "open", refuse)
    found = machine.read()
    assert found["complete"] is None and "Operation not permitted" in found["problem"]


@pytest.mark.parametrize("kind", ["fifo", "empty", "directory", "text"])
def test_what_is_no_kernel_log_is_not_known(machine, kind):
    path = machine.path / "dev" / "kmsg"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_text("" if kind == "empty" else "hello\nworld\n")
    found = machine.read()
    assert (found["source"], found["complete"]) == ("none", None) and str(path) in found["problem"]


def test_a_damaged_record_makes_the_rest_uncertain(machine):
    machine.kmsg(record(0, FIRST), "no record at all\n", record(1, XID % ("1b", 79)))
    found = machine.read()
    assert found["complete"] is None and codes(found) == [79] and "no records" in found["problem"]


def test_no_boot_id_is_not_known(machine):
    machine.ring(0, 3, r2=XID % ("1b", 79))
    machine.boot("")
    found = machine.read(mark(1))
    assert found["complete"] is None and codes(found) == [79]


@pytest.mark.parametrize(
    "watermark",
    [
        "x",
        [],
        {},
        {"boot_id": 5},
        {"boot_id": BOOT},
        {"boot_id": BOOT, "seq": "4", "monotonic_us": None},
        {"boot_id": BOOT, "seq": -1},
    ],
)
def test_a_watermark_that_is_none_lets_everything_count_and_is_not_complete(machine, watermark):
    machine.ring(0, 3, r2=XID % ("1b", 79))
    found = machine.read(watermark)
    assert found["complete"] is None and codes(found) == [79] and "watermark" in found["problem"]


def test_another_log_under_the_same_boot_is_noticed(machine):
    machine.ring(0, 9, r3=XID % ("1b", 79))
    found = machine.read(mark(6, us=100))
    assert found["complete"] is None and codes(found) == [79] and "another log" in found["problem"]


def test_escaped_bytes_dictionaries_and_lines_in_records(machine):
    text = (
        "NVRM: The NVIDIA GPU 0000:1b:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding"
    )
    machine.kmsg(
        record(0, FIRST),
        " SUBSYSTEM=pci\n",
        " DEVICE=+pci:0000:1b:00.0\n",
        record(1, text, flags="-,caller=T77"),
        record(2, "NVRM: loading é\\ "),
    )
    found = machine.read()
    assert found["complete"] is True
    assert [(event["kind"], event["pci"]) for event in found["events"]] == [("fallen_off", "0000:1b:00.0")]
    assert found["tail"][-1] == "NVRM: loading é\\ " and len(found["tail"]) == 4


def test_the_fragments_of_a_line_are_one_line(machine):
    machine.kmsg(
        record(0, FIRST),
        record(1, "NVRM: Xid (PCI:0000:1b:00): 79", 5, flags="c"),
        record(2, ", pid=12, GPU has", 6, flags="+"),
        record(3, " fallen off the bus.", 7, flags="+"),
        record(4, "other", 8),
    )
    found = machine.read()
    assert [(event["kind"], event["xid"], event["pid"], event["text"][-8:]) for event in found["events"]] == [
        ("xid", 79, 12, "the bus.")
    ]
    assert found["complete"] is True and found["position"]["seq"] == 4
    # What another process wrote in between is not part of it, and neither is a new message with the flag.
    machine.kmsg(
        record(0, FIRST),
        record(1, "NVRM: Xid (PCI:0000:1b:00): 79, ", 5, flags="c,caller=T1"),
        record(2, "GPU", 6, flags="c,caller=T2"),
        record(3, XID % ("1c", 48), 7, flags="c,caller=T1"),
    )
    assert codes(machine.read()) == [79, 48]
    for flags in ("c", "+"):
        machine.kmsg(record(0, FIRST), record(1, "usb", 5), record(2, XID % ("1c", 48), 7, flags=flags))
        assert codes(machine.read()) == [48]


def test_the_driver_of_a_line_is_the_loaded_one_only_if_no_other_was_loaded_since(machine):
    nvlink = "NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x0)"
    machine.module("575.57.08")
    machine.ring(0, 5, r3=nvlink)
    found = machine.read(mark(1))
    assert (
        found["events"][0]["driver"] == "575.57.08"
        and found["events"][0]["nvlink5"]["layouts"] == [2]
        and found["events"][0]["nvlink5"]["units"] == [70]
    )
    machine.ring(0, 5, r3=nvlink, r4="NVRM: loading NVIDIA UNIX x86_64 Kernel Module  575.57.08  Fri")
    found = machine.read(mark(1))
    assert "driver" not in found["events"][0] and found["events"][0]["nvlink5"]["layouts"] == [1, 2]
    # The line that says which driver was loaded may lie before the watermark.
    machine.ring(0, 5, r1="NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15  Fri", r3=nvlink)
    assert machine.read(mark(2))["events"][0]["nvlink5"]["layouts"] == [1]


def test_a_flood_is_counted_and_not_kept(machine):
    machine.kmsg(record(0, FIRST), *[record(seq, XID % ("1b", 31)) for seq in range(1, 501)])
    found = machine.read()
    assert [event["seq"] for event in found["events"]] == [*range(1, kernel_log.MAX_ALIKE + 1), 500] and found[
        "complete"
    ] is True
    assert found["suppressed"] == [
        {"kind": "xid", "pci": "0000:1b:00.0", "code": 31, "count": 500 - kernel_log.MAX_ALIKE - 1, "last_us": 500000}
    ]
    assert found["counted"] == {"events": kernel_log.MAX_ALIKE + 1, "suppressed": 1}
    machine.kmsg(record(0, FIRST), *[record(seq, XID % ("1b", seq)) for seq in range(1, 1200)])
    found = machine.read()
    assert found["complete"] is None and "different events" in found["problem"]
    assert len(json.dumps(found)) < 500000
    assert codes(found) == [*range(1, kernel_log.MAX_EVENTS + 1), *range(1200 - kernel_log.LAST_EVENTS, 1200)], (
        "how it began, and how it ended"
    )


def test_a_client_with_versions_of_its_own_making_hides_nothing(machine):
    """A process tells the driver its version itself (NV_ESC_CHECK_VERSION_STR)."""
    text = "NVRM: API mismatch: the client has the version %d.1, but this kernel module has the version 580.95."
    texts = [text % number for number in range(100, 999)] * 2 + [XID % ("1b", number) for number in range(1, 900)]
    machine.kmsg(record(0, FIRST), *[record(seq, one) for seq, one in enumerate(texts, 1)])
    found = machine.read()
    assert found["complete"] is True and codes(found) == list(range(1, 900))
    assert len([event for event in found["events"] if event["kind"] == "api_mismatch"]) <= 300


def test_of_what_comes_again_and_again_every_burst_is_kept(machine):
    """Whether it came more often than the policy allows is the verdict's to say."""
    bursts = [
        record(1 + 10 * burst + line, XID % ("1b", 63), 1000 + 2 * burst * kernel_log.BURST_US + line)
        for burst in range(50)
        for line in range(10)
    ]
    machine.kmsg(record(0, FIRST), *bursts)
    found = machine.read(clock=lambda: 40000.0)
    begun = {event["monotonic_us"] // (2 * kernel_log.BURST_US) for event in found["events"]}
    assert begun == set(range(50)) and len(found["events"]) <= kernel_log.MAX_ALIKE + 50


def test_bursts_of_very_many_kinds_are_bounded_and_of_each_kind_the_first_and_the_last_are_kept(machine):
    kinds, bursts = 200, 60
    machine.kmsg(
        record(0, FIRST),
        *[
            record(1 + burst * kinds + kind, XID % ("1b", 1000 + kind), 1000 + 2 * burst * kernel_log.BURST_US + kind)
            for burst in range(bursts)
            for kind in range(kinds)
        ],
    )
    found = machine.read(clock=lambda: 40000.0)
    assert (
        len(found["events"]) + sum(each["count"] for each in found["suppressed"]) == kinds * bursts
        and found["complete"] is True
    )
    assert kernel_log.MOST_EVENTS <= len(found["events"]) <= kernel_log.MOST_EVENTS + kinds
    assert (
        {event["xid"] for event in found["events"][:kinds]}
        == {event["xid"] for event in found["events"][-kinds:]}
        == set(range(1000, 1000 + kinds))
    )
    # What comes for the first time when there is no more room is kept all the same.
    machine.kmsg(record(kinds * bursts + 1, XID % ("1b", 79), 39000 * 10**6))
    assert codes(machine.read(clock=lambda: 40000.0))[-1] == 79


FEW = {"MAX_ALIKE": 3, "MAX_BURSTS": 5, "MAX_EVENTS": 40, "MOST_EVENTS": 60, "LAST_EVENTS": 4}
STATES = {0: "None", 1: "GPU Reset Required", 2: "Node Reboot Required"}


def changed(before, now, gpu="1b"):
    return "NVRM: Xid (PCI:0000:%s:00): 154, GPU recovery action changed from 0x%x (%s) to 0x%x (%s)" % (
        gpu,
        before,
        STATES[before],
        now,
        STATES[now],
    )


def test_the_last_state_is_kept_however_often_it_changed(monkeypatch):
    hypothesis = pytest.importorskip(
        "hypothesis", reason="ansible-test's environment has no hypothesis; plain pytest runs these"
    )
    st = hypothesis.strategies
    # Small caps: hypothesis seldom makes lists that are long enough for those in use.
    for name, value in FEW.items():
        monkeypatch.setattr(kernel_log, name, value)

    @hypothesis.given(st.lists(st.sampled_from(sorted(STATES)), min_size=1, max_size=300), st.integers(0, 90))
    def holds(states, seconds):
        with tempfile.TemporaryDirectory() as directory:
            machine = Machine(pathlib.Path(directory))
            lines = [record(0, FIRST)]
            for number, (before, now) in enumerate(zip([0] + states, states), 1):
                lines.append(record(number, changed(before, now), 1000 + number * seconds * 1000000))
            machine.kmsg(*lines)
            found = machine.read(clock=lambda: 40000.0)
        assert found["complete"] is True and found["events"][-1]["seq"] == len(states)
        assert found["events"][-1]["recovery"]["to"] == states[-1]
        assert [event["seq"] for event in found["events"]] == sorted(event["seq"] for event in found["events"])
        assert len(found["events"]) + sum(entry["count"] for entry in found["suppressed"]) == len(states)

    holds()


TRACE = ("BUG: unable to handle page fault", "Call Trace:", " other_function+0x1/0x2 [%s]", "---[ end trace 0 ]---")


@pytest.mark.parametrize("others", [0, kernel_log.MAX_ALIKE, 3 * kernel_log.MAX_ALIKE])
@pytest.mark.parametrize("ends", [True, False])
def test_a_hang_of_the_driver_is_seen_behind_those_of_others(machine, others, ends):
    lines = [line for dummy in range(others) for line in (TRACE[0], TRACE[1], TRACE[2] % "mlx5_core", TRACE[3])]
    lines += [TRACE[0], TRACE[1], TRACE[2] % "mlx5_core", TRACE[2] % "nvidia"] + ([TRACE[3]] if ends else [])
    lines += [TRACE[0], TRACE[1], TRACE[2] % "mlx5_core", TRACE[3]] if ends else []
    machine.kmsg(record(0, FIRST), *[record(seq, line) for seq, line in enumerate(lines, 1)])
    found = machine.read()
    assert [event["seq"] for event in found["events"] if event["kind"] == "oops"] == [4 * others + 1]
    assert {event["kind"] for event in found["events"]} == ({"oops", "oops_elsewhere"} if others or ends else {"oops"})
    assert [event["seq"] for event in found["events"]] == sorted(event["seq"] for event in found["events"])


OURS, THEIRS = "nvidia", "mlx5_core"


def written(segments):
    """The records of SEGMENTS, and what each event in them is: (seq, what a verdict sees of it), in their order."""
    lines, events, states, now_us = [record(0, FIRST)], [], {}, 0
    for kind, value, gpu, times, seconds in segments:
        for turn in range(times):
            now_us += 1000 + seconds * 1000000
            before = states.get(gpu, 0)
            if kind == "trace":
                texts, what = TRACE[:2] + (TRACE[2] % THEIRS, TRACE[2] % value, TRACE[3]), (kind, value)
            elif kind == "state":
                states[gpu] = (value + turn) % len(STATES)
                texts, what = (changed(before, states[gpu], gpu),), (kind, gpu, states[gpu])
            else:
                texts, what = (XID % (gpu, value),), (kind, gpu, value)
            events.append((len(lines), what))
            lines += [record(len(lines) + number, text, now_us + number) for number, text in enumerate(texts)]
    return lines, events


def test_what_names_the_driver_and_the_last_state_are_kept_in_long_mixed_logs(monkeypatch):
    """Whatever else the log is full of. With more different events than are kept it does not count as complete."""
    hypothesis = pytest.importorskip(
        "hypothesis", reason="ansible-test's environment has no hypothesis; plain pytest runs these"
    )
    st = hypothesis.strategies
    for name, value in FEW.items():  # small caps, so that short logs reach each of them
        monkeypatch.setattr(kernel_log, name, value)
    gpus, times, seconds = st.sampled_from(["1b", "43"]), st.integers(1, 12), st.sampled_from([0, 1, 90])
    segment = st.one_of(
        st.tuples(st.just("trace"), st.sampled_from([OURS, THEIRS]), gpus, times, seconds),
        st.tuples(st.just("state"), st.sampled_from(sorted(STATES)), gpus, times, seconds),
        st.tuples(st.just("xid"), st.integers(1000, 1060), gpus, times, seconds),
    )
    # So many different codes that the caps on all events are reached before the other segments are read.
    floods = st.integers(0, 50).map(lambda number: [("xid", 2000 + code, "1b", 4, 0) for code in range(number)])

    @hypothesis.given(floods, st.lists(segment, max_size=40))
    def holds(flood, segments):
        lines, events = written(flood + segments)
        with tempfile.TemporaryDirectory() as directory:
            machine = Machine(pathlib.Path(directory))
            machine.kmsg(*lines)
            found = machine.read(clock=lambda: 100000.0)
        kept = [event["seq"] for event in found["events"]]
        assert kept == sorted(set(kept)) and set(kept) <= {seq for seq, dummy in events}
        if events:
            assert kept[-1] == events[-1][0]
        if len({what for dummy, what in events}) > FEW["MAX_EVENTS"]:
            assert found["complete"] is None and found["problem"]
        else:
            assert found["complete"] is True
            assert len(kept) + sum(entry["count"] for entry in found["suppressed"]) == len(events)
        ours = [seq for seq, what in events if what == ("trace", OURS)]
        seen = [event["seq"] for event in found["events"] if event["kind"] == "oops"]
        assert set(seen) <= set(ours) and seen[-1:] == ours[-1:] and (found["complete"] is None or seen[:1] == ours[:1])
        for gpu in ("1b", "43"):
            last = [(seq, what[2]) for seq, what in events if what[:2] == ("state", gpu)][-1:]
            told = [
                (event["seq"], event["recovery"]["to"])
                for event in found["events"]
                if event.get("recovery") and event["pci"] == "0000:%s:00.0" % gpu
            ][-1:]
            assert told == last

    holds()


@pytest.mark.parametrize("moment, counts", [(5000, False), (5001, True), (10**9, True), (10**15, True)])
@pytest.mark.parametrize("seq", [4, None])
def test_a_watermark_in_the_future_hides_nothing(machine, seq, moment, counts):
    machine.ring(0, 5, r3=XID % ("1b", 79))
    found = machine.read({"boot_id": BOOT, "seq": seq, "monotonic_us": moment}, clock=lambda: 1000.0)
    assert codes(found) == ([79] if counts else []) and (found["complete"] is None) == counts
    assert bool(found["problem"]) == counts


@pytest.mark.parametrize("moment, counts", [(5000, False), (10**12, True)])
def test_nor_does_one_where_the_journal_stands_in_for_the_ring(machine, moment, counts):
    """A journal has no newest time to compare it with, only the time of reading."""
    for seq in range(0, 6):
        machine.kept(seq, XID % ("1b", 79) if seq == 3 else None)
    found = machine.read({"boot_id": BOOT, "seq": None, "monotonic_us": moment}, clock=lambda: 1000.0)
    assert found["source"] == "journal" and codes(found) == ([79] if counts else [])
    assert (found["complete"] is None) == counts and ("watermark" in found["problem"]) == counts


def test_an_xid_154_that_flaps_ends_in_what_the_driver_asked_for_last(machine):
    """More often than is kept of what is alike."""
    turns = 3 * kernel_log.MAX_ALIKE
    lines = [changed(*((0, 1) if turn % 2 else (1, 0))) for turn in range(2 * turns)]
    machine.kmsg(record(0, FIRST), *[record(seq, line) for seq, line in enumerate(lines, 1)])
    found = machine.read()
    assert len(found["events"]) < len(lines)
    last = found["events"][-1]
    assert (last["seq"], last["recovery"]["to"], last["recovery"]["to_text"]) == (len(lines), 1, STATES[1])


def test_what_differs_for_a_verdict_is_never_left_out(machine):
    changes = [
        "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    ] * 50
    changes.append(
        "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (Node "
        "Reboot Required)"
    )
    machine.kmsg(record(0, FIRST), *[record(seq, text) for seq, text in enumerate(changes, 1)])
    assert machine.read()["events"][-1]["recovery"]["to"] == 2


def test_records_that_processes_wrote_are_no_events(machine):
    texts = [XID % ("1b", 79), "BUG: unable to handle page fault", "I/O error, dev sda, sector 1"]
    machine.kmsg(record(0, FIRST), *[record(seq, text, prefix=12) for seq, text in enumerate(texts, 1)])
    found = machine.read()
    assert (found["events"], found["complete"]) == ([], True)
    assert found["tail"] == [], "the evidence has the kernel's own words alone"


def test_processes_end_no_report_of_the_kernel_and_add_nothing_to_it(machine):
    machine.kmsg(
        record(0, FIRST),
        record(1, "BUG: unable to handle page fault"),
        record(2, "---[ end trace 0 ]---", prefix=12),
        record(3, " f+0x1/0x2 [nvidia]", prefix=12),
    )
    assert [event["kind"] for event in machine.read()["events"]] == ["oops_elsewhere"]
    machine.kmsg(
        record(0, FIRST),
        record(1, "BUG: unable to handle page fault"),
        record(2, "---[ end trace 0 ]---", prefix=12),
        record(3, " f+0x1/0x2 [nvidia]"),
    )
    assert [event["kind"] for event in machine.read()["events"]] == ["oops"]


def test_the_tail_and_the_evidence(machine):
    machine.ring(0, 9, r3=XID % ("1b", 79), r4="Command line: nvidia.x=1 secret", r5="nvidia-nvlink: up")
    assert machine.read(mark(8), lines=1)["tail"] == ["nvidia-nvlink: up"]
    said = kernel_log.evidence(str(machine.path), machine, 2)
    assert said == {
        "source": "kmsg",
        "lines": ["[    0.003000] " + XID % ("1b", 79), "[    0.005000] nvidia-nvlink: up"],
        "recent": ["[    0.008000] message 8", "[    0.009000] message 9"],
        "withheld": 1,
        "problem": "",
    }


def test_an_unfinished_line_is_not_there_yet(machine):
    machine.kmsg(record(0, FIRST), record(1, XID % ("1b", 79))[:-20])
    assert machine.read()["events"] == [] and machine.read()["complete"] is True


class Device:
    """What a read of /dev/kmsg answers, one after the other."""

    def __init__(self, answers):
        self.answers = list(answers)

    def __call__(self, descriptor, size):
        answer = self.answers.pop(0) if self.answers else BlockingIOError(errno.EAGAIN, "again")
        if isinstance(answer, Exception):
            raise answer
        assert len(answer) <= size
        return answer


def device(monkeypatch, *answers, **change):
    monkeypatch.setattr(kmsg.os, "read", Device(answers))
    return kmsg._device(0, "/dev/kmsg", change.get("clock", lambda: 0), 10)


def test_the_device_is_read_to_its_end_over_records_that_were_overwritten(monkeypatch):
    ring = device(
        monkeypatch,
        record(5, "a").encode(),
        OSError(errno.EPIPE, "Broken pipe"),
        (record(9, "b") + " SUBSYSTEM=x\n").encode(),
    )
    assert [(entry.seq, entry.text) for entry in ring.records] == [(5, "a"), (9, "b")] and ring.state == "ok"
    assert [(gap.start_us, gap.following.seq) for gap in kernel_log._gaps(ring.records, 4, 4000)] == [(5000, 9)]


def test_the_device_is_left_alone_after_a_while_or_when_it_breaks(monkeypatch):
    ticks = iter(range(100))
    ring = device(monkeypatch, *[record(seq, "a").encode() for seq in range(50)], clock=lambda: next(ticks))
    assert ring.state == "cut" and 5 < len(ring.records) < 15
    monkeypatch.setattr(kmsg, "MAX_RECORDS", 3)
    assert device(monkeypatch, *[record(seq, "a").encode() for seq in range(50)]).state == "cut"
    monkeypatch.undo()
    assert device(monkeypatch, record(1, "a").encode(), OSError(errno.EINVAL, "Invalid argument")).state == "damaged"
    assert device(monkeypatch, b"nonsense").state == "foreign"
    assert device(monkeypatch, b"nonsense", record(1, "a").encode()).state == "damaged"
    with pytest.raises(OSError):
        device(monkeypatch, OSError(errno.EIO, "I/O error"))


def test_a_log_that_was_not_read_to_its_end_is_not_complete(machine, monkeypatch):
    machine.ring(0, 9, r3=XID % ("1b", 79))
    monkeypatch.setattr(
        kmsg, "_file", lambda descriptor, path: kmsg.Ring([kmsg.parse(record(0, FIRST).encode())], "cut", "it goes on")
    )
    found = machine.read(mark(0))
    assert found["complete"] is None and "goes on" in found["problem"]


def test_a_huge_file_is_read_from_its_end_only(machine, monkeypatch):
    machine.ring(0, 999, r990=XID % ("1b", 79))
    monkeypatch.setattr(kmsg, "MAX_BYTES", 2000)
    found = machine.read(mark(980))
    assert codes(found) == [79] and found["complete"] is True
    assert machine.read(mark(5))["complete"] is False


def test_entries_of_the_journal():
    plain = BOOT.replace("-", "")
    good = {
        "MESSAGE": "a",
        "_TRANSPORT": "kernel",
        "_BOOT_ID": plain,
        "_SOURCE_MONOTONIC_TIMESTAMP": "5",
        "SYSLOG_FACILITY": "0",
    }
    assert journal.parse_entry(json.dumps(good), plain) == kmsg.Record(None, 5, 0, "-", "a")
    assert journal.parse_entry(json.dumps(dict(good, MESSAGE=[78, 86, 10, 255])), plain).text == "NV\n\ufffd"
    for change in (
        {"MESSAGE": None},
        {"MESSAGE": [999]},
        {"_SOURCE_MONOTONIC_TIMESTAMP": None},
        {"_SOURCE_MONOTONIC_TIMESTAMP": "1" * 30},
        {"SYSLOG_FACILITY": "x"},
    ):
        assert journal.parse_entry(json.dumps(dict(good, **change)), plain) is None, change
    for line in ("", "[]", "5", "{", "[" * 100000):
        assert journal.parse_entry(line, plain) is None
    assert journal.parse_entry(json.dumps(dict(good, _BOOT_ID=OTHER)), plain) is False
    assert journal.parse_entry(json.dumps(good), "") is False


def test_arbitrary_bytes_never_raise(machine):
    hypothesis = pytest.importorskip(
        "hypothesis", reason="ansible-test's environment has no hypothesis; plain pytest runs these"
    )
    st = hypothesis.strategies
    line = st.binary(max_size=60) | st.builds(
        lambda prefix, seq, us, flags, text: b"%d,%d,%d,%s;%s\n" % (prefix, seq, us, flags, text),
        st.integers(0, 200),
        st.integers(0, 30),
        st.integers(0, 10**6),
        st.sampled_from([b"-", b"c", b"+", b"-,caller=T1"]),
        st.sampled_from([b"x", (XID % ("1b", 79)).encode(), b"\\x0a\\xff\\xz", b"Call Trace:"])
        | st.binary(max_size=20),
    )
    whole = st.none() | st.integers(-1, 40)
    watermarks = st.none() | st.fixed_dictionaries(
        {"boot_id": st.sampled_from([BOOT, OTHER]), "seq": whole, "monotonic_us": whole}
    )
    entries = st.lists(
        st.text(max_size=20)
        | st.builds(
            lambda us, text: json.dumps(
                {
                    "MESSAGE": text,
                    "_TRANSPORT": "kernel",
                    "_BOOT_ID": BOOT.replace("-", ""),
                    "_SOURCE_MONOTONIC_TIMESTAMP": us,
                }
            ),
            st.integers(0, 99).map(str),
            st.text(max_size=9),
        ),
        max_size=4,
    )

    @hypothesis.given(st.lists(line, max_size=8), watermarks, entries)
    def holds(lines, watermark, kept):
        (machine.path / "dev" / "kmsg").write_bytes(b"".join(lines))
        machine.entries = kept
        found = machine.read(watermark)
        json.dumps(found)
        assert found["complete"] in (True, False, None) and found["counted"]["events"] == len(found["events"])
        assert found["complete"] is True or found["problem"]

    holds()


def test_this_machines_own_log():
    """What the kernel of this machine has; no test machine need have one, so what is asked is only that the answer is
    honest.
    """
    first = kernel_log.read()
    assert first["complete"] in (True, False, None) and (first["complete"] is True or first["problem"])
    if first["source"] == "kmsg":
        again = kernel_log.read(watermark=first["position"])
        assert again["position"]["seq"] >= first["position"]["seq"]
        assert again["complete"] is True, again["problem"]
