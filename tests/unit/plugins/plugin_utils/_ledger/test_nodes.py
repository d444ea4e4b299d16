# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sqlite3

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import nodes as stored_nodes
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import go, plan, reduce

pytestmark = pytest.mark.cores

sqlalchemy = pytest.importorskip(
    "sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it"
)


def test_the_stored_nodes_answer_as_those_in_memory_do(ledger):
    names = ["n%02d" % number for number in range(30)]
    ledger.transact(lambda transaction: plan(transaction, *names, racks=3, n03="lost", n04="skipped"))
    ledger.transact(lambda transaction: [go(transaction, name) for name in names[:3]])

    def compare(transaction):
        # Some of what is asked for is only changed in this transaction.
        transaction.append("state", run="r", node="n00", state="done")
        go(transaction, "n05")
        stored = transaction.view.nodes
        memory = reduce(ledger.events() + transaction.added).nodes
        assert stored.count() == memory.count()
        for present in (None, set(), {"n01", "n04", "n05", "n06", "n10", "n29", "stranger"}, set(names)):
            for barred in (
                None,
                lambda places: True,
                lambda places: places["rack"] == "r1",
                lambda places: places["rack"] == "r0",
            ):
                for before in (0, 8, 30):
                    assert list(stored.waiting_before(before, present, barred)) == list(
                        memory.waiting_before(before, present, barred)
                    )
        for states in (("done",), state.IN_FLIGHT, state.FAILED, ("pending", "skipped")):
            assert [node.name for node in stored.with_state(*states)] == [
                node.name for node in memory.with_state(*states)
            ]
        assert [node.name for node in stored.list_all()] == [node.name for node in memory.list_all()]
        assert [stored.get(name).state for name in names] == [memory.get(name).state for name in names]
        assert stored.get("stranger") is None and stored.find_orphaned() == [] and stored.canaries() == []

    events = ledger.events()
    ledger.events = lambda: events  # SQLite allows no other reader while the transaction is open
    ledger.transact(compare)


@pytest.mark.parametrize("what", ["canaries", "with_state"])
def test_a_question_about_few_nodes_uses_an_index(ledger, what):
    """By the plan of SQLite, which has no statistics here."""
    if not ledger.store.sqlite:
        pytest.skip("PostgreSQL reads a small table as a whole, whatever indexes it has")
    ledger.transact(lambda transaction: plan(transaction, *["n%02d" % number for number in range(50)]))
    found = []
    sqlalchemy.event.listen(ledger.store.engine, "before_cursor_execute", lambda *given: found.append(given[2:4]))

    def work(view):
        found.clear()
        view.nodes.canaries() if what == "canaries" else view.nodes.with_state("down")

    ledger.look(work)
    index = "gpufleet_node_canary" if what == "canaries" else "gpufleet_node_place (rollout_id=? AND state=?"
    with sqlite3.connect(ledger.store.file) as connection:
        ((statement, values),) = found
        (step,) = connection.execute("EXPLAIN QUERY PLAN " + statement, values).fetchall()
    assert index in step[3], step


def test_orphaned_nodes_are_found_in_the_database(ledger):
    ledger.transact(lambda transaction: plan(transaction, "a", "b"))
    ledger.transact(lambda transaction: go(transaction, "a"))
    ledger.transact(
        lambda transaction: transaction.append(
            "plan",
            run="s",
            target="2.0",
            sha256="f" * 64,
            order=["a", "b"],
            nodes={"a": {"state": "pending", "orphaned": True}, "b": {"state": "pending"}},
            policy=limits.complete_policy({}, 10),
        )
    )
    assert ledger.look(lambda view: [node.name for node in view.nodes.find_orphaned()]) == ["a"]


@pytest.mark.parametrize("batch", [1, 3, 8, 100])
def test_those_that_wait_are_read_in_batches_and_none_is_missed(ledger, monkeypatch, batch):
    monkeypatch.setattr(stored_nodes, "BATCH", batch)
    test_the_stored_nodes_answer_as_those_in_memory_do(ledger)


