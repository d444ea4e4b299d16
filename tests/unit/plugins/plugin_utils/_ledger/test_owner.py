# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import datetime
import multiprocessing
import os
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import proc_tasks
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger import beside
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.webserver import wait_for

pytestmark = pytest.mark.cores

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

HERE = owner.identify_process_table()
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
BOOTED = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.timezone.utc)
LONG_AGO = NOW - datetime.timedelta(hours=3)


@pytest.fixture
def ledger(tmp_path, url):
    return Ledger(str(tmp_path), "r1", url)


@pytest.fixture
def other():
    """Another live process, and its identity."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process, owner.identify_process(process.pid)
        process.kill()


def me():
    return owner.identify_process(os.getpid())


def unseen():
    """A process that cannot be looked for from here."""
    return dict(me(), pid_namespace="pid:[1]")


def ended(other):
    process, identity = other
    process.kill()
    process.wait()
    return identity


def claim(ledger, run, names, who, break_lock=False, now=NOW):
    def work(transaction):
        owner.claim_rollout(transaction, ledger.rollout_id, run, names, who, break_lock, now=now)
        nodes = {name: {"state": "pending", "from": "1", "to": "2"} for name in names}
        transaction.append(
            "plan",
            run=run,
            rollout_id="x",
            target="2",
            order=list(names),
            nodes=nodes,
            policy=limits.complete_policy({}, 1),
            sha256="f",
        )

    ledger.transact(work)


def require(ledger, who, now=NOW):
    return ledger.transact(lambda transaction: owner.require_owner(transaction, ledger.rollout_id, who, now))


def test_this_process_lives():
    assert owner.judge_liveness(me()) == "alive"


def test_an_ended_process_is_dead(other):
    assert owner.judge_liveness(other[1]) == "alive"
    assert owner.judge_liveness(ended(other)) == "dead"


def test_a_zombie_is_dead():
    process = subprocess.Popen(["true"])
    identity = None
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        identity = dict(HERE, pid=process.pid, started=1)
        assert owner.find_start(process.pid) == owner.GONE
        assert proc_tasks.read_start(process.pid) is None
    finally:
        process.wait()
    assert owner.judge_liveness(identity) == "dead"


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"started": 1}, "dead"),  # the pid was used again
        ({"boot_id": "other"}, "unknown"),  # this machine was booted since, or another one has its name
        ({"boot_id": "other", "host": "elsewhere"}, "unknown"),
        ({"boot_id": "other", "pid_namespace": "pid:[1]"}, "unknown"),
        ({"pid_namespace": "pid:[1]"}, "unknown"),
    ],
)
def test_liveness(change, expected):
    assert owner.judge_liveness(dict(me(), **change)) == expected


FULL = {"host": "h", "boot_id": "b", "pid_namespace": "n"}
RECORDED = dict(FULL, pid=7, started=70)


@pytest.mark.parametrize(
    "recorded, here, seen, expected",
    [
        ({}, {}, 70, "alive"),
        ({}, {}, 71, "dead"),  # the pid was used again
        ({}, {}, owner.GONE, "dead"),
        ({}, {}, None, "unknown"),  # hidepid, or no /proc: the process exists, and its identity is unknown
        ({"started": None}, {}, 70, "unknown"),
        ({"started": None}, {}, owner.GONE, "dead"),
        ({"pid": 1}, {}, 70, "unknown"),  # what stands for the parent of a process whose own one has died
        ({"pid": 1}, {}, owner.GONE, "unknown"),
        ({"pid": None}, {}, owner.GONE, "unknown"),
        ({"boot_id": None}, {"boot_id": None}, 70, "unknown"),
        ({"boot_id": None}, {"boot_id": None}, owner.GONE, "unknown"),
        ({"boot_id": None}, {}, owner.GONE, "unknown"),
        ({}, {"boot_id": None}, owner.GONE, "unknown"),
        ({"pid_namespace": None}, {"pid_namespace": None}, owner.GONE, "unknown"),
        ({"pid_namespace": "m"}, {}, owner.GONE, "unknown"),
        ({"boot_id": "c"}, {}, owner.GONE, "unknown"),
    ],
)
def test_what_cannot_be_seen_is_not_dead(recorded, here, seen, expected):
    assert owner.judge_process(dict(RECORDED, **recorded), dict(FULL, **here), seen) == expected


def test_a_process_whose_status_is_hidden_is_neither_gone_nor_known(tmp_path):
    hidden = tmp_path / "proc"
    hidden.mkdir()
    assert owner.find_start(os.getpid(), str(hidden)) is None
    assert owner.find_start(os.getpid()) == proc_tasks.read_start(os.getpid())


def test_without_a_process_table_a_living_controller_is_refused_until_it_was_silent_and_an_operator_confirms(
    other, tmp_path
):
    record = {"owner": other[1], "time": format_time(LONG_AGO), "heartbeat": format_time(LONG_AGO)}
    assert "rollout_break_lock=true" in owner.explain_refusal("x", record, [], True, NOW, proc=str(tmp_path))
    assert owner.explain_refusal("x", record, [], True, NOW, break_lock=True, proc=str(tmp_path)) == ""
    fresh = dict(record, heartbeat=format_time(NOW - datetime.timedelta(seconds=5)))
    assert "try again in 115 s" in owner.explain_refusal("x", fresh, [], True, NOW, break_lock=True, proc=str(tmp_path))


def test_a_controller_without_a_complete_identity_is_never_recognized_as_the_owner(ledger):
    unclear = {"host": "h", "boot_id": None, "pid_namespace": None, "pid": 7, "started": None}
    claim(ledger, "run1", ["a"], unclear)
    assert require(ledger, unclear) == "run1"
    with pytest.raises(owner.OwnerError, match="taken over"):
        require(ledger, dict(unclear, host="another"))
    with pytest.raises(owner.OwnerError, match="try again in"):
        claim(ledger, "run2", ["a"], unclear)


def test_an_owner_that_was_recorded_as_process_1_does_not_hold_a_rollout_for_ever(ledger):
    claim(ledger, "run1", ["a"], owner.identify_process(1), now=LONG_AGO)
    with pytest.raises(owner.OwnerError, match="rollout_break_lock=true"):
        claim(ledger, "run2", ["a"], me())
    claim(ledger, "run2", ["a"], me(), break_lock=True)
    assert require(ledger, me()) == "run2"


@pytest.fixture
def machine(tmp_path):
    """A process table of a machine that was booted at BOOTED."""
    proc = tmp_path / "proc"
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "sys" / "kernel" / "random").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    (proc / "sys" / "kernel" / "random" / "boot_id").write_text("this\n")
    return proc


@pytest.mark.parametrize(
    "heard, after, change, expected",
    [
        (-600, 60, {}, "dead"),  # silent since before the boot
        (-61, 60, {}, "dead"),
        (-10, 60, {}, "unknown"),  # just now
        (1, 6000, {}, "unknown"),  # it wrote after this machine was booted: it is another one of the same name
        (None, 6000, {}, "unknown"),
        (-600, 60, {"host": "elsewhere"}, "unknown"),
        (-600, 60, {"pid_namespace": "pid:[2]"}, "unknown"),
    ],
)
def test_a_machine_of_the_same_name_with_another_boot_is_only_dead_when_it_was_silent_since_before_this_boot(
    machine, heard, after, change, expected
):
    them = dict(owner.identify_process_table(str(machine)), boot_id="other", pid=1, started=1, **change)
    said = None if heard is None else format_time(BOOTED + datetime.timedelta(seconds=heard))
    now = BOOTED + datetime.timedelta(seconds=after)
    (machine / "uptime").write_text("%d.00 7.50\n" % after)
    assert owner.judge_liveness(them, str(machine), said, now) == expected
    if said:
        record = {"owner": them, "time": said, "heartbeat": said}
        assert bool(owner.explain_refusal("x", record, [], True, now, proc=str(machine))) == (expected != "dead")
    if expected == "dead":
        (machine / "uptime").write_text("\n")
        assert owner.judge_liveness(them, str(machine), said, now) == "unknown", (
            "it cannot be told when this machine was booted"
        )


def test_a_cloned_controller_takes_no_live_rollout_over(ledger):
    twin = dict(me(), boot_id="other")
    now = datetime.datetime.now(datetime.timezone.utc)
    claim(ledger, "run1", ["a"], twin, now=now - datetime.timedelta(seconds=5))
    with pytest.raises(owner.OwnerError, match="5 s ago.*try again in"):
        claim(ledger, "run2", ["a"], me(), break_lock=True, now=now)
    assert ledger.view().run == "run1"


def test_a_second_live_controller_is_refused_and_nothing_changes(ledger, other):
    claim(ledger, "run1", ["a", "b"], other[1])
    with pytest.raises(owner.OwnerError, match=r"is being run by process %d .*3 h ago" % other[0].pid):
        claim(ledger, "run2", ["a"], me(), break_lock=True, now=NOW + datetime.timedelta(hours=3))
    assert require(ledger, other[1]) == "run1"
    assert ledger.view().run == "run1"


def test_another_rollout_is_refused_only_when_it_shares_a_node(ledger, tmp_path, url, other):
    claim(ledger, "run1", ["a", "b"], other[1])
    second = Ledger(str(tmp_path), "r2", url)
    with pytest.raises(owner.OwnerError, match="shares b with this one"):
        claim(second, "run2", ["b", "c"], me())
    claim(second, "run2", ["c"], me())
    assert require(second, me()) == "run2"


def test_a_dead_controller_is_followed(ledger, other):
    claim(ledger, "run1", ["a"], ended(other))
    claim(ledger, "run2", ["a"], me())
    with pytest.raises(owner.OwnerError, match="taken over"):
        require(ledger, other[1])


def test_a_controller_that_cannot_be_seen_needs_a_word(ledger):
    claim(ledger, "run1", ["a"], unseen(), now=LONG_AGO)
    with pytest.raises(owner.OwnerError, match="3 h ago.*rollout_break_lock=true"):
        claim(ledger, "run2", ["a"], me())
    claim(ledger, "run2", ["a"], me(), break_lock=True)
    assert require(ledger, me()) == "run2"


JOB = {"awx": "https://awx", "id": "41", "template": "gpufleet upgrade"}
IN_WORKFLOW = {"workflow": "7", "workflow_name": "driver upgrade"}


@pytest.mark.parametrize(
    "job, mine, is_ended",
    [
        (JOB, {"id": "42"}, True),
        (dict(JOB, **IN_WORKFLOW), dict(IN_WORKFLOW, id="42", workflow="8"), True),
        (dict(JOB, **IN_WORKFLOW), dict(IN_WORKFLOW, id="42", workflow="8", template="gpufleet plan"), True),
        (dict(JOB, **IN_WORKFLOW), {"id": "42", "template": "gpufleet plan"}, False),
        (dict(JOB, **IN_WORKFLOW), dict(IN_WORKFLOW, id="42"), False),  # slices of one job run at the same time
        (JOB, {"id": "42", "template": "gpufleet rollback"}, False),
        (JOB, {"id": "42", "awx": "https://another"}, False),
        (JOB, {"id": "41"}, False),
        (dict(JOB, awx=""), {"id": "42", "awx": ""}, False),
        (dict(JOB, template=""), {"id": "42", "template": ""}, False),
        ({}, {"id": "42"}, False),
    ],
)
def test_job_that_awx_has_ended_is_known_by_one_that_it_would_not_run_beside_it(job, mine, is_ended):
    assert owner.is_ended_job({"job": job}, {"job": {**JOB, **mine}}) is is_ended
    assert not owner.is_ended_job({"job": job}, {}) and not owner.is_ended_job({"job": job}, {"job": {}})


def test_lock_of_a_job_that_awx_has_ended_is_free_when_its_lease_has_run_out(ledger):
    killed, again = dict(unseen(), job=JOB), dict(me(), job=dict(JOB, id="42"))
    claim(ledger, "run1", ["a"], killed)
    for silent_s, words in (
        (owner.FRESH_S - 1, "try again in 781 s"),
        (owner.LEASE_S - 1, "start this job again in 1 s"),
    ):
        with pytest.raises(owner.OwnerError, match=words):
            claim(ledger, "run2", ["a"], again, now=NOW + datetime.timedelta(seconds=silent_s))
    over = NOW + datetime.timedelta(seconds=owner.LEASE_S)
    with pytest.raises(owner.OwnerError, match="rollout_break_lock=true"):
        claim(ledger, "run2", ["a"], me(), now=over)
    claim(ledger, "run2", ["a"], again, now=over)
    with pytest.raises(owner.OwnerError, match="taken over"):
        require(ledger, killed, over)


def test_job_with_a_heartbeat_from_the_future_needs_a_word(ledger):
    claim(ledger, "run1", ["a"], dict(unseen(), job=JOB), now=NOW + datetime.timedelta(hours=2))
    with pytest.raises(owner.OwnerError, match="rollout_break_lock=true"):
        claim(ledger, "run2", ["a"], dict(me(), job=dict(JOB, id="42")))


def test_job_that_awx_has_ended_and_that_can_be_seen_alive_is_not_overruled(ledger, other):
    claim(ledger, "run1", ["a"], dict(other[1], job=JOB), now=LONG_AGO)
    with pytest.raises(owner.OwnerError, match="is being run by"):
        claim(ledger, "run2", ["a"], dict(me(), job=dict(JOB, id="42")))


def test_another_rollout_of_a_job_that_awx_has_ended_keeps_its_nodes_for_its_lease(ledger, tmp_path, url):
    claim(ledger, "run1", ["a"], dict(unseen(), job=JOB))
    second, again = Ledger(str(tmp_path), "r2", url), dict(me(), job=dict(JOB, id="42"))
    with pytest.raises(owner.OwnerError, match="shares a"):
        claim(second, "run2", ["a"], again, now=NOW + datetime.timedelta(seconds=owner.LEASE_S - 1))
    claim(second, "run2", ["a"], again, now=NOW + datetime.timedelta(seconds=owner.LEASE_S))


def test_a_controller_that_cannot_be_seen_but_has_just_written_is_not_overruled(ledger):
    claim(ledger, "run1", ["a"], unseen(), now=LONG_AGO)
    require(ledger, unseen(), now=NOW - datetime.timedelta(seconds=20))
    with pytest.raises(owner.OwnerError, match="20 s ago.*try again in 100 s"):
        claim(ledger, "run2", ["a"], me(), break_lock=True)
    assert require(ledger, unseen()) == "run1"


def test_who_asks_shows_that_it_lives_but_not_all_the_time(ledger):
    claim(ledger, "run1", ["a"], me(), now=NOW)
    beats = []
    for seconds in (1, owner.HEARTBEAT_S + 1, owner.HEARTBEAT_S + 2):
        require(ledger, me(), NOW + datetime.timedelta(seconds=seconds))
        beats.append(ledger.owner()["heartbeat"])
    assert beats == ["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:31.000Z", "2026-01-01T00:00:31.000Z"]


@pytest.mark.parametrize("ahead_s, is_broken", [(10, False), (40, True), (7200, True)])
def test_lock_with_a_heartbeat_from_the_future_can_be_broken(ledger, ahead_s, is_broken):
    """The clock of the ledger was set back after an invisible controller had died."""
    claim(ledger, "run1", ["a"], unseen(), now=NOW + datetime.timedelta(seconds=ahead_s))
    with pytest.raises(owner.OwnerError, match="rollout_break_lock=true" if is_broken else "its heartbeat is recent"):
        claim(ledger, "run2", ["a"], me())
    if is_broken:
        claim(ledger, "run2", ["a"], me(), break_lock=True)
        assert require(ledger, me()) == "run2"
    else:
        with pytest.raises(owner.OwnerError, match="its heartbeat is recent"):
            claim(ledger, "run2", ["a"], me(), break_lock=True)


def test_controller_whose_clock_was_set_back_writes_its_heartbeat_at_once(ledger):
    claim(ledger, "run1", ["a"], unseen(), now=NOW + datetime.timedelta(hours=2))
    require(ledger, unseen())
    assert ledger.owner()["heartbeat"] == "2026-01-01T00:00:00.000Z"
    with pytest.raises(owner.OwnerError, match="its heartbeat is recent"):
        claim(ledger, "run2", ["a"], me(), break_lock=True)


def test_a_run_that_ended_blocks_no_other(ledger):
    claim(ledger, "run1", ["a"], unseen())
    ledger.transact(lambda transaction: owner.release_rollout(transaction, unseen()))
    claim(ledger, "run2", ["a"], me())


def test_release_is_only_for_the_owner(ledger):
    claim(ledger, "run1", ["a"], me())
    ledger.transact(lambda transaction: owner.release_rollout(transaction, dict(me(), pid=1)))
    assert "ended" not in ledger.owner()


def test_a_rollout_that_was_never_planned_has_no_owner(ledger):
    with pytest.raises(owner.OwnerError, match="never planned"):
        require(ledger, me())


def _begin(directory, url, rollout_id, names, barrier, answers):
    ledger = Ledger(str(directory), rollout_id, url)

    def work(transaction):
        owner.claim_rollout(transaction, rollout_id, "run-" + rollout_id, names, owner.identify_process(os.getpid()))
        # As long as a plan of many nodes takes: until the other one waits for it, or is here as well.
        (directory / ("here-" + rollout_id)).touch()
        wait_for(lambda: len(list(directory.glob("here-*"))) == 2 or beside.waits(ledger))
        nodes = {name: {"state": "pending", "from": "1", "to": "2"} for name in names}
        fields = {"target": "2", "order": names, "nodes": nodes, "policy": limits.complete_policy({}, 1), "sha256": "f"}
        transaction.append("plan", run="run-" + rollout_id, rollout_id=rollout_id, **fields)

    barrier.wait()
    try:
        ledger.transact(work)
        answers.put((rollout_id, ""))
    except owner.OwnerError as exc:
        answers.put((rollout_id, str(exc)))
    barrier.wait()  # it lives until both have asked


@pytest.mark.parametrize("names, winners", [((["a", "b"], ["b", "c"]), 1), ((["a"], ["b"]), 2)])
def test_of_two_rollouts_that_share_a_node_and_start_at_once_one_begins(ledger, tmp_path, url, names, winners):
    ledger.transact(lambda transaction: None)  # the tables are there
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(2), context.Queue()
    both = [
        context.Process(target=_begin, args=(tmp_path, url, "r%d" % (10 + number), mine, barrier, answers))
        for number, mine in enumerate(names)
    ]
    for process in both:
        process.start()
    said = dict(answers.get(timeout=600) for dummy in both)
    for process in both:
        process.join()
    assert sorted(said.values()).count("") == winners, said
    assert winners == 2 or any("shares b with this one" in text for text in said.values())
