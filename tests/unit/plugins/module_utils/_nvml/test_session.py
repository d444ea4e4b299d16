# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The child that reads NVML: its result, its deadline, what it inherits, one that nothing ends, and who waits next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import identity, proc_tasks
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import session, snapshot
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import cutoff
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons


def alive(pid):
    return proc_tasks.read_start(pid) is not None


def test_the_result_comes_back_and_the_child_is_gone():
    outcome = session.run(lambda progress: {"pid": os.getpid(), "text": "\u00e9\n"}, 600)
    assert outcome.status == "ok"
    assert outcome.value["text"] == "\u00e9\n"
    assert outcome.value["pid"] != os.getpid() and not alive(outcome.value["pid"])


def test_a_large_result_comes_back_whole():
    assert session.run(lambda progress: "x" * 3000000, 600).value == "x" * 3000000


def test_a_result_over_the_limit_is_refused():
    outcome = session.run(lambda progress: "x" * (session.RESULT_LIMIT + 1), 600)
    assert outcome.status == "crashed" and outcome.value is None
    assert "larger than" in outcome.message


def test_the_child_has_its_own_session_and_no_descriptor_but_its_pipe(tmp_path):
    with open(str(tmp_path / "open"), "w") as held:
        os.set_inheritable(held.fileno(), True)

        def work(progress):
            links = {}
            for name in os.listdir("/proc/self/fd"):
                try:
                    links[int(name)] = os.readlink("/proc/self/fd/" + name)
                except OSError:
                    continue  # the descriptor of the listing itself
            return {"links": sorted(links.values()), "session": os.getsid(0), "pid": os.getpid()}

        value = session.run(work, 600).value
    assert value["session"] == value["pid"]
    assert [link for link in value["links"] if not link.startswith("pipe:")] == ["/dev/null"] * 3
    assert len(value["links"]) == 4


@pytest.fixture
def note(tmp_path, monkeypatch):
    """A file for the pid of a process that hangs: the deadline passes when it has been written."""
    place = tmp_path / "pid"
    monkeypatch.setattr(
        session, "finish", cutoff.finish_when(session.finish, lambda pid: place.exists() and place.read_text())
    )
    return place


def test_the_deadline_holds_and_says_where(tmp_path, note):

    def work(progress):
        progress("nvmlDeviceGetHandleByIndex")
        note.write_text(str(os.getpid()))
        time.sleep(1200)

    outcome = session.run(work, 600, str(tmp_path / "stuck"))
    assert outcome.status == "timeout"
    assert "within 600 s in nvmlDeviceGetHandleByIndex" in outcome.message and "reboot" in outcome.message
    assert not alive(int(note.read_text()))
    assert not (tmp_path / "stuck").exists()


@pytest.mark.parametrize(
    "where, told", [("short", "short"), ("x" * 1000, "x" * 255), ("\u00e9" * 500, "\u00e9" * 127 + "\ufffd")]
)
def test_a_place_is_told_as_far_as_there_is_room(where, told):
    place = session._Place()
    place.tell("a longer name than the next one")
    place.tell(where)
    assert place.get_text() == told
    place.close()


def test_telling_the_place_costs_no_system_call_and_wakes_nobody():
    """What it calls is counted: a system call needs a function that makes it."""

    def work(progress):
        called = []
        sys.setprofile(lambda frame, event, what: called.append(what.__qualname__) if event == "c_call" else None)
        progress("nvmlDeviceGetNvLinkErrorCounter")
        sys.setprofile(None)
        return called

    assert set(session.run(work, 600).value) - {"setprofile"} == {"str.encode", "len"}


def test_the_deadline_is_counted_from_the_start():
    before = time.monotonic()
    started = session.start(lambda progress: 1, 600)
    assert before + 600 <= started.until <= time.monotonic() + 600
    assert session.finish(started).value == 1


