# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node lock, with real processes: held, waited for, freed by a death, and kept by what a dead holder started."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
import types

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins import locks

pytestmark = pytest.mark.pythons

HOLDER = """
import importlib.util, sys, time, subprocess
spec = importlib.util.spec_from_file_location("lock", sys.argv[1])
lock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lock)
held = lock.NodeLock(sys.argv[2], {"module": "dkms_module", "step": "install", "rollout_id": "r-1"}).acquire()
if len(sys.argv) > 3:
    child = subprocess.Popen(["sleep", sys.argv[3]], pass_fds=[held.fd])
    print(child.pid, flush=True)
else:
    print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(name="path")
def lock_path(tmp_path):
    return str(tmp_path / "node.lock")


@pytest.fixture(name="hold")
def hold_in_process(path):
    started = []

    def hold(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, lock.__file__, path] + list(arguments), stdout=subprocess.PIPE
        )
        started.append(process)
        return process, process.stdout.readline().decode().strip()

    yield hold
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_holder_is_written_and_the_lock_is_free_afterwards(path):
    with lock.NodeLock(path, {"module": "m", "step": "s", "rollout_id": "r"}) as held:
        with open(path, encoding="utf-8") as handle:
            content = json.load(handle)
        assert content["pid"] == os.getpid() and content["step"] == "s" and abs(content["started"] - time.time()) < 600
        assert locks.is_held(path) is True
        held.update(step="t")
        assert lock.read_json(path)["step"] == "t"
    assert locks.is_held(path) is False
    assert "finished" in lock.read_json(path)


def test_no_other_user_can_open_the_lock(path):
    with lock.NodeLock(path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    os.chmod(path, 0o644)
    with lock.NodeLock(path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, "one of an older release is put right"


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "foreign"])
def test_what_is_not_this_users_own_file_is_no_lock(path, tmp_path, kind):
    if kind == "link":
        (tmp_path / "elsewhere").write_text("x")
        os.symlink(tmp_path / "elsewhere", path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        os.mkdir(path)
    elif os.geteuid() == 0:
        open(path, "w").close()
        os.chown(path, 65534, 65534)
    else:
        pytest.skip("needs root, to give a file away")
    with pytest.raises(OSError):
        lock.NodeLock(path).acquire()
    if kind == "link":
        assert (tmp_path / "elsewhere").read_text() == "x"


def test_a_held_lock_is_refused_after_the_deadline_and_names_the_holder(path, hold):
    process, dummy = hold()
    started = time.monotonic()
    with pytest.raises(lock.LockTimeout) as caught:
        lock.NodeLock(path, timeout_s=1).acquire()
    assert time.monotonic() - started > 0.9
    holder = caught.value.holder
    assert (holder["pid"], holder["pid_alive"], holder["step"], holder["rollout_id"]) == (
        process.pid,
        True,
        "install",
        "r-1",
    )
    text = str(caught.value)
    assert "process %d" % process.pid in text and "step install" in text and "nothing was started" in text
    assert "Next step" in text


def test_a_killed_holder_frees_the_lock(path, hold):
    process, dummy = hold()
    process.send_signal(signal.SIGKILL)
    with lock.NodeLock(path, {"step": "mine"}, timeout_s=600):
        assert lock.read_json(path)["pid"] == os.getpid()


def test_what_a_killed_holder_started_keeps_the_lock_until_it_ends(path, hold, monkeypatch):
    process, child = hold("600")
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(lock.LockTimeout) as caught:
        lock.NodeLock(path, timeout_s=0).acquire()
    assert caught.value.holder["pid_alive"] is False
    assert int(child) in [item["pid"] for item in caught.value.holder["processes"]]
    assert "what it started still runs" in str(caught.value) and "%s (sleep)" % child in str(caught.value)
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            os.kill(int(child), signal.SIGKILL)
        os.sched_yield()

    monkeypatch.setattr(lock, "time", types.SimpleNamespace(sleep=sleep, monotonic=time.monotonic, time=time.time))
    with lock.NodeLock(path, timeout_s=600):
        assert len(waited) >= 3


def test_the_runner_hands_the_lock_to_its_command(path):
    with lock.NodeLock(path) as held:
        answer = Runner(pass_fds=[held.fd])(["sh", "-c", "readlink /proc/self/fd/%d" % held.fd])
        closed = Runner()(["sh", "-c", "readlink /proc/self/fd/%d || echo closed" % held.fd])
    assert answer[1].strip() == os.path.realpath(path)
    assert closed[1].strip() == "closed"


def test_a_command_left_running_keeps_the_lock_after_the_release(path):
    held = lock.NodeLock(path, {"step": "s"}).acquire()
    child = subprocess.Popen(["sleep", "600"], pass_fds=[held.fd])
    held.release()
    try:
        assert locks.is_held(path) is True
        assert "what it started still runs" in lock.describe(path, 0, lock.read_holder(path))
    finally:
        child.kill()
        child.wait()
    assert locks.is_held(path) is False


def test_two_waiters_never_hold_it_together(path, tmp_path):
    code = (
        "import importlib.util, os, sys, time\n"
        "spec = importlib.util.spec_from_file_location('lock', sys.argv[1]); lock = "
        "importlib.util.module_from_spec(spec); spec.loader.exec_module(lock)\n"
        "number, here = sys.argv[3], sys.argv[4]\n"
        "with lock.NodeLock(sys.argv[2], timeout_s=600):\n"
        "    os.close(os.open(mark, os.O_CREAT))\n"
        "    os.mkdir(here + '/inside')\n"
        "    while not all(os.path.exists(here + '/tried%d' % other) for other in range(4) if str(other) != number):\n"
        "        time.sleep(0.02)\n"
        "    os.rmdir(here + '/inside')\n"
    )
    # Each says that it has tried when it sleeps or comes in: the first one stays inside until all have.
    tried = (
        "import os, sys, time\n"
        "sleep, mark = time.sleep, sys.argv[4] + '/tried' + sys.argv[3]\n"
        "def told(seconds):\n"
        "    os.close(os.open(mark, os.O_CREAT))\n"
        "    sleep(seconds)\n"
        "time.sleep = told\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", tried + code, lock.__file__, path, str(number), str(tmp_path)])
        for number in range(4)
    ]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]


def test_a_link_in_the_place_of_the_lock_is_refused(path, tmp_path):
    target = tmp_path / "victim"
    target.write_text("kept", encoding="utf-8")
    os.symlink(str(target), path)
    with pytest.raises(OSError):
        lock.NodeLock(path).acquire()
    assert target.read_text(encoding="utf-8") == "kept"


def test_a_lock_file_of_nonsense_does_not_hide_that_it_is_held(path, hold):
    hold()
    with open(path, "w", encoding="utf-8") as handle:
        handle.write("[nonsense")
    with pytest.raises(lock.LockTimeout) as caught:
        lock.NodeLock(path, timeout_s=0).acquire()
    assert "an unnamed process" in str(caught.value)
    assert caught.value.holder["age_s"] is None


def test_hangup_does_not_end_a_change():
    code = (
        "import importlib.util, os, signal, sys\n"
        "spec = importlib.util.spec_from_file_location('lock', sys.argv[1]); lock = "
        "importlib.util.module_from_spec(spec); spec.loader.exec_module(lock)\n"
        "lock.ignore_hangup(); os.kill(os.getpid(), signal.SIGHUP); print('went on')\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", code, lock.__file__], stdout=subprocess.PIPE, check=True).stdout
        == b"went on\n"
    )
