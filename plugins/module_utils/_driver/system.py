# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node around the GPUs, outside NVML and beside the driver's own audit (schema gpufleet.system/1).

Everything is only looked at. None always means that something could not be read, [] and {} that it was read and is
empty.
"""

from __future__ import annotations

import os

from .._kernel import loaded
from .._node import cdi, device_nodes, files, hung, identity, infiniband, pcilink, switch_managers, units
from .._node.runner import Runner
from . import driver_files

SCHEMA = "gpufleet.system/1"
# An installation of the driver writes its archives, its packages, the DKMS build, the kernel modules and the initrd.
CHANGE_PATHS = ("/var/cache", "/usr", "/var/lib/dkms", "/lib/modules", "/boot")


def read(root="/", runner=None, statvfs=os.statvfs) -> dict:
    runner = runner or Runner()
    links, switches = pcilink.read_links(root)
    return {
        "schema": SCHEMA,
        "boot_id": identity.read_boot_id(root),
        "uptime_s": loaded.read_uptime(root),
        "units": units.read_units(runner),
        "modules": loaded.read_modules(root),
        "taint": loaded.read_taint(root),
        "device_nodes": device_nodes.read_device_nodes(root),
        "device_numbers": device_nodes.numbers(root),
        "device_params": device_nodes.read_wanted_mode(root),
        "pci": links,
        "nvswitches": switches,
        "nvlink_managers": switch_managers.read_managers(root),
        "nvlsm": switch_managers.subnet_manager(root),
        "infiniband": infiniband.read_ports(root),
        "hung_tasks": hung.read_hung_tasks(root),
        "filesystems": dict((path, files.read_filesystem(root, path, statvfs)) for path in CHANGE_PATHS),
        "cdi": cdi.read(root),
        "libcuda": driver_files.read_libcuda(root),
        "toolkit": driver_files.read_toolkits(root),
        "fabricmanager": driver_files.read_daemon(root, runner, "nv-fabricmanager"),
        "imex": driver_files.read_daemon(root, runner, "nvidia-imex"),
        "persistenced": {"present": driver_files.find_program(root, "nvidia-persistenced") is not None},
    }
