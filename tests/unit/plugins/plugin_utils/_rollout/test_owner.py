# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import ledger, owner

HERE = owner.place()


@pytest.fixture
def book(tmp_path):
    return ledger.Ledger(str(tmp_path), "r1")


@pytest.fixture
def other():
    """Another live process, and its identity."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process, owner.identify(process.pid)
        process.kill()


def ended(other):
    process, identity = other
    process.kill()
    process.wait()
    return identity


def test_this_process_lives():
    assert owner.liveness(owner.identify(os.getpid())) == "alive"


def test_an_ended_process_is_dead(other):
    assert owner.liveness(other[1]) == "alive"
    assert owner.liveness(ended(other)) == "dead"


def test_a_zombie_is_dead():
    process = subprocess.Popen(["true"])
    identity = None
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        identity = dict(HERE, pid=process.pid, started=1)
        assert owner.start_ticks(process.pid) is None
    finally:
        process.wait()
    assert owner.liveness(identity) == "dead"


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"started": 1}, "dead"),  # the pid was used again
        ({"boot_id": "other"}, "dead"),  # this machine was booted since
        ({"boot_id": "other", "host": "elsewhere"}, "unknown"),
        ({"boot_id": "other", "pid_namespace": "pid:[1]"}, "unknown"),
        ({"pid_namespace": "pid:[1]"}, "unknown"),
    ],
)
def test_liveness(change, expected):
    assert owner.liveness(dict(owner.identify(os.getpid()), **change)) == expected


def test_a_second_live_controller_is_refused_and_nothing_changes(book, other):
    owner.claim(book, "run1", ["a", "b"], other[1])
    with pytest.raises(owner.OwnerError, match=r"being run by process %d" % other[0].pid):
        owner.claim(book, "run2", ["a"], owner.identify(os.getpid()), break_lock=True)
    assert owner.require(book, other[1]) == "run1"


def test_another_rollout_is_refused_only_when_it_shares_a_node(book, tmp_path, other):
    owner.claim(book, "run1", ["a", "b"], other[1])
    second = ledger.Ledger(str(tmp_path), "r2")
    with pytest.raises(owner.OwnerError, match="shares b with this one"):
        owner.claim(second, "run2", ["b", "c"], owner.identify(os.getpid()))
    owner.claim(second, "run2", ["c"], owner.identify(os.getpid()))
    assert owner.require(second, owner.identify(os.getpid())) == "run2"


def test_a_dead_controller_is_followed(book, other):
    owner.claim(book, "run1", ["a"], ended(other))
    owner.claim(book, "run2", ["a"], owner.identify(os.getpid()))
    with pytest.raises(owner.OwnerError, match="taken over"):
        owner.require(book, other[1])


def test_a_controller_that_cannot_be_seen_needs_a_word(book):
    unseen = dict(owner.identify(os.getpid()), pid_namespace="pid:[1]")
    owner.claim(book, "run1", ["a"], unseen)
    with pytest.raises(owner.OwnerError, match="rollout_break_lock=true"):
        owner.claim(book, "run2", ["a"], owner.identify(os.getpid()))
    owner.claim(book, "run2", ["a"], owner.identify(os.getpid()), break_lock=True)
    assert owner.require(book, owner.identify(os.getpid())) == "run2"


def test_a_run_that_ended_holds_nobody_up(book):
    unseen = dict(owner.identify(os.getpid()), pid_namespace="pid:[1]")
    owner.claim(book, "run1", ["a"], unseen)
    owner.release(book, unseen)
    owner.claim(book, "run2", ["a"], owner.identify(os.getpid()))


def test_release_is_only_for_the_owner(book):
    owner.claim(book, "run1", ["a"], owner.identify(os.getpid()))
    owner.release(book, dict(owner.identify(os.getpid()), pid=1))
    assert "ended" not in owner.record(book)


def test_a_rollout_that_was_never_planned_has_no_owner(book):
    with pytest.raises(owner.OwnerError, match="never planned"):
        owner.require(book, owner.identify(os.getpid()))
