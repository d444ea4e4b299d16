# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running a command: list of words, C locale, a deadline, and the answer as data."""

from __future__ import annotations

import os
import signal
import subprocess

RC_NOT_FOUND = 127
RC_TIMEOUT = 124
DEFAULT_TIMEOUT_S = 60

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(extra=None) -> dict[str, str]:
    """The environment commands get: theirs is the C locale and a full search path, whatever the login had."""
    env = dict((key, value) for key, value in os.environ.items() if not key.startswith("LC_"))
    env.update({"LANG": "C", "LC_ALL": "C", "LANGUAGE": "C", "PATH": SEARCH_PATH, "DEBIAN_FRONTEND": "noninteractive"})
    env.update(extra or {})
    return env


class Runner:
    """Calls commands; ``runner(argv, timeout)`` answers ``(rc, out, err)`` and never raises for what the command did.

    A missing command answers rc 127, one that ran past its deadline rc 124 (its whole process group is killed).
    Descriptors in ``pass_fds`` stay open in the command and its children: a changing module passes its node lock, so
    that the lock outlives the module when only the module is killed.
    """

    def __init__(self, pass_fds=(), env=None) -> None:
        self.pass_fds = tuple(pass_fds)
        self.env = env

    def __call__(self, argv, timeout=DEFAULT_TIMEOUT_S) -> tuple[int, str, str]:
        try:
            # run_command is AnsibleModule's: this runs without Ansible too, and run_command has neither a deadline nor
            # descriptors to pass on.
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(self.env),
                start_new_session=True,
                pass_fds=self.pass_fds,
                cwd="/",
            )
        except FileNotFoundError:
            return RC_NOT_FOUND, "", "%s: command not found" % argv[0]
        except OSError as exc:
            return 126, "", "%s: %s" % (argv[0], exc)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill_group(process.pid)
            out, err = drain(process)
            return RC_TIMEOUT, text(out), text(err) + "\n%s: still running after %s s, killed" % (argv[0], timeout)
        return process.returncode, text(out), text(err)


def kill_group(pgid) -> None:
    """Kill a process group; one that is already gone is fine."""
    try:
        os.killpg(pgid, signal.SIGKILL)
    except ProcessLookupError:
        return


def drain(process, timeout=5) -> tuple[bytes, bytes]:
    """Return what a killed command had written, without waiting for a grandchild that kept the pipe open."""
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return b"", b""


def text(data) -> str:
    return (data or b"").decode("utf-8", "replace")


def missing(rc) -> bool:
    """True when a return code of a Runner says that the command is not on the machine."""
    return rc == RC_NOT_FOUND
