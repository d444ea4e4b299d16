# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's lock: one change at a time, and those who wait are told who holds it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import stat
import time

# In the environment of a call that belongs to an attempt of a rollout; claim.FENCE.
FENCE = "GPUFLEET_FENCE"
# The options of every module that takes it; the fragment _node_lock documents them.
ARGUMENTS = {"lock_timeout_s": {"type": "int", "default": 600}, "rollout_id": {"type": "str"}, "step": {"type": "str"}}
DEFAULT_PATH = "/run/gpufleet.lock"
POLL_S = 0.5


class LockTimeout(Exception):
    """The lock was not free before the deadline. ``holder`` is what is known of who has it."""

    def __init__(self, path, timeout_s, holder, words="") -> None:
        self.path = path
        self.timeout_s = timeout_s
        self.holder = holder
        super().__init__(words or describe(path, timeout_s, holder))


class Fenced(LockTimeout):
    """The lock is free, and not for this call: it belongs to an attempt of a rollout that has been followed by another
    one.
    """

    def __init__(self, path, why) -> None:
        super().__init__(path, 0, {}, str(why))


class NodeLock:
    """``with NodeLock(owner={...}, timeout_s=600) as lock:`` holds the node.

    The lock is a flock on a file that is never removed. It is freed when the last process that has it open ends: hand
    ``lock.fd`` to commands (``Runner(pass_fds=[lock.fd])``), so that a module that is killed leaves the lock with the
    command that is still running.

    A call that belongs to an attempt of a rollout (:data:`FENCE` in its environment) gets it only while the node
    belongs to that attempt.
    """

    def __init__(self, path=DEFAULT_PATH, owner=None, timeout_s=0) -> None:
        self.path = path
        self.owner = dict(owner or {})
        self.timeout_s = timeout_s
        self.fd = None
        self.waited_s = 0.0

    def acquire(self) -> NodeLock:
        fd = open_file(self.path)
        started = time.monotonic()
        deadline = started + self.timeout_s
        try:
            while not try_flock(fd):
                if time.monotonic() >= deadline:
                    raise LockTimeout(self.path, self.timeout_s, read_holder(self.path))
                time.sleep(min(POLL_S, max(0.01, deadline - time.monotonic())))
            attempt = self._describe_admission()
        except BaseException:
            os.close(fd)
            raise
        self.waited_s = round(time.monotonic() - started, 3)
        self.fd = fd
        owner = {key: value for key, value in self.owner.items() if value is not None}
        self._write(dict(attempt, **dict(owner, pid=os.getpid(), started=time.time())))
        return self

    def _describe_admission(self) -> dict:
        """Return what this call reports of its attempt once it has the lock: the previous holder may have been the next
        attempt.
        """
        text = os.environ.get(FENCE, "")
        if not text:
            return {}
        from . import claim  # here, so that this file is of use by itself

        try:
            claim.require(text)
        except claim.ClaimError as exc:
            raise Fenced(self.path, exc) from None
        mine = claim.from_token(text)[0]
        return {"rollout_id": mine["rollout_id"], "attempt": mine["attempt"]}

    def release(self) -> None:
        if self.fd is None:
            return
        # closed, not unlocked: a command that still runs with this descriptor goes on holding the node
        self._write(dict(read_json(self.path), finished=time.time()))
        os.close(self.fd)
        self.fd = None

    def update(self, **fields) -> None:
        """Say more about what the holder is doing (a step, for those who wait)."""
        self.owner.update(fields)
        current = read_json(self.path)
        self._write(dict(current, **fields))

    def _write(self, content) -> None:
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, json.dumps(content, sort_keys=True).encode("utf-8") + b"\n", 0)

    def __enter__(self) -> NodeLock:
        return self.acquire()

    def __exit__(self, exc_type, exc, tb) -> None:
        self.release()


def open_file(path) -> int:
    """A descriptor of a lock file, which is made if it is missing; OSError for one that is not this user's own.

    flock(2) needs no more than a file that can be read, so no other user may open it. Links are not followed.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise OSError(
                errno.EPERM,
                "It is no regular file, or belongs to user %d; expected one of user %d. Remove it"
                % (about.st_uid, os.geteuid()),
                path,
            )
        if stat.S_IMODE(about.st_mode) != 0o600:
            os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def try_flock(fd) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in (errno.EAGAIN, errno.EACCES, errno.EINTR):
            return False
        raise
    return True


def read_json(path) -> dict:
    try:
        with open(path, encoding="utf-8") as handle:
            content = json.load(handle)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_holder(path, proc="/proc") -> dict:
    """Return what the lock file says of its holder, if that process is alive, and which processes have the file
    open."""
    holder = read_json(path)
    pid = holder.get("pid")
    holder["pid_alive"] = isinstance(pid, int) and os.path.exists(os.path.join(proc, str(pid)))
    started = holder.get("started")
    holder["age_s"] = round(max(0.0, time.time() - started), 1) if isinstance(started, (int, float)) else None
    holder["processes"] = openers(path, proc)
    return holder


def openers(path, proc="/proc") -> list[dict]:
    """Processes that have the lock file open, this one left out: the holder, and what it started."""
    found = []
    real = os.path.realpath(path)
    for pid in sorted((int(name) for name in os.listdir(proc) if name.isdigit()) if os.path.isdir(proc) else []):
        if pid == os.getpid():
            continue
        try:
            links = [
                os.readlink(os.path.join(proc, str(pid), "fd", fd))
                for fd in os.listdir(os.path.join(proc, str(pid), "fd"))
            ]
        except OSError:
            continue  # the process ended, or it is another user's
        if real in links:
            found.append({"pid": pid, "comm": read_comm(proc, pid)})
    return found


def read_comm(proc, pid) -> str | None:
    try:
        with open(os.path.join(proc, str(pid), "comm"), encoding="utf-8") as handle:
            return handle.read().strip()
    except OSError:
        return None


def describe(path, timeout_s, holder) -> str:
    """One paragraph for an operator: who holds the node, since when, and what to do."""
    pid = holder.get("pid")
    who = "process %s" % pid if pid else "an unnamed process"
    details = ["%s %s" % (key, holder[key]) for key in ("module", "step", "rollout_id", "attempt") if holder.get(key)]
    if holder.get("age_s") is not None:
        details.append("for %d s" % holder["age_s"])
    others = ["%s (%s)" % (item["pid"], item["comm"]) for item in holder.get("processes", []) if item["pid"] != pid]
    life = ""
    if pid and (holder.get("finished") or not holder.get("pid_alive")):
        life = " That process has ended, but what it started still runs."
    if others:
        life += " Processes that have the lock open: %s." % ", ".join(others)
    return (
        "The node is locked: %s is held by %s%s.%s It was not free after %s s, and nothing was started. Next "
        "step: wait until that work ends and run again, or look at the process on the node; it must not be run "
        "twice at a time." % (path, who, " (%s)" % ", ".join(details) if details else "", life, timeout_s)
    )


def ignore_hangup() -> None:
    """A change goes on when the controller or its connection is lost: its end is read by the next run."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
