# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several controllers of one rollout: who is a member, for how long, and of which nodes."""

from __future__ import annotations

import datetime
import os
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, members, owner, state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import reduce
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import LATER

pytestmark = pytest.mark.cores

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
NAMES = ("a1", "a2", "b1", "b2")


def later(seconds):
    return NOW + datetime.timedelta(seconds=seconds)


@pytest.fixture
def ledger(tmp_path, url):
    found = Ledger(str(tmp_path), "r1", url)
    hand_over(found)
    return found


def hand_over(ledger, run="run1", names=NAMES):
    def work(transaction):
        owner.claim_rollout(transaction, "r1", run, names, me(), now=NOW)
        transaction.append(
            "plan",
            run=run,
            rollout_id="r1",
            target="2",
            order=list(names),
            nodes={name: {"state": "pending", "from": "1", "to": "2"} for name in names},
            policy=limits.complete_policy({"max_down": 4}, 4),
            sha256="f",
        )
        transaction.hold(members.make_shared_record(run, NOW))

    ledger.transact(work)


def me():
    return owner.identify_process(os.getpid())


def unseen(host):
    """A controller in another place, whose processes are not visible from here."""
    return dict(me(), host=host, pid_namespace="pid:[1]", boot_id=host)


def join(ledger, who, names, now=NOW, break_lock=False):
    member = "m-" + who["host"]
    return ledger.transact(lambda transaction: members.add_member(transaction, member, names, who, now, break_lock))


def require(ledger, who, now=NOW):
    return ledger.transact(lambda transaction: members.require_membership(transaction, "r1", who, now))


def go(transaction, name, phase="drain"):
    transaction.append("grant", run="run1", node=name, phase=phase, ticket="t", expires=LATER)


A, B = unseen("a"), unseen("b")


def test_a_plan_for_several_belongs_to_none_of_them_until_they_join(ledger):
    with pytest.raises(owner.OwnerError, match="no member of rollout r1"):
        require(ledger, A)
    assert ledger.controllers()[1:] == ([], [])
    join(ledger, A, ["a1", "a2"])
    join(ledger, B, ["b1", "b2"])
    assert (require(ledger, A), require(ledger, B)) == ("run1", "run1")
    hosts = ledger.rehearse(lambda transaction: [members.find_hosts(transaction, who) for who in (A, B, unseen("c"))])
    assert hosts == [{"a1", "a2"}, {"b1", "b2"}, frozenset()]


@pytest.mark.parametrize(
    ("seconds", "renewed", "refused"),
    [(0, None, True), (899, None, True), (900, None, False), (1000, 200, True), (1100, 200, False)],
)
def test_a_host_of_a_living_member_is_not_given_away_and_that_of_a_dead_one_is(ledger, seconds, renewed, refused):
    join(ledger, A, ["a1", "a2"])
    if renewed is not None:
        assert require(ledger, A, later(renewed)) == "run1"
    if refused:
        with pytest.raises(owner.OwnerError, match="a2 is in rollout r1 already"):
            join(ledger, B, ["a2", "b1"], later(seconds))
        assert require(ledger, A, later(seconds)) == "run1"
        return
    join(ledger, B, ["a2", "b1"], later(seconds))
    with pytest.raises(owner.OwnerError, match="no longer a member of rollout r1: its lease had run out"):
        require(ledger, A, later(seconds))
    assert require(ledger, B, later(seconds)) == "run1"


@pytest.mark.parametrize(
    "ahead_s, is_broken", [(0, False), (10, False), (7200, True), (-119, False), (-120, True), (-600, True)]
)
def test_member_that_was_silent_or_has_a_lease_from_the_future_is_ended_by_break_lock_alone(ledger, ahead_s, is_broken):
    hand_over(ledger)
    join(ledger, unseen("one"), ["a1"], later(ahead_s))
    with pytest.raises(owner.OwnerError):
        join(ledger, unseen("two"), ["a1"])
    if not is_broken:
        with pytest.raises(owner.OwnerError):
            join(ledger, unseen("two"), ["a1"], break_lock=True)
        return
    join(ledger, unseen("two"), ["a1"], break_lock=True)
    with pytest.raises(owner.OwnerError, match="no longer a member"):
        require(ledger, unseen("one"))


