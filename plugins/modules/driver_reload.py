# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_reload
short_description: Loads the NVIDIA driver that is on the disk without a reboot, or says why a reboot is needed
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Stops the services that hold the GPUs, unloads the NVIDIA kernel modules, loads those that are on the disk, reads
    back which version is loaded and starts the services again in the opposite order. Services that were stopped are
    started again whatever happens in between.
  - Nothing is forced. Before anything is stopped it is looked who holds the GPUs, what uses the modules, and what else
    speaks against it; and again before the first module is unloaded. A process that belongs to no service in
    O(services) is never ended.
  - No computation is ended, not by a reboot either. A process that computes (it has C(/dev/nvidia-uvm) open) or is of a
    pod or a job, and is none of O(services), fails the task with every O(policy), unless it hangs in the driver
    itself, as its stack says.
  - It does nothing where the driver that is loaded is the one on the disk, in version and flavour, and no other kernel
    boots next.
  - A reload is impossible when another process holds the GPUs, a reference to a module is not explained, a module
    that it does not know uses NVIDIA's, another kernel boots next, a task hangs in the driver, nouveau has the GPUs,
    the console is on a GPU, or NVSwitches join the GPUs; and, where a reboot would not help either, when the module on
    the disk is missing, not made for this kernel, not signed under Secure Boot, not of the wanted version, or without
    its GSP firmware.
  - Needs root (C(become)).
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
attributes:
  check_mode:
    support: full
    description: Says in RV(actions) what would be done, and changes nothing.
  diff_mode:
    support: none
