# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container runtimes of a node and the NVIDIA Container Toolkit, with their versions."""

from __future__ import annotations

import os
import re

from .._node import files

PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
TOOLKIT = "nvidia-ctk"
# Runtime: the program that says which version it is.
PROGRAMS = {"containerd": "containerd", "crio": "crio", "docker": "dockerd", "podman": "podman"}
VERSION = re.compile(r"(?<![\w.])v?(\d+\.\d+(?:\.\d+)?)")
ASK_S = 20


def program(root, name):
    """The path of a program below the root; None where there is none."""
    for place in PLACES:
        path = files.resolve(root, "%s/%s" % (place, name))
        if path and os.path.isfile(files.under(root, path)):
            return "%s/%s" % (place, name)
    return None


def version(root, runner, path):
    """Return the version in a program's output: the first number with dots; None without one."""
    rc, out, err = runner([files.under(root, path), "--version"], ASK_S)
    found = VERSION.search(out or err) if rc == 0 else None
    return found.group(1) if found else None


def read(root, runner):
    """``{"toolkit": {"path", "version"}|None, "runtimes": {name: {"path", "version"}}}``."""
    found = {}
    for name, binary in PROGRAMS.items():
        path = program(root, binary)
        if path:
            found[name] = {"path": path, "version": version(root, runner, path)}
    path = program(root, TOOLKIT)
    return {"toolkit": {"path": path, "version": version(root, runner, path)} if path else None, "runtimes": found}
