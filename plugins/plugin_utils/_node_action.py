# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the actions that run a module of the collection on a node or on a service host."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _background, _controller

# Set in the environment of a task: seconds for which a node that does not answer is tried again.
RECONNECT = "GPUFLEET_RECONNECT_S"
RETRY_S = 5.0


class NodeActionBase(ActionBase):
    def _execute_module(self, *given: t.Any, **more: t.Any) -> t.Dict[str, t.Any]:
        """Run a module; try a node again that does not answer for a while, where the task says for how long.

        For Ansible a node that does not answer once has left the play, and no rescue rolls it back. What may run twice
        is safe to: a module that changes the node takes its lock and finds what is done already.
        """
        deadline = None
        while True:
            try:
                return super()._execute_module(*given, **more)
            except AnsibleConnectionFailure:
                deadline = deadline or time.monotonic() + self._reconnect_s()
                if time.monotonic() >= deadline:
                    raise
            _controller.pause(RETRY_S)
            self._connection.reset()

    def _reconnect_s(self) -> float:
        """Return the seconds for which a node of this task is tried again; 0 if the task does not say so."""
        given = [one for one in self._task.environment or [] if isinstance(one, dict) and RECONNECT in one]
        return float(self._templar.template(given[-1][RECONNECT]) or 0) if given else 0.0

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
        return result
