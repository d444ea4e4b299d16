# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of a snapshot as the tests of a reset take them: a whole one, and what is to be different."""

from __future__ import annotations

import copy

GPU = "GPU-%08d-0000-0000-0000-000000000000"
MIG = {
    "gpu_instance": 1,
    "compute_instance": 0,
    "uuid": "MIG-1",
    "name": "MIG 3g.40gb",
    "slices": 3,
    "compute_slices": 3,
    "memory_bytes": 1,
}


def ok(content):
    return {"value": content, "rc": 0}


def rc(code):
    return {"value": None, "rc": code, "error": "CODE_%d" % code}


def gpu(index=0, **different):
    """A healthy H100 that waits for nothing. A dict with "rc" is an answer of NVML, all else is a value."""
    found = {
        "index": index,
        "handle": ok(True),
        "uuid": ok(GPU % index),
        "pci_bus_id": ok("00000000:%02x:00.0" % (index + 16)),
        "minor_number": ok(index),
        "architecture": ok(9),
        "mig_mode_current": ok(0),
        "mig_mode_pending": ok(0),
        "ecc_mode_current": ok(1),
        "ecc_mode_pending": ok(1),
        "mig_instances": ok([]),
        "remapped_rows": ok({"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False}),
        "retired_pages_pending": rc(3),
        "repair_status": rc(3),
        "recovery_action": ok(0),
        "persistence_mode": ok(0),
        "nvlinks": rc(3),
        "ecc_volatile_corrected": ok(0),
        "ecc_volatile_uncorrected": ok(0),
    }
    for key, content in different.items():
        found[key] = content if isinstance(content, dict) and "rc" in content else ok(content)
    return found


def link(number=0, remote="00000000:11:00.0", kind="gpu", active=True):
    return {"link": number, "active": active, "remote_pci": remote, "remote_type": kind, "version": 4, "errors": {}}


def holder(
    pid=812, comm="python3", unit="session-1.scope", pod=None, job=None, devices=("/dev/nvidia0", "/dev/nvidiactl")
):
    return {"pid": pid, "user": "u", "comm": comm, "unit": unit, "pod": pod, "job": job, "devices": list(devices)}


def module(refcnt=0, *users):
    return {"refcnt": refcnt, "holders": list(users)}


def facts(*gpus, **different):
    """A node on which nothing stands in the way."""
    found = {
        "snapshot": {"status": "ok", "gpus": list(gpus) or [gpu(0), gpu(1)]},
        "holders": [],
        "references": {"nvidia": module(1, "nvidia_uvm"), "nvidia_uvm": module()},
        "drm_modeset": None,
        "hung": [],
        "command": True,
        "fabric_manager": False,
        "interrupted": None,
    }
    found.update(copy.deepcopy(different))
    return found
