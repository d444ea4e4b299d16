# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module slurm_gres, for a playbook that has not ended: Slurm's host knows no claim of the node."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import NodeActionBase

MODULE = "gpufleet.lifecycle.slurm_gres"


class ActionModule(NodeActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _controller.require()
        return dict(result, **self.run_module(MODULE, dict(self._task.args), task_vars))
