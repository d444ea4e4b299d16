# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_ctk
short_description: Configures container runtimes for NVIDIA GPUs and makes the CDI file, by nvidia-ctk
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Calls C(nvidia-ctk runtime configure) for containerd, CRI-O and Docker, and C(nvidia-ctk cdi generate). Podman reads
    the CDI file by itself.
  - No file of a runtime is edited by the module. What C(nvidia-ctk) would write is made in a directory aside and
    compared with what is there; C(nvidia-ctk) writes only where it differs, and the result is compared again.
  - A runtime that is wanted and not installed, one that does not know CDI, and a toolkit that is older than a runtime
    needs are refused before anything is changed.
  - k3s, RKE2, k0s, MicroK8s and the Docker snap carry runtimes that they configure themselves. Where there is no other
    runtime, the module reads whether theirs names NVIDIA's, and refuses otherwise with what has them do it.
  - A runtime whose files changed is restarted, also if an earlier run ended before it was.
  - Whether the CDI file has the devices that NVML has is told by the check C(node.cdi) of
    M(gpufleet.lifecycle.gpu_health).
  - Needs root (C(become)) and a loaded driver.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  state:
    description: V(configured) configures the runtimes and makes the CDI file. V(refreshed) makes the CDI file alone,
      after a MIG layout or a driver changed.
    type: str
    choices: [configured, refreshed]
    default: configured
  runtimes:
    description: The runtimes. If empty, those that are installed.
    type: list
    elements: str
    choices: [containerd, crio, docker, podman]
    default: []
  default_runtime:
    description: The runtime in which the NVIDIA runtime becomes the default one. Without it, in none.
    type: str
    choices: [containerd, crio, docker]
  cdi_file:
    description: The CDI file, which C(nvidia-cdi-refresh.service) of toolkits from 1.18 on makes too.
    type: path
    default: /var/run/cdi/nvidia.yaml
  restart:
    description: Restart runtimes whose files changed. A runtime that does not run is not started.
    type: bool
    default: true
  in_use:
    description: Why the containers of the node must not be ended, such as the answer of
      P(gpufleet.lifecycle.gpus_in_use#filter). If not empty, a change is refused that restarts Docker.
    type: str
    default: ""
seealso:
  - module: gpufleet.lifecycle.gpu_health
"""

EXAMPLES = r"""
---
- name: Configure the runtimes that are installed
  gpufleet.lifecycle.nvidia_ctk:

- name: Make the CDI file again after the MIG layout changed
  gpufleet.lifecycle.nvidia_ctk:
    state: refreshed
"""

RETURN = r"""
toolkit:
  description: The toolkit, as C(path) and C(version). Null if it is not installed.
  returned: always
  type: dict
  sample: {path: /usr/bin/nvidia-ctk, version: 1.18.1}
runtimes:
  description: The runtimes that are installed, each with C(path) and C(version).
  returned: always
  type: dict
  sample: {podman: {path: /usr/bin/podman, version: 4.3.1}}
carried:
  description: The programs that carry a runtime of their own, each with whether that names NVIDIA's runtime.
  returned: always
  type: dict
  sample: {k3s: true}
refusals:
  description: What stands against it, each with C(id), C(found), C(expected), C(message) and C(next_step). Empty if
    nothing does.
  returned: always
  type: list
  elements: dict
changed_files:
  description: The files that differ from what C(nvidia-ctk) makes.
  returned: success
  type: list
  elements: str
devices:
  description: The devices that the CDI file names.
  returned: success
  type: list
  elements: str
  sample: ["0", GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10, all]
actions:
  description: What was done, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [configure containerd, write /var/run/cdi/nvidia.yaml, restart containerd.service]
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._containers import ctk, decide
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner

ARGUMENT_SPEC = dict(
    state=dict(type="str", choices=[ctk.CONFIGURED, ctk.REFRESHED], default=ctk.CONFIGURED),
    runtimes=dict(type="list", elements="str", choices=sorted(decide.FLOORS), default=[]),
    default_runtime=dict(type="str", choices=sorted(decide.CONFIGURED)),
    cdi_file=dict(type="path", default=ctk.CDI_FILE),
    restart=dict(type="bool", default=True),
    in_use=dict(type="str", default=""),
    **lock.ARGUMENTS,
)
ROOT = "/"


def run(module, task) -> dict:
    """Compare, refuse or act; the result."""
    answer = dict(task.found, refusals=task.plan["refusals"])
    if answer["refusals"]:
        module.fail_json(msg="%s Nothing was changed." % decide.sentence(answer["refusals"]), **answer)
    due, changes = task.differences()
    pending = task.pending()
    why = task.busy(due + pending)
    if why:
        module.fail_json(msg="Nothing was changed: %s" % why, **answer)
    paths = sorted(changes)
    actions = ["change %s" % path for path in paths] + [
        "restart %s" % decide.CONFIGURED[name]["unit"]
        for name in sorted(set(due + pending))
        if module.params["restart"]
    ]
    if not module.check_mode and (due or changes or pending):
        actions = task.act(due, changes)
    diff = [
        {"before_header": path, "after_header": path, "before": changes[path][0] or "", "after": changes[path][1] or ""}
        for path in paths
    ]
    return dict(
        answer,
        changed=bool(changes or pending),
        changed_files=paths,
        actions=actions,
        devices=task.devices(),
        diff=diff,
    )


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    try:
        if module.check_mode:
            module.exit_json(**run(module, ctk.Ctk(params, Runner(), ROOT)))
        lock.ignore_hangup()
        owner = {"module": "nvidia_ctk", "rollout_id": params["rollout_id"], "step": params["step"]}
        with lock.NodeLock(owner=owner, timeout_s=params["lock_timeout_s"]) as held:
            module.exit_json(**run(module, ctk.Ctk(params, Runner(pass_fds=[held.fd]), ROOT)))
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except (ctk.CtkError, OSError) as exc:
        module.fail_json(msg="%s." % str(exc).rstrip("."))


if __name__ == "__main__":
    main()
