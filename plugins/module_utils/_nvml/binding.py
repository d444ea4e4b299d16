# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML binding on a node: the controller's pynvml.py in a directory named by its digest, or the node's own.

Modules run as root. So the file is imported from bytes whose sha256 was compared with the digest in the task, and it is
not read a second time.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import hashlib
import importlib.abc
import importlib.util
import os
import re
import stat
import sys
import time
import zlib
from typing import Any, Dict, Iterator, Optional, Tuple

# What the action plugin of a module adds to its options.
ARGUMENTS = {
    "binding": {
        "type": "dict",
        "options": {
            "digest": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "source": {"type": "str", "no_log": True},
        },
    }
}
FILE = "pynvml.py"
STUCK_FILE = "/run/gpufleet-nvml.stuck"
SIZE_LIMIT = 16 * 1024 * 1024
KEEP_S = 30 * 24 * 3600
DIGEST = re.compile("[0-9a-f]{64}$")
NO_BINDING = (
    "no NVML binding: the controller sent none and this node has no Python module pynvml; install nvidia-ml-py in the "
    "Python environment that runs Ansible on the controller (or, as a fallback, on the node)"
)


class CacheError(OSError):
    """The cache or what was sent for it cannot be used; the text says why."""


class Binding:
    """A binding that can be imported: that of the controller, or the node's own if no source was sent."""

    def __init__(
        self, cache: str, source: Optional[bytes] = None, version: Optional[str] = None, digest: Optional[str] = None
    ) -> None:
        self.source, self.version = source, version
        # The file that remembers a call of NVML which did not end.
        self.stuck_file = STUCK_FILE if os.geteuid() == 0 else os.path.join(cache, "nvml.stuck")
        self._loader = None if source is None else _Loader(source, cache, digest)

    def load(self) -> Tuple[Any, Dict[str, Optional[str]]]:
        """Return (module, description of it), or (None, description) if the node has no binding."""
        if self._loader is None:
            return load_own()
        spec = importlib.util.spec_from_loader("pynvml", self._loader)
        module = importlib.util.module_from_spec(spec)
        # The binding looks itself up by name while it defines its exception classes.
        previous = sys.modules.get("pynvml")
        sys.modules["pynvml"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules["pynvml"]
            if previous is not None:
                sys.modules["pynvml"] = previous
            raise
        return module, {"version": self.version, "source": "shipped"}


def load_own() -> Tuple[Any, Dict[str, Optional[str]]]:
    """Return (module, description of it) of the node's own binding, or (None, description) if it has none."""
    from importlib import metadata

    try:
        import pynvml
    except ImportError:
        return None, {"version": None, "source": "none"}
    try:
        version = metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        version = None
    return pynvml, {"version": version, "source": "node"}


class _Loader(importlib.abc.SourceLoader):
    """Import verified source. Python keeps the bytecode beside the file, where only its owner can write.

    Without a digest nothing is kept.
    """

    def __init__(self, source: bytes, cache: str, digest: Optional[str]) -> None:
        self._source, self._cache, self._digest = source, cache, digest

    def get_filename(self, fullname: str) -> str:
        return os.path.join(self._cache, self._digest, FILE) if self._digest else FILE

    def path_stats(self, path: str) -> Dict[str, int]:
        if not self._digest:
            raise OSError("nothing is kept")
        # The directory is named by the digest of the source: its bytecode never becomes stale.
        return {"mtime": 0, "size": len(self._source)}

    def get_data(self, path: str) -> bytes:
        if path.endswith(".py"):
            return self._source
        with open_directory(self._cache, self._digest) as handle:
            return read_file(handle, os.path.basename(path))

    def set_data(self, path: str, data: bytes) -> None:
        with contextlib.suppress(OSError), open_directory(self._cache, self._digest) as handle:
            write_file(handle, os.path.basename(path), data)

    def get_code(self, fullname: str) -> Any:
        try:
            return super().get_code(fullname)
        except (EOFError, TypeError, ValueError):  # damaged bytecode
            with contextlib.suppress(OSError), open_directory(self._cache, self._digest) as handle:
                os.unlink(os.path.basename(importlib.util.cache_from_source(FILE)), dir_fd=handle)
            return self.source_to_code(self._source, self.get_filename(fullname))


def get_binding(module: Any, consequence: str) -> Binding:
    """Return the binding for an AnsibleModule. Ends the module if the file has to be sent first.

    CONSEQUENCE begins the message if what was sent cannot be used, such as "nothing was changed".
    """
    try:
        found, warning = prepare(cache_directory(module._remote_tmp), **(module.params["binding"] or {}))
    except CacheError as exc:
        module.fail_json(msg="%s: %s" % (consequence, exc))
    if warning:
        module.warn(warning)
    if found is None:
        module.exit_json(changed=False, needs_binding=True)
    return found


def cache_directory(remote_tmp: Optional[str]) -> str:
    """Return the user's own directory in Ansible's temporary directory on the node."""
    base = os.path.expanduser(os.path.expandvars(remote_tmp or "~/.ansible/tmp"))
    return os.path.join(os.path.abspath(base), "gpufleet-%d" % (os.geteuid(),))


def prepare(
    cache: str, digest: Optional[str] = None, version: Optional[str] = None, source: Optional[str] = None
) -> Tuple[Optional[Binding], Optional[str]]:
    """Return (binding, warning). The binding is None if the node does not have the file and it was not sent.

    Args:
        digest: sha256 of the file; None if the controller has no binding.
        source: The file, compressed (zlib) and in base64. It is sent after a first answer asked for it, in the task's
            arguments: a file would have to be readable for both the login user and the user to become.

    Raises:
        CacheError: what was sent is not the file with this digest.
    """
    if digest is None:
        return Binding(cache), None
    if not DIGEST.match(digest):
        raise CacheError("not a sha256 digest: %r" % (digest,))
    if source is None:
        content, warning = fetch(cache, digest)
        return (None if content is None else Binding(cache, content, version, digest)), warning
    try:
        content = zlib.decompress(base64.b64decode(source.encode("ascii"), validate=True))
    except (binascii.Error, UnicodeEncodeError, zlib.error):
        raise CacheError("the NVML binding that arrived is not compressed base64") from None
    warning = store(cache, digest, content)
    return Binding(cache, content, version, None if warning else digest), warning


def fetch(cache: str, digest: str) -> Tuple[Optional[bytes], Optional[str]]:
    """Return (content, warning) of the kept file if it is exactly the wanted one."""
    try:
        with open_directory(cache, digest) as handle:
            content = read_file(handle, FILE)
    except FileNotFoundError:
        return None, None
    except OSError as exc:
        return None, "the NVML binding %s is not used: %s" % (os.path.join(cache, digest, FILE), describe(exc))
    if hashlib.sha256(content).hexdigest() != digest:
        return None, "the NVML binding %s is not used: its content does not match its digest" % (
            os.path.join(cache, digest, FILE),
        )
    return content, None


def store(cache: str, digest: str, content: bytes) -> Optional[str]:
    """Keep the file. Returns a warning if that fails; reading the GPUs goes on without.

    Raises:
        CacheError: the content has another digest.
    """
    if hashlib.sha256(content).hexdigest() != digest:
        raise CacheError("the NVML binding that arrived does not match its digest")
    try:
        os.makedirs(os.path.dirname(cache), mode=0o700, exist_ok=True)
        with open_directory(cache, digest, create=True) as handle:
            write_file(handle, FILE, content)
        with open_private(cache) as handle:
            prune(handle, digest)
    except OSError as exc:
        return "the NVML binding is not kept in %s: %s" % (cache, describe(exc))
    return None


@contextlib.contextmanager
def open_directory(cache: str, digest: str, create: bool = False) -> Iterator[int]:
    """Open the directory of one binding, which has to be this user's alone, as CACHE has to be.

    The parent of CACHE may be shared only the way /tmp is (sticky). All access goes through descriptors, so that a
    directory swapped in later is never used.
    """
    about = os.stat(os.path.dirname(cache))
    shared = about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX
    if about.st_uid not in (0, os.geteuid()) or shared:
        raise CacheError("%s can be changed by other users" % (os.path.dirname(cache),))
    with open_private(cache, create) as base, open_private(digest, create, base) as handle:
        yield handle


@contextlib.contextmanager
def open_private(path: str, create: bool = False, parent: Optional[int] = None) -> Iterator[int]:
    """Open the directory PATH, relative to the descriptor PARENT if given. Links are not followed."""
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700, dir_fd=parent)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        about = os.fstat(handle)
        if about.st_uid != os.geteuid():
            raise CacheError("%s belongs to uid %d, not to uid %d" % (path, about.st_uid, os.geteuid()))
        if about.st_mode & 0o077:
            raise CacheError("%s is open to other users (mode %04o)" % (path, stat.S_IMODE(about.st_mode)))
        yield handle
    finally:
        os.close(handle)


