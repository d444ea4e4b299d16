#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the kube_node action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kube_node
short_description: Drain a node of a Kubernetes cluster, put it back, taint and label it
version_added: 1.0.0
description:
  - Runs on the controller and talks to the API server of the cluster. The node itself is not contacted, so that it may
    be down.
  - The node is found by its name and its pods by the node's name. The number of requests does not depend on the size of
    the cluster.
  - With O(state=drained) the node is made unschedulable and marked as ours by the annotation
    C(gpufleet.lifecycle/mark), in one write. Then its pods are evicted, those that hold GPUs first, and it is looked
    again until none is left. A pod that a disruption budget or an admission webhook keeps is tried again until
    O(timeout_s) is over. Then the task fails and names the pods and budgets. The node stays unschedulable.
  - With V(cordoned), V(drained) and V(resumed) an API server that is away is asked again until O(timeout_s) is over.
    Away is one that does not answer, or answers 408, 429 or 5xx, or 401 after it took the credentials before. With
    V(read) and V(present) the task fails.
  - With O(state=resumed) a mark with our O(token) is lifted and what was found before is put back. A node that was
    unschedulable before it was drained stays so. A node without our mark is left as it is. It is lifted once the
    cluster has the GPUs of the node (O(expected_gpus)).
  - Every write names the version of the node object that was judged. If the object was changed in between, the
    node is judged again.
  - Before the node is changed, the server is asked whether the account may do all of it. What is needed is in
    C(roles/gpu_scheduler/files/kubernetes/rbac.yml).
  - NVIDIA's GPU Operator and NVSentinel are known by their labels on the node. See O(operators).
  - M(kubernetes.core.k8s_drain) does not know which pods hold GPUs, fails at once when a budget refuses, and keeps no
    mark.
requirements:
  - The Python package C(kubernetes) 31 or newer on the controller.
attributes:
  check_mode:
    support: full
    details:
      - The server is asked to evict the pods without doing it, so that budgets which forbid it are named in
        RV(blockers).
  diff_mode:
    support: full
    details:
      - Before and after of whether the node is unschedulable, of its taints, and of the labels and annotations that
        were wanted.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
  - gpufleet.lifecycle._kube_gpus
author:
  - gpufleet contributors (@gpufleet)
