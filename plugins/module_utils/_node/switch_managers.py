# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The adapters through which a node manages its NVLink 5 switches, and the NVLink Subnet Manager (nvlsm) that works
through them.

Boards such as HGX B200 have no NVSwitch on the PCI bus. Their switches are managed through InfiniBand adapters whose
vital product data (VPD) says ``SW_MNG``. The PCI bus tells it also while no kernel module has made an InfiniBand device
of them.
"""

from __future__ import annotations

import os

from . import files, proc_tasks

VENDOR = "0x15b3"
# An InfiniBand or an Ethernet controller: the class follows the type of the adapter's link.
CLASSES = ("0x0207", "0x0200")
MARK = "SW_MNG"
VPD_BYTES = 32768
PROGRAM = "nvlsm"
PLACES = ("/opt/nvidia/nvlsm/sbin", "/usr/sbin", "/usr/bin")


def read_managers(root) -> dict[str, list] | None:
    """``{"found": [{"address", "device"}], "unread": [address]}``; None when the bus cannot be listed.

    ``unread`` are adapters whose VPD is there and cannot be read. One that has no VPD manages no switch.
    """
    base = files.under(root, "/sys/bus/pci/devices")
    names = files.listing(base)
    if names is None:
        return None
    found, unread = [], []
    for name in names:
        path = os.path.join(base, name)
        if files.read_line(os.path.join(path, "vendor")) != VENDOR or not (
            files.read_line(os.path.join(path, "class")) or ""
        ).startswith(CLASSES):
            continue
        vpd = os.path.join(path, "vpd")
        content = files.read_text(vpd, VPD_BYTES)
        if content is None and os.path.lexists(vpd):
            unread.append(name)
        elif MARK in (content or ""):
            found.append({"address": name, "device": files.read_line(os.path.join(path, "device"))})
    return {"found": found, "unread": unread}


def subnet_manager(root) -> dict:
    """``{"present": bool, "running": bool|None}`` of nvlsm; ``running`` is None when the processes cannot be listed."""
    present = any(os.path.isfile(files.under(root, place, PROGRAM)) for place in PLACES)
    proc = files.under(root, "/proc")
    names = files.listing(proc)
    if names is None:
        return {"present": present, "running": None}
    return {
        "present": present,
        "running": any(
            files.read_line(os.path.join(proc, name, "comm")) == PROGRAM and proc_tasks.users(proc, name) == {0}
            for name in names
            if name.isdigit()
        ),
    }
