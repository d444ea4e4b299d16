# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory of a Slurm cluster's nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm
short_description: Nodes of a Slurm cluster as an inventory
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Makes a host of every node that Slurm knows, from C(scontrol) on the controller or over ssh, from slurmrestd, or
    from a file that holds such an answer.
    An execution environment has no C(scontrol); there, use O(ssh_host), O(url) or O(file).
  - "Groups: C(slurm) with all nodes, C(slurm_gpu) with those that have GPUs in their generic resources,
    C(slurm_partition_NAME), C(slurm_gres_TYPE) for each
    type of GPU, and C(slurm_state_WORD) for the base of the state and for each flag, so that a node in MIXED+DRAIN is
    in C(slurm_state_mixed) and in
    C(slurm_state_drain). Names are in lower case, and what is no letter or digit becomes an underscore."
  - "Variables of each host: C(slurm_node), C(slurm_hostname), C(slurm_state) (as C(scontrol) spells it),
    C(slurm_state_base), C(slurm_state_flags),
    C(slurm_drain) (Slurm starts no new job there because it was told so), C(slurm_work) (V(busy), V(idle) or
    V(unknown)), C(slurm_partitions),
    C(slurm_gres), C(slurm_gres_used), C(slurm_gpus) (their number), C(slurm_gpu_types), C(slurm_reason),
    C(slurm_reason_user), C(slurm_version)."
  - A node whose name no machine can have, such as C(all) or C(localhost), or that has the name of a group, is left out
    with a warning. C(slurm_hostname) is empty where a node reports no host name or address of a machine.
  - The file's name has to be C(slurm.yml) or end with C(.slurm.yml) (or C(.yaml)).
  - A source that answers nothing, half an answer, or something else is an error, and so are fewer nodes than
    O(min_nodes). Ansible itself goes on with the
    other sources after such an error unless C(any_unparsed_is_failed) is set in section C([inventory]) of its
    configuration (environment variable
    E(ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED)). Set it. Where it is not set, the playbooks of this collection refuse
    to run beside such a source.
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [gpufleet.lifecycle.slurm]
  ssh_host:
    description: Runs Slurm's commands there, a host or user@host of ssh. ssh must ask nothing.
    type: str
    default: ''
  ssh_args:
    description: More arguments for ssh, such as V(["-i", "/path/to/key"]).
    type: list
    elements: str
    default: []
  bin_dir:
    description: The directory of Slurm's commands, where they are not on the search path.
    type: str
    default: ''
  url:
    description: The nodes in slurmrestd, such as V(https://slurm.example.com:6820/slurm/v0.0.40/nodes).
    type: str
    default: ''
  user:
    description: The user whom slurmrestd is asked as.
    type: str
    default: ''
    env:
      - name: SLURM_USER_NAME
  token:
    description: The token for slurmrestd, as C(scontrol token) makes it. Keep it out of the file.
    type: str
    default: ''
    env:
      - name: SLURM_JWT
  file:
    description:
      - A file that holds the output of C(scontrol --all show node), with or without C(--json), or slurmrestd's
        answer. A relative path is relative to the
        inventory's file.
    type: str
    default: ''
  file_max_age:
    description: The age in seconds from which on O(file) is refused. V(0) accepts any.
    type: int
    default: 86400
  timeout:
    description: Seconds that slurmrestd has for its answer.
    type: int
    default: 30
  partitions:
    description: Takes only nodes of one of these partitions. One that Slurm does not know is an error.
    type: list
    elements: str
    default: []
  gpus_only:
    description: Takes only nodes with GPUs in their generic resources.
    type: bool
    default: false
  min_nodes:
    description: The number of nodes below which the answer is refused.
    type: int
    default: 1
notes:
  - Nodes in partitions that are hidden are named as well.
  - Where the commands are asked, the nodes that C(sinfo) names have to be among those of C(scontrol).
"""

EXAMPLES = r"""
# slurm.yml: scontrol on the controller
plugin: gpufleet.lifecycle.slurm
strict: true
groups:
  gpu_nodes: slurm_gpus > 0
---
# login.slurm.yml: over ssh, as from an execution environment. The first part of the name gpu-a01-03 is the rack.
plugin: gpufleet.lifecycle.slurm
ssh_host: ops@slurm-login
gpus_only: true
min_nodes: 40
strict: true
compose:
  ansible_host: slurm_hostname
  gpu_scheduler_backends: "['slurm']"
  gpufleet_domains: "{'partition': slurm_partitions | first}"
groups:
  gpu_nodes: true
keyed_groups:
  - prefix: rack
    key: slurm_node.split('-')[1]
---
# rest.slurm.yml: slurmrestd, with SLURM_JWT in the environment, and a cache of ten minutes
plugin: gpufleet.lifecycle.slurm
url: https://slurm.example.com:6820/slurm/v0.0.40/nodes
user: gpufleet
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: /var/cache/gpufleet
cache_timeout: 600
---
# saved.slurm.yml: scontrol --all show node > nodes.txt
plugin: gpufleet.lifecycle.slurm
file: nodes.txt
"""

import os

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory import base, hosts, slurm, sources


class InventoryModule(base.LifecycleInventory):
    NAME = "gpufleet.lifecycle.slurm"
    WORD = "slurm"
    ASKS = ("ssh_host", "bin_dir", "url", "user", "file", "partitions", "gpus_only")

    def read(self, path, names):
        ask = self.get_option
        given = [name for name in ("ssh_host", "url", "file") if ask(name)]
        if len(given) > 1:
            raise hosts.InventoryProblem(
                "%s are set; expected at most one of ssh_host, url and file. Take the others out." % " and ".join(given)
            )
        if ask("file"):
            saved = os.path.join(os.path.dirname(os.path.abspath(path)), os.path.expanduser(ask("file")))
            found, asked = sources.by_file(saved, ask("file_max_age"))
        elif ask("url"):
            found, asked = sources.by_url(ask("url"), ask("user"), ask("token"), ask("timeout"))
        else:
            found, asked = sources.by_commands(ask("ssh_host"), ask("ssh_args"), ask("bin_dir"))
        return slurm.hosts(found, asked, names, ask("gpus_only"), ask("partitions")), asked
