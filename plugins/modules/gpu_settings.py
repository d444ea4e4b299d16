# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_settings
short_description: Set power limit, clocks and modes of GPUs, or bring them back to a baseline
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Sets through NVML what the driver forgets when it is unloaded, and the ECC mode, which it keeps. The values are
    those of the task, or those that the GPUs had when a baseline was taken.
  - All GPUs are checked before the first one is set. If one cannot be set, because it is lost, the value is out of its
    range, it is in MIG mode or processes use it, nothing is set on any.
  - What was set is read back in a second session of NVML. A GPU for which NVML answers success and which reads
    otherwise fails the task.
  - After a setting that failed, no other of the same GPU is tried; other GPUs go on.
  - NVML has no function that reads locked clocks. Their value is kept on the node in
    C(/var/lib/gpufleet/settings.json), set again by every run that wants it, and reported as V(unproven).
  - A GPU is never reset, and no service is started or stopped.
  - On real GPUs it has read and, in check mode, decided (H100 and H200, driver 580.159.04). Settings were changed on
    the project's simulator alone.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
  - gpufleet.lifecycle._nvml_binding
attributes:
  check_mode:
    support: full
    details:
      - Whether NVML would let the user change a setting is not known before it is tried.
  diff_mode:
    support: full
    details:
      - Before and after for each GPU, of the settings that change.
