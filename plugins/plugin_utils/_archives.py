# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's directory of compiled modules: what is in it, and which node compiles what is missing."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import digests

CLAIMS = ".claims"
POLL_S = 0.5


class ArchiveError(Exception):
    """The directory cannot be worked with, or what came does not agree with its digest."""


class Claims:
    """Permission to compile archives, one node each.

    A lock ends with the process that holds it, so that a killed run leaves none behind.

    ``say(node)`` is called once for every node that is waited for; ``waited_for`` lists them. ``pause(seconds)`` waits
    between two tries.
    """

    def __init__(self, directory, names, node, timeout_s, say, pause=time.sleep):
        self.directory, self.names, self.node, self.timeout_s, self.say = directory, sorted(names), node, timeout_s, say
        self.pause = pause
        self.waited_for = []
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            place = os.path.join(self.directory, CLAIMS)
            os.makedirs(place, mode=0o700, exist_ok=True)
            deadline = time.monotonic() + self.timeout_s
            # Always in the order of their names: two nodes never wait for each other.
            for name in self.names:
                self._take(os.path.join(place, name), deadline)
        except OSError as exc:
            self.stack.close()
            raise ArchiveError("cannot be written to: %s" % (exc.strerror or exc)) from exc
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *exc):
        self.stack.close()

    def _take(self, path, deadline):
        handle = self.stack.enter_context(open(path, "a+", encoding="utf-8"))
        while not self._locked(handle):
            holder = self._holder(handle)
            if holder not in self.waited_for:
                self.waited_for.append(holder)
                self.say(holder)
            if time.monotonic() >= deadline:
                raise ArchiveError(
                    "is still locked: after %d s node %s still compiles %s"
                    % (self.timeout_s, holder, os.path.basename(path))
                )
            self.pause(POLL_S)
        handle.truncate(0)
        handle.write(json.dumps({"node": self.node, "pid": os.getpid()}))
        handle.flush()

    @staticmethod
    def _locked(handle):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @staticmethod
    def _holder(handle):
        handle.seek(0)
        try:
            return str(json.loads(handle.read())["node"])
        except (ValueError, KeyError, TypeError):
            return "unknown"


def receive(directory, item, fetch):
    """Bring an archive into the directory, as the node described it: path, sha256, and the digest of its source.

    ``fetch(path)`` writes it there; it appears under its name when it agrees with the digest.
    """
    name, digest = os.path.basename(item["path"]), item["sha256"]
    handle, temporary = tempfile.mkstemp(prefix=".", dir=directory)
    os.close(handle)
    try:
        fetch(temporary)
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        found = digests.sha256_of(temporary)
        if found != digest:
            raise ArchiveError("got %s with sha256 %s, and the node says %s" % (name, found, digest))
        os.chmod(temporary, 0o644)
        # Without its digest an archive is not offered: an older one goes first, the new one comes last.
        beside = os.path.join(directory, name + ".sha256")
        if os.path.lexists(beside):
            os.unlink(beside)
        os.replace(temporary, os.path.join(directory, name))
        digests.write_sha256(os.path.join(directory, name), digest, item.get("source"))
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def send(action, directory, names, path, owner, task_vars):
    """Send archives from a directory of the controller to one on the host of an action, each before its digest.

    ACTION: the action plugin. OWNER: the owner and group of the files, as options of a module. Return the result of the
    first task that failed, or of the last one.
    """
    made = action._execute_module(
        module_name="ansible.legacy.file",
        module_args=dict(owner, path=path, state="directory", mode="0755"),
        task_vars=task_vars,
    )
    for source in [os.path.join(directory, name) + end for name in names for end in ("", ".sha256")]:
        if made.get("failed"):
            break
        made = _copy(action, source, dict(owner, dest=path + "/", mode="0644"), task_vars)
    return made


def _copy(action, source, options, task_vars):
    task = action._task.copy()
    # The action that copies knows no async.
    task.async_val, task.args = 0, dict(options, src=source)
    copies = action._shared_loader_obj.action_loader.get(
        "ansible.legacy.copy",
        task=task,
        connection=action._connection,
        play_context=action._play_context,
        loader=action._loader,
        templar=action._templar,
        shared_loader_obj=action._shared_loader_obj,
    )
    return copies.run(task_vars=task_vars)
