# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python code of the verified archive: compiled once for each interpreter, kept beside the archive, and imported
from memory.

The archive carries the binding and this package, so that a task sends neither of them a second time, and a node
compiles neither of them a second time. The archive is the truth; the compiled code is made of it. It is used only if it
lies in our own directory (which binding.open_cache guards), was made of this archive by this interpreter, and is whole.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import marshal
import sys
import types

from . import binding

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


def start(digest, archive, directory=None):
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
