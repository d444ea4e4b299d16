# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Return the number of GPUs that a scheduler has to have for a node."""

from __future__ import annotations

DOCUMENTATION = r"""
name: schedulable_gpus
short_description: Count what a scheduler gives away as GPUs out of what gpu_info read
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers how many GPUs Slurm has to have for a node, for the option
    O(gpufleet.lifecycle.slurm_node#module:expected_gpus) of M(gpufleet.lifecycle.slurm_node). A GPU in MIG mode is not
    one itself; each of its MIG devices is (gres.conf(5), MIG management).
  - The answer is V(-1) when there is nothing to count.
  - It is V(-2) when the MIG mode or the MIG devices of a GPU could not be read. M(gpufleet.lifecycle.slurm_node) then
    neither drains nor resumes a node for which Slurm has GPUs. A GPU or a driver without MIG is read, and counts as
    one.
options:
  _input:
    description: The snapshot that M(gpufleet.lifecycle.gpu_info) returned, or the one in a baseline of
      M(gpufleet.lifecycle.gpu_health).
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Give the node work again, if Slurm has as many GPUs as there are
  gpufleet.lifecycle.slurm_node:
    state: resumed
    token: maintenance-7
    expected_gpus: "{{ gpus.snapshot | gpufleet.lifecycle.schedulable_gpus }}"
"""

RETURN = r"""
---
_value:
  description: The number.
  type: int
"""

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use


class FilterModule:
    def filters(self) -> dict:
        return {"schedulable_gpus": _gpu_use.schedulable}
