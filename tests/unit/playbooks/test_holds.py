# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook that shows what nodes hold: who is in its table, and for what it fails."""

from __future__ import annotations

import re


def held(days, security=("2",)):
    row = {
        "package": "nvidia-smi",
        "version": "1",
        "since": None,
        "since_exact": False,
        "age_days": days,
        "newer": [],
        "security": None if security is None else list(security),
    }
    return {"kernel": [], "driver": [row], "other": []}


def failed(result):
    """The nodes for which it failed."""
    return sorted(set(re.findall(r"^fatal: \[(\w+)\]: FAILED!", result.output, re.M)))


def test_everybody_is_in_the_table_and_what_is_not_known_does_not_pass(fleet):
    fleet.add("fresh", holds=held(3))
    fleet.add("old", holds=held(40))
    fleet.add("harmless", holds=held(40, ()))
    fleet.add("undated", holds=held(None))
    fleet.add("untold", holds=held(40, None))
    fleet.add("silent")
    shown = fleet.run("holds")
    assert shown.rc != 0 and failed(shown) == ["silent"]
    assert "silent: not known: the stub was told nothing" in shown.output
    assert all(
        re.search(r"\b%s +driver +" % name, shown.output) for name in ("fresh", "old", "harmless", "undated", "untold")
    )
    limited = fleet.run("holds", "--limit", "!silent", holds_max_days=30)
    assert limited.rc != 0 and failed(limited) == ["old", "undated", "untold"]
    assert fleet.run("holds", "--limit", "fresh,harmless", holds_max_days=30).rc == 0
