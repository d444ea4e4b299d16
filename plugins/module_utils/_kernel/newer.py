# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The XIDs and SXids that were logged since a position, for who asks every minute: older records are not parsed again.

As long as the kernel's ring holds all records since the position they are all that is looked at. Where it does not, the
whole log is read.
"""

from __future__ import annotations

import time

from .._node import files, identity
from . import kernel_lines, kernel_log, kmsg

# Records before the position that are looked at too: an SXid has lines that belong to its first.
BEFORE = 64
KINDS = ("xid", "sxid")


def read(root, runner, position, clock=time.monotonic) -> dict | str:
    """``{"boot_id", "position", "complete", "events", "suppressed", "gpus"}``, as kernel_log answers them."""
    boot_id = identity.read_boot_id(root)
    seq = position.get("seq") if position and position.get("boot_id") == boot_id else None
    if boot_id is not None and seq is not None:
        ring = kmsg.read(files.under(root, "/dev/kmsg"), clock)
        if has_all_since(ring, position):
            return _since(ring.records, boot_id, position)
    return kernel_log.read(root, runner, position, clock, lines=0)


def has_all_since(ring, position) -> bool:
    """Return whether RING holds all records since POSITION, and is the log that it was taken of."""
    if (
        ring.state != "ok"
        or not ring.records
        or ring.records[0].seq > position["seq"] + 1
        or ring.records[-1].seq < position["seq"]
    ):
        return False
    if any(record.seq == position["seq"] and record.monotonic_us > position["monotonic_us"] for record in ring.records):
        return False
    after = [record.seq for record in ring.records if record.seq > position["seq"]]
    return after == list(range(position["seq"] + 1, position["seq"] + 1 + len(after)))


def _since(records, boot_id, position) -> dict:
    first = max(
        0,
        next((number for number, record in enumerate(records) if record.seq > position["seq"]), len(records)) - BEFORE,
    )
    scanner = kernel_lines.Scanner()
    events = []
    for record in kmsg.join_records(records[first:]):
        for event in scanner.feed(record.text, record.monotonic_us) if record.facility == 0 else ():
            if event["kind"] in KINDS and record.seq > position["seq"]:
                events.append(dict(event, seq=record.seq, monotonic_us=record.monotonic_us))
    newest = max([position["monotonic_us"]] + [record.monotonic_us for record in records])
    return {
        "boot_id": boot_id,
        "position": {"boot_id": boot_id, "seq": records[-1].seq, "monotonic_us": newest},
        "complete": True,
        "events": events,
        "suppressed": [],
        "gpus": scanner.uuids,
    }
