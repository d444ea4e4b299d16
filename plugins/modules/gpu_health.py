# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_health
short_description: Judge whether the GPUs of a node are healthy, alone or against a baseline
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Reads all GPUs of the node through NVML and the state of its driver, and makes one verdict of them on the
    controller.
  - Checked are whether NVML answers; whether every GPU is there, on the PCI bus, opened by NVML and the same by UUID
    and PCI address as in the baseline; whether loaded, installed, on-disk and expected driver versions agree, also for
    the kernel that boots next; what each GPU reports about itself (recovery action, row remapping, retired pages, ECC
    errors, modes that wait for a reset); and whether settings, memory, BAR1 and NVLinks are as in the baseline.
  - It fails closed. A signal that cannot be read is V(unknown), and unknown fails the task like a failure, unless a
    waiver names the check. A signal that answered in the baseline and does not any more is a failure.
  - A power limit that the playbook C(thermal_relief) lowered is waived until the time that the node's note
    C(/var/lib/gpufleet/thermal_relief.json) says. Any other power limit, and one that has expired, fails as before.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.info_module
  - gpufleet.lifecycle._health_expectation
  - gpufleet.lifecycle._health_expectation.policy
  - gpufleet.lifecycle._nvml_binding
options:
  phase:
    description:
      - The moment of the verdict, for the report. V(post) and V(soak) compare with a baseline and are unknown without
        one.
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
      - A JSON file on the controller with an earlier RV(baseline) of the same node. A relative path is one from the
        playbook.
      - Mutually exclusive with O(baseline).
    type: path
  expected_driver_version:
    description:
      - The driver version that must be loaded and installed, such as V(535.261.03). A package version is understood
        too.
      - Without it, all places must show the version that is loaded.
    type: str
  since:
    description:
      - Where to read the kernel log from, such as C(baseline.kernel_log.position) of an earlier result. Older events do
        not count.
      - Without it, the position of the baseline is used, and without a baseline all that the kernel log still holds
        counts.
    type: dict
    suboptions:
      boot_id:
        description: The boot that the position belongs to. In another boot everything counts.
        type: str
        required: true
      seq:
        description: The sequence number of the last record that was seen, as C(/dev/kmsg) has it.
        type: int
      monotonic_us:
        description: The time of that record in microseconds since the boot, for nodes where only the journal can be
          read.
        type: int
  mig_free_reading:
    description:
      - A RV(baseline) of the same node and boot, taken while its MIG instances were destroyed. NVML does not tell about
        remapped rows while instances exist; they are taken from this reading then.
      - It may be as old as C(mig_free_reading_age_max_h) of the policy says.
    type: dict
  smoke:
    description:
      - The RV(gpufleet.lifecycle.gpu_smoke#module:smoke) of M(gpufleet.lifecycle.gpu_smoke), to be judged with the rest
        and kept in RV(baseline).
    type: dict
  sequence:
    description:
      - RV(gpufleet.lifecycle.rollout_step#module:sequence) of the step of a rollout that the verdict belongs to. It is
        kept in the verdict, and tells the ledger which changes it is later than.
    type: int
  fail_on:
    description:
      - The verdicts that fail the task. An empty list never fails it for a verdict.
    type: list
    elements: str
    choices: [fail, unknown]
    default: [fail, unknown]
  full:
    description:
      - Whether a task that its verdict fails returns everything too. Otherwise, and with less than C(-vv), RV(health)
        is then without the checks that pass and without expected changes, and there is no RV(baseline), since Ansible
        prints the whole result of a failed task.
    type: bool
    default: false
  timeout_s:
    description:
      - The longest time in seconds to wait for NVML.
      - After NVML did not answer in time, tasks on that node wait for it for at most 10 seconds. This ends after 15
        minutes, when the driver is loaded again, or for a task whose own O(timeout_s) is longer than the time that was
        waited.
    type: int
    default: 60
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

- name: Hold H100 to a lower temperature, and take no correctable errors
  gpufleet.lifecycle.gpu_health:
    policy:
      memory_total_tolerance_percent: 0
      models:
        '*H100*':
          memory_total_tolerance_percent: 0.2
      strict: [gpu.ecc_*]
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
    kernel:
      description: The kernel that ran then; null if it is not known.
      type: str
    time:
      description: When it was judged, in UTC.
      type: str
    sequence:
      description: The O(sequence), if it was given.
      type: int
    phase:
      description: The O(phase).
      type: str
    simulated:
      description: Whether the project's simulator was read and no hardware.
      type: bool
    driver:
      description: The driver version in every place (C(nvml), C(loaded), C(library), C(on_disk), C(next_boot)) and the
        C(expected) one.
      type: dict
    verdict:
      description: V(fail) if any check fails, else V(unknown) if any is unknown, else V(pass).
      type: str
    action:
      description:
        - The most severe action that a check asks for.
        - From mild to severe V(none), V(restore_setting), V(restart_service), V(reset_gpu), V(reboot), V(hold) and
          V(field_diag).
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
        notice:
          description: Whether it passes and still deserves a look.
          type: bool
        since:
          description:
            - V(before) if it does not pass and did not when the baseline was taken, V(during) if it broke since, none
              if that is not known.
          type: str
      sample:
        - id: gpu.present
          entity: GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10
          status: fail
          observed: null
          expected: "0000:1b:00.0"
          source: baseline
          action: hold
          message: GPU GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10 of the baseline, at 0000:1b:00.0, is missing. Look for
            NVRM lines in the kernel log.
    notices:
      description: How many checks pass and still deserve a look.
      type: int
    attribution:
      description: The ids of checks that do not pass, in C(sick_before) and C(broke_during).
      type: dict
      sample: {sick_before: [], broke_during: [gpu.persistence]}
    changes:
      description: What is different from the baseline.
      type: list
      elements: dict
      contains:
        entity:
          description: V(node) or the UUID of a GPU.
          type: str
        key:
          description: What changed.
          type: str
        before:
          description: The value in the baseline.
          type: raw
        after:
          description: The value now.
          type: raw
        class:
          description: V(expected), V(restorable) for a setting, or V(regression).
          type: str
    left_out:
      description: How many checks of which status, and how many expected changes, are not in this result (see O(full)).
        Empty if it is whole.
      type: dict
baseline:
  description: This reading as a baseline for later, schema C(gpufleet.baseline/1), whatever the verdict is.
  returned: when the node could be read, and the verdict did not fail the task or O(full=true)
  type: dict
  sample: {schema: gpufleet.baseline/1, node: gpu-r1-1, boot_id: 0b1c, time: "2026-01-31T12:00:00Z", snapshot: {},
           audit: {}, system: {}, kernel_log: {}}
msg:
  description: The verdict for a person, one line for the node and one for each check that fails or is unknown.
  returned: always
  type: str
  sample: "gpu-r1-1: GPU health PASS (phase post, action none): 0 failed, 0 unknown, 0 waived, 104 passed"
facts:
  description: What the node read, for the action plugin. Never in a task's result.
  returned: when the module answers the action plugin
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import reading
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding, snapshot


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(options.ARGUMENT_SPEC, **binding.ARGUMENTS),
        mutually_exclusive=options.MUTUALLY_EXCLUSIVE,
        supports_check_mode=True,
    )
    if module.params["timeout_s"] < 1:
        module.fail_json(msg="timeout_s is %d; expected at least 1 second" % (module.params["timeout_s"],))
    nvml = binding.get_binding(module, "NVML was not read")
    taken = snapshot.take(module.params["timeout_s"], nvml.stuck_file, load=nvml.load)
    module.exit_json(changed=False, facts=reading.gather_reading(taken, watermark=module.params["since"]))


if __name__ == "__main__":
    main()
