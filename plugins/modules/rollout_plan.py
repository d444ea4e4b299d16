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
  - gpufleet.lifecycle._attributes.rollout
  - gpufleet.lifecycle._attributes.telling
  - gpufleet.lifecycle._attributes.holding
  - gpufleet.lifecycle._awx_job
  - gpufleet.lifecycle._several_controllers
author:
  - gpufleet contributors (@gpufleet)
options:
  rollout_id:
    description: The name of the rollout. When empty it is made from the version or O(undo), so that the next run of the
      same change finds what is left.
    type: str
    default: ''
  target:
    description: The driver version every node shall have at the end, such as V(535.261.03), where O(targets) and
      O(undo) give no other.
    type: str
    default: ''
  targets:
    description: A version for each node by its name, if O(target) is empty. A node of O(layouts) needs none.
    type: dict
    default: {}
  layouts:
    description: For each node its MIG layout, C(name), C(configs) and C(file) as the variables of the role
      P(gpufleet.lifecycle.nvidia_mig#role). If one does not exist, or its GPUs cannot have it, the plan is refused.
      With O(undo) the layouts are those that the rollout found.
    type: dict
    default: {}
  layout_looks:
    description: What M(gpufleet.lifecycle.gpu_mig) said in check mode of each layout, by node, or why it is refused.
      With O(undo) only the latter counts.
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
  role_mode:
    description: The value of C(gpu_node_upgrade_rollout_mode). Only V(ledger) is accepted; others need no ticket.
    type: str
    default: ledger
  undo:
    description: The id of a rollout to roll back to the versions that it found, or V(last) for the last planned one.
    type: str
    default: ''
  audits:
    description: For each node of the rollout by its name, what M(gpufleet.lifecycle.driver_audit) returned, failures
      and unreachable nodes included.
    type: dict
    required: true
  markers:
    description: For each node by its name, what M(gpufleet.lifecycle.node_claim) returned, or M(ansible.builtin.stat)
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
  max_down:
    description:
      - How many nodes may serve no work at a time, as a number or as a share of the fleet such as V(10%), rounded down
        and at least 1.
      - Nodes that are lost or in quarantine, and O(broken_elsewhere), take a part of it.
    type: raw
    default: 1
  max_draining:
    description:
      - How many nodes may drain at a time. A node that drains still runs its jobs. As many as O(max_down) when not
        given.
      - Up to O(max_down) no node begins to drain for which no down slot is free. A larger number lets nodes drain ahead
        of their slot.
    type: raw
  failure_budget:
    description: The number of failed nodes, or the share of the fleet, at which no further node starts. A lost node
      counts twice; one that was sick before anything was changed does not count.
    type: raw
    default: 1
  failure_percent:
    description: No further node starts when more than this share of the nodes that went has failed. It counts from the
      first node on that is such a share; with V(0) the first failure stops the rollout.
    type: raw
  failure_classes:
    description: The number of failed nodes of one class at which no further node starts. V(soft) is a failure before
      the services of a node were stopped, V(hard) one after, V(lost) a node that does not answer any more, V(sick) one
      that was not healthy before.
    type: dict
    default: {}
  domain_caps:
    description: 'How many nodes of one failure domain may be out at a time, by its key, such as
      C({rack: 1, nvlink_domain: 2}).'
    type: dict
    default: {}
  growth_start:
    description: How many nodes may be down at first. Every node that is done adds O(growth_step) up to O(max_down), and
      every one that fails halves it. All of O(max_down) from the beginning when not given.
    type: int
  growth_step:
    description: See O(growth_start).
    type: int
    default: 1
  common_cause:
    description: The number of nodes that fail in the same way at which the change is blamed and no further node starts;
      V(0) for never.
    type: int
    default: 2
  max_delta_unhealthy:
    description: No further node starts when more than this share of the fleet has become unhealthy since the rollout
      began, in percent.
    type: raw
  broken_elsewhere:
    description: Nodes of the same fleet that are out of service for other reasons and are not among the nodes of this
      rollout.
    type: int
    default: 0
  canaries:
    description: Nodes that start first, in this order. No other node starts before every canary has ended.
    type: list
    elements: str
    default: []
  canaries_per_stratum:
    description: Take so many canaries of every GPU model and running kernel, beside O(canaries).
    type: int
    default: 0
  canary_failures:
    description: The number of canaries that may fail without stopping the rollout.
    type: int
    default: 0
  canary_soak_s:
    description: Seconds that a canary has to stay healthy in service before it is done and others start.
    type: int
    default: 0
  mode:
    description: With V(window) the next node starts as soon as a slot is free. With V(waves) no node of a wave starts
      before every node of the one before has ended. All limits hold in both.
    type: str
    choices: [window, waves]
    default: window
  waves:
    description: Sizes of the waves with O(mode=waves), each a number of nodes or a share of those that go, rounded down
      and at least 1. The last one repeats. A text has a blank after each comma, as in V(1, 25%), and a share a point.
      Within a wave O(max_down) says how many nodes are down at a time.
    type: list
    elements: raw
    default: [1, 10%, 25%, 100%]
  windows:
    description: Maintenance windows, each with C(from) and C(to) such as V('22:00'), and if need be C(days) (V(mon) to
      V(sun)) or one C(date), and C(timezone) (UTC by default). No node starts, and no drained node goes down, that
      could not end inside, by O(node_s).
    type: list
    elements: dict
    default: []
  node_s:
    description: Seconds that a node takes from its first step to its last, for the estimate and for O(windows).
    type: int
    default: 900
  other_ledger_s:
    description:
      - A node that a rollout of another ledger changed in the last so many seconds, by the node's clock, is refused by
        name, unless O(abandon) names it. Two ledgers know nothing of each other's limits. V(0) refuses none.
    type: int
    default: 86400
  ticket_s:
    description: Seconds for which a C(go) of M(gpufleet.lifecycle.rollout_gate) lets a node begin steps.
    type: int
    default: 14400
  on_failure:
    description: What the role C(gpu_node_upgrade) does with a failed node, for the approval and the record.
    type: str
    choices: [rollback, quarantine, stop]
    default: rollback
  require_approval:
    description: No node starts before exactly this plan is approved with O(approve).
    type: bool
    default: false
  approve:
    description: At least eight letters of RV(sha256) of the plan to approve. A plan that has changed is not approved.
    type: str
    default: ''
  domains:
    description: 'For each node by its name, its failure domains by key, such as C({rack: r1, nvlink_domain: "7"}).'
    type: dict
    default: {}
  domain_group_prefix:
    description: A group whose name starts with this is a failure domain of its nodes, V(rack_) one of key C(rack);
      neighbours in the order differ in it.
    type: str
    default: rack_
  abandon:
    description: Nodes that are no longer in the rollout, although a controller died while it worked on them. They are
      recorded as V(lost), and hold a down slot. Also nodes that another rollout, of any ledger, left in flight, lost or
      quarantined. Without their names here they are refused.
    type: list
    elements: str
    default: []
  break_lock:
    description: Take over from a controller that is not visible. Refused if it wrote in the last two minutes.
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
    audits: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all
      | map('extract', hostvars, 'audit_result'))) }}"
    markers: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all
      | map('extract', hostvars, 'marker_result'))) }}"
    max_down: 2
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
  description: The nodes that start, first to last. With O(join) those of this controller.
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

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._rollout_options import HOLDING, TELLING

