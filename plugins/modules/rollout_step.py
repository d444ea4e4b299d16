#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rollout_step action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout_step
short_description: Record a step of a node before it begins
version_added: 1.0.0
description:
  - Closes the open step of the node and opens the next one in the ledger, and prints a line of progress. The record is
    on disk before the next task runs.
  - Refuses a node without a valid ticket of M(gpufleet.lifecycle.rollout_gate) for the phase of the step, and a rollout
    that another controller runs.
  - With O(state) it records the final state of the node, frees its slot, and updates the report.
  - A ledger that does not answer keeps no failed node from being put back. O(failed), the steps of a rollback and of a
    quarantine, and a final state that is a failure, are then not recorded, with a warning, and the next run of the
    rollout examines the node. Every other step fails.
attributes:
  check_mode:
    support: full
    details:
      - Prints the line and records nothing.
  diff_mode:
    support: none
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
  - gpufleet.lifecycle._attributes.rollout
  - gpufleet.lifecycle._attributes.planned
  - gpufleet.lifecycle._attributes.telling
author:
  - gpufleet contributors (@gpufleet)
options:
  rollout_id:
    description:
      - The name of the rollout.
      - Needed unless O(mode=none).
    type: str
    default: ''
  node:
    description:
      - The node; the host of the task when not given.
    type: str
  mode:
    description:
      - V(none) only prints, for the direct use of a role outside a rollout.
    type: str
    choices: [ledger, none]
    default: ledger
  name:
    description:
      - The step that begins.
    type: str
    choices:
      - evidence
      - prestage
      - drain
      - stop
      - mig_clear
      - install
      - prove
      - reboot
      - reload
      - mig
      - validate
      - return
      - soak
      - rollback_install
      - rollback_prove
      - rollback_reboot
      - rollback_reload
      - rollback_mig
      - rollback_validate
      - rollback_start
      - quarantine
  previous:
    description:
      - The version that a rollback is about to install. It has to be one that ran before the change, by the plan or by
        the baseline in the ledger.
    type: str
    default: ''
  detail:
    description:
      - Text for the line of progress.
    type: str
    default: ''
  failed:
    description:
      - Close the open step as failed, with this reason. It is the reason of the node unless O(reason) has another one.
    type: str
    default: ''
  stop_rollout:
    description:
      - With O(failed), let no further node start, as with an operator's stop. Nodes in flight finish.
    type: bool
    default: false
  failed_checks:
    description:
      - The ids of the health checks that failed, with O(failed). Nodes with the same failed checks have a common cause,
        which stops the rollout.
    type: list
    elements: str
    default: []
  state:
    description:
      - The final state of the node. V(pending) is for a node that was drained and does not go down.
      - V(done) and V(rolled_back) need their proof in O(documents), as C(health-after). This is
        RV(gpufleet.lifecycle.gpu_health#module:health) of M(gpufleet.lifecycle.gpu_health) with a baseline, from after
        the last change and with verdict V(pass).
      - Where the plan wants a MIG layout, V(done) also needs C(layout-after), C(layout) with the layout that was made,
        and C(gpus) with RV(gpufleet.lifecycle.gpu_mig#module:gpus) of the task that made it, in a step C(mig) of this
        attempt.
      - V(failed), V(skipped) and V(pending) mean that nothing was changed. They are refused for a node on which a step
        that changes it began.
    type: str
    choices: [done, failed, rolled_back, quarantined, lost, skipped, pending]
  reason:
    description:
      - The reason for the state.
    type: str
    default: ''
  documents:
    description:
      - Documents to store in the ledger, by name.
    type: dict
    default: {}
  node_dir:
    description:
      - Directory on the node for copies of O(documents), each as C(<name>.json), readable only by root. It is created
        if it does not exist.
      - The copies are written after the ledger, and with O(mode=none) too. In check mode nothing is written.
      - Without it there is no connection to the node.
    type: path
  node_documents:
    description:
      - The names of the documents for O(node_dir). All of them if not given.
    type: list
    elements: str
  claim_dir:
    description:
      - The state directory of the node. With it O(state) removes the claim of M(gpufleet.lifecycle.rollout_gate), after
        the ledger has the state. A node that is quarantined or lost keeps its claim. So does a node that does not
        answer, which is a warning.
    type: path
seealso:
  - module: gpufleet.lifecycle.rollout_gate
  - module: gpufleet.lifecycle.node_state
"""

EXAMPLES = r"""
---
- name: Record the step install
  gpufleet.lifecycle.rollout_step:
    rollout_id: driver-535.261.03
    artifact_dir: /var/lib/gpufleet-controller
    name: install
    detail: driver 535.216.03 -> 535.261.03

- name: Record the step drain, and store the baseline in the ledger and on the node
  gpufleet.lifecycle.rollout_step:
    rollout_id: driver-535.261.03
    artifact_dir: /var/lib/gpufleet-controller
    name: drain
    documents:
      baseline: "{{ before.baseline }}"
    node_dir: /var/lib/gpufleet

- name: Record that the node is done
  gpufleet.lifecycle.rollout_step:
    rollout_id: driver-535.261.03
    artifact_dir: /var/lib/gpufleet-controller
    state: done
    documents:
      health-after: "{{ after.health }}"
"""

RETURN = r"""
---
progress:
  description: The line that was printed.
  returned: success
  type: str
  sample: '[3/4] gpu-r1-2: install (driver 535.216.03 -> 535.261.03)'
step:
  description: The step that begins; empty if none does.
  returned: success, with the ledger
  type: str
unrecorded:
  description: Why the ledger could not record it.
  returned: when a failed node is put back while the ledger does not answer
  type: str
sequence:
  description: The number of the step in the ledger. What happens later has a larger one, whatever the clocks say. 0 if
    nothing was recorded.
  returned: success, with the ledger
  type: int
state:
  description: The state of the node after the step.
  returned: success, with the ledger
  type: str
ticket:
  description: The ticket of the step; null if the node has ended.
  returned: success, with the ledger
  type: dict
numbers:
  description: The status of the rollout. C(counts) of its nodes by state, and the limits of nodes at a time.
  returned: outside of check mode; empty if only documents were stored
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._rollout_options import PLANNED, TELLING

ARGUMENT_SPEC = dict(
    rollout_id=dict(type="str", default=""),
    artifact_dir=dict(type="path", required=True),
    ledger=dict(type="str", default=""),
    node=dict(type="str"),
    mode=dict(type="str", choices=["ledger", "none"], default="ledger"),
    name=dict(
        type="str",
        choices=[
            "evidence",
            "prestage",
            "drain",
            "stop",
            "mig_clear",
            "install",
            "prove",
            "reboot",
            "reload",
            "mig",
            "validate",
            "return",
            "soak",
            "rollback_install",
            "rollback_prove",
            "rollback_reboot",
            "rollback_reload",
            "rollback_mig",
            "rollback_validate",
            "rollback_start",
            "quarantine",
        ],
    ),
    detail=dict(type="str", default=""),
    failed=dict(type="str", default=""),
    stop_rollout=dict(type="bool", default=False),
    failed_checks=dict(type="list", elements="str", default=[]),
    state=dict(type="str", choices=["done", "failed", "rolled_back", "quarantined", "lost", "skipped", "pending"]),
    reason=dict(type="str", default=""),
    documents=dict(type="dict", default={}),
    node_dir=dict(type="path"),
    node_documents=dict(type="list", elements="str"),
    claim_dir=dict(type="path"),
    previous=dict(type="str", default=""),
    **PLANNED,
    **TELLING,
)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg=(
            "rollout_step runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which was "
            "not found: call it by its full name, gpufleet.lifecycle.rollout_step, in a task."
        )
    )


if __name__ == "__main__":
    main()
