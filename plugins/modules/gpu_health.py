# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_health
short_description: Judge whether the GPUs of a node are healthy, alone or against a baseline
version_added: 0.1.0
author: gpufleet contributors (@gpufleet)
description:
  - Reads all GPUs of the node through NVML and the state of its driver, and makes one verdict of them on the controller.
  - Checked are whether NVML answers; whether every GPU is there, on the PCI bus, opened by NVML and the same by UUID and PCI address as
    in the baseline; whether loaded, installed, on-disk and expected driver versions agree, also for the kernel that boots next; what
    each GPU reports about itself (recovery action, row remapping, retired pages, ECC errors, modes that wait for a reset); and whether
    settings, memory, BAR1 and NVLinks are as in the baseline.
  - It fails closed. A signal that cannot be read is V(unknown), and unknown fails the task like a failure, unless a waiver names the
    check. A signal that answered in the baseline and does not any more is a failure.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.info_module
options:
  phase:
    description:
      - The moment of the verdict, for the report. V(post) and V(soak) compare with a baseline and are unknown without one.
    type: str
    choices:
      baseline: Before a change; RV(baseline) is kept for later.
      post: After a change.
      soak: Some time after a change.
      adhoc: At any other time.
    default: adhoc
  baseline:
    description:
      - An earlier RV(baseline) of the same node to compare with. That of another node is refused.
    type: dict
  baseline_file:
    description:
      - A JSON file on the controller with an earlier RV(baseline) of the same node. A relative path is one from the playbook.
      - Mutually exclusive with O(baseline).
    type: path
  expected_driver_version:
    description:
      - The driver version that must be loaded and installed, such as V(535.261.03). A package version is understood too.
      - Without it, all places must show the version that is loaded.
    type: str
  fail_on:
    description:
      - The verdicts that fail the task. An empty list never fails it for a verdict.
    type: list
    elements: str
    choices: [fail, unknown]
    default: [fail, unknown]
  waivers:
    description:
      - Checks that are accepted for a while although they fail or are unknown. They stay visible as V(waived).
    type: list
    elements: dict
    default: []
    suboptions:
      check:
        description: The RV(health.checks[].id) of the check.
        type: str
        required: true
      entity:
        description: The RV(health.checks[].entity), such as the UUID of a GPU. Without it the waiver covers all.
        type: str
      reason:
        description: Why it is accepted.
        type: str
        required: true
      expires:
        description: The last day in UTC, such as V(2026-12-31), or the moment, such as V(2026-12-31T12:00:00Z).
        type: str
        required: true
  timeout_s:
    description:
      - The longest time in seconds to wait for NVML.
    type: int
    default: 60
  binding_digest:
    description:
      - Set by the action plugin, not for playbooks.
      - The sha256 digest of the archive with the NVML binding.
    type: str
  binding_archive:
    description:
      - Set by the action plugin, not for playbooks.
      - The archive with the NVML binding in base64, sent when the node asked for it.
    type: str
notes:
  - Run it with C(become) set to V(true); some values are only given to root.
seealso:
  - module: gpufleet.lifecycle.gpu_info
  - module: gpufleet.lifecycle.driver_audit
"""

EXAMPLES = r"""
- name: Take the baseline before an upgrade
  gpufleet.lifecycle.gpu_health:
    phase: baseline
  register: before
  become: true

- name: Compare after the upgrade
  gpufleet.lifecycle.gpu_health:
    phase: post
    baseline: "{{ before.baseline }}"
    expected_driver_version: 535.261.03
  become: true

- name: Accept a lower power limit for a month
  gpufleet.lifecycle.gpu_health:
    phase: soak
    baseline_file: /var/lib/gpufleet/baselines/{{ inventory_hostname }}.json
    waivers:
      - check: gpu.power_limit
        reason: the rack is short of cooling
        expires: '2026-12-31'
  become: true

- name: Only report
  gpufleet.lifecycle.gpu_health:
    fail_on: []
  become: true
