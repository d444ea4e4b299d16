# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of the NVLink fabric of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_state
short_description: Tell the state of the NVLink fabric out of what gpu_health found
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Decides whether a node needs a fabric manager, whether the one that is installed may be started, and whether every
    GPU has joined a healthy fabric. The role C(nvidia_fabricmanager) has no other decisions than these.
  - A GPU that tells no state of its fabric, such as the A100, proves it by its NVLinks and by its access to the other
    GPUs.
options:
  _input:
    description: What M(gpufleet.lifecycle.gpu_health) returned, with O(gpufleet.lifecycle.gpu_health#module:full=true).
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Judge the node
  gpufleet.lifecycle.gpu_health:
    fail_on: []
    full: true
  register: read

- name: Fail unless every GPU has joined its fabric
  ansible.builtin.assert:
    that: state.fabric == 'none' or state.proven
    fail_msg: "{{ state.missing | join(' ') }}"
  vars:
    state: "{{ read | gpufleet.lifecycle.fabric_state }}"
"""

RETURN = r"""
---
_value:
  description: The state.
  type: dict
  contains:
    fabric:
      description: V(needed) where a fabric manager has to run, V(none) where there is no fabric, V(unknown) where that
        cannot be read.
      type: str
    why:
      description: What was found, or what could not be read.
      type: str
    managed:
      description: Whether the node manages NVLink 5 switches through adapters.
      type: bool
    subnet_manager:
      description: Whether the NVLink Subnet Manager is installed, or is not needed.
      type: bool
    installed:
      description: Whether the fabric manager is installed.
      type: bool
    version:
      description:
        - The version of the fabric manager as C(found), that of the driver as C(driver), whether both are known and
          differ as C(differs), and why the fabric manager must not be started as C(refusal), which is empty where it
          may.
      type: dict
    proven:
      description: Whether every GPU has joined a healthy fabric, and the services of the fabric run in the driver's
        version.
      type: bool
    missing:
      description: What is not proven.
      type: list
      elements: str
    in_use:
      description: Why the GPUs must be left alone, because processes use them or may. Empty if none do.
      type: str
"""

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _fabric_state


class FilterModule:
    def filters(self) -> dict:
        return {"fabric_state": _fabric_state.decide}
