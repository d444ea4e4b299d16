# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_smoke
short_description: Test the GPUs of a node at work, and compare their speed with a baseline and with their peers
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Runs short programs on every GPU through the driver's own C(libcuda.so.1) and nothing else. Nothing has to be
    installed on the node, no CUDA toolkit and no Python module.
  - Tested are memory patterns over a share of the free memory, a vector sum whose result is known exactly, copies
    within the GPU's memory, copies between it and the node both ways, and from level V(t1) on a matrix product, also
    with an exact result. Each is repeated at least five times; temperature and SM clock are recorded with each
    repetition.
  - A rate that is lower than in the baseline by more than the tolerance, and by more than its own spread explains, is
    measured again before it fails; both measurements are kept. The same holds for a rate that is lower than those of
    other GPUs of the same model.
  - A GPU that is in MIG mode is not tested (V(not_applicable)); one that processes use or whose compute mode prohibits
    programs is V(unknown). Neither passes.
  - Each GPU is tested in a child process of its own that is never waited for longer than its share of O(timeout_s).
    Variables such as E(CUDA_VISIBLE_DEVICES) have no effect, and a library that others than root can change is not
    loaded.
  - It has run on one H100 and on one H200 with driver 580.159.04, both healthy. GPUs that fail were those of the
    project's simulator, and so was the data path between GPUs.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._health_expectation.policy
  - gpufleet.lifecycle._nvml_binding
attributes:
  check_mode:
    support: full
    details:
      - This module changes nothing, so it tests the GPUs in check mode as well.
  diff_mode:
    support: N/A
    details:
      - This module changes nothing.
options:
  level:
    description:
      - How long to test.
    type: str
    choices:
      t0: Under 30 seconds for eight GPUs. Patterns over 5 % of the free memory (1 GiB at most), vector sum, bandwidths.
      t1: One to three minutes. Patterns over half of the free memory (16 GiB at most), and the matrix product.
      t2: Like V(t1), with 15 repetitions and patterns over 90 % of the free memory.
      t3: Like V(t2), and NVIDIA's diagnostic (C(dcgmi diag)) where it is installed.
    default: t0
  gpus:
    description:
      - The GPUs to test, by UUID, PCI address or NVML index. By default all.
    type: list
    elements: str
    default: []
  together:
    description:
      - Test all GPUs at the same time instead of one after another. Their host-device rates are lower then, so use it
        in the baseline as well.
    type: bool
    default: false
  phase:
    description:
      - The moment of the verdict, for the report.
    type: str
    choices: [baseline, post, soak, adhoc]
    default: adhoc
  baseline:
    description:
      - An earlier RV(baseline) of the same node, or the one of M(gpufleet.lifecycle.gpu_health) if it was given
        RV(smoke). That of another node is refused.
    type: dict
  baseline_file:
    description:
      - A JSON file on the controller with such a baseline. A relative path is one from the playbook.
      - Mutually exclusive with O(baseline).
    type: path
  peers:
    description:
      - What this module returned as RV(smoke) for other nodes. GPUs of the same model, measured in the same way, are
        compared with each other.
      - The other GPUs of this node are peers as well.
    type: list
    elements: dict
    default: []
  nccl:
    description:
      - Results of NCCL that the caller measured in another way, to be kept in RV(smoke) and compared with those of the
        baseline.
    type: dict
    suboptions:
      node_gbps:
        description: Bus bandwidths of repetitions within the node, in GB/s.
        type: list
        elements: float
      fleet_gbps:
        description: Bus bandwidths of repetitions between nodes, in GB/s.
        type: list
        elements: float
  tolerance_percent:
    description:
      - How much lower than in the baseline a rate may be. The default is C(smoke_tolerance_percent) of the policy, 5.
    type: float
  retries:
    description:
      - How often a rate that is too low, or too noisy to compare, is measured again.
    type: int
    default: 1
  require:
    description:
      - Whether every GPU must be tested. A node without a CUDA library and a GPU in MIG mode are then V(unknown)
        instead of V(not_applicable).
    type: bool
    default: false
  dcgm_level:
    description:
      - The level of NVIDIA's diagnostic, for O(level=t3).
    type: int
    choices: [1, 2, 3, 4]
    default: 2
  library_path:
    description:
      - Where the driver's C(libcuda.so.1) is, if the dynamic linker does not know.
    type: path
  fail_on:
    description:
      - The verdicts that fail the task. A node on which nothing was tested, and nothing had to be, does not fail it.
    type: list
    elements: str
    choices: [fail, unknown]
    default: [fail, unknown]
  full:
    description:
      - Whether a task that its verdict fails returns the checks that pass, too. C(-vv) does the same.
    type: bool
    default: false
  timeout_s:
    description:
      - The longest time in seconds for all GPUs together. What one GPU does not use of its share goes to those after
        it.
      - The default follows from O(level), 90 for V(t0), 300 for V(t1) and 1200 for the longer ones.
    type: int
  dcgm_timeout_s:
    description:
      - The longest time in seconds for NVIDIA's diagnostic.
    type: int
    default: 3600
  tests:
    description:
      - Set by the action plugin, not for playbooks.
      - The tests to repeat.
    type: list
    elements: str
    default: []
