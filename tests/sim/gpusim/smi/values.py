# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How nvidia-smi writes what NVML answers: units, names of states, and codes where there is no value."""

from __future__ import annotations

from . import nvml as n

BRANDS = {1: "Quadro", 2: "Tesla", 5: "GeForce", 14: "NVIDIA"}
ARCHITECTURES = {5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell"}
COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
VIRTUALIZATION = {0: "None", 1: "Pass-Through", 2: "VGPU", 3: "Host VGPU", 4: "Host VSGA"}
ADDRESSING = {0: "None", 1: "HMM", 2: "ATS"}
RECOVERY = {0: "None", 1: "Reset", 2: "Reboot", 3: "Drain P2P", 4: "Drain and Reset"}
FABRIC_STATES = {1: "Not Started", 2: "In Progress", 3: "Completed"}
FABRIC_HEALTH = {1: "Healthy", 2: "Unhealthy", 3: "Limited Capacity"}
# Bits of the event reasons, in the order in which they are written.
REASONS = (
    ("gpu_idle", 0x1),
    ("applications_clocks_setting", 0x2),
    ("sw_power_cap", 0x4),
    ("hw_slowdown", 0x8),
    ("hw_thermal_slowdown", 0x40),
    ("hw_power_brake_slowdown", 0x80),
    ("sync_boost", 0x10),
    ("sw_thermal_slowdown", 0x20),
    ("display_clocks_setting", 0x100),
)
# Two bits of the fabric's health mask for each: 1 it is so, 2 it is not.
FABRIC_BITS = (
    ("bandwidth", 0, "Degraded", "Full"),
    ("route_recovery_in_progress", 2, "True", "False"),
    ("route_unhealthy", 4, "True", "False"),
    ("access_timeout_recovery", 6, "True", "False"),
)
FABRIC_CONFIGURATION = {
    1: "None",
    2: "Incorrect SYSGUID",
    3: "Incorrect Chassis Serial Number",
    4: "No Partition",
    5: "Insufficient NVLinks",
}
NOTHING = "[N/A]"
CODES = {
    n.NOT_SUPPORTED: NOTHING,
    n.NO_FUNCTION: NOTHING,
    n.DEPRECATED: "[Requested functionality has been deprecated]",
    n.LOST: "[GPU is lost]",
    n.RESET_REQUIRED: "[GPU requires reset]",
    n.NO_PERMISSION: "[Insufficient Permissions]",
}


def failed(error: n.NvmlError) -> str:
    """What stands in place of a value."""
    return CODES.get(error.code, "[Unknown Error]")


def on(value: int) -> str:
    return "Enabled" if value else "Disabled"


def yes(value: int) -> str:
    return "Yes" if value else "No"


def mib(value: int) -> str:
    return "%d MiB" % (value >> 20)


def watt(value: int) -> str:
    return "%.2f W" % (value / 1000)


def mhz(value: int) -> str:
    return "%d MHz" % value


def percent(value: int) -> str:
    return "%d %%" % value


def active(mask: int, bit: int) -> str:
    return "Active" if mask & bit else "Not Active"


def named(names: dict[int, str], value: int) -> str:
    return names.get(value, "Unknown")


def fabric_state(fabric: dict) -> str:
    return FABRIC_STATES.get(fabric["state"], "N/A")


def fabric_status(nvml: n.Nvml, fabric: dict) -> str:
    """The result of what was tried, once it has come to its end."""
    return nvml.error(fabric["status"]) if fabric["state"] == 3 else "N/A"


def fabric_health(fabric: dict, name: str) -> str:
    if name == "summary":
        return FABRIC_HEALTH.get(fabric["summary"], "N/A")
    if name == "incorrect_configuration":
        return FABRIC_CONFIGURATION.get(fabric["mask"] >> 8 & 0xF, "N/A")
    for known, shift, bad, good in FABRIC_BITS:
        if known == name:
            return {1: bad, 2: good}.get(fabric["mask"] >> shift & 3, "N/A")
    raise KeyError(name)


def cluster(fabric: dict) -> str:
    digits = fabric["cluster"].hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def bare(value: str) -> str:
    """A value without the brackets of a list of fields."""
    return value[1:-1] if value.startswith("[") and value.endswith("]") else value
