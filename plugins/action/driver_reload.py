# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module driver_reload, and reboots the node when it says so and the task allows it."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

MODULE = "gpufleet.lifecycle.driver_reload"
REBOOT = "ansible.builtin.reboot"
MESSAGE = "Reboot for a change of the GPU driver"


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        allowed = boolean(args.pop("reboot", False), strict=False)
        timeout = args.pop("reboot_timeout", 1800)
        # Also with policy reboot: somebody may have begun to work on the GPUs since the node was looked at.
        answer = self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)
        if not allowed or answer.get("failed") or answer.get("unreachable"):
            return dict(result, **answer)
        if not answer.get("reboot_required") or self._task.check_mode:
            return dict(result, **dict(answer, rebooted=False))
        booted = self.reboot(timeout, task_vars)
        return dict(result, **dict(answer, reboot_required=not booted.get("rebooted", False), **booted))

    def reboot(self, timeout, task_vars):
        """What Ansible's own reboot answers."""
        task = self._task.copy()
        task.args = {"msg": MESSAGE, "reboot_timeout": timeout}
        action = self._shared_loader_obj.action_loader.get(
            REBOOT, task=task, connection=self._connection, play_context=self._play_context, loader=self._loader, templar=self._templar,
            shared_loader_obj=self._shared_loader_obj)
        return dict({"rebooted": False}, **action.run(task_vars=task_vars))
