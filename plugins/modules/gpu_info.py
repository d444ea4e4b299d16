# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Read the NVIDIA GPUs of a node through NVML
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Reads everything the collection uses from the NVIDIA Management Library (NVML), in one pass and with one
    initialisation.
  - Every value is either the value or the return code of NVML that stands in its place. A driver that is not loaded, a
    library of another version and a GPU that has fallen off the bus are results, not failures.
  - The pass runs in a child process that is never waited for longer than O(timeout_s), as NVML can hang in the kernel.
    A child that cannot be ended is remembered, and later calls say so instead of starting another.
  - Nothing has to be installed on the node. The Python module C(pynvml) of the controller's C(nvidia-ml-py) is sent
    along once and kept, with its compiled code, in Ansible's temporary directory of the user the task becomes. Without
    one on the controller, the node's own is used.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.info_module
  - gpufleet.lifecycle._nvml_binding
attributes:
  platform:
    support: full
options:
  gather_subset:
    description:
      - The subsets of values to read. A value that is not read is not in the result, and RV(snapshot.subsets) lists
        what was.
      - V(all) is every subset, and V(!) before a name leaves it out; a list of nothing but such names starts with
        V(all), and V(!all) leaves out all but V(min). V(min) is always read.
      - V(min) is C(uuid), C(name), C(pci_bus_id), C(pci_device_id) and C(pci_subsystem_id).
      - V(identity) is C(serial), C(minor_number), C(board_part_number), C(vbios_version), C(architecture),
        C(virtualization_mode), C(addressing_mode), C(gsp_firmware_version) and C(gsp_firmware_mode).
      - V(inforom) is C(inforom_image_version), C(inforom_config_checksum) and C(inforom_valid). The driver reads the
        InfoROM for it, which takes longer than all else together, so this is done once after the driver was loaded, and
        again where a value was missing or bad. M(gpufleet.lifecycle.gpu_health) reads it each time.
      - V(memory) is C(memory_total_bytes), C(memory_used_bytes), C(memory_free_bytes), C(memory_reserved_bytes),
        C(bar1_total_bytes) and C(bar1_used_bytes).
      - V(ecc) is C(ecc_mode_current), C(ecc_mode_pending), C(ecc_volatile_corrected), C(ecc_volatile_uncorrected),
        C(ecc_aggregate_corrected), C(ecc_aggregate_uncorrected), C(ecc_counters) for SRAM and DRAM apart, and
        C(sram_ecc) with the threshold that asks for a replacement.
      - V(repair) is C(remapped_rows), C(remap_histogram) of the banks by spare rows, C(retired_pages),
        C(retired_pages_pending), C(repair_status) and C(recovery_action).
      - V(modes) is C(persistence_mode) and C(compute_mode).
      - V(clocks) is C(clock_sm_mhz), C(clock_mem_mhz), C(clocks_mhz), C(clocks_max_mhz), C(applications_clocks_mhz),
        C(applications_clocks_default_mhz), C(clocks_event_reasons) and C(violation_ns).
      - V(temperatures) is C(temperature_gpu_c), C(temperature_memory_c), C(temperature_margin_c) to the slowdown,
        C(temperature_limits_c) and C(temperature_margin_limits_c), the same limits as such margins.
      - V(power) is C(power_usage_mw), C(power_limit_mw), C(power_limit_default_mw), C(power_limit_enforced_mw),
        C(power_limit_min_mw) and C(power_limit_max_mw).
      - V(pcie) is C(pcie_gen_current), C(pcie_gen_max), C(pcie_gen_device_max), C(pcie_width_current),
        C(pcie_width_max) and C(pcie_replay_count).
      - V(nvlink) is C(nvlink_active) and C(nvlinks), each link with its version, remote end and errors.
      - V(fabric) is C(fabric) and C(fabric_state), which is the same.
      - V(mig) is C(mig_mode_current), C(mig_mode_pending), C(mig_max_devices) and C(mig_instances).
      - V(processes) is C(compute_processes) and C(graphics_processes).
      - V(p2p) is C(p2p), the capabilities towards each other GPU by its UUID.
    type: list
    elements: str
    default: [all]
  holders:
    description:
      - Also look which processes have a device file of the driver open or mapped, in C(/proc). That does not depend on
        NVML, and finds what monitors the GPUs as well as what computes on them.
    type: bool
    default: false
  timeout_s:
    description:
      - The longest time in seconds to wait for NVML. Without persistence mode, waking up a GPU takes one to three
        seconds each.
      - After NVML did not answer in time, tasks on that node wait for it for at most 10 seconds. This ends after 15
        minutes, when the driver is loaded again, or for a task whose own O(timeout_s) is longer than the time that was
        waited.
    type: int
    default: 60
  fail_if_unavailable:
    description:
      - Fail if NVML cannot be read, instead of returning the reason in RV(snapshot.message).
    type: bool
    default: false
