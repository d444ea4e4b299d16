# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comment at the head of a playbook, which documents its variables."""

from __future__ import annotations

import pathlib
import re

PLAYBOOKS = pathlib.Path(__file__).resolve().parents[3] / "playbooks"
NAME = r"[a-z]+_[a-z0-9_]+"
ROW = re.compile(r"^# ({0}(?:, {0})*) +\S".format(NAME), re.MULTILINE)


def find_variables(playbook: str) -> set[str]:
    """Return the names of the variables that the head of a playbook lists."""
    head = (PLAYBOOKS / (playbook + ".yml")).read_text(encoding="utf-8").split("\n\n", 1)[0]
    return {name for row in ROW.findall(head) for name in row.split(", ")}
