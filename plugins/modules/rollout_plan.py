#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rollout_plan action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout_plan
short_description: Order the nodes of a rollout and open its ledger
version_added: 1.0.0
description:
  - Orders the nodes, leaves out those that are at the target already, and writes the plan into the ledger of the
    rollout.
  - The order is orphaned nodes, then the canaries, then the others, round-robin over failure domains. In one failure
    domain (and wave) idle nodes go first (C(load) in RV(nodes)). RV(sha256) does not depend on the load.
  - Refuses to start while another controller runs the same rollout, or one that shares a node with it, if another
    rollout was interrupted with one of the nodes in flight, and if a collection of another major or minor version
    planned the rollout, which has not ended.
  - Runs once for all nodes, on the controller.
attributes:
  check_mode:
    support: full
    details:
      - Prints the plan and writes nothing, not even the ledger. Fails as a real run would, where another controller or
        rollout has the nodes.
  diff_mode:
    support: none
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
author:
  - gpufleet contributors (@gpufleet)
options:
  artifact_dir:
    description: Directory on the controller that keeps the reports and other artifacts of the rollouts, each in a
      directory of its own below C(rollouts/).
    type: path
    required: true
  policy:
    description:
      - The variables C(rollout_*) of the playbook that are set, by their names, such as C(rollout_max_down).
        C(docs/runbooks/rollout.md) lists all of them with their defaults. Null and the empty text mean the default; an
        unknown name is refused.
      - Where one of the limits is refused, nodes that an interrupted run left in flight are finished all the same.
    type: dict
    default: {}
  targets:
    description: A version for each node by its name, if C(rollout_version) is empty. A node of O(layouts) needs none.
    type: dict
    default: {}
  layouts:
    description: For each node its MIG layout, C(name), C(configs) and C(file) as the variables of the role
      P(gpufleet.lifecycle.nvidia_mig#role). If one does not exist, or its GPUs cannot have it, the plan is refused.
      In a rollback the layouts are those that the rollout found.
    type: dict
    default: {}
  layout_looks:
    description: What M(gpufleet.lifecycle.gpu_mig) returned in check mode for each layout, by node, or why it is
      refused. In a rollback only the latter counts.
    type: dict
    default: {}
  checked:
    description: Whether M(gpufleet.lifecycle.playbook_variables) was run before. If not, the plan is refused.
    type: bool
    default: true
  refused:
    description: Why M(gpufleet.lifecycle.playbook_variables) refuses the plan. Nodes in flight are finished first.
    type: str
    default: ''
  schedulers:
    description: For each node by its name, the schedulers that it is drained in. The plan says which.
    type: dict
    default: {}
  drains:
    description: For each node by its name, the seconds that its jobs have to end, C(gpu_scheduler_drain_timeout). In
      check mode a plan is refused in which the ticket of a node expires before.
    type: dict
    default: {}
  role_mode:
    description: The value of C(gpu_node_upgrade_rollout_mode). Only V(ledger) is accepted; others need no ticket.
    type: str
    default: ledger
  job:
    description:
      - The job of AWX that runs this, with C(awx), the address of this AWX, C(id), C(template), C(workflow),
        C(workflow_name) and C(user). An empty
        C(id) means none.
      - In a job, a ledger in SQLite is refused, and so is a node whose C(gpufleet_artifact_host) is not set or is the
        controller, as the container of the job keeps nothing. The job is recorded with the plan, and named as the
        owner of the rollout.
    type: dict
    default: {}
  audits:
    description: For each node of the rollout by its name, what M(gpufleet.lifecycle.driver_audit) returned, failures
      and unreachable nodes included.
    type: dict
    required: true
  markers:
    description: For each node by its name, what M(gpufleet.lifecycle.node_state) returned, or M(ansible.builtin.stat)
      for its quarantine marker alone.
    type: dict
    default: {}
  health:
    description: For each node that has the wanted version already, what M(gpufleet.lifecycle.gpu_health) returned; it
      is finished only if that passed.
    type: dict
    default: {}
  expected:
    description: As the option of gpu_health, by node. Where it says no number of GPUs, a node with fewer than most
      nodes with such GPUs is left out as failed.
    type: dict
    default: {}
  domains:
    description: 'For each node by its name, its failure domains by key, such as C({rack: r1, nvlink_domain: "7"}).'
    type: dict
    default: {}
  hand_over:
    description:
      - Make the plan for several controllers. It belongs to none of them, and each of them joins it with
        C(rollout_join).
      - Needs a ledger in PostgreSQL, and C(rollout_mode=window).
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
    artifact_dir: /var/lib/gpufleet-controller
    policy: {rollout_id: driver-535.261.03, rollout_version: 535.261.03, rollout_max_down: 2}
    audits: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all
      | map('extract', hostvars, 'audit_result'))) }}"
    markers: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all
      | map('extract', hostvars, 'marker_result'))) }}"
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
run_before:
  description: The id of the last run that the rollout had before this plan; null if it had none, or this run joins one.
  returned: success
  type: str
target:
  description: The target version, or the list of them when nodes have different ones.
  returned: success
  type: str
undo: {description: The rollout that is rolled back; empty if none is., returned: success, type: str}
order:
  description: The nodes that start, first to last. Of a joined plan those of this controller.
  returned: success
  type: list
  elements: str
nodes:
  description: For every node its C(from) and C(to) version, C(domains), C(state) and C(reason); for those that go also
    C(load), V(idle), V(at work) or empty; with a MIG layout C(layout), and C(install), whether the driver is installed
    too.
  returned: success
  type: dict
peers:
  description: O(gpufleet.lifecycle.gpu_health#module:expect.peers) by PCI device id; of a rollback, in C(nodes), the
    GPUs that each node had when it was planned.
  returned: success
  type: dict
canaries: {description: The canaries among them., returned: success, type: list, elements: str}
left_out: {description: The nodes that cannot be upgraded as they are., returned: success, type: list, elements: str}
approved: {description: "Whether the plan is approved, or needs no approval.", returned: success, type: bool}
sha256:
  description: Digest of the target, of versions, layouts, domains and canaries of the ordered nodes, and of the policy.
  returned: success
  type: str
on_failure: {description: What becomes of a node that fails., returned: success, type: str}
refused: {description: Why only nodes in flight are finished; empty if all are., returned: success, type: str}
directory: {description: The directory of the rollout's report., returned: success, type: str}
lines: {description: The plan as it was printed., returned: success, type: list, elements: str}
table: {description: The first 100 of them and how many more there are., returned: success, type: list, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    artifact_dir=dict(type="path", required=True),
    policy=dict(type="dict", default={}),
    targets=dict(type="dict", default={}),
    layouts=dict(type="dict", default={}),
    layout_looks=dict(type="dict", default={}),
    checked=dict(type="bool", default=True),
    refused=dict(type="str", default=""),
    schedulers=dict(type="dict", default={}),
    drains=dict(type="dict", default={}),
    role_mode=dict(type="str", default="ledger"),
    job=dict(type="dict", default={}),
    audits=dict(type="dict", required=True),
    markers=dict(type="dict", default={}),
    health=dict(type="dict", default={}),
    expected=dict(type="dict", default={}),
    domains=dict(type="dict", default={}),
    hand_over=dict(type="bool", default=False),
)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rollout_plan is an action of gpufleet.lifecycle: call it in a task as gpufleet.lifecycle.rollout_plan."
    )


if __name__ == "__main__":
    main()
