# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the actions that run a module of the collection on a node or on a service host."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _background
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result


class NodeActionBase(ActionBase):
    def run_module(self, module_name, module_args, task_vars, **more):
        """Return the checked answer of a module of the collection. MORE: options of Ansible's _execute_module."""
        answer = self._execute_module(module_name=module_name, module_args=module_args, task_vars=task_vars, **more)
        return _answers.accept(module_name.rsplit(".", 1)[-1], answer)


class ModuleAction(NodeActionBase):
    """Run a module on the node, by itself there where the task has async, and check its answer."""

    _supports_check_mode = True
    _supports_async = True
    MODULE = ""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        # With async, Ansible would take the module's answer for the task's result by itself.
        background = _background.Background(self)
        result.update(background.run(self.MODULE, dict(self._task.args), task_vars))
        return clean_result(result)
