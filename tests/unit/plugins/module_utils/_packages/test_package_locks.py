# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has the locks of apt, dpkg and rpm, with real locks of another process; and the wait for them, with a clock of
its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import package_locks

pytestmark = pytest.mark.pythons

HOLD = (
    "import fcntl, sys; stream = open(sys.argv[1], 'w'); fcntl.lockf(stream, fcntl.LOCK_EX); print('held', "
    "flush=True); sys.stdin.read()"
)


@pytest.fixture
def taken(tmp_path):
    """taken(path): a process that has the lock on that file of the tree; it gives it up when its input is closed."""
    processes = []

    def take(path):
        real = os.path.join(str(tmp_path), path.lstrip("/"))
        os.makedirs(os.path.dirname(real), exist_ok=True)
        process = subprocess.Popen([sys.executable, "-c", HOLD, real], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout.readline() == b"held\n"
        return process

    yield take
    for process in processes:
        process.stdin.close()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    "manager, path", [(name, path) for name, paths in sorted(package_locks.PATHS.items()) for path in paths]
)
def test_who_has_a_lock_is_named_and_nothing_is_taken(tmp_path, taken, manager, path):
    assert package_locks.held(manager, str(tmp_path)) == [], "no such file"
    process = taken(path)
    for dummy in range(2):
        (found,) = package_locks.held(manager, str(tmp_path))
        assert (found["path"], found["pid"]) == (path, process.pid) and found["comm"].startswith("python")
    assert package_locks.held(manager, str(tmp_path), proc=str(tmp_path))[0]["comm"] is None
    process.stdin.close()
    process.wait()
    assert package_locks.held(manager, str(tmp_path)) == [], "the file is there, and nobody has it"


@pytest.mark.parametrize(
    "busy, timeout_s, expected, waited, slept",
    [(0, 300, False, False, 0), (3, 300, False, True, 3), (400, 300, True, True, 300), (1, 0, True, True, 0)],
)
def test_a_lock_is_waited_for_and_no_longer_than_asked(busy, timeout_s, expected, waited, slept):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    found, was = package_locks.wait(lambda: ["x"] if now[0] < busy else [], timeout_s, lambda: now[0], sleep)
    assert (bool(found), was, now[0]) == (expected, waited, slept)


@pytest.mark.parametrize(
    "found, words",
    [
        (
            [{"path": "/l", "pid": 7, "comm": "apt-get"}, {"path": "/m", "pid": 7, "comm": "apt-get"}],
            ["apt-get (pid 7) has /l, /m"],
        ),
        ([{"path": "/l", "pid": 7, "comm": None}], ["a process (pid 7)"]),
        ([{"path": "/l", "pid": 0, "comm": None}], ["a process of another container has /l"]),
    ],
)
def test_the_refusal_names_who_has_it(found, words):
    (refused,) = package_locks.refusals(found, 30)
    assert refused["id"] == "lock_held" and all(word in refused["message"] for word in words + ["after 30 s"])
    assert refused["next_step"]


def test_nobody_is_no_refusal():
    assert package_locks.refusals([], 30) == []
