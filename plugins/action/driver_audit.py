# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a module of the collection on the node and check its answer.

For driver_audit, and for the modules without an action of their own, which meta/runtime.yml sends here.
"""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _background
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import NodeActionBase


class ActionModule(NodeActionBase):
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        module = self._task.action.rsplit(".", 1)[-1]
        # With async, Ansible would take the module's answer for the task's result by itself.
        background = _background.Background(self)
        result.update(background.run("gpufleet.lifecycle." + module, dict(self._task.args), task_vars))
        return result
