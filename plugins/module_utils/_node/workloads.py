# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what the containers on the node require of the driver: NVIDIA_REQUIRE_* of their processes."""

from __future__ import annotations

from . import files
from .holders import unit

PREFIX = "NVIDIA_REQUIRE_"
NO_DEVICES = ("", "void", "none")


def read(root="/"):
    """``[{"workload", "require": [text]}]``, one for every container; None when /proc cannot be listed.

    A container that is given no GPU, or that says NVIDIA_DISABLE_REQUIRE, requires nothing.
    """
    proc = files.under(root, "/proc")
    names = files.listing(proc)
    if names is None:
        return None
    found = {}
    for pid in sorted(int(name) for name in names if name.isdigit()):
        requirements = required(environment(files.read_text("%s/%d/environ" % (proc, pid)) or ""))
        if not requirements:
            continue
        group = files.read_line("%s/%d/cgroup" % (proc, pid)) or "pid %d" % pid
        known = found.setdefault(
            (group, tuple(requirements)), {"pids": [], "require": requirements, "comm": None, "unit": unit(proc, pid)}
        )
        known["pids"].append(pid)
        known["comm"] = known["comm"] or files.read_line("%s/%d/comm" % (proc, pid))
    return [
        {"workload": in_words(item), "require": item["require"]}
        for item in sorted(found.values(), key=lambda item: item["pids"])
    ]


def environment(text):
    return dict(part.split("=", 1) for part in text.split("\0") if "=" in part)


def required(variables):
    if variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true", "yes"):
        return []
    if variables.get("NVIDIA_VISIBLE_DEVICES", "void").strip() in NO_DEVICES:
        return []
    return [value for name, value in sorted(variables.items()) if name.startswith(PREFIX) and value.strip()]


def in_words(item):
    return "the container of %s (pid %d%s)" % (
        item["comm"] or "an unnamed process",
        item["pids"][0],
        ", %s" % item["unit"] if item["unit"] else "",
    )