options:
  state:
    description: Where the wanted values come from.
    type: str
    default: present
    choices:
      present: From the options of this task.
      restored: From O(baseline) or O(baseline_file), and for locked clocks from what this module last set on the node.
        Only what the baseline has is wanted.
  gpus:
    description:
      - The GPUs to set, by UUID, PCI address or NVML index. By default all; with O(state=restored) every GPU of the
        baseline must be there then.
    type: list
    elements: str
    default: []
  power_limit_w:
    description:
      - The power limit in watts, such as V(500), or V(default) for the one of the board.
    type: str
  application_clocks_mhz:
    description:
      - The clocks in MHz that programs run at. Newer boards and drivers do not have this setting; there it is an error
        to ask for it.
    type: dict
    suboptions:
      graphics:
        description: The graphics clock in MHz.
        type: int
      memory:
        description: The memory clock in MHz.
        type: int
      default:
        description: Go back to the clocks of the board.
        type: bool
        default: false
  locked_graphics_clocks_mhz:
    description:
      - Hold the graphics clock between two limits.
    type: dict
    suboptions:
      min:
        description: The lower limit in MHz.
        type: int
      max:
        description: The upper limit in MHz.
        type: int
      unlocked:
        description: Lock the clock no longer.
        type: bool
        default: false
  locked_memory_clocks_mhz:
    description:
      - Hold the memory clock between two limits.
    type: dict
    suboptions:
      min:
        description: The lower limit in MHz.
        type: int
      max:
        description: The upper limit in MHz.
        type: int
      unlocked:
        description: Lock the clock no longer.
        type: bool
        default: false
  compute_mode:
    description:
      - Which programs may compute. It cannot be changed on a GPU in MIG mode.
    type: str
    choices: [default, exclusive_process, prohibited]
  persistence_mode:
    description:
      - Whether the driver keeps the GPU initialised while no program uses it. While C(nvidia-persistenced) runs, this
        is the daemon's business, and another mode than the daemon's is an error. Without it NVML's older setting is
        used.
    type: bool
  ecc_mode:
    description:
      - Whether ECC is on. A change waits for a GPU reset (M(gpufleet.lifecycle.gpu_reset)) or reboot;
        RV(reset_required) is true until then.
    type: bool
  baseline:
    description:
      - The RV(gpufleet.lifecycle.gpu_health#module:baseline) of M(gpufleet.lifecycle.gpu_health), for
        O(state=restored). That of another node is refused.
    type: dict
  baseline_file:
    description:
      - A JSON file on the controller with such a baseline. A relative path is one from the playbook.
      - Mutually exclusive with O(baseline).
    type: path
  settings:
    description:
      - The settings to restore, by the names of their options. By default all.
    type: list
    elements: str
    choices: [application_clocks_mhz, compute_mode, ecc_mode, locked_graphics_clocks_mhz, locked_memory_clocks_mhz,
              persistence_mode, power_limit_w]
  processes:
    description:
      - Whether a GPU that processes use may be changed in a way that they feel (all but persistence and ECC mode).
    type: str
    choices: [refuse, allow]
    default: refuse
  timeout_s:
    description:
      - The longest time in seconds to wait for NVML, each for reading, setting and reading back.
    type: int
    default: 60
notes:
  - Run it with C(become) set to V(true); NVML lets only root change settings.
  - After a reload of the driver or a reboot, run it when C(nvidia-persistenced) is up. Without persistence mode the
    driver forgets what was set as soon as no program uses the GPU.
seealso:
  - module: gpufleet.lifecycle.gpu_health
  - module: gpufleet.lifecycle.gpu_info
  - module: gpufleet.lifecycle.gpu_reset
"""

EXAMPLES = r"""
- name: Limit the power of all GPUs
  gpufleet.lifecycle.gpu_settings:
    power_limit_w: 500
  become: true

- name: Hold the clocks of two GPUs for a measurement
  gpufleet.lifecycle.gpu_settings:
    gpus: ['0', '0000:43:00.0']
    locked_graphics_clocks_mhz:
      min: 1410
      max: 1410
  become: true

- name: Let them go again
  gpufleet.lifecycle.gpu_settings:
    gpus: ['0', '0000:43:00.0']
    locked_graphics_clocks_mhz:
      unlocked: true
  become: true

- name: Turn ECC on
  gpufleet.lifecycle.gpu_settings:
    ecc_mode: true
  register: ecc
  become: true

- name: Bring all settings back after a reboot
  gpufleet.lifecycle.gpu_settings:
    state: restored
    baseline: "{{ before.baseline }}"
  become: true
"""

RETURN = r"""
settings:
  description: Each wanted setting of each GPU, in check mode as it would be. Also returned on failure.
  returned: when NVML could be read
  type: list
  elements: dict
  contains:
    gpu:
      description: The UUID of the GPU; its PCI address or index if NVML does not open it.
      type: str
    setting:
      description: The name of its option. Null for a GPU that cannot be used at all.
      type: str
    before:
      description: What was found, in the form of the option. Null for locked clocks that were not set in this load of
        the driver.
      type: raw
    wanted:
      description: What is wanted, in the same form.
      type: raw
    after:
      description: What was read back, in the same form. For locked clocks, which cannot be read, what was set.
      type: raw
    status:
      description:
        - V(same) if nothing had to be done, V(changed) if it was set and reads so, V(unproven) if it was set and cannot
          be read, V(pending) if it waits for a reset, V(not_supported) if this board or driver has no such setting and
          no task requires it, else V(failed).
      type: str
    changed:
      description: Whether this task changed it.
      type: bool
    lost_at:
      description: What takes the setting away again.
      type: str
    pending_until:
      description: What a change of this setting waits for; null if for nothing.
      type: str
  sample:
    - gpu: GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10
      setting: power_limit_w
      before: 700.0
      wanted: 500.0
      after: 500.0
      status: changed
      changed: true
      lost_at: driver unload or reboot; without persistence mode also when the last program closes the GPU
      pending_until: null
failures:
  description: The causes of a failure, each with C(gpu), C(setting), C(found), C(expected), C(code) and C(error) of
    NVML, and C(message).
  returned: when NVML could be read
  type: list
  elements: dict
reset_required:
  description: Whether a setting waits for a GPU reset or reboot.
  returned: when NVML could be read
  type: bool
driver_version:
  description: The version of the loaded driver.
  returned: when NVML could be read
  type: str
simulated:
  description: Whether the project's simulator was set and no hardware.
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
  sample: "GPU settings: 8 changed, 8 same"
"""

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _nvml_task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import task


class SettingsTask(_nvml_task.NvmlTask):
    name, options, undone, subject = "gpu_settings", options, "nothing was set", "changing GPU settings"

    def step(self) -> str:
        return "settings %s" % (self.params["state"],)

    def work(self, held) -> dict:
        try:
            return task.run(self.params, self.check_mode, self.nvml.load, self.nvml.stuck_file)
        except task.TaskError as exc:
            raise _nvml_task.Undone(str(exc), exc.snapshot) from exc


def main() -> None:
    SettingsTask().main()


if __name__ == "__main__":
    main()
