#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rollout_plan action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout_plan
short_description: Order the nodes of a driver rollout and open its ledger
version_added: 0.1.0
description:
  - Orders the nodes, leaves out those that are at the target already, and writes the plan into the ledger of the rollout.
  - The order is nodes that were in flight when an earlier controller died, then the canaries, then one node of each failure
    domain in turn.
  - Refuses to start while another live controller runs the same rollout, or another rollout that shares a node with it.
  - Runs once for all nodes, on the controller. The nodes are not contacted.
attributes:
  check_mode:
    support: full
    details:
      - Prints the plan and writes nothing, not even the ledger.
  diff_mode:
    support: none
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
author:
  - gpufleet contributors (@gpufleet)
options:
  rollout_id:
    description:
      - The name of the rollout and of its directory under C(rollouts/) in O(artifact_dir).
      - Made from the target version, or from O(undo), when empty, so that the next run of the same change finds what an earlier one left.
    type: str
    default: ''
  artifact_dir:
    description:
      - Directory on the controller that keeps the ledgers.
    type: path
    required: true
  target:
    description:
      - The driver version every node shall have at the end, such as V(535.261.03).
      - One of O(target), O(targets) and O(undo) has to give every node a version.
    type: str
    default: ''
  targets:
    description:
      - A version for each node by its name; O(target) goes before it.
    type: dict
    default: {}
  undo:
    description:
      - The id of a rollout whose nodes shall go back to the version that it found on them, or V(last) for the one that was planned last.
    type: str
    default: ''
  audits:
    description:
      - For each node of the rollout by its name, what M(gpufleet.lifecycle.driver_audit) returned, failures and unreachable nodes included.
    type: dict
    required: true
  markers:
    description:
      - For each node by its name, what M(ansible.builtin.stat) returned for its quarantine marker.
    type: dict
    default: {}
  max_down:
    description:
      - How many nodes may serve no work at a time.
    type: int
    default: 1
  failure_budget:
    description:
      - The number of failed nodes at which no further node starts.
    type: int
    default: 1
  canaries:
    description:
      - Nodes that go first, in this order.
    type: list
    elements: str
    default: []
  domain_group_prefix:
    description:
      - Groups whose name starts with this are failure domains; neighbours in the order are taken from different ones.
    type: str
    default: rack_
  break_lock:
    description:
      - Take the rollout over from a controller whose life or death cannot be seen from here. A controller that is seen to live is never overruled.
    type: bool
    default: false
seealso:
  - module: gpufleet.lifecycle.rollout_gate
  - module: gpufleet.lifecycle.rollout_step
  - module: gpufleet.lifecycle.rollout_report
"""

EXAMPLES = r"""
---
- name: Plan the rollout
  gpufleet.lifecycle.rollout_plan:
    rollout_id: driver-535.261.03
    artifact_dir: /var/lib/gpufleet-controller
    target: 535.261.03
    audits: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'audit_result'))) }}"
    markers: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'marker_result'))) }}"
    max_down: 2
    failure_budget: 1
  register: plan
  run_once: true
"""

RETURN = r"""
---
rollout_id:
  description: The id of the rollout.
  returned: success
  type: str
run:
  description: The id of this run of the rollout; null in check mode.
  returned: success
  type: str
target:
  description: The target version, or the list of them when nodes have different ones.
  returned: success
  type: str
order:
  description: The nodes that shall go, first to last.
  returned: success
  type: list
  elements: str
nodes:
  description: For every node its C(from) and C(to) version, C(domain), C(state) and C(reason).
  returned: success
  type: dict
sha256:
  description: Digest of the target, the order, the versions and the policy.
  returned: success
  type: str
directory:
  description: Where the ledger of the rollout lies.
  returned: success
  type: str
lines:
  description: The plan as it was printed.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    rollout_id=dict(type="str", default=""),
    artifact_dir=dict(type="path", required=True),
    target=dict(type="str", default=""),
    targets=dict(type="dict", default={}),
    undo=dict(type="str", default=""),
    audits=dict(type="dict", required=True),
    markers=dict(type="dict", default={}),
    max_down=dict(type="int", default=1),
    failure_budget=dict(type="int", default=1),
    canaries=dict(type="list", elements="str", default=[]),
    domain_group_prefix=dict(type="str", default="rack_"),
    break_lock=dict(type="bool", default=False),
)


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rollout_plan runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which was not found: "
        "call it by its full name, gpufleet.lifecycle.rollout_plan, in a task."
    )


if __name__ == "__main__":
    main()
