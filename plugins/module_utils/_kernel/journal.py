# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's messages of this boot as systemd-journald kept them.

journald reads /dev/kmsg and keeps the kernel's own time of each message. It does not keep the kernel's sequence
numbers. What it could not read in time it says (``Missed N kernel messages``), and what it has thrown away is missing
at the beginning: so what it holds between two messages is all there was, if it holds messages before and after and says
nothing of the kind.
"""

from __future__ import annotations

import collections
import json

from .kmsg import Record

MISSED = "e9bf28e6e834481bb6f48f548ad13606"
FIELDS = "MESSAGE,MESSAGE_ID,SYSLOG_FACILITY,SYSLOG_IDENTIFIER,_SOURCE_MONOTONIC_TIMESTAMP,_TRANSPORT,_BOOT_ID"
MAX_ENTRIES = 100000
TIMEOUT_S = 30

# records: as of kmsg, without seq. missed: when journald said that it missed messages (its clock). problem: why there
# is nothing, or "".
Journal = collections.namedtuple("Journal", ["records", "missed", "problem"])

COMMAND = [
    "journalctl",
    "-k",
    "-b",
    "-o",
    "json",
    "-a",
    "-q",
    "--no-pager",
    "-n",
    str(MAX_ENTRIES),
    "--output-fields=" + FIELDS,
]
# Messages of journald itself are not of the kernel, so -k alone hides that it missed some. Any program may log with
# this id; the transport "driver" is of journald's own messages alone (systemd.journal-fields(7)).
COMMAND_MISSED = [
    "journalctl",
    "-b",
    "-o",
    "json",
    "-a",
    "-q",
    "--no-pager",
    "-n",
    "1000",
    "--output-fields=MESSAGE_ID,_BOOT_ID",
    "_TRANSPORT=driver",
    "MESSAGE_ID=" + MISSED,
]
COMMAND_SYNC = ["journalctl", "--sync"]


def read(runner, boot_id):
    rc, out, err = runner(COMMAND, TIMEOUT_S)
    if rc != 0:
        return Journal([], [], "journalctl answered %s: %s" % (rc, (err.strip().splitlines() or ["nothing"])[-1][:200]))
    plain = (boot_id or "").replace("-", "")
    records = []
    strange = 0
    for line in out.splitlines():
        record = parse_entry(line, plain)
        if record is None:
            strange += 1
        elif record:
            records.append(record)
    rc, out, err = runner(COMMAND_MISSED, TIMEOUT_S)
    # Without a match journalctl may answer 1 and nothing; any other answer without output is no answer.
    if rc not in (0, 1) or rc == 1 and (out.strip() or err.strip()):
        return Journal([], [], "journalctl cannot say whether it missed messages of the kernel: it answered %s" % (rc,))
    missed = [moment for moment in (_moment(line, plain) for line in out.splitlines()) if moment is not None]
    records.sort(key=lambda record: record.monotonic_us)
    problem = "" if records else "the journal has no message of the kernel of this boot"
    if strange:
        problem = "%d entries of the journal cannot be understood" % (strange,)
    return Journal(records, missed, problem)


def _object(line) -> dict | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _same_boot(found, plain) -> bool:
    return bool(plain) and str(found.get("_BOOT_ID", "")).replace("-", "") == plain


def parse_entry(line, plain) -> Record | bool | None:
    """A record; False for an entry that is none of the kernel's in this boot; None for one that cannot be
    understood.
    """
    found = _object(line)
    if found is None:
        return None
    if not _same_boot(found, plain) or found.get("_TRANSPORT") != "kernel":
        return False
    moment, facility = _whole(found.get("_SOURCE_MONOTONIC_TIMESTAMP")), _whole(found.get("SYSLOG_FACILITY", "0"))
    message = found.get("MESSAGE")
    if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in message):
        message = bytes(message).decode("utf-8", "replace")
    if moment is None or facility is None or not isinstance(message, str):
        return None
    return Record(None, moment, facility, "-", message)


def _moment(line, plain) -> float | None:
    found = _object(line)
    if found is None or not _same_boot(found, plain):
        # It may be of this boot: believed to be, at a time that spoils every bridge.
        return float("inf") if found is None else None
    moment = _whole(found.get("__MONOTONIC_TIMESTAMP"))
    return float("inf") if moment is None else moment


def _whole(value) -> int | None:
    text = value[0] if isinstance(value, list) and value else value
    return int(text) if isinstance(text, str) and text.isdigit() and len(text) < 19 else None


def reaches_back(journal, start_us) -> bool:
    """Return whether the journal holds all of the kernel's messages since START_US (None: since the kernel started)
    that journald ever saw.
    """
    kernel = [record for record in journal.records if record.facility == 0]
    if not kernel or journal.problem:
        return False
    if start_us is None:
        if not kernel[0].text.startswith("Linux version "):
            return False
    elif kernel[0].monotonic_us > start_us:
        return False
    # The two clocks run apart by a few parts in a million, so a message of journald shortly before the start counts
    # too.
    return not any(start_us is None or moment * 1.0005 + 5000000 > start_us for moment in journal.missed)


def has_record(journal, record) -> bool:
    """Return whether RECORD of the ring is in the journal too."""
    return any(
        known.monotonic_us == record.monotonic_us and known.text.strip() == record.text.strip()
        for known in journal.records
    )


def is_alive(runner) -> bool:
    """Return whether journald answers, so that what it holds is of now. Needs root."""
    return runner(COMMAND_SYNC, TIMEOUT_S)[0] == 0
