#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_packages
short_description: Bring a coherent set of NVIDIA driver packages to one exact version
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Resolves which packages make the driver of a version on this node, each at exactly one version, and simulates the
    transaction before anything is touched.
  - A transaction is refused when it would leave a driver package that does not belong to the set (a transitional
    package or an alternative dependency brings those), change a kernel package, remove a package that is not the
    driver's, or leave too little disk space. So is a node whose driver a GPU Operator brings in a container, unless
    O(state=resolved). Every refusal names the packages, what was found, what was expected and the next step.
  - Packages of the driver that are installed already belong to the set, no matter how they were installed.
  - After the change the versions are read back, and the task fails when one differs. Holds are put back whatever
    happens.
  - A node that an interrupted C(dpkg) or C(rpm) left half done is refused, unless O(repair=true).
  - Everything that changes the node happens under the node's lock.
  - Packages that are installed prove no kernel module. M(gpufleet.lifecycle.dkms_module) builds it, and
    M(gpufleet.lifecycle.driver_audit) proves it.
attributes:
  check_mode:
    support: full
    details:
      - Resolves and simulates, and fails for a refusal as a run would.
      - On a node without the driver's repository the result is RV(resolvable=false) with RV(reason) instead of a
        failure.
      - With apt, the smallest archive of each mirror that a run would download from is fetched and removed again,
        unless O(state=resolved). A mirror from which it does not come is refused. With dnf each repository that a run
        would download from is asked for its metadata again instead.
  diff_mode:
    support: full
  action:
    description: Part of it runs on the controller, as an action plugin.
    support: full
  platform:
    platforms: Debian, Ubuntu, RHEL, Rocky Linux
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
  - gpufleet.lifecycle._driver_set
  - gpufleet.lifecycle._driver_room
options:
  version:
    description:
      - The driver's version such as V(535.261.03), or the version of its packages such as V(535.261.03-1).
      - Required unless O(state=absent) or O(state=unlocked).
    type: str
  state:
    description:
      - V(resolved) only answers which set it is and what the transaction would do.
      - V(unlocked) waits until no other run of the package manager has its locks, and changes nothing. It needs no
        O(version).
      - V(downloaded) brings the archives of the whole set into the package cache, of packages that are installed too.
      - V(present) installs, upgrades or downgrades to exactly that set.
      - V(absent) removes all packages of the driver.
    type: str
    choices: [resolved, unlocked, downloaded, present, absent]
    default: present
  hold:
    description:
      - V(true) holds every package of the set, V(false) lifts their hold. Without it, holds stay as they are.
      - With dnf a hold is a version lock with the epoch. It takes C(python3-dnf-plugin-versionlock), which is
        installed with the first hold. Where no repository offers it, or it is switched off, V(true) is refused.
      - Only used with O(state=present).
    type: bool
  pin:
    description:
      - V(true) writes O(pin_file) so that apt allows the driver's packages at this version alone, and no other driver
        family of the archive. It is written after the packages were read back, so it never asks for a version that is
        not there.
      - V(false) removes it. Without it the file is left alone.
      - O(state=absent) removes the file in any case.
      - With dnf the version locks of O(hold) do this, and there is no file.
    type: bool
  pin_file:
    description:
      - The apt preferences file of O(pin).
    type: path
    default: /etc/apt/preferences.d/gpufleet-nvidia-driver.pref
  exclude_unattended:
    description:
      - V(true) keeps unattended upgrades from the driver, V(false) lets them at it again. Without it they are left as
        they are.
      - With apt this is C(/etc/apt/apt.conf.d/53gpufleet-nvidia-driver), with dnf C(excludepkgs) in
        C(/etc/dnf/automatic.conf) where dnf-automatic is installed.
    type: bool
  dkms_build:
    description:
      - V(postinst) leaves the DKMS build to the package's own script, which builds for the running and the newest
        kernel only.
      - V(deferred) lets the script register the module with DKMS and build nothing. A task with
        M(gpufleet.lifecycle.dkms_module) has to follow.
      - With dnf the script always runs; it builds for the running kernel, and its failure does not fail the
        installation.
    type: str
    choices: [postinst, deferred]
    default: postinst
  repository_ready:
    description:
      - V(false) says that an earlier task would have changed the repositories, had it not run in check mode. In check
        mode an unknown version is RV(resolvable=false) then, and not a failure.
    type: bool
    default: true
  require_available:
    description:
      - V(true) fails in check mode too where no version of the driver is available. Without it that is
        RV(resolvable=false), for a task in whose run the package index is yet to be updated.
    type: bool
    default: false
  apt_lock_timeout_s:
    description:
      - Seconds to wait for the package manager's own locks, before anything is changed. The task fails after them and
        names who has one.
      - O(state=resolved) does not look at them.
    type: int
    default: 300
  apt_lock_look_s:
    description:
      - The most seconds to wait for them in check mode, which only looks.
    type: int
    default: 10
  timeout_s:
    description:
      - Seconds after which a package command is given up.
    type: int
    default: 3600
