#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_audit
short_description: Prove which NVIDIA driver a node has, and whether it may be rebooted
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Reads what is on disk and what is loaded, and judges whether it is one coherent driver. A package manager that ended
    well proves nothing; this module does.
  - It compares the versions of the packages, the kernel module of every kernel that can boot, the library
    C(libnvidia-ml), the GSP firmware and the loaded module, and names the ones that do not agree.
  - It reads the state of DKMS for every kernel, the kernel that boots next, the signature of the module against Secure
    Boot, an interrupted C(dpkg), a build that was interrupted, the C(nouveau) driver and remains of NVIDIA's C(.run)
    installer.
  - What cannot be read is V(unknown), and V(unknown) is not a pass.
  - It does not use NVML; M(gpufleet.lifecycle.gpu_info) does.
attributes:
  check_mode:
    support: full
    details:
      - The module only reads, so it does the same in check mode.
  diff_mode:
    support: N/A
    details:
      - The module changes nothing.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
options:
  wanted_version:
    description:
      - The driver version that the node is meant to have, such as V(535.261.03).
      - Without it the parts of the installed driver are judged against each other.
    type: str
  expect_loaded:
    description:
      - Whether the loaded driver is judged too.
      - V(false) is for the time between an installation and the reload or reboot. RV(audit.reboot_required) says what
        is loaded either way.
    type: bool
    default: true
  fail_on:
    description:
      - The verdicts that fail the task.
      - An empty list only reports. V([fail, unknown]) makes the task a proof.
    type: list
    elements: str
    choices: [fail, unknown]
    default: []
  findings:
    description:
      - Judge O(fail_on) by these findings only, by their RV(audit.findings[].id). All findings are returned in any
        case.
      - An empty list takes all of them.
    type: list
    elements: str
    default: []
  require_reboot_safe:
    description:
      - Fail when the kernel that boots next does not have the wanted kernel module on disk, or when that is not known.
    type: bool
    default: false
seealso:
  - module: gpufleet.lifecycle.dkms_module
  - module: gpufleet.lifecycle.gpu_info
"""

EXAMPLES = r"""
- name: Report the state of the driver
  gpufleet.lifecycle.driver_audit:
  register: node_driver

- name: Prove that the driver is installed before the node is rebooted
  gpufleet.lifecycle.driver_audit:
    wanted_version: 535.261.03
    expect_loaded: false
    fail_on: [fail, unknown]
    require_reboot_safe: true

- name: Prove after the reboot that the new driver is the one that runs
  gpufleet.lifecycle.driver_audit:
    wanted_version: 535.261.03
    fail_on: [fail, unknown]

- name: Only make sure that no package operation was cut off
  gpufleet.lifecycle.driver_audit:
    findings: [dpkg_interrupted, dkms_leftover]
    fail_on: [fail, unknown]
