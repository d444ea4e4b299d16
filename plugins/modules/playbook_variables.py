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
  - The first task of the playbooks, on the controller and once for all nodes; no node is contacted. Refuses names that
    only look like variables of the collection, with the nearest one that there is; names that the collection reserves;
    and values that a role would refuse only after something was changed.
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
author:
  - gpufleet contributors (@gpufleet)
options:
  nodes:
    description: The nodes, by their names in the inventory.
    type: list
    elements: str
    default: []
  rollout:
    description: Whether they are the nodes of a rollout, which have the same values of its variables, delegate to known
      hosts only, and have no extra variable that would overrule the plan.
    type: bool
    default: false
  binding:
    description: Refuse a controller without C(nvidia-ml-py).
    type: bool
    default: false
  values:
    description: V(false) looks at names alone, for a playbook that contacts no node and has to work whatever the
      inventory says of nodes.
    type: bool
    default: true
  control:
    description: Whether the playbook steers a rollout, and knows variables such as C(rollout_verb).
    type: bool
    default: false
  keeps:
    description: What the playbook keeps on the controller, whose files a job of AWX forgets. V(evidence) is refused
      there unless C(gpufleet_artifact_host) keeps it; the others are a warning.
    type: str
    choices: ['', evidence, record, report]
    default: ''
  patterns:
    description: The values of the variables that name hosts, by their names. A name that is not in the inventory is
      refused, and so is a run for no host, or for the nodes of another playbook.
    type: dict
    default: {}
  prefix:
    description: The prefix of the playbook's variables where those of an inventory may begin likewise, such as
      C(capacity_). Only the command line is judged by it.
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
  description: The process of the playbook, by which a later call in the same run knows its own names.
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


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="playbook_variables is an action of gpufleet.lifecycle: call it as gpufleet.lifecycle.playbook_variables."
    )


if __name__ == "__main__":
    main()
