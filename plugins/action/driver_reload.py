# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module driver_reload, and reboots the node when it says so and the task allows it."""

from __future__ import annotations

import re

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import NodeActionBase
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result

MODULE = "gpufleet.lifecycle.driver_reload"
REBOOT = "ansible.builtin.reboot"
MESSAGE = "Reboot for a change of the GPU driver"
BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def boot_id(text):
    """Return the boot id in what the node printed. What a login shell prints beside it may differ at each login."""
    found = BOOT_ID.findall(text)
    if not found:
        raise AnsibleError("the node did not print its boot id")
    return found[-1]


class ActionModule(NodeActionBase):
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _controller.require()
        args = dict(self._task.args)
        allowed = boolean(args.pop("reboot", False), strict=False)
        timeout = int(args.pop("reboot_timeout", 1800))
        # Also with policy reboot: work may have begun on the GPUs since the node was looked at.
        answer = self.run_module(MODULE, args, task_vars)
        if not allowed or answer.get("failed") or answer.get("unreachable"):
            return clean_result(dict(result, **answer))
        if not answer.get("reboot_required") or self._task.check_mode:
            return dict(result, **dict(answer, rebooted=False))
        _controller.require()
        booted = dict({"rebooted": False}, **self.rebooter(timeout).run(task_vars=task_vars))
        return clean_result(dict(result, **dict(answer, reboot_required=not booted.get("rebooted", False), **booted)))

    def rebooter(self, timeout):
        """Ansible's own reboot, with a command that neither a playbook that has ended nor an attempt that the node does
        not belong to any more gives.
        """
        task = self._task.copy()
        task.args = {"msg": MESSAGE, "reboot_timeout": timeout}
        action = self._shared_loader_obj.action_loader.get(
            REBOOT,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        found, guard = action.get_shutdown_command, claim.guard(self.find_token())

        def shutdown(*args, **kwargs):
            command = found(*args, **kwargs)
            _controller.require()  # what follows is the command itself
            return guard + command

        read = action.get_system_boot_time
        action.get_shutdown_command = shutdown
        action.get_system_boot_time = lambda *args, **kwargs: boot_id(read(*args, **kwargs))
        return action

    def find_token(self):
        """The attempt of a rollout that this task belongs to; empty when it belongs to none."""
        return claim.of_environment(self._task.environment)
