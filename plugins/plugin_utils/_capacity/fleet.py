# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drift of drivers, failures, and holds of a fleet, out of samples. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.history import DAY

Samples = t.List[t.Tuple[t.Dict[str, str], float]]
Daily = t.Dict[str, t.Dict[t.Tuple[t.Tuple[str, str], ...], float]]
KINDS = ("kernel", "driver", "other")


def drift(samples: Samples) -> t.Dict[str, t.Any]:
    """Return which nodes of each class and model run which driver. A group with more than one has drifted."""
    found: t.Dict[t.Tuple[str, str], t.Dict[str, t.List[str]]] = {}
    for labels, dummy in samples:
        group = found.setdefault((labels.get("class", ""), labels.get("model", "")), {})
        group.setdefault(labels.get("driver", ""), []).append(labels.get("node", ""))
    return {
        "drivers": sorted({driver for group in found.values() for driver in group}),
        "groups": [
            {
                "class": name,
                "model": model,
                "nodes": {driver: sorted(set(nodes)) for driver, nodes in sorted(group.items())},
                "drifted": len(group) > 1,
            }
            for (name, model), group in sorted(found.items())
        ],
    }


def failures(daily: Daily) -> t.Dict[str, t.Any]:
    """Return XIDs and lost node-hours of each class and model. Those of which there were none are left out."""

    def rows(query: str, label: str, amount: str, digits: t.Optional[int]) -> t.List[t.Dict[str, t.Any]]:
        found = []
        for key, value in sorted(daily.get(query, {}).items()):
            labels = dict(key)
            # An increase is an estimate between two scrapes; an XID is a whole one.
            value = round(value, digits)
            if value > 0:
                found.append(
                    {
                        "class": labels.get("class", ""),
                        "model": labels.get("model", ""),
                        label: labels.get(label, ""),
                        amount: value,
                    }
                )
        return found

    return {
        "xids": rows("xids", "xid_class", "count", None),
        "out_of_service": rows("out_of_service", "reason", "node_hours", 2),
    }


def holds(now: t.Dict[str, Samples]) -> t.List[t.Dict[str, t.Any]]:
    """Return the nodes that hold packages, by kind, the oldest hold first."""
    updates = {
        (labels.get("node", ""), labels.get("kind", "")): int(value) for labels, value in now.get("held_updates", [])
    }
    found = [
        {
            "node": labels.get("node", ""),
            "kind": labels.get("kind", ""),
            "age_days": round(value / DAY, 1),
            "security_updates": updates.get((labels.get("node", ""), labels.get("kind", ""))),
        }
        for labels, value in now.get("hold_age", [])
        if value > 0
    ]
    return sorted(found, key=lambda one: (-one["age_days"], one["node"], one["kind"]))
