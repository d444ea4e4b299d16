#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the node_program action, which builds the program on the controller and copies it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_program
short_description: Install the program gpufleet-node, which makes the MIG layout at boot and checks the node
version_added: 1.0.0
description:
  - Roles and playbooks of this collection call it. Its options may change in any release.
  - Builds gpufleet-node on the controller from the collection's code and the controller's NVML binding, as one file
    that Python runs as it is, and copies it to the node. The node needs no network, no Ansible and no further Python
    package to run it.
  - The same collection and binding give the same bytes, so that a second run changes nothing.
  - The file is owned by root, and can be changed by root alone. Its digest is written to the file of its name with
    C(.sha256) at the end, in the format of C(sha256sum), so that a boot unit can compare it before it runs.
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  action:
    description: Part of it runs on the controller, as an action plugin.
    support: full
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
author:
  - gpufleet contributors (@gpufleet)
options:
  dest:
    description:
      - The file on the node. Its directory has to be there.
    type: path
    required: true
seealso:
  - module: gpufleet.lifecycle.gpu_mig
  - module: gpufleet.lifecycle.gpu_health
"""

EXAMPLES = r"""
- name: Install gpufleet-node
  gpufleet.lifecycle.node_program:
    dest: /usr/local/lib/gpufleet/gpufleet-node.pyz
  become: true
"""

RETURN = r"""
sha256:
  description: The digest of the program.
  returned: success
  type: str
binding_version:
  description: The version of nvidia-ml-py in it.
  returned: success
  type: str
dest:
  description: The file on the node.
  returned: success
  type: str
"""

ARGUMENT_SPEC = {"dest": {"type": "path", "required": True}}
