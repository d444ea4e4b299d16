# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings of a healthy node, to be broken by a test. Whoever adds a check adds the signals it reads here.

The document of each section is one function of its own: snapshot() with gpu(), audit(), system() and kernel_log().
"""

from __future__ import annotations

import copy

DRIVER = "535.216.03"
KERNEL = "6.1.0-50-amd64"
NODE = "gpu-1"
NOW = "2026-03-01T12:00:00Z"
NOT_SUPPORTED = {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}
# Half of what a board with NVSwitches has: without a baseline this has to be said.
EXPECT = {"hardware": {"gpus": 2}}


def value(content):
    return {"value": content, "rc": 0}


def failed(rc):
    return {"value": None, "rc": rc, "error": "CODE"}


def uuid(index):
    return "GPU-%08d" % index


def gpu(index):
    return {
        "index": index,
        "handle": value(True),
        "uuid": value(uuid(index)),
        "name": value("NVIDIA H100 80GB HBM3"),
        "pci_bus_id": value("00000000:%02x:00.0" % (0x1A + index)),
        "memory_total_bytes": value(85520809984),
        "bar1_total_bytes": value(137438953472),
        "ecc_mode_current": value(1),
        "ecc_mode_pending": value(1),
        "ecc_volatile_uncorrected": value(0),
        "ecc_aggregate_uncorrected": value(0),
        "remapped_rows": value({"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False}),
        "retired_pages_pending": dict(NOT_SUPPORTED),
        "recovery_action": dict(NOT_SUPPORTED),
        "power_limit_mw": value(700000),
        "mig_mode_current": value(0),
        "mig_mode_pending": value(0),
        "persistence_mode": value(1),
        "compute_mode": value(0),
        "nvlink_active": value([True] * 18),
        "serial": value("16540230%05d" % index),
        "minor_number": value(index),
        "architecture": value(9),
        "board_part_number": value("692-2G520-0200-000"),
        "pci_device_id": value("10de:2330"),
        "pci_subsystem_id": value("10de:16c1"),
        "vbios_version": value("96.00.74.00.01"),
        "inforom_image_version": value("G520.0200.00.05"),
        "inforom_config_checksum": value(3203338251),
        "inforom_valid": value(True),
        "gsp_firmware_version": value(DRIVER),
        "gsp_firmware_mode": value({"enabled": True, "default": True}),
        "ecc_volatile_corrected": value(0),
        "sram_ecc": value({"threshold_exceeded": False}),
        "remap_histogram": value({"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0}),
        "retired_pages": dict(NOT_SUPPORTED),
        "repair_status": dict(NOT_SUPPORTED),
        "memory_used_bytes": value(0),
        "memory_reserved_bytes": value(551550976),
        "compute_processes": value([]),
        "graphics_processes": value([]),
        "clocks_event_reasons": value(1),
        "clocks_max_mhz": value({"graphics": 1980, "sm": 1980, "mem": 2619, "video": 1545}),
        "applications_clocks_mhz": value({"graphics": 1980, "mem": 2619}),
        "applications_clocks_default_mhz": value({"graphics": 1980, "mem": 2619}),
        "temperature_gpu_c": value(33),
        "temperature_memory_c": value(42),
        "temperature_margin_c": dict(NOT_SUPPORTED),
        "temperature_limits_c": value({"slowdown": 89, "shutdown": 92, "gpu_max": 87, "memory_max": 95}),
        "power_limit_enforced_mw": value(700000),
        "power_limit_default_mw": value(700000),
        "pcie_gen_current": value(5),
        "pcie_gen_max": value(5),
        "pcie_gen_device_max": value(5),
        "pcie_width_current": value(16),
        "pcie_width_max": value(16),
        "pcie_replay_count": value(0),
        "nvlinks": value([nvlink(number) for number in range(18)]),
        "fabric": value(dict(FABRIC)),
        "mig_instances": value([]),
    }


FABRIC = {
    "state": 3,
    "status": 0,
    "clique_id": 0,
    "cluster_uuid": "0" * 32,
    "health_mask": None,
    "health_summary": None,
}


def nvlink(number):
    return {
        "link": number,
        "active": True,
        "version": 4,
        "remote_pci": "00000000:%02x:00.0" % (7 + number // 5),
        "remote_type": "switch",
        "errors": {"crc_flit": 0, "crc_data": 0, "replay": 0, "recovery": 0},
    }


def gpus(count):
    """GPUs that reach each other."""
    result = [gpu(index) for index in range(count)]
    for one in result:
        one["p2p"] = value(
            dict(
                (uuid(other), {"read": 0, "write": 0, "nvlink": 0, "atomics": 0})
                for other in range(count)
                if other != one["index"]
            )
        )
    return result


def snapshot(count=2, driver=DRIVER):
    return {
        "schema": "gpufleet.snapshot/1",
        "simulated": True,
        "status": "ok",
        "message": "",
        "binding": {"version": "1", "source": "shipped"},
        "nvml": {"rc": 0, "error": None},
        "system": {
            "driver_version": value(driver),
            "nvml_version": value("12." + driver),
            "cuda_driver_version": value("12.2"),
        },
        "gpus": gpus(count),
        "count": value(count),
        "duration_s": 0.1,
    }


def audit(count=2, driver=DRIVER):
    return {
        "schema": "gpufleet.audit/1",
        "kernel": {"running": KERNEL, "next_boot": KERNEL, "next_boot_source": "grub", "installed": [KERNEL]},
        "versions": {
            "wanted": driver,
            "loaded": driver,
            "library": driver,
            "modules": {KERNEL: {"version": driver}},
            "gsp_firmware": [driver],
            "packages": {"nvidia-kernel-dkms": driver + "-1", "nvidia-persistenced": "535.171.04-1"},
            "driver_packages": {"nvidia-kernel-dkms": driver},
        },
        "flavour": "proprietary",
        "nouveau_loaded": False,
        "secure_boot": "disabled",
        "reboot_safe": True,
        "reboot_safe_reason": "The module is on disk.",
        "findings": [
            {
                "id": "dkms_state",
                "entity": KERNEL,
                "status": "pass",
                "observed": {"nvidia-current": "installed"},
                "expected": "installed",
                "message": "",
                "next_step": "",
            }
        ],
        "pci": [
            {"address": "0000:%02x:00.0" % (0x1A + index), "device": "0x2330", "class": "0x030200"}
            for index in range(count)
        ],
    }


def pci_link(index):
    counts = {"correctable": 0, "nonfatal": 0, "fatal": 0}
    return {
        "link_speed": "32.0 GT/s PCIe",
        "link_width": "16",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
        "aer": dict(counts),
        "upstream": {"address": "0000:%02x:00.0" % (0x10 + index), "aer": dict(counts)},
    }


UNITS = (
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-dcgm.service",
    "nvidia-dcgm-exporter.service",
    "dcgm-exporter.service",
    "nvidia-mig-manager.service",
    "nvidia-cdi-refresh.service",
    "nvidia-powerd.service",
    "openibd.service",
)
RUNNING = {"load": "loaded", "active": "active", "sub": "running", "result": "success", "enabled": "enabled"}
NOT_INSTALLED = {"load": "not-found", "active": "inactive", "sub": "dead", "result": "success", "enabled": None}


def device_node(path, major, minor):
    return {"path": path, "kind": "char", "mode": "0666", "uid": 0, "gid": 0, "major": major, "minor": minor}


def system(driver=DRIVER):
    units = dict((name, dict(NOT_INSTALLED)) for name in UNITS)
    units.update((name, dict(RUNNING)) for name in UNITS[:2])
    nodes = [device_node("/dev/nvidia%d" % index, 195, index) for index in range(4)]
    nodes += [
        device_node("/dev/nvidiactl", 195, 255),
        device_node("/dev/nvidia-uvm", 508, 0),
        device_node("/dev/nvidia-uvm-tools", 508, 1),
    ]
    return {
        "schema": "gpufleet.system/1",
        "boot_id": "x",
        "uptime_s": 3600.0,
        "units": units,
        "modules": ["mlx5_ib", "nvidia", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm"],
        "taint": 12289,
        "device_nodes": nodes,
        "device_numbers": {"nvidia-frontend": 195, "nvidia-uvm": 508, "nvidia-caps": 234},
        "device_params": {"mode": "0666", "uid": 0, "gid": 0, "modify": True},
        "infiniband": {
            "mlx5_0/1": {
                "state": "ACTIVE",
                "phys_state": "LinkUp",
                "rate": "400 Gb/sec (4X NDR)",
                "link_layer": "InfiniBand",
                "link_downed": 0,
            }
        },
        "pci": dict(("0000:%02x:00.0" % (0x1A + index), pci_link(index)) for index in range(4)),
        "nvswitches": [{"address": "0000:07:00.0", "device": "0x22a3"}],
        "hung_tasks": [],
        "filesystems": dict(
            (path, {"device": 2049, "free": 1 << 50, "files": 1 << 30, "read_only": False})
            for path in ("/var/cache", "/usr", "/var/lib/dkms", "/lib/modules", "/boot")
        ),
        "cdi": {"specs": []},
        "nvlink_managers": {"found": [], "unread": []},
        "nvlsm": {"present": False, "running": False},
        "libcuda": {
            "path": "/usr/lib/x86_64-linux-gnu/libcuda.so." + driver,
            "version": driver,
            "candidates": ["/usr/lib/x86_64-linux-gnu/libcuda.so." + driver],
        },
        "toolkit": [],
        "fabricmanager": {"present": True, "version": driver},
        "imex": {"present": False, "version": None},
        "persistenced": {"present": True},
    }


def kernel_log(boot_id="x"):
    return {
        "schema": "gpufleet.kernel-log/1",
        "boot_id": boot_id,
        "source": "kmsg",
        "position": {"boot_id": boot_id, "seq": 1000, "monotonic_us": 60000000},
        "watermark": None,
        "complete": True,
        "events": [],
        "suppressed": [],
        "counted": {"events": 0, "suppressed": 0},
        "gpus": {},
        "since_us": 0,
        "read_at_us": 3600000000,
        "tail": [],
        "problem": "",
    }


def reading(nvml=None, state=None, **change):
    """A reading out of the sections given; the others are those of a healthy node."""
    document = {
        "schema": "gpufleet.reading/1",
        "boot_id": "x",
        "uptime_s": 3600.0,
        "problems": {},
        "snapshot": snapshot() if nvml is None else nvml,
        "audit": audit() if state is None else state,
        "system": system(),
        "kernel_log": kernel_log(),
    }
    document.update(change)
    return copy.deepcopy(document)


def baseline(**change):
    document = {
        "schema": "gpufleet.baseline/1",
        "node": NODE,
        "boot_id": "b",
        "time": NOW,
        "snapshot": snapshot(),
        "audit": audit(),
        "system": system(),
        "kernel_log": kernel_log("b"),
    }
    document.update(change)
    return copy.deepcopy(document)
