# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The locks of the package managers themselves: who has one, and waiting for it. Nothing here takes one.

Both are locks of fcntl(2), whose F_GETLK names the process that has one without asking for it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time

from .._node.lock import read_comm
from .package_refusal import refusal

# No man page lists these files. They are the ones in apt's and dpkg's own "Could not get lock" messages, and the
# transaction lock of rpm.
PATHS = {
    "apt": ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/cache/apt/archives/lock"),
    "dnf": ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock"),
}
# struct flock of Linux on machines of 64 bits: type, whence, start, length, process.
FLOCK = "hhqqi"
POLL_S = 1.0


def holder(path):
    """The number of the process that has the lock on a file: 0 where it is of another container, None where it is
    free.
    """
    try:
        stream = open(path, "rb")
    except FileNotFoundError:
        return None
    with stream:
        answer = fcntl.fcntl(stream, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    kind, dummy, dummy, dummy, pid = struct.unpack(FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def held(manager, root="/", proc="/proc"):
    """``[{"path", "pid", "comm"}]`` of the locks of a package manager that are held; ``comm`` is None where that
    process cannot be seen.
    """
    found = []
    for path in PATHS[manager]:
        pid = holder(os.path.join(root, path.lstrip("/")))
        if pid is not None:
            found.append({"path": path, "pid": pid, "comm": read_comm(proc, pid) if pid else None})
    return found


def wait(look, timeout_s, clock=time.monotonic, sleep=time.sleep):
    """Until ``look()`` finds no lock, and no longer than the timeout:
    ``(locks that are still held, whether there was one)``.
    """
    deadline = clock() + timeout_s
    found = look()
    waited = bool(found)
    while found and clock() < deadline:
        sleep(min(POLL_S, max(0.0, deadline - clock())))
        found = look()
    return found, waited


def refusals(found, timeout_s):
    """Return why nothing is changed while the locks are held; nothing where they are free."""
    if not found:
        return []
    who = dict(
        (
            item["pid"],
            "%s (pid %d)" % (item["comm"] or "a process", item["pid"])
            if item["pid"]
            else "a process of another container",
        )
        for item in found
    )
    names, paths = ", ".join(who[pid] for pid in sorted(who)), ", ".join(item["path"] for item in found)
    return [
        refusal(
            "lock_held",
            [],
            "%s has %s" % (names, paths),
            "the package manager is free",
            "Another run of the package manager has its lock, after %d s still: %s has %s." % (timeout_s, names, paths),
            "see what it does there (unattended upgrades, a person), wait for it or end it, then run again",
        )
    ]