options:
  state:
    description:
      - V(read) reads. V(present) only brings O(labels), O(annotations) and O(taints). V(drained) takes the node out of
        service, V(resumed) puts it back.
      - V(cordoned) makes the node unschedulable under our mark as V(drained) does. Nothing is evicted or waited for,
        and RV(drained) says whether it is empty.
      - O(labels), O(annotations) and O(taints) go into the same write as the mark.
    type: str
    choices: [read, present, cordoned, drained, resumed]
    default: read
  node_name:
    description:
      - The name of the node in the cluster. The name in the inventory when empty.
    type: str
    default: ''
  token:
    description:
      - By what our mark is known again, such as the name of the rollout. Needed for V(cordoned), V(drained) and
        V(resumed).
      - A mark is ours when its token is this one, or begins with it and a blank, C(:) or C(/) follows.
    type: str
    default: ''
  reason:
    description:
      - Why the node is drained. It is kept in the mark. Another reason takes the place of the one in our mark, none
        does not.
    type: str
    default: ''
  timeout_s:
    description:
      - Seconds until the node has to be empty, or with O(state=resumed) until the cluster has to have its GPUs.
    type: int
    default: 600
  scope:
    description:
      - V(gpu) evicts the pods that get GPUs, by C(nvidia.com/gpu), one of its variants, C(nvidia.com/mig-*), the
        resource of another device plugin such as C(volcano.sh/vgpu-number), a claim of dynamic resource allocation, or
        without any by C(NVIDIA_VISIBLE_DEVICES), a runtime class or a device file. V(all) evicts the others too, after
        them.
      - Pods that have finished are left alone.
    type: str
    choices: [gpu, all]
    default: gpu
  daemonset_pods:
    description:
      - Pods of a DaemonSet are never evicted. With V(refuse) one in O(scope) is a reason not to begin.
    type: str
    choices: [leave, refuse]
    default: leave
  unmanaged_pods:
    description:
      - Pods without a controller, which nothing would create again elsewhere.
    type: str
    choices: [refuse, evict]
    default: refuse
  emptydir_pods:
    description:
      - Pods with a volume of the kind emptyDir, whose data is lost with them.
    type: str
    choices: [refuse, evict]
    default: refuse
  grace_period_s:
    description:
      - Seconds that each pod gets to end. The pod's own when not set.
    type: int
  operators:
    description:
      - What to do when NVIDIA's GPU Operator or NVSentinel looks after the node.
      - V(pause) tells them to keep off by their own labels, and V(resumed) puts back what those labels were. The parts
        of the GPU Operator are taken off the node once it is empty, since they hold the GPUs open. If the operator runs
        a pod of the driver on the node, or one of them is changing the node, the drain is refused.
      - V(refuse) does not drain such a node. V(ignore) takes no notice.
    type: str
    choices: [pause, refuse, ignore]
    default: pause
  labels:
    description:
      - Labels of the node. A value of null takes the label away.
    type: dict
    default: {}
  annotations:
    description:
      - Annotations of the node. A value of null takes the annotation away.
    type: dict
    default: {}
  taints:
    description:
      - Taints of the node. Others on it stay.
    type: list
    elements: dict
    default: []
    suboptions:
      key:
        description: The key, such as V(nvidia.com/gpu).
        type: str
        required: true
      value:
        description: The value. A taint with this key and effect and another value is another owner's, and stays with a
          warning.
        type: str
        default: ''
      effect:
        description:
          - V(NoSchedule), V(PreferNoSchedule) or V(NoExecute). Empty means any, and is for O(taints[].state=absent)
            alone.
        type: str
        choices: ['', NoSchedule, PreferNoSchedule, NoExecute]
        default: ''
      state:
        description: Whether the taint is to be there.
        type: str
        choices: [present, absent]
        default: present
  kubeconfig:
    description:
      - The kubeconfig on the controller. When empty, E(K8S_AUTH_KUBECONFIG), E(KUBECONFIG), the service account of the
        pod that the controller runs in, or C(~/.kube/config).
    type: str
    default: ''
  context:
    description:
      - The context in the kubeconfig. Its current one when empty.
    type: str
    default: ''
  request_timeout_s:
    description:
      - Seconds until one request has to be answered.
    type: int
    default: 30
seealso:
  - module: gpufleet.lifecycle.gpu_info
"""

EXAMPLES = r"""
---
- name: Take the node out of service, whatever runs on its GPUs
  gpufleet.lifecycle.kube_node:
    state: drained
    token: "{{ gpu_node_upgrade_rollout_id }}"
    reason: driver upgrade
    emptydir_pods: evict
    timeout_s: 1800

- name: Put it back
  gpufleet.lifecycle.kube_node:
    state: resumed
    token: "{{ gpu_node_upgrade_rollout_id }}"
    expected_gpus: "{{ gpus.snapshot | gpufleet.lifecycle.schedulable_gpus }}"
    expected_mig: "{{ gpus.snapshot | gpufleet.lifecycle.mig_devices }}"

- name: Keep a node that the cluster knows by another name for work on GPUs
  gpufleet.lifecycle.kube_node:
    node_name: "{{ inventory_hostname }}.cluster.example.org"
    state: present
    taints:
      - key: nvidia.com/gpu
        value: present
        effect: NoSchedule
    labels:
      gpufleet.lifecycle/class: training
"""

RETURN = r"""
---
node:
  description: The name of the node in the cluster.
  returned: when the cluster was asked
  type: str
drained:
  description: Whether the node is unschedulable and empty of the pods in O(scope). In check mode, whether it would be
    as far as the server can tell.
  returned: when the cluster was asked
  type: bool
unschedulable:
  description: Whether the node takes no new pods.
  returned: when the node was found
  type: bool
state:
  description: V(schedulable) or V(unschedulable). Empty if the node was not found.
  returned: when the cluster was asked
  type: str
