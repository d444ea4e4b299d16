# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's claim: who may have it, what becomes of calls of an attempt that has been followed by another one."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import time
import types

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim, lock, node_state
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins import locks

pytestmark = pytest.mark.pythons


@pytest.fixture(autouse=True)
def on_disk(monkeypatch):
    """The directories of tests count as those of a disk, also where /tmp is in memory."""
    monkeypatch.setattr(claim, "MOUNTS", os.devnull)


MINE = {"ledger": "l1", "rollout_id": "r1", "attempt": 2, "run": "b", "plan": "p", "controller": "ctl1"}
THERE = dict(MINE, schema=claim.SCHEMA, state="held", time="2026-01-31T12:00:00Z")
BEFORE = dict(THERE, attempt=1, run="a")
OTHER = dict(THERE, rollout_id="r9", attempt=1, run="z")


@pytest.mark.parametrize(
    "found, problem, over, words",
    [
        (None, "", None, ""),
        (None, "its claim cannot be read", None, "its claim cannot be read"),
        (None, "its claim cannot be read", OTHER, "its claim cannot be read"),
        (BEFORE, "", None, ""),  # the attempt before
        (dict(BEFORE, state="quarantined"), "", None, ""),
        (THERE, "", None, ""),  # this task once more
        (
            dict(THERE, run="c"),
            "",
            None,
            (
                "held by rollout r1 (attempt 2, begun on ctl1) since 2026-01-31T12:00:00Z: this is attempt 2, "
                "of an older copy"
            ),
        ),
        (dict(THERE, attempt=3), "", None, "this is attempt 2, of an older copy of the ledger"),
        (OTHER, "", None, "it is held by rollout r9 (attempt 1, begun on ctl1) since 2026-01-31T12:00:00Z"),
        (dict(OTHER, state="quarantined"), "", None, "it is quarantined by rollout r9"),
        (dict(BEFORE, ledger="l2"), "", None, "since 2026-01-31T12:00:00Z, of another ledger"),
        (OTHER, "", OTHER, ""),  # given up by name
        (dict(OTHER, attempt=2), "", OTHER, "it is held by rollout r9 (attempt 2"),  # it was taken anew since
        (dict(OTHER, run="y"), "", OTHER, "it is held by rollout r9"),
        (BEFORE, "", OTHER, ""),
    ],
)
def test_which_attempt_may_have_the_node(found, problem, over, words):
    why = claim.refusal(found, problem, MINE, over)
    assert (words in why) if words else why == ""


FileSystem = collections.namedtuple(
    "FileSystem", "f_bsize f_frsize f_blocks f_bfree f_bavail f_files f_ffree f_favail f_flag"
)
ROOMY = FileSystem(4096, 4096, 1000, 900, 900, 1000, 900, 900, 0)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({}, ""),
        ({"f_bavail": 256}, ""),
        ({"f_bavail": 255}, "has 1020 KiB left, and 1024 KiB are needed"),
        ({"f_bavail": 0}, "has 0 KiB left"),  # what only root may use is for others to be saved with
        ({"f_favail": 16}, ""),
        ({"f_favail": 15}, "has room for 15 more files"),
        ({"f_files": 0, "f_favail": 0}, ""),  # btrfs counts none
        ({"f_flag": os.ST_RDONLY}, "is mounted read-only"),
        ({"f_flag": os.ST_NOSUID}, ""),
    ],
)
def test_whether_a_claim_could_be_written(tmp_path, fields, words):
    why = claim.room(str(tmp_path / "not" / "yet"), lambda path: ROOMY._replace(**fields))
    assert (words in why and str(tmp_path) in why) if words else why == ""


