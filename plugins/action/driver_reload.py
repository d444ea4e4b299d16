# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module driver_reload, and reboots the node when it says so and the task allows it."""

from __future__ import annotations

import time

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking.job import next_look_s
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking.waiting import Waiting

MODULE = "gpufleet.lifecycle.driver_reload"
REBOOT = "ansible.builtin.reboot"
MESSAGE = "Reboot for a change of the GPU driver"


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        self.waiting = Waiting(self, task_vars)
        args = dict(self._task.args)
        allowed = boolean(args.pop("reboot", False), strict=False)
        timeout = int(args.pop("reboot_timeout", 1800))
        gone = self.waiting.note.get("reboot")  # when this action goes on after it gave its worker back
        if gone:
            answer, booted = gone["answer"], self.back(gone, timeout)
        else:
            # Also with policy reboot: somebody may have begun to work on the GPUs since the node was looked at.
            answer = self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)
            if not allowed or answer.get("failed") or answer.get("unreachable"):
                return dict(result, **answer)
            if not answer.get("reboot_required") or self._task.check_mode:
                return dict(result, **dict(answer, rebooted=False))
            _controller.require()
            booted = self.reboot(answer, timeout, task_vars)
        return dict(result, **dict(answer, reboot_required=not booted.get("rebooted", False), **booted))

    def rebooter(self, timeout):
        """Ansible's own reboot, with a command that neither a playbook that has ended nor an attempt that the node does not belong to any more gives."""
        task = self._task.copy()
        task.args = {"msg": MESSAGE, "reboot_timeout": timeout}
        action = self._shared_loader_obj.action_loader.get(
            REBOOT, task=task, connection=self._connection, play_context=self._play_context, loader=self._loader, templar=self._templar,
            shared_loader_obj=self._shared_loader_obj)
        found, guard = action.get_shutdown_command, claim.guard(self.token())

        def shutdown(*args, **kwargs):
            command = found(*args, **kwargs)
            _controller.require()  # what follows is the command itself
            return guard + command

        action.get_shutdown_command = shutdown
        return action

    def token(self):
        """The attempt of a rollout that this task belongs to; empty when it belongs to none."""
        found = [one[claim.FENCE] for one in self._task.environment or [] if isinstance(one, dict) and one.get(claim.FENCE)]
        return str(found[-1]) if found else ""

    def reboot(self, answer, timeout, task_vars):
        """What Ansible's own reboot answers; where this worker may be given back, it is as soon as the node has been told to go."""
        action = self.rebooter(timeout)
        if self.waiting.gives_up:

            def leave(distribution, original_connection_timeout=None, action_kwargs=None):
                gone = {"answer": answer, "distribution": distribution, "before": action_kwargs["previous_boot_time"], "since": time.monotonic()}
                return self.waiting.pause(next_look_s(0), reboot=gone)

            action.validate_reboot = leave
        return dict({"rebooted": False}, **action.run(task_vars=task_vars))

    def back(self, gone, timeout):
        """One look whether the node is back from a reboot; it is looked at later if not, as long as its time lasts."""
        action, taken_s = self.rebooter(timeout), time.monotonic() - gone["since"]
        try:
            action.check_boot_time(gone["distribution"], gone["before"])
        except (AnsibleError, ValueError, OSError) as exc:
            # It does not answer yet, or it does and has not gone down yet.
            if isinstance(exc, AnsibleConnectionFailure):
                self.forget_connection()
            if taken_s < timeout:
                return self.waiting.pause(next_look_s(taken_s))
            return {"failed": True, "rebooted": True, "elapsed": int(taken_s), "msg": "Timed out waiting for last boot time check (timeout=%d): %s" % (
                timeout, to_text(exc).strip().rpartition("\n")[2])}
        booted = action.validate_reboot(gone["distribution"], None, action_kwargs={"previous_boot_time": gone["before"]})
        return dict({"rebooted": False}, **dict(booted, elapsed=int(time.monotonic() - gone["since"])))

    def forget_connection(self):
        """Ansible's connections that outlive a task are those of before the reboot."""
        try:
            self._connection.reset()
        except AnsibleConnectionFailure:
            pass
