# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A user-space library's version, by the versioned file that the package installed."""

from __future__ import annotations

import glob
import os
import re

from .._node import files

VERSIONED = r"^%s\.so\.(?P<version>\d{3}\.\d+(?:\.\d+)?)$"
PLACES = (
    "/usr/lib/*/nvidia/*",
    "/usr/lib/*/nvidia",
    "/usr/lib/*",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/lib/nvidia*",
    "/usr/local/lib",
    "/usr/local/lib64",
)


def read(root, name="libnvidia-ml"):
    """``{"version", "path", "candidates"}``; version is None with no candidate, or with several that no link decides.

    A library without a version in its name (a stand-in, a stub) says nothing: the version is the file's that the
    package installed, so that a library that shadows another does not hide what is installed.
    """
    candidates = find(root, name)
    found = sorted(set(candidates.values()))
    if len(found) == 1:
        path = sorted(path for path, version in candidates.items() if version == found[0])[0]
        return {"version": found[0], "path": path, "candidates": sorted(candidates)}
    linked = linked_version(root, name, candidates)
    path = sorted(path for path, version in candidates.items() if version == linked)[0] if linked else None
    return {"version": linked, "path": path, "candidates": sorted(candidates)}


def find(root, library):
    """Real files by their version: ``{path: version}``."""
    found = {}
    versioned = re.compile(VERSIONED % re.escape(library))
    for directory in library_dirs(root):
        for name in files.listing(files.under(root, directory)) or []:
            match = versioned.match(name)
            real = files.resolve(root, os.path.join(directory, name)) if match else None
            if real and os.path.isfile(files.under(root, real)):
                found[real] = match.group("version")
    return found


def library_dirs(root):
    """Directories of the loader's configuration and the usual places that exist."""
    patterns = list(PLACES)
    conf = files.under(root, "/etc/ld.so.conf.d")
    for name in files.listing(conf) or []:
        for line in (files.read_text(os.path.join(conf, name)) or "").splitlines():
            if line.startswith("/"):
                patterns.append(line.strip())
    found = []
    for pattern in patterns:
        for path in sorted(glob.glob(files.under(root, pattern))):
            directory = "/" + os.path.relpath(path, root)
            if os.path.isdir(path) and directory not in found:
                found.append(directory)
    return found


def linked_version(root, library, candidates):
    """The version that its ``.so.1`` leads to, when every such link leads to the same one."""
    versions = set()
    for directory in library_dirs(root):
        real = files.resolve(root, os.path.join(directory, "%s.so.1" % library))
        if real in candidates:
            versions.add(candidates[real])
    return versions.pop() if len(versions) == 1 else None