@pytest.mark.parametrize(
    ("mounts", "lost"),
    [
        ("/dev/sda1 / ext4 rw", False),
        ("/dev/sda1 / ext4 rw\ntmpfs /run tmpfs rw", False),
        ("/dev/sda1 / ext4 rw\ntmpfs {place} tmpfs rw", True),
        ("tmpfs / tmpfs rw", True),
        ("rootfs / rootfs rw", True),
        ("/dev/sda1 / ext4 rw\nramfs {parent} ramfs rw\n/dev/sdb1 {place} xfs rw", False),
        ("tmpfs {place} tmpfs rw\n/dev/sdb1 {place} xfs rw", False),  # the later one lies over the other
        ("tmpfs {place}x tmpfs rw\n/dev/sda1 / ext4 rw", False),
        ("server:/root / nfs4 rw", False),
        ("/dev/sda1 / ext4 rw\ntmpfs {place}/with\\040blank tmpfs rw", False),
        ("overlay / overlay rw,lowerdir=/l,upperdir={upper}\ntmpfs {upper} tmpfs rw", True),
        ("overlay / overlay rw,lowerdir=/l,upperdir={upper}\n/dev/sda1 {upper} ext4 rw", False),
        ("overlay / overlay rw,lowerdir=/l,upperdir={upper}", False),
        ("overlay / overlay rw,lowerdir=/l,upperdir=/not/here\ntmpfs /not tmpfs rw", False),  # a container's
        ("overlay / overlay ro,lowerdir=/l:/m", False),
        ("garbage", False),
        ("", False),
    ],
)
def test_state_directory_that_a_reboot_removes_has_no_room(tmp_path, monkeypatch, mounts, lost):
    places = {"place": tmp_path / "state", "parent": tmp_path, "upper": tmp_path / "upper"}
    for name in ("state", "upper"):
        (tmp_path / name).mkdir()
    (tmp_path / "mounts").write_text(mounts.format(**places) + " 0 0\n")
    monkeypatch.setattr(claim, "MOUNTS", str(tmp_path / "mounts"))
    why = claim.room(str(tmp_path / "state" / "gpufleet"), lambda path: ROOMY)
    assert bool(why) is lost and (str(tmp_path / "state") in why) is lost


def test_a_directory_that_cannot_be_one_has_no_room(tmp_path):
    assert claim.room(str(tmp_path)) == claim.room(str(tmp_path / "a" / "b")) == ""
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert claim.room(str(tmp_path / "file")) == "%s is no directory" % (tmp_path / "file")
    assert claim.room(str(tmp_path / "file" / "a")).endswith(
        "is no directory, and %s would lie in it" % (tmp_path / "file" / "a")
    )
    assert "is no directory" in claim.room(str(tmp_path / "link" / "a"))

    def fails(path):
        raise OSError(5, "Input/output error")

    assert "cannot be asked: [Errno 5]" in claim.room(str(tmp_path), fails)


@pytest.mark.parametrize(
    "found, problem, words",
    [
        (THERE, "", ""),
        (dict(THERE, state="quarantined"), "", ""),
        (None, "", "it has given the node up"),
        (None, "its claim cannot be read", "its claim cannot be read"),
        (dict(THERE, attempt=3, run="c"), "", "the node is held by rollout r1 (attempt 3"),
        (dict(THERE, run="c"), "", "the node is held by"),
        (OTHER, "", "the node is held by rollout r9"),
        (dict(THERE, ledger="l2"), "", "the node is held by"),
        (BEFORE, "", "the node is held by rollout r1 (attempt 1"),
    ],
)
def test_what_a_call_is_answered_that_belongs_to_an_attempt(found, problem, words):
    why = claim.find_fence_problem(found, problem, MINE)
    assert (words in why) if words else why == ""


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[]", "not of schema"),
        ("{}", "not of schema"),
        (json.dumps(dict(THERE, schema="x/2")), "not of schema"),
        (json.dumps(dict(THERE, attempt="2")), "no usable attempt"),
        (json.dumps(dict(THERE, attempt=True)), "no usable attempt"),
        (json.dumps({key: value for key, value in THERE.items() if key != "run"}), "no usable run"),
        (json.dumps(dict(THERE, ledger=None)), "no usable ledger"),
    ],
)
def test_a_claim_that_is_none_is_not_no_claim(tmp_path, text, words):
    (tmp_path / "claim.json").write_text(text)
    found, problem = claim.read_claim(str(tmp_path))
    assert found is None and words in problem and str(tmp_path / "claim.json") in problem


def test_a_claim_that_cannot_be_read_is_not_no_claim(tmp_path):
    (tmp_path / "claim.json").mkdir()
    assert claim.read_claim(str(tmp_path))[0] is None and "cannot be read" in claim.read_claim(str(tmp_path))[1]
    assert claim.read_claim(str(tmp_path / "nothing")) == (None, "")


def act(tmp_path, check=False, status="running", **params):
    given = dict(
        {name: spec.get("default") for name, spec in node_state.ARGUMENTS.items()},
        directory=str(tmp_path / "state"),
        lock_timeout_s=0,
        **params,
    )
    return node_state.perform(
        given, check, lambda argv, timeout: (0, status + "\n", ""), str(tmp_path / "lock"), str(tmp_path)
    )


