# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG layout of a baseline, as entries for the same node."""

from __future__ import annotations

from typing import Any, Dict, List

from .._nvml import codes

AGAIN = "take a new baseline with gpu_health on a healthy node"


class BaselineProblem(ValueError):
    """A baseline that does not tell the layout of a GPU; the text says of which."""


def entries(snapshot: Any, instances: bool = True) -> List[Dict[str, Any]]:
    """An entry for each GPU of SNAPSHOT, by UUID: {"gpus", "mig_enabled", "mig_devices"}, as the option layout of
    gpu_mig has them.

    Without INSTANCES only the MIG mode is that of the baseline.
    """
    try:
        found = [_entry(gpu) for gpu in snapshot["gpus"]]
    except (AttributeError, KeyError, TypeError) as exc:
        raise BaselineProblem("the baseline holds no reading of its GPUs (snapshot.gpus); %s" % (AGAIN,)) from exc
    return found if instances else [dict(entry, mig_devices={}) if entry["mig_enabled"] else entry for entry in found]


def _entry(gpu: Dict[str, Any]) -> Dict[str, Any]:
    uuid = _known(gpu, "uuid", gpu)
    mode = gpu.get("mig_mode_current") or {}
    if mode.get("rc") == codes.NOT_SUPPORTED:
        return {"gpus": [uuid], "mig_enabled": False}
    if not _known(gpu, "mig_mode_current", uuid):
        return {"gpus": [uuid], "mig_enabled": False}
    devices: Dict[str, int] = {}
    for instance in _known(gpu, "mig_instances", uuid):
        # The name of a MIG device begins with that of its GPU; its profile is the last word.
        words = str(instance.get("name") or "").split()
        if not words:
            raise BaselineProblem("the baseline has a MIG device without a name on %s; %s" % (uuid, AGAIN))
        devices[words[-1]] = devices.get(words[-1], 0) + 1
    return {"gpus": [uuid], "mig_enabled": True, "mig_devices": devices}


def _known(gpu: Dict[str, Any], key: str, named: Any) -> Any:
    entry = gpu.get(key)
    if not isinstance(entry, dict) or entry.get("rc") != codes.SUCCESS:
        raise BaselineProblem(
            "the baseline does not tell %s of %s; %s"
            % (key, named if isinstance(named, str) else "GPU %s" % (gpu.get("index"),), AGAIN)
        )
    return entry["value"]
