# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts that a playbook is told to take, as a pattern."""

from __future__ import annotations

DOCUMENTATION = r"""
name: host_pattern
short_description: Make a host pattern of a variable that names hosts
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Takes a pattern, a list of hosts and groups, or a text with commas or lines as a survey gives it, with or without
    blanks after the commas. Null and the empty text are the default.
  - Fails in a run with C(--tags), C(--skip-tags) or C(--start-at-task) that leaves out tasks. Ansible evaluates the
    C(hosts) of a play in such a run too, and ends it with an error; where no task is left to run, it would end with
    exit status 0 otherwise.
options:
  _input:
    description: The value of the variable.
    type: raw
    required: true
  variable:
    description: The name of the variable, for the message when it is anything else.
    type: str
    required: true
  default:
    description: The pattern when nothing is named. With an empty one that is refused.
    type: str
    default: gpu_nodes
"""

EXAMPLES = r"""
---
- name: Check the nodes
  hosts: "{{ my_hosts | default('') | gpufleet.lifecycle.host_pattern('my_hosts') }}"
"""

RETURN = r"""
---
_value:
  description: The pattern.
  type: str
"""

from ansible import context
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variables


def host_pattern(value, variable, default="gpu_nodes") -> str:
    try:
        _variables.refuse_partial_run(context.CLIARGS)
        return _variables.make_host_pattern(value, variable, default)
    except _variables.VariableError as exc:
        raise AnsibleFilterError(str(exc)) from exc


class FilterModule:
    def filters(self) -> dict:
        return {"host_pattern": host_pattern}
