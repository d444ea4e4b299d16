# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts that name the same pool share their down slots and failure domains."""

from __future__ import annotations

import concurrent.futures

import pytest

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import others, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits, options
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger import beside
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import LATER, view_of
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.webserver import wait_for

pytestmark = pytest.mark.cores


def plan(place, url, rollout_id, names, pool="site_a", racks=None, **policy):
    found = Ledger(str(place), rollout_id, url)

    def work(transaction):
        transaction.append(
            "plan",
            run="run-" + rollout_id,
            rollout_id=rollout_id,
            target="2",
            order=list(names),
            nodes={
                name: {"state": "pending", "from": "1", "to": "2", "domains": {"rack": rack} if rack else {}}
                for name, rack in zip(names, racks or [""] * len(names))
            },
            policy=limits.complete_policy(dict(policy, pool=pool), len(names)),
            sha256="f",
        )

    found.transact(work)
    return found


def ask(ledger, name, phase=state.DRAIN, meanwhile=lambda: None):
    """The decision, as the gate records it; MEANWHILE is called before it is recorded."""

    def work(transaction):
        others.read_pool_nodes(transaction, True)
        decision = gate.decide(transaction.view, phase, name)
        meanwhile()
        if decision.answer == "go":
            transaction.append(
                "grant", run=transaction.view.run, node=name, phase=phase, ticket="t" + phase, expires=LATER
            )
        return decision

    return ledger.transact(work)


def end(ledger, name, ended, **more):
    ledger.transact(
        lambda transaction: transaction.append(
            "state", run=transaction.view.run, node=name, state=ended, reason="x", **more
        )
    )


@pytest.fixture
def both(tmp_path, url):
    """Two rollouts of one pool, each with a node that has drained."""
    one, two = (plan(tmp_path, url, name, [name + "1", name + "2"], max_down=1) for name in ("a", "b"))
    assert [ask(one, "a1").answer, ask(two, "b1").answer] == ["go", "go"]
    return one, two


def test_a_down_slot_that_one_rollout_took_is_none_of_the_other(both):
    one, two = both
    assert ask(one, "a1", state.DOWN).answer == "go"
    waits = ask(two, "b1", state.DOWN)
    assert waits.answer == "wait" and "a1 of rollout a" in waits.reason
    end(one, "a1", "done")
    assert ask(two, "b1", state.DOWN).answer == "go"
    waits = ask(one, "a2")
    assert waits.answer == "wait" and "b1 of rollout b" in waits.reason


def test_two_rollouts_that_ask_at_the_same_time_do_not_both_take_the_last_slot(both):
    asking = set()

    def work(ledger, name):
        def meanwhile():
            """The first one waits until the other one waits for it, or is here as well."""
            asking.add(name)
            wait_for(lambda: len(asking) == 2 or beside.waits(ledger))

        return ask(ledger, name, state.DOWN, meanwhile).answer

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(work, both, ("a1", "b1")))
    assert sorted(answers) == ["go", "wait"]


@pytest.mark.parametrize("pool", ["", "site-a", "siteXa", "site_a2"])
def test_a_rollout_of_no_pool_or_another_one_is_nothing_to_it(tmp_path, url, pool):
    one, two = plan(tmp_path, url, "a", ["a1"]), plan(tmp_path, url, "b", ["b1"], pool=pool)
    for ledger, name in ((one, "a1"), (two, "b1")):
        for phase in (state.DRAIN, state.DOWN):
            assert ask(ledger, name, phase).answer == "go"


def test_a_failure_domain_counts_the_nodes_of_both(tmp_path, url):
    one = plan(tmp_path, url, "a", ["a1"], racks=["r1"], max_down=4, domain_caps={"rack": 1})
    two = plan(tmp_path, url, "b", ["b1", "b2"], racks=["r1", "r2"], max_down=4, domain_caps={"rack": 1})
    assert ask(one, "a1").answer == "go"
    waits = ask(two, "b1")
    assert waits.answer == "wait" and "a1 of rollout a" in waits.reason and "rack r1" in waits.reason
    assert ask(two, "b2").answer == "go"


def test_a_node_out_of_service_counts_until_its_rollout_has_ended(both):
    one, two = both
    ask(one, "a1", state.DOWN)
    end(one, "a1", "quarantined", failure=state.SICK)
    assert ask(two, "b1", state.DOWN).answer == "wait"
    one.transact(lambda transaction: transaction.append("end", run="run-a"))
    assert ask(two, "b1", state.DOWN).answer == "go"


@pytest.mark.parametrize(
    "theirs, ended, mine, counts",
    [
        ("draining", False, None, True),
        ("down", False, None, True),
        ("down", True, None, True),
        ("lost", False, None, True),
        ("lost", True, None, False),
        ("quarantined", True, None, False),
        ("down", False, "pending", True),
        ("lost", False, "lost", False),
    ],
)
def test_which_node_of_another_rollout_counts(theirs, ended, mine, counts):
    assert others.takes_limits(state.Node("a", theirs), ended, mine and state.Node("a", mine)) is counts


def test_nothing_is_read_for_a_rollout_without_a_pool():
    class Transaction:
        view = view_of({"a": "pending"})

    others.read_pool_nodes(Transaction, True)
    assert Transaction.view.beside == []


@pytest.mark.parametrize("name", ["a b", "-a", "a" * 101, 7, "a/b"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(options.OptionError, match="rollout_pool"):
        limits.complete_policy({"pool": name}, 1)
