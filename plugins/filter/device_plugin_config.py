# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render the GPU sharing of pods as the ConfigMap of NVIDIA's device plugin."""

from __future__ import annotations

DOCUMENTATION = r"""
name: device_plugin_config
short_description: Make the ConfigMap of NVIDIA's device plugin that shares GPUs among pods
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers a ConfigMap with one configuration for each key, by time-slicing, by MPS, or without sharing. Which of them
    a node uses is said by its label C(nvidia.com/device-plugin.config).
  - Everything that the device plugin would refuse, or take for something else, is an error that names all of it.
options:
  _input:
    description:
      - "For each name of a configuration C(strategy) (V(none), V(time_slicing) or V(mps)), C(mig_strategy) (V(none),
        V(single) or V(mixed)), C(resources) as a list of C(name) and C(replicas), C(rename) (default V(true), offers
        C(nvidia.com/gpu.shared)), and for time-slicing C(fail_requests_greater_than_one) (default V(true))."
    type: dict
    required: true
  name:
    description: The name of the ConfigMap.
    type: str
    default: gpufleet-device-plugin
  namespace:
    description: The namespace of the ConfigMap, which is that of the device plugin.
    type: str
    default: nvidia-device-plugin
"""

EXAMPLES = r"""
---
- name: Write the ConfigMap of two classes of nodes
  ansible.builtin.copy:
    dest: /tmp/device-plugin.yml
    mode: "0644"
    content: "{{ wanted | gpufleet.lifecycle.device_plugin_config(namespace='gpu-operator') | to_nice_yaml }}"
  vars:
    wanted:
      training: {}
      inference:
        strategy: time_slicing
        resources:
          - name: nvidia.com/gpu
            replicas: 4
"""

RETURN = r"""
---
_value:
  description: The ConfigMap.
  type: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import sharing
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError


def device_plugin_config(configs, name="gpufleet-device-plugin", namespace="nvidia-device-plugin") -> dict:
    try:
        return sharing.make_config_map(configs, name, namespace)
    except KubeError as exc:
        raise AnsibleFilterError(str(exc)) from exc


class FilterModule:
    def filters(self) -> dict:
        return {"device_plugin_config": device_plugin_config}
