# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_mig
short_description: Partition GPUs with MIG, or show how they are partitioned
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Makes the MIG layout of a node through NVML. A layout says for each GPU whether MIG is on, and how many MIG devices
    of each profile there are.
  - Layouts are read from a configuration in the format of nvidia-mig-parted, or from a list of GPUs by UUID, PCI
    address or model.
  - Profiles, their numbers and their places are asked of the GPUs. Whether all layouts fit, and whether a process is in
    the way, is decided before anything is changed on any GPU. What does not fit is refused, with layouts that would.
  - Only GPUs that differ are touched, and of their instances those stay that are wanted and can stay.
  - What was made is read back in a second session of NVML. A GPU that does not have its layout then gets back the one
    it had, and the task fails.
  - A change of the MIG mode waits for a GPU reset on Ampere boards, and elsewhere if something uses the GPU; then
    RV(reset_required) is true and the instances are made by the next run, after the reset.
  - Instances do not survive a reset, a reload of the driver or a reboot. The role P(gpufleet.lifecycle.nvidia_mig#role)
    makes them at each boot.
  - On real GPUs it has read and, in check mode, decided (H100 and H200, driver 580.159.04, MIG off). Layouts were made
    on the project's simulator alone.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
  - gpufleet.lifecycle._nvml_binding
attributes:
  check_mode:
    support: full
    details:
      - Where MIG is off and the driver tells no placements, they are derived from the sizes of the profiles, and looked
        at again when MIG is on.
  diff_mode:
    support: full
    details:
      - The layout of each GPU that changes, before and after.
options:
  state:
    description: What is wanted.
    type: str
    default: present
    choices:
      present: The layout of O(config), O(config_file) or O(layout).
      restored: The layout of O(baseline) or O(baseline_file), GPU by GPU.
      cleared: No instances; the MIG mode stays as it is.
      exported: Nothing is changed; RV(config) is the layout that there is, named O(config_name) or V(current).
      generated: Nothing is changed; RV(config) has the layouts that the GPUs of this node can have, V(all-disabled),
        V(all-enabled), V(all-balanced) and one for each profile.
  config:
    description:
      - A configuration in the format of nvidia-mig-parted, version V(v1). With O(config_name).
      - Refused is what nvidia-mig-parted refuses. Beyond that, every GPU has to be matched by an entry.
    type: dict
  config_file:
    description:
      - A YAML or JSON file on the controller with such a configuration. A relative path is one from the playbook. A key
        that stands twice is refused.
    type: path
  config_name:
    description:
      - The name of the layout in the configuration.
    type: str
  layout:
    description:
      - The layout as a list, in place of a configuration. The last entry that is about a GPU holds.
    type: list
    elements: dict
    suboptions:
      gpus:
        description:
          - The GPUs, by UUID, PCI address or NVML index; all by default.
        type: list
        elements: str
        default: []
      model:
        description:
          - The name of the board as NVML tells it, such as V(NVIDIA H100 80GB HBM3).
        type: str
      mig_enabled:
        description:
          - Whether MIG is on.
        type: bool
        required: true
      mig_devices:
        description:
          - "How many MIG devices of each profile, such as V({1g.10gb: 7}). Needed where MIG is on; V({}) for no
            instances."
        type: dict
  baseline:
    description:
      - The RV(gpufleet.lifecycle.gpu_health#module:baseline) of M(gpufleet.lifecycle.gpu_health), for
        O(state=restored). That of another node is refused.
    type: dict
  baseline_file:
    description:
      - A JSON file on the controller with such a baseline. A relative path is one from the playbook.
    type: path
  instances:
    description:
      - Whether O(state=restored) makes the instances. If not, only the MIG mode is that of the baseline, and instances
        that there are go.
    type: bool
    default: true
  timeout_s:
    description:
      - The longest time in seconds to wait for NVML, each for reading, changing and reading back.
    type: int
    default: 120
seealso:
  - module: gpufleet.lifecycle.gpu_info
  - module: gpufleet.lifecycle.gpu_health
"""

EXAMPLES = r"""
- name: Cut every GPU into seven
  gpufleet.lifecycle.gpu_mig:
    config:
      version: v1
      mig-configs:
        sevenths:
          - devices: all
            mig-enabled: true
            mig-devices:
              1g.10gb: 7
    config_name: sevenths
  become: true

- name: MIG on one GPU, off on the others
  gpufleet.lifecycle.gpu_mig:
    layout:
      - mig_enabled: false
      - gpus: [GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10]
        mig_enabled: true
        mig_devices: {3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}
  become: true

- name: See what the GPUs can be cut into
  gpufleet.lifecycle.gpu_mig:
    state: generated
  become: true
  register: offered
"""

RETURN = r"""
gpus:
  description: A row for each GPU, in PCI order.
  returned: when NVML could be read
  type: list
  elements: dict
  contains:
    gpu:
      description: The UUID; null if it could not be read.
      type: str
    index:
      description: The NVML index.
      type: int
    pci_bus_id:
      description: The PCI address.
      type: str
    status:
      description:
        - V(same) if it has the layout, V(changed) if it was given it and reads so, V(change) if it would be (check
          mode, or another GPU is refused), V(pending) if the mode waits for a reset, V(refused) if it cannot have it,
          V(failed) if it did not get it.
      type: str
    before:
      description: The layout before, with C(enabled) and C(devices); null if it could not be read.
      type: dict
    wanted:
      description: The layout that is wanted.
      type: dict
    after:
      description: The layout afterwards; in check mode the one that would be.
      type: dict
    changed:
      description: Whether this GPU changed.
      type: bool
    steps:
      description: What was to be done, in its order.
      type: list
      elements: dict
    problems:
      description: Why it cannot have its layout, each with C(code) and C(message).
      type: list
      elements: dict
failures:
  description:
    - The problems of all GPUs, each with C(gpu), C(index), C(code) and C(message).
    - Codes are V(uncovered), V(not_supported), V(unreadable), V(unknown_profile), V(does_not_fit), V(in_use),
      V(reset_pending), V(gpu_lost) and V(failed).
  returned: when NVML could be read
  type: list
  elements: dict
config:
  description: The configuration, with O(state=exported) and O(state=generated). Otherwise the part of O(config) or
    O(config_file) that was wanted.
  returned: when NVML could be read
  type: dict
reset_required:
  description: Whether the MIG mode of a GPU waits for a GPU reset or reboot.
  returned: when NVML could be read
  type: bool
nvml_writes:
  description: How many calls of NVML changed something, or tried to. 0 where the layout was there.
  returned: when NVML could be read
  type: int
driver_version:
  description: The version of the loaded driver.
  returned: when NVML could be read
  type: str
simulated:
  description: Whether the project's simulator was partitioned and no hardware.
  returned: when NVML could be read
  type: bool
lock_waited_s:
  description: Seconds that were spent waiting for the node's lock; V(null) in check mode.
  returned: when NVML could be read
  type: float
snapshot:
  description: Why NVML could not be read, as in M(gpufleet.lifecycle.gpu_info).
  returned: when NVML could not be read
  type: dict
lock:
  description: Who holds the node's lock, and whether that process lives.
  returned: when the lock was not free in time
  type: dict
msg:
  description: The result for a person.
  returned: always
  type: str
  sample: "MIG layout: 8 GPUs changed, 0 as wanted"
"""

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _mig_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _nvml_task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import holders


class MigTask(_nvml_task.NvmlTask):
    name, options, undone, subject = "gpu_mig", options, "nothing was changed", "MIG"

    def changes(self) -> bool:
        return not self.check_mode and self.params["state"] not in (options.EXPORTED, options.GENERATED)

    def step(self) -> str:
        return "MIG %s" % (self.params["state"],)

    def work(self, held) -> dict:
        tools = task.Tools(self.params["timeout_s"], self.nvml.load, self.nvml.stuck_file)
        try:
            return task.run(self.params, self.check_mode, tools, holders.name_holders)
        except task.TaskError as exc:
            raise _nvml_task.Undone(str(exc), exc.snapshot) from exc


def main() -> None:
    MigTask().main()


if __name__ == "__main__":
    main()
