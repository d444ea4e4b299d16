# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that tell a verdict what to expect of a node: what was done to it, and its hardware."""

from __future__ import annotations


class ModuleDocFragment:
    # _health_options.ARGUMENT_SPEC["expect"]
    DOCUMENTATION = r"""
options:
  expect:
    description:
      - What was done to the node on purpose since the baseline, and what hardware it has.
    type: dict
    suboptions:
      reboot:
        description: Whether it was rebooted. If set, a boot that did not happen, or one that was not requested, is a
          failure.
        type: bool
      mig_hidden:
        description:
          - What of a GPU in MIG mode NVML need not tell. Checks of these values do not apply then; others are judged as
            always.
          - V(all) are remapped rows and volatile ECC errors, for a node that serves. V(volatile_ecc) are those errors
            alone, for a node whose instances were destroyed to read the rest.
        type: str
        choices: [none, volatile_ecc, all]
        default: none
      room:
        description: Whether the driver of the node is to be changed. If true, file systems without the room for an
          installation are a failure, else a notice.
        type: bool
        default: false
      changes:
        description:
          - The RV(health.changes[].key) of values that were changed, or patterns of them such as V(mig_*). They are
            V(expected) in RV(health.changes). It changes no check.
        type: list
        elements: str
        default: []
      hardware:
        description:
          - What the node should have. It counts in every phase, also when there is a baseline.
          - Without a baseline what is not said here is what boards of the GPU's name have, where the collection knows
            them. A node that lacks some of it fails, so that no baseline is taken of it.
          - Where neither this, nor the board, nor O(expect.peers) tells what the node should have, that is unknown.
            Then it has to be said here; the check's message has what was found, for it to be confirmed.
        type: dict
        suboptions:
          gpus:
            description:
              - The number of GPUs. Without it and without a baseline, one that HGX and DGX boards come in, or a
                partition of them.
              - It is required for boards that come in any number, as PCI Express cards do, unless there is a baseline
                or O(expect.peers) tells it.
            type: int
          model:
            description: NVML's name of every GPU, or a pattern of it such as V(NVIDIA H100*).
            type: str
          memory_mib:
            description: The memory of every GPU in MiB, at least.
            type: int
          ecc:
            description: Whether ECC is on.
            type: bool
          nvlinks:
            description: The number of active NVLinks of every GPU, at least.
            type: int
          nvswitches:
            description: The number of NVSwitches on the PCI bus.
            type: int
          pcie_generation:
            description: The PCIe generation that every link can do, at least.
            type: int
          pcie_width:
            description: The number of PCIe lanes of every GPU, at least.
            type: int
      peers:
        description: What other nodes with the same GPUs have. It counts without a baseline, for what O(expect.hardware)
          does not say.
        type: dict
        suboptions:
          gpus:
            description:
              - How many GPUs most nodes with them have, by model, as the filter P(gpufleet.lifecycle.gpu_peers#filter)
                finds out.
              - A model is NVML's name of the GPU, or its PCI device id such as V(0x27b8).
            type: dict
            default: {}
"""

    # How the checks of a verdict are judged.
    POLICY = r"""
options:
  policy:
    description:
      - Thresholds by name, C(models), C(strict) and C(waivers); what it does not say is as in the collection.
      - The thresholds are listed in the documentation of the checks.
      - C(models) is a dictionary of thresholds for the GPUs whose name fits a pattern, such as V(*H100*). The longest
        pattern that fits wins.
      - C(strict) is a list of ids of checks, or patterns of them, whose notices fail.
      - An id, a threshold or an entry that does not exist is refused.
    type: dict
  policy_file:
    description:
      - A YAML or JSON file on the controller with such a policy. What O(policy) says wins over it. A relative path is
        one from the playbook.
    type: path
  waivers:
    description:
      - Checks that are accepted for a while although they fail or are unknown. They stay visible as V(waived).
    type: list
    elements: dict
    default: []
    suboptions:
      check:
        description: The id of the check.
        type: str
        required: true
      entity:
        description: What the check is about, such as the UUID of a GPU. Without it the waiver covers all.
        type: str
      reason:
        description: Why it is accepted.
        type: str
        required: true
      expires:
        description: The last day in UTC, such as V(2026-12-31), or the moment, such as V(2026-12-31T12:00:00Z).
        type: str
        required: true
"""
