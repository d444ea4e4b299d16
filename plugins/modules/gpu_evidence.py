# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_evidence
short_description: Keep what a node tells about its GPUs at this moment, before it is changed
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Gathers on the node what a stop, a reload or a reboot destroys, and keeps it as a bundle of files on the controller.
  - RV(manifest.files) are C(reading.json) (all that M(gpufleet.lifecycle.gpu_health) judges, with volatile counters and
    versions), C(processes.json) (who uses the GPUs), C(kernel.log) (the last lines about the NVIDIA driver, and the
    last lines of the kernel) and C(nvidia-smi.xml) (C(nvidia-smi -q -x)), beside them C(manifest.json).
  - What cannot be had is listed in RV(manifest.missing) with its reason and fails nothing. A bundle that cannot be
    written fails the task.
  - A bundle is there whole or not at all. One that exists is never written to; a second one for the same attempt and
    moment gets a number.
  - Command lines and environments of processes are not taken, since they may hold secrets. Lines of the kernel log that
    may hold such are left out, and process names in C(nvidia-smi.xml) are cut to the program.
  - C(nvidia-smi) may hang in the driver. It has a deadline, and one that cannot be ended is left behind and named.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._nvml_binding
attributes:
  check_mode:
    support: full
    details:
      - The node is read, and no bundle is written.
  diff_mode:
    support: N/A
    details:
      - This module changes nothing on the node.
options:
  artifact_dir:
    description:
      - The directory on the controller that bundles are kept in. Required.
      - The bundle is C(evidence/<rollout_id>/<node>/<attempt>-<moment>) below it, readable by its owner and group
        alone.
    type: path
  rollout_id:
    description: The rollout that this belongs to. Letters, digits and C(. _ + ~ -), up to 100 of them.
    type: str
    default: adhoc
  attempt:
    description: Which attempt at the node this is, from 0.
    type: int
    default: 1
  moment:
    description: What is about to happen or just did, such as V(before) or V(failed). Small letters, digits, C(_) and
      C(-).
    type: str
    default: adhoc
  required:
    description:
      - Whether a bundle that cannot be written, or a node that cannot be asked, fails the task. Otherwise that is a
        warning, for moments when the node has to be put back whatever happens.
    type: bool
    default: true
  log_lines:
    description: How many lines to keep of the kernel log, both of those about the driver and of all, 1 to 10000.
    type: int
    default: 500
  nvidia_smi_timeout_s:
    description: The longest time in seconds to wait for C(nvidia-smi).
    type: int
    default: 30
  timeout_s:
    description:
      - The longest time in seconds to wait for NVML.
      - After NVML did not answer in time, tasks on that node wait for it for at most 10 seconds. This ends after 15
        minutes, when the driver is loaded again, or for a task whose own O(timeout_s) is longer than the time that was
        waited.
    type: int
    default: 60
notes:
  - Run it with C(become) set to V(true); the kernel log and the processes of others are only for root.
  - Bundles are written on the controller. M(gpufleet.lifecycle.artifact_store) copies one to another host.
seealso:
  - module: gpufleet.lifecycle.artifact_store
  - module: gpufleet.lifecycle.gpu_health
"""

EXAMPLES = r"""
- name: Keep what the node tells before its services are stopped
  gpufleet.lifecycle.gpu_evidence:
    artifact_dir: ~/.gpufleet
    rollout_id: upgrade-535.261.03
    moment: before
  become: true
  register: evidence

- name: Keep what is left to see of a failure, and go on in any case
  gpufleet.lifecycle.gpu_evidence:
    artifact_dir: ~/.gpufleet
    moment: failed
    required: false
  become: true
  ignore_unreachable: true
"""

RETURN = r"""
bundle:
  description: The directory on the controller with the bundle; empty in check mode, and if it could not be written and
    need not be.
  returned: success
  type: str
  sample: /home/ops/.gpufleet/evidence/upgrade-535.261.03/gpu-r1-1/1-before
manifest:
  description: What the bundle holds and what it lacks, schema C(gpufleet.evidence/1); the content of C(manifest.json).
  returned: when the node could be read
  type: dict
  contains:
    schema:
      description: V(gpufleet.evidence/1).
      type: str
    node:
      description: The inventory name of the node.
      type: str
    rollout_id:
      description: The O(rollout_id).
      type: str
    attempt:
      description: The O(attempt).
      type: int
    moment:
      description: The O(moment).
      type: str
    time:
      description: When it was gathered, in UTC.
      type: str
    boot_id:
      description: The boot of the node that it is about; none if the node did not tell.
      type: str
    simulated:
      description: Whether the project's simulator was read and no hardware.
      type: bool
    files:
      description: The files of the bundle, without the manifest itself.
      type: list
      elements: dict
      contains:
        name:
          description: The name of the file in the bundle.
          type: str
        bytes:
          description: Its size in bytes.
          type: int
        sha256:
          description: Its digest.
          type: str
        truncated:
          description: Whether there was more of it.
          type: bool
        note:
          description: What was cut or left out, or is doubtful; empty if nothing is.
          type: str
    missing:
      description: What could not be had.
      type: list
      elements: dict
      contains:
        part:
          description: The file, or the part of a file.
          type: str
        reason:
          description: Why it is missing.
          type: str
      sample: [{part: nvidia-smi.xml, reason: "nvidia-smi: command not found"}]
facts:
  description: What the node read, for the action plugin. Never in a task's result.
  returned: when the module answers the action plugin
  type: dict
files:
  description: The other files, packed, for the action plugin. Never in a task's result.
  returned: when the module answers the action plugin
  type: dict
missing:
  description: What could not be had, for the action plugin. Never in a task's result.
  returned: when the module answers the action plugin
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _evidence_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import evidence, reading
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding, snapshot


def pack_files(found) -> dict[str, dict]:
    """The files with their text compressed: XML and logs shrink to a tenth."""
    return dict(
        (
            name,
            {
                "data": _artifacts.pack(entry["text"].encode("utf-8", "backslashreplace")),
                "truncated": entry["truncated"],
                "note": entry["note"],
            },
        )
        for name, entry in found.items()
    )


def main() -> None:
    module = AnsibleModule(argument_spec=dict(options.ARGUMENT_SPEC, **binding.ARGUMENTS), supports_check_mode=True)
    for name, lowest, highest in (("timeout_s", 1, 3600), ("nvidia_smi_timeout_s", 1, 3600), ("log_lines", 1, 10000)):
        if not lowest <= module.params[name] <= highest:
            module.fail_json(msg="%s is %d; expected %d to %d" % (name, module.params[name], lowest, highest))
    nvml = binding.get_binding(module, "no evidence was gathered")
    facts = reading.gather_reading(snapshot.take(module.params["timeout_s"], nvml.stuck_file, load=nvml.load))
    found = evidence.gather_parts(
        facts, log_lines=module.params["log_lines"], smi_timeout_s=module.params["nvidia_smi_timeout_s"]
    )
    module.exit_json(changed=False, facts=facts, files=pack_files(found["files"]), missing=found["missing"])


if __name__ == "__main__":
    main()
