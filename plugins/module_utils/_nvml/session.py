# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work in a child process that is never waited for past a deadline.

NVML can hang inside the kernel, where not even SIGKILL ends the process. So the child has a session of its own and no
descriptor of ours but its result pipe (a task would otherwise hang on the open pipes), and one that cannot be ended is
remembered by pid and start
time: later calls say so instead of stacking another on top.
"""

from __future__ import annotations

import collections
import json
import mmap
import os
import select
import signal
import sys
import time
import traceback

from .._node import files, identity, proc_tasks

RESULT_LIMIT = 8 * 1024 * 1024
GRACE_S = 1.0

Outcome = collections.namedtuple("Outcome", ["status", "value", "message"])


Started = collections.namedtuple(
    "Started", ["child", "pipe", "until", "deadline_s", "stuck_file", "kill", "subject", "place"]
)


class _Place:
    """The position of the child, in memory shared with its parent: it is set before every call, so it must not cost a
    system call.
    """

    SIZE = 256

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self.SIZE)

    def tell(self, where) -> None:
        data = where.encode("utf-8")[: self.SIZE - 1] + b"\0"
        self._memory[: len(data)] = data

    def get_text(self) -> str:
        return self._memory[:].partition(b"\0")[0].decode("utf-8", "replace")

    def close(self) -> None:
        self._memory.close()


def run(work, deadline_s, stuck_file=None, kill=os.killpg, subject="NVML"):
    """Run WORK(progress) in a child; its JSON-able result comes back as an Outcome.

    status: ok; timeout (no result before the deadline); stuck (a former child still hangs, nothing was started);
    crashed. SUBJECT is what the child talks to, for the messages.
    """
    started = start(work, deadline_s, stuck_file, kill, subject)
    return started if isinstance(started, Outcome) else finish(started)


def start(work, deadline_s, stuck_file=None, kill=os.killpg, subject="NVML"):
    """Begin what run does; the answer is for finish. An Outcome if nothing was started."""
    remembered = recall_child(stuck_file)
    if remembered:
        return Outcome(
            "stuck",
            None,
            "previous %s call still stuck (pid %d since %s); the driver hangs in the kernel: look for NVRM lines in "
            "the kernel log and reboot the node" % (subject, remembered["pid"], remembered["since"]),
        )
    sys.stdout.flush()
    sys.stderr.flush()
    place = _Place()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, write_end, place, deadline_s + 2 * GRACE_S)
    os.close(write_end)
    return Started(child, read_end, time.monotonic() + deadline_s, deadline_s, stuck_file, kill, subject, place)


def finish(started):
    """The Outcome of what start began.

    Several may be started before the first is waited for: each has its own deadline.
    """
    child, subject = started.child, started.subject
    try:
        lines, complete, problem = _collect_lines(started.pipe, started.until)
    finally:
        os.close(started.pipe)
    where = started.place.get_text()
    started.place.close()
    at = " in %s" % (where,) if where else ""
    worker = "the process that uses %s" % (subject,)
    if not complete:
        gone = _end_child(child, started.kill)
        message = (
            "%s did not answer within %g s%s; look for NVRM lines in the kernel log and reboot the node if it persists"
            % (subject, started.deadline_s, at)
        )
        if problem:
            message = "%s was stopped%s: %s" % (worker, at, problem)
        if not gone:
            remember_child(started.stuck_file, child)
            message += "; the process (pid %d) cannot be ended and is still stuck" % (child,)
        return Outcome("crashed" if problem else "timeout", None, message)
    status = _reap_child(child, GRACE_S)
    if status is None:
        # It closed its pipe, so its result is complete; it may hang in the driver's clean-up.
        if not _end_child(child, started.kill):
            remember_child(started.stuck_file, child)
    result = _find_last(lines, "result")
    if result is not None:
        return Outcome("ok", result, "")
    error = _find_last(lines, "error")
    if error is not None:
        return Outcome("crashed", None, "%s failed%s: %s" % (worker, at, error))
    if status is not None and os.WIFSIGNALED(status):
        return Outcome(
            "crashed", None, "%s was ended by signal %d%s; look at the kernel log" % (worker, os.WTERMSIG(status), at)
        )
    return Outcome("crashed", None, "%s ended without a result%s; look at the kernel log" % (worker, at))


def _be_child(work, pipe, place, lifetime_s) -> None:
    """Never returns, and outlives its caller by no more than its lifetime: a caller that was killed ends no process."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.setitimer(signal.ITIMER_REAL, lifetime_s)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        _close_all_but(pipe)

        def tell(**line) -> None:
            data = json.dumps(line).encode("utf-8") + b"\n"
            while data:
                data = data[os.write(pipe, data) :]

        try:
            tell(result=work(place.tell))
            code = 0
        except Exception as exc:  # noqa: BLE001 (the child has no other way to tell)
            tell(error="%s: %s" % (type(exc).__name__, exc), trace=traceback.format_exc()[-4000:])
    finally:
        os._exit(code)


