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

# A lock of a process for writing, of a process for reading, and of an open file for reading (F_OFD_SETLK).
HOLD = """
import fcntl, struct, sys
open(sys.argv[1], "a").close()
stream = open(sys.argv[1], "r+" if sys.argv[2] == "write" else "r")
if sys.argv[2] == "write":
    fcntl.lockf(stream, fcntl.LOCK_EX)
elif sys.argv[2] == "read":
    fcntl.lockf(stream, fcntl.LOCK_SH)
else:
    fcntl.fcntl(stream, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def taken(tmp_path):
    """taken(path, kind): a process that has a lock on that file of the tree until its input is closed."""
    processes = []

    def take(path, kind="write"):
        real = os.path.join(str(tmp_path), path.lstrip("/"))
        os.makedirs(os.path.dirname(real), exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, real, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
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
    assert package_locks.find_held(manager, str(tmp_path)) == [], "no such file"
    process = taken(path)
    for dummy in range(2):
        (found,) = package_locks.find_held(manager, str(tmp_path))
        assert (found["path"], found["pid"]) == (path, process.pid) and found["comm"].startswith("python")
    assert package_locks.find_held(manager, str(tmp_path), proc=str(tmp_path))[0]["comm"] is None
    process.stdin.close()
    process.wait()
    assert package_locks.find_held(manager, str(tmp_path)) == [], "the file is there, and no process has it"


@pytest.mark.parametrize("kind", ["read", "open file"])
def test_lock_that_any_user_can_take_decides_nothing_and_is_named(tmp_path, taken, kind):
    path = package_locks.PATHS["dnf"][0]
    process = taken(path, kind)
    assert package_locks.find_held("dnf", str(tmp_path)) == []
    (found,) = package_locks.held_by_users("dnf", str(tmp_path))
    assert found["path"] == path and found["pid"] == (process.pid if kind == "read" else 0)
    (text,) = package_locks.make_warnings([found])
    assert path in text and (kind != "read" or str(process.pid) in text)
    process.stdin.close()
    process.wait()
    assert package_locks.held_by_users("dnf", str(tmp_path)) == []


@pytest.mark.parametrize(
    "status, counts",
    [
        ("Uid:\t0\t0\t0\t0\n", True),
        ("Uid:\t1000\t0\t0\t0\n", True),
        ("Uid:\t1000\t1000\t1000\t1000\n", False),
        ("", True),
    ],
)
def test_lock_for_writing_counts_unless_a_user_without_root_has_it(tmp_path, taken, status, counts):
    path = package_locks.PATHS["dnf"][0]
    process = taken(path)
    (tmp_path / "proc" / str(process.pid)).mkdir(parents=True)
    (tmp_path / "proc" / str(process.pid) / "status").write_text(status)
    (tmp_path / "proc" / str(process.pid) / "comm").write_text("rpm\n")
    looks = (package_locks.find_held, package_locks.held_by_users)
    found = [look("dnf", str(tmp_path), str(tmp_path / "proc")) for look in looks]
    assert [[(item["path"], item["pid"], item["comm"]) for item in items] for items in found] == [
        [(path, process.pid, "rpm")] if here else [] for here in (counts, not counts)
    ]


@pytest.mark.parametrize(
    "busy, timeout_s, expected, waited, slept",
    [(0, 300, False, False, 0), (3, 300, False, True, 3), (400, 300, True, True, 300), (1, 0, True, True, 0)],
)
def test_a_lock_is_waited_for_and_no_longer_than_asked(busy, timeout_s, expected, waited, slept):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    found, was = package_locks.wait_for_release(
        lambda: ["x"] if now[0] < busy else [], timeout_s, lambda: now[0], sleep
    )
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
    (refused,) = package_locks.make_refusals(found, 30)
    assert refused["id"] == "lock_held" and all(word in refused["message"] for word in words + ["after 30 s"])
    assert refused["next_step"]


def test_nobody_is_no_refusal():
    assert package_locks.make_refusals([], 30) == []
