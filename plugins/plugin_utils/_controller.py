# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook's own process, as a worker of it knows it.

A worker outlives a playbook that is killed, with another process for its parent, and the task that it is at goes on.
Multiprocessing remembers who started it, so that the two are told apart.
"""

from __future__ import annotations

import multiprocessing
import os
import time

from ansible.errors import AnsibleError


class ControllerError(AnsibleError):
    """This task has no playbook any more; the message says so."""


def found(parent, ppid, mine):
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


def require():
    """The pid of the controller; refuses when it has ended."""
    parent = multiprocessing.parent_process()
    pid, why = found(parent.pid if parent else None, os.getppid(), os.getpid())
    if pid is None:
        raise ControllerError(why)
    return pid


def pause(seconds, sleep=None):
    """Wait for SECONDS, and refuse to go on when the controller ended meanwhile."""
    require()
    (sleep or time.sleep)(seconds)
    require()
