#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rollout_control action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout_control
short_description: Steer a rollout while it runs
version_added: 1.0.0
description:
  - Records a request of an operator in the ledger of a rollout, with user and reason.
    M(gpufleet.lifecycle.rollout_gate) follows it at the next transition of a node. Nodes that are down already finish.
  - It may run on any controller that reaches the ledger. The nodes are not contacted.
attributes:
  check_mode:
    support: full
    details:
      - Prints what would be recorded, refuses what would be refused, and records nothing.
  diff_mode:
    support: none
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
  - gpufleet.lifecycle._attributes.rollout
author:
  - gpufleet contributors (@gpufleet)
options:
  rollout_id:
    description:
      - The name of the rollout; the one that was planned last when empty. Required for every verb but V(status) while
        another rollout of the ledger runs.
    type: str
    default: ''
  verb:
    description:
      - V(status) only shows the status.
      - V(pause) lets no node start and none that drains go down, until V(resume).
      - V(stop) ends the rollout for all nodes that are not down. After that run the next run of the playbook makes a
        new plan.
      - If the controller dies before its run has ended, requests stay for the run that continues it. A V(stop) is then
        a V(pause), which V(resume) ends.
      - V(skip) leaves O(nodes) out; a node that drains is resumed. V(retry) makes nodes pending again that failed, were
        rolled back or skipped. They start if their play still runs, or in the next run.
      - V(set_budget) replaces the limits in O(limits).
      - V(retire) is for nodes that are gone for good, such as scrapped machines. It gives their down slots free; they
        count as failed. It is for nodes that are lost or quarantined and, where no controller works on the rollout, for
        nodes in flight.
      - V(break_lock) records that the controller of the rollout is gone. It is refused if the controller is alive, or
        has recorded a step in the last two minutes.
      - V(end) ends a rollout of several controllers, once none of them works on it. Its failures then no longer count
        in the next plan. It is refused while a controller that joined it is alive.
    type: str
    choices: [status, pause, resume, stop, skip, retry, retire, set_budget, break_lock, end]
    default: status
  nodes:
    description:
      - The nodes of V(skip), V(retry) and V(retire).
    type: list
    elements: str
    default: []
  limits:
    description:
      - "The limits of V(set_budget) by the name of the option of M(gpufleet.lifecycle.rollout_plan), such as
        C({max_down: 4})."
    type: dict
    default: {}
  user:
    description:
      - The operator. The user that runs the playbook if empty.
    type: str
    default: ''
  reason:
    description:
      - The reason. Required except for V(status).
    type: str
    default: ''
seealso:
  - module: gpufleet.lifecycle.rollout_gate
  - module: gpufleet.lifecycle.rollout_report
"""

EXAMPLES = r"""
---
- name: Pause the rollout that was planned last
  gpufleet.lifecycle.rollout_control:
    artifact_dir: /var/lib/gpufleet-controller
    verb: pause
    reason: the switch of rack 4 is being replaced

- name: Let more nodes be down at a time
  gpufleet.lifecycle.rollout_control:
    artifact_dir: /var/lib/gpufleet-controller
    verb: set_budget
    limits:
      max_down: 8
    reason: the first forty nodes are fine
"""

RETURN = r"""
---
rollout_id:
  description: The rollout.
  returned: success
  type: str
lines:
  description: The printed lines, with what was recorded and the status of the rollout.
  returned: success
  type: list
  elements: str
report:
  description: The current report, schema C(gpufleet.report/1).
  returned: success
  type: dict
owner:
  description: The controller that runs the rollout, or ran it, with C(time), C(heartbeat) and C(ended). With C(shared)
    the plan was made for several controllers.
  returned: success
  type: dict
members:
  description: A line for each controller that joined a rollout of several.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    rollout_id=dict(type="str", default=""),
    artifact_dir=dict(type="path", required=True),
    ledger=dict(type="str", default=""),
    verb=dict(
        type="str",
        choices=["status", "pause", "resume", "stop", "skip", "retry", "retire", "set_budget", "break_lock", "end"],
        default="status",
    ),
    nodes=dict(type="list", elements="str", default=[]),
    limits=dict(type="dict", default={}),
    user=dict(type="str", default=""),
    reason=dict(type="str", default=""),
)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg=(
            "rollout_control runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which "
            "was not found: call it by its full name, gpufleet.lifecycle.rollout_control, in a task."
        )
    )


if __name__ == "__main__":
    main()
