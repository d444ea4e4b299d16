# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA graphics processors on the PCI bus."""

from __future__ import annotations

import os

from . import files

VENDOR = "0x10de"


def read_devices(root) -> list[dict] | None:
    """Devices of vendor 10de and a display class; None when the bus cannot be listed."""
    base = files.under(root, "/sys/bus/pci/devices")
    names = files.listing(base)
    if names is None:
        return None
    found = []
    for name in names:
        vendor, kind, device = (
            files.read_line(os.path.join(base, name, item)) for item in ("vendor", "class", "device")
        )
        if vendor == VENDOR and (kind or "").startswith("0x03"):
            found.append({"address": name, "device": device, "class": kind})
    return found
