# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's directory of compiled modules: what is in it, and which node compiles what is missing."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
import time

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives, trees
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms.tree_archives import TreeError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _host_answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import others, store

AGREE = "gpufleet_builders_agree"
CLAIMS = ".claims"
POLL_S = 0.5


class ArchiveError(Exception):
    """The directory cannot be worked with, or what came does not agree with its digest."""


class Record:
    """The ledger's record of the archives that builders compiled: no other is sent to a node."""

    def __init__(self, url, directory, agree=1) -> None:
        """Args:

        url: The ledger; empty: the file of the artifact directory that DIRECTORY, that of the archives, is in.
        agree: How many builders have to have compiled the same modules.
        """
        self.agree = agree
        self.database = store.Store(url or store.default_url(os.path.dirname(os.path.abspath(directory))))

    def choose(self, described) -> list[dict]:
        """Return those of the archives ({name, sha256}) that are recorded."""
        known = others.find_builders(self.database, {item["name"]: item["sha256"] for item in described}, self.agree)
        self.database.rest()  # a compilation may follow
        return [item for item in described if item["name"] in known]

    def list_offered(self, directory, version) -> list[str]:
        """Return the names of the recorded archives of a version in a directory."""
        try:
            return [item["name"] for item in self.choose(tree_archives.describe_archives(directory, [version]))]
        except OSError as exc:
            raise ArchiveError("cannot be read: %s" % (exc.strerror,)) from exc

    def add(self, builder, archive, path) -> None:
        """Record the archive at PATH as one of a builder, with what can be compared with those of others."""
        try:
            modules = trees.unsigned_digest(path)
        except TreeError:
            modules = ""
        others.record_archive(self.database, builder, archive.name, archive.sha256, modules)
        self.database.rest()


def builders_agree(action, task_vars) -> int:
    """Return how many builders have to agree: gpufleet_builders_agree of the task, or one."""
    found = (task_vars or {}).get(AGREE)
    if found is None:
        return 1
    text = str(action._templar.template(found)).strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= 100):
        raise AnsibleActionFail(
            "%s is %r; expected a whole number from 1 to 100. Nothing was changed." % (AGREE, found)
        )
    return int(text)


