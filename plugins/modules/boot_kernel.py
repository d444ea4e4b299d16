# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: boot_kernel
short_description: Makes a kernel the one that boots by default, once its NVIDIA module is proven
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Sets the default entry of the boot loader and reads back from its files which kernel boots next. GRUB is set with
    C(grub-editenv), with C(GRUB_DEFAULT=saved) in a file of its own, so that a kernel that is installed later does not
    become the default; where the menu is in boot loader entries, C(grubby) is used.
  - With O(driver_version) a kernel is refused for which the NVIDIA module of that version is not on the disk, made for
    that kernel.
  - Refused, too, are a kernel that cannot boot, and a node with an entry set to boot once.
  - Needs root (C(become)).
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  kernel:
    description: The release of the kernel, such as V(6.1.0-50-amd64). Without it, the kernel that runs.
    type: str
  driver_version:
    description: The driver version whose module has to be there for that kernel, such as V(535.261.03), or the version
      of its packages.
    type: str
  pin:
    description:
      - Whether a kernel that is the default only because it is the newest one is made the saved default too, so that a
        later one does not take its place.
      - With V(false) nothing is written on a node where the kernel boots next already.
    type: bool
    default: true
seealso:
  - module: gpufleet.lifecycle.kernel_packages
  - module: gpufleet.lifecycle.dkms_module
"""

EXAMPLES = r"""
- name: Let the kernel that runs stay the default, whatever is installed
  gpufleet.lifecycle.boot_kernel:

- name: Make a staged kernel the default, now that its module is built
  gpufleet.lifecycle.boot_kernel:
    kernel: 6.1.0-56-amd64
    driver_version: 535.261.03
"""

RETURN = r"""
kernels:
  description: The kernels as they are at the end.
  returned: always
  type: dict
  contains:
    running: {description: The kernel that runs., type: str, sample: 6.1.0-50-amd64}
    installed: {description: "Those that can boot, the oldest first.", type: list, elements: str}
    next_boot: {description: "The one that boots next, V(null) if that cannot be told.", type: str}
    next_boot_source: {description: How that is known., type: str, sample: grubenv saved_entry}
reboot_required:
  description: Whether another kernel boots next than the one that runs.
  returned: success
  type: bool
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import boot_default, kernels
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock, versions
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner

ROOT = "/"


def problem_with(runner, kernel, version, pin) -> str:
    """Return why this kernel must not be the default; empty if it may be."""
    proof = boot_default.explain_unproven(ROOT, runner, kernel, versions.upstream(version)) if version else ""
    if proof:
        return (
            "%s. The default boot entry was left as it is. Next step: build the module for that kernel (module "
            "dkms_module) or install its prebuilt one (module driver_packages), or remove the kernel" % proof
        )
    problem = boot_default.decide_boot(boot_default.read_boot(ROOT, runner), kernel, pin)["problem"]
    return (
        "%s. The default boot entry was left as it is. Next step: look at the boot loader's configuration on the node"
        % problem
        if problem
        else ""
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            kernel=dict(type="str"),
            driver_version=dict(type="str"),
            pin=dict(type="bool", default=True),
            **lock.ARGUMENTS,
        ),
        supports_check_mode=True,
    )
    params = module.params
    kernel = params["kernel"] or os.uname().release
    runner = Runner()
    problem = problem_with(runner, kernel, params["driver_version"], params["pin"])
    if problem:
        module.fail_json(
            msg="Kernel %s is not made the default: %s." % (kernel, problem), kernels=kernels.read(ROOT, runner)
        )
    changed = boot_default.decide_boot(boot_default.read_boot(ROOT, runner), kernel, params["pin"])["changed"]
    if changed and not module.check_mode:
        try:
            lock.ignore_hangup()
            owner = {"module": "boot_kernel", "rollout_id": params["rollout_id"], "step": params["step"]}
            with lock.NodeLock(owner=owner, timeout_s=params["lock_timeout_s"]) as held:
                changed = boot_default.set_default(ROOT, Runner(pass_fds=[held.fd]), kernel, pin=params["pin"])
        except lock.LockTimeout as exc:
            module.fail_json(msg=str(exc), lock=exc.holder, kernels=kernels.read(ROOT, runner))
        except (boot_default.BootError, OSError) as exc:
            module.fail_json(
                msg="Kernel %s is not the default: %s. Next step: look at the boot loader's configuration on the node."
                % (kernel, exc),
                kernels=kernels.read(ROOT, runner),
            )
    found = kernels.read(ROOT, runner)
    module.exit_json(changed=changed, kernels=found, reboot_required=found["running"] != found["next_boot"])


if __name__ == "__main__":
    main()