seealso:
  - module: gpufleet.lifecycle.dkms_module
  - module: gpufleet.lifecycle.driver_audit
"""

EXAMPLES = r"""
- name: Say which packages make a driver, and what a change to it would do
  gpufleet.lifecycle.driver_packages:
    version: 535.261.03
    state: resolved
  register: plan

- name: Say the same for a node with NVSwitches on packages of NVIDIA's repository,
    and refuse what the training partition cannot use
  gpufleet.lifecycle.driver_packages:
    version: 580.95.05
    source: cuda
    flavour: auto
    components: [fabricmanager, nscq]
    floors:
      - workload: partition train
        cuda: "12.8"
    state: resolved

- name: Download a driver while the node still works
  gpufleet.lifecycle.driver_packages:
    version: 535.261.03
    state: downloaded

- name: Install exactly this driver, pinned and held, and leave the kernel module to the next task
  gpufleet.lifecycle.driver_packages:
    version: 535.261.03
    hold: true
    pin: true
    dkms_build: deferred
"""

RETURN = r"""
resolvable:
  description: Whether the set could be resolved. V(false) without a failure is seen in check mode only. V(null) with
    O(state=absent).
  returned: always
  type: bool
reason:
  description: Why the set could not be resolved, else empty.
  returned: always
  type: str
