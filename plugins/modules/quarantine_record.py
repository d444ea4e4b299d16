#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the quarantine_record action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: quarantine_record
short_description: Keep the record of a node in quarantine for the return of its hardware
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Roles and playbooks of this collection call it. Its options may change in any release.
  - Writes C(record.json) (schema C(gpufleet.rma/1)) and C(record.md) on the controller, for a ticket of the vendor.
    No node is contacted.
  - The record has the machine's identity; of every GPU serial number, part number, UUID, PCI address, VBIOS, InfoROM,
    ECC counters, remapped rows and their histogram, and retired pages; XIDs by GPU and code with their class and
    times; the verdict and the checks that did not pass.
  - What could not be read is listed with its reason. A GPU that does not answer any more is named as its O(baseline)
    has it.
  - A record is there whole or not at all, and is never written to again. That of a node that does not answer is made
    once for a reason.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  bypass_host_loop:
    support: none
    description: Runs for each host.
options:
  artifact_dir:
    description:
      - The directory on the controller that records are kept in. One is C(quarantine/<node>/<time>) below it.
    type: path
    required: true
  about:
    description: C(node), C(time) in UTC, C(reason), C(user), C(controller), C(evidence) (the bundle on the
      controller) and C(silent) (why the node does not answer; empty if it does).
    type: dict
    required: true
  health:
    description: What M(gpufleet.lifecycle.gpu_health) returned. Empty for a node that does not answer.
    type: dict
    default: {}
  baseline:
    description: An earlier baseline of the node, from which GPUs are named that do not answer any more.
    type: dict
seealso:
  - module: gpufleet.lifecycle.gpu_evidence
  - module: gpufleet.lifecycle.artifact_store
"""

EXAMPLES = r"""
- name: Judge the node
  gpufleet.lifecycle.gpu_health:
    fail_on: []
  register: health

- name: Keep what the vendor asks for
  gpufleet.lifecycle.quarantine_record:
    artifact_dir: ~/.gpufleet
    about: {node: "{{ inventory_hostname }}", time: "2026-01-31T12:00:00Z", reason: XID 79, user: kim, controller: ctl1}
    health: "{{ health }}"
"""

RETURN = r"""
path:
  description: The directory on the controller with the record. Empty in check mode if there is none yet.
  returned: success
  type: str
  sample: /home/ops/.gpufleet/quarantine/gpu-r1-1/20260131T120000Z
gpus:
  description: The GPUs of the node, each with C(uuid), C(serial), C(part_number), C(name) and C(pci), as far as they
    are known.
  returned: success
  type: list
  elements: dict
checks:
  description: The ids of the health checks that did not pass.
  returned: success
  type: list
  elements: str
missing:
  description: What could not be read, each with C(part) and C(reason).
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    artifact_dir=dict(type="path", required=True),
    about=dict(type="dict", required=True),
    health=dict(type="dict", default={}),
    baseline=dict(type="dict"),
)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg=(
            "quarantine_record runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which "
            "was not found: call it by its full name, gpufleet.lifecycle.quarantine_record, in a task."
        )
    )


if __name__ == "__main__":
    main()
