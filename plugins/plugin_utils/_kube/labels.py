# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labels and taints that a GPU node carries. Pure: a snapshot of gpu_info in, labels out.

The keys are the collection's own: those below nvidia.com/ belong to NVIDIA's feature discovery, which would set them
back.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import PREFIX

KEYS = ("gpu-model", "gpu-count", "gpu-memory-gib", "driver-version", "mig-layout")


def make_value(value: Any) -> str:
    """Return the text as near to VALUE as the syntax of a label allows: NVIDIA-H100-80GB-HBM3."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", str(value))[:63].strip("-_.")


def _read_values(gpus: list[Any], key: str) -> list[Any] | None:
    """Return the values of a key over all GPUs, or None if one of them could not be read."""
    found = [gpu.get(key) or {} for gpu in gpus]
    if not found or any(value.get("rc") != 0 or value.get("value") is None for value in found):
        return None
    return [value["value"] for value in found]


def _join_values(values: Any, show: Callable[[Any], str] = make_value) -> str | None:
    """Return the value that all GPUs share, "mixed", or None if it is not known."""
    if values is None:
        return None
    shown = {show(value) for value in values}
    return shown.pop() or None if len(shown) == 1 else "mixed"


def describe_layout(mode: Any, instances: Any) -> str:
    """Return the MIG layout of one GPU: disabled, empty, or 1x3g.40gb_2x1g.10gb with the large profiles first."""
    if not mode:
        return "disabled"
    count = collections.Counter(
        make_value(names.find_profile(instance.get("name")).replace("+", ".") or "unknown") for instance in instances
    )
    profiles = sorted(count, key=lambda name: ([-int(number) for number in re.findall(r"\d+", name)], name))
    return "_".join("%dx%s" % (count[name], name) for name in profiles) or "empty"


def _describe_mig(gpus: list[Any]) -> str | None:
    modes = _read_values(gpus, "mig_mode_current")
    if modes is None:
        # A GPU that cannot be cut says so; any other silence is not known.
        codes = {(gpu.get("mig_mode_current") or {}).get("error") for gpu in gpus}
        return "disabled" if gpus and codes == {"NOT_SUPPORTED"} else None
    cut = _read_values(gpus, "mig_instances") if any(modes) else [[] for dummy in gpus]
    if cut is None:
        return None
    shown = {describe_layout(mode, instances) for mode, instances in zip(modes, cut)}
    one = shown.pop() if len(shown) == 1 else "mixed"
    return one if len(one) <= 63 else "mixed"


def make_labels(snapshot: dict[str, Any]) -> dict[str, str | None]:
    """Return the labels of a node.

    What could not be read is None, which takes the label away: better none than one of yesterday.
    """
    gpus = snapshot.get("gpus") or [] if snapshot.get("status") == "ok" else []
    driver = (snapshot.get("system") or {}).get("driver_version") or {}
    labels = {
        "gpu-model": _join_values(_read_values(gpus, "name")),
        "gpu-count": str(len(gpus)) if gpus else None,
        "gpu-memory-gib": _join_values(_read_values(gpus, "memory_total_bytes"), lambda value: str(int(value) >> 30)),
        "driver-version": make_value(driver["value"]) if driver.get("rc") == 0 and driver.get("value") else None,
        "mig-layout": _describe_mig(gpus),
    }
    return dict((PREFIX + key, labels[key]) for key in KEYS)