class Claims:
    """Permission to compile archives, one node each.

    A lock ends with the process that holds it, so that a killed run leaves none behind. A node that does not come to an
    end keeps its claim, and no other waits for it longer than its time: that one compiles for itself.

    Attributes:
        held: The names that this node has the permission for.
        waited_for: The nodes that were waited for.
    """

    def __init__(self, directory, names, node, timeout_s, say, pause=time.sleep, clock=time.time, take=True) -> None:
        """Args:

        timeout_s: Seconds from a claim on for which others wait.
        say: ``say(node)`` is called once for every node that is waited for.
        pause: ``pause(seconds)`` waits between two tries.
        clock: The time of day, which all processes of this controller share.
        take: False for a node that only waits for others, and has no permission for anything.
        """
        self.directory, self.names, self.node, self.timeout_s, self.say = directory, sorted(names), node, timeout_s, say
        self.pause, self.clock, self.take = pause, clock, take
        self.held, self.waited_for = [], []
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> Claims:
        try:
            place = os.path.join(self.directory, CLAIMS)
            if self.take:
                os.makedirs(place, mode=0o700, exist_ok=True)
            began = self.clock()
            # Always in the order of their names: two nodes never wait for each other.
            for name in self.names:
                if self._take(os.path.join(place, name), began):
                    self.held.append(name)
        except OSError as exc:
            self.stack.close()
            raise ArchiveError("cannot be written to: %s" % (exc.strerror or exc)) from exc
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *exc) -> None:
        self.stack.close()

    def _take(self, path, began) -> bool:
        """Return True if the claim is this node's now; False if another node has had it for too long, or this one takes
        none.
        """
        try:
            create = os.O_CREAT if self.take else 0
            descriptor = os.open(path, os.O_RDWR | create | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False
        handle = self.stack.enter_context(os.fdopen(descriptor, "r+", encoding="utf-8"))
        while not self._try_lock(handle):
            holder, since = self._holder(handle)
            if holder not in self.waited_for:
                self.waited_for.append(holder)
                self.say(holder)
            if self.clock() >= min(since, began) + self.timeout_s:
                return False
            self.pause(POLL_S)
        if not self.take:
            handle.close()
            return False
        handle.seek(0)
        handle.truncate()
        handle.write(json.dumps({"node": self.node, "pid": os.getpid(), "since": self.clock()}))
        handle.flush()
        return True

    @staticmethod
    def _try_lock(handle) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(self, handle) -> tuple[str, float]:
        """Return (the node that has the claim, since when)."""
        handle.seek(0)
        try:
            found = json.loads(handle.read())
            return str(found["node"]), float(found["since"])
        except (ValueError, KeyError, TypeError):
            return "unknown", self.clock()


def receive(directory, archive, fetch, record=lambda path: None, compare=False) -> None:
    """Bring an archive into the directory. One that is there with its digest stays, whatever a host answers.

    Args:
        directory: The controller's directory.
        archive: What the host described (:class:`_host_answers.Archive`).
        fetch: ``fetch(path)`` writes the archive to PATH. It appears under its name when it agrees with the digest.
        record: ``record(path)`` is called before it appears, with where it is then.
        compare: Record one of a name that is there with another digest as well, and keep the one that is there.

    Raises:
        ArchiveError: the archive differs from its digest, is too large, or is there already with another digest.
    """
    path = os.path.join(directory, archive.name)
    second = compare and tree_archives.read_whole_digest(path) not in (None, archive.sha256)
    if not second and has(path, archive):
        record(path)
        return
    handle, temporary = tempfile.mkstemp(prefix=".", dir=directory)
    os.close(handle)
    try:
        with _host_answers.limit_file_size(_host_answers.MAX_ARCHIVE_BYTES):
            fetch(temporary)
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        _host_answers.check_size(os.stat(temporary).st_size, _host_answers.MAX_ARCHIVE_BYTES, archive.name)
        found = tree_archives.sha256_of(temporary)
        if found != archive.sha256:
            raise ArchiveError("got %s with sha256 %s, and the host says %s" % (archive.name, found, archive.sha256))
        if not second and has(path, archive):
            return
        record(temporary)
        if second:
            return
        os.chmod(temporary, 0o644)
        # Without its digest an archive is not offered: what is left of a damaged one goes first, the digest comes last.
        beside = path + ".sha256"
        if os.path.lexists(beside):
            os.unlink(beside)
        os.replace(temporary, path)
        tree_archives.write_sha256(path, archive.sha256, archive.source)
    except _host_answers.AnswerError as exc:
        raise ArchiveError("got what is no archive: %s" % exc) from exc
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def has(path, archive) -> bool:
    """Return True if the archive lies at PATH with its digest; refuse to replace one with another digest."""
    found = tree_archives.read_whole_digest(path)
    if found and found != archive.sha256:
        raise ArchiveError(
            "has %s already, with sha256 %s, and got one with %s. Remove the archive and its .sha256 there to have the "
            "module compiled again" % (archive.name, found, archive.sha256)
        )
    return bool(found)


def send(action, directory, names, path, owner, task_vars) -> dict:
    """Send archives from a directory of the controller to one on the host of an action, each before its digest.

    ACTION: the action plugin. OWNER: the owner and group of the files, as options of a module. Return the result of the
    first task that failed, or of the last one.
    """
    sources = [os.path.join(directory, name) + end for name in names for end in ("", ".sha256")]
    for source in sources:
        if not stat.S_ISREG(os.lstat(source).st_mode):
            raise ArchiveError("has %s, which is no regular file" % source)
    made = {}
    for source in sources:
        if made.get("failed"):
            break
        # The mode of directories is that of new ones: what is there keeps its own.
        options = dict(owner, dest=path + "/", mode="0644", directory_mode="0755", decrypt=False)
        made = _copy(action, source, options, task_vars)
    return made


def _copy(action, source, options, task_vars) -> dict:
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
