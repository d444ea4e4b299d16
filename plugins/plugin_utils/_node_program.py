# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program gpufleet-node, built on the controller: one zip of this collection's code and tables and the NVML binding
that Python runs as it is.
"""

from __future__ import annotations

import collections
import hashlib

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding

PARENT = "gpufleet_node"
PACKAGES = ("_node", "_kernel", "_dkms", "_packages", "_driver", "_nvml", "_mig", "_health", "_program")
# What the judges of a node's health look up, and the node's own series.
TABLES = ("boards.json", "node_series.json", "sxid.json", "xid.json")
ENTRY = "import sys\n\nfrom %s._program import main\n\nsys.exit(main.run())\n" % (PARENT,)

Program = collections.namedtuple("Program", ["data", "sha256", "binding_version"])


def build():
    """The program. BindingError where the controller has no binding: a node has no network to get one at boot.

    The same code and binding give the same bytes, on any day and machine with the same zlib.
    """
    source, version = _binding.find()
    members = {"__main__.py": ENTRY.encode("ascii"), PARENT + "/__init__.py": b"", "pynvml.py": source}
    members.update(("%s/%s" % (PARENT, name), content) for name, content in _binding.code_files(PACKAGES).items())
    members.update(
        ("%s/data/%s" % (PARENT, name), content)
        for name, content in _binding.files(_binding.DATA_DIRECTORY, ".json").items()
        if name in TABLES
    )
    data = _binding.pack(members)
    return Program(data, hashlib.sha256(data).hexdigest(), version)
