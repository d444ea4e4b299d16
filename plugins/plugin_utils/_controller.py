# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook's own process, as a worker of it knows it, and the time that it gives a node for an answer.

A worker outlives a playbook that is killed, with another process for its parent, and the task that it is at goes on.
Multiprocessing remembers who started it, so that the two are told apart.
"""

from __future__ import annotations

import contextlib
import getpass
import multiprocessing
import os
import signal
import socket
import threading
import time
import typing as t

from ansible.errors import AnsibleError


class ControllerError(AnsibleError):
    """This task has no playbook any more; the message says so."""


class AnswerTimeout(AnsibleError):
    """A host took a connection and did not answer in time."""


class _Expired(BaseException):
    """Ends what waits for an answer. No error, so that a connection plugin that tries again after one passes it on."""


# Seconds that a node has for one answer, where gpufleet_answer_timeout does not say so.
ANSWER_S = 300


def sign(facts: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """Return FACTS with the user and the name of the controller that runs this, where they are not given."""
    user, controller = facts.get("user") or getpass.getuser(), facts.get("controller") or socket.gethostname()
    return {**facts, "user": user, "controller": controller}


def answer_timeout(action, task_vars) -> int:
    """Return the seconds that a node has for one answer: gpufleet_answer_timeout of the task, or the default."""
    found = (task_vars or {}).get("gpufleet_answer_timeout")
    return max(1, int(action._templar.template(found) or ANSWER_S)) if found else ANSWER_S


@contextlib.contextmanager
def limit(seconds: float, what: str) -> t.Iterator[None]:
    """End the block after SECONDS. The limit of the task (its keyword timeout) goes on, and counts where it is earlier.

    Raises:
        AnswerTimeout: WHAT did not answer in time.
    """
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    if threading.current_thread() is not threading.main_thread() or 0 < left <= seconds:
        yield
        return

    def expire(dummy_number, dummy_frame):
        raise _Expired

    before, began = signal.signal(signal.SIGALRM, expire), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Expired:
        raise AnswerTimeout(
            "%s took the connection and did not answer within %g s (gpufleet_answer_timeout). See what keeps the host "
            "busy, and run the playbook again." % (what, seconds)
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)))


def find_controller(parent, ppid, mine) -> tuple[int | None, str]:
    """(pid of the controller, why there is none): PARENT started this process MINE (None: it is itself the
    controller), PPID is its parent now.
    """
    if parent is not None and parent != ppid:
        return None, (
            "The playbook that this task belongs to, process %d, has ended: the task may not go on without it. Nothing "
            "more was begun. Run the playbook again." % parent
        )
    pid = mine if parent is None else parent
    if pid == 1:
        return None, (
            "The playbook is the first process of its container, and a task of it could not tell when it has ended. "
            "Run it below an init, such as with podman run --init or docker run --init. Nothing was changed."
        )
    return pid, ""


def require() -> int:
    """The pid of the controller; refuses when it has ended."""
    parent = multiprocessing.parent_process()
    pid, why = find_controller(parent.pid if parent else None, os.getppid(), os.getpid())
    if pid is None:
        raise ControllerError(why)
    return pid


def pause(seconds, sleep=None) -> None:
    """Wait for SECONDS, and refuse to go on when the controller ended meanwhile."""
    require()
    (sleep or time.sleep)(seconds)
    require()
