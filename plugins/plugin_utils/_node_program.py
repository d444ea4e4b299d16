# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program gpufleet-node, built on the controller: one zip of this collection's code and tables and the NVML binding
that Python runs as it is.
"""

from __future__ import annotations

import collections
import hashlib
import io
import os
import typing as t
import zipfile

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding

PARENT = "gpufleet_node"
PACKAGES = ("_node", "_kernel", "_dkms", "_packages", "_driver", "_nvml", "_mig", "_health", "_program")
# What the judges of a node's health look up, and the node's own series.
TABLES = ("boards.json", "node_series.json", "sxid.json", "xid.json")
CODE_DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "module_utils")
ENTRY = "import sys\n\nfrom %s._program import main\n\nsys.exit(main.run())\n" % (PARENT,)

Program = collections.namedtuple("Program", ["data", "sha256", "binding_version"])


def build() -> Program:
    """Return the program. BindingError where the controller has no binding: a node has no network to get one at boot.

    The same code and binding give the same bytes, on any day and machine with the same zlib.
    """
    binding = _binding.find()
    members = {"__main__.py": ENTRY.encode("ascii"), PARENT + "/__init__.py": b"", "pynvml.py": binding.source}
    members.update(("%s/%s" % (PARENT, name), content) for name, content in code_files().items())
    members.update(
        ("%s/data/%s" % (PARENT, name), content)
        for name, content in read_files(_binding.DATA_DIRECTORY, ".json").items()
        if name in TABLES
    )
    data = pack(members)
    return Program(data, hashlib.sha256(data).hexdigest(), binding.version)


def read_files(directory: str, suffix: str) -> t.Dict[str, bytes]:
    """Return the contents of the files at any depth of DIRECTORY whose names end in SUFFIX, by their paths in it."""
    found = {}
    for place, dummy, names in os.walk(directory):
        for name in names:
            if name.endswith(suffix):
                path = os.path.join(place, name)
                with open(path, "rb") as stream:
                    found[os.path.relpath(path, directory).replace(os.sep, "/")] = stream.read()
    return found


def pack(members: t.Mapping[str, bytes]) -> bytes:
    """Return a zip with MEMBERS, contents by path. It has the same bytes on any day."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o100600 << 16
            archive.writestr(entry, members[name], compress_type=zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def code_files() -> t.Dict[str, bytes]:
    """Return the Python files of PACKAGES by their paths below module_utils."""
    found = {}
    for package in PACKAGES:
        found.update(
            ("%s/%s" % (package, name), content)
            for name, content in read_files(os.path.join(CODE_DIRECTORY, package), ".py").items()
        )
    return found
