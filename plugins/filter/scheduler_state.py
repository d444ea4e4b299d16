# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what follows from the state of a node in its schedulers."""

from __future__ import annotations

DOCUMENTATION = r"""
name: scheduler_state
short_description: Decide what follows from the state of a node in its schedulers
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Internal to role C(gpu_scheduler).
options:
  _input:
    description: Options of the role and results of its tasks, as C(Facts) in C(_scheduler_state.py) lists them.
    type: dict
    required: true
"""

from typing import Any

from ansible.module_utils.common.validation import check_type_list

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _scheduler_state


def decide_scheduler_state(facts: _scheduler_state.Facts) -> _scheduler_state.State:
    lists: Any = {name: check_type_list(facts[name]) for name in ("backends", "services")}
    return _scheduler_state.decide({**facts, **lists})


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"scheduler_state": decide_scheduler_state}
