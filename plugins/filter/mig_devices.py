# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Return the MIG devices of a node by profile."""

from __future__ import annotations

DOCUMENTATION = r"""
name: mig_devices
short_description: Count the MIG devices of each profile out of what gpu_info read
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers how many MIG devices of each profile a node has, for the option
    O(gpufleet.lifecycle.kube_node#module:expected_mig) of M(gpufleet.lifecycle.kube_node).
  - GPUs whose MIG devices could not be read are left out. P(gpufleet.lifecycle.schedulable_gpus#filter) says that there
    are such.
options:
  _input:
    description: The snapshot that M(gpufleet.lifecycle.gpu_info) returned with the subset C(mig), or the one in a
      baseline of M(gpufleet.lifecycle.gpu_health).
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Give the node work again, if the cluster has the MIG devices that there are
  gpufleet.lifecycle.kube_node:
    state: resumed
    token: maintenance-7
    expected_gpus: "{{ gpus.snapshot | gpufleet.lifecycle.schedulable_gpus }}"
    expected_mig: "{{ gpus.snapshot | gpufleet.lifecycle.mig_devices }}"
"""

RETURN = r"""
---
_value:
  description: The number by profile, such as 7 for C(1g.10gb). Empty if there is none.
  type: dict
"""

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use


class FilterModule:
    def filters(self) -> dict:
        return {"mig_devices": _gpu_use.mig_devices}