def test_a_lease_that_ran_out_while_no_other_joined_is_extended(ledger):
    join(ledger, A, ["a1"])
    assert require(ledger, A, later(10000)) == "run1"
    with pytest.raises(owner.OwnerError, match="a1 is in rollout r1 already"):
        join(ledger, B, ["a1"], later(10100))


def test_a_process_that_is_visibly_gone_is_taken_over_at_once_and_a_visible_one_never(ledger):
    join(ledger, me(), ["b1"])
    with pytest.raises(owner.OwnerError, match="b1 is in rollout r1 already"):
        join(ledger, A, ["b1"], later(100000))
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = owner.identify_process(process.pid)
        ledger.transact(lambda transaction: members.add_member(transaction, "m-gone", ["a1"], identity, NOW))
        process.kill()
    assert ledger.rehearse(lambda transaction: len(members.find_living(transaction, later(1)))) == 1
    join(ledger, A, ["a1"], later(1))


def test_the_part_of_a_member_ends_with_its_playbook(ledger):
    join(ledger, A, ["a1"])
    ledger.transact(lambda transaction: members.release_part(transaction, A, later(5)))
    with pytest.raises(owner.OwnerError, match="no longer a member"):
        require(ledger, A, later(6))
    join(ledger, B, ["a1"], later(6))
    assert [member.ended for member in ledger.rehearse(lambda transaction: transaction.members())] == [
        format_time(later(5)),
        None,
    ]


def test_nodes_of_another_member_are_never_lost_and_keep_their_place_in_the_order(ledger):
    join(ledger, A, ["a1", "a2"])
    join(ledger, B, ["b1", "b2"])
    ledger.transact(lambda transaction: [go(transaction, name) for name in ("a1", "a2", "b1")])

    def seen(who, play, now):
        def ask(transaction):
            transaction.clock = lambda: now
            mine = members.find_hosts(transaction, who)
            return (
                sorted(node.name for node in gate.find_vanished(transaction.view, play, mine)),
                members.find_present_hosts(transaction, who, play),
            )

        return ledger.rehearse(ask)

    assert seen(A, ["a1"], NOW) == (["a2"], {"a1", "b1", "b2"})
    assert seen(B, ["b2"], NOW) == (["b1"], {"a1", "a2", "b2"})
    assert seen(B, ["b2"], later(owner.LEASE_S)) == (["b1"], {"b2"}), "a dead one has no place"
    assert ledger.rehearse(lambda transaction: members.find_present_hosts(transaction, A, None)) is None


def test_a_host_that_left_the_play_of_another_member_keeps_no_place(ledger):
    join(ledger, A, ["a1", "a2"])
    join(ledger, B, ["b1"])

    def gone(who, play):
        ledger.transact(lambda transaction: members.record_gone(transaction, who, play))

    def present():
        def ask(transaction):
            transaction.clock = lambda: NOW
            return members.find_present_hosts(transaction, B, ["b1"])

        return ledger.rehearse(ask)

    gone(A, None)
    assert present() == {"a1", "a2", "b1"}
    gone(A, ["a2", "localhost"])
    assert present() == {"a2", "b1"}
    gone(A, ["a1", "a2"])
    assert present() == {"a1", "a2", "b1"}


