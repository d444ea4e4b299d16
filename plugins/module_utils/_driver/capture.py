# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The output of a command that may hang where nothing can end it: bounded in time and in size.

A Runner waits for the command it has killed. A command that talks to a driver can be stuck in the kernel, where not
even SIGKILL ends it: this one is then left behind, in a session of its own and with nothing of ours open, and that is
said.
"""

from __future__ import annotations

import collections
import os
import select
import subprocess
import time

from .._node import runner

CHUNK = 64 * 1024
KILL_GRACE_S = 2.0
MAX_ERROR = 2000

# state: ok, absent, failed (it could not be started, or answered another rc than 0), timeout. left_behind: the pid of
# one that did not end.
Captured = collections.namedtuple("Captured", ["state", "rc", "data", "truncated", "left_behind", "message"])


def run(argv, timeout_s, limit, kill=runner.kill_group, clock=time.monotonic, pass_fds=()):
    """Return what ARGV writes to its standard output within TIMEOUT_S seconds, LIMIT bytes of it at most.

    PASS_FDS stay open in it: a command that changes the node keeps the node's lock when its caller is killed.
    """
    try:
        # run_command is AnsibleModule's, and it waits until the command has ended, whenever that is.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=runner.environment(),
            start_new_session=True,
            cwd="/",
            pass_fds=tuple(pass_fds),
        )
    except FileNotFoundError:
        return Captured("absent", None, b"", False, None, "%s: command not found" % (argv[0],))
    except OSError as exc:
        return Captured("failed", None, b"", False, None, "%s cannot be started: %s" % (argv[0], exc.strerror or exc))
    with process.stdout as out, process.stderr as err:
        data, error, ended = _read_output(process, out, err, clock() + timeout_s, limit, clock)
    gone = _reap(process, 0 if not ended else KILL_GRACE_S, clock)
    if not gone:
        kill(process.pid)
        gone = _reap(process, KILL_GRACE_S, clock)
    truncated = len(data) > limit
    left = None if gone else process.pid
    said = " ".join(error.decode("utf-8", "replace").split())
    if truncated:
        message = "%s wrote more than %d bytes and was stopped" % (argv[0], limit)
    elif not ended:
        message = "%s did not end within %s s" % (argv[0], timeout_s)
    elif not gone or process.returncode:
        message = "%s answered rc %s: %s" % (
            argv[0],
            process.returncode,
            said or data[-MAX_ERROR:].decode("utf-8", "replace").strip() or "nothing",
        )
    else:
        message = ""
    if left:
        message += "; its process %d cannot be ended and was left behind: it hangs in the driver" % (left,)
    state = "ok" if truncated or ended and process.returncode == 0 else "failed" if ended else "timeout"
    return Captured(state, process.returncode, data[:limit], truncated, left, message)


def _read_output(process, out, err, until, limit, clock) -> tuple[bytes, bytes, bool]:
    """(standard output, standard error, whether the command came to its end).

    A byte more than LIMIT says that there was more.
    """
    data, error, last = bytearray(), bytearray(), None
    streams = {out.fileno(): data, err.fileno(): error}
    for number in streams:
        os.set_blocking(number, False)
    while streams:
        left = until - clock()
        if left <= 0 or len(data) > limit:
            return bytes(data), bytes(error), False
        ready = select.select(list(streams), [], [], min(left, 0.2))[0]
        for number in ready:
            piece = os.read(number, CHUNK)
            if not piece:
                del streams[number]
            elif number == out.fileno():
                data += piece[: limit + 1 - len(data)]
            else:
                error += piece[: max(0, MAX_ERROR - len(error))]
        if not ready and process.poll() is not None:
            # Something it started keeps the pipe. Once more, for what came in between; then it has ended.
            if last:
                break
            last = True
    return bytes(data), bytes(error), True


def _reap(process, timeout_s, clock) -> bool:
    until = clock() + timeout_s
    while process.poll() is None:
        if clock() >= until:
            return False
        time.sleep(0.02)
    return True
