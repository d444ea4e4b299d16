#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the playbook_variables action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: playbook_variables
short_description: Refuse variables that the collection does not know, or that would overrule a rollout
version_added: 1.0.0
description:
  - Looks at the names of the variables of nodes. One that begins as those of the collection's roles and playbooks do,
    such as C(gpu_scheduler_) or C(rollout_), and is none of them is refused, with the nearest one that there is. So is
    one of the command line that all but has the name of one of them, whatever it begins with, and so are names that
    the collection keeps for itself.
  - Null for a variable of a role that has a default is refused, unless whatever reads it takes the default then.
  - Runs once for all nodes, on the controller. The nodes are not contacted. The playbooks begin with it.
attributes:
  check_mode:
    support: full
    details:
      - It only looks, so it does the same in check mode.
  diff_mode:
    support: none
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
author:
  - gpufleet contributors (@gpufleet)
options:
  nodes:
    description: The nodes whose variables are looked at, by their names in the inventory.
    type: list
    elements: str
    default: []
  rollout:
    description:
      - Whether they are the nodes of a rollout. All of them then have to have the same values of the variables that
        hold for the whole of it, and what the plan says to the role C(gpu_node_upgrade) may not be a variable of the
        command line. A host to which tasks of a node are delegated, such as C(gpufleet_artifact_host), has to be in the
        inventory or in C(gpufleet_service_hosts).
    type: bool
    default: false
  binding:
    description:
      - Refuse a controller without C(nvidia-ml-py) too, with which the GPUs of the nodes are read, so that it is told
        once and every node is not called sick.
    type: bool
    default: false
  values:
    description:
      - V(false) looks at the names alone, and of those that the collection keeps for itself at the ones of the command
        line. A playbook that contacts no node and only speaks to the ledger asks for that,
        as it has to work while a source of the inventory fails, or a variable of the nodes cannot be evaluated.
    type: bool
    default: true
  control:
    description:
      - Whether the playbook steers a rollout, and therefore knows C(rollout_verb), C(rollout_reason), C(rollout_nodes),
        C(rollout_limits) and C(rollout_user). For every other playbook they are unknown.
    type: bool
    default: false
  keeps:
    description:
      - What the playbook keeps on the controller, for a job of AWX, whose container forgets it. V(evidence), which a
        reset or a reboot destroys, is refused unless C(gpufleet_artifact_host) names a host that keeps it as well. With
        V(report), which is in the output of the job too, and V(record), without which a sick node is taken out of
        service all the same, that is a warning.
    type: str
    choices: ['', evidence, record, report]
    default: ''
  patterns:
    description:
      - The values of variables that name hosts and groups, by the names of the variables. A name that is not in the
        inventory is refused, which Ansible would leave out with a warning. So is a variable of the command line that
        names the nodes of another of the collection's playbooks, such as C(upgrade_hosts) for C(bringup), which would
        take all of its nodes instead. With O(patterns), an empty list of O(nodes) is refused too, by the variables,
        their patterns and the limit of the run.
    type: dict
    default: {}
  prefix:
    description:
      - What the names of the playbook's variables begin with, such as C(capacity_), where those of an inventory may
        begin likewise. A name of the command line that begins so and is none of them is refused, with the nearest one
        that there is; the inventory is not judged by it.
    type: str
    default: ''
  artifact_dir:
    description:
      - The directory of the rollouts on the controller. With it a refusal that does not overrule the steps of a node is
        RV(refused) and no failure as long as the ledger has some of O(nodes) in flight. The plan then finishes these
        and refuses the rest.
    type: path
  ledger:
    description: The database with the ledgers; a file in O(artifact_dir) if it is empty.
    type: str
    default: ''
seealso:
  - module: gpufleet.lifecycle.rollout_plan
"""

EXAMPLES = r"""
---
- name: Refuse variables that no task would read
  gpufleet.lifecycle.playbook_variables:
    nodes: "{{ ansible_play_hosts_all }}"
  register: __gpufleet_checked
  run_once: true
"""

RETURN = r"""
---
refused:
  description: What is refused, for O(gpufleet.lifecycle.rollout_plan#module:refused).
  returned: with O(artifact_dir), when nodes are in flight
  type: str
process:
  description: The process of the playbook, by which a later call in the same run knows that the collection's own names
    are its own.
  returned: always
  type: int
service_hosts:
  description: The hosts of C(gpufleet_service_hosts) that the inventory lacks, each with its C(name) and the variables
    of its connection, for M(ansible.builtin.add_host).
  returned: success
  type: list
  elements: dict
  sample: [{name: slurm-login, ansible_host: 192.0.2.10}]
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    nodes=dict(type="list", elements="str", default=[]),
    rollout=dict(type="bool", default=False),
    binding=dict(type="bool", default=False),
    values=dict(type="bool", default=True),
    control=dict(type="bool", default=False),
    keeps=dict(type="str", default="", choices=["", "evidence", "record", "report"]),
    patterns=dict(type="dict", default={}),
    prefix=dict(type="str", default=""),
    artifact_dir=dict(type="path"),
    ledger=dict(type="str", default=""),
)


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg=(
            "playbook_variables runs on the controller, as an action plugin of the collection gpufleet.lifecycle, "
            "which was not found: call it by its full name, gpufleet.lifecycle.playbook_variables, in a task."
        )
    )


if __name__ == "__main__":
    main()