def test_a_node_in_flight_of_a_dead_member_is_taken_up_with_its_steps_and_place(ledger):
    join(ledger, A, ["a1"])

    def work(transaction):
        go(transaction, "a1")
        transaction.append("step", run="run1", node="a1", step="evidence", detail="")
        go(transaction, "a1", "down")
        transaction.append("step", run="run1", node="a1", step="install", detail="")

    ledger.transact(work)
    entry = {"state": "pending", "orphaned": True, "from": "1", "to": "2"}
    ledger.transact(lambda transaction: transaction.append("join", run="run1", nodes={"a1": entry}, approved=False))
    view = ledger.view()
    node = view.nodes.get("a1")
    assert (node.state, node.orphaned, node.position, node.went, node.ticket) == ("down", True, 0, 1, None)
    assert [(step.name, step.status) for step in node.steps] == [("evidence", "ok"), ("install", "interrupted")]
    assert reduce(ledger.events()).nodes.list_all() == view.nodes.list_all(), "the events amount to it"
    ledger.transact(lambda transaction: go(transaction, "a1"))
    again = ledger.view()
    assert (again.nodes.get("a1").orphaned, again.nodes.get("a1").attempt, again.attempt_count) == (False, 2, 1)


@pytest.mark.parametrize(("given", "approved"), [(True, "f"), (False, "")])
def test_who_joins_with_the_digest_of_the_plan_approves_it(given, approved):
    view = state.Rollout(run="r", sha256="f", policy={"approved": ""})
    events.apply_event(view, {"event": "join", "run": "r", "time": "t", "nodes": {}, "approved": given})
    assert view.policy["approved"] == approved


def test_a_new_plan_is_refused_while_members_live_and_fences_those_of_the_old_one(ledger):
    join(ledger, A, ["a1"], datetime.datetime.now(datetime.timezone.utc))
    with pytest.raises(owner.OwnerError, match="is being run by process"):
        ledger.transact(lambda transaction: owner.claim_rollout(transaction, "r1", "run2", NAMES, me()))
    ledger.transact(lambda transaction: members.release_part(transaction, A))
    hand_over(ledger, "run2")
    with pytest.raises(owner.OwnerError, match="no member of rollout r1: the plan was made again"):
        require(ledger, A)


def test_another_rollout_with_a_node_of_a_living_member_is_refused(ledger, tmp_path, url):
    other = Ledger(str(tmp_path), "r2", url)

    def claim():
        other.transact(lambda transaction: owner.claim_rollout(transaction, "r2", "x", ["b1"], me()))

    join(ledger, A, ["a1"], datetime.datetime.now(datetime.timezone.utc))
    with pytest.raises(owner.OwnerError, match="Rollout r1 is being run by process .* shares b1"):
        claim()
    ledger.transact(lambda transaction: members.release_part(transaction, A))
    claim()


def test_a_ledger_without_members_has_none_and_its_owner_is_alone(tmp_path, url):
    ledger = Ledger(str(tmp_path), "r1", url)
    ledger.transact(lambda transaction: owner.claim_rollout(transaction, "r1", "run1", ["a"], me()))
    assert ledger.rehearse(lambda transaction: members.find_hosts(transaction, me())) is None
    assert ledger.rehearse(lambda transaction: members.find_present_hosts(transaction, me(), ["a"])) == ["a"]
    found, holders, lines = ledger.controllers()
    assert holders == [found] and lines == []


def test_a_user_without_the_right_to_create_tables_is_told_which_rights(postgresql, tmp_path):
    import psycopg

    with psycopg.connect(host=postgresql.base, user="postgres", autocommit=True) as connection:
        connection.execute("CREATE ROLE poor LOGIN")
        connection.execute("CREATE SCHEMA poor")
        connection.execute("GRANT USAGE ON SCHEMA poor TO poor")
    url = "postgresql+psycopg://poor@/postgres?host=%s&options=-csearch_path%%3Dpoor" % postgresql.base
    with pytest.raises(store.StoreError, match="GRANT USAGE, CREATE ON SCHEMA"):
        Ledger(str(tmp_path), "r1", url).transact(lambda transaction: transaction.append("plan"))
