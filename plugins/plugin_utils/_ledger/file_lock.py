# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who writes to a file when, among the processes of one controller: one at a time, and the others sleep until it is their turn.

SQLite has those who wait try again at random. With hundreds of workers on a few cores the one whose turn it is gets the CPU for an instant
in a second, and one that has no luck gives up while the others go on. In flock(2) the kernel lets who waits sleep, and wakes one.
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
    """Somebody has had the turn for too long."""


@contextlib.contextmanager
def hold(path, patience_s):
    """Have the turn while this lasts. As long as turns are taken it waits; when nobody has taken one for PATIENCE_S, FileLockError."""
    # The lock is the open file's, so that it ends with this process, however that ends.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        _wait(handle, path, patience_s)
        os.utime(handle)  # that a turn was taken, also on a disk that is full
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
    # A thread, since flock knows no time limit. One that is left behind has its lock for an instant: the file is closed by then.
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
    """Who has the turn, as far as it could write that down."""
    return os.pread(handle, 11, 0).decode("ascii", "replace").strip() or "unknown"