options:
  policy:
    description: What to do when the driver has to be reloaded.
    type: str
    default: auto
    choices:
      auto: Reload; where that is impossible and a reboot helps, answer RV(reboot_required) with the reason.
      reload: Reload, or fail with the reason.
      reboot: Do not reload, only answer RV(reboot_required); or fail where the GPUs are at work.
  services:
    description: Services that may hold the GPUs. Those that run are stopped in this order and started again in the
      opposite one.
    type: list
    elements: str
    default:
      - nvidia-dcgm-exporter.service
      - nvidia-dcgm.service
      - nvidia-fabricmanager.service
      - nvidia-persistenced.service
  version:
    description: The driver version that has to be on the disk, such as V(535.261.03). Without it, any.
    type: str
  force:
    description: Reload the driver even if the loaded one is the one on the disk.
    type: bool
    default: false
  nvswitch:
    description:
      - Reload also where NVSwitches join the GPUs, on the PCI bus or, with NVLink 5, behind InfiniBand adapters.
        Without it such a node is rebooted, since whether its fabric comes up again without one depends on the model.
    type: bool
    default: false
  reboot:
    description:
      - Reboot the node when the answer is RV(reboot_required), and wait until it is back, as M(ansible.builtin.reboot)
        does. Nothing is rebooted in check mode.
      - Whether the kernel that boots next has its module is not looked at, see
        O(gpufleet.lifecycle.driver_audit#module:require_reboot_safe).
    type: bool
    default: false
  reboot_timeout:
    description: Seconds until the node has to answer after a reboot.
    type: int
    default: 1800
  settle_s:
    description: Seconds to wait after the services were stopped until the last reference to the modules is gone.
    type: float
    default: 5
  stop_timeout_s:
    description: Seconds that stopping or starting one service may take.
    type: int
    default: 900
seealso:
  - module: gpufleet.lifecycle.driver_audit
  - module: gpufleet.lifecycle.driver_packages
"""

EXAMPLES = r"""
- name: Load the driver that was installed, without a reboot where that works
  gpufleet.lifecycle.driver_reload:
    version: 535.261.03
    policy: auto
  register: driver_reload

- name: Reload, or reboot where a reload is impossible
  gpufleet.lifecycle.driver_reload:
    policy: auto
    reboot: true
"""

RETURN = r"""
action:
  description: What was done, or has to be done.
  returned: unless the task failed before the node was looked at
  type: str
  choices: [none, reload, reboot, refuse]
why:
  description: Why the driver has to be reloaded; empty if it does not.
  returned: unless the task failed before the node was looked at
  type: str
  sample: driver 535.216.03 is loaded, and 535.261.03 is on the disk for the running kernel
reboot_required:
  description: Whether the node has to be rebooted for the driver on its disk.
  returned: unless the task failed before the node was looked at
  type: bool
reboot_reason:
  description: Why, in one line.
  returned: unless the task failed before the node was looked at
  type: str
rebooted:
  description: Whether the node was rebooted by this task.
  returned: when O(reboot=true)
  type: bool
elapsed:
  description: Seconds that the reboot took.
  returned: when the node was rebooted
  type: int
reasons:
  description: What speaks against a reload, all of it.
  returned: unless the task failed before the node was looked at
  type: list
  elements: dict
  contains:
    id:
      description:
        - One of V(policy), V(kernel_pending), V(nouveau), V(hung_task), V(hung_unknown), V(fabric), V(fabric_unknown),
          V(console), V(services_unknown), V(holders_unknown), V(foreign_holder), V(at_work), V(modules_unknown),
          V(refcnt_unknown), V(foreign_module), V(module_circle), V(unexplained_reference), V(unload_failed),
          V(no_module), V(vermagic), V(wrong_version), V(gsp_firmware), V(unsigned).
      type: str
    message: {description: The reason in words., type: str}
    next_step: {description: What to do about it., type: str}
    reboot_helps: {description: Whether a reboot gets around it., type: bool}
holders:
  description: Processes that had a device file of the driver open or mapped. V(null) if C(/proc) could not be listed.
  returned: unless the task failed before the node was looked at
  type: list
  elements: dict
  sample: [{pid: 812, user: nvpd, comm: nvidia-persiste, unit: nvidia-persistenced.service, pod: null, job: null,
            devices: [/dev/nvidia0]}]
references:
  description: The modules that hung on the driver, how often each is referred to and which modules use it, as the
    kernel counts them.
  returned: unless the task failed before the node was looked at
  type: dict
  sample: {nvidia: {refcnt: 2, holders: [nvidia_uvm]}, nvidia_uvm: {refcnt: 0, holders: []}}
services:
  description: The services to stop, in that order.
  returned: unless the task failed before the node was looked at
  type: list
  elements: str
kernel_modules:
  description: The modules to unload, in that order.
  returned: unless the task failed before the node was looked at
  type: list
  elements: str
version_before:
  description: The version that was loaded.
  returned: unless the task failed before the node was looked at
  type: str
version:
  description: The version that is loaded, read back at the end.
  returned: unless the task failed before the node was looked at
  type: str
version_on_disk:
  description: The version that the running kernel would load.
  returned: unless the task failed before the node was looked at
  type: str
actions:
  description: What was done, or in check mode would be done, in order.
  returned: unless the task failed before the node was looked at
  type: list
  elements: str
problems:
  description: What did not work after the services were stopped.
  returned: unless the task failed before the node was looked at
  type: list
  elements: str
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import reload
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver.driver_reload import DriverReload
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner

SERVICES = [
    "nvidia-dcgm-exporter.service",
    "nvidia-dcgm.service",
    "nvidia-fabricmanager.service",
    "nvidia-persistenced.service",
]


def perform(params) -> dict:
    """Hold the node, and reload."""
    lock.ignore_hangup()
    owner = {"module": "driver_reload", "rollout_id": params["rollout_id"], "step": params["step"]}
    with lock.NodeLock(owner=owner, timeout_s=params["lock_timeout_s"]) as held:
        return DriverReload(params, Runner(pass_fds=[held.fd])).run()


def complaint(result) -> str | None:
    """Return the reason that the task fails; None if it does not fail."""
    if result["action"] != reload.REFUSE:
        return None
    if result["problems"]:
        return "The driver was not loaded anew as it should be: %s. Done: %s. Next step: %s." % (
            "; ".join(result["problems"]),
            ", ".join(result["actions"]) or "nothing",
            "look at the kernel log and at these services, then run again or reboot",
        )
    done = "Done and undone: %s." % ", ".join(result["actions"]) if result["actions"] else "Nothing was changed."
    working = [item for item in result["reasons"] if item["id"] == reload.AT_WORK]
    if working:
        return "The GPUs are at work, so that the driver is not loaded anew and the node not rebooted: %s %s" % (
            reload.make_sentence(working),
            done,
        )
    helps = all(item["reboot_helps"] for item in result["reasons"])
    # That the policy is to reboot is no advice where that was refused.
    reasons = [item for item in result["reasons"] if helps or item["id"] != "policy"]
    return "The driver cannot be loaded anew without a reboot%s: %s %s" % (
        "" if helps else ", and a reboot would not help",
        reload.make_sentence(reasons),
        done,
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            policy=dict(type="str", choices=["auto", "reload", "reboot"], default="auto"),
            services=dict(type="list", elements="str", default=SERVICES),
            version=dict(type="str"),
            force=dict(type="bool", default=False),
            nvswitch=dict(type="bool", default=False),
            reboot=dict(type="bool", default=False),
            reboot_timeout=dict(type="int", default=1800),
            settle_s=dict(type="float", default=5),
            stop_timeout_s=dict(type="int", default=900),
            **lock.ARGUMENTS,
        ),
        supports_check_mode=True,
    )
    params = module.params
    if params["reboot"]:
        module.fail_json(
            msg=(
                "reboot is done by the action plugin of the collection gpufleet.lifecycle, which was not found: "
                "call the module by its full name, gpufleet.lifecycle.driver_reload, in a task."
            )
        )
    if os.geteuid() != 0:
        module.fail_json(
            msg=(
                "This needs root (become: true): what processes of other users have open cannot be seen. "
                "Nothing was changed."
            )
        )
    try:
        # The lock also for a reboot: what another task installs or compiles is not to be cut off.
        result = DriverReload(params).preview() if module.check_mode else perform(params)
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    problem = complaint(result)
    if problem:
        module.fail_json(msg=problem, **result)
    if result["problems"]:
        module.warn("Before the reboot that is due: %s" % "; ".join(result["problems"]))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
