# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look up what to expect of a node when it boots."""

from __future__ import annotations

DOCUMENTATION = r"""
name: boot_expectation
short_description: Tell what a node should have when it boots
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Makes the document that C(gpufleet-node boot-check) compares a node with at boot (schema
    C(gpufleet.boot-expectation/1)), with the whole policy, since the node has no controller to ask then. The role
    C(gpu_health) writes it to the node.
  - Refuses an expectation without a driver version or without a number of GPUs, and a policy that cannot be followed.
  - Nothing is read of the node, and nothing is changed.
options:
  _terms:
    description: None.
    type: list
    elements: str
  driver_version:
    description: The driver version that has to be loaded and installed. Needed.
    type: str
    default: ""
  hardware:
    description:
      - What the node has, as O(gpufleet.lifecycle.gpu_health#module:expect) has it in C(hardware). C(gpus) is needed.
    type: dict
    default: {}
  mig_file:
    description:
      - The file of the node with its MIG layout, which role C(nvidia_mig) writes. If empty, the layout is not compared.
    type: str
    default: ""
  policy:
    description: Thresholds, as O(gpufleet.lifecycle.gpu_health#module:policy).
    type: dict
    default: {}
  policy_file:
    description: A file on the controller with such thresholds. If empty, there is none.
    type: str
    default: ""
  waivers:
    description: Checks that are accepted for a while, as O(gpufleet.lifecycle.gpu_health#module:waivers).
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
---
- name: Show what the node is held against at boot
  ansible.builtin.debug:
    msg: "{{ lookup('gpufleet.lifecycle.boot_expectation', driver_version='535.216.03', hardware={'gpus': 8}) }}"
"""

RETURN = r"""
---
_raw:
  description: The document.
  type: list
  elements: dict
  contains:
    schema:
      description: V(gpufleet.boot-expectation/1).
      type: str
    driver_version:
      description: The wanted driver.
      type: str
    hardware:
      description: What the node has.
      type: dict
    mig_file:
      description: The file with the MIG layout; null where it is not compared.
      type: str
    policy:
      description: The collection's thresholds with those that were given.
      type: dict
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging

VARIABLES = "gpu_health_expected_driver_version, gpu_health_expect (hardware) and gpu_health_boot_mig_file"


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        node = (variables or {}).get("inventory_hostname") or "localhost"
        path = self.get_option("policy_file")
        try:
            policy = _judging.policy(
                self._loader.path_dwim(path) if path else None, self.get_option("policy"), self.get_option("waivers")
            )
            document = {
                "schema": boot_expectation.SCHEMA,
                "driver_version": self.get_option("driver_version"),
                "hardware": self.get_option("hardware"),
                "mig_file": self.get_option("mig_file") or None,
                "policy": policy,
            }
            # As the node will read it.
            return [boot_expectation.check_document(document, VARIABLES)]
        except boot_expectation.Unusable as exc:
            raise AnsibleLookupError(
                "%s: what the node should have at boot is not said: %s" % (node, exc.reason)
            ) from exc
        except _judging.InputError as exc:
            raise AnsibleLookupError("%s: %s" % (node, exc)) from exc
