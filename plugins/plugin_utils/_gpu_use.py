# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide if the GPUs of a node are in use, and how many a scheduler can allocate, by the reading of gpu_info.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import names
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import holders
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes

NAMED = 8
NOTHING = -1
# No error: who does not compare with Slurm need not know it. No number of GPUs is like it, so that it is not passed
# over either.
UNREAD = -2
# The answers that say that there is no MIG, as gpu_health takes them.
WITHOUT_MIG = (codes.NOT_SUPPORTED, codes.INVALID_ARGUMENT, codes.FUNCTION_NOT_FOUND)


def schedulable(snapshot: Mapping[str, Any] | None) -> int:
    """GPUs that are not in MIG mode, and MIG devices of those that are (gres.conf(5), MIG management)."""
    counts = [_schedulable_of(gpu) for gpu in (snapshot or {}).get("gpus") or []]
    return NOTHING if not counts else UNREAD if UNREAD in counts else sum(counts)


def _schedulable_of(gpu: Mapping[str, Any]) -> int:
    mode, devices = gpu.get("mig_mode_current") or {}, gpu.get("mig_instances") or {}
    if mode.get("rc") in WITHOUT_MIG or mode.get("rc") == codes.SUCCESS and mode.get("value") == 0:
        return 1
    if mode.get("rc") != codes.SUCCESS or mode.get("value") != 1:
        return UNREAD
    if devices.get("rc") != codes.SUCCESS or not isinstance(devices.get("value"), list):
        return UNREAD
    return len(devices["value"])


def mig_devices(snapshot: Mapping[str, Any] | None) -> dict[str, int]:
    """Return {profile: number} of the MIG devices that can be read."""
    found: dict[str, int] = {}
    for gpu in (snapshot or {}).get("gpus") or []:
        if (gpu.get("mig_mode_current") or {}).get("value") == 1:
            for device in (gpu.get("mig_instances") or {}).get("value") or []:
                profile = names.find_profile(device.get("name")) or "unknown"
                found[profile] = found.get(profile, 0) + 1
    return dict(sorted(found.items()))


def in_use(gpus: Any) -> str:
    """Return why a node must be left alone: processes that compute on its GPUs, or GPUs that cannot be read.

    Empty if no process computes.
    """
    if not isinstance(gpus, list) or not gpus:
        return "it cannot be told whether processes compute on its GPUs: none was read; nothing was changed."
    told = [(gpu.get("index"), gpu.get("compute_processes") or {}) for gpu in gpus]
    processes = _name_processes(answer for _index, answer in told)
    if processes:
        return (
            "processes compute on its GPUs, nothing was changed: %s. Drain the node in its scheduler, or "
            "end them, and run again." % processes
        )
    silent = [
        (index, answer.get("error") or "no answer") for index, answer in told if answer.get("rc") != codes.SUCCESS
    ]
    if silent:
        return "it cannot be told whether processes compute on GPU %s (NVML: %s); nothing was changed." % (
            ", ".join(str(index) for index, _error in silent),
            ", ".join(dict.fromkeys(error for _index, error in silent)),
        )
    return ""


def _name_processes(answers: Iterable[Mapping[str, Any]]) -> str:
    """Return the processes in ANSWERS by pid, the first NAMED of them by name; empty without any."""
    found = {process["pid"]: process for answer in answers for process in answer.get("value") or []}
    more = " and %d more" % (len(found) - NAMED) if len(found) > NAMED else ""
    return ", ".join(holders.name_process(found[pid]) for pid in sorted(found)[:NAMED]) + more


def in_use_when_drained(read: Mapping[str, Any], services: Collection[str]) -> str:
    """The same of a node that its schedulers have drained, of the answer of gpu_info with its option holders.

    While a driver is being changed NVML may not tell who computes; then nothing but SERVICES may have the device files
    open.
    """
    gpus = (read.get("snapshot") or {}).get("gpus") or []
    answers = [gpu.get("compute_processes") or {} for gpu in gpus]
    processes = _name_processes(answers)
    if processes:
        return (
            "processes compute on its GPUs, and no job is stopped: %s. Drain the node in its scheduler, or end "
            "them, and run again." % processes
        )
    if answers and all(answer.get("rc") == codes.SUCCESS for answer in answers):
        return ""
    found = read.get("holders")
    if found is None:
        return "it cannot be told whether processes compute on its GPUs: %s. Look at the node, and run again." % (
            read.get("msg") or "/proc cannot be listed"
        )
    others = [holders.in_words(holder) for holder in found if holder.get("unit") not in services]
    if others:
        return (
            "NVML does not tell whether processes compute on its GPUs, and these have its device files open: "
            "%s. End them, or name their services in gpu_scheduler_services (gpu_node_upgrade_services in a "
            "rollout), and run again." % ", ".join(others)
        )
    return ""