"""

RETURN = r"""
health:
  description: The verdict, schema C(gpufleet.health/1). Also returned when the verdict fails the task.
  returned: when the node could be read
  type: dict
  contains:
    schema:
      description: V(gpufleet.health/1).
      type: str
    node:
      description: The inventory name of the node.
      type: str
    boot_id:
      description: The boot the reading belongs to.
      type: str
    time:
      description: When it was judged, in UTC.
      type: str
    phase:
      description: The O(phase).
      type: str
    simulated:
      description: Whether the project's simulator was read and no hardware.
      type: bool
    driver:
      description: The driver version in every place (C(nvml), C(loaded), C(library), C(on_disk), C(next_boot)) and the C(expected) one.
      type: dict
    verdict:
      description: V(fail) if any check fails, else V(unknown) if any is unknown, else V(pass).
      type: str
    action:
      description:
        - The most severe action that a check asks for.
        - From mild to severe V(none), V(restore_setting), V(restart_service), V(reset_gpu), V(reboot), V(hold) and V(field_diag).
      type: str
    checks:
      description: All checks, also those that pass.
      type: list
      elements: dict
      contains:
        id:
          description: What is checked, such as V(gpu.power_limit).
          type: str
        entity:
          description: What it is checked of, V(node) or the UUID of a GPU.
          type: str
        status:
          description: One of V(pass), V(fail), V(unknown), V(waived) and V(not_applicable).
          type: str
        observed:
          description: What was found.
          type: raw
        expected:
          description: What should have been found.
          type: raw
        source:
          description: Where the expectation comes from, V(policy), V(baseline) or V(hardware).
          type: str
        action:
          description: What the check asks for, as in RV(health.action).
          type: str
        message:
          description: What is wrong and the next step; empty if nothing is.
          type: str
      sample:
        - id: gpu.present
          entity: GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10
          status: fail
          observed: null
          expected: "0000:1b:00.0"
          source: baseline
          action: hold
          message: GPU GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10 of the baseline, at 0000:1b:00.0, is missing. Look for NVRM lines in the kernel log.
baseline:
  description: This reading as a baseline for later, schema C(gpufleet.baseline/1), whatever the verdict is.
  returned: when the node could be read
  type: dict
  sample: {schema: gpufleet.baseline/1, node: gpu-r1-1, boot_id: 0b1c, time: "2026-01-31T12:00:00Z", snapshot: {}, audit: {}}
msg:
  description: The verdict for a person, one line for the node and one for each check that fails or is unknown.
  returned: always
  type: str
  sample: "gpu-r1-1: GPU health PASS (phase post, action none): 0 failed, 0 unknown, 0 waived, 104 passed"
facts:
  description: What the node read, for the action plugin. Never in a task's result.
  returned: when the module answers the action plugin
  type: dict
needs_binding:
  description: The node asks the action plugin for the binding. Never in a task's result.
  returned: when the module asks the action plugin
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import audit
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver.runner import Runner
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding, node, session

# The verdict is made on the controller; the options for it are the action plugin's and are accepted here for the documentation.
ARGUMENT_SPEC = {
    "phase": {"type": "str", "choices": ["baseline", "post", "soak", "adhoc"], "default": "adhoc"},
    "baseline": {"type": "dict"},
    "baseline_file": {"type": "path"},
    "expected_driver_version": {"type": "str"},
    "fail_on": {"type": "list", "elements": "str", "choices": ["fail", "unknown"], "default": ["fail", "unknown"]},
    "waivers": {
        "type": "list", "elements": "dict", "default": [],
        "options": {
            "check": {"type": "str", "required": True},
            "entity": {"type": "str"},
            "reason": {"type": "str", "required": True},
            "expires": {"type": "str", "required": True},
        },
    },
    "timeout_s": {"type": "int", "default": 60},
    "binding_digest": {"type": "str"},
    "binding_archive": {"type": "str", "no_log": True},
}


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, mutually_exclusive=[("baseline", "baseline_file")], supports_check_mode=True)
    if module.params["timeout_s"] < 1:
        module.fail_json(msg="timeout_s is %d; expected at least 1 second" % (module.params["timeout_s"],))
    try:
        answer = node.read(module._remote_tmp, module.params["binding_digest"], module.params["binding_archive"], module.params["timeout_s"])
    except binding.CacheError as exc:
        module.fail_json(msg="NVML was not read: %s" % (exc,))
    for warning in answer["warnings"]:
        module.warn(warning)
    if answer.get("needs_binding"):
        module.exit_json(changed=False, needs_binding=True)
    facts = audit.read("/", Runner())
    module.exit_json(changed=False, facts={"snapshot": answer["snapshot"], "audit": audit.decide(facts), "boot_id": session.boot_id()})


if __name__ == "__main__":
    main()
