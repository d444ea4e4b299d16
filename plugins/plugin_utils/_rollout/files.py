# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Artifacts of a rollout in files on the controller: replaced whole, or not at all.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile

join = os.path.join


def rollouts_dir(artifact_dir):
    return os.path.join(os.path.expanduser(artifact_dir), "rollouts")


def fsync_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path, text):
    """Replace a file whole, or leave the old one."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=".new-", dir=directory)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    fsync_dir(directory)


def write_json(path, document):
    write_file(path, json.dumps(document, indent=2, sort_keys=True) + "\n")


@contextlib.contextmanager
def locked(path):
    """Hold an exclusive lock on a file for as long as the block runs; the lock dies with its process."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