ARGUMENT_SPEC = dict(
    rollout_id=dict(type="str", default=""),
    artifact_dir=dict(type="path", required=True),
    ledger=dict(type="str", default=""),
    target=dict(type="str", default=""),
    targets=dict(type="dict", default={}),
    layouts=dict(type="dict", default={}),
    layout_looks=dict(type="dict", default={}),
    checked=dict(type="bool", default=True),
    refused=dict(type="str", default=""),
    schedulers=dict(type="dict", default={}),
    role_mode=dict(type="str", default="ledger"),
    job=dict(type="dict", default={}),
    undo=dict(type="str", default=""),
    audits=dict(type="dict", required=True),
    markers=dict(type="dict", default={}),
    health=dict(type="dict", default={}),
    expected=dict(type="dict", default={}),
    max_down=dict(type="raw", default=1),
    max_draining=dict(type="raw"),
    failure_budget=dict(type="raw", default=1),
    failure_percent=dict(type="raw"),
    failure_classes=dict(type="dict", default={}),
    domain_caps=dict(type="dict", default={}),
    growth_start=dict(type="int"),
    growth_step=dict(type="int", default=1),
    common_cause=dict(type="int", default=2),
    max_delta_unhealthy=dict(type="raw"),
    broken_elsewhere=dict(type="int", default=0),
    pool=dict(type="str", default=""),
    canaries=dict(type="list", elements="str", default=[]),
    canaries_per_stratum=dict(type="int", default=0),
    canary_failures=dict(type="int", default=0),
    canary_soak_s=dict(type="int", default=0),
    mode=dict(type="str", default="window", choices=["window", "waves"]),
    waves=dict(type="list", elements="raw", default=[1, "10%", "25%", "100%"]),
    windows=dict(type="list", elements="dict", default=[]),
    node_s=dict(type="int", default=900),
    other_ledger_s=dict(type="int", default=86400),
    ticket_s=dict(type="int", default=14400),
    on_failure=dict(type="str", choices=["rollback", "quarantine", "stop"], default="rollback"),
    require_approval=dict(type="bool", default=False),
    approve=dict(type="str", default=""),
    domains=dict(type="dict", default={}),
    domain_group_prefix=dict(type="str", default="rack_"),
    abandon=dict(type="list", elements="str", default=[]),
    break_lock=dict(type="bool", default=False),
    hand_over=dict(type="bool", default=False),
    join=dict(type="bool", default=False),
    **TELLING,
    **HOLDING,
)


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rollout_plan is an action of gpufleet.lifecycle: call it in a task as gpufleet.lifecycle.rollout_plan."
    )


if __name__ == "__main__":
    main()
