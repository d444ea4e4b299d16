# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver that is loaded now."""

from __future__ import annotations

import os
import re

from .._node import files

BANNER = re.compile(r"NVRM version:\s+(?P<what>.*?)\s+(?P<version>\d{3}\.\d+(?:\.\d+)?)\s")

# The driver's own modules, as the kernel calls them when they are loaded.
UVM = "nvidia_uvm"
DRIVER_MODULES = ("nvidia", "nvidia_modeset", "nvidia_drm", UVM, "nvidia_peermem")


def read(root):
    """``{"state": loaded|not_loaded|unknown, "version", "flavour", "nouveau": bool|None, "sources": {module:
    srcversion}, "compute_users": int|None}``
    """
    module_root = files.under(root, "/sys/module")
    banner = files.read_text(files.under(root, "/proc/driver/nvidia/version"))
    version = files.read_line(os.path.join(module_root, "nvidia", "version"))
    parsed = parse_banner(banner or "")
    names = files.listing(module_root)
    if version or parsed["version"]:
        state = "loaded"
    elif banner is None and names is not None and "nvidia" not in names:
        state = "not_loaded"
    elif banner is None and names is None and files.listing(files.under(root, "/proc/driver")) is not None:
        state = "not_loaded"  # no /sys/module at all: /proc is the witness
    else:
        state = "unknown"
    return {
        "state": state,
        "version": version or parsed["version"],
        "flavour": parsed["flavour"] if banner else None,
        "disagree": bool(version and parsed["version"] and version != parsed["version"]),
        "nouveau": read_nouveau(root, names),
        "sources": read_sources(module_root, names),
        "compute_users": read_compute_users(module_root, names),
    }


def read_sources(module_root, names):
    """The kernel's digest of the source of every loaded module of the driver; a module without one is left out."""
    found = dict(
        (name, files.read_line(os.path.join(module_root, name, "srcversion")))
        for name in DRIVER_MODULES
        if name in (names or [])
    )
    return dict((name, value) for name, value in found.items() if value)


def read_compute_users(module_root, names):
    """Count how often processes have nvidia_uvm open, as every CUDA program has, and no service of the driver; None if
    unknown.
    """
    if names is None:
        return None
    if UVM not in names:
        return 0
    count = files.read_line(os.path.join(module_root, UVM, "refcnt")) or ""
    holders = files.listing(os.path.join(module_root, UVM, "holders")) or []
    return max(0, int(count) - len(holders)) if count.isdigit() else None


def parse_banner(content):
    """The first line of /proc/driver/nvidia/version: version, and whether it is the open kernel module."""
    found = BANNER.search(content)
    if not found:
        return {"version": None, "flavour": None}
    return {
        "version": found.group("version"),
        "flavour": "open" if "Open Kernel Module" in found.group("what") else "proprietary",
    }


def read_nouveau(root, names):
    """True or False; None when neither /sys/module nor /proc/modules can be read."""
    if names is not None:
        return "nouveau" in names
    content = files.read_text(files.under(root, "/proc/modules"))
    if content is None:
        return None
    return any(line.split(" ", 1)[0] == "nouveau" for line in content.splitlines())