def test_the_deadline_holds_for_a_child_that_keeps_talking(monkeypatch):
    monkeypatch.setattr(session, "GRACE_S", 300)  # it does not end by itself meanwhile

    def work(progress):
        while True:
            progress("again")
            time.sleep(0.01)

    assert session.run(work, 0.5).status == "timeout"


def test_children_of_the_child_go_with_it(note):
    def work(progress):
        other = subprocess.Popen(["sleep", "1200"])
        note.write_text(str(other.pid))
        time.sleep(1200)

    assert session.run(work, 600).status == "timeout"
    other = int(note.read_text())
    until = time.monotonic() + 600
    while alive(other) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(other)


def test_a_child_that_cannot_be_ended_is_remembered_and_not_joined_by_another(tmp_path, note):
    stuck = tmp_path / "stuck"
    started = []

    def work(progress):
        note.write_text("it hangs")
        time.sleep(1200)

    def powerless(group, number):
        started.append(group)

    outcome = session.run(work, 600, str(stuck), kill=powerless)
    pid = started[0]
    try:
        assert outcome.status == "timeout" and "pid %d" % pid in outcome.message
        assert json.loads(stuck.read_text())["pid"] == pid

        def never(progress):
            (tmp_path / "second").write_text("started")

        again = session.run(never, 600, str(stuck))
        assert again.status == "stuck"
        assert again.message.startswith("previous NVML call still stuck (pid %d since 2" % pid)
        assert not (tmp_path / "second").exists()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    note.unlink()
    assert session.run(lambda progress: 1, 600, str(stuck)).value == 1
    assert not stuck.exists()


def remembered(tmp_path, **change):
    note = {
        "pid": os.getpid(),
        "start": proc_tasks.read_start(os.getpid()),
        "boot_id": identity.read_boot_id(),
        "since": "2026-01-01T00:00:00Z",
    }
    note.update(change)
    place = tmp_path / "stuck"
    place.write_text(json.dumps(note))
    return str(place)


def test_a_note_about_a_living_process_holds(tmp_path):
    assert session.recall_child(remembered(tmp_path)) == {"pid": os.getpid(), "since": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    "change", [{"start": 1}, {"boot_id": "another"}, {"pid": 2**22 + 1}, {"pid": "x"}, {"pid": -1}]
)
def test_a_note_that_no_longer_holds_is_removed(tmp_path, change):
    place = remembered(tmp_path, **change)
    assert session.recall_child(place) is None
    assert not os.path.exists(place)


def test_a_link_in_place_of_the_note_is_not_followed(tmp_path):
    real = remembered(tmp_path)
    link = str(tmp_path / "link")
    os.symlink(real, link)
    assert session.recall_child(link) is None
    assert os.path.exists(real)


def test_a_note_of_another_user_is_not_believed(tmp_path, monkeypatch):
    place = remembered(tmp_path)
    monkeypatch.setattr(session.os, "geteuid", lambda: 54321)
    if os.stat(place).st_uid == 0:
        os.chown(place, 12345, 12345)
    assert session.recall_child(place) is None


def test_a_child_that_dies_is_told_by_its_signal():
    def work(progress):
        progress("nvmlInit")
        os.kill(os.getpid(), signal.SIGSEGV)

    outcome = session.run(work, 600)
    assert outcome.status == "crashed"
    assert "signal 11 in nvmlInit" in outcome.message


def test_an_exception_in_the_child_is_told():
    outcome = session.run(lambda progress: {}["missing"], 600)
    assert (outcome.status, outcome.value) == ("crashed", None)
    assert "KeyError" in outcome.message


def test_a_result_that_is_no_json_is_told():
    assert "TypeError" in session.run(lambda progress: object(), 600).message