notes:
  - Run it with C(become) set to V(true), on a drained node.
seealso:
  - module: gpufleet.lifecycle.gpu_health
"""

EXAMPLES = r"""
- name: Measure before an upgrade
  gpufleet.lifecycle.gpu_smoke:
    phase: baseline
  register: smoke_before
  become: true

- name: Keep it in the baseline of the node
  gpufleet.lifecycle.gpu_health:
    phase: baseline
    smoke: "{{ smoke_before.smoke }}"
  register: before
  become: true

- name: Compare after the upgrade, with the node itself and with its rack
  gpufleet.lifecycle.gpu_smoke:
    phase: post
    baseline: "{{ before.baseline }}"
    peers: "{{ groups['rack_r1'] | difference([inventory_hostname])
      | map('extract', hostvars, ['smoke_before', 'smoke']) | select('defined') }}"
  become: true

- name: Test a new node for long, and insist on it
  gpufleet.lifecycle.gpu_smoke:
    level: t3
    dcgm_level: 3
    require: true
  become: true
"""

RETURN = r"""
smoke:
  description: What was measured, schema C(gpufleet.smoke/1).
  returned: when the node could be asked
  type: dict
  contains:
    schema:
      description: V(gpufleet.smoke/1).
      type: str
    level:
      description: The O(level).
      type: str
    started:
      description: When it began, in UTC.
      type: str
    simulated:
      description: Whether the project's simulator was tested and no hardware.
      type: bool
    status:
      description: V(ok), or V(no_library), V(untrusted) or V(nvml) if nothing could be tested.
      type: str
    message:
      description: Why nothing could be tested, and the next step.
      type: str
    driver_version:
      description: The driver that was tested.
      type: str
    library:
      description: C(path), C(version) and C(cuda_version) of the CUDA library.
      type: dict
    gpus:
      description:
        - Each GPU with C(uuid), C(pci_bus_id), C(name), C(state) (V(tested), V(hung), V(unknown) or V(not_applicable)),
          C(reason), C(error) (a CUDA result) and C(tests).
        - A test has C(unit), C(samples), C(median), C(mad) (median absolute deviation), C(ok), C(error), C(detail),
          C(parameters), C(temperature_c) and C(clock_sm_mhz) of each repetition, and earlier measurements in
          C(attempts).
      type: list
      elements: dict
    dcgm:
      description: Command, version and results of NVIDIA's diagnostic; null below O(level=t3).
      type: dict
    nccl:
      description: The results of O(nccl).
      type: dict
    duration_s:
      description: How long it took, in seconds.
      type: float
tested:
  description: Whether anything was tested. If not, nothing passed either.
  returned: when the node could be asked
  type: bool
health:
  description: The verdict, schema C(gpufleet.health/1) as in M(gpufleet.lifecycle.gpu_health), with the checks of this
    family (C(smoke.*)) only.
  returned: when the node could be asked
  type: dict
baseline:
  description: This test as a baseline for later tests, schema C(gpufleet.baseline/1). M(gpufleet.lifecycle.gpu_health)
    makes a complete one.
  returned: when the node could be asked
  type: dict
msg:
  description: The verdict for a person.
  returned: always
  type: str
  sample: "gpu-r1-1: GPU health PASS (phase post, action none): 0 failed, 0 unknown, 0 waived, 57 passed"
facts:
  description: What the node measured, for the action plugin. Never in a task's result.
  returned: when the module answers the action plugin
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _smoke_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._smoke import run, tests


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(options.ARGUMENT_SPEC, **options.REPEAT_SPEC, **binding.ARGUMENTS),
        mutually_exclusive=options.MUTUALLY_EXCLUSIVE,
        supports_check_mode=True,
    )
    params = module.params
    strange = sorted(set(params["tests"]) - set(tests.NAMES))
    if strange:
        module.fail_json(msg="tests has %s; known: %s" % (", ".join(strange), ", ".join(tests.NAMES)))
    nvml = binding.get_binding(module, "the GPUs were not tested")
    try:
        smoke, taken = run.take(
            level=params["level"],
            wanted=params["gpus"],
            together=params["together"],
            library_path=params["library_path"],
            dcgm_level=params["dcgm_level"],
            only=params["tests"],
            load=nvml.load,
            deadline_s=params["timeout_s"] or run.DEADLINES[params["level"]],
            dcgm_deadline_s=params["dcgm_timeout_s"],
            stuck_file=nvml.stuck_file,
            runner=Runner(),
        )
    except run.Choice as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, facts={"snapshot": taken, "smoke": smoke})


if __name__ == "__main__":
    main()