notes:
  - Run it with C(become) set to V(true); some values are only given to root.
seealso:
  - module: gpufleet.lifecycle.gpu_health
"""

EXAMPLES = r"""
- name: Read the GPUs
  gpufleet.lifecycle.gpu_info:
  register: gpus
  become: true

- name: Stop unless every GPU is in persistence mode
  ansible.builtin.assert:
    that:
      - gpus.nvml_available
      - gpus.snapshot.gpus | map(attribute='persistence_mode.value') | unique | list == [1]

- name: Read clocks and temperatures only
  gpufleet.lifecycle.gpu_info:
    gather_subset: [clocks, temperatures]
  become: true

- name: Read all but the InfoROM and the matrix of peers
  gpufleet.lifecycle.gpu_info:
    gather_subset: ['!inforom', '!p2p']
  become: true

- name: Fail where NVML does not answer within ten seconds
  gpufleet.lifecycle.gpu_info:
    timeout_s: 10
    fail_if_unavailable: true
  become: true
"""

RETURN = r"""
nvml_available:
  description: Whether NVML answered, so that RV(snapshot.gpus) is the truth. Also returned on failure.
  returned: always
  type: bool
  sample: true
driver_loaded:
  description:
    - Whether the NVIDIA kernel module is loaded, as far as NVML tells. Null if NVML does not tell.
    - A driver that is loaded in another version than the library (V(LIB_RM_VERSION_MISMATCH)) is loaded.
  returned: always
  type: bool
  sample: true
gpu_count:
  description: How many GPUs NVML counts, with those that cannot be opened. Null if NVML does not tell.
  returned: always
  type: int
  sample: 8
