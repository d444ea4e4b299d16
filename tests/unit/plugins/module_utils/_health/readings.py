# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings of a healthy node, to be broken by a test."""

from __future__ import annotations

import copy

DRIVER = "535.216.03"
KERNEL = "6.1.0-50-amd64"
NODE = "gpu-1"
NOW = "2026-03-01T12:00:00Z"
NOT_SUPPORTED = {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}


def value(content):
    return {"value": content, "rc": 0}


def failed(rc):
    return {"value": None, "rc": rc, "error": "CODE"}


def uuid(index):
    return "GPU-%08d" % index


def gpu(index):
    return {
        "index": index, "handle": value(True), "uuid": value(uuid(index)), "name": value("NVIDIA H100 80GB HBM3"),
        "pci_bus_id": value("00000000:%02x:00.0" % (0x1A + index)), "memory_total_bytes": value(85520809984), "bar1_total_bytes": value(137438953472),
        "ecc_mode_current": value(1), "ecc_mode_pending": value(1), "ecc_volatile_uncorrected": value(0), "ecc_aggregate_uncorrected": value(0),
        "remapped_rows": value({"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False}),
        "retired_pages_pending": dict(NOT_SUPPORTED), "recovery_action": dict(NOT_SUPPORTED), "power_limit_mw": value(700000),
        "mig_mode_current": value(0), "mig_mode_pending": value(0), "persistence_mode": value(1), "compute_mode": value(0),
        "nvlink_active": value([True] * 18),
    }


def snapshot(count=2, driver=DRIVER):
    return {
        "schema": "gpufleet.snapshot/1", "simulated": True, "status": "ok", "message": "", "binding": {"version": "1", "source": "shipped"},
        "nvml": {"rc": 0, "error": None},
        "system": {"driver_version": value(driver), "nvml_version": value("12." + driver), "cuda_driver_version": value("12.2")},
        "gpus": [gpu(index) for index in range(count)], "count": value(count), "duration_s": 0.1,
    }


def audit(count=2, driver=DRIVER):
    return {
        "schema": "gpufleet.audit/1",
        "kernel": {"running": KERNEL, "next_boot": KERNEL, "next_boot_source": "grub", "installed": [KERNEL]},
        "versions": {"wanted": driver, "loaded": driver, "library": driver, "modules": {KERNEL: {"version": driver}}},
        "pci": [{"address": "0000:%02x:00.0" % (0x1A + index), "device": "0x2330", "class": "0x030200"} for index in range(count)],
    }


def baseline(**change):
    document = {"schema": "gpufleet.baseline/1", "node": NODE, "boot_id": "b", "time": NOW, "snapshot": snapshot(), "audit": audit()}
    document.update(change)
    return copy.deepcopy(document)