def read_file(directory: int, name: str) -> bytes:
    """Return the content of a regular file that only this user can change."""
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(stream.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise CacheError("it is not a regular file")
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise CacheError("it can be changed by other users (uid %d)" % (about.st_uid,))
        data = stream.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        raise CacheError("it is larger than %d bytes" % (SIZE_LIMIT,))
    return data


def write_file(directory: int, name: str, data: bytes) -> None:
    """Replace a file in one step. The rename replaces a file or link of that name and follows no link."""
    # The pid: two tasks of one user never write the same file, and what a killed one left is overwritten.
    temporary = ".%s.%d" % (name, os.getpid())
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=directory), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise


def prune(cache: int, keep: str) -> None:
    """Remove bindings that no controller has sent for a month."""
    for digest in os.listdir(cache):
        if digest == keep or not DIGEST.match(digest) or time.time() - os.stat(digest, dir_fd=cache).st_mtime <= KEEP_S:
            continue
        with open_private(digest, parent=cache) as handle:
            for name in os.listdir(handle):
                os.unlink(name, dir_fd=handle)
        os.rmdir(digest, dir_fd=cache)


def describe(exc: OSError) -> str:
    """Return the reason of an error without its path."""
    return "it is a link" if exc.errno == errno.ELOOP else exc.strerror or str(exc)
