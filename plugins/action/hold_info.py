# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run hold_info on the node and check its answer, or print the answers of several nodes as a table."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import ModuleAction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import display

GROUPS = ("kernel", "driver", "other")
HEAD = ("node", "held", "days", "packages", "security updates kept out")


def render_lines(nodes: dict[str, dict]) -> list[str]:
    """Return the holds of a fleet as a table, the oldest first, and a line for each node that did not answer.

    Args:
        nodes: What hold_info returned, failures included, by the name of the node.
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
    """Return (age in days of the oldest, cells) of one group of packages, a package or two by name."""
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


class ActionModule(ModuleAction):
    MODULE = "gpufleet.lifecycle.hold_info"

    def run(self, tmp=None, task_vars=None) -> dict:
        nodes = self._task.args.get("table")
        if nodes is None:
            return super().run(tmp, task_vars)
        result = ActionBase.run(self, tmp, task_vars)
        lines = render_lines(_answers.accept_all("hold_info", nodes))
        for line in lines:
            display.display(line)
        return dict(result, changed=False, lines=lines)
