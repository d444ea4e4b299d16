# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a rollout on the controller: their place, and small JSON files that several processes share."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.names import LedgerError

join = os.path.join


def require_home(artifact_dir):
    """Refuse the directory to which the default of gpufleet_artifact_dir comes where HOME is not set or empty."""
    if artifact_dir == "/.gpufleet" and not os.environ.get("HOME"):
        raise LedgerError(
            "HOME is not set, and gpufleet_artifact_dir is not either: there is no place for the ledger and the "
            "reports. Set gpufleet_artifact_dir to a directory that stays. Nothing was changed."
        )


def rollouts_dir(artifact_dir):
    """Return the directory of all rollouts."""
    return os.path.join(os.path.expanduser(artifact_dir), "rollouts")


@contextlib.contextmanager
def locked(path, patience_s):
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


def read_json(handle):
    """Return the JSON object in an open file; empty if there is none that can be read."""
    try:
        found = json.loads(os.pread(handle, 1 << 20, 0).decode() or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def write_json(handle, fields):
    """Replace the content of an open file with FIELDS."""
    data = json.dumps(fields).encode()
    os.ftruncate(handle, 0)
    os.pwrite(handle, data, 0)


def written_within(path, seconds):
    """Return True if the file was written to less than SECONDS ago."""
    try:
        return time.time() - os.stat(path).st_mtime < seconds
    except FileNotFoundError:
        return False
