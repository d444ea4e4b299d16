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

from .._node import proc_tasks
from .._node.lock import read_comm
from .package_state import make_refusal

# No man page lists these files. They are the ones in apt's and dpkg's own "Could not get lock" messages, and the
# transaction lock of rpm.
PATHS = {
    "apt": ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/cache/apt/archives/lock"),
    "dnf": ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock"),
}
# struct flock of Linux on machines of 64 bits: type, whence, start, length, process.
FLOCK = "hhqqi"
POLL_S = 1.0


def find_holder(path, kind) -> int | None:
    """Return the number of a process that has a lock against one of KIND on a file: 0 where it cannot be told, of
    another container or a lock of an open file; None where there is none.
    """
    try:
        stream = open(path, "rb")
    except FileNotFoundError:
        return None
    with stream:
        answer = fcntl.fcntl(stream, fcntl.F_GETLK, struct.pack(FLOCK, kind, os.SEEK_SET, 0, 0, 0))
    kind, dummy, dummy, dummy, pid = struct.unpack(FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def read_locks(manager, root="/", proc="/proc") -> tuple[list, list]:
    """Return the locks of a package manager that are held, in two lists: by package managers, and by others.

    A package manager locks for writing, which takes a descriptor that only root can open. Any user can open the lock of
    rpm, lock it for reading, and run a setuid program with that lock.
    """
    found = [], []
    for path in PATHS[manager]:
        real = os.path.join(root, path.lstrip("/"))
        writer = find_holder(real, fcntl.F_RDLCK)
        pid = writer if writer is not None else find_holder(real, fcntl.F_WRLCK)
        if pid is None:
            continue
        users = proc_tasks.users(proc, pid) if pid else set()
        item = {"path": path, "pid": pid, "comm": read_comm(proc, pid) if pid else None, "uids": sorted(users)}
        found[writer is None or bool(users) and 0 not in users].append(item)
    return found


def find_held(manager, root="/", proc="/proc") -> list[dict]:
    """``[{"path", "pid", "comm", "uids"}]`` of the locks that package managers have; ``comm`` is None where that
    process cannot be seen.
    """
    return read_locks(manager, root, proc)[0]


def held_by_users(manager, root="/", proc="/proc") -> list[dict]:
    """The same of locks that are no package manager's. rpm waits for them, and nothing else is decided by them."""
    return read_locks(manager, root, proc)[1]


def wait_for_release(look, timeout_s, clock=time.monotonic, sleep=time.sleep) -> tuple[list, bool]:
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


def name_process(item) -> str:
    """Return the process of a lock for an operator."""
    if not item["pid"]:
        return "a process of another container"
    return "%s (pid %d)" % (item["comm"] or "a process", item["pid"])


def make_warnings(found) -> list[str]:
    """Return a sentence for each lock that is no package manager's."""
    return [
        "%s is locked by a process that is no package manager: %s. The package manager waits for it before it changes "
        "anything. Next step: find it with fuser -v %s, and end it."
        % (
            item["path"],
            "%s of user %d" % (name_process(item), item["uids"][-1]) if item["uids"] else "one that cannot be seen",
            item["path"],
        )
        for item in found
    ]


def make_refusals(found, timeout_s) -> list[dict]:
    """Return why nothing is changed while the locks are held; nothing where they are free."""
    if not found:
        return []
    who = dict((item["pid"], name_process(item)) for item in found)
    names, paths = ", ".join(who[pid] for pid in sorted(who)), ", ".join(item["path"] for item in found)
    return [
        make_refusal(
            "lock_held",
            [],
            "%s has %s" % (names, paths),
            "the package manager is free",
            "Another run of the package manager has its lock, after %d s still: %s has %s." % (timeout_s, names, paths),
            "see what it does there (unattended upgrades, a person), wait for it or end it, then run again",
        )
    ]
