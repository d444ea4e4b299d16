# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a rollout on the controller: their place, small JSON files that several processes share, and a lock that
serializes the processes of one controller before they open the ledger's file.

Processes that wait for SQLite try again at random intervals. With hundreds of workers on a few cores, some of them
never succeed before their timeout. With flock(2) the kernel lets waiting processes sleep and wakes one of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import LedgerError

join = os.path.join


def require_home(artifact_dir) -> None:
    """Refuse the directory to which the default of gpufleet_artifact_dir comes where HOME is not set or empty."""
    if artifact_dir == "/.gpufleet" and not os.environ.get("HOME"):
        raise LedgerError(
            "HOME is not set, and gpufleet_artifact_dir is not either: there is no place for the ledger and the "
            "reports. Set gpufleet_artifact_dir to a directory that stays. Nothing was changed."
        )


def rollouts_dir(artifact_dir) -> str:
    """Return the directory of all rollouts."""
    return os.path.join(os.path.expanduser(artifact_dir), "rollouts")


@contextlib.contextmanager
def open_locked(path, patience_s) -> Iterator:
    """Open the file at PATH and hold its lock while the block runs; None if another process kept it for PATIENCE_S.

    The lock ends with its process.
    """
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + patience_s
        held = False
        while not held:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except BlockingIOError:
                if time.monotonic() >= until:
                    break
                time.sleep(0.05)
        yield handle if held else None
    finally:
        os.close(handle)


def read_json(handle) -> dict:
    """Return the JSON object in an open file; empty if there is none that can be read."""
    try:
        found = json.loads(os.pread(handle, 1 << 20, 0).decode() or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def write_json(handle, fields) -> None:
    """Replace the content of an open file with FIELDS."""
    data = json.dumps(fields).encode()
    os.ftruncate(handle, 0)
    os.pwrite(handle, data, 0)


def written_within(path, seconds) -> bool:
    """Return True if the file was written to less than SECONDS ago."""
    try:
        return time.time() - os.stat(path).st_mtime < seconds
    except FileNotFoundError:
        return False


LOCK_MODE = 0o600
LOOK_S = 0.5


class FileLockError(Exception):
    """Another process has held the lock for too long; the message names it."""


@contextlib.contextmanager
def hold_in_turn(path, patience_s) -> Iterator[None]:
    """Hold the lock while the block runs.

    Wait as long as other processes acquire and release it. Raise FileLockError if none has acquired it for PATIENCE_S.
    """
    # The lock belongs to the open file, so that it ends with this process in every case.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, LOCK_MODE)
    try:
        _wait_in_turn(handle, path, patience_s)
        os.utime(handle)  # shows waiting processes that the lock was acquired, also if the disk is full
        with contextlib.suppress(OSError):
            os.pwrite(handle, b"%-10d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(handle)


def _wait_in_turn(handle, path, patience_s) -> None:
    taken, refused = threading.Event(), []

    def take() -> None:
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
            raise FileLockError("process %s has held %s for more than %d s" % (read_holder(handle), path, patience_s))
    if refused:
        raise refused[0]


def read_holder(handle) -> str:
    """Return the pid of the process that holds the lock, or unknown if it could not write it."""
    return os.pread(handle, 11, 0).decode("ascii", "replace").strip() or "unknown"
