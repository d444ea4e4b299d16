#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dkms_module
short_description: Build, remove, export and import the NVIDIA kernel module with DKMS
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Makes one version of the NVIDIA kernel module built and installed for every kernel that can boot, or takes it out.
  - Writes built modules into an archive, and uses such an archive on another node with the same kernel, so that a fleet
    compiles once for each driver version, kernel, architecture and compiler.
  - After every change it reads back the state of DKMS and the version inside the module file; it does not trust an exit
    status.
  - What an interrupted or failed build left in the DKMS tree is found and cleared before the next build.
  - A change holds the node's lock C(/run/gpufleet.lock), and where the lock is free so does looking whether one is due.
    A change goes on when the controller or the connection is lost, and the lock stays with the commands that it
    started.
requirements:
  - C(dkms) and C(modinfo) on the node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Before and after for each kernel, with the state of DKMS and the version of the module file on disk.
  action:
    description: Part of it runs on the controller, as an action plugin.
    support: full
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
  - gpufleet.lifecycle._dkms_archives
options:
  name:
    description:
      - The DKMS name of the module, such as V(nvidia-current), V(nvidia-current-open), V(nvidia-srv) or V(nvidia).
      - Without it the name is that of the archives in O(import_files), or of the one NVIDIA module of O(version) that
        the node has in its DKMS tree or as source under C(/usr/src). Several such modules are an error that names them.
    type: str
  version:
    description: The driver version, such as V(535.261.03).
    type: str
    required: true
  state:
    description: What is wanted.
    type: str
    default: built
    choices:
      built: The module is built and installed for every kernel in O(kernels). Archives in O(store_dir) that fit the
        node are used.
      prepared: An archive of the module lies in O(store_dir) for every kernel in O(kernels) that does not have the
        module yet, and one of every other version that is installed for them now, for the way back. What is missing is
        compiled at the lowest priority in a tree of its own, from O(source_packages), and nothing that is in use is
        changed. This is for a node that still works, before it is drained.
      absent: The module version is not there, for O(kernels) or, without that option, not at all.
      exported: Each kernel's built modules are in an archive in O(export_dir), with its sha256 beside it. It is named
        C(<name>_<version>_<kernel>_<arch>_<compiler>.dkms.tar.gz).
      imported: The modules in O(import_files) are used instead of a compilation. When the module's source is on the
        node they are loaded and installed at once. When its package is still to be installed, or its installation was
        interrupted, they are put where the package's own script takes a prebuilt tree from,
        C(/usr/share/<name>-dkms/<name>-<version>.dkms.tar.gz); the next run of this module with the package in place
        removes that file.
  kernels:
    description:
      - Kernel releases to work on.
      - Without it, every kernel that has a directory in C(/lib/modules) and an image.
      - For O(state=exported) without it, every such kernel for which the module is built; for O(state=imported) without
        it, every kernel for which there is an archive in O(import_files).
    type: list
    elements: str
  export_dir:
    description: An existing directory on the node for O(state=exported).
    type: path
  import_files:
    description:
      - Archives on the node for O(state=imported), each with a file C(<archive>.sha256) beside it. With O(state=built)
        they are used for the kernels they are for, and the module is compiled for the others.
      - An archive that does not fit the node fails the task with the reason, and nothing is changed. Its digest,
        contents, name, version, kernel, architecture, compiler, the version and vermagic of the module in it, and its
        signature where Secure Boot is on are checked.
    type: list
    elements: path
  remove_stale:
    description:
      - With O(state=built), remove other versions of the module from the DKMS tree for good, once the wanted one was
        read back for every kernel. DKMS prefers a newer one otherwise.
    type: bool
    default: false
  force:
    description: Build, export or import again what is already there.
    type: bool
    default: false
  build_timeout_s:
    description: Seconds that one build may take, at least 3600. It is killed then.
    type: int
    default: 3600
  lock_timeout_s:
    description: Seconds to wait for the node's lock, and for a C(dkms) that something else started. The task fails
      after them and names the holder.
    type: int
    default: 600
notes:
  - Other versions of the module are listed in RV(stale) and are not removed; O(state=built) only takes them off the
    kernels that it installs for, unless O(remove_stale=true).
seealso:
  - module: gpufleet.lifecycle.driver_audit
"""

EXAMPLES = r"""
- name: Build the module for every kernel that can boot
  gpufleet.lifecycle.dkms_module:
    version: 535.261.03

