# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi topo -m and nvlink -s and -e: how the GPUs are connected."""

from __future__ import annotations

import ctypes

from . import nvml as n
from .fields import ask

LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
GPU_TYPE, SWITCH_TYPE = 0, 2
LEGEND = (
    ("X", "Self"),
    ("SYS", "Connection over PCIe and between NUMA nodes"),
    ("NODE", "Connection over PCIe within a NUMA node"),
    ("PHB", "Connection over PCIe and one host bridge"),
    ("PXB", "Connection over several PCIe bridges"),
    ("PIX", "Connection over one PCIe bridge at most"),
    ("NV#", "Connection over # NVLinks"),
)


def links(nvml: n.Nvml, handle) -> list[int]:
    """The numbers of a GPU's NVLinks; a board without any ends with the code for that."""
    nvml.number("nvmlDeviceGetNvLinkState", handle, 0)
    return list(range(nvml.field(handle, 91)))


def _peers(nvml: n.Nvml, handle) -> tuple[int, dict[str, int]]:
    """How many links lead to a switch, and how many to each address."""
    switched, direct = 0, {}
    try:
        numbers = links(nvml, handle)
    except n.NvmlError:
        return 0, {}
    for link in numbers:
        try:
            kind = nvml.number("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            if kind == SWITCH_TYPE:
                switched += 1
            else:
                address = (
                    nvml.unpacked("@16s5I32s", "nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, link)[-1]
                    .split(b"\0")[0]
                    .decode()
                )
                direct[address] = direct.get(address, 0) + 1
        except n.NvmlError:
            continue
    return switched, direct


def _ranges(mask: list[int]) -> str:
    """0-3,8: the numbers of the bits that are set."""
    bits = [index * 64 + bit for index, word in enumerate(mask) for bit in range(64) if word >> bit & 1]
    parts: list[list[int]] = []
    for bit in bits:
        if parts and parts[-1][1] == bit - 1:
            parts[-1][1] = bit
        else:
            parts.append([bit, bit])
    return ",".join(str(low) if low == high else "%d-%d" % (low, high) for low, high in parts)


def _mask(nvml: n.Nvml, name: str, handle, *arguments: int) -> str:
    words = (ctypes.c_ulong * 16)()
    try:
        nvml.call(name, handle, 16, words, *arguments)
    except n.NvmlError:
        return "N/A"
    return _ranges(list(words))


def matrix(nvml: n.Nvml, handles: list) -> str:
    """One row and one column for each GPU."""
    names = ["GPU%s" % ask("index", nvml, handle) for handle in handles]
    peers = [_peers(nvml, handle) for handle in handles]
    addresses = [nvml.pci(handle)["address"] for handle in handles]
    rows = ["\t\x1b[4m%s\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m" % "\t".join(names)]
    for row, handle in enumerate(handles):
        cells = []
        for column, other in enumerate(handles):
            bonded = min(peers[row][0], peers[column][0]) or peers[row][1].get(addresses[column], 0)
            if row == column:
                cells.append(" X ")
            elif bonded:
                cells.append("NV%d" % bonded)
            else:
                cells.append(LEVELS.get(nvml.number("nvmlDeviceGetTopologyCommonAncestor", handle, other), "SYS"))
        cells += [
            _mask(nvml, "nvmlDeviceGetCpuAffinity", handle),
            _mask(nvml, "nvmlDeviceGetMemoryAffinity", handle, 0),
            "",
            "N/A",
        ]
        rows.append("\t".join([names[row], *cells]))
    return "\n".join([*rows, "", "Legend:", "", *("  %-4s = %s" % line for line in LEGEND)]) + "\n"


def _each(nvml: n.Nvml, handles: list, line) -> str:
    lines = []
    for handle in handles:
        lines.append(
            "GPU %s: %s (UUID: %s)" % (ask("index", nvml, handle), ask("name", nvml, handle), ask("uuid", nvml, handle))
        )
        try:
            numbers = links(nvml, handle)
        except n.NvmlError as error:
            if error.code != n.NOT_SUPPORTED:
                raise
            lines.append("Device does not have or support Nvlink")
            continue
        if ask("mig.mode.current", nvml, handle) == "Enabled":
            lines.append("Nvlink queries are not supported for Devices in MIG mode")
            continue
        for number in numbers:
            lines += line(nvml, handle, number)
    return "\n".join(lines) + "\n"


def status(nvml: n.Nvml, handles: list) -> str:
    """The speed of each link, and which are inactive."""

    def line(nvml: n.Nvml, handle, link: int) -> list[str]:
        if not nvml.number("nvmlDeviceGetNvLinkState", handle, link):
            return ["\t Link %d: <inactive>" % link]
        return ["\t Link %d: %.5g GB/s" % (link, nvml.field(handle, 164, link) / 1000)]

    return _each(nvml, handles, line)


def errors(nvml: n.Nvml, handles: list) -> str:
    """The error counters of each link, up to NVLink 4."""

    def line(nvml: n.Nvml, handle, link: int) -> list[str]:
        lines = []
        for name, counter in (("Replay", 0), ("Recovery", 1), ("CRC", 3)):
            try:
                value = str(nvml.long("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter))
            except n.NvmlError:
                value = "N/A"
            lines.append("\t Link %d: %s Errors: %s" % (link, name, value))
        return [*lines, ""]

    return _each(nvml, handles, line)