snapshot:
  description:
    - All values, schema C(gpufleet.snapshot/1). Also returned on failure.
    - A value that was read is a dictionary with C(value), and C(rc) V(0). One that was not has C(value) null, the
      return code of NVML in C(rc) and its name in C(error), for example V(3) and V(NOT_SUPPORTED).
    - In a value made of several answers, such as C(clocks_mhz), a part that the GPU does not have is null; an error of
      a part is the code of the whole.
    - The code V(-1) (V(UNREADABLE)) is the collection's own and says that there was no answer that could be used.
  returned: always
  type: dict
  contains:
    schema:
      description: V(gpufleet.snapshot/1).
      type: str
    simulated:
      description: Whether the library is the project's simulator and no hardware was read.
      type: bool
    status:
      description: One of V(ok), V(no_binding), V(nvml_error), V(timeout) and V(stuck).
      type: str
    message:
      description: What went wrong and the next step; empty if RV(snapshot.status) is V(ok).
      type: str
    binding:
      description: C(version) and C(source) (V(shipped), V(node) or V(none)) of the NVML binding.
      type: dict
    nvml:
      description: C(rc) and C(error) of starting NVML; both null if it was not tried or did not answer.
      type: dict
    system:
      description: The values C(driver_version), C(nvml_version) and C(cuda_driver_version).
      type: dict
    count:
      description: The value of the number of GPUs.
      type: dict
    subsets:
      description: The subsets that were read, see O(gather_subset); empty if the GPUs could not be read.
      type: list
      elements: str
    gpus:
      description:
        - The GPUs in NVML's order, which may change over a reboot; identify them by C(uuid) and C(pci_bus_id).
        - A GPU that cannot be opened stays in the list, with the return code in C(handle) and in every value.
        - Sizes are in bytes (C(_bytes)), power in milliwatts (C(_mw)), clocks in MHz (C(_mhz)), temperature in degrees
          Celsius (C(_c)).
      type: list
      elements: dict
      sample:
        - index: 0
          handle: {value: true, rc: 0}
          uuid: {value: GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10, rc: 0}
          pci_bus_id: {value: "00000000:1b:00.0", rc: 0}
          persistence_mode: {value: 1, rc: 0}
          power_limit_mw: {value: 700000, rc: 0}
          remapped_rows: {value: {correctable: 0, uncorrectable: 0, pending: false, failure: false}, rc: 0}
          retired_pages_pending: {value: null, rc: 3, error: NOT_SUPPORTED}
    duration_s:
      description: How long the reading took, in seconds.
      type: float
holders:
  description: Who has a device file of the driver open or mapped; none if C(/proc) cannot be listed.
  returned: when O(holders=true)
  type: list
  elements: dict
  contains:
    pid:
      description: The process.
      type: int
    user:
      description: Its user, or the number of it.
      type: str
    comm:
      description: Its name, as the kernel knows it.
      type: str
    unit:
      description: The systemd unit that it belongs to; none if there is none.
      type: str
    pod:
      description: The uid of the Kubernetes pod that it belongs to, by its control group; none if there is none.
      type: str
    job:
      description: The number of the Slurm job that it belongs to, by its control group; none if there is none.
      type: str
    devices:
      description: The device files.
      type: list
      elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding, snapshot, subsets

# Return codes that say whether the kernel module is loaded: SUCCESS, LIB_RM_VERSION_MISMATCH, DRIVER_NOT_LOADED.
DRIVER_LOADED = {0: True, 18: True, 9: False}

ARGUMENT_SPEC = {
    "gather_subset": {"type": "list", "elements": "str", "default": ["all"]},
    "holders": {"type": "bool", "default": False},
    "timeout_s": {"type": "int", "default": 60},
    "fail_if_unavailable": {"type": "bool", "default": False},
    **binding.ARGUMENTS,
}


def describe(taken) -> dict:
    """Return the result: the snapshot, and beside it what a playbook asks first."""
    rc = taken["nvml"]["rc"]
    count = taken["count"]
    return {
        "nvml_available": taken["status"] == "ok",
        "driver_loaded": DRIVER_LOADED.get(rc),
        "gpu_count": count["value"] if count["rc"] == 0 else None,
        "snapshot": taken,
    }


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.params["timeout_s"] < 1:
        module.fail_json(msg="timeout_s is %d; expected at least 1 second" % (module.params["timeout_s"],))
    try:
        subsets.choose(module.params["gather_subset"])
    except subsets.SubsetError as exc:
        module.fail_json(msg="NVML was not read: %s" % (exc,))
    nvml = binding.get_binding(module, "NVML was not read")
    taken = snapshot.take(
        module.params["timeout_s"], nvml.stuck_file, module.params["gather_subset"], nvml.load, describes=True
    )
    result = describe(taken)
    if module.params["holders"]:
        # Compiled only for those who ask.
        from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import holders

        result["holders"] = holders.read_holders()
    if module.params["fail_if_unavailable"] and not result["nvml_available"]:
        module.fail_json(msg="NVML cannot be read (%s): %s" % (taken["status"], taken["message"]), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
