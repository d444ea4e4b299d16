# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container Device Interface: the files that tell container runtimes how to hand over GPUs.

nvidia-ctk writes YAML (or JSON), of which only single lines are looked at here: the standard library reads no YAML, and
the facts wanted are all on lines of their own.
"""

from __future__ import annotations

import os
import re

from . import files

DIRECTORIES = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
KIND = re.compile(r"""["']?kind["']?\s*:\s*["']?([A-Za-z0-9./_-]+)""")
NAME = re.compile(r"""["']?\bname["']?\s*:\s*["']?([A-Za-z0-9_.:-]+)""")
HOST_PATH = re.compile(r"""["']?(?:hostPath|path)["']?\s*:\s*["']?(/[^"'\s,}]+)""")
LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d+(?:\.\d+)?)$")


def read(root):
    """``{"specs": [{"path", "kind", "devices", "versions", "missing"}]}``; None when a directory is there and cannot be
    read.

    ``versions`` are the driver versions of the libraries that a file hands over, ``missing`` the paths that it hands
    over and that are not there. A file that cannot be read has None for all of them.
    """
    specs, seen = [], set()
    for directory in DIRECTORIES:
        where = files.resolve(root, directory)
        if where is None or where in seen:
            continue
        seen.add(where)
        names = files.listing(files.under(root, where))
        if names is None:
            return None
        specs += [
            describe(root, "%s/%s" % (where, name)) for name in names if name.endswith((".yaml", ".yml", ".json"))
        ]
    return {"specs": specs}


def describe(root, path):
    content = files.read_text(files.under(root, path))
    kind = KIND.search(content or "")
    if not kind:
        return {"path": path, "kind": None, "devices": None, "versions": None, "missing": None}
    paths = sorted(set(HOST_PATH.findall(content)))
    return {
        "path": path,
        "kind": kind.group(1),
        "devices": sorted(set(NAME.findall(content))),
        "versions": sorted(set(match.group(1) for match in map(LIBRARY.search, paths) if match)),
        "missing": [item for item in paths if not os.path.lexists(files.under(root, item))],
    }
