# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_packages
short_description: Holds the kernel's packages, stages another kernel, and applies security updates around them
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - A held kernel has holds (with dnf, version locks), a file of apt preferences under which no other kernel comes, and
    an exclusion from unattended upgrades. They are set and lifted together.
  - Every answer lists the kernels, how long each package is held, and which newer versions and security updates that
    keeps out.
  - A change is simulated first. It is refused if it would touch anything but what it is about.
  - Knows apt and dnf. Needs root (C(become)).
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  action:
    description: Part of it runs on the controller, as an action plugin.
    support: full
options:
  state:
    description: What is wanted.
    type: str
    default: held
    choices:
      held: The kernel's packages stay as they are.
      free: Nothing of this module's keeps them.
      staged: The packages of O(kernel) and its headers are installed beside the others, and the kernel that runs is the
        default of the boot loader before and after it. M(gpufleet.lifecycle.boot_kernel) makes the new one the default.
        What was installed is held, too. What the headers depend on and the node does not have comes with them, and is
        told; a package that is there and not the kernel's is not changed.
      followed: The metapackages, such as C(linux-image-amd64), are those of O(kernel), which has to boot next. Those
        that stand for another one keep its packages installed, and a report would count the update to this one as kept
        out. Nothing is done where none stands for it.
      removed: The packages of O(kernel) are not there. The kernel that runs, and the one that boots next, are never
        removed.
      updated: The security updates of all packages are installed that are not held, and not the kernel's or the
        driver's. They are taken from the security archive alone. On systems with apt only.
  kernel:
    description: The release of the kernel for O(state=staged), O(state=followed) and O(state=removed), such as
      V(6.1.0-50-amd64).
    type: str
  patterns:
    description:
      - Regular expressions for the names of the kernel's packages, matched from the beginning of the name.
      - Without it, those that the system is known to have.
    type: list
    elements: str
  pin:
    description: Write the apt preferences.
    type: bool
    default: true
  exclude_unattended:
    description: Keep unattended-upgrades, and dnf-automatic where it is installed, from these packages.
    type: bool
    default: true
  apt_lock_timeout_s:
    description: Seconds to wait for the lock of the package manager.
    type: int
    default: 300
  timeout_s:
    description: Seconds that one command of the package manager may take.
    type: int
    default: 3600
seealso:
  - module: gpufleet.lifecycle.boot_kernel
  - module: gpufleet.lifecycle.driver_packages
"""

EXAMPLES = r"""
- name: Hold the kernel, and say what that keeps out
  gpufleet.lifecycle.kernel_packages:
  register: kernel_packages

- name: Install a kernel that is not to boot yet
  gpufleet.lifecycle.kernel_packages:
    state: staged
    kernel: 6.1.0-56-amd64
"""

RETURN = r"""
actions:
  description: What was done, or in check mode would be done.
  returned: success
  type: list
  elements: str
kernels:
  description: The kernels of the node.
  returned: success
  type: dict
  contains:
    running: {description: The kernel that runs., type: str, sample: 6.1.0-50-amd64}
    installed: {description: "Those that can boot, the oldest first.", type: list, elements: str}
    next_boot: {description: "The one that boots next, V(null) if that cannot be told.", type: str}
    next_boot_source: {description: How that is known., type: str, sample: grubenv saved_entry}
holds:
  description: The kernel's packages that are held, the longest first, and what their holds keep out.
  returned: success
  type: list
  elements: dict
  contains:
    package: {description: The package., type: str, sample: linux-image-amd64}
    version: {description: The version it is held at., type: str, sample: 6.1.176-1}
    since: {description: "Since when it is held at that version, V(null) when it was never seen before.", type: str,
            sample: "2026-01-31T12:00:00Z"}
    since_exact: {description: "Whether RV(holds[].since) is when it was held, and not when a hold set by others was
      first seen.", type: bool}
    age_days: {description: Days since then., type: int}
    newer: {description: "Newer versions that there are, newest first.", type: list, elements: str}
    security: {description: "Those that fix a vulnerability. V(null) when the package manager cannot tell.", type: list,
               elements: str}
held_days:
  description: The days of the longest hold, V(null) if nothing is held.
  returned: success
  type: int
security_kept_out:
  description: The newest security update of each package that its hold keeps out.
  returned: success
  type: dict
  sample: {linux-image-amd64: 6.1.192-2}
output:
  description: The end of what a failed command said.
  returned: when a command of the package manager failed
  type: str
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel.boot_default import BootError
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.kernel_packages import (
    KernelPackages,
    Refused,
    manager_of,
)
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.manager import ManagerError

ROOT = "/"
NAMING = ("staged", "followed", "removed")  # states of one kernel


def perform(params, runner, acting):
    options = {"lock_timeout_s": params["apt_lock_timeout_s"], "timeout_s": params["timeout_s"]}
    return KernelPackages(params, manager_of(runner, ROOT, **options), runner, ROOT).run(acting)


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            state=dict(
                type="str", choices=["held", "free", "staged", "followed", "removed", "updated"], default="held"
            ),
            kernel=dict(type="str"),
            patterns=dict(type="list", elements="str"),
            pin=dict(type="bool", default=True),
            exclude_unattended=dict(type="bool", default=True),
            apt_lock_timeout_s=dict(type="int", default=300),
            timeout_s=dict(type="int", default=3600),
            **lock.ARGUMENTS,
        ),
        required_if=[("state", state, ["kernel"]) for state in NAMING],
        supports_check_mode=True,
    )
    params = module.params
    if params["state"] in NAMING and not params["kernel"].strip():
        module.fail_json(
            msg="No kernel is named: nothing was changed. Next step: set it (kernel_hold_kernel, or the option kernel)."
        )
    if os.geteuid() != 0:
        module.fail_json(msg="This needs root (become: true). Nothing was changed.")
    try:
        if module.check_mode:
            result = perform(params, Runner(), False)
        else:
            lock.ignore_hangup()
            owner = {"module": "kernel_packages", "rollout_id": params["rollout_id"], "step": params["step"]}
            with lock.NodeLock(owner=owner, timeout_s=params["lock_timeout_s"]) as held:
                result = perform(params, Runner(pass_fds=[held.fd]), True)
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except Refused as exc:
        module.fail_json(msg="%s." % exc)
    except BootError as exc:
        module.fail_json(
            msg=(
                "The default boot entry is not what it has to be: %s. Next step: look at the boot loader's "
                "configuration on the node." % exc
            )
        )
    except ManagerError as exc:
        module.fail_json(msg=str(exc), output=exc.output)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
