# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Return the number of GPUs that most nodes of a fleet have."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_peers
short_description: Find out how many GPUs most nodes with GPUs of a model have
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Compares the nodes of a fleet, for the option O(gpufleet.lifecycle.gpu_health#module:expect.peers) of
    M(gpufleet.lifecycle.gpu_health). A node that has lost one of several PCI Express cards looks whole to itself.
  - A number counts if at least three nodes have it, and at least two thirds of all nodes with GPUs of the model.
  - A node that could not be read, or one of whose GPUs has no name, is left out.
options:
  _input:
    description: The results of M(gpufleet.lifecycle.gpu_health) of all nodes, by the names of the nodes.
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Compare the nodes with each other
  ansible.builtin.set_fact:
    peers: "{{ dict(names | zip(names | map('extract', hostvars) | map(attribute='checked', default={})))
      | gpufleet.lifecycle.gpu_peers }}"
  run_once: true
  vars:
    names: "{{ ansible_play_hosts_all }}"
"""

RETURN = r"""
---
_value:
  description: The suboptions of O(gpufleet.lifecycle.gpu_health#module:expect.peers).
  type: dict
  contains:
    gpus:
      description: The number of GPUs by NVML's name of them. A model of which too few nodes agree is left out.
      type: dict
"""

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _peers


def gpu_peers(results) -> dict[str, dict]:
    return _peers.expectation(_peers.of_results(_answers.accept_all("gpu_health", results)))


class FilterModule:
    def filters(self) -> dict:
        return {"gpu_peers": gpu_peers}
