#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rollout_gate action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout_gate
short_description: Ask for leave to take a node down
version_added: 0.1.0
description:
  - Answers C(go), C(wait), C(skip) or C(stop) from the ledger of the rollout. C(go) is recorded in the transaction that decided it, so that
    two nodes never take one slot.
  - A node goes once in a run. Nodes in flight, lost and quarantined ones, and those left in flight by a controller that died hold a down slot;
    failed, rolled back, lost and quarantined nodes count against the failure budget.
  - Waits for a while in one call, then answers C(wait). The playbook calls it again in a new task, since only a new task sees which hosts
    have become unreachable meanwhile. A node in flight that is no longer among C(ansible_play_hosts) is recorded as C(lost).
attributes:
  check_mode:
    support: full
    details:
      - Answers from the ledger as it is, does not wait and records nothing; C(go) when nothing was planned.
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
    type: str
    required: true
  artifact_dir:
    description:
      - Directory on the controller that keeps the ledgers.
    type: path
    required: true
  node:
    description:
      - The node; the host of the task when not given.
    type: str
  turn:
    description:
      - RV(turn) of the call before, V(0) for the first one.
    type: int
    default: 0
  max_turns:
    description:
      - The turn at which waiting ends and the answer is C(stop).
    type: int
    default: 250
  patience_s:
    description:
      - Seconds the first call waits for a slot; the second waits twice as long, and so on up to O(patience_max_s).
    type: float
    default: 15.0
  patience_max_s:
    description:
      - The most seconds one call waits.
    type: float
    default: 300.0
  poll_s:
    description:
      - Seconds between two looks at the ledger.
    type: float
    default: 1.0
seealso:
  - module: gpufleet.lifecycle.rollout_plan
  - module: gpufleet.lifecycle.rollout_step
"""

EXAMPLES = r"""
---
- name: Ask for leave
  gpufleet.lifecycle.rollout_gate:
    rollout_id: driver-535.261.03
    artifact_dir: /var/lib/gpufleet-controller
  register: gate

- name: Leave this node as it is
  ansible.builtin.meta: end_host
  when: gate.answer in ['skip', 'stop']
"""

RETURN = r"""
---
answer:
  description: V(go), V(wait), V(skip) or V(stop).
  returned: success
  type: str
reason:
  description: Why, in words.
  returned: success
  type: str
turn:
  description: How many calls have been made for this node.
  returned: success
  type: int
from_version:
  description: The driver version that the plan recorded on the node.
  returned: success
  type: str
to_version:
  description: The driver version the node shall get.
  returned: success
  type: str
recover:
  description: Whether an earlier controller died while it worked on the node, after its baseline was kept.
  returned: success
  type: bool
attempt:
  description: How often this rollout has taken the node, this time included.
  returned: success
  type: int
position:
  description: How many nodes of this run have gone so far, with this one; null when it did not go.
  returned: success
  type: int
total:
  description: How many nodes the plan holds.
  returned: success
  type: int
directory:
  description: Where the documents of the node are kept on the controller.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    rollout_id=dict(type="str", required=True),
    artifact_dir=dict(type="path", required=True),
    node=dict(type="str"),
    turn=dict(type="int", default=0),
    max_turns=dict(type="int", default=250),
    patience_s=dict(type="float", default=15.0),
    patience_max_s=dict(type="float", default=300.0),
    poll_s=dict(type="float", default=1.0),
)


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rollout_gate runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which was not found: "
        "call it by its full name, gpufleet.lifecycle.rollout_gate, in a task."
    )


if __name__ == "__main__":
    main()
