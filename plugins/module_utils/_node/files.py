# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files below a root directory: text, listings, links resolved inside that root, and writing a file whole or not at
all.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Iterator

MAX_LINKS = 40
# Where the collection keeps what it keeps on a node.
OWN = "/var/lib/gpufleet"


def under(root, *parts) -> str:
    """A path below the root; absolute parts count from the root, not from the machine's."""
    return os.path.join(root, *[part.lstrip("/") for part in parts])


def own_directory(root, path) -> str:
    """Make a directory of the collection's, which everybody may enter and read; answers where it is.

    Missing parents get the same permissions. Existing directories keep theirs, except the collection's directory
    :data:`OWN` and this one in it.
    """
    directory = under(root, path)
    place, missing = directory, []
    while not os.path.isdir(place):
        missing.append(place)
        place = os.path.dirname(place)
    os.makedirs(directory, exist_ok=True)
    own = under(root, OWN)
    for place in missing + ([own, directory] if directory.startswith(own + "/") else []):
        os.chmod(place, 0o755)  # whatever the umask
    return directory


def read_bytes(path: str, limit: int = 16 * 1024 * 1024) -> bytes | None:
    """Return the content of a file, or None when it cannot be read."""
    try:
        with open(path, "rb") as handle:
            return handle.read(limit)
    except OSError:
        return None


def read_text(path: str, limit: int = 16 * 1024 * 1024) -> str | None:
    """Return the text of a file, or None when it cannot be read."""
    data = read_bytes(path, limit)
    return None if data is None else data.decode("utf-8", "replace")


class NotOwned(Exception):
    """A file that others than root or this user can change, or that is no regular file."""


def read_owned(path, limit=1024 * 1024) -> str:
    """The text of a file that is root's, or this user's, alone to change; no link is followed.

    NotOwned for any other, ValueError for one that is longer than LIMIT bytes or no UTF-8 text, OSError for one that
    cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if os.path.islink(path):
            raise NotOwned("it is a link") from exc
        raise
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(stream.fileno())
        if (
            not stat.S_ISREG(about.st_mode)
            or about.st_uid not in (0, os.geteuid())
            or stat.S_IMODE(about.st_mode) & 0o022
        ):
            raise NotOwned("it is no regular file, or others than root can change it")
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError("it is longer than %d bytes" % (limit,))
    return data.decode("utf-8")


def read_line(path) -> str | None:
    """The first line of a small file without its line end, or None."""
    content = read_text(path, 4096)
    return None if content is None else (content.splitlines() or [""])[0].strip()


def listing(path) -> list[str] | None:
    """Sorted names in a directory; None when it cannot be listed (missing included)."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return None


def resolve(root, path) -> str | None:
    """Follow links as a process whose root directory is ``root`` would; None when the end does not exist."""
    parts = [part for part in path.split("/") if part]
    done = []
    links = 0
    while parts:
        part = parts.pop(0)
        if part == ".":
            continue
        if part == "..":
            done = done[:-1]
            continue
        here = under(root, *(done + [part]))
        if os.path.islink(here):
            links += 1
            if links > MAX_LINKS:
                return None
            target = os.readlink(here)
            if target.startswith("/"):
                done = []
            parts = [item for item in target.split("/") if item] + parts
            continue
        if not os.path.lexists(here):
            return None
        done.append(part)
    return "/" + "/".join(done)


def read_filesystem(root, path, statvfs=os.statvfs) -> dict | None:
    """Return ``{"device", "free", "files", "read_only"}`` of the file system of the nearest directory that exists.

    ``free`` is in bytes for processes of users, ``files`` the number of files that can still be made, None where the
    file system does not count them (btrfs, statvfs(3)). None where the file system cannot be read.
    """
    place = under(root, path)
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    try:
        return ask_filesystem(place, statvfs)
    except OSError:
        return None


def ask_filesystem(place, statvfs=os.statvfs) -> dict:
    """Return the same of the file system of a directory. Raises OSError."""
    about = statvfs(place)
    return {
        "device": os.stat(place).st_dev,
        "free": about.f_bavail * about.f_frsize,
        "files": about.f_favail if about.f_files else None,
        "read_only": bool(about.f_flag & os.ST_RDONLY),
    }


def write_atomically(path: str, content: str | bytes, mode: int = 0o644) -> bool:
    """Write a file so that a reader, also after a loss of power, finds the old one or the new one.

    Returns:
        Whether it was written; an equal file is left alone.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if is_written(path, data, mode):
        return False
    temporary = "%s.%d.tmp" % (path, os.getpid())
    if os.path.lexists(temporary):
        os.unlink(temporary)  # of a run that was killed
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            os.fchmod(handle.fileno(), mode)
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_directory(os.path.dirname(path) or ".")
    return True


@contextlib.contextmanager
def replace_whole(path: str, mode: int = 0o644) -> Iterator[str]:
    """Yield the name of a file to make beside ``path``, which takes its place when the block ends without an error.

    For directories that only root writes to: the file is opened again by its name.
    """
    temporary = "%s.%d.tmp" % (path, os.getpid())
    if os.path.lexists(temporary):
        os.unlink(temporary)  # of a run that was killed; it may be another name of what is copied
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def is_written(path: str, data: bytes, mode: int) -> bool:
    """Return whether a regular file has just this content and mode. A FIFO in its place is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as handle:
        about = os.fstat(handle.fileno())
        is_same = stat.S_ISREG(about.st_mode) and stat.S_IMODE(about.st_mode) == mode and about.st_size == len(data)
        return is_same and handle.read(len(data) + 1) == data


def sync_directory(path: str) -> None:
    """Have the names in a directory on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
