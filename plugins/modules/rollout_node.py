#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rollout_node action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout_node
short_description: Tell whether a rollout has a node in flight
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Reads the ledger of the rollouts, and the node's own claim if O(marks) has it, to tell whether the node of the task
    is in flight. Nothing is changed in the ledger or on the node.
  - A node in flight is draining, down, validating or soaking in a rollout, also if its controller is dead. Rollouts of
    other ledgers are found only by the claim.
  - A claim that could not be read counts as held. A ledger that cannot be read fails the task.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  bypass_host_loop:
    support: none
    description: Runs for each host.
options:
  artifact_dir:
    description: The directory on the controller that has the ledger, and C(gpufleet_artifact_dir) in playbooks.
    type: path
    required: true
  ledger:
    description: The database with the ledgers of the rollouts, as a URL of SQLAlchemy. A file in O(artifact_dir) when
      empty.
    type: str
    default: ""
  marks:
    description: The result of M(gpufleet.lifecycle.node_state) for the node. Empty for a node that does not answer;
      then only the ledger is read.
    type: dict
    default: {}
  baseline:
    description: Whether to return the last baseline of the node in the ledger.
    type: bool
    default: false
  undo:
    description: The id of a rollout, or V(last) for the last one that changed O(nodes), of which to answer what MIG
      layouts it found on O(nodes), as a plan with this C(rollout_undo) would take them back.
    type: str
    default: ""
  nodes:
    description: The nodes of O(undo), or those that have to have all canaries of O(canaries_of).
    type: list
    elements: str
    default: []
  canaries_of:
    description: The id of a rollout of which to answer the canaries of its plan. The empty text is refused.
    type: str
seealso:
  - module: gpufleet.lifecycle.node_state
  - module: gpufleet.lifecycle.rollout_control
"""

EXAMPLES = r"""
- name: Read the claim of the node
  gpufleet.lifecycle.node_state:
  register: marks

- name: Check whether a rollout has the node in flight
  gpufleet.lifecycle.rollout_node:
    artifact_dir: ~/.gpufleet
    marks: "{{ marks }}"
  register: flight
"""

RETURN = r"""
held:
  description: Why the node is in flight, or why that is unknown, with the next step. Empty if it is not.
  returned: success
  type: str
states:
  description: The state of the node in each rollout of the ledger that has it, by the name of the rollout.
  returned: success
  type: dict
  sample: {upgrade-535.261.03: done}
baseline:
  description: The last baseline of the node in the ledger, V(null) if there is none.
  returned: with O(baseline=true)
  type: dict
layouts_before:
  description: The MIG layout of each node of O(nodes) whose layout the rollout changed, as it was before, as
    O(gpufleet.lifecycle.gpu_mig#module:layout).
  returned: with O(undo)
  type: dict
  sample: {gpu-r1-1: [{gpus: [GPU-1], mig_enabled: false, mig_devices: {}}]}
canaries:
  description: The canaries of the plan of O(canaries_of).
  returned: with O(canaries_of)
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    artifact_dir=dict(type="path", required=True),
    ledger=dict(type="str", default=""),
    marks=dict(type="dict", default={}),
    baseline=dict(type="bool", default=False),
    undo=dict(type="str", default=""),
    nodes=dict(type="list", elements="str", default=[]),
    canaries_of=dict(type="str"),
)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg=(
            "rollout_node runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which was "
            "not found: call it by its full name, gpufleet.lifecycle.rollout_node, in a task."
        )
    )


if __name__ == "__main__":
    main()
