# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The running kernel: its uptime and taint, its loaded modules, the driver among them, and what hangs on that."""

from __future__ import annotations

import os
import re

from .._node import files


def read_uptime(root) -> float | None:
    """Seconds since the boot, or None."""
    value = (files.read_line(files.under(root, "/proc/uptime")) or "").partition(" ")[0]
    return float(value) if re.match(r"^\d+(\.\d+)?$", value) else None


def read_taint(root) -> int | None:
    """The bits of /proc/sys/kernel/tainted as a number, or None."""
    value = files.read_line(files.under(root, "/proc/sys/kernel/tainted"))
    return int(value) if value and value.isdigit() else None


def read_modules(root) -> list[str] | None:
    """Names of the loaded modules; None when neither /sys/module nor /proc/modules can be read.

    Below /sys/module a module that was loaded has a file ``initstate``; what is built into the kernel has none.
    """
    base = files.under(root, "/sys/module")
    names = files.listing(base)
    if names is not None:
        return [name for name in names if os.path.exists(os.path.join(base, name, "initstate"))]
    content = files.read_text(files.under(root, "/proc/modules"))
    if content is None:
        return None
    return sorted(line.split(" ", 1)[0] for line in content.splitlines() if line.strip())


BANNER = re.compile(r"NVRM version:\s+(?P<what>.*?)\s+(?P<version>\d{3}\.\d+(?:\.\d+)?)\s")

# The driver's own modules, as the kernel calls them when they are loaded.
UVM = "nvidia_uvm"
DRIVER_MODULES = ("nvidia", "nvidia_modeset", "nvidia_drm", UVM, "nvidia_peermem")


def read_driver(root) -> dict:
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


def read_sources(module_root, names) -> dict[str, str]:
    """The kernel's digest of the source of every loaded module of the driver; a module without one is left out."""
    found = dict(
        (name, files.read_line(os.path.join(module_root, name, "srcversion")))
        for name in DRIVER_MODULES
        if name in (names or [])
    )
    return dict((name, value) for name, value in found.items() if value)


def read_compute_users(module_root, names) -> int | None:
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


def parse_banner(content) -> dict:
    """The first line of /proc/driver/nvidia/version: version, and whether it is the open kernel module."""
    found = BANNER.search(content)
    if not found:
        return {"version": None, "flavour": None}
    return {
        "version": found.group("version"),
        "flavour": "open" if "Open Kernel Module" in found.group("what") else "proprietary",
    }


def read_nouveau(root, names) -> bool | None:
    """True or False; None when neither /sys/module nor /proc/modules can be read."""
    if names is not None:
        return "nouveau" in names
    content = files.read_text(files.under(root, "/proc/modules"))
    if content is None:
        return None
    return any(line.split(" ", 1)[0] == "nouveau" for line in content.splitlines())


MAIN_MODULE = "nvidia"
# Modules that can be unloaded and loaded again, in the order in which they go where none of them uses another.
KNOWN_MODULES = (
    "nvidia_fs",
    "gdrdrv",
    "nv_peer_mem",
    "nvidia_peermem",
    "nvidia_uvm",
    "nvidia_drm",
    "nvidia_modeset",
    MAIN_MODULE,
)


def read_references(root="/") -> dict[str, dict] | None:
    """``{module: {"refcnt": int|None, "holders": [modules that use it]|None}}``: nvidia, and all that use it, however
    far away.

    Empty when nvidia is not loaded, None when /sys/module cannot be listed.
    """
    base = files.under(root, "/sys/module")
    names = files.listing(base)
    if names is None:
        return None
    found = {}
    due = [
        name
        for name in KNOWN_MODULES
        if name in names and (name == MAIN_MODULE or files.read_line("%s/%s/initstate" % (base, name)) is not None)
    ]
    while due:
        name = due.pop()
        if name in found:
            continue
        count = files.read_line("%s/%s/refcnt" % (base, name))
        holders = files.listing("%s/%s/holders" % (base, name))
        found[name] = {"refcnt": int(count) if count and count.lstrip("-").isdigit() else None, "holders": holders}
        due += holders or []
    return found


def find_unknown(table) -> list[str]:
    """Modules whose count or users could not be read."""
    return sorted(name for name, item in table.items() if item["refcnt"] is None or item["holders"] is None)


def find_foreign(table) -> dict[str, list]:
    """``{module: [what it uses]}`` of modules that are not known to come back when they are unloaded."""
    found = {}
    for name in sorted(table):
        if name not in KNOWN_MODULES:
            found[name] = sorted(other for other, item in table.items() if name in (item["holders"] or []))
    return found


def find_unexplained(table) -> dict[str, int]:
    """``{module: count}`` of references that no other module holds: processes, or something in the kernel such as a
    console.
    """
    return dict(
        (name, item["refcnt"] - len(item["holders"]))
        for name, item in sorted(table.items())
        if item["refcnt"] is not None and item["holders"] is not None and item["refcnt"] > len(item["holders"])
    )


def order_unloading(table) -> list[str] | None:
    """All modules, users before what they use; None when they use each other."""
    left, found = dict((name, set(item["holders"] or []) & set(table)) for name, item in table.items()), []
    while left:
        free = [name for name, users in left.items() if not users - set(found)]
        if not free:
            return None
        chosen = min(free, key=lambda name: (KNOWN_MODULES.index(name) if name in KNOWN_MODULES else -1, name))
        found.append(chosen)
        del left[chosen]
    return found
