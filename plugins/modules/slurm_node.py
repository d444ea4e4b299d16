# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain a node in Slurm, wait for its jobs, and put it back
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Runs where Slurm's commands are, so that it is delegated to a login host or to the host of slurmctld.
  - A drain carries O(token) at the beginning of its reason, C(gpufleet:TOKEN words), and only a drain with that token
    is ever lifted. A node that was drained by others before stays drained; a drain whose reason was changed
    meanwhile counts as theirs. A reason that Slurm itself replaced is told by O(owner).
  - No job is ever ended. Jobs that hold the node when the time is over are named.
  - Reads scontrol's JSON where it has it (23.02 and newer) and its text elsewhere.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
    details:
      - Jobs are not waited for.
  diff_mode:
    support: full
    details:
      - State and reason of the node, before and after.
options:
  node_name:
    description:
      - The name of the node in Slurm, which may differ from the one in the inventory.
    type: str
  node_names:
    description:
      - For O(state=read), many nodes at once, 200 in one call. RV(nodes) has them with the idle ones first.
    type: list
    elements: str
    default: []
  state:
    description: What the node shall be.
    type: str
    default: read
    choices:
      read: Only say what it is.
      drained: Closed for new jobs, and empty.
      resumed: In service again, if it was this O(token) that took it out, and if slurmd answers and reports the GPUs
        that are expected.
  token:
    description:
      - Whose drain it is, such as the name of a rollout. Required unless O(state=read).
    type: str
  owner:
    description:
      - Who drained the node, as RV(mark.owner) was after the drain. From 23.02.7 on Slurm replaces the reason of a
        drained node that registers with fewer GPUs than it has configured, and this alone tells then. Such a node is
        resumed with V(ours), is left with V(operator) and V(none), and fails to resume with V(unknown).
    type: str
    default: unknown
    choices: [ours, operator, none, unknown]
  reason:
    description:
      - Written behind the token, for people.
    type: str
    default: maintenance
  timeout_s:
    description:
      - Seconds to wait, for jobs to end or for slurmd to answer. With V(0) the node is drained and nothing is waited
        for; RV(drained) says whether it is empty.
    type: int
    default: 0
  slice_s:
    description:
      - For O(state=drained), seconds after which the module answers though O(timeout_s) is not over. The action plugin
        then has it wait on, so that no module waits alone for hours when its controller dies. By itself the module
        waits for all of O(timeout_s).
    type: int
  poll_s:
    description:
      - Seconds between two looks while it waits.
    type: float
    default: 10
  on_timeout:
    description:
      - What becomes of our own drain when jobs still hold the node after O(timeout_s).
    type: str
    default: lift
    choices:
      lift: It is lifted, and the node serves again.
      keep: It stays.
  method:
    description: How a node that is at work is drained.
    type: str
    default: drain
    choices:
      drain: At once. Jobs that run go on, and none starts.
      job: By a job of our own that asks for the whole node, so that the scheduler makes the window when it sees fit and
        the node works until then. When it runs, the node is drained and the job is ended. It needs permission to
        submit jobs.
  reservation_minutes:
    description:
      - Length of a reservation of the node (flags C(MAINT,IGNORE_JOBS), named C(gpufleet_TOKEN_NODE)) that is made
        before it is drained, and removed when it is resumed, or when the drain is lifted. None with V(0).
    type: int
    default: 0
  reservation_start:
    description:
      - When it begins, in the words of scontrol.
    type: str
    default: now
  expected_gpus:
    description:
      - How many GPUs the node has. If Slurm has configured another number the node is neither drained nor resumed. A
        node without any GRES of the name C(gpu) is not compared.
      - A negative number says that they could not be counted (see P(gpufleet.lifecycle.schedulable_gpus#filter)). It
        agrees with no number of Slurm's.
    type: int
  expected_gres:
    description:
      - The number of GPUs by their type in Slurm, such as 14 of V(nvidia_h100_80gb_hbm3_1g.10gb) with MIG. They have to
        be exactly those.
    type: dict
  part:
    description:
      - Set by the action plugin when it divides the time by O(slice_s).
    type: dict
    suboptions:
      waited_s:
        description: Seconds that were waited before.
        type: float
        default: 0
      owner:
        description: RV(mark.owner) if the node was closed for new jobs when it was seen last. It is not closed again if
          it has been resumed.
        type: str
        default: none
        choices: [none, ours, operator]
      more:
        description: Whether it is asked again, so that a node with jobs is neither a failure nor a reason to lift or to
          cancel anything.
        type: bool
        default: false
  bin_dir:
    description:
      - Directory of Slurm's commands, where they are not in a usual place.
    type: path
notes:
  - Draining and resuming needs root, the SlurmUser, or AdminLevel Operator in Slurm's accounting. For others
    O(state=read) is all.
  - A command of Slurm that succeeds is believed whatever it prints on stderr, which is passed on as warnings.
  - Tested with Slurm 22.05. The JSON of 23.02 and newer was tested on documents of its format.
seealso:
  - module: gpufleet.lifecycle.gpu_info
"""

EXAMPLES = r"""
- name: Drain the node and wait an hour for its jobs
  gpufleet.lifecycle.slurm_node:
    node_name: "{{ slurm_name | default(inventory_hostname) }}"
    state: drained
    token: upgrade-535.261.03
    reason: driver upgrade
    timeout_s: 3600
  delegate_to: login-1
  become: true

- name: Put it back, unless Slurm's GPUs differ from the node's
  gpufleet.lifecycle.slurm_node:
    node_name: "{{ slurm_name | default(inventory_hostname) }}"
    state: resumed
    token: upgrade-535.261.03
    expected_gpus: 8
    timeout_s: 120
  delegate_to: login-1
  become: true

- name: See which nodes are idle
  gpufleet.lifecycle.slurm_node:
    node_names: "{{ groups['gpu_nodes'] }}"
  register: slurm
  delegate_to: login-1
  run_once: true

- name: Let the scheduler find the moment
  gpufleet.lifecycle.slurm_node:
    node_name: gpu-r1-1
    state: drained
    token: upgrade-535.261.03
    method: job
    timeout_s: 86400
    slice_s: 60
  delegate_to: login-1
  become: true
"""

RETURN = r"""
node:
  description: The name of the node in Slurm.
  returned: always
  type: str
drained:
  description: Whether no job runs on it and none can start.
  returned: always
  type: bool
mark:
  description: Whose mark keeps it out of service.
  returned: always
  type: dict
  contains:
    owner:
      description: V(ours) with this O(token), V(operator) of anybody else, V(none) if it is not kept out of service,
        V(unknown) if Slurm replaced the reason and O(owner) does not tell.
      type: str
    token:
      description: The token in the reason, if it has one.
      type: str
    previous:
      description: The reason given by others.
      type: str
  sample: {owner: ours, token: upgrade-535.261.03, previous: null}
blockers:
  description: The jobs that hold the node, each with C(id), C(user), C(partition), C(state) and C(time_left).
  returned: always
  type: list
  elements: dict
  sample: [{id: '4711', user: kim, partition: batch, state: RUNNING, time_left: 1-02:13:20}]
left:
  description: What was left as it is, and why.
  returned: always
  type: list
  elements: str
state:
  description: The state in Slurm, the base and its flags.
  returned: when the node could be read
  type: str
  sample: MIXED+DRAIN
work:
  description: V(idle), V(busy) or V(unknown).
  returned: when the node could be read
  type: str
reason:
  description: The reason in Slurm.
  returned: when the node could be read
  type: str
hostname:
  description: The host name of the node in Slurm.
  returned: when the node could be read
  type: str
gres:
  description: The GPUs that Slurm has configured, as text (C(configured)), in number (C(gpus)) and by type (C(types)).
  returned: when the node could be read
  type: dict
slurm_version:
  description: The version of its slurmd.
  returned: when the node could be read
  type: str
nodes:
  description: Each with C(node), C(state), C(work) and C(mark), the idle ones first.
  returned: with O(node_names)
  type: list
  elements: dict
waiting:
  description: Whether the task failed because the time was over.
  returned: always
  type: bool
holding:
  description: What kept the node from being empty, in words.
  returned: when the time was over
  type: str
waited_s:
  description: Seconds that the task took.
  returned: on success
  type: float
reservation:
  description: The name of the reservation.
  returned: when there is one
  type: str
job:
  description: The number of the job that was submitted.
  returned: when one was submitted
  type: str
trouble:
  description: Why Slurm did not do what was asked, in a word, such as V(unreachable), V(auth), V(node), V(permission),
    V(command) or V(config).
  returned: when it did not
  type: str
"""

import getpass

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import commands, slurm_node

ARGUMENT_SPEC = {
    "node_name": {"type": "str"},
    "node_names": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "default": "read", "choices": ["read", "drained", "resumed"]},
    "token": {"type": "str", "no_log": False},
    "owner": {"type": "str", "default": "unknown", "choices": ["ours", "operator", "none", "unknown"]},
    "reason": {"type": "str", "default": "maintenance"},
    "timeout_s": {"type": "int", "default": 0},
    "slice_s": {"type": "int"},
    "poll_s": {"type": "float", "default": 10},
    "on_timeout": {"type": "str", "default": "lift", "choices": ["lift", "keep"]},
    "method": {"type": "str", "default": "drain", "choices": ["drain", "job"]},
    "reservation_minutes": {"type": "int", "default": 0},
    "reservation_start": {"type": "str", "default": "now"},
    "expected_gpus": {"type": "int"},
    "expected_gres": {"type": "dict"},
    "part": {
        "type": "dict",
        "options": {
            "waited_s": {"type": "float", "default": 0},
            "owner": {"type": "str", "default": "none", "choices": ["none", "ours", "operator"]},
            "more": {"type": "bool", "default": False},
        },
    },
    "bin_dir": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    problem = slurm_node.contradiction(params)
    if problem:
        module.fail_json(msg=problem)
    slurm = commands.Slurm(bin_dir=params["bin_dir"], user=getpass.getuser())
    work = slurm_node.SlurmNode(slurm, params, module.check_mode)
    trouble, failure = {}, ""
    try:
        work.run()
    except commands.SlurmError as exc:
        trouble, failure = {"trouble": exc.kind}, "%s: %s" % (params["node_name"] or "Slurm", exc)
    except slurm_node.NodeError as exc:
        failure = str(exc)
    for notice in slurm.notices:
        module.warn(notice)
    if not module._diff:
        work.result.pop("diff", None)
    if failure:
        module.fail_json(msg=failure, **dict(work.result, **trouble))
    module.exit_json(**work.result)


if __name__ == "__main__":
    main()