- name: Keep what was built, for the other nodes
  gpufleet.lifecycle.dkms_module:
    version: 535.261.03
    state: exported
    export_dir: /var/lib/gpufleet/dkms
  register: exported_trees

- name: Use it on another node, before or after its packages are installed
  gpufleet.lifecycle.dkms_module:
    version: 535.261.03
    state: imported
    import_files:
      - /var/lib/gpufleet/dkms/nvidia-current_535.261.03_6.1.0-50-amd64_x86_64_gcc-12.2.0.dkms.tar.gz

- name: Use what the controller has from other nodes, compile what it does not have, and leave no other version
  gpufleet.lifecycle.dkms_module:
    version: 535.261.03
    archive_dir: ~/.gpufleet/dkms
    remove_stale: true

- name: Have the next version compiled while the node still works
  gpufleet.lifecycle.dkms_module:
    name: nvidia-current
    version: 535.261.03
    state: prepared
    archive_dir: ~/.gpufleet/dkms
    source_packages:
      - /var/cache/apt/archives/nvidia-kernel-dkms_535.261.03-1_amd64.deb

- name: Remove an older version for good
  gpufleet.lifecycle.dkms_module:
    name: nvidia-current
    version: 535.216.03
    state: absent
"""

RETURN = r"""
name:
  description: The DKMS name of the module.
  returned: success
  type: str
  sample: nvidia-current
kernels:
  description: For each kernel, what was there before and what is there now; in check mode what would be there.
  returned: success
  type: dict
  sample: {"6.1.0-50-amd64": {"before": "added, module on disk: none",
                              "after": "installed, module on disk: 535.261.03"}}
steps:
  description: The steps that were done, or would be in check mode, in their order. After a failure those that were done
    before it.
  returned: success, or when a step failed
  type: list
  elements: dict
  sample: [{"action": "build", "kernel": "6.1.0-50-amd64"},
           {"action": "install", "kernel": "6.1.0-50-amd64", "force": false}]
stale:
  description: Other versions of the module in the DKMS tree.
  returned: success
  type: list
  elements: dict
  sample: [{"name": "nvidia-current", "version": "535.216.03",
            "kernels": [{"kernel": "6.1.0-50-amd64", "state": "built"}]}]
exported:
  description: The archives in O(export_dir).
  returned: O(state=exported)
  type: list
  elements: dict
  contains:
    kernel:
      description: The kernel the archive is for.
      type: str
    path:
      description: The archive on the node; its digest is in a file of this name with C(.sha256) at the end. V(null) in
        check mode before the first export.
      type: str
    sha256:
      description: The archive's digest. V(null) in check mode before the first export.
      type: str
    source:
      description: The digest of the source that it was built from. V(null) when it was not noted.
      type: str
compiled:
  description: The archives in O(store_dir) of what was compiled in this run; with O(state=built) only where
    O(archive_dir) takes them.
  returned: O(state=built) or O(state=prepared)
  type: list
  elements: dict
  contains:
    kernel: {description: The kernel the archive is for., type: str}
    path: {description: The archive on the node., type: str}
    sha256: {description: Its digest., type: str}
    source: {description: "The digest of what it was built from, V(null) when it was not noted.", type: str}
unfit:
  description: Archives in O(store_dir) that do not fit the node, and why. They were not used.
  returned: O(state=built) or O(state=prepared)
  type: list
  elements: str
received:
  description: Names of the archives that were brought to the node.
  returned: with O(archive_dir)
  type: list
  elements: str
waited_for:
  description: The nodes that compiled while this one waited for their archives.
  returned: with O(archive_dir)
  type: list
  elements: str
staged:
  description: The archive that waits for the package's script; V(null) when there is none.
  returned: success
  type: str
lock_waited_s:
  description: Seconds that were spent waiting for the node's lock; V(null) when it was not needed.
  returned: success
  type: float
lock:
  description: Who holds the node's lock, and whether that process lives.
  returned: when the lock was not free in time
  type: dict
rc_meaning:
  description: What the exit status of C(dkms) says.
  returned: when C(dkms) failed
  type: str
make_log:
  description: The last 60 lines of C(make.log), each up to 240 characters.
  returned: when a build failed
  type: list
  elements: str
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import act as dkms_act
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms.dkms_module import DkmsModule, at_once
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock, runner

MIN_BUILD_TIMEOUT_S = 3600


