# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that have fewer GPUs than the other nodes with GPUs of their model. Pure.

A node that has lost a GPU looks whole to itself where its board comes in any number, and where nobody has said how many it should have. The
nodes beside it know: where most of them have 8, one with 7 is to be looked at before anything is done to it.
"""

from __future__ import annotations

import collections
import typing as t

# So many nodes with the same number, and such a share of all, make it the number that a node should have.
FEWEST = 3
SHARE = 2 / 3


def fewer(counts: t.Mapping[str, t.Mapping[str, int]], told: t.Container[str] = ()) -> t.Dict[str, str]:
    """By node what it lacks, in a sentence without its name.

    COUNTS: {node: {model: number of GPUs}} of all nodes that could be read. TOLD: nodes of which somebody has said how many GPUs they have
    (gpu_health_expect): that decides, and their peers do not.
    """
    by_model: t.Dict[str, t.Dict[str, int]] = {}
    for name, models in counts.items():
        for model, number in models.items():
            by_model.setdefault(model, {})[name] = number
    found: t.Dict[str, t.List[str]] = {}
    for model, numbers in sorted(by_model.items()):
        common, alike = collections.Counter(numbers.values()).most_common(1)[0]
        if alike < FEWEST or alike < SHARE * len(numbers):
            continue
        for name in sorted(numbers):
            if numbers[name] < common and name not in told:
                found.setdefault(name, []).append("has %d of the GPUs %s, and %d of %d nodes with them have %d" % (
                    numbers[name], model, alike, len(numbers), common))
    return {name: "%s. Look for GPUs that left the bus (lspci -d 10de:, NVRM lines in the kernel log); if the node is built so, say so in "
                  "gpu_health_expect (hardware: gpus)" % "; ".join(lacks) for name, lacks in found.items()}


def is_told(expect: t.Any) -> bool:
    """Whether the value of gpu_health_expect says how many GPUs a node has."""
    hardware = expect.get("hardware") if isinstance(expect, dict) else None
    return isinstance(hardware, dict) and hardware.get("gpus") is not None
