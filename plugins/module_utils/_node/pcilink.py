# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The PCI Express link of every NVIDIA device, its error counts, and the NVSwitches of the node."""

from __future__ import annotations

import os
import re

from . import files, pci

LINK = {
    "link_speed": "current_link_speed",
    "link_width": "current_link_width",
    "max_link_speed": "max_link_speed",
    "max_link_width": "max_link_width",
}
COUNTS = {
    "correctable": ("aer_dev_correctable", "TOTAL_ERR_COR"),
    "nonfatal": ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL"),
    "fatal": ("aer_dev_fatal", "TOTAL_ERR_FATAL"),
}
GPU_CLASS, BRIDGE_CLASS = "0x03", "0x0680"


def read_links(root) -> tuple[dict | None, list | None]:
    """``(links, switches)``: links by address, and the NVSwitches as a list; (None, None) when the bus cannot be
    listed.

    ``aer`` is {} for a device (or a kernel) that counts no errors, and None when its counts could not be read.
    ``upstream`` is the same for the port that the device hangs on, with that port's address.
    """
    base = files.under(root, "/sys/bus/pci/devices")
    names = files.listing(base)
    if names is None:
        return None, None
    links, switches = {}, []
    for name in names:
        path = os.path.join(base, name)
        if files.read_line(os.path.join(path, "vendor")) != pci.VENDOR:
            continue
        kind = files.read_line(os.path.join(path, "class")) or ""
        if kind.startswith(BRIDGE_CLASS):
            switches.append({"address": name, "device": files.read_line(os.path.join(path, "device"))})
        if kind.startswith((GPU_CLASS, BRIDGE_CLASS)):
            links[name] = describe(path)
    return links, switches


def describe(path) -> dict:
    answer = dict((ours, files.read_line(os.path.join(path, theirs)) or None) for ours, theirs in LINK.items())
    answer["aer"] = counts(path)
    parent = os.path.dirname(os.path.realpath(path))
    if re.match(r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", os.path.basename(parent)):
        answer["upstream"] = {"address": os.path.basename(parent), "aer": counts(parent)}
    else:
        answer["upstream"] = None
    return answer


def counts(path) -> dict[str, int] | None:
    """``{"correctable", "nonfatal", "fatal"}``; {} where there is no such counter, None where one cannot be read."""
    if not any(os.path.lexists(os.path.join(path, name)) for name, total in COUNTS.values()):
        return {} if files.listing(path) is not None else None
    answer = {}
    for ours, (name, total) in COUNTS.items():
        found = re.search(r"^%s (\d+)$" % total, files.read_text(os.path.join(path, name)) or "", re.M)
        if not found:
            return None
        answer[ours] = int(found.group(1))
    return answer
