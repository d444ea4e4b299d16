# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what follows from the state of a node on its way into quarantine and out of it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: quarantine_state
short_description: Decide what follows from the state of a node on its way into quarantine and out of it
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Internal to role C(gpu_quarantine).
options:
  _input:
    description: Options of the role and results of its tasks, as C(Facts) in C(_runbooks/quarantining.py) lists them.
    type: dict
    required: true
"""

from typing import Any

from ansible.module_utils.common.validation import check_type_list

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import quarantining


def decide_quarantine_state(facts: quarantining.Facts) -> dict[str, Any]:
    return quarantining.decide({**_controller.sign(facts), "actions": check_type_list(facts["actions"])})


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"quarantine_state": decide_quarantine_state}
