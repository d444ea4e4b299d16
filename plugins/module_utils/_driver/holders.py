# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to the collection: it may change at any time.

"""Processes that hold the GPU: what has /dev/nvidia* open or mapped."""

from __future__ import annotations

import os
import pwd
import re

from . import files

DEVICE = re.compile(r"^/dev/nvidia[\w-]*(/.*)?$")


def read(root="/"):
    """``[{pid, user, comm, unit, devices}]``; None when /proc cannot be listed."""
    proc = files.under(root, "/proc")
    names = files.listing(proc)
    if names is None:
        return None
    found = []
    for pid in sorted(int(name) for name in names if name.isdigit()):
        devices = sorted(opened(proc, pid) | mapped(proc, pid))
        if devices:
            found.append(
                {"pid": pid, "user": user(proc, pid), "comm": files.read_line("%s/%d/comm" % (proc, pid)), "unit": unit(proc, pid), "devices": devices}
            )
    return found


def opened(proc, pid):
    directory = "%s/%d/fd" % (proc, pid)
    found = set()
    for name in files.listing(directory) or []:
        try:
            target = os.readlink(os.path.join(directory, name))
        except OSError:
            continue  # closed since it was listed
        if DEVICE.match(target):
            found.add(target)
    return found


def mapped(proc, pid):
    content = files.read_text("%s/%d/maps" % (proc, pid)) or ""
    paths = (line.split(None, 5)[5] for line in content.splitlines() if "/dev/nvidia" in line and len(line.split(None, 5)) == 6)
    return set(path for path in paths if DEVICE.match(path))


def user(proc, pid):
    found = re.search(r"^Uid:\s+(\d+)", files.read_text("%s/%d/status" % (proc, pid)) or "", re.M)
    if not found:
        return None
    try:
        return pwd.getpwuid(int(found.group(1))).pw_name
    except KeyError:
        return found.group(1)


def unit(proc, pid):
    """The systemd unit of a process by its control group, or None."""
    for line in (files.read_text("%s/%d/cgroup" % (proc, pid)) or "").splitlines():
        path = line.split(":", 2)[-1]
        units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
        if units:
            return units[-1]
    return None
