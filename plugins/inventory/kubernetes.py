# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory of a Kubernetes cluster's nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
name: kubernetes
short_description: Nodes of a Kubernetes cluster as an inventory
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Makes a host of every node of a cluster. Needs permission to list nodes and nothing else.
  - "Groups: C(kubernetes) with all nodes, C(kubernetes_gpu) with those whose kubelet offers GPUs or MIG devices,
    C(kubernetes_resource_NAME) for each such
    resource, C(kubernetes_state_ready), C(kubernetes_state_not_ready), C(kubernetes_state_unknown),
    C(kubernetes_cordoned), C(kubernetes_role_NAME),
    C(kubernetes_taint_KEY_EFFECT), and C(kubernetes_label_KEY_VALUE) for the keys in O(label_groups). Names are in
    lower case, and what is no letter or digit
    becomes an underscore."
  - "Variables of each host: C(kubernetes_node), C(kubernetes_state), C(kubernetes_cordoned), C(kubernetes_labels),
    C(kubernetes_taints), C(kubernetes_roles),
    C(kubernetes_addresses) (lists by type), C(kubernetes_gpus) (their number), C(kubernetes_gpu_resources),
    C(kubernetes_provider_id),
    C(kubernetes_versions)."
  - A node whose name no machine can have, such as C(all) or C(localhost), or that has the name of a group, is left out
    with a warning, and so is an address in C(kubernetes_addresses) that is none of another machine.
  - The file's name has to be C(kubernetes.yml) or end with C(.kubernetes.yml) (or C(.yaml)).
  - A server that answers nothing, half an answer, or something else is an error, and so are fewer nodes than
    O(min_nodes). Ansible itself goes on with the
    other sources after such an error unless C(any_unparsed_is_failed) is set in section C([inventory]) of its
    configuration (environment variable
    E(ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED)). Set it. Where it is not set, the playbooks of this collection refuse
    to run beside such a source.
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
requirements:
  - the Python package C(kubernetes) on the controller
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [gpufleet.lifecycle.kubernetes]
  kubeconfig:
    description: The file that says how to reach the cluster. Without one, C(KUBECONFIG), the pod's own service
      account, and C(~/.kube/config) are tried.
    type: str
    default: ''
    env:
      - name: K8S_AUTH_KUBECONFIG
  context:
    description: The context of the kubeconfig.
    type: str
    default: ''
    env:
      - name: K8S_AUTH_CONTEXT
  label_selector:
    description: Takes only the nodes that it selects, such as V(nvidia.com/gpu.present=true).
    type: str
    default: ''
  label_groups:
    description: Keys of labels that make groups of their values.
    type: list
    elements: str
    default:
      - nvidia.com/gpu.product
      - nvidia.com/mig.config
      - topology.kubernetes.io/zone
      - node.kubernetes.io/instance-type
      - gpufleet.lifecycle/gpu-model
      - gpufleet.lifecycle/mig-layout
      - gpufleet.lifecycle/class
  gpus_only:
    description: Takes only nodes whose kubelet offers GPUs or MIG devices. A node whose device plugin does not run
      offers none and is left out.
    type: bool
    default: false
  min_nodes:
    description: The number of nodes below which the answer is refused.
    type: int
    default: 1
  timeout:
    description: Seconds that the API server has for each answer.
    type: int
    default: 30
"""

EXAMPLES = r"""
# kubernetes.yml
plugin: gpufleet.lifecycle.kubernetes
strict: true
groups:
  gpu_nodes: kubernetes_gpus > 0
---
# prod.kubernetes.yml: by address, racks from a label, not the control plane
plugin: gpufleet.lifecycle.kubernetes
context: prod
label_selector: "!node-role.kubernetes.io/control-plane"
min_nodes: 40
strict: true
compose:
  ansible_host: kubernetes_addresses.InternalIP | first
  gpu_scheduler_backends: "['kubernetes']"
groups:
  gpu_nodes: kubernetes_labels['nvidia.com/gpu.present'] | default('') == 'true'
keyed_groups:
  - prefix: rack
    key: kubernetes_labels['topology.example.com/rack']
---
# cached.kubernetes.yml
plugin: gpufleet.lifecycle.kubernetes
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: /var/cache/gpufleet
cache_timeout: 600
"""

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory import base, hosts, kubernetes
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import client


class InventoryModule(base.LifecycleInventory):
    NAME = "gpufleet.lifecycle.kubernetes"
    WORD = "kubernetes"
    ASKS = ("kubeconfig", "context", "label_selector", "label_groups", "gpus_only")

    def read(self, path, names):
        ask = self.get_option
        try:
            cluster = client.Cluster.connect(ask("kubeconfig"), ask("context"), ask("timeout"))
            found = client.Api(cluster).nodes(ask("label_selector"))
        except client.KubeError as exc:
            raise hosts.InventoryProblem("The cluster gave no nodes. %s" % exc) from exc
        asked = cluster.shown + (" for %s" % ask("label_selector") if ask("label_selector") else "")
        return kubernetes.hosts(found, asked, names, ask("label_groups"), ask("gpus_only")), asked
