# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated kernel log: /dev/kmsg as a regular file with the records that the kernel's device would answer.

A record is one line, "priority,sequence number,microseconds,-;text". A machine of the lab has no /dev/kmsg of its own,
and its /dev is made anew at each boot. There the file can only grow, so that a program that writes to the device by
name does not cut it off.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import struct
import time

from . import state

PATH = "/dev/kmsg"
ERROR, INFO = 3, 6
BAD = re.compile(
    r"Xid|failed|fallen|mismatch|rejected|disagrees|version magic|BUG:|Oops|Call Trace|already bound|No NVIDIA "
    r"GPU|requires use"
)
RECORD = re.compile(r"^(\d+),(\d+),(\d+),([^;]*);(.*)$")
# <linux/fs.h>: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_APPEND_FL
GET_FLAGS, SET_FLAGS, APPEND_ONLY = 0x80086601, 0x40086602, 0x20


def _guard(on: bool) -> None:
    """Where the file system can, in a machine: the log takes what is appended and nothing else."""
    if state.root():
        return
    with contextlib.suppress(OSError), open(state.path(PATH), "rb") as stream:
        (flags,) = struct.unpack("=I", fcntl.ioctl(stream, GET_FLAGS, b"\0" * 4))
        fcntl.ioctl(stream, SET_FLAGS, struct.pack("=I", flags | APPEND_ONLY if on else flags & ~APPEND_ONLY))


def begin() -> None:
    """An empty log: a boot."""
    target = state.path(PATH)
    if os.path.lexists(target) and not stat.S_ISREG(os.lstat(target).st_mode):
        raise state.SimError(
            "%s is no regular file: a machine whose kernel log can be read is no simulated one" % target
        )
    _guard(False)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8"):
        os.chmod(target, 0o644)
    _guard(True)


def write(text: str, level: int | None = None) -> None:
    """One record for each line of a text, written by the kernel. No level: as the words sound."""
    target = state.path(PATH)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    fresh = not os.path.exists(target)
    with open(target, "a+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        last = _last(stream.read())
        for line in text.splitlines() or [""]:
            sequence = last[0] + 1
            moment = max(last[1], int(time.monotonic() * 1000000))
            escaped = "".join(
                char if char.isprintable() and char != "\\" else "".join("\\x%02x" % byte for byte in char.encode())
                for char in line
            )
            stream.write(
                "%d,%d,%d,-;%s\n"
                % (level if level is not None else ERROR if BAD.search(line) else INFO, sequence, moment, escaped)
            )
            last = (sequence, moment)
    if fresh:
        _guard(True)


def _last(text: str) -> tuple[int, int]:
    for line in reversed(text.splitlines()):
        match = RECORD.match(line)
        if match:
            return int(match.group(2)), int(match.group(3))
    return -1, 0


def records() -> list[tuple[int, int, int, str]]:
    """(priority, sequence number, microseconds, text) of each record."""
    found = []
    for line in state.read_text(PATH).splitlines():
        match = RECORD.match(line)
        if match:
            text = re.sub(
                r"((?:\\x[0-9a-f]{2})+)",
                lambda part: bytes.fromhex(part.group(1).replace("\\x", "")).decode("utf-8", "replace"),
                match.group(5),
            )
            found.append((int(match.group(1)), int(match.group(2)), int(match.group(3)), text))
    return found


def forget(count: int) -> int:
    """Takes the oldest records away, as a full ring does; answers how many are left."""
    target = state.path(PATH)
    _guard(False)
    with open(target, "r+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        lines = stream.read().splitlines(True)[count:]
        stream.seek(0)
        stream.truncate()
        stream.writelines(lines)
    _guard(True)
    return len(lines)


def shown() -> str:
    """As dmesg prints it."""
    return "".join(
        "[%5d.%06d] %s\n" % (moment // 1000000, moment % 1000000, text)
        for _priority, _sequence, moment, text in records()
    )
