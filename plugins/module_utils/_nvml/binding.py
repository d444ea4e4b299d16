# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive with the NVML binding on a node: kept by digest, and checked.

The archive is a zip that the controller made. Modules run as root, so nothing of it is believed before its sha256 was
compared with the digest that came with the task, and nothing is read a second time after that.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import stat
import time
import zipfile

SIZE_LIMIT = 16 * 1024 * 1024
KEEP_S = 30 * 24 * 3600
DIGEST = re.compile("^[0-9a-f]{64}$")
NO_BINDING = (
    "no NVML binding: the controller sent none and this node has no Python module pynvml; install nvidia-ml-py in the "
    "Python environment that runs Ansible on the controller (or, as a fallback, on the node)"
)


class CacheError(Exception):
    """The cache cannot be used; the text says why."""


def digest_of(data):
    return hashlib.sha256(data).hexdigest()


def cache_name(digest):
    if not DIGEST.match(digest):
        raise CacheError("not a sha256 digest: %r" % (digest,))
    return "binding-%s.zip" % (digest,)


@contextlib.contextmanager
def open_cache(directory, create=True):
    """A descriptor of the cache directory, which must be ours alone.

    The parent may be shared only the way /tmp is (sticky). Links are not followed at the last component, and everything
    after this goes through the descriptor, so that a directory swapped in later is never looked at.
    """
    parent = os.path.dirname(directory)
    user = os.geteuid()
    try:
        if create:
            os.makedirs(parent, mode=0o700, exist_ok=True)
        about = os.stat(parent)
        shared = about.st_mode & 0o022
        if about.st_uid not in (0, user) or (shared and not about.st_mode & stat.S_ISVTX):
            raise CacheError("%s can be changed by other users" % (parent,))
        if create:
            try:
                os.mkdir(directory, 0o700)
            except OSError as exc:
                if exc.errno != errno.EEXIST:
                    raise
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        raise CacheError("%s: %s" % (directory, exc.strerror)) from exc
    try:
        about = os.fstat(handle)
        if about.st_uid != user:
            raise CacheError("%s belongs to uid %d, not to uid %d" % (directory, about.st_uid, user))
        if stat.S_IMODE(about.st_mode) & 0o077:
            raise CacheError(
                "%s is open to other users (mode %04o, expected 0700)" % (directory, stat.S_IMODE(about.st_mode))
            )
        yield handle
    finally:
        os.close(handle)


def _read(directory_handle, name):
    """The bytes of a regular file of ours, read once."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=directory_handle)
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(stream.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise CacheError("it is not a regular file")
        if about.st_uid != os.geteuid():
            raise CacheError("it belongs to uid %d" % (about.st_uid,))
        if stat.S_IMODE(about.st_mode) & 0o022:
            raise CacheError("it can be changed by other users")
        data = stream.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        raise CacheError("it is larger than %d bytes" % (SIZE_LIMIT,))
    return data


def find(directory, name):
    """(content or None, warning or None) of the file NAME in the cache, which is ours and no link; what it says is for
    the caller to check.
    """
    try:
        with open_cache(directory, create=False) as handle:
            try:
                return _read(handle, name), None
            except OSError as exc:
                if exc.errno == errno.ENOENT:
                    return None, None
                reason = "it is a link" if exc.errno == errno.ELOOP else exc.strerror
            except CacheError as exc:
                reason = str(exc)
            return None, "cached NVML binding %s/%s is not used: %s" % (directory, name, reason)
    except CacheError as exc:
        if os.path.lexists(directory):
            return None, "the cache of the NVML binding is not used: %s" % (exc,)
        return None, None


def fetch(directory, digest):
    """(archive or None, warning or None): the cached archive if it is exactly the wanted one."""
    name = cache_name(digest)
    data, warning = find(directory, name)
    if data is not None and digest_of(data) != digest:
        return None, "cached NVML binding %s/%s is not used: its content does not match its digest" % (directory, name)
    return data, warning


def store(directory, digest, data):
    """Put the archive DATA in the cache.

    Returns a warning when it could not be kept; reading the GPUs goes on without.
    """
    name = cache_name(digest)
    if digest_of(data) != digest:
        raise CacheError("the NVML binding that arrived does not match its digest")
    return keep(directory, name, data)


def keep(directory, name, data):
    """Put DATA in the cache as NAME, in one step. Returns a warning when it could not be kept."""
    try:
        with open_cache(directory) as handle:
            # "." + pid: two tasks of one user never write the same file, and a leftover of a killed one is overwritten
            # or removed.
            temporary = ".%s.%d" % (name, os.getpid())
            _forget(handle, temporary)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=handle), "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                # A rename replaces whatever has the name, be it a link, and never follows it.
                os.rename(temporary, name, src_dir_fd=handle, dst_dir_fd=handle)
            except OSError:
                _forget(handle, temporary)
                raise
            _prune(handle, name)
    except OSError as exc:
        return "the NVML binding is not cached in %s: %s" % (directory, exc.strerror)
    except CacheError as exc:
        return "the NVML binding is not cached: %s" % (exc,)
    return None


def _forget(handle, name):
    try:
        os.unlink(name, dir_fd=handle)
    except FileNotFoundError:
        pass


def _prune(handle, keep):
    """Remove archives that no controller has stored for a month."""
    for name in os.listdir(handle):
        if name == keep or not name.lstrip(".").startswith("binding-"):
            continue
        about = os.stat(name, dir_fd=handle, follow_symlinks=False)
        if stat.S_ISREG(about.st_mode) and time.time() - about.st_mtime > KEEP_S:
            _forget(handle, name)


def own():
    """(module, description): the binding that the node itself has, or (None, ...)."""
    try:
        import pynvml
    except ImportError:
        return None, {"version": None, "source": "none"}
    return pynvml, {"version": _node_version(), "source": "node"}


def members(archive, suffix):
    """The files of the archive whose names end in SUFFIX, by name."""
    with zipfile.ZipFile(io.BytesIO(archive)) as content:
        return dict((name, content.read(name)) for name in sorted(content.namelist()) if name.endswith(suffix))


def read_data(archive, name):
    """A data file of the archive, as bytes."""
    return members(archive, "data/" + name)["data/" + name]


def _node_version():
    from importlib import metadata

    try:
        return metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        return None
