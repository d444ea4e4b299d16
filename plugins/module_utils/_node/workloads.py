# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what the containers on the node require of the driver: NVIDIA_REQUIRE_* of their processes."""

from __future__ import annotations

import os
import re

from . import files, holders, proc_tasks

PREFIX = "NVIDIA_REQUIRE_"
NO_DEVICES = ("", "void", "none")
# The control group of a container as root's runtimes make them, by systemd and by themselves (cgroupfs).
CONTAINER = re.compile(
    r"(?:/[^/]+\.slice)*/(?:docker|cri-containerd|crio|libpod|nerdctl)-[0-9a-f]+\.scope(?=/|$)"
    r"|/(?:docker|kubepods|libpod_parent)(?:/[^/]+)*?/(?:\w+-)?[0-9a-f]{64}(?=/|$)"
    r"|/system\.slice/[^/]+\.service/[^/]+:[0-9a-f]{64}(?=/|$)"
)
MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")


def read_workloads(root="/") -> list[dict] | None:
    """``[{"workload", "require": [text]}]``, one for every container; None when /proc cannot be listed.

    Only a container that root's runtime started counts, by its control group, and of its processes the first: any user
    can set these variables. A container that is given no GPU, or that says NVIDIA_DISABLE_REQUIRE, requires nothing.
    """
    proc = files.under(root, "/proc")
    names = files.listing(proc)
    if names is None:
        return None
    containers = {}
    for pid in sorted(int(name) for name in names if name.isdigit()):
        place = next(filter(None, (container(root, path) for path in holders.groups(proc, pid))), None)
        if place:
            containers.setdefault(place, []).append(pid)
    found = []
    for pid in sorted(
        min(pids, key=lambda pid: (proc_tasks.inner_pid(proc, pid) != 1, pid)) for pids in containers.values()
    ):
        requirements = list_required_variables(environment(files.read_text("%s/%d/environ" % (proc, pid)) or ""))
        if requirements:
            found.append({"workload": in_words(proc, pid), "require": requirements})
    return found


def container(root, path) -> str | None:
    """The control group of the container that the control group PATH is in, None if it is in none of root's runtime."""
    found = CONTAINER.match(path)
    if not found or holders.is_of_user(path):
        return None
    above = os.path.dirname(found.group(0))
    for mount in MOUNTS:
        try:
            if os.stat(files.under(root, mount, above)).st_uid != 0:
                return None
        except OSError:
            continue  # another version of control groups, or the process has ended
    return found.group(0)


def environment(text) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split("\0") if "=" in part)


def list_required_variables(variables) -> list[str]:
    if variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true", "yes"):
        return []
    if variables.get("NVIDIA_VISIBLE_DEVICES", "void").strip() in NO_DEVICES:
        return []
    return [value for name, value in sorted(variables.items()) if name.startswith(PREFIX) and value.strip()]


def in_words(proc, pid) -> str:
    unit = holders.unit(proc, pid)
    return "the container of %s (pid %d%s)" % (
        files.read_line("%s/%d/comm" % (proc, pid)) or "an unnamed process",
        pid,
        ", %s" % unit if unit else "",
    )
