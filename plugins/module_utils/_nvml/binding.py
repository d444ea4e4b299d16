# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML binding on a node: kept by digest, checked, and imported from the very bytes that were checked.

Private to the collection: it may change at any time.
The archive is a zip that the controller made. Modules run as root, so nothing of it is believed before its sha256 was compared with
the digest that came with the task, and nothing is read a second time after that.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import stat
import sys
import time
import types
import zipfile

SIZE_LIMIT = 16 * 1024 * 1024
KEEP_S = 30 * 24 * 3600
DIGEST = re.compile("^[0-9a-f]{64}$")
NO_BINDING = (
    "no NVML binding: the controller sent none and this node has no Python module pynvml; "
    "install nvidia-ml-py in the Python environment that runs Ansible on the controller (or, as a fallback, on the node)")


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

    The parent may be shared only the way /tmp is (sticky). Links are not followed at the last component, and everything after this
    goes through the descriptor, so that a directory swapped in later is never looked at.
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
            raise CacheError("%s is open to other users (mode %04o, expected 0700)" % (directory, stat.S_IMODE(about.st_mode)))
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
        data = stream.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        raise CacheError("it is larger than %d bytes" % (SIZE_LIMIT,))
    return data


def fetch(directory, digest):
    """(archive or None, warning or None): the cached archive if it is exactly the wanted one."""
    name = cache_name(digest)
    try:
        with open_cache(directory, create=False) as handle:
            try:
                data = _read(handle, name)
            except OSError as exc:
                if exc.errno == errno.ENOENT:
                    return None, None
                reason = "it is a link" if exc.errno == errno.ELOOP else exc.strerror
                return None, "cached NVML binding %s/%s is not used: %s" % (directory, name, reason)
            except CacheError as exc:
                return None, "cached NVML binding %s/%s is not used: %s" % (directory, name, exc)
    except CacheError as exc:
        if os.path.lexists(directory):
            return None, "the cache of the NVML binding is not used: %s" % (exc,)
        return None, None
    if digest_of(data) != digest:
        return None, "cached NVML binding %s/%s is not used: its content does not match its digest" % (directory, name)
    return data, None


def store(directory, digest, data):
    """Put DATA in the cache in one step. Returns a warning when it could not be kept; reading the GPUs goes on without."""
    name = cache_name(digest)
    if digest_of(data) != digest:
        raise CacheError("the NVML binding that arrived does not match its digest")
    try:
        with open_cache(directory) as handle:
            # "." + pid: two tasks of one user never write the same file, and a leftover of a killed one is overwritten or removed.
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


def load(archive=None):
    """(module, description): the binding from the verified ARCHIVE, else the node's own, else (None, ...)."""
    if archive is not None:
        nvml, version = from_archive(archive)
        return nvml, {"version": version, "source": "shipped"}
    try:
        import pynvml
    except ImportError:
        return None, {"version": None, "source": "none"}
    return pynvml, {"version": _node_version(), "source": "node"}


def from_archive(archive):
    """Import pynvml from bytes in memory; nothing is unpacked on the disk."""
    with zipfile.ZipFile(io.BytesIO(archive)) as content:
        source = content.read("pynvml.py")
        version = json.loads(content.read("manifest.json").decode("utf-8"))["version"]
    module = types.ModuleType("pynvml")
    module.__file__ = "<shipped nvidia-ml-py %s>" % (version,)
    # The binding looks itself up by name while it defines its exception classes.
    previous = sys.modules.get("pynvml")
    sys.modules["pynvml"] = module
    try:
        # The digest of these bytes was compared with the one of the task before.
        exec(compile(source, module.__file__, "exec"), module.__dict__)  # noqa: S102 (this is the import of the binding)
    except BaseException:
        sys.modules.pop("pynvml")
        if previous is not None:
            sys.modules["pynvml"] = previous
        raise
    return module, version


def read_data(archive, name):
    """A data file of the archive, as bytes."""
    with zipfile.ZipFile(io.BytesIO(archive)) as content:
        return content.read("data/" + name)


def _node_version():
    from importlib import metadata
    try:
        return metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        return None
