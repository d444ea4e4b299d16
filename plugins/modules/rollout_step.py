#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rollout_step action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout_step
short_description: Record a step of a node before it is taken
version_added: 0.1.0
description:
  - Closes the open step of the node and opens the next one in the ledger, on disk before the task after it runs, and prints a line of progress.
  - Refuses when the node has no live ticket of M(gpufleet.lifecycle.rollout_gate) for the phase of the step, or when the rollout belongs to another controller.
  - With O(state) it closes the node, frees its slot, and writes the report anew.
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
  version:
    description:
      - The version that the node is about to get. Another one than the plan's is refused.
    type: str
    default: ''
  name:
    description:
      - The step that is about to be taken.
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
  detail:
    description:
      - Words for the line of progress.
    type: str
    default: ''
  failed:
    description:
      - Close the open step as failed, with this reason. It stays the reason of the node unless O(reason) says another.
    type: str
    default: ''
  stop_rollout:
    description:
      - With O(failed), let no further node start either, as an operator's stop does. Nodes in flight finish.
    type: bool
    default: false
  failed_checks:
    description:
      - The ids of the health checks that failed, with O(failed). Two nodes that fail the same ones fail alike, which stops the rollout.
    type: list
    elements: str
    default: []
  state:
    description:
      - How the node ended. V(pending) is for a node that was drained and may not go down after all.
      - V(done) and V(rolled_back) need their proof in O(documents), as C(health-after), which is what M(gpufleet.lifecycle.gpu_health) returns as
        RV(gpufleet.lifecycle.gpu_health#module:health) with a baseline. It has to be of after the last change, with verdict V(pass).
      - V(failed), V(skipped) and V(pending) say that nothing was changed, and are refused of a node on which a step that changes it was begun.
    type: str
    choices: [done, failed, rolled_back, quarantined, lost, skipped, pending]
  reason:
    description:
      - Why it ended so.
    type: str
    default: ''
  documents:
    description:
      - Documents to keep in the ledger, by their names.
    type: dict
    default: {}
  node_dir:
    description:
      - Directory on the node that gets a copy of O(documents), each as C(<name>.json), readable for root alone. It is made if it is not there.
      - They are written to the node when the ledger has them, and with O(mode=none) too. In check mode nothing is written.
      - Without it the node is not asked anything.
    type: path
  node_documents:
    description:
      - The documents that O(node_dir) gets, by their names. Without it all of them.
    type: list
    elements: str
  claim_dir:
    description:
      - The state directory of the node. With it O(state) gives the node up that M(gpufleet.lifecycle.rollout_gate) took, once the ledger has it.
        A node that is quarantined or lost keeps its claim. A node that does not answer keeps it too, which is told and fails nothing.
    type: path
seealso:
  - module: gpufleet.lifecycle.rollout_gate
  - module: gpufleet.lifecycle.node_claim
"""

EXAMPLES = r"""
---
- name: Begin to install
  gpufleet.lifecycle.rollout_step:
    rollout_id: driver-535.261.03
    artifact_dir: /var/lib/gpufleet-controller
    name: install
    detail: driver 535.216.03 -> 535.261.03

- name: Begin to drain, and keep the baseline in the ledger and on the node
  gpufleet.lifecycle.rollout_step:
    rollout_id: driver-535.261.03
    artifact_dir: /var/lib/gpufleet-controller
    name: drain
    documents:
      baseline: "{{ before.baseline }}"
    node_dir: /var/lib/gpufleet

- name: The node is done
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
state:
  description: The state of the node afterwards.
  returned: success, with the ledger
  type: str
ticket:
  description: The ticket under which the step was opened; null when the node ended.
  returned: success, with the ledger
  type: dict
numbers:
  description: Where the rollout stands. C(counts) of its nodes by state, and the limits that say how many go at a time.
  returned: outside of check mode; empty when only documents were kept
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._rollout_options import TELLING

ARGUMENT_SPEC = dict(
    rollout_id=dict(type="str", default=""),
    artifact_dir=dict(type="path", required=True),
    ledger=dict(type="str", default=""),
    node=dict(type="str"),
    mode=dict(type="str", choices=["ledger", "none"], default="ledger"),
    version=dict(type="str", default=""),
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
    **TELLING,
)


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rollout_step runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which was not found: "
        "call it by its full name, gpufleet.lifecycle.rollout_step, in a task."
    )


if __name__ == "__main__":
    main()
