#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hold_info
short_description: Tells which packages a node holds, since when, and which security updates that keeps out
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Lists what is held with C(apt-mark hold) or C(dnf versionlock), apart for the kernel, the NVIDIA driver and
    everything else.
  - Package managers do not record when a hold was set. M(gpufleet.lifecycle.kernel_packages) and
    M(gpufleet.lifecycle.driver_packages) do for theirs; the age of other holds is V(null).
  - What is newer is as of the package index of the node, which this module does not refresh.
  - Knows apt and dnf.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
    details:
      - The module only reads, so it does the same in check mode.
  diff_mode:
    support: N/A
    details:
      - The module changes nothing.
options:
  timeout_s:
    description: Seconds that one command of the package manager may take.
    type: int
    default: 300
  table:
    description:
      - What this module returned, failures included, by the name of the node. It is printed as a table, the longest
        hold first, with a line for each node that did not answer. No node is read then.
    type: dict
seealso:
  - module: gpufleet.lifecycle.kernel_packages
  - module: gpufleet.lifecycle.driver_packages
"""

EXAMPLES = r"""
- name: See what is held
  gpufleet.lifecycle.hold_info:
  register: held

- name: Show it
  gpufleet.lifecycle.hold_info:
    table: "{{ {inventory_hostname: held} }}"
"""

RETURN = r"""
lines:
  description: The lines that were printed.
  returned: with O(table)
  type: list
  elements: str
holds:
  description: What is held, by whose packages they are, the longest first.
  returned: success, without O(table)
  type: dict
  contains:
    kernel:
      description: Packages of the kernel.
      type: list
      elements: dict
      contains: &row
        package: {description: The package., type: str, sample: linux-image-amd64}
        version: {description: The version it is held at., type: str, sample: 6.1.176-1}
        since: {description: "Since when it is held at that version, V(null) when that is not recorded.", type: str,
                sample: "2026-01-31T12:00:00Z"}
        since_exact: {description: "Whether RV(holds.kernel[].since) is when it was held, and not when it was first seen
          to be.", type: bool}
        age_days: {description: Days since then., type: int}
        newer: {description: "Newer versions that there are, newest first.", type: list, elements: str}
        security: {description: "Those that fix a vulnerability. V(null) when the package manager cannot tell.",
                   type: list, elements: str}
    driver:
      description: Packages of the NVIDIA driver.
      type: list
      elements: dict
      contains: *row
    other:
      description: Packages that are neither.
      type: list
      elements: dict
      contains: *row
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import holds
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.kernel_packages import manager_of
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.manager import ManagerError

ROOT = "/"


def main() -> None:
    spec = dict(timeout_s=dict(type="int", default=300), table=dict(type="dict"))
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        found = holds.read_holds(manager_of(Runner(), ROOT, timeout_s=module.params["timeout_s"]), time.time())
    except ManagerError as exc:
        module.fail_json(msg="What is held cannot be read: %s. Next step: run that command on the node." % exc)
    module.exit_json(changed=False, holds=found)


if __name__ == "__main__":
    main()