SCRIPT = """
import os, signal, sys, time
sys.path[:0] = [%r, %r]
from module_utils._nvml import session
import cutoff
%%s
""" % (os.path.abspath(os.path.join(session.__file__, "../../..")), os.path.dirname(cutoff.__file__))
# The deadline of a child is over when it is waited for, and it lives for longer than that.
AT_ONCE = "session.finish = cutoff.finish_when(session.finish, lambda pid: True)\n"


def test_a_caller_with_pipes_does_not_wait_for_a_stuck_child(tmp_path):
    """As under ssh: whoever reads the caller's output sees its end although the child lives on."""
    code = AT_ONCE + (
        "print(session.run(lambda progress: time.sleep(1200), 600, %r, kill=lambda group, number: None).status)\n"
    ) % (str(tmp_path / "stuck"),)
    done = simnode.run([sys.executable, "-c", SCRIPT % code], check=True)
    pid = json.loads((tmp_path / "stuck").read_text())["pid"]
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert done.stdout == "timeout\n"


def test_a_child_whose_caller_is_killed_ends_by_itself(tmp_path):
    """A task that was ended from outside cannot end its child: nothing may be left that reads NVML for ever."""
    note = tmp_path / "pid"
    code = (
        "started = session.start(lambda progress: time.sleep(600), 0.1)\n"
        "open(%r, 'w').write(str(started.child))\n"
        "time.sleep(600)"
    ) % (str(note),)
    caller = subprocess.Popen([sys.executable, "-c", SCRIPT % code])
    until = time.monotonic() + 600
    while not (note.exists() and note.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    caller.kill()
    caller.wait()
    child = int(note.read_text())
    until = time.monotonic() + 600
    while alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    left = alive(child)
    if left:
        os.kill(child, signal.SIGKILL)
    assert not left


def test_a_caller_that_ignores_the_end_of_its_children_gets_the_result():
    """The kernel reaps the child then, and there is nothing to wait for."""
    code = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nprint(session.run(lambda progress: 7, 600))\n"
    code += AT_ONCE + "print(session.run(lambda progress: time.sleep(1200), 600).status)"
    done = simnode.run([sys.executable, "-c", SCRIPT % code])
    assert done.stdout == "Outcome(status='ok', value=7, message='')\ntimeout\n", done.stderr


def test_a_child_that_talks_too_much_and_cannot_be_ended_is_remembered_too(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "RESULT_LIMIT", 1000)
    stuck = tmp_path / "stuck"
    started = []

    def work(progress):
        for number in range(3, 64):
            try:
                os.write(number, b"x" * 2000)
            except OSError:
                continue  # the only descriptor that is open is the result's
        time.sleep(600)

    outcome = session.run(work, 600, str(stuck), kill=lambda group, number: started.append(group))
    try:
        assert outcome.status == "crashed" and "larger than" in outcome.message and "cannot be ended" in outcome.message
        assert json.loads(stuck.read_text())["pid"] == started[0]
    finally:
        os.kill(started[0], signal.SIGKILL)
        os.waitpid(started[0], 0)


DRIVER = ["boot-1", 4711]
HANG = {"driver": DRIVER, "waited_s": 60, "at": 1000.0}


@pytest.mark.parametrize(
    ("note", "wanted_s", "driver", "now", "patience_s"),
    [
        (None, 60, DRIVER, 1001.0, 60),
        (HANG, 60, DRIVER, 1001.0, snapshot.AGAIN_S),
        (HANG, 5, DRIVER, 1001.0, 5),
        (HANG, 61, DRIVER, 1001.0, 61),
        (HANG, 60, DRIVER, 1000.0 + snapshot.HOLDS_S, snapshot.AGAIN_S),
        (HANG, 60, DRIVER, 1001.0 + snapshot.HOLDS_S, 60),
        (HANG, 60, DRIVER, 999.0, 60),
        (HANG, 60, ["boot-2", 4711], 1001.0, 60),
        (HANG, 60, ["boot-1", 4712], 1001.0, 60),
        (HANG, 60, ["boot-1", None], 1001.0, 60),
        (dict(HANG, waited_s="60"), 60, DRIVER, 1001.0, 60),
        (dict(HANG, waited_s=True), 1, DRIVER, 1001.0, 1),
        (dict(HANG, at=None), 60, DRIVER, 1001.0, 60),
        ([HANG], 60, DRIVER, 1001.0, 60),
    ],
)
def test_how_long_it_is_waited_for(note, wanted_s, driver, now, patience_s):
    assert snapshot.choose_deadline(note, wanted_s, driver, now) == patience_s


class Driver:
    """Answers as told, and notes for how long each call would have waited."""

    def __init__(self, *statuses):
        self.statuses, self.waits = list(statuses), []

    def __call__(self, work, deadline_s, stuck_file):
        self.waits.append(deadline_s)
        status = self.statuses.pop(0)
        return session.Outcome(status, snapshot.make_blank("ok", "") if status == "ok" else None, "")


def take(driver, stuck_file, deadline_s=60):
    return snapshot.take(deadline_s, stuck_file, load=lambda: (None, None), runner=driver)["status"]


def test_a_driver_that_hangs_costs_one_deadline_and_the_first_answer_ends_that(tmp_path):
    stuck_file = str(tmp_path / "stuck")
    driver = Driver("timeout", "timeout", "timeout", "ok", "ok")
    assert [take(driver, stuck_file) for _number in range(5)] == ["timeout", "timeout", "timeout", "ok", "ok"]
    assert driver.waits == [60, snapshot.AGAIN_S, snapshot.AGAIN_S, snapshot.AGAIN_S, 60]
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize("status", ["crashed", "stuck", "ok"])
def test_only_a_driver_that_did_not_answer_leaves_a_note(tmp_path, status):
    driver = Driver(status, status)
    assert take(driver, str(tmp_path / "stuck")) == take(driver, str(tmp_path / "stuck"))
    assert driver.waits == [60, 60]


def test_a_short_wait_in_vain_does_not_make_the_note_last(tmp_path):
    stuck_file = str(tmp_path / "stuck")
    driver = Driver("timeout", "timeout")
    take(driver, stuck_file)
    before = snapshot.recall_hang(stuck_file)
    take(driver, stuck_file)
    assert snapshot.recall_hang(stuck_file) == before


def test_without_a_place_for_the_note_every_wait_is_whole(tmp_path):
    driver = Driver("timeout", "timeout", "timeout", "timeout")
    for stuck_file in (None, None, str(tmp_path / "no" / "stuck"), str(tmp_path / "no" / "stuck")):
        assert take(driver, stuck_file) == "timeout"
    assert driver.waits == [60] * 4


@pytest.mark.parametrize("put", ["text", "link", "directory", "fifo"])
def test_a_note_that_is_none_is_not_believed(tmp_path, put):
    stuck_file = str(tmp_path / "stuck")
    place = snapshot.note_path(stuck_file)
    if put == "text":
        with open(place, "w") as stream:
            stream.write("{")
    elif put == "link":
        snapshot.remember_hang(str(tmp_path / "other"), 60, DRIVER, 1000.0)
        os.symlink(snapshot.note_path(str(tmp_path / "other")), place)
    elif put == "directory":
        os.mkdir(place)
    else:
        os.mkfifo(place)
    assert snapshot.recall_hang(stuck_file) is None


def test_a_module_that_is_loaded_anew_is_another_driver(tmp_path):
    assert snapshot.loaded_driver(str(tmp_path)) == [None, None]
    module = tmp_path / "sys" / "module" / "nvidia"
    module.mkdir(parents=True)
    first = snapshot.loaded_driver(str(tmp_path))
    assert first == snapshot.loaded_driver(str(tmp_path)) and first[1] is not None
    module.rename(tmp_path / "gone")
    module.mkdir()
    assert snapshot.loaded_driver(str(tmp_path)) != first
