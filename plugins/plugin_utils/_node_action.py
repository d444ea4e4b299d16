# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the actions that run a module of the collection on a node or on a service host."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers


class NodeActionBase(ActionBase):
    def run_module(self, module_name, module_args, task_vars, **more):
        """Return the checked answer of a module of the collection. MORE: options of Ansible's _execute_module."""
        answer = self._execute_module(module_name=module_name, module_args=module_args, task_vars=task_vars, **more)
        return _answers.accept(module_name.rsplit(".", 1)[-1], answer)
