# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loaded kernel modules that hang on the NVIDIA driver, and whether every reference to them is accounted for."""

from __future__ import annotations

from .._node import files

MAIN = "nvidia"
# Modules that can be unloaded and loaded again, in the order in which they go where none of them uses another.
KNOWN = ("nvidia_fs", "gdrdrv", "nv_peer_mem", "nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", MAIN)


def read(root="/"):
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
        for name in KNOWN
        if name in names and (name == MAIN or files.read_line("%s/%s/initstate" % (base, name)) is not None)
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


def unknown(table):
    """Modules whose count or users could not be read."""
    return sorted(name for name, item in table.items() if item["refcnt"] is None or item["holders"] is None)


def foreign(table):
    """``{module: [what it uses]}`` of modules that are not known to come back when they are unloaded."""
    found = {}
    for name in sorted(table):
        if name not in KNOWN:
            found[name] = sorted(other for other, item in table.items() if name in (item["holders"] or []))
    return found


def unexplained(table):
    """``{module: count}`` of references that no other module holds: processes, or something in the kernel such as a
    console.
    """
    return dict(
        (name, item["refcnt"] - len(item["holders"]))
        for name, item in sorted(table.items())
        if item["refcnt"] is not None and item["holders"] is not None and item["refcnt"] > len(item["holders"])
    )


def order(table):
    """All modules, users before what they use; None when they use each other."""
    left, found = dict((name, set(item["holders"] or []) & set(table)) for name, item in table.items()), []
    while left:
        free = [name for name, users in left.items() if not users - set(found)]
        if not free:
            return None
        chosen = min(free, key=lambda name: (KNOWN.index(name) if name in KNOWN else -1, name))
        found.append(chosen)
        del left[chosen]
    return found