def test_a_node_is_taken_once_and_given_up(tmp_path):
    assert act(tmp_path) == {
        "changed": False,
        "claim": None,
        "last_change": None,
        "problem": "",
        "no_room": "",
        "quarantine": {"exists": False, "path": str(tmp_path / "state" / "quarantine.json")},
    }
    assert not act(tmp_path, check=True, state="held", content=MINE)["changed"] and not (tmp_path / "state").exists()
    taken = act(tmp_path, state="held", content=MINE)
    assert taken["changed"] and taken["claim"] == act(tmp_path)["claim"] and claim.alike(taken["claim"], MINE)
    assert taken["claim"]["state"] == "held"
    assert os.stat(str(tmp_path / "state" / "claim.json")).st_mode & 0o777 == 0o644
    assert os.listdir(str(tmp_path / "state")) == ["claim.json"]
    assert not act(tmp_path, state="held", content=MINE)["changed"]
    with pytest.raises(node_state.TaskError, match="held by rollout r1"):
        act(tmp_path, state="held", content=dict(MINE, rollout_id="r2"))
    assert not act(tmp_path, state="released", content=dict(MINE, attempt=1, run="a"))["changed"], "that is not its own"
    assert act(tmp_path, state="quarantined", content=MINE)["claim"]["state"] == "quarantined"
    assert not act(tmp_path, state="quarantined", content=MINE)["changed"]
    assert act(tmp_path, state="held", content=dict(MINE, attempt=3, run="c"))["claim"]["state"] == "held"
    assert act(tmp_path, state="released", content=dict(MINE, attempt=3, run="c"))["changed"]
    assert act(tmp_path)["claim"] is None
    assert not act(tmp_path, state="released", content=MINE)["changed"]


@pytest.mark.parametrize("missing", ["ledger", "rollout_id", "attempt", "run", "plan", "controller"])
def test_half_a_claim_is_none(tmp_path, missing):
    with pytest.raises(node_state.TaskError, match="claim has no %s" % missing):
        act(tmp_path, state="held", content={key: value for key, value in MINE.items() if key != missing})


def test_a_node_whose_claim_cannot_be_read_is_neither_taken_nor_given_up(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "claim.json").write_text("{")
    for state in ("held", "released", "quarantined"):
        with pytest.raises(node_state.TaskError, match="it is not JSON"):
            act(tmp_path, state=state, content=MINE, over=OTHER)
    assert (tmp_path / "state" / "claim.json").read_text() == "{"


def test_a_node_that_cannot_keep_its_claim_is_not_taken(tmp_path):
    (tmp_path / "state").write_text("no directory")
    with pytest.raises(node_state.TaskError, match="its claim could not be kept: .* is no directory"):
        act(tmp_path, state="held", content=MINE)


@pytest.mark.parametrize(
    "status, scheduled, seconds, leaving",
    [
        ("running", None, 0, False),
        ("degraded", None, 0, False),
        ("", None, 0, False),
        ("stopping", None, 0, True),
        ("running", "", 0, True),
        ("running", "USEC=soon\nMODE=reboot\n", 0, True),
        ("running", "USEC=%d\nWARN_WALL=1\nMODE=reboot\n", 60, True),
        ("running", "USEC=%d\nWARN_WALL=1\nMODE=poweroff\n", -60, True),
        ("running", "USEC=%d\nWARN_WALL=1\nMODE=reboot\n", 7 * 86400, False),
        ("stopping", "USEC=%d\nMODE=reboot\n", 7 * 86400, True),
    ],
)
def test_a_node_that_is_about_to_reboot_is_not_taken_yet(tmp_path, status, scheduled, seconds, leaving):
    if scheduled is not None:
        (tmp_path / "run" / "systemd" / "shutdown").mkdir(parents=True)
        text = scheduled % ((time.time() + seconds) * 1e6) if seconds else scheduled
        (tmp_path / "run" / "systemd" / "shutdown" / "scheduled").write_text(text)
    answer = act(tmp_path, status=status, state="held", content=MINE)
    assert answer["going_down"] == leaving and answer["changed"] != leaving
    assert (act(tmp_path)["claim"] is None) == leaving


def test_who_takes_a_node_waits_for_what_still_works_on_it(tmp_path):
    with lock.NodeLock(
        path=str(tmp_path / "lock"), owner={"module": "driver_packages", "step": "install"}
    ), pytest.raises(lock.LockTimeout, match="driver_packages"):
        act(tmp_path, state="held", content=MINE)
    assert act(tmp_path)["claim"] is None


@pytest.fixture
def token(monkeypatch, tmp_path):
    """token(claim): this process belongs to that attempt."""
    return lambda one: monkeypatch.setenv(claim.FENCE, claim.make_token(one, str(tmp_path / "state")))


