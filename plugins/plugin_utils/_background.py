# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a module on the node with Ansible's async for an action plugin that goes on with its result, so that a broken
connection does not end it.
"""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _controller

STATUS = "ansible.legacy.async_status"
# Answers in a row that a node may owe before its job is given up. One that boots or loses its network is not silent:
# its connection fails.
SILENT = 3
# What async_status says of the job and not of the module.
OF_THE_JOB = ("ansible_job_id", "started", "finished", "results_file", "erased", "_ansible_parsed")


class Background:
    """The wait of one action for modules that the node runs by itself, where its task has async.

    The wait is the action's: Ansible waits only for what an action returns unfinished, and would take the module's
    result for the task's.
    """

    def __init__(
        self,
        action: ActionBase,
        pause: t.Callable[[float], t.Any] = _controller.pause,
        clock: t.Callable[[], float] = time.monotonic,
    ):
        self.action, self.pause, self.clock = action, pause, clock
        self.limit = action._task.async_val
        if self.limit:
            # Ansible has nothing left to wait for.
            self.poll, action._task.poll = max(1, action._task.poll or 1), 0

    def run(self, module: str, args: t.Dict[str, t.Any], task_vars: t.Any) -> t.Dict[str, t.Any]:
        """Return the checked result of MODULE; without async it lasts as long as the connection does.

        Raises:
            AnswerTimeout: the node takes connections and does not answer.
        """
        return _answers.accept(module.rsplit(".", 1)[-1], self._run(module, args, task_vars))

    def _run(self, module: str, args: t.Dict[str, t.Any], task_vars: t.Any) -> t.Dict[str, t.Any]:
        if not self.limit:
            return self.action._execute_module(module_name=module, module_args=args, task_vars=task_vars)
        _controller.require()
        seconds, node = _controller.answer_timeout(self.action, task_vars), name_node(task_vars)
        with _controller.limit(seconds, node):
            begun = self.action._execute_module(
                module_name=module, module_args=args, task_vars=task_vars, wrap_async=True
            )
        job = begun.get("ansible_job_id")
        if begun.get("failed") or not job:
            return begun
        deadline, answer, silent = self.clock() + self.limit, {}, 0
        while not ended(answer):
            if self.clock() >= deadline:
                return late(module, job, self.limit, task_vars)
            self.pause(self.poll)
            try:
                with _controller.limit(seconds, node):
                    answer, silent = ask(self.action, job, "status", task_vars), 0
            except _controller.AnswerTimeout:
                silent += 1
                if silent >= SILENT:
                    raise
        with contextlib.suppress(_controller.AnswerTimeout), _controller.limit(seconds, node):
            ask(self.action, job, "cleanup", task_vars)
        self.action.cleanup(force=True)
        return {
            key: value
            for key, value in answer.items()
            if key not in OF_THE_JOB and not (key.startswith("std") and not value)
        }


def ended(answer: t.Mapping[str, t.Any]) -> bool:
    """Return whether the job has ended. A failure that was not parsed is a result that is only half written."""
    return bool(answer.get("finished") or answer.get("failed") and answer.get("_ansible_parsed"))


def ask(action: ActionBase, job: str, mode: str, task_vars: t.Any) -> t.Dict[str, t.Any]:
    """Return what the node says of the job; nothing where it does not answer: it may boot, or its network may be away
    for a while.
    """
    task = action._task.copy()
    task.async_val, task.args = 0, {"jid": job, "mode": mode}
    handler = action._shared_loader_obj.action_loader.get(
        STATUS,
        task=task,
        connection=action._connection,
        play_context=action._play_context,
        loader=action._loader,
        templar=action._templar,
        shared_loader_obj=action._shared_loader_obj,
    )
    try:
        return handler.run(task_vars=task_vars)
    except (AnsibleError, OSError):
        reset = getattr(action._connection, "reset", None)
        if reset is not None:
            reset()
        return {}


def late(module: str, job: str, limit: int, task_vars: t.Any) -> t.Dict[str, t.Any]:
    """Return the failure of a job that is past its time; what runs it on the node stops it then."""
    return {
        "failed": True,
        "msg": (
            "%s: %s did not end within %d s (async of the task) and is stopped on the node: job %s. See what keeps the "
            "node busy, and run the playbook again: what is there already is not done twice."
            % (name_node(task_vars), module, limit, job)
        ),
    }


def name_node(task_vars: t.Any) -> str:
    return str((task_vars or {}).get("inventory_hostname", "the node"))
