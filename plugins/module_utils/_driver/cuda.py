# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the driver's libcuda and the CUDA toolkits of the node."""

from __future__ import annotations

import json
import os
import re

from .._node import files
from . import libraries

VERSION = re.compile(r"(\d+\.\d+(?:\.\d+)?)")
COMPAT = re.compile(r"^libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
# Where distributions and NVIDIA's packages keep a toolkit.
TOOLKITS = re.compile(r"^cuda(-\d+(\.\d+)?)?$")
PLACES = ("/usr/local", "/opt", "/usr/lib")


def libcuda(root):
    """``{"path", "version", "candidates"}`` of the driver's libcuda; path and candidates are empty where there is
    none.
    """
    return libraries.read(root, "libcuda")


def toolkits(root):
    """``[{"path", "version", "compat"}]`` of the installed CUDA toolkits; None when the places cannot be listed.

    ``compat`` is the driver version of the forward compatibility library that lies in the toolkit, if there is one.
    """
    found, seen = [], set()
    for place in PLACES:
        base = files.under(root, place)
        names = files.listing(base)
        if names is None:
            if os.path.lexists(base):
                return None
            continue
        for name in names:
            path = files.resolve(root, "%s/%s" % (place, name)) if TOOLKITS.match(name) else None
            if path and path not in seen and os.path.isdir(files.under(root, path)):
                seen.add(path)
                is_one, version = version_of(root, path)
                if is_one:
                    found.append({"path": path, "version": version, "compat": compat(root, path)})
    return found


def version_of(root, path):
    """(whether this is a toolkit, its version or None): by version.json, by the older version.txt, else by nvcc and the
    directory's name.
    """
    content = files.read_text(files.under(root, path, "version.json"))
    if content is not None:
        try:
            value = json.loads(content)["cuda"]["version"]
        except (ValueError, KeyError, TypeError):
            return True, None
        return True, value if isinstance(value, str) and VERSION.match(value) else None
    content = files.read_text(files.under(root, path, "version.txt"))
    if content is not None:
        found = VERSION.search(content)
        return True, found.group(1) if found else None
    named = VERSION.search(os.path.basename(path))
    if compat(root, path) is not None or os.path.exists(files.under(root, path, "bin/nvcc")):
        return True, named.group(1) if named else None
    return False, None


def compat(root, path):
    versions = sorted(
        match.group(1) for match in map(COMPAT.match, files.listing(files.under(root, path, "compat")) or []) if match
    )
    return versions[-1] if versions else None
