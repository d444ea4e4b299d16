# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module of the node that runs on without a connection, and is asked about.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import os
import time

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking.waiting import Waiting

STATUS = "ansible.legacy.async_status"
LIMIT_S = 86400  # Ansible's own supervisor on the node ends what takes longer; modules have limits of their own long before
FIRST_LOOK_S = 2.0
LONGEST_S = 30.0
SHARE = 0.25  # of the time that it has taken so far; so a short one is not waited for long, and a long one is not asked about all the time
# A connection that lasts survives a network that is away for a while, and so does asking anew.
SILENT_S = 120.0
SILENT_LOOK_S = 10.0
OF_THE_JOB = ("ansible_job_id", "results_file", "started", "finished", "erased")


def next_look_s(taken_s):
    """When to ask again about what has taken so long already."""
    return min(LONGEST_S, max(FIRST_LOOK_S, taken_s * SHARE))


def run(action, waiting, module, args, task_vars, key="job", clock=time.monotonic):
    """The result of a module, as ActionBase._execute_module answers it.

    Where the task may be given up, the module is started on the node and asked about, with its number in the note under KEY.
    """
    if not waiting.gives_up:
        return action._execute_module(module_name=module, module_args=args, task_vars=task_vars)
    job = waiting.note.get(key)
    if job is None:
        began = clock()
        answer = _start(action, module, args, task_vars)
        if answer.get("failed") or answer.get("unreachable") or not answer.get("ansible_job_id"):
            return answer
        waiting.pause(FIRST_LOOK_S, **{key: {"id": answer["ansible_job_id"], "place": os.path.dirname(answer["results_file"]), "began": began}})
    try:
        answer = _ask(action, job, "status", task_vars)
        if _unknown(answer) and not _runs(action, job):
            answer = _ask(action, job, "status", task_vars)  # it may have ended meanwhile
            if _unknown(answer):
                answer = dict(answer, failed=True, msg="none of its processes is on the node any more; it was killed, or the node booted")
    except AnsibleConnectionFailure:
        silent = clock() if job.get("silent") is None else job["silent"]
        if clock() - silent >= SILENT_S:
            raise
        with contextlib.suppress(AnsibleError, AttributeError):  # not every connection outlives its task
            action._connection.reset()
        return waiting.pause(SILENT_LOOK_S, **{key: dict(job, silent=silent)})
    if answer.get("unreachable"):
        return answer
    if answer.get("finished"):
        with contextlib.suppress(AnsibleError):  # the result is here
            _ask(action, job, "cleanup", task_vars)
        return {name: value for name, value in answer.items() if name not in OF_THE_JOB}
    taken_s = clock() - job["began"]
    if answer.get("failed") or taken_s > LIMIT_S:
        words = "%s was started on the node as job %s %d s ago, and what became of it is not known: %s. Whether it still runs there, ps on the node tells."
        return dict(answer, failed=True, msg=words % (module, job["id"], taken_s, answer.get("msg") or "it did not end"))
    return waiting.pause(next_look_s(taken_s), **{key: dict(job, silent=None)})


def _unknown(answer):
    return not (answer.get("finished") or answer.get("failed") or answer.get("unreachable"))


def _runs(action, job):
    """Whether processes of the job are on the node: Ansible's supervisor has its number among its arguments."""
    name = job["id"].partition(".")[0]
    # The brackets keep the command from finding itself.
    found = action._low_level_execute_command("grep -las -- '[%s]%s' /proc/[0-9]*/cmdline" % (name[0], name[1:]))
    # A process that ends while it is looked at is an error of grep, and says nothing.
    return found["rc"] != 1 or bool(found.get("stdout", "").strip())


def _start(action, module, args, task_vars):
    # Ansible takes the limit from the task, which was none of this kind when it began, and is none when it ends.
    action._task.async_val = LIMIT_S
    try:
        return action._execute_module(module_name=module, module_args=args, task_vars=task_vars, wrap_async=True)
    finally:
        action._task.async_val = 0


def _ask(action, job, mode, task_vars):
    return action._execute_module(
        module_name=STATUS, module_args={"jid": job["id"], "mode": mode, "_async_dir": job["place"]}, task_vars=task_vars)


class LongAction(ActionBase):
    """Runs one module with the arguments of the task."""

    MODULE = ""
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        if self._task.async_val:
            answer = self._execute_module(module_name=self.MODULE, module_args=args, task_vars=task_vars, wrap_async=self._task.async_val)
        else:
            answer = run(self, Waiting(self, task_vars), self.MODULE, args, task_vars)
        result.update(answer)
        return result
