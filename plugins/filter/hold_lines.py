# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render the package holds of a fleet's nodes as a table."""

from __future__ import annotations

DOCUMENTATION = r"""
name: hold_lines
short_description: Make a table of what nodes hold
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers lines for people, the longest hold first. A node that did not answer has a line that says why.
options:
  _input:
    description: What M(gpufleet.lifecycle.hold_info) returned, by the name of the node.
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Show what the nodes hold
  ansible.builtin.debug:
    msg: "{{ {inventory_hostname: held} | gpufleet.lifecycle.hold_lines }}"
"""

RETURN = r"""
---
_value:
  description: The lines.
  type: list
  elements: str
"""

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import held


def hold_lines(nodes):
    return held.lines(_answers.accept_all("hold_info", nodes))


class FilterModule:
    def filters(self):
        return {"hold_lines": hold_lines}
