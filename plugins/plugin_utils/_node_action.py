# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the actions that run a module of the collection on a node or on a service host."""

from __future__ import annotations

import contextlib
import re
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _controller, _redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result

# Set in the environment of a task: seconds for which a node that does not answer is tried again.
RECONNECT = "GPUFLEET_RECONNECT_S"
RETRY_S = 5.0
STATUS = "ansible.legacy.async_status"
# Polls in a row that may end without an answer before the job is given up. A node that boots or loses its network is
# not silent: its connection fails.
SILENT = 3
# Seconds between two looks whether the job still runs.
LOOK_S = 30
# The keys of async_status that are about the job and not of the module.
JOB_KEYS = ("ansible_job_id", "started", "finished", "results_file", "erased", "_ansible_parsed")
# The id of a job: what Ansible gave its wrapper as an argument, and the pid of the wrapper.
JOB_ID = re.compile(r"j([0-9]{1,20})(?:\.[0-9]+)?")
# Prints the boot id, and 1 if no process has the job in its arguments. The brackets keep pgrep from finding the shell.
LOOK = "cat /proc/sys/kernel/random/boot_id; pgrep -f '[j]%s' > /dev/null; echo $?"


# How Ansible's message begins for a module that printed no result.
NO_RESULT = ("Module result deserialization failed", "MODULE FAILURE")


def name_cause(answer: t.Any) -> t.Any:
    """Begin the message of a module that printed no result with what the node printed, such as C(sudo: not found)."""
    if not isinstance(answer, dict) or not str(answer.get("msg") or "").startswith(NO_RESULT):
        return answer
    lines = "%s\n%s" % (answer.get("module_stdout") or "", answer.get("module_stderr") or "")
    said = [line for line in lines.splitlines() if line.strip()]
    if said:
        cause = _redaction.reason(said[-1 if "Traceback (most recent call last):" in lines else 0])
        answer["msg"] = "%s. Check sudo (become) and the Python of the node. Ansible says: %s" % (
            cause.rstrip("."),
            answer["msg"],
        )
    return answer


class NodeActionBase(ActionBase):
    def _execute_module(self, *given: t.Any, **more: t.Any) -> t.Dict[str, t.Any]:
        """Run a module; try a node again that does not answer for a while, where the task says for how long.

        For Ansible a node that does not answer once has left the play, and no rescue rolls it back. What may run twice
        is safe to: a module that changes the node takes its lock and finds what is done already.
        """
        deadline = None
        while True:
            try:
                return name_cause(super()._execute_module(*given, **more))
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

    def run_module(self, module_name, module_args, task_vars, **more) -> dict:
        """Return the checked and clean answer of a module of the collection. MORE: options of _execute_module."""
        answer = self._execute_module(module_name=module_name, module_args=module_args, task_vars=task_vars, **more)
        return clean_result(_answers.accept(module_name.rsplit(".", 1)[-1], answer))


class ModuleAction(NodeActionBase):
    """Run a module on the node, by itself there where the task has async, and check its answer."""

    _supports_check_mode = True
    _supports_async = True
    MODULE = ""

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars)
        result.update(Background(self).run(self.MODULE, dict(self._task.args), task_vars))
        return result