def node_lock(params, timeout_s) -> lock.NodeLock:
    lock.ignore_hangup()
    step = params["step"] or "%s %s %s" % (params["state"], params["name"] or "", params["version"])
    return lock.NodeLock(
        owner={"module": "dkms_module", "rollout_id": params["rollout_id"], "step": step}, timeout_s=timeout_s
    )


def change(module, params) -> dict:
    """Hold the node, look again, and do it."""
    deadline = time.monotonic() + params["lock_timeout_s"]
    with node_lock(params, params["lock_timeout_s"]) as held:
        others = dkms_act.wait_for_others(deadline)
        if others:
            module.fail_json(
                msg=(
                    "Another dkms is running on this node, and nothing was started beside it: %s. Next step: wait "
                    "until it ends and run again."
                    % "; ".join("process %d (%s)" % (item["pid"], " ".join(item["argv"])) for item in others[:3])
                ),
                processes=others,
            )
        result = DkmsModule(params, runner.Runner(pass_fds=[held.fd])).run()
    return dict(result, lock_waited_s=held.waited_s)


def tell(module, result) -> None:
    if not module._diff:
        result.pop("diff")
    for text in result.pop("warnings", []):
        module.warn(text)
    module.exit_json(**result)


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str"),
            version=dict(type="str", required=True),
            state=dict(type="str", choices=["built", "prepared", "absent", "exported", "imported"], default="built"),
            kernels=dict(type="list", elements="str"),
            export_dir=dict(type="path"),
            import_files=dict(type="list", elements="path"),
            archive_dir=dict(type="path"),
            builder=dict(type="bool", default=False),
            ledger=dict(type="str"),
            archives_offered=dict(type="list", elements="str"),
            asked=dict(type="bool", default=False),
            store_dir=dict(type="path", default=tree_archives.STORE),
            source_packages=dict(type="list", elements="path"),
            archives_sources=dict(type="dict"),
            remove_stale=dict(type="bool", default=False),
            force=dict(type="bool", default=False),
            build_timeout_s=dict(type="int", default=3600),
            **lock.ARGUMENTS,
        ),
        required_if=[
            ("state", "exported", ["export_dir"]),
            ("state", "imported", ["import_files"]),
            ("state", "prepared", ["name"]),
        ],
        supports_check_mode=True,
    )
    params = module.params
    if params["build_timeout_s"] < MIN_BUILD_TIMEOUT_S:
        module.fail_json(
            msg="build_timeout_s is %d, and must be at least %d: a build that is cut short has to be done again."
            % (params["build_timeout_s"], MIN_BUILD_TIMEOUT_S)
        )
    try:
        if params["archive_dir"]:
            module.fail_json(
                msg=(
                    "archive_dir is a directory on the controller, and the action plugin of the collection "
                    "gpufleet.lifecycle, which sends what is in it, was not found: call the module by its full name, "
                    "gpufleet.lifecycle.dkms_module, in a task."
                )
            )
        params["publish"] = params["archives_offered"] is not None
        if params["publish"] and not params["asked"] and not module.check_mode:
            needs, compiles = DkmsModule(params, runner.Runner()).asks()
            if needs or compiles:
                module.exit_json(
                    changed=False, needs_archives=sorted(needs.values()), compiles=sorted(compiles.values())
                )
        result = (
            None
            if module.check_mode
            else at_once(node_lock(params, 0), lambda fd: DkmsModule(params, runner.Runner(pass_fds=[fd])))
        )
        if result is None:
            look = module.check_mode or not DkmsModule(params, runner.Runner()).due()
            result = DkmsModule(params, runner.Runner()).preview() if look else change(module, params)
    except lock.LockTimeout as exc:
        module.fail_json(msg=str(exc), lock=exc.holder)
    except dkms_act.ActError as exc:
        module.fail_json(msg=str(exc), **exc.details)
    except tree_archives.TreeError as exc:
        module.fail_json(
            msg=(
                "%s Nothing was changed. Next step: export the tree again on a node with this kernel, or leave "
                "import_files out and compile." % exc
            )
        )
    except OSError as exc:
        module.fail_json(
            msg=(
                "The files of %s %s on this node cannot be worked on: %s. Next step: look at that path and at "
                "the free space (df)." % (params["name"] or "the module", params["version"], exc)
            )
        )
    tell(module, result)


if __name__ == "__main__":
    main()