NAMES = ["n%03d" % number for number in range(400)]


def racks(full, number=1):
    """By node its failure domains: NUMBER racks hold those before place FULL, each of the others has a rack of its
    own.
    """
    return {
        name: {"rack": "r%d" % (place % number) if place < full else "r-" + name} for place, name in enumerate(NAMES)
    }


WINDOW, WAVES, CAPS = {"max_down": 5}, {"max_down": 5, "waves": [10]}, {"max_down": 5, "domain_caps": {"rack": 1}}


@pytest.mark.parametrize(
    "policy, present, places, answer, first",
    [
        pytest.param(WINDOW, NAMES, racks(0), "wait", "n001", id="window"),
        pytest.param(WINDOW, NAMES[340:], racks(0), "wait", "n340", id="window-most-gone"),
        pytest.param(WINDOW, NAMES[180:], racks(0), "wait", "n180", id="window-the-first-half-gone"),
        pytest.param(WINDOW, NAMES[:2] + NAMES[340:], racks(0), "wait", "n001", id="window-gone-in-between"),
        pytest.param(WINDOW, NAMES[350:], racks(0), "go", "", id="window-all-before-it-gone"),
        pytest.param(WAVES, NAMES, racks(0), "wait", "n001", id="waves"),
        pytest.param(WAVES, NAMES[340:], racks(0), "wait", "n340", id="waves-most-gone"),
        pytest.param(CAPS, NAMES, racks(0), "wait", "n001", id="caps"),
        pytest.param(CAPS, NAMES[340:], racks(0), "wait", "n340", id="caps-most-gone"),
        pytest.param(CAPS, NAMES, racks(340), "wait", "n340", id="caps-a-full-rack"),
        pytest.param(CAPS, NAMES, racks(350), "go", "", id="caps-all-before-it-in-a-full-rack"),
        pytest.param(CAPS, NAMES[320:], racks(340), "wait", "n340", id="caps-a-full-rack-most-gone"),
        pytest.param(CAPS, NAMES, racks(340, 2), "wait", "n001, n003, n005, n007", id="caps-one-of-two-racks-full"),
    ],
)
def test_what_a_turn_of_the_gate_reads_does_not_grow_with_those_that_wait(
    ledger, monkeypatch, policy, present, places, answer, first
):
    """Rows and calls are counted, and not time: 350 nodes are before the one that asks, and the first of them is
    down.
    """
    monkeypatch.setattr(stored_nodes, "BATCH", 10)
    nodes = {name: {"state": "pending", "from": "1.0", "to": "2.0", "domains": places[name]} for name in NAMES}
    complete = limits.complete_policy(policy, len(NAMES))
    event = {
        "run": "r",
        "rollout_id": "r1",
        "target": "2.0",
        "order": NAMES,
        "nodes": nodes,
        "policy": complete,
        "sha256": "f",
    }
    ledger.transact(lambda transaction: transaction.append("plan", **event))
    ledger.transact(lambda transaction: [go(transaction, NAMES[0], phase) for phase in ("drain", "down")])
    batches, one, rows, asked = stored_nodes.StoredNodes._load_waiting, stored_nodes.StoredNodes.get, [], []
    monkeypatch.setattr(
        stored_nodes.StoredNodes, "_load_waiting", lambda self, *given: rows.append(batches(self, *given)) or rows[-1]
    )
    monkeypatch.setattr(stored_nodes.StoredNodes, "get", lambda self, name: asked.append(name) or one(self, name))
    decision = ledger.look(lambda view: gate.decide(view, state.DRAIN, NAMES[350], present))
    assert decision.answer == answer and first in decision.reason, decision
    assert len(rows) <= 3 and sum(len(batch) for batch in rows) <= 3 * stored_nodes.BATCH
    assert asked == [NAMES[350]], "no other node is read, for its failure domains neither"