def test_a_call_of_an_earlier_attempt_does_not_get_the_nodes_lock(tmp_path, token):
    act(tmp_path, state="held", content=dict(MINE, attempt=1, run="a"))
    token(dict(MINE, attempt=1, run="a"))
    with lock.NodeLock(path=str(tmp_path / "lock"), owner={"rollout_id": None}):
        assert locks.is_held(str(tmp_path / "lock"))
        assert "r1" in (tmp_path / "lock").read_text() and '"attempt": 1' in (tmp_path / "lock").read_text(), (
            "whoever waits for it reads which attempt it is"
        )
    act(tmp_path, state="held", content=MINE)
    with pytest.raises(
        lock.LockTimeout, match="belongs to attempt 1 of rollout r1, and the node is held by rollout r1 .attempt 2"
    ):
        lock.NodeLock(path=str(tmp_path / "lock")).acquire()
    assert locks.is_held(str(tmp_path / "lock")) is False


def test_a_call_that_waited_for_the_lock_sees_who_has_the_node_by_then(tmp_path, token, monkeypatch):
    act(tmp_path, state="held", content=dict(MINE, attempt=1, run="a"))
    token(dict(MINE, attempt=1, run="a"))
    held = lock.NodeLock(path=str(tmp_path / "lock")).acquire()

    def go_on(dummy):
        claim.write(str(tmp_path / "state"), THERE)
        held.release()

    monkeypatch.setattr(lock, "time", types.SimpleNamespace(sleep=go_on, monotonic=time.monotonic, time=time.time))
    with pytest.raises(lock.LockTimeout, match="belongs to attempt 1"):
        lock.NodeLock(path=str(tmp_path / "lock"), timeout_s=600).acquire()


@pytest.mark.parametrize("text", ["r1", "b:x:l1:r1:/d/claim.json", "b:2:l1:r1"])
def test_a_token_that_is_none_opens_nothing(tmp_path, monkeypatch, text):
    monkeypatch.setenv(claim.FENCE, text)
    with pytest.raises(lock.LockTimeout, match="expected run:attempt:ledger:rollout:path"):
        lock.NodeLock(path=str(tmp_path / "lock")).acquire()


def test_tasks_of_no_rollout_need_no_claim(tmp_path, monkeypatch):
    monkeypatch.setenv(claim.FENCE, "")
    act(tmp_path, state="held", content=MINE)
    with lock.NodeLock(path=str(tmp_path / "lock")):
        pass


@pytest.mark.parametrize(
    "one, goes", [(MINE, True), (dict(MINE, attempt=1, run="a"), False), (dict(MINE, ledger="l2"), False), (None, True)]
)
def test_a_command_is_only_run_for_the_attempt_that_has_the_node(tmp_path, one, goes):
    act(tmp_path, state="held", content=MINE)
    guard = claim.guard(claim.make_token(one, str(tmp_path / "state")) if one else "")
    done = subprocess.run(
        ["sh", "-c", guard + "echo went"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == (("went\n", 0) if goes else ("", claim.GUARD_RC))
    assert goes or "does not belong to this attempt" in done.stderr


@pytest.mark.parametrize(
    "changes, ledger, over, is_refused",
    [
        ({"age_s": 10}, "l2", None, True),
        ({"age_s": 99}, "l2", None, True),
        ({"age_s": 100}, "l2", None, False),
        ({"age_s": 10}, "l1", None, False),  # the same ledger knows what it did
        ({"age_s": 10}, None, None, True),  # a ledger in which nothing was ever written
        ({"age_s": 10}, "l2", dict(BEFORE), False),  # given up by name
        ({"age_s": 10, "attempt": 9}, "l2", dict(BEFORE), True),
    ],
)
def test_node_that_another_ledger_changed_is_refused_for_a_while(changes, ledger, over, is_refused):
    assert bool(claim.changed_elsewhere(dict(BEFORE, **changes), ledger, 100, over)) == is_refused
    assert claim.changed_elsewhere(None, ledger, 100) == ""


def test_last_change_is_kept_with_its_time_and_age(tmp_path):
    directory = str(tmp_path / "state")
    claim.write(directory, BEFORE)
    claim.finish(directory, claim.read_claim(directory)[0], 1000)
    assert claim.read_claim(directory) == (None, "")
    for now, age in ((1000, 0), (1060, 60), (10, 0)):  # the clock of the node was set back
        last, problem = claim.read_last(directory, now)
        assert (problem, last["age_s"], last["time"], last["rollout_id"]) == ("", age, "1970-01-01T00:16:40Z", "r1")
    for text in ("{", "{}", json.dumps(dict(last, time="yesterday"))):
        (tmp_path / "state" / claim.LAST).write_text(text)
        assert claim.read_last(directory, 1000)[1]


def test_state_directory_is_refused_where_the_mounts_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "MOUNTS", str(tmp_path / "none"))
    why = claim.room(str(tmp_path), lambda path: ROOMY)
    assert why.startswith("it cannot be told") and str(tmp_path / "none") in why
