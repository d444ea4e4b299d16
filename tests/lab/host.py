# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel settings of the host that machines need: raised for the first lab, put back with the last."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .common import read_json, write_json

# Every systemd takes a dozen inotify instances (inotify(7)): ten machines use up the kernel's default of 128.
LEAST = {"fs/inotify/max_user_instances": 4096}
RECORD = "host.json"


def forwarding(device: str) -> str:
    """Return the setting that lets packets from one device be forwarded.

    net/ipv4/ip_forward sets it for every device, and accept_redirects too (inet_forward_change() in the kernel's
    net/ipv4/devinet.c): putting that back would not put those back.
    """
    return f"net/ipv4/conf/{device}/forwarding"


def allow(registry: Path, devices: Iterable[str], proc: Path = Path("/proc/sys")) -> None:
    """Raise what is lower. Each value before is on disk before it is changed, and the first one stays recorded."""
    for name, least in {**LEAST, **{forwarding(device): 1 for device in devices}}.items():
        path = proc / name
        before = int(path.read_text(encoding="ascii"))
        if before < least:
            write_json(registry / RECORD, {name: [before, least], **read_json(registry / RECORD, {})})
            path.write_text(f"{least}\n", encoding="ascii")


def restore(registry: Path, proc: Path = Path("/proc/sys")) -> None:
    """Put back what was raised, unless somebody has changed it since, or the device is gone."""
    for name, (before, least) in read_json(registry / RECORD, {}).items():
        path = proc / name
        if path.exists() and int(path.read_text(encoding="ascii")) == least:
            path.write_text(f"{before}\n", encoding="ascii")
    (registry / RECORD).unlink(missing_ok=True)
