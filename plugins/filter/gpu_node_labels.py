# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A snapshot of a node's GPUs as labels of Kubernetes."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_node_labels
short_description: Make the labels of a Kubernetes node out of what gpu_info read
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers a dictionary for the option O(gpufleet.lifecycle.kube_node#module:labels) of
    M(gpufleet.lifecycle.kube_node), with the keys C(gpufleet.lifecycle/gpu-model), C(gpufleet.lifecycle/gpu-count),
    C(gpufleet.lifecycle/gpu-memory-gib), C(gpufleet.lifecycle/driver-version) and C(gpufleet.lifecycle/mig-layout).
  - A value that is not the same for all GPUs is V(mixed). One that could not be read is null, which takes the label
    away.
options:
  _input:
    description: The snapshot that M(gpufleet.lifecycle.gpu_info) returned.
    type: dict
    required: true
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import labels


def gpu_node_labels(snapshot) -> dict:
    if not isinstance(snapshot, dict) or "gpus" not in snapshot:
        raise AnsibleFilterError(
            "gpu_node_labels takes the snapshot that gpu_info returned, and got %s" % (type(snapshot).__name__,)
        )
    return labels.make_labels(snapshot)


class FilterModule:
    def filters(self) -> dict:
        return {"gpu_node_labels": gpu_node_labels}
