# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that hang, flood, fail or are not there never hold up their caller."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import capture
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._driver import clocks

pytestmark = pytest.mark.pythons


def python(code, *words):
    return [sys.executable, "-c", code] + list(words)


def test_what_a_command_writes_is_taken_whole():
    answer = capture.run(python("import sys; sys.stdout.write('a' * 300000)"), 30, 1000000)
    assert (answer.state, answer.rc, len(answer.data), answer.truncated, answer.left_behind, answer.message) == (
        "ok",
        0,
        300000,
        False,
        None,
        "",
    )


def test_more_than_the_limit_is_cut_and_said():
    answer = capture.run(python("import sys\nwhile True: sys.stdout.write('a' * 65536)"), 30, 100000)
    assert (answer.state, len(answer.data), answer.truncated) == ("ok", 100000, True)
    assert "wrote more than 100000 bytes and was stopped" in answer.message


def test_exactly_the_limit_is_not_cut():
    answer = capture.run(python("print('a' * 9)"), 30, 10)
    assert (answer.state, answer.data, answer.truncated, answer.message) == ("ok", b"aaaaaaaaa\n", False, "")


def test_one_that_hangs_is_killed_and_what_it_wrote_is_kept(tmp_path):
    script = "echo so far; touch %s; exec sleep 600" % (tmp_path / "said")
    clock = clocks.over_when((tmp_path / "said").exists)
    answer = capture.run(["/bin/sh", "-c", script], 1, 1000, clock=clock)
    assert (answer.state, answer.data, answer.left_behind) == ("timeout", b"so far\n", None)
    assert answer.message.endswith("did not end within 1 s")


def test_one_that_cannot_be_ended_is_left_behind_and_named():
    """What SIGKILL does not end is made by not sending it."""
    answer = capture.run(python("import time; time.sleep(600)"), 0.3, 1000, kill=lambda pid: None)
    try:
        assert answer.state == "timeout"
        assert "its process %d cannot be ended and was left behind" % (answer.left_behind,) in answer.message
        assert os.getsid(answer.left_behind) == answer.left_behind, "it has a session of its own"
        assert sorted(
            os.readlink("/proc/%d/fd/%d" % (answer.left_behind, number)).split(":")[0] for number in range(3)
        ) == ["/dev/null", "pipe", "pipe"]
    finally:
        os.killpg(answer.left_behind, signal.SIGKILL)
        os.waitpid(answer.left_behind, 0)


def test_a_child_that_keeps_the_pipe_is_not_waited_for():
    answer = capture.run(["/bin/sh", "-c", "sleep 600 & echo $!"], 1200, 1000)
    child = int(answer.data)
    assert (answer.state, answer.rc) == ("ok", 0)
    os.kill(child, signal.SIGKILL)  # it is still there


@pytest.mark.parametrize(
    "argv, state, words",
    [
        (["gpufleet-no-such-command"], "absent", "gpufleet-no-such-command: command not found"),
        (["/"], "failed", "/ cannot be started: Permission denied"),
        (python("import sys; sys.exit('NVML is sick')"), "failed", "answered rc 1: NVML is sick"),
        (python("print('No devices'); raise SystemExit(6)"), "failed", "answered rc 6: No devices"),
    ],
)
def test_one_that_fails_says_why(argv, state, words):
    answer = capture.run(argv, 30, 1000)
    assert answer.state == state and words in answer.message


def test_what_is_passed_on_stays_open_in_the_command_and_nothing_else_does():
    passed, kept = os.pipe(), os.pipe()
    try:
        found = capture.run(["ls", "/proc/self/fd"], 60, 1000, pass_fds=[passed[0]])
        assert str(passed[0]) in found.data.decode().split() and str(kept[0]) not in found.data.decode().split()
    finally:
        for number in passed + kept:
            os.close(number)
