# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands: the answer as data, whatever happens."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import runner

pytestmark = pytest.mark.pythons


def test_answer_and_locale(monkeypatch):
    monkeypatch.setenv("LC_MESSAGES", "de_DE.UTF-8")
    rc, out, err = runner.Runner()(["sh", "-c", "echo $LC_ALL-$LC_MESSAGES-$DEBIAN_FRONTEND; echo problem >&2; exit 3"])
    assert (rc, out, err) == (3, "C--noninteractive\n", "problem\n")


def test_a_missing_command_is_an_answer():
    rc, out, err = runner.Runner()(["no-such-command-here"])
    assert runner.missing(rc) and out == "" and "no-such-command-here" in err


def test_a_command_that_cannot_be_started_is_an_answer(tmp_path):
    assert runner.Runner()([str(tmp_path)])[0] == 126


def test_a_command_past_its_deadline_is_killed_with_its_children(tmp_path, monkeypatch):
    mark = tmp_path / "pid"
    communicate = subprocess.Popen.communicate

    def communicate_then(process, *more, **options):
        """Its time runs once it has begun."""
        until = time.monotonic() + 600
        while not (mark.exists() and mark.read_text().endswith("\n")):
            assert time.monotonic() < until
            time.sleep(0.02)
        return communicate(process, *more, **options)

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate_then)
    rc, out, err = runner.Runner()(["sh", "-c", "echo begun; sleep 1200 & echo $! > %s; wait" % mark], timeout=1)
    assert rc == runner.RC_TIMEOUT and out == "begun\n" and "still running after 1 s" in err
    pid = int(mark.read_text())
    for dummy in range(3000):
        if not os.path.exists("/proc/%d" % pid) or "Z" in open("/proc/%d/stat" % pid).read().split(")")[1][:3]:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the grandchild still runs")


def test_output_that_is_not_text():
    assert runner.Runner()(["printf", "a\\377b"])[1] == "a\ufffdb"
