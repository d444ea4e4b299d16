# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The records of /dev/kmsg, or of a regular file that holds the same records."""

from __future__ import annotations

import collections
import errno
import os
import re
import stat
import time

# The kernel needs room for a whole record with all its bytes escaped; a smaller buffer answers EINVAL.
BUFFER = 64 * 1024
MAX_BYTES = 64 * 1024 * 1024
MAX_RECORDS = 400000
LIMIT_S = 10
MAX_TEXT = 16 * 1024

HEAD = re.compile(rb"(\d{1,6}),(\d{1,18}),(\d{1,18}),([^;]{0,200});")
OF_DRIVER = ("NVRM: ", "nvidia-", "nvidia ", "nvidia:")
ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
CALLER = re.compile(r"(?:^|,)caller=([^,]+)")

# seq and monotonic_us as the kernel counts them; facility 0 is the kernel itself, anything else was written by a
# process.
Record = collections.namedtuple("Record", ["seq", "monotonic_us", "facility", "flags", "text"])
# state: ok, or why there is nothing to trust: absent, denied, foreign (no kernel log), cut (not read to its end),
# damaged.
Ring = collections.namedtuple("Ring", ["records", "state", "problem"])


def parse(data):
    """Return one record out of its bytes; None for what is none.

    Lines after the first are a dictionary that is not used here.
    """
    line = data.partition(b"\n")[0]
    head = HEAD.match(line)
    if not head:
        return None
    priority, seq, moment, flags = head.groups()
    raw = ESCAPE.sub(lambda found: bytes((int(found.group(1), 16),)), line[head.end() : head.end() + MAX_TEXT])
    return Record(
        int(seq), int(moment), int(priority) >> 3, flags.decode("ascii", "replace"), raw.decode("utf-8", "replace")
    )


def read(path, clock=time.monotonic, limit_s=LIMIT_S):
    """All that the log at PATH holds now, oldest first.

    Never waits for more and never runs on for longer than LIMIT_S.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Ring([], "absent", "%s does not exist" % (path,))
    except OSError as exc:
        state = "denied" if exc.errno in (errno.EPERM, errno.EACCES) else "foreign"
        return Ring([], state, "%s cannot be opened: %s" % (path, exc.strerror))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISCHR(mode):
            ring = _device(descriptor, path, clock, limit_s)
        elif stat.S_ISREG(mode):
            ring = _file(descriptor, path)
        else:
            return Ring([], "foreign", "%s is neither the kernel's device nor a file" % (path,))
    except OSError as exc:
        state = "denied" if exc.errno in (errno.EPERM, errno.EACCES) else "foreign"
        return Ring([], state, "%s cannot be read: %s" % (path, exc.strerror))
    finally:
        os.close(descriptor)
    if not ring.records and ring.state == "ok":
        return Ring([], "foreign", "%s holds no record, and a running kernel has written some" % (path,))
    return ring


def _device(descriptor, path, clock, limit_s):
    records = []
    size = 0
    deadline = clock() + limit_s
    strange = 0
    while True:
        if clock() > deadline or len(records) >= MAX_RECORDS or size >= MAX_BYTES:
            return Ring(
                records, "cut", "%s was not read to its end: %d records in %s s" % (path, len(records), limit_s)
            )
        try:
            data = os.read(descriptor, BUFFER)
        except BlockingIOError:
            break
        except OSError as exc:
            if exc.errno == errno.EPIPE:
                # Records were overwritten before they were read: the next read goes on with the oldest there is, and
                # the numbers tell.
                continue
            if exc.errno == errno.EINVAL:
                return Ring(records, "damaged", "%s holds a record longer than %d bytes" % (path, BUFFER))
            raise
        if not data:
            break
        size += len(data)
        record = parse(data)
        if record is None:
            strange += 1
        else:
            records.append(record)
    if strange:
        return Ring(
            records,
            "foreign" if not records else "damaged",
            "%s answered %d times with something that is no record" % (path, strange),
        )
    return Ring(records, "ok", "")


def _file(descriptor, path):
    size = os.fstat(descriptor).st_size
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        if size > MAX_BYTES:
            stream.seek(size - MAX_BYTES)
            stream.readline()
        data = stream.read(MAX_BYTES)
    # A record whose line end is not written yet is not there yet.
    lines = data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]
    records = []
    strange = 0
    for line in lines[-MAX_RECORDS:]:
        record = parse(line)
        if record is not None:
            records.append(record)
        elif line and not line.startswith(b" "):
            strange += 1
    if strange:
        return Ring(
            records, "foreign" if not records else "damaged", "%s has %d lines that are no records" % (path, strange)
        )
    return Ring(records, "ok", "")


def join_records(records) -> list:
    """The records with the fragments of a line put together again: the flags c and + say that a record goes on with an
    earlier one.

    The hint may be wrong: a record that begins like the driver's is never joined, since the driver has every line of
    its own go on with the one before (KERN_CONT in kernel-open/nvidia/os-interface.c).
    """
    result = []
    for record in records:
        flag = record.flags.partition(",")[0]
        before = result[-1] if result else None
        if (
            flag in ("c", "+")
            and before is not None
            and before.facility == record.facility
            and _follows(before, record)
            and _caller(record) == _caller(before)
            and record.monotonic_us - before.monotonic_us < 1000000
            and len(before.text) < MAX_TEXT
            and not record.text.startswith(OF_DRIVER)
        ):
            result[-1] = before._replace(seq=record.seq, text=before.text + record.text)
        else:
            result.append(record)
    return result


def _caller(record) -> str | None:
    found = CALLER.search(record.flags)
    return found.group(1) if found else None


def _follows(before, record) -> bool:
    return before.seq is not None and record.seq is not None and 0 < record.seq - before.seq <= 8
