# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The identity of this machine beside its name: the ids of its system and of its boot, the serial number of its board,
and its GPUs.
"""

from __future__ import annotations

import os
import re

from . import files

BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MACHINE_ID = re.compile(r"[0-9a-f]{32}")
GPU_LINE = re.compile(r"^GPU UUID:\s*(\S+)\s*$", re.M)
UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# What boards say that were given no serial number.
NONE = (
    "",
    "none",
    "default string",
    "not specified",
    "not available",
    "not applicable",
    "n/a",
    "na",
    "unknown",
    "system serial number",
    "base board serial number",
    "to be filled by o.e.m.",
    "to be filled by o.e.m",
    "serial number",
    "empty",
    "oem",
)


def read_identity(root) -> dict:
    """``{"machine_id": str|None, "board_serial": str|None, "gpus": [UUID, ...]|None}``; None is what cannot be read or
    says nothing.
    """
    machine = (files.read_line(files.under(root, "/etc/machine-id")) or "").lower()
    serial = " ".join((files.read_line(files.under(root, "/sys/class/dmi/id/board_serial")) or "").split())
    return {
        "machine_id": machine if MACHINE_ID.fullmatch(machine) and len(set(machine)) > 1 else None,
        "board_serial": serial if says_something(serial) else None,
        "gpus": gpus(files.under(root, "/proc/driver/nvidia/gpus")),
    }


def read_boot_id(root: str = "/") -> str | None:
    """Return the id of the running kernel's boot (random(4)); None where it cannot be read, or is none."""
    value = files.read_line(files.under(root, "/proc/sys/kernel/random/boot_id"))
    return value if value and BOOT_ID.fullmatch(value) else None


def says_something(serial) -> bool:
    """Tell if a text is a serial number, and not a placeholder for one."""
    plain = re.sub(r"[^0-9a-zA-Z]", "", serial)
    return (
        serial.lower() not in NONE
        and len(set(plain)) > 1
        and not "0123456789".startswith(plain)
        and not "123456789".startswith(plain)
    )


def gpus(base) -> list[str] | None:
    """UUIDs of the GPUs as the loaded driver tells them without NVML; None unless it tells them of all."""
    names = files.listing(base)
    if not names:
        return None
    found = []
    for name in names:
        told = GPU_LINE.search(files.read_text(os.path.join(base, name, "information"), 65536) or "")
        if not told or not UUID.fullmatch(told.group(1)):
            return None
        found.append(told.group(1).lower().replace("gpu-", "GPU-"))
    return sorted(found)
