# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide about the power limits of a node that throttles for heat, and name the likely cause."""

from __future__ import annotations

DOCUMENTATION = r"""
name: thermal_relief_state
short_description: Tell what to do to the power limits of a node that throttles for heat, and why it does
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Decides which power limits of a node are lowered or restored, what its note says, and the likely cause of the heat.
    The entry point C(thermal_relief) of role C(gpu_quarantine) has no other decisions than these.
  - The results of the role's tasks are read from the node's variables, as they were registered, at the moment at
    which the lookup is asked.
  - Nothing is read of the node, and nothing is changed.
options:
  _terms:
    description: None.
    type: list
    elements: str
  state:
    description: Whether the power limits are lowered, or put back to what they were.
    type: str
    choices: [lowered, restored]
    default: lowered
  percent:
    description: The share of the power limit that is taken away. V(0) is none given, which is 20 without O(watts).
    type: float
    default: 0
  watts:
    description: The power limit in watts that is set. V(0) is none given.
    type: float
    default: 0
  hours:
    description: For how many hours the lowered limits are waived.
    type: int
    default: 24
  thresholds:
    description: Thresholds of the alerts by name, in the place of the collection's.
    type: dict
    default: {}
  user:
    description: Who wants it. By default the user on the controller.
    type: str
    default: ""
"""

EXAMPLES = r"""
---
- name: Refuse a limit that a card does not take
  ansible.builtin.fail:
    msg: "{{ relief.refusal }}"
  when: relief.refusal | length > 0
  vars:
    relief: "{{ lookup('gpufleet.lifecycle.thermal_relief_state', percent=25) }}"
"""

RETURN = r"""
---
_raw:
  description: What to do.
  type: list
  elements: dict
  contains:
    refusal:
      description: Why nothing may be done. Empty otherwise.
      type: str
    do:
      description: V(lower), V(keep) if the limits are lowered already, V(restore), or V(none).
      type: str
    steps:
      description: The limits to set, each with C(watts) and C(gpus) (UUIDs).
      type: list
      elements: dict
    note:
      description: The note that the node keeps while its limits are lowered.
      type: dict
    gone:
      description: GPUs of the note that the node does not have any more.
      type: list
      elements: str
    gpus:
      description: The GPUs whose limit is lowered, each with C(gpu), C(before_w), C(lowered_w) and C(now_w).
      type: list
      elements: dict
    throttled:
      description: GPUs that throttle for heat now.
      type: list
      elements: str
    unread:
      description: GPUs of which that cannot be told.
      type: list
      elements: str
    cause:
      description:
        - The likely cause, V(inlet) (warm air enters the node), V(fans), V(node) (its airflow), V(gpu) (the cooling of
          single GPUs), V(unknown), or V(none) if no GPU throttles for heat.
      type: str
    why:
      description: Why it is that one.
      type: str
    power_brake:
      description: GPUs that a power brake from outside holds back, which is no matter of heat.
      type: list
      elements: str
    sensors:
      description: What the BMC told, C(inlet_c), C(fans), C(failed_fans) and C(problem).
      type: dict
"""

import getpass
import socket

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import relief

# Variables of the role: facts of the decision by their own names.
RESULTS = {
    "time": "__gpu_quarantine_time",
    "note": "__gpu_quarantine_relief_note",
    "info": "__gpu_quarantine_relief_info",
    "sensors": "__gpu_quarantine_relief_sensors",
}


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        variables = variables or {}
        try:
            rows = catalog.thresholds(self.get_option("thresholds"))
        except catalog.MonitoringError as exc:
            raise AnsibleLookupError("%s: %s" % (variables.get("inventory_hostname"), exc)) from exc
        facts = {name: variables[place] for name, place in RESULTS.items() if place in variables}
        facts.update((name, self.get_option(name)) for name in ("state", "percent", "watts", "hours"))
        facts.update(
            node=variables.get("inventory_hostname"),
            user=self.get_option("user") or getpass.getuser(),
            controller=socket.gethostname(),
            limits={name: row["value"] for name, row in rows.items()},
        )
        return [relief.decide(facts)]
