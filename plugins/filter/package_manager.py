# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package manager of a distribution."""

from __future__ import annotations

DOCUMENTATION = r"""
name: package_manager
short_description: Name the package manager of a distribution
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Internal to the roles that install packages.
options:
  _input:
    description: The fact C(distribution).
    type: str
    required: true
"""

EXAMPLES = r"""
---
- name: Show the package manager
  ansible.builtin.debug:
    msg: "{{ ansible_facts['distribution'] | gpufleet.lifecycle.package_manager }}"
"""

RETURN = r"""
---
_value:
  description: V(apt) or V(dnf); empty for a distribution that the collection has no driver packages for.
  type: str
"""

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import systems
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.driver_tables import SYSTEMS

IDS = {"redhat": "rhel"}  # where Ansible's fact is not the ID of os-release


def name_package_manager(distribution: str) -> str:
    """Return apt or dnf; an empty text for what is not among the systems of the driver tables."""
    ident = IDS.get(distribution.lower(), distribution.lower())
    known = any(ident == system for system, dummy in SYSTEMS)
    return systems.family_of({"ID": ident}) or "" if known else ""


class FilterModule:
    def filters(self) -> dict:
        return {"package_manager": name_package_manager}
