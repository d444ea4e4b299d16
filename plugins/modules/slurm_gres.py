#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_gres
short_description: Give Slurm the GPUs and MIG devices of a node, in two files that its configuration includes
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Runs on the host from which slurmctld reads its configuration. What to write is told by
    P(gpufleet.lifecycle.slurm_gres#filter).
  - In O(directory), C(NODE.conf) is included by C(slurm.conf) and has the NodeName line of the node, moved there by an
    operator. Its GPUs in C(Gres) are set, and other generic resources stay. C(NODE.gres.conf) is included by
    C(gres.conf) and has O(lines).
  - Both are written whole or not at all, with mode 0644. If C(scontrol reconfigure) fails they are put back. Afterwards
    Slurm has to tell O(gres), or the task fails.
  - Nothing is written when Slurm has the GPUs already. A node that is not drained in Slurm keeps its C(Gres).
  - What cannot be written is refused with the lines for an operator to write.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - The two files, before and after.
options:
  node_name:
    description: The name of the node in Slurm.
    type: str
    required: true
  state:
    description: What is to be done.
    type: str
    default: present
    choices:
      checked: Nothing is written. Refused if O(gres) is not what Slurm has and cannot be written. For before the drain.
      reduced: O(gres) is what stays while a layout is made. It is written if Slurm has more than that
        (RV(controller_first)), since a node that registers with fewer devices than Slurm has for it becomes INVALID.
      present: O(gres) is what the node has.
  gres:
    description: The number of GPUs and MIG devices by their type in Slurm. Empty for none.
    type: dict
    required: true
  kept:
    description: For O(state=checked), those of them that a layout leaves as they are, for RV(controller_first). O(gres)
      when not given.
    type: dict
  lines:
    description: The lines of gres.conf, each beginning with C(NodeName=) and the node.
    type: list
    elements: str
    default: []
  directory:
    description: The directory of the files. Without one nothing is written, and a difference is refused.
    type: path
  config_file:
    description: Where C(slurm.conf) lies, with C(gres.conf) beside it. Asked of slurmctld when not given.
    type: path
  reconfigure:
    description: Whether C(scontrol reconfigure) is permitted. Without it a difference is refused.
    type: bool
    default: false
  restart:
    description:
      - Whether C(slurmctld.service) may be restarted on this host, which has to be that of slurmctld. Running jobs go
        on.
      - Before Slurm 23.11 C(scontrol reconfigure) does not change the number of GPUs of a node that has some. Such a
        difference is refused without it.
    type: bool
    default: false
  timeout_s:
    description: Seconds that Slurm has to tell the new C(Gres).
    type: int
    default: 60
  poll_s:
    description: Seconds between two looks.
    type: float
    default: 2
  bin_dir:
    description: Directory of Slurm's commands, where they are not in a usual place.
    type: path
notes:
  - The nodes have to read the same files, by a shared file system or as a configless cluster. Files that C(slurm.conf)
    includes may include others.
seealso:
  - module: gpufleet.lifecycle.slurm_node
  - module: gpufleet.lifecycle.gpu_mig
  - plugin: gpufleet.lifecycle.slurm_gres
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Give Slurm the MIG devices of the drained node
  gpufleet.lifecycle.slurm_gres:
    node_name: gpu-a-1
    gres: "{{ wanted.gres }}"
    lines: "{{ wanted.lines }}"
    directory: /etc/slurm/gpufleet
    reconfigure: true
  vars:
    wanted: "{{ gpus.snapshot | gpufleet.lifecycle.slurm_gres(node='gpu-a-1', minors=minors.content | b64decode) }}"
  delegate_to: controller-1
  become: true
"""

RETURN = r"""
---
node:
  description: The name of the node in Slurm.
  returned: always
  type: str
gres:
  description: What Slurm has for the node (C(configured)) and is to have (C(wanted)), as values of C(Gres).
  returned: always
  type: dict
controller_first:
  description: Whether slurmctld has to be told before the node changes, since it has devices for it that go away.
  returned: always
  type: bool
files:
  description: The files that were written, or would be.
  returned: always
  type: list
  elements: str
lines:
  description: The lines of gres.conf.
  returned: always
  type: list
  elements: str
reconfigured:
  description: Whether C(scontrol reconfigure) was run.
  returned: always
  type: bool
restarted:
  description: Whether slurmctld was restarted.
  returned: always
  type: bool
trouble:
  description: Why Slurm did not answer, in a word, as of M(gpufleet.lifecycle.slurm_node).
  returned: when it did not
  type: str
"""

import getpass

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import commands, gres, slurm_gres

ARGUMENT_SPEC = {
    "node_name": {"type": "str", "required": True},
    "state": {"type": "str", "default": "present", "choices": ["checked", "reduced", "present"]},
    "gres": {"type": "dict", "required": True},
    "kept": {"type": "dict"},
    "lines": {"type": "list", "elements": "str", "default": []},
    "directory": {"type": "path"},
    "config_file": {"type": "path"},
    "reconfigure": {"type": "bool", "default": False},
    "restart": {"type": "bool", "default": False},
    "timeout_s": {"type": "int", "default": 60},
    "poll_s": {"type": "float", "default": 2},
    "bin_dir": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    problem = slurm_gres.contradiction(params)
    if problem:
        module.fail_json(msg=problem)
    slurm = commands.Slurm(bin_dir=params["bin_dir"], user=getpass.getuser())
    work = slurm_gres.SlurmGres(slurm, params, module.check_mode)
    trouble, failure = {}, ""
    try:
        work.run()
    except commands.SlurmError as exc:
        trouble, failure = {"trouble": exc.kind}, "%s: %s" % (params["node_name"], exc)
    except gres.GresError as exc:
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
