# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the NVML binding to the node and runs the module gpu_info there."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._nvml_action import NvmlActionBase


class ActionModule(NvmlActionBase):
    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars)
        result.update(self.execute_nvml("gpufleet.lifecycle.gpu_info", self._task.args, task_vars))
        return result
