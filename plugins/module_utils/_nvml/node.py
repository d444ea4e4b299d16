# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of an Ansible module around a snapshot: the place of the cache, and when to ask the controller for the archive.

The rest of this package comes to the node in the archive. A module that reads NVML imports nothing of it but binding
and node: what it imports, Ansible sends and the node compiles with every task.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import marshal
import os
import sys
import types

from . import binding

STUCK_FILE = "/run/gpufleet-nvml.stuck"


def cache_directory(remote_tmp):
    """The user's own directory in Ansible's temporary directory on the node."""
    base = os.path.expanduser(os.path.expandvars(remote_tmp or "~/.ansible/tmp"))
    return os.path.join(os.path.abspath(base), "gpufleet-%d" % (os.geteuid(),))


def stuck_file(cache):
    return STUCK_FILE if os.geteuid() == 0 else os.path.join(cache, "nvml.stuck")


def ready(remote_tmp, digest, archive_base64=None):
    """(Runtime or None, warnings): the code of the controller's archive; None if the node does not have it.

    DIGEST is the archive's sha256; ARCHIVE_BASE64 is sent only after the first answer asked for it. The archive travels
    in the task's arguments, not as a file: so it needs no file that both the login user and the user to become can
    read.
    """
    cache = cache_directory(remote_tmp)
    warnings = []
    if archive_base64 is None:
        archive, warning = binding.fetch(cache, digest)
        if warning:
            warnings.append(warning)
        if archive is None:
            return None, warnings
    else:
        try:
            archive = base64.b64decode(archive_base64.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise binding.CacheError("the NVML binding that arrived is not base64") from None
        warning = binding.store(cache, digest, archive)
        if warning:
            # One warning about a cache that cannot be used is enough.
            return start_runtime(digest, archive)[0], [warning]
    started, warning = start_runtime(digest, archive, cache)
    if warning:
        warnings.append(warning)
    return started, warnings


def read(remote_tmp, digest=None, archive_base64=None, timeout_s=60, gather=None, take=None):
    """{"needs_binding": True} or {"snapshot": ...}, always with "warnings". GATHER is what subsets.choose takes."""
    warnings = []
    options = {}
    if digest is not None:
        started, warnings = ready(remote_tmp, digest, archive_base64)
        if started is None:
            return {"needs_binding": True, "warnings": warnings}
        options["load"] = started.load_binding
        take = take or started.module("_nvml.snapshot").take
    else:
        # No action plugin sent a digest: the whole package lies beside this module.
        take = take or importlib.import_module(__package__ + ".snapshot").take
    snapshot = take(deadline_s=timeout_s, stuck_file=stuck_file(cache_directory(remote_tmp)), gather=gather, **options)
    return {"snapshot": snapshot, "warnings": warnings}


MARK = b"gpufleet-code/1\n"
DIGEST_BYTES = 32


class Runtime:
    """Return the code in the archive with DIGEST, of which nothing has run yet."""

    def __init__(self, digest, version, code):
        self._version = version
        self._code = code
        self._package = "gpufleet_nvml_%s" % (digest[:16],)

    def module(self, name):
        """The module NAME, such as _nvml.snapshot, as the controller has it."""
        if not any(isinstance(finder, _Finder) and finder.package == self._package for finder in sys.meta_path):
            sys.meta_path.append(_Finder(self._package, self._code))
        return importlib.import_module("%s.%s" % (self._package, name))

    def load_binding(self):
        """(module, description): the binding that was shipped, else the node's own, else (None, ...)."""
        code = self._code.get("pynvml.py")
        if code is None:
            return binding.own()
        module = types.ModuleType("pynvml")
        module.__file__ = "<shipped nvidia-ml-py %s>" % (self._version,)
        # The binding looks itself up by name while it defines its exception classes.
        previous = sys.modules.get("pynvml")
        sys.modules["pynvml"] = module
        try:
            exec(code, module.__dict__)  # noqa: S102 (this is the import of the binding, whose archive was verified)
        except BaseException:
            sys.modules.pop("pynvml")
            if previous is not None:
                sys.modules["pynvml"] = previous
            raise
        return module, {"version": self._version, "source": "shipped"}


class _Finder:
    """Imports PACKAGE, the parent of the packages in the archive, from code objects.

    Both finder and loader, for a handful of modules.
    """

    def __init__(self, package, code):
        self.package = package
        self._code, self._packages = {package: None}, {package}
        for member, content in code.items():
            inside, dummy, last = member[: -len(".py")].rpartition("/")
            if inside:
                words = [package] + inside.split("/")
                if last == "__init__":
                    self._packages.add(".".join(words))
                else:
                    words.append(last)
                self._code[".".join(words)] = content

    def find_spec(self, name, path=None, target=None):
        if name not in self._code:
            return None
        return importlib.machinery.ModuleSpec(
            name, self, origin="<shipped %s>" % (name,), is_package=name in self._packages
        )

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        code = self._code[module.__name__]
        if code is not None:
            exec(code, module.__dict__)  # noqa: S102 (this is the import of a module whose archive was verified)


def code_name(digest):
    """The name of the compiled code in the cache: of this archive, by this interpreter."""
    about = "%s %s %d %r" % (sys.implementation.cache_tag, sys.version, sys.flags.optimize, importlib.util.MAGIC_NUMBER)
    return "%s-%s.code" % (
        binding.cache_name(digest)[: -len(".zip")],
        hashlib.sha256(about.encode("utf-8")).hexdigest()[:16],
    )


def compile_all(archive):
    """(version of the binding, code objects by member) of the verified ARCHIVE."""
    version = json.loads(binding.members(archive, "manifest.json")["manifest.json"].decode("utf-8"))["version"]
    code = {}
    for member, source in binding.members(archive, ".py").items():
        code[member] = compile(source, "<shipped %s>" % (member,), "exec", dont_inherit=True)
    return version, code


def pack(name, version, code):
    body = marshal.dumps((version, code))
    return MARK + _seal(name, body) + body


def unpack(name, data):
    """(version, code objects) of what PACK made under the same NAME, or None."""
    start = len(MARK) + DIGEST_BYTES
    body = data[start:]
    if data[:start] != MARK + _seal(name, body):
        return None
    # Our own directory, our own file, and whole.
    return marshal.loads(body)


def _seal(name, body):
    """Over the name, too: the code of one archive or interpreter is never taken for that of another."""
    return hashlib.sha256(name.encode("ascii") + b"\n" + body).digest()


def start_runtime(digest, archive, directory=None):
    """(Runtime, warning or None) of the verified ARCHIVE.

    Without a cache DIRECTORY its code is compiled and not kept.
    """
    if directory is None:
        return Runtime(digest, *compile_all(archive)), None
    name = code_name(digest)
    data, warning = binding.find(directory, name)
    if data is not None:
        found = unpack(name, data)
        if found is not None:
            return Runtime(digest, *found), warning
        warning = "compiled NVML binding %s/%s is not used: it is damaged; it is made again" % (directory, name)
    version, code = compile_all(archive)
    return Runtime(digest, version, code), binding.keep(directory, name, pack(name, version, code)) or warning
