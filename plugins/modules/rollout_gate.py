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
  - gpufleet.lifecycle._attributes.rollout
  - gpufleet.lifecycle._attributes.telling
  - gpufleet.lifecycle._attributes.holding
author:
  - gpufleet contributors (@gpufleet)
options:
  rollout_id:
    description:
      - The name of the rollout. Needed unless O(mode=none).
    type: str
    default: ''
  node:
    description:
      - The node; the host of the task when not given.
    type: str
  phase:
    description:
      - What the node asks leave for. V(drain) before it is drained, V(down) when it is verified empty and before the first service is stopped,
        V(return) before it serves again.
      - C(go) is a ticket for the steps of that phase; M(gpufleet.lifecycle.rollout_step) refuses every other step.
    type: str
    choices: [drain, down, return]
    default: drain
  step:
    description:
      - A step of that phase that is opened in the same transaction as C(go) is given, as M(gpufleet.lifecycle.rollout_step) would.
    type: str
  resume_step:
    description:
      - The step in place of O(step) for a node that an earlier controller, now dead, had begun to change. Such a node is asked what became of it,
        whatever it would begin with otherwise.
      - O(step), when not given.
    type: str
  detail:
    description:
      - Words for the line of progress of O(step).
    type: str
    default: ''
  documents:
    description:
      - Documents to keep in the ledger, by their names, in the same transaction as C(go) is given. Nothing is kept with another answer.
    type: dict
    default: {}
  mode:
    description:
      - V(none) only prints and answers C(go), for the direct use of a role outside a rollout.
    type: str
    choices: [ledger, none]
    default: ledger
  version:
    description:
      - The version that the node is about to get. Another one than the plan's is refused.
    type: str
    default: ''
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
  claim_dir:
    description:
      - The state directory of the node. With it C(go) for O(phase=drain) takes the node for this attempt before anything is changed, by
        M(gpufleet.lifecycle.node_claim). A node that another rollout has, or that cannot keep the claim, ends as failed.
      - With O(mode=none) a node that a rollout has is refused, and none is taken.
      - Without it the node is not asked anything.
    type: path
  claim_timeout_s:
    description:
      - Seconds to wait for whoever still works on the node, and for a node that is about to reboot or that an earlier controller left rebooting.
    type: int
    default: 1800
seealso:
  - module: gpufleet.lifecycle.rollout_plan
  - module: gpufleet.lifecycle.node_claim
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
waited:
  description: Whether the node had to wait, in this call or in one before it. What was known of it may have changed meanwhile.
  returned: success
  type: bool
from_version:
  description: The driver version that the plan recorded on the node.
  returned: success
  type: str
to_version:
  description: The driver version the node shall get.
  returned: success
  type: str
left_drained:
  description: Whether an earlier controller died after it had drained the node and before it did anything else to it.
  returned: success
  type: bool
resume:
  description:
    - How far an earlier controller had come with the node when it died. V(stopped), when only services were stopped. V(changed), when the
      driver may be changed. V(put_back), when the node was being put back. V(serving), when it had leave to serve again, so that jobs may
      run there.
    - Empty for a node on which nothing was changed, which is examined anew.
  returned: success
  type: str
failure:
  description: What that controller had recorded of the node, when RV(resume) is not empty.
  returned: success
  type: str
ticket:
  description: The ticket that came with C(go), with its C(phase) and when it C(expires); null without one.
  returned: success
  type: dict
  sample: {ident: 6a8f, phase: down, granted: "2026-01-31T12:00:00.000Z", expires: "2026-01-31T16:00:00.000Z", sha256: 4be1}
soak_s:
  description: How many seconds the node has to stay healthy at work before it counts as done; V(0) for a node that is no canary.
  returned: success
  type: int
documents:
  description: What an earlier controller kept of the node (C(baseline), C(services)), when RV(resume) is not empty.
  returned: success
  type: dict
attempt:
  description: How often this rollout has taken the node, this time included.
  returned: success
  type: int
fence:
  description: What stands for this attempt in the environment (E(GPUFLEET_FENCE)) of the tasks that change the node; empty without O(claim_dir).
  returned: success
  type: str
position:
  description: How many nodes of this run have gone so far, with this one; null when it did not go.
  returned: success
  type: int
total:
  description: How many nodes the plan holds.
  returned: success
  type: int
numbers:
  description: Where the rollout stands. C(counts) of its nodes by state, and the limits that say how many go at a time.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._rollout_options import HOLDING, TELLING

ARGUMENT_SPEC = dict(
    rollout_id=dict(type="str", default=""),
    artifact_dir=dict(type="path", required=True),
    ledger=dict(type="str", default=""),
    node=dict(type="str"),
    phase=dict(type="str", choices=["drain", "down", "return"], default="drain"),
    step=dict(type="str"),
    resume_step=dict(type="str"),
    detail=dict(type="str", default=""),
    documents=dict(type="dict", default={}),
    mode=dict(type="str", choices=["ledger", "none"], default="ledger"),
    version=dict(type="str", default=""),
    turn=dict(type="int", default=0),
    max_turns=dict(type="int", default=250),
    patience_s=dict(type="float", default=15.0),
    patience_max_s=dict(type="float", default=300.0),
    poll_s=dict(type="float", default=1.0),
    claim_dir=dict(type="path"),
    claim_timeout_s=dict(type="int", default=1800),
    **TELLING,
    **HOLDING,
)


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rollout_gate runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which was not found: "
        "call it by its full name, gpufleet.lifecycle.rollout_gate, in a task."
    )


if __name__ == "__main__":
    main()
