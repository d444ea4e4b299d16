# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi changes: persistence mode, MIG mode and power limit."""

from __future__ import annotations

import ctypes

from . import nvml as n
from . import values as v
from .usage import Usage


def check(command: str, value: str) -> None:
    """Refuse a value before the driver is asked."""
    if command == "pl":
        try:
            float(value)
        except ValueError:
            raise Usage("-pl takes watts.\n") from None
    elif value not in ("0", "1"):
        raise Usage("-%s takes 0 or 1.\n" % command)


def persistence(nvml: n.Nvml, handles: list, value: str) -> str:
    lines = []
    for handle in handles:
        nvml.call("nvmlDeviceSetPersistenceMode", handle, int(value))
        lines.append("%s persistence mode for GPU %s (simulated)." % (v.on(int(value)), nvml.pci(handle)["address"]))
    return "\n".join([*lines, "All done."]) + "\n"


def mig(nvml: n.Nvml, handles: list, value: str) -> str:
    lines = []
    for handle in handles:
        nvml.number("nvmlDeviceSetMigMode", handle, int(value), kind=ctypes.c_int)
        lines.append("%s MIG Mode for GPU %s (simulated)" % (v.on(int(value)), nvml.pci(handle)["address"]))
    return "\n".join([*lines, "All done."]) + "\n"


def power(nvml: n.Nvml, handles: list, value: str) -> str:
    lines = []
    for handle in handles:
        nvml.call("nvmlDeviceSetPowerManagementLimit", handle, int(float(value) * 1000))
        lines.append(
            "Power limit for GPU %s was set to %.2f W (simulated)." % (nvml.pci(handle)["address"], float(value))
        )
    return "\n".join([*lines, "All done."]) + "\n"
