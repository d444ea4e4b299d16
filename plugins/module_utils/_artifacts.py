# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories of artifacts: there whole or not at all, readable by owner and group alone, and never written to again.

One that has editions, such as a report, is replaced by a newer edition as a whole. The same code keeps them on the
controller and on another host.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator

DIRECTORY_MODE, FILE_MODE = 0o750, 0o640
MAX_FILE = 64 * 1024 * 1024
MAX_COPIES = 1000
LOCK = ".lock"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+~:@=,-]{0,254}")
PATIENCE_S = 60.0  # for the lock of a directory


def pack(data) -> str:
    """DATA as text for the way to another host."""
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def unpack(text, most=MAX_FILE) -> bytes:
    """The bytes of what pack() made, never more than MOST of them; ValueError or zlib.error if it is not whole."""
    try:
        packed = base64.b64decode(str(text).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as exc:
        raise ValueError("not base64") from exc
    worker = zlib.decompressobj()
    data = worker.decompress(packed, most)
    if worker.unconsumed_tail:
        raise ValueError("it is longer than %d bytes" % (most,))
    if not worker.eof:
        raise ValueError("its end is missing")
    return data


def write(path, files) -> str:
    """Make the directory PATH with FILES ({name: bytes}); the path it got, which is a numbered one if PATH is taken.

    OSError if it cannot be.
    """
    parent, temporary = os.path.dirname(path), None
    try:
        make(parent)
        temporary = tempfile.mkdtemp(prefix=".new-", dir=parent)
        for name, data in sorted(files.items()):
            with open(os.path.join(temporary, name), "xb") as stream:
                os.fchmod(stream.fileno(), FILE_MODE)
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        os.chmod(temporary, DIRECTORY_MODE)
        sync(temporary)
        given = claim(temporary, path)
        temporary = None
        sync(parent)
        return given
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def read(path, names=None) -> dict[str, bytes]:
    """The files of the directory PATH, or those with NAMES: {name: bytes}.

    OSError if one cannot be read, or if there is anything but files of a known size.
    """
    return dict((name, read_file(os.path.join(path, name))) for name in sorted(names or os.listdir(path)))


def read_file(path, largest=None, follow=False) -> bytes:
    """The bytes of the file PATH, at most LARGEST (MAX_FILE) of them; OSError if it cannot be read.

    A FIFO is not waited for, and a link is an error unless FOLLOW.
    """
    largest = MAX_FILE if largest is None else largest
    handle = os.open(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW) | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > largest:
            raise OSError(errno.EINVAL, "%s is no file of up to %d bytes" % (path, largest))
        return stream.read(largest + 1)


def present(path) -> dict[str, bytes] | None:
    """The files of the directory PATH; None if it cannot be read as one of artifacts, or is not there."""
    try:
        return read(path)
    except OSError:
        return None


def replace(path, files, edition, check_mode=False) -> tuple[bool, str, bool]:
    """Make PATH a directory with FILES, unless a newer edition is there: (whether it changed, its path, whether newer).

    EDITION(files) returns (what they are an edition of, its number). What is of something else stays, and the path gets
    a number. PATH is a link to a directory in the hidden one beside it, so that all files are replaced at once.
    """
    for number in range(1, MAX_COPIES + 1):
        place = edition_path(path, number)
        with contextlib.nullcontext() if check_mode else hold_directory_lock(editions_directory(place)):
            there = present(place)
            if os.path.lexists(place) and edition(there or {})[0] != edition(files)[0]:
                continue
            newer = there is not None and edition(there)[1] > edition(files)[1]
            if newer or there == files:
                return False, place, newer
            if check_mode:
                return True, "", False
            turn(place, write(os.path.join(editions_directory(place), "files"), files))
            return True, place, False
    raise OSError(errno.EEXIST, "there are %d directories of this name already" % (MAX_COPIES,))


def editions_directory(path) -> str:
    """The directory beside PATH that has its editions."""
    return os.path.join(os.path.dirname(path), "." + os.path.basename(path))


def turn(path, made) -> None:
    """Make PATH a link to the directory MADE in its hidden directory, and remove what else is there."""
    place = editions_directory(path)
    link = os.path.join(place, ".link")  # no other process writes here, as this one has the lock
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(os.path.join(os.path.basename(place), os.path.basename(made)), link)
    try:
        os.rename(link, path)
    except OSError:
        os.unlink(link)
        shutil.rmtree(made, ignore_errors=True)
        raise
    sync(os.path.dirname(path))
    for name in set(os.listdir(place)) - {LOCK, os.path.basename(made)}:
        other = os.path.join(place, name)
        if os.path.islink(other):
            os.unlink(other)
        else:
            shutil.rmtree(other, ignore_errors=True)


@contextlib.contextmanager
def hold_directory_lock(directory) -> Iterator[None]:
    """Hold the lock of a directory, which is made if it is not there. It ends with the process.

    OSError if the directory is a link or another user's, as what it holds will be removed, or if another process keeps
    the lock for PATIENCE_S.
    """
    make(directory)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "%s is no directory of user %d" % (directory, os.geteuid()))
    path = os.path.join(directory, LOCK)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "%s is no file" % (path,))
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise OSError(errno.EAGAIN, "another process keeps %s locked" % (path,)) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def describe_files(files) -> list:
    """Describe FILES for a report: name, size in bytes and digest of each, ordered by name."""
    return [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in sorted(files.items())
    ]


def find(path, files) -> str | None:
    """The directory, PATH itself or a numbered one, that holds exactly FILES; None if there is none."""
    for number in range(1, MAX_COPIES + 1):
        place = edition_path(path, number)
        if not os.path.lexists(place):
            return None
        with contextlib.suppress(OSError):
            if read(place) == files:
                return place
    return None


def edition_path(path, number) -> str:
    return path if number == 1 else "%s-%d" % (path, number)


def make(path) -> None:
    """A directory and those above it, each with our mode if it is new, whatever the umask is."""
    if os.path.isdir(path):
        return
    make(os.path.dirname(path))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        os.chmod(path, DIRECTORY_MODE)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, "%s is no directory" % (path,))


def claim(temporary, wanted) -> str:
    """Give the finished directory its name, or that with a number: a directory is never renamed over one that holds
    something.
    """
    for number in range(1, MAX_COPIES + 1):
        path = edition_path(wanted, number)
        try:
            os.rename(temporary, path)
            return path
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
    raise OSError(errno.EEXIST, "there are %d directories of this name already" % (MAX_COPIES,))


def sync(directory) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
