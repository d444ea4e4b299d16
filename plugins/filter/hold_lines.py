# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render the package holds of a fleet's nodes as a table."""

from __future__ import annotations

DOCUMENTATION = r"""
name: hold_lines
short_description: Make a table of what nodes hold
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers lines for people, the longest hold first. A node that did not answer has a line that says why.
options:
  _input:
    description: What M(gpufleet.lifecycle.hold_info) returned, by the name of the node.
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Show what the nodes hold
  ansible.builtin.debug:
    msg: "{{ {inventory_hostname: held} | gpufleet.lifecycle.hold_lines }}"
"""

RETURN = r"""
---
_value:
  description: The lines.
  type: list
  elements: str
"""

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

GROUPS = ("kernel", "driver", "other")
HEAD = ("node", "held", "days", "packages", "security updates kept out")


def render_lines(nodes: dict[str, dict]) -> list[str]:
    """Return the holds of a fleet in lines for people: the oldest first, and what they keep out.

    ``nodes`` is what hold_info returned, failures included, by the name of the node.

    A node that did not answer is in a line of its own.
    """
    rows, silent = [], []
    for name, result in sorted(nodes.items()):
        holds = (result or {}).get("holds")
        if not isinstance(holds, dict):
            silent.append("%s: not known: %s" % (name, " ".join(str((result or {}).get("msg") or "no answer").split())))
            continue
        rows += [make_row(name, group, holds[group]) for group in GROUPS if holds.get(group)]
    rows.sort(key=lambda item: (-item[0], item[1]))
    free = sorted(
        name
        for name, result in nodes.items()
        if isinstance((result or {}).get("holds"), dict) and not any(result["holds"].values())
    )
    table = text.align_columns([HEAD] + [cells for dummy, cells in rows]) if rows else []
    return table + (["nothing is held on: %s" % ", ".join(free)] if free else []) + silent


def make_row(name, group, items) -> tuple[int, tuple]:
    """``(age, cells)`` of one group of packages: the age of the oldest, a package or two by name."""
    ages = [item["age_days"] for item in items if item["age_days"] is not None]
    kept = sorted("%s %s" % (item["package"], item["security"][0]) for item in items if item["security"])
    blind = any(item["security"] is None for item in items)
    some = ", ".join("%s %s" % (item["package"], item["version"]) for item in items[:2]) + (
        " and %d more" % (len(items) - 2) if len(items) > 2 else ""
    )
    out = ", ".join(kept[:2]) + (" and %d more" % (len(kept) - 2) if len(kept) > 2 else "") or (
        "cannot be told" if blind else "none"
    )
    return max(ages) if ages else -1, (name, group, str(max(ages)) if ages else "not recorded", some, out)


def hold_lines(nodes) -> list[str]:
    return render_lines(_answers.accept_all("hold_info", nodes))


class FilterModule:
    def filters(self) -> dict:
        return {"hold_lines": hold_lines}
