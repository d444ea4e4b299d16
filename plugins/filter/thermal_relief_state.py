# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide about the power limits of a node that throttles for heat."""

from __future__ import annotations

DOCUMENTATION = r"""
name: thermal_relief_state
short_description: Decide about the power limits of a node that throttles for heat
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Internal to role C(gpu_quarantine).
options:
  _input:
    description: Options of the role and results of its tasks, as C(Facts) in C(_runbooks/relief.py) lists them, with
      C(thresholds) in the place of C(limits).
    type: dict
    required: true
"""

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import relief


def decide_thermal_relief(facts: dict[str, Any]) -> dict[str, Any]:
    try:
        limits = catalog.thresholds(facts.get("thresholds"))
    except catalog.MonitoringError as exc:
        raise AnsibleFilterError("%s: %s" % (facts["node"], exc)) from exc
    given: Any = {**_controller.sign(facts), "limits": {name: row["value"] for name, row in limits.items()}}
    return relief.decide(given)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"thermal_relief_state": decide_thermal_relief}