class Background:
    """Run modules with Ansible's async where the task of an action has it, so that a broken connection ends none.

    Each call to the node has its own limit. Ansible's own wait has none, does not check the answer, and polls a job to
    its end that a reboot or a kill has ended already.
    """

    def __init__(
        self,
        action: ActionBase,
        pause: t.Callable[[float], t.Any] = _controller.pause,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        self.action, self.pause, self.clock = action, pause, clock
        self.limit_s = action._task.async_val
        if self.limit_s:
            # Ansible has nothing left to wait for.
            self.poll_s, action._task.poll = max(1, action._task.poll or 1), 0

    def run(self, module: str, args: dict[str, t.Any], task_vars: t.Any) -> dict[str, t.Any]:
        """Return the checked and clean result of MODULE; without async it lasts as long as the connection does.

        Raises:
            AnswerTimeout: the node takes connections and does not answer.
        """
        if not self.limit_s:
            answer = self.action._execute_module(module_name=module, module_args=args, task_vars=task_vars)
        else:
            _controller.require()
            self.task_vars, self.node = task_vars, str((task_vars or {}).get("inventory_hostname", "the node"))
            self.answer_s = _controller.answer_timeout(self.action, task_vars)
            answer = self._run_job(module, args)
        return clean_result(_answers.accept(module.rsplit(".", 1)[-1], answer))

    def _run_job(self, module, args) -> dict:
        with _controller.limit(self.answer_s, self.node):
            begun = self.action._execute_module(
                module_name=module, module_args=args, task_vars=self.task_vars, wrap_async=True
            )
        job = begun.get("ansible_job_id")
        if begun.get("failed") or not job:
            return begun
        answer, why = self._wait(job)
        if why:
            return {
                "failed": True,
                "msg": "%s: %s %s (job %s). What is there already is not done twice: run the playbook again."
                % (self.node, module, why, job),
            }
        with contextlib.suppress(_controller.AnswerTimeout), _controller.limit(self.answer_s, self.node):
            self._ask(job, "cleanup")
        self.action.cleanup(force=True)
        return {
            key: value
            for key, value in answer.items()
            if key not in JOB_KEYS and not (key.startswith("std") and not value)
        }

    def _wait(self, job) -> tuple[dict, str]:
        """Wait for a job; return (its last answer, why there is no result)."""
        first = self._look(job)
        deadline, look_at, silent, lost = self.clock() + self.limit_s, self.clock() + LOOK_S, 0, ""
        while True:
            if self.clock() >= deadline:
                return {}, "did not end within %d s (async of the task) and is stopped on the node" % self.limit_s
            self.pause(self.poll_s)
            try:
                with _controller.limit(self.answer_s, self.node):
                    answer, silent = self._ask(job, "status"), 0
            except _controller.AnswerTimeout:
                silent += 1
                if silent >= SILENT:
                    raise
                continue
            if is_finished(answer):
                return answer, ""
            if lost and answer:
                return {}, lost  # it had not ended when it was found to be lost, nor by now
            if not answer:
                look_at = self.clock()  # it may have been booted
            elif self.clock() >= look_at:
                look_at = self.clock() + LOOK_S
                lost = find_loss(first, self._look(job))

    def _look(self, job) -> tuple:
        """Return (boot id of the node or empty, whether a process of the job runs, None if that cannot be told)."""
        found = JOB_ID.fullmatch(str(job))
        command = LOOK % found[1] if found else LOOK.partition(";")[0]
        try:
            with _controller.limit(self.answer_s, self.node):
                lines = self.action._low_level_execute_command(command)["stdout"].split()
        except (AnsibleError, OSError, TypeError, AttributeError):
            return "", None
        return (lines[0] if lines and len(lines[0]) == 36 else ""), {("0",): True, ("1",): False}.get(tuple(lines[1:]))

    def _ask(self, job, mode) -> dict:
        """Return what the node knows of the job; empty if its connection fails, as it may boot or lose its network."""
        task = self.action._task.copy()
        task.async_val, task.args = 0, {"jid": job, "mode": mode}
        handler = self.action._shared_loader_obj.action_loader.get(
            STATUS,
            task=task,
            connection=self.action._connection,
            play_context=self.action._play_context,
            loader=self.action._loader,
            templar=self.action._templar,
            shared_loader_obj=self.action._shared_loader_obj,
        )
        try:
            return handler.run(task_vars=self.task_vars)
        except (AnsibleError, OSError):
            reset = getattr(self.action._connection, "reset", None)
            if reset is not None:
                reset()
            return {}


def find_loss(first: tuple[str, bool | None], now: tuple[str, bool | None]) -> str:
    """Return what ended a job without a result; empty if it runs, or if that cannot be told.

    Args:
        first: the boot id of the node when the job began, and whether its process was found.
        now: the same, now. A process counts as gone only where it was found before.
    """
    if first[0] and now[0] and first[0] != now[0]:
        return "was ended by a boot of the node"
    return "has no process on the node any more: it was killed" if first[1] and now[1] is False else ""


def is_finished(answer: t.Mapping[str, t.Any]) -> bool:
    """Return True if the job has ended. A failure that was not parsed is a result that is only half written."""
    return bool(answer.get("finished") or answer.get("failed") and answer.get("_ansible_parsed"))
