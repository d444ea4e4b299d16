# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the NVML binding to the node and runs the module gpu_reset there."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _reset_options as options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._nvml_action import NvmlActionBase


class ActionModule(NvmlActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        dummy, args = self.validate_argument_spec(argument_spec=options.ARGUMENT_SPEC)
        problem = options.contradiction(args)
        if problem:
            raise AnsibleActionFail("%s: %s" % (task_vars.get("inventory_hostname") or "localhost", problem))
        # A worker outlives a playbook that was killed, and begins nothing then.
        _controller.require()
        result.update(
            self.execute_nvml(
                "gpufleet.lifecycle.gpu_reset",
                dict((name, given) for name, given in args.items() if given is not None),
                task_vars,
            )
        )
        return result