def _close_all_but(keep) -> None:
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except (OSError, ValueError):
        numbers = range(3, os.sysconf("SC_OPEN_MAX"))
    for number in numbers:
        if number > 2 and number != keep:
            try:
                os.close(number)
            except OSError:
                pass  # the descriptor that listed the directory is already closed


def _collect_lines(read_end, until) -> tuple[list, bool, str | None]:
    """(lines, complete, problem): what the child wrote, until it closed its end or the deadline passed."""
    os.set_blocking(read_end, False)
    poller = select.poll()
    poller.register(read_end, select.POLLIN | select.POLLHUP)
    chunks = []
    size = 0
    complete = False
    problem = None
    while True:
        left = until - time.monotonic()
        if left <= 0:
            break
        if not poller.poll(left * 1000):
            continue
        chunk = os.read(read_end, 65536)
        if not chunk:
            complete = True
            break
        size += len(chunk)
        if size > RESULT_LIMIT:
            problem = "its result is larger than %d bytes" % (RESULT_LIMIT,)
            break
        chunks.append(chunk)
    lines = []
    for line in b"".join(chunks).split(b"\n"):
        try:
            parsed = json.loads(line.decode("utf-8"))
        except ValueError:
            continue  # empty, or cut off by the deadline
        if isinstance(parsed, dict):
            lines.append(parsed)
    return lines, complete, problem


def _find_last(lines, key):
    for line in reversed(lines):
        if key in line:
            return line[key]
    return None


def _reap_child(child, patience_s) -> int | None:
    """The child's wait status, or None if it has not ended in time."""
    until = time.monotonic() + patience_s
    while True:
        try:
            pid, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:
            return 0  # our parent ignores SIGCHLD: the kernel reaped the child, and its status is lost
        if pid == child:
            return status
        if time.monotonic() >= until:
            return None
        time.sleep(0.01)


def _end_child(child, kill) -> bool:
    """Kill the child's whole group; whether it is gone."""
    try:
        kill(child, signal.SIGKILL)
    except ProcessLookupError:
        # It has not made its session yet, or is gone already.
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return _reap_child(child, GRACE_S) is not None


def remember_child(stuck_file, pid) -> None:
    """Note that PID could not be ended."""
    start = proc_tasks.read_start(pid)
    if stuck_file is None or start is None:
        return
    note = {
        "pid": pid,
        "start": start,
        "boot_id": identity.read_boot_id(),
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    try:
        files.write_atomically(stuck_file, json.dumps(note))
    except OSError:
        # Without the note the next call only waits for its own deadline once more.
        return


def read_note(path, limit=4096) -> str | None:
    """The text of a note, empty for one that is no text of at most LIMIT bytes; None without one.

    Only a file of root's or our own is believed: others may write where it lies.
    """
    try:
        return files.read_owned(path, limit)
    except ValueError:
        return ""
    except (OSError, files.NotOwned):
        return None


def recall_child(stuck_file) -> dict | None:
    """The note about a process that is still stuck, or None; a note that no longer holds is removed."""
    data = None if stuck_file is None else read_note(stuck_file)
    if data is None:
        return None
    try:
        note = json.loads(data)
        pid, start, since, boot = int(note["pid"]), int(note["start"]), str(note["since"]), note["boot_id"]
    except (ValueError, KeyError, TypeError):
        pid, start, since, boot = 0, None, "", None
    if pid > 0 and boot == identity.read_boot_id() and proc_tasks.read_start(pid) == start:
        return {"pid": pid, "since": since}
    try:
        os.unlink(stuck_file)
    except OSError:
        pass  # another call removed it, or it belongs to root
    return None
