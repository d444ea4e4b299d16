# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_reset
short_description: Reset GPUs, and prove by NVML that they were
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Resets GPUs by C(nvidia-smi --gpu-reset), since NVML has no function for it. Modes of MIG and ECC that wait take
    effect, repairs of memory that wait are done, and MIG instances, volatile ECC counters and what the driver was set
    to (see M(gpufleet.lifecycle.gpu_settings)) are gone.
  - It is refused before anything is done while a process has one of the GPUs open, no matter whose it is; while a
    kernel module that is not known, or C(nvidia_drm) with its parameter C(modeset), uses the driver; while a task hangs
    in the driver; and where the driver asks for more than a reset. No process is ended, no service is stopped and no
    kernel module is unloaded.
  - What C(nvidia-smi) answers is not believed. All GPUs are read again by NVML in a new process with a deadline - every
    GPU has to be there by its UUID, no mode may wait any more, the driver may ask for no recovery - and the kernel log
    may have no new XID of theirs since. A GPU on which nothing had to change is V(unproven).
  - Before Ampere, and where NVSwitches join the GPUs and no fabric manager runs, all GPUs that NVLink joins are reset
    together, as C(nvidia-smi) demands. RV(joined_by_nvlink) names those that came in that way. All else is required of
    these GPUs, too.
  - Persistence mode counts as a client of the GPU. Where it is on, it is turned off for these GPUs by C(nvidia-smi -pm
    0), which also the daemon C(nvidia-persistenced) obeys, and on again afterwards, also after a reset that failed or
    was refused in between. A run that was killed in between leaves a note in C(/var/lib/gpufleet/reset.json), which the
    next run tells in RV(interrupted), and turns the mode on again.
  - It has reset GPUs of the project's simulator so far and no real one.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._node_lock
  - gpufleet.lifecycle._nvml_binding
attributes:
  check_mode:
    support: full
    details:
      - The same is refused as without it. Whether C(nvidia-smi) would refuse what is not refused here is not known
        before it is tried.
  diff_mode:
    support: full
    details:
      - Before and after for each GPU, of the modes, the MIG instances, the pending repairs, the recovery action and the
        volatile ECC errors.
options:
  gpus:
    description:
      - The GPUs to reset, by UUID, PCI address or NVML index, or V([all]).
    type: list
    elements: str
    required: true
  when_needed:
    description:
      - Of O(gpus), reset only those that need it - whose MIG or ECC mode waits, on which a repair of memory waits, or
        for which the driver or NVML asks for a reset. A GPU that does not tell whether it needs one fails the task.
    type: bool
    default: false
  destroy_mig:
    description:
      - Whether MIG instances may go. Without it a GPU that has some, one that NVLink joins to the others too, fails the
        task.
    type: bool
    default: false
  reason:
    description: Why, for the note on the node and the result.
    type: str
  reset_timeout_s:
    description:
      - The longest time in seconds that C(nvidia-smi --gpu-reset) may take. It is killed then, and what became of the
        GPUs is read.
    type: int
    default: 300
  timeout_s:
    description: The longest time in seconds to wait for NVML, each for reading before and after.
    type: int
    default: 60
notes:
  - Run it with C(become) set to V(true), on a node that is drained, with the services stopped that hold GPUs, such as
    those of DCGM.
  - A GPU that has fallen off the bus cannot be reset; its node has to be rebooted or power-cycled.
  - Bring the settings back afterwards with M(gpufleet.lifecycle.gpu_settings), and judge the GPUs with
    M(gpufleet.lifecycle.gpu_health).
seealso:
  - module: gpufleet.lifecycle.gpu_settings
  - module: gpufleet.lifecycle.gpu_health
  - module: gpufleet.lifecycle.driver_reload
"""

EXAMPLES = r"""
- name: Turn ECC off
  gpufleet.lifecycle.gpu_settings:
    ecc_mode: false
  become: true

- name: Let the modes that wait take effect
  gpufleet.lifecycle.gpu_reset:
    gpus: [all]
    when_needed: true
    reason: ECC mode
  become: true

- name: Reset one GPU, its MIG instances too
  gpufleet.lifecycle.gpu_reset:
    gpus: ['0000:43:00.0']
    destroy_mig: true
  become: true
"""

RETURN = r"""
action:
  description: What was done, or in check mode would be done.
  returned: when NVML could be read
  type: str
  choices: [none, reset, refuse]
