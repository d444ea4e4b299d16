# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel of the host has to allow while there are machines, and its values before, put back with the last of
them.
"""

from __future__ import annotations

from pathlib import Path

from .common import read_json, write_json

# The least each must be. Every systemd takes a dozen of inotify's instances (inotify(7)), and the kernel's default of
# 128 is used up by ten machines.
LEAST = {"net/ipv4/ip_forward": 1, "fs/inotify/max_user_instances": 4096}
RECORD = "host.json"


def allow(registry: Path, proc: Path = Path("/proc/sys")) -> None:
    """Raise what is lower; the values before are on disk first."""
    for name, least in LEAST.items():
        path = proc / name
        before = int(path.read_text(encoding="ascii"))
        if before < least:
            write_json(registry / RECORD, {name: before, **read_json(registry / RECORD, {})})
            path.write_text(f"{least}\n", encoding="ascii")


def restore(registry: Path, proc: Path = Path("/proc/sys")) -> None:
    """Put back what was raised, unless somebody has changed it since."""
    for name, before in read_json(registry / RECORD, {}).items():
        path = proc / name
        if int(path.read_text(encoding="ascii")) == LEAST.get(name):
            path.write_text(f"{before}\n", encoding="ascii")
    (registry / RECORD).unlink(missing_ok=True)
