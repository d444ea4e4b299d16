# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of one model that differ from the others of their model: the odd ones out. Pure."""

from __future__ import annotations

import collections

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

# Fewer have no majority that means anything.
FEWEST = 3

Trait = collections.namedtuple("Trait", ["key", "label", "unit"])
TRAITS = (
    Trait("driver", "driver", str),
    Trait("vbios", "VBIOS", str),
    Trait("inforom", "InfoROM", str),
    Trait("memory_bytes", "memory", lambda value: "%.1f GiB" % (value / 2.0**30)),
    Trait("power_limit_mw", "power limit", lambda value: "%g W" % (value / 1000.0)),
    Trait("nvlinks", "NVLinks up", str),
    Trait("pcie_width", "PCIe width", lambda value: "x%d" % (value,)),
)


def outliers(nodes: dict[str, dict]) -> list[dict]:
    """One notice for each model and trait in which not all are alike. NODES: name -> node of the fleet's document.

    A value counts per GPU, a driver per node. What cannot be read differs from what can: its code is the value then.
    """
    models = {}
    for name in sorted(nodes):
        for gpu in nodes[name]["gpus"]:
            if gpu["name"]:
                models.setdefault(gpu["name"], []).append((name, gpu))
    notices = []
    for model in sorted(models):
        for trait in TRAITS:
            notice = _odd(model, trait, _values(trait, models[model], nodes))
            if notice:
                notices.append(notice)
    return notices


def _values(trait, members, nodes):
    """[(node, index or None, value as shown)] of what is known."""
    found = []
    if trait.key == "driver":
        for name in sorted({name for name, gpu in members}):
            version = nodes[name]["driver"].get("loaded") or nodes[name]["driver"].get("nvml")
            if version:
                found.append((name, None, str(version)))
        return found
    for name, gpu in members:
        value = gpu.get(trait.key)
        if value is not None:
            number = not isinstance(value, (str, bool))
            found.append((name, gpu["index"], trait.unit(value) if number or trait.unit is str else value))
    return found


def _odd(model, trait, values):
    counted = collections.Counter(value for dummy, dummy2, value in values)
    if len(values) < FEWEST or len(counted) < 2:
        return None
    most, number = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[0]
    majority = most if number * 2 > len(values) else None
    odd = {}
    for node, index, value in values:
        if value != majority:
            odd.setdefault((node, value), []).append(index)
    return {
        "model": model,
        "trait": trait.label,
        "majority": majority,
        "alike": number if majority is not None else 0,
        "of": len(values),
        "per": "node" if trait.key == "driver" else "GPU",
        "odd": [
            {"node": node, "value": value, "gpus": [index for index in indexes if index is not None]}
            for (node, value), indexes in sorted(odd.items())
        ],
    }


def sentence(notice: dict) -> str:
    """A notice in words."""
    if notice["majority"] is None:
        values = collections.Counter()
        for entry in notice["odd"]:
            values[entry["value"]] += len(entry["gpus"]) or 1
        parts = [
            "%d × %s" % (number, value)
            for value, number in sorted(values.items(), key=lambda item: (-item[1], item[0]))
        ]
        return text.line("%s: no common %s: %s" % (notice["model"], notice["trait"], ", ".join(parts)))
    return text.line(
        "%s: %s is %s on %d of %s, but %s"
        % (
            notice["model"],
            notice["trait"],
            notice["majority"],
            notice["alike"],
            text.count(notice["of"], notice["per"]),
            "; ".join("%s on %s" % (entry["value"], place(entry)) for entry in notice["odd"]),
        )
    )


def place(entry: dict) -> str:
    """gpu-a-1, or gpu-a-1 GPU 3."""
    if not entry["gpus"]:
        return entry["node"]
    return "%s GPU%s %s" % (
        entry["node"],
        "" if len(entry["gpus"]) == 1 else "s",
        ", ".join(str(index) for index in entry["gpus"]),
    )
