# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of kube_node by which the GPUs of a node are compared with those that its cluster has for it."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  expected_gpus:
    description:
      - How many GPUs and MIG devices the node has (see P(gpufleet.lifecycle.schedulable_gpus#filter)). A node that is
        drained by us is resumed when C(status.allocatable) of its object has as many, as C(nvidia.com/gpu) and
        C(nvidia.com/mig-*) together. Where pods share GPUs, each is counted once, by the labels
        C(nvidia.com/gpu.replicas) and the like or, without any, by what the cluster had before the drain.
      - While they are waited for, the node stays unschedulable under our mark. The parts of the GPU Operator that the
        drain took off it, and O(taints), are as they will be, since the device plugin may need that.
      - With O(state=drained), a node for which the cluster has never had a GPU is refused, unless none is expected, and
        so is one whose number O(compare_gpus=always) needs and that is not given.
      - A negative number says that they could not be counted. It agrees with no number of the cluster's.
    type: int
  expected_mig:
    description:
      - The MIG devices of the node by profile (see P(gpufleet.lifecycle.mig_devices#filter)), such as
        C(1g.10gb) with 7. An empty one stands for none. The node is resumed when the cluster has these as
        C(nvidia.com/mig-*), or, where they are all of one profile and there is no other GPU, as C(nvidia.com/gpu).
      - Resources with names of the administrator's own are not compared by profile. Nothing is when it is not set.
    type: dict
  lays_out:
    description:
      - Whether the MIG layout of the node is changed while it is drained. If the GPU Operator's MIG manager makes the
        layout of the node, by its label C(nvidia.com/mig.config), it would undo that, and the drain is refused. So is
        the resume if the label came meanwhile.
    type: bool
    default: false
  compare_gpus:
    description:
      - With V(auto) the GPUs are compared when O(expected_gpus) is given, and where they could not be counted, when the
        cluster has GPUs for the node.
      - With V(always) a node of which the number is not known is never resumed. With V(never) nothing is compared, as
        for a cluster without NVIDIA's device plugin.
    type: str
    choices: [auto, always, never]
    default: auto
  device_plugin_pods:
    description:
      - Labels (C(key=value)) of the pods of the device plugin. The one on the node is evicted once when its GPUs have
        not come in a quarter of O(timeout_s), so that its DaemonSet makes it again. Without any label it never is.
    type: list
    elements: str
    default:
      - app.kubernetes.io/name=nvidia-device-plugin
      - name=nvidia-device-plugin-ds
      - app=nvidia-device-plugin-daemonset
  restart_device_plugin:
    description:
      - Whether it is evicted at once, and the GPUs compared when it runs again. For a node whose MIG layout has
        changed, which it does not see.
    type: bool
    default: false
"""
