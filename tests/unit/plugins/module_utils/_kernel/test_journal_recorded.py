# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal as a real systemd-journald answers it, beside the real ring that it was read from.

journald was started long after the boot, so it truly missed messages and says so. The machine had no GPU: the messages
are those of a bridge, and one of a process with bytes that are no text.
"""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import journal, kernel_log, kmsg

from .. import recordings

pytestmark = pytest.mark.pythons

RECORDED = json.loads(recordings.recorded("journal/systemd-252.json"))
BOOT = RECORDED["boot_id"]
RING = [kmsg.parse(line.encode()) for line in RECORDED["kmsg"]]
# journald was running from here on, by more than the clocks may differ.
WATCHED = next(
    number for number, record in enumerate(RING) if record.text == "probe0: port 1(probe1) entered blocking state"
)


def moment_after_all():
    """When the log is read: after all that was recorded, whatever the clock of this machine says."""
    return 10.0**7


def answer(argv, timeout=60):
    if argv == journal.COMMAND:
        return 0, "".join(line + "\n" for line in RECORDED["journal"]), ""
    if argv == journal.COMMAND_MISSED:
        return 0, "".join(line + "\n" for line in RECORDED["missed"]), ""
    assert argv == journal.COMMAND_SYNC, argv
    return 0, "", ""


@pytest.fixture
def root(tmp_path):
    recordings.write(tmp_path, "/proc/sys/kernel/random/boot_id", BOOT + "\n")

    def ring(first):
        """The ring when it begins with the record FIRST of the recording; None is a machine that does not let it be
        read.
        """
        if first is not None:
            recordings.write(tmp_path, "/dev/kmsg", "".join(line + "\n" for line in RECORDED["kmsg"][first:]))
        return str(tmp_path)

    return ring


def mark(number):
    return {"boot_id": BOOT, "seq": RING[number].seq, "monotonic_us": RING[number].monotonic_us}


def test_every_entry_is_understood_and_is_the_record_of_the_ring():
    found = journal.read(answer, BOOT)
    assert found.problem == "" and len(found.records) == len(RECORDED["journal"]) > 20
    assert len(found.missed) == 1 and RING[0].monotonic_us < found.missed[0] < RING[WATCHED].monotonic_us
    ring = dict((record.monotonic_us, record) for record in RING)
    for record in found.records:
        known = ring[record.monotonic_us]
        assert record.facility == known.facility
        assert known.text.endswith(record.text.strip()), "journald takes the name of a process out of its message"
        if record.facility == 0:
            assert (record.text, journal.has_record(found, known)) == (known.text, True), (
                "and leaves those of the kernel as they are"
            )
    odd = [record.text for record in found.records if "\ufffd" in record.text]
    assert odd == ["a line of a process, with bytes: \ufffd \u00e9 \t end"], (
        "bytes that are no text come as a list of numbers"
    )


def test_the_journal_bridges_a_ring_that_was_overwritten(root):
    later = WATCHED + 10
    assert RING[later].facility == 0
    found = kernel_log.read(root(later), answer, mark(WATCHED + 1), clock=moment_after_all)
    assert (found["source"], found["complete"], found["problem"]) == ("kmsg", True, "")
    assert found["since_us"] == RING[WATCHED + 1].monotonic_us


def test_what_journald_says_it_missed_is_not_bridged(root):
    found = kernel_log.read(root(WATCHED + 10), answer, mark(0), clock=moment_after_all)
    assert found["complete"] is False
    assert "the journal does not hold what is gone" in found["problem"]


def test_the_journal_stands_in_for_a_ring_that_cannot_be_read(root):
    found = kernel_log.read(root(None), answer, mark(WATCHED + 1), clock=moment_after_all)
    assert (found["source"], found["complete"]) == ("journal", True)
    assert found["position"] == {"boot_id": BOOT, "seq": None, "monotonic_us": RING[-1].monotonic_us}
    assert kernel_log.read(root(None), answer, mark(0), clock=moment_after_all)["complete"] is False, (
        "it began too late"
    )
    said = kernel_log.evidence(root(None), answer, 5)
    assert (said["source"], said["lines"], len(said["recent"])) == ("journal", [], 5)
    assert said["recent"][-1].endswith("] probe0: port 1(probe1) entered disabled state"), (
        "journald's own words are not the kernel's"
    )
