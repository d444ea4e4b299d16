# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lock that serializes the processes of one controller before they open the ledger's file.

Processes that wait for SQLite try again at random intervals. With hundreds of workers on a few cores, some of them
never succeed before their timeout. With flock(2) the kernel lets waiting processes sleep and wakes one of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time

MODE = 0o600
LOOK_S = 0.5


class FileLockError(Exception):
    """Another process has held the lock for too long; the message names it."""


@contextlib.contextmanager
def hold(path, patience_s):
    """Hold the lock while the block runs.

    Wait as long as other processes acquire and release it. Raise FileLockError if none has acquired it for PATIENCE_S.
    """
    # The lock belongs to the open file, so that it ends with this process in every case.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, MODE)
    try:
        _wait(handle, path, patience_s)
        os.utime(handle)  # shows waiting processes that the lock was acquired, also if the disk is full
        with contextlib.suppress(OSError):
            os.pwrite(handle, b"%-10d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(handle)


def _wait(handle, path, patience_s):
    taken, refused = threading.Event(), []

    def take():
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as exc:
            refused.append(exc)
        taken.set()

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        pass
    # flock has no timeout, so a thread waits for it. After a timeout the file is closed, and with it a lock that the
    # thread acquires later.
    threading.Thread(target=take, daemon=True).start()
    last, since = os.fstat(handle).st_mtime_ns, time.monotonic()
    while not taken.wait(LOOK_S):
        now = os.fstat(handle).st_mtime_ns
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > patience_s:
            raise FileLockError("process %s has held %s for more than %d s" % (holder(handle), path, patience_s))
    if refused:
        raise refused[0]


def holder(handle):
    """Return the pid of the process that holds the lock, or unknown if it could not write it."""
    return os.pread(handle, 11, 0).decode("ascii", "replace").strip() or "unknown"
