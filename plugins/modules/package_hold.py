#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_hold
short_description: Hold installed packages at their version, or lift their holds
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - A hold is C(apt-mark hold), or with dnf a version lock with the epoch, in the list that the plugin versionlock
    reads. The first hold installs C(python3-dnf-plugin-versionlock).
  - For the kernel see M(gpufleet.lifecycle.kernel_packages), for the driver M(gpufleet.lifecycle.driver_packages),
    which also record since when theirs are held.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
attributes:
  check_mode:
    support: full
    details:
      - Packages that are not installed yet would be held; in a run they are a failure.
  diff_mode:
    support: none
options:
  names:
    description: The packages.
    type: list
    elements: str
    required: true
  state:
    description: V(held), or V(free), with which packages that are not installed are left out.
    type: str
    choices: [held, free]
    default: held
  timeout_s:
    description: Seconds that one command of the package manager may take.
    type: int
    default: 3600
seealso:
  - module: gpufleet.lifecycle.hold_info
"""

EXAMPLES = r"""
- name: Hold DCGM
  gpufleet.lifecycle.package_hold:
    names: [datacenter-gpu-manager-4-core]
"""

RETURN = r"""
actions:
  description: What was done, or in check mode would be done.
  returned: success
  type: list
  elements: str
lock:
  description: Who holds the node's lock.
  returned: when the lock was not free in time
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import holds
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.kernel_packages import manager_of
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.manager import ManagerError

ROOT = "/"


def set_holds(module, runner) -> list[str]:
    """Hold the packages, or lift their holds. Returns what was done; check mode changes nothing."""
    names, action = module.params["names"], {"held": "hold", "free": "unhold"}[module.params["state"]]
    manager = manager_of(runner, ROOT, timeout_s=module.params["timeout_s"])
    problem = manager.hold_problem() if action == "hold" else None
    if problem:
        module.fail_json(
            msg="%s cannot be held: %s. Nothing was changed. Next step: %s." % (", ".join(names), *problem)
        )
    due, absent = holds.find_due(manager.list_installed(), names, action)
    if absent and action == "hold" and not module.check_mode:
        module.fail_json(
            msg="%s cannot be held: not installed. Nothing was changed. Next step: install them." % ", ".join(absent)
        )
    due = sorted(due + absent) if action == "hold" else due
    actions = holds.describe_marks(action, due, manager.find_lock_package())
    if not module.check_mode:
        manager.mark(action, due)
    return actions


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            names=dict(type="list", elements="str", required=True),
            state=dict(type="str", choices=["held", "free"], default="held"),
            timeout_s=dict(type="int", default=3600),
            **lock.ARGUMENTS,
        ),
        supports_check_mode=True,
    )
    if os.geteuid() != 0:
        module.fail_json(msg="This needs root (become: true). Nothing was changed.")
    params = module.params
    owner = {"module": "package_hold", "rollout_id": params["rollout_id"], "step": params["step"]}
    try:
        if module.check_mode:
            actions = set_holds(module, Runner())
        else:
            lock.ignore_hangup()
            with lock.NodeLock(owner=owner, timeout_s=params["lock_timeout_s"]) as held:
                actions = set_holds(module, Runner(pass_fds=[held.fd]))
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except ManagerError as exc:
        module.fail_json(msg="%s. Next step: run that command on the node." % exc)
    module.exit_json(changed=bool(actions), actions=actions)


if __name__ == "__main__":
    main()