mark:
  description: Who took the node out of service.
  returned: when the node was found
  type: dict
  contains:
    owner:
      description: V(ours), V(operator) when the node is unschedulable or marked by anybody else, or V(none).
      type: str
    token:
      description: The token of the mark.
      type: str
    since:
      description: When the mark was placed.
      type: str
    reason:
      description: The reason in the mark.
      type: str
    previous:
      description: What was found when our mark was placed, C(unschedulable) and C(labels); null without our mark.
      type: dict
blockers:
  description: The pods that keep the node from being empty, with C(namespace), C(pod), C(reason), C(budget) and
    C(message).
  returned: when the cluster was asked
  type: list
  elements: dict
evicted:
  description: The pods that were evicted, with C(namespace), C(pod), C(uid) and C(gpu).
  returned: when the cluster was asked
  type: list
  elements: dict
gpus:
  description:
    - What C(status.allocatable) of the node has, by resource. A value that is no number is null.
  returned: when the node was found
  type: dict
  sample: {nvidia.com/gpu: 8}
restarted:
  description: The pods of the device plugin that were evicted to be made again, with C(namespace), C(pod) and C(uid).
  returned: when the cluster was asked
  type: list
  elements: dict
left:
  description: The pods in O(scope) that stay on a drained node, with C(namespace), C(pod), C(gpu) and the C(reason),
    V(daemonset) or V(mirror).
  returned: when the cluster was asked
  type: list
  elements: dict
holding:
  description: The pods in O(scope) that a drain would evict or wait for.
  returned: when O(state=read) or O(state=cordoned)
  type: list
  elements: dict
operators:
  description: Which of C(GPU Operator) and C(NVSentinel) look after the node.
  returned: when the cluster was asked
  type: list
  elements: str
why:
  description: The part of RV(ignore:msg) that says why, without the one that says as what the node is left.
  returned: on failure
  type: str
waited_s:
  description: Seconds that the drain took once the node was marked.
  returned: when the cluster was asked
  type: float
requests:
  description: How many requests were made to the API server, without those that were sent again.
  returned: when the cluster was asked
  type: int
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    state=dict(type="str", choices=["read", "present", "cordoned", "drained", "resumed"], default="read"),
    node_name=dict(type="str", default=""),
    token=dict(type="str", default="", no_log=False),
    reason=dict(type="str", default=""),
    timeout_s=dict(type="int", default=600),
    scope=dict(type="str", choices=["gpu", "all"], default="gpu"),
    daemonset_pods=dict(type="str", choices=["leave", "refuse"], default="leave"),
    unmanaged_pods=dict(type="str", choices=["refuse", "evict"], default="refuse"),
    emptydir_pods=dict(type="str", choices=["refuse", "evict"], default="refuse"),
    grace_period_s=dict(type="int"),
    lays_out=dict(type="bool", default=False),
    operators=dict(type="str", choices=["pause", "refuse", "ignore"], default="pause"),
    expected_gpus=dict(type="int"),
    expected_mig=dict(type="dict"),
    compare_gpus=dict(type="str", choices=["auto", "always", "never"], default="auto"),
    device_plugin_pods=dict(
        type="list",
        elements="str",
        default=[
            "app.kubernetes.io/name=nvidia-device-plugin",
            "name=nvidia-device-plugin-ds",
            "app=nvidia-device-plugin-daemonset",
        ],
    ),
    restart_device_plugin=dict(type="bool", default=False),
    labels=dict(type="dict", default={}),
    annotations=dict(type="dict", default={}),
    taints=dict(
        type="list",
        elements="dict",
        default=[],
        options=dict(
            key=dict(type="str", required=True, no_log=False),
            value=dict(type="str", default=""),
            effect=dict(type="str", choices=["", "NoSchedule", "PreferNoSchedule", "NoExecute"], default=""),
            state=dict(type="str", choices=["present", "absent"], default="present"),
        ),
    ),
    kubeconfig=dict(type="str", default=""),
    context=dict(type="str", default=""),
    request_timeout_s=dict(type="int", default=30),
)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg=(
            "kube_node runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which was not "
            "found: call it by its full name, gpufleet.lifecycle.kube_node, in a task."
        )
    )


if __name__ == "__main__":
    main()