gpus:
  description: The GPUs that were reset, or were to be. Also returned on failure.
  returned: when NVML could be read
  type: list
  elements: dict
  contains:
    gpu: {description: "The UUID of the GPU; its PCI address or index if NVML does not tell it.", type: str}
    uuid: {description: Its UUID., type: str}
    pci_bus_id: {description: Its PCI address., type: str}
    index: {description: Its NVML index., type: int}
    needs:
      description: Why it needs a reset. Empty if, by what can be read, it does not.
      type: list
      elements: str
      choices:
        - mig_mode
        - ecc_mode
        - recovery_action
        - remapped_rows
        - retired_pages
        - channel_repair
        - tpc_repair
        - reset_required
    added: {description: Whether it came in because NVLink joins it to one that was wanted., type: bool}
    before:
      description:
        - What a reset changes, as it was found - modes, MIG instances, pending repairs, recovery action, volatile ECC
          errors.
      type: dict
    after:
      description:
        - The same as it was read back, or in check mode as it would be. V(null) if the GPU could not be read.
      type: dict
    evidence: {description: What changed that only a reset or a load of the driver changes., type: list, elements: str}
    status:
      description:
        - V(reset) if it was reset and shows it, V(unproven) if nothing had to change and nothing speaks against it,
          V(failed) if something does, V(not_reset) if nothing was done, V(planned) in check mode.
      type: str
joined_by_nvlink:
  description: The GPUs that NVLink joins to those that were wanted, and that were reset with them.
  returned: when NVML could be read
  type: list
  elements: str
reasons:
  description: What speaks against the reset, all of it.
  returned: when NVML could be read
  type: list
  elements: dict
  contains:
    id:
      description:
        - One of V(need_unknown), V(beyond_reset), V(gpu_lost), V(nvlink_unknown), V(mig_instances), V(mig_unknown),
          V(no_command), V(holder), V(dcgm_holder), V(holders_unknown), V(drm_holds), V(modules_unknown),
          V(refcnt_unknown), V(foreign_module), V(unexplained_reference), V(hung_task), V(hung_unknown).
      type: str
    gpu: {description: The GPU that it is about; V(null) for the node., type: str}
    message: {description: The reason in words., type: str}
    next_step: {description: What to do about it., type: str}
problems:
  description: What went wrong, or is not as it should be after the reset.
  returned: when NVML could be read
  type: list
  elements: dict
  contains:
    id:
      description:
        - One of V(command_failed), V(command_timeout), V(persistence_off), V(persistence_on), V(nvml_unreadable),
          V(gpu_missing), V(gpu_lost), V(gpu_unexpected), V(mode_pending), V(mode_not_applied), V(recovery_action),
          V(repair_pending), V(remap_failed), V(instances_left), V(unread), V(kernel_log).
      type: str
    gpu: {description: The GPU that it is about; V(null) for the node., type: str}
    found: {description: What was found., type: raw}
    expected: {description: What was expected., type: raw}
    message: {description: The same in words., type: str}
    next_step: {description: What to do about it., type: str}
actions:
  description: What was done, or in check mode would be done, in order.
  returned: when NVML could be read
  type: list
  elements: str
command:
  description:
    - The call of C(nvidia-smi --gpu-reset) with what it answered, and the pid of one that could not be ended. V(null)
      if it was not called.
  returned: when NVML could be read
  type: dict
holders:
  description: Processes that had a device file of the driver open or mapped, as in M(gpufleet.lifecycle.driver_reload).
  returned: when NVML could be read
  type: list
  elements: dict
interrupted:
  description:
    - The note of an earlier run of this boot that did not come to its end, with its C(gpus), C(persistence), C(phase),
      C(reason) and C(time).
  returned: when NVML could be read
  type: dict
reason:
  description: Why, as the task says.
  returned: when NVML could be read
  type: str
driver_version:
  description: The version of the loaded driver.
  returned: when NVML could be read
  type: str
simulated:
  description: Whether the project's simulator was reset and no hardware.
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
"""

import os

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _nvml_task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _reset_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import snapshot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._reset import gpu_reset


class ResetTask(_nvml_task.NvmlTask):
    name, options, undone, subject = "gpu_reset", options, "nothing was reset", "a reset"

    def fail_early(self) -> None:
        super().fail_early()
        if os.geteuid() != 0:
            self.module.fail_json(
                msg=(
                    "This needs root (become: true): what processes of other users have open cannot be seen. "
                    "Nothing was reset."
                )
            )

    def take(self, gather):
        """Read GPUs, each time in a child that opens and shuts NVML."""
        return snapshot.take(self.params["timeout_s"], self.nvml.stuck_file, gather, self.nvml.load)

    def work(self, held) -> dict:
        try:
            if held is None:
                return gpu_reset.GpuReset(self.params, self.take).preview()
            command = gpu_reset.commands([held.fd])
            return gpu_reset.GpuReset(self.params, self.take, command, Runner(pass_fds=[held.fd])).run()
        except gpu_reset.ResetError as exc:
            raise _nvml_task.Undone(str(exc), exc.snapshot) from exc


def main() -> None:
    ResetTask().main()


if __name__ == "__main__":
    main()