"""

RETURN = r"""
audit:
  description: The audit of the node's driver.
  returned: always
  type: dict
  contains:
    schema:
      description: Name and version of this structure.
      type: str
      sample: gpufleet.audit/1
    kernel:
      description: The kernels of the node.
      type: dict
      contains:
        running:
          description: The kernel that runs.
          type: str
          sample: 6.1.0-49-amd64
        installed:
          description: The kernels that can boot, oldest first.
          type: list
          elements: str
          sample: [6.1.0-49-amd64, 6.1.0-50-amd64]
        next_boot:
          description: The kernel that boots next; V(null) when it is not known.
          type: str
          sample: 6.1.0-50-amd64
        next_boot_source:
          description: How that is known, or why it is not.
          type: str
          sample: grub.cfg default
    versions:
      description:
        - Every version the node shows, with C(packages) by package and C(modules) by kernel; V(null) where a kernel has
          no module. C(link) of a module is the file of another kernel that weak-modules linked.
        - C(package) is the version of the package that brings the kernel module, with its revision; V(null) where there
          is none or they differ.
        - C(driver_packages) are the packages that must be of the driver's version; V(null) where packages cannot be
          read.
      type: dict
    dkms:
      description: The NVIDIA entries of C(dkms status).
      type: list
      elements: dict
      sample: [{"name": "nvidia-current", "version": "535.261.03", "kernel": "6.1.0-50-amd64", "arch": "x86_64",
                "state": "installed", "note": ""}]
    headers:
      description: Whether the headers of each kernel are there.
      type: dict
      sample: {"6.1.0-50-amd64": true}
    flavour:
      description: V(open) or V(proprietary) by what is loaded, else by the license of the module on disk; V(null) when
        neither is there.
      type: str
    nouveau_loaded:
      description: Whether C(nouveau) is loaded; V(null) when that cannot be read.
      type: bool
    compute_users:
      description:
        - How often processes have C(nvidia_uvm) open, as everything that runs CUDA has; V(null) when that cannot be
          read. It says whether the node is at work as cheaply as can be, and not who works there; see
          M(gpufleet.lifecycle.gpu_info) for that.
      type: int
    secure_boot:
      description: Whether the running kernel wants signed modules, or else the firmware says so, V(enabled),
        V(disabled) or V(unknown).
      type: str
    pci:
      description: NVIDIA GPUs on the PCI bus.
      type: list
      elements: dict
      sample: [{"address": "0000:1b:00.0", "device": "0x2330", "class": "0x030200"}]
    identity:
      description:
        - Which machine it is, beside its name, C(machine_id), C(board_serial) and C(gpus) (UUIDs, without NVML);
          V(null) for what cannot be read or says nothing. No finding is made of it; M(gpufleet.lifecycle.rollout_plan)
          tells by it when two names of the inventory are one machine.
      type: dict
      sample: {"machine_id": "0f3c5e6a7b8c4d9e8f7a6b5c4d3e2f1a", "board_serial": null,
               "gpus": ["GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10"]}
    findings:
      description: What was judged, one entry for each thing.
      type: list
      elements: dict
      contains:
        id:
          description: What was judged, such as V(versions_agree), V(kernel_module), V(dkms_state) or
            V(next_boot_kernel).
          type: str
        entity:
          description: The kernel, path or DKMS tree it is about, or V(node).
          type: str
        status:
          description: V(pass), V(fail), V(unknown) or V(not_applicable).
          type: str
        observed:
          description: What was found.
          type: raw
        expected:
          description: What should have been found.
          type: raw
        message:
          description: The finding in a sentence; empty when it passed.
          type: str
        next_step:
          description: What to do about it; empty when it passed.
          type: str
    verdict:
      description: V(fail) when a finding failed, else V(unknown) when one is unknown, else V(pass).
      type: str
      sample: pass
    reboot_safe:
      description: Whether the kernel that boots next is known and has the wanted module on disk.
      type: bool
    reboot_safe_reason:
      description: Why.
      type: str
    reboot_required:
      description: Whether what runs is not what is on disk.
      type: bool
    reboot_required_reason:
      description: Every reason for it; empty when there is none.
      type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import audit


def select_findings(document, names) -> list[dict]:
    """The findings that count for the verdict of this task."""
    return [item for item in document["findings"] if not names or item["id"] in names]


def complaint(document, fail_on, names, require_reboot_safe) -> str | None:
    """Return the reason that the task fails, a line for each finding; None if it does not fail."""
    found = select_findings(document, names)
    missing = sorted(set(names) - set(item["id"] for item in found))
    lines = []
    if audit.verdict(found) in fail_on:
        lines = [line(item) for item in found if item["status"] in fail_on]
        lines += ["%s: nothing of this name was judged on this node." % name for name in missing]
    elif missing and "unknown" in fail_on:
        lines = ["%s: nothing of this name was judged on this node." % name for name in missing]
    if require_reboot_safe and not document["reboot_safe"]:
        lines.append("reboot_safe: it is not safe to reboot this node: %s" % document["reboot_safe_reason"])
    if not lines:
        return None
    return "The driver of this node is not proven:\n%s" % "\n".join("- %s" % item for item in lines)


def line(item) -> str:
    text = "%s (%s) is %s: %s" % (item["id"], item["entity"], item["status"], item["message"])
    if item["status"] != "pass":
        text += " Found: %s. Expected: %s." % (show(item["observed"]), show(item["expected"]))
    return "%s Next step: %s" % (text, item["next_step"]) if item["next_step"] else text


def show(value) -> str:
    if isinstance(value, dict):
        return ", ".join("%s = %s" % (key, value[key]) for key in sorted(value)) or "nothing"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "nothing"
    return "nothing" if value is None else str(value)


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            wanted_version=dict(type="str"),
            expect_loaded=dict(type="bool", default=True),
            fail_on=dict(type="list", elements="str", choices=["fail", "unknown"], default=[]),
            findings=dict(type="list", elements="str", default=[]),
            require_reboot_safe=dict(type="bool", default=False),
        ),
        supports_check_mode=True,
    )
    params = module.params
    document = audit.decide(audit.read("/"), params["wanted_version"], params["expect_loaded"])
    problem = complaint(document, params["fail_on"], params["findings"], params["require_reboot_safe"])
    if problem:
        module.fail_json(msg=problem, audit=document)
    module.exit_json(changed=False, audit=document)


if __name__ == "__main__":
    main()