resolved:
  description: The coherent set. V(null) with O(state=absent) and on an unsupported operating system.
  returned: unless the task was refused
  type: dict
  contains:
    wanted: {description: The version asked for., type: str}
    flavour: {description: "The flavour that was asked for, or chosen.", type: str}
    origin: {description: Whose packages they are., type: str, sample: distribution}
    stream: {description: "The dnf module stream of the set, V(null) where there is none.", type: str,
             sample: "nvidia-driver:580-open"}
    version: {description: The version of the kernel module's package., type: str, sample: 535.261.03-1}
    upstream: {description: The driver's version., type: str, sample: 535.261.03}
    packages: {description: Every package of the set with its exact version., type: dict,
               sample: {nvidia-smi: 535.261.03-1}}
    sources: {description: The version of each source package in the set., type: dict,
              sample: {nvidia-graphics-drivers: 535.261.03-1}}
    dkms_name: {description: "Name of the module in DKMS, V(null) for prebuilt modules.", type: str,
                sample: nvidia-current}
    dkms_version: {description: "Version of the module in DKMS, V(null) for prebuilt modules.", type: str,
                   sample: 535.261.03}
    available: {description: "Versions that can be had with this flavour, newest first.", type: list, elements: str}
    obsolete: {description: Installed packages of the driver's other flavours and branches., type: list, elements: str}
    trees:
      description:
        - What an archive of the built kernel module is called, for every kernel that can boot; V(null) for a kernel
          whose compiler is not known. M(gpufleet.lifecycle.dkms_module) writes and reads such archives.
      type: dict
      sample: {6.1.0-50-amd64: nvidia-current_535.261.03_6.1.0-50-amd64_x86_64_gcc-12.2.0.dkms.tar.gz}
    module_archives:
      description:
        - Files on the node that hold the source of the kernel module, for M(gpufleet.lifecycle.dkms_module) with
          O(gpufleet.lifecycle.dkms_module#module:state=prepared). Empty in check mode and for prebuilt modules. V(null)
          where the package manager is dnf, as the packages compile when they are installed.
      type: list
      elements: str
      sample: [/var/lib/gpufleet/packages/nvidia-kernel-dkms_535.261.03-1_amd64.deb]
    refusals: {description: The part of RV(refusals) that is about the set., type: list, elements: dict}
gpus:
  description: The node's GPUs and their architectures, by which O(flavour) was judged.
  returned: unless the task was refused
  type: list
  elements: dict
  sample: [{address: "0000:1b:00.0", device: "0x2330", class: "0x030200", architecture: hopper}]
flavour_reason:
  description: Why RV(resolved.flavour) was chosen.
  returned: unless the task was refused
  type: str
transaction:
  description: The transaction, as simulated before the change; the lists are empty when there is nothing to do.
  returned: unless the task was refused
  type: dict
  contains:
    install: {description: New packages., type: list, elements: dict,
              sample: [{name: nvidia-smi, version: 535.261.03-1}]}
    upgrade: {description: Packages that get a newer version., type: list, elements: dict}
    downgrade: {description: Packages that get an older version., type: list, elements: dict}
    reinstall: {description: Packages that are installed again., type: list, elements: dict}
    remove: {description: Packages that go., type: list, elements: dict}
    streams: {description: "dnf modules whose stream changes, and the old and the new stream. Absent otherwise.",
              type: dict}
refusals:
  description: Why the change was refused.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description:
        - One of V(unsupported_os), V(unknown_version), V(partly_available), V(no_solution), V(mixed_set),
          V(kernel_change), V(removal), V(held), V(not_exact), V(disk), V(disk_unknown), V(transitional),
          V(no_prebuilt_module), V(no_component), V(no_stream), V(no_hold), V(impossible_flavour), V(unknown_gpu),
          V(unknown_source), V(below_floor), V(floor_unknown), V(operator_owned), V(operator_unknown), V(no_mirror),
          V(interrupted), and
          for O(require) V(no_gpu), V(no_kernel), V(no_headers). V(cannot_keep) is for O(keep).
      type: str
    packages: {description: The packages it is about., type: list, elements: str}
    found: {description: What was found., type: str}
    expected: {description: What was expected., type: str}
    message: {description: The refusal in words., type: str}
    next_step: {description: What to do about it., type: str}
actions:
  description: What was done, or in check mode would be done, in sentences.
  returned: always
  type: list
  elements: str
disk:
  description: Bytes the change needs below each path, a generous estimate; null for a path that it does not write.
  returned: unless the task was refused
  type: dict
download_bytes:
  description: Bytes that are not in the package cache yet.
  returned: unless the task was refused
  type: int
holds:
  description: The driver's packages that are held, the longest first, and what their holds keep out.
  returned: unless the task was refused
  type: list
  elements: dict
  contains:
    package: {description: The package., type: str, sample: nvidia-smi}
    version: {description: The version it is held at., type: str, sample: 535.261.03-1}
    since: {description: "Since when it is held at that version, V(null) when it was never seen before.", type: str,
            sample: "2026-01-31T12:00:00Z"}
    since_exact: {description: "Whether RV(holds[].since) is when it was held, and not when a hold set by others was
      first seen.", type: bool}
    age_days: {description: Days since then., type: int}
    newer: {description: "Newer versions that there are, newest first.", type: list, elements: str}
    security: {description: "Those that fix a vulnerability. V(null) when the package manager cannot tell.", type: list,
               elements: str}
unkept:
  description: New packages that could not be kept for O(keep). They are installed all the same.
  returned: unless the task was refused
  type: list
  elements: str
repaired:
  description: Whether an interrupted run of the package manager was found, and finished unless in check mode.
  returned: always
  type: bool
lock:
  description: Who holds the node's lock, when it was not free in time.
  returned: when the lock was not free
  type: dict
output:
  description: The end of what a failed command said.
  returned: when a package command failed
  type: str
make_log:
  description: Path of the log of a DKMS build that failed in this run.
  returned: when a DKMS build failed
  type: str
make_log_tail:
  description: The end of that log.
  returned: when a DKMS build failed
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver_packages_options import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.lock import LockTimeout, NodeLock, ignore_hangup
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import systems
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.apt import Apt
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.dnf import Dnf
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.manager import ManagerError
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_act import Actor, ChangeFailed
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_task import run_task


def manager_of(runner, params) -> Apt | Dnf:
    """The package manager of this system; apt for one that is not supported, which will be said."""
    options = dict(lock_timeout_s=params["apt_lock_timeout_s"], timeout_s=params["timeout_s"])
    apt = Apt(runner, **options)
    table = systems.table_for(apt.os_release(), params["source"]) or systems.table_for(apt.os_release())
    return Dnf(runner, root=apt.root, **options) if table and table["package_manager"] == "dnf" else apt


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        required_if=[("state", state, ["version"]) for state in ("resolved", "downloaded", "present")],
    )
    params = module.params
    if params["version"] is not None and not params["version"].strip():
        module.fail_json(
            msg=(
                "The driver version is empty: nothing was changed. Next step: set it (nvidia_driver_version, or the "
                "option version)."
            )
        )
    acting = not module.check_mode and params["state"] not in ("resolved", "unlocked")
    lock = None
    actor = None
    try:
        if acting:
            ignore_hangup()
            owner = {"module": "driver_packages", "step": params["step"], "rollout_id": params["rollout_id"]}
            lock = NodeLock(owner=owner, timeout_s=params["lock_timeout_s"]).acquire()
        runner = Runner(pass_fds=[lock.fd] if lock else [])
        actor = Actor(manager_of(runner, params))
        module.exit_json(**run_task(module, actor, acting))
    except LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except PermissionError as exc:
        module.fail_json(msg="This state needs root (become: true): %s" % exc)
    except ChangeFailed as exc:
        module.fail_json(msg=str(exc), actions=actor.done, **exc.details)
    except ManagerError as exc:
        module.fail_json(msg=str(exc), output=exc.output, actions=actor.done if actor else [])
    finally:
        if lock:
            lock.release()


if __name__ == "__main__":
    main()
