#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rollout_gate action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout_gate
short_description: Grant a node of a rollout a ticket to drain, to go down, or to serve again
version_added: 1.0.0
description:
  - Answers C(go), C(wait), C(skip) or C(stop) from the ledger of the rollout. C(go) is a ticket. It is recorded in the
    same transaction, so that two nodes never take one slot.
  - A node starts once in a run. Nodes that are down, lost, quarantined or orphaned hold a down slot. Failed, rolled
    back, lost and quarantined nodes count against the failure budget.
  - V(down) is granted only if the ledger has a verdict of this attempt, C(health-before), that passed, and a
    C(baseline) in which no process computes on the GPUs. V(return) is granted only if it has a verdict,
    C(health-after), that passed after the last change. Both may be in O(documents). A task with C(ignore_errors) is
    answered C(stop).
  - Waits for a while in one call, then answers C(wait). The playbook calls it again in a new task, since only a new
    task sees which hosts have become unreachable meanwhile. A node in flight that is no longer among
    C(ansible_play_hosts) is recorded as C(lost).
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
  - gpufleet.lifecycle._attributes.planned
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
      - The phase that the node requests. V(drain) before it is drained, V(down) after it was verified idle and before
        the first service is stopped, V(return) before it serves again.
      - C(go) is a ticket for the steps of this phase. M(gpufleet.lifecycle.rollout_step) refuses every other step.
    type: str
    choices: [drain, down, return]
    default: drain
  step:
    description:
      - A step of this phase to open in the transaction that grants C(go), as M(gpufleet.lifecycle.rollout_step) would.
    type: str
  resume_step:
    description:
      - The step instead of O(step) for an orphaned node that was changed. Such a node is examined first.
      - O(step) if not given.
    type: str
  detail:
    description:
      - Text for the line of progress of O(step).
    type: str
    default: ''
  documents:
    description:
      - Documents to store in the ledger by name, in the transaction that grants C(go). With another answer none is
        stored.
    type: dict
    default: {}
  mode:
    description:
      - V(none) only prints and answers C(go), for the direct use of a role outside a rollout.
    type: str
    choices: [ledger, none]
    default: ledger
  turn:
    description:
      - RV(turn) of the previous call, V(0) for the first one.
    type: int
    default: 0
  max_turns:
    description:
      - The number of calls after which waiting ends and the answer is C(stop).
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
      - Seconds between two queries of the ledger.
    type: float
    default: 1.0
  drain_s:
    description:
      - With O(phase=drain), the seconds that the jobs of the node have to end. Where the ticket does not live longer,
        the answer is C(stop).
    type: int
    default: 0
  claim_dir:
    description:
      - The state directory of the node. With it C(go) for O(phase=drain) claims the node for this attempt before
        anything is changed, with M(gpufleet.lifecycle.node_state). A node with the claim of another rollout, or without
        room for the claim, ends as failed.
      - With O(mode=none) a node with the claim of a rollout is refused, and no claim is written.
      - Without it there is no connection to the node.
    type: path
  claim_timeout_s:
    description:
      - Seconds to wait for a command that still runs on an orphaned node, and for a node that reboots.
    type: int
    default: 1800
seealso:
  - module: gpufleet.lifecycle.rollout_plan
  - module: gpufleet.lifecycle.node_state
  - module: gpufleet.lifecycle.rollout_step
"""

EXAMPLES = r"""
---
- name: Request a drain slot
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
  description: The reason in words.
  returned: success
  type: str
step:
  description: The step that begins with the grant.
  returned: success, with O(step)
  type: str
sequence:
  description: The number of the grant in the ledger. What happens later has a larger one, whatever the clocks say. 0 if
    nothing was recorded.
  returned: success
  type: int
turn:
  description: The number of calls for this node.
  returned: success
  type: int
waited:
  description: Whether the node had to wait, in this call or an earlier one. Its state may have changed meanwhile.
  returned: success
  type: bool
from_version:
  description: The driver version that the plan recorded on the node.
  returned: success
  type: str
to_version:
  description: The driver version of the node in the plan.
  returned: success
  type: str
left_drained:
  description: Whether the node is orphaned, and drained but not changed.
  returned: success
  type: bool
resume:
  description:
    - For an orphaned node, how far the rollout came. V(stopped) if only services were stopped. V(changed) if the driver
      may be changed. V(put_back) if it was being rolled back. V(serving) if it had a ticket to serve again, so that
      jobs may run on it.
    - Empty for a node on which nothing was changed. It starts from the beginning.
  returned: success
  type: str
failure:
  description: The recorded failure of an orphaned node, if RV(resume) is not empty.
  returned: success
  type: str
ticket:
  description: The ticket of C(go), with its C(phase) and the time at which it C(expires); null without one.
  returned: success
  type: dict
  sample: {ident: 6a8f, phase: down, granted: "2026-01-31T12:00:00.000Z", expires: "2026-01-31T16:00:00.000Z",
           sha256: 4be1}
soak_s:
  description: Seconds that a canary has to stay healthy in service before it is done; V(0) for other nodes.
  returned: success
  type: int
documents:
  description: The stored documents of an orphaned node (C(baseline), C(services)), if RV(resume) is not empty.
  returned: success
  type: dict
attempt:
  description: The number of attempts of this rollout on the node, including this one.
  returned: success
  type: int
fence:
  description: The value of E(GPUFLEET_FENCE) in the environment of tasks that change the node; empty without
    O(claim_dir).
  returned: success
  type: str
position:
  description: The number of the node among those that started in this run; null if it did not start.
  returned: success
  type: int
total:
  description: The number of nodes in the plan.
  returned: success
  type: int
numbers:
  description: The status of the rollout. C(counts) of its nodes by state, and the limits of nodes at a time.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._rollout_options import HOLDING, PLANNED, TELLING

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
    turn=dict(type="int", default=0),
    max_turns=dict(type="int", default=250),
    patience_s=dict(type="float", default=15.0),
    patience_max_s=dict(type="float", default=300.0),
    poll_s=dict(type="float", default=1.0),
    drain_s=dict(type="int", default=0),
    claim_dir=dict(type="path"),
    claim_timeout_s=dict(type="int", default=1800),
    **PLANNED,
    **TELLING,
    **HOLDING,
)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg=(
            "rollout_gate runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which was "
            "not found: call it by its full name, gpufleet.lifecycle.rollout_gate, in a task."
        )
    )


if __name__ == "__main__":
    main()
