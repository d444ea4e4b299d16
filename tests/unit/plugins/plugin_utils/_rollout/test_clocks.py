# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controllers whose clocks are five minutes wrong: they decide and record by the clock of the database."""

from __future__ import annotations

import ast
import datetime
import os
import pathlib
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.action import (
    rollout_control,
    rollout_gate,
    rollout_plan,
    rollout_step,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger, Transaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import publish, webhook
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._rollout_report.stories import Story
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import fit, passed

pytestmark = pytest.mark.cores

sa = pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

UTC, Real, true_time = datetime.timezone.utc, datetime.datetime, time.time
WRONG = (-5, 0, 5)
# What is right to so many seconds on a machine that is busy, and five minutes are not.
NEAR_S = 120
DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEBHOOK = {"url": "https://hooks.example.org/x", "kind": "json", "events": ["started"], "timeout": 2.0}


def after(minutes):
    """The true time so many minutes from now, to the minute before it."""
    return Real.now(UTC).replace(second=0, microsecond=0) + datetime.timedelta(minutes=minutes)


def window(opens, closes):
    return {"days": DAYS, "from": after(opens).strftime("%H:%M"), "to": after(closes).strftime("%H:%M")}


def is_now(text):
    return abs(Real.fromisoformat(text[:-1] + "+00:00").timestamp() - true_time()) < NEAR_S


@pytest.fixture
def ledger(postgresql, tmp_path):
    return Ledger(str(tmp_path), "r1", postgresql.database("t%d" % time.monotonic_ns()))


@pytest.fixture
def set_clock(monkeypatch):
    """set_clock(minutes): from now on the clock of this machine is so many minutes ahead."""

    def change(minutes):
        class Wrong(Real):
            @classmethod
            def now(cls, tz=None):
                return Real.now(tz) + datetime.timedelta(minutes=minutes)

        monkeypatch.setattr(datetime, "datetime", Wrong)
        monkeypatch.setattr(time, "time", lambda: true_time() + 60 * minutes)

    return change


def plan(ledger, **policy):
    def work(transaction):
        owner.claim_rollout(transaction, "r1", "run", ["a", "b"], owner.identify_process(os.getpid()))
        transaction.append(
            "plan",
            run="run",
            rollout_id="r1",
            target="2",
            order=["a", "b"],
            nodes={name: {"state": "pending", "from": "1", "to": "2"} for name in "ab"},
            policy=dict(limits.complete_policy(dict({"max_down": 1, "node_s": 60}, **policy), 2), approved=None),
            sha256="f",
        )

    ledger.transact(work)


def act(plugin, ledger, **more):
    arguments = dict(
        {
            "artifact_dir": ledger.artifact_dir,
            "ledger": ledger.store.url.render_as_string(hide_password=False),
            "rollout_id": "r1",
        },
        **more,
    )
    return actions.run_rollout(plugin, arguments, inventory_hostname="a", ansible_play_hosts=["a", "b"])


def ask(ledger, phase, **more):
    result = act(rollout_gate, ledger, phase=phase, patience_s=0.01, **more)
    assert not result.get("failed"), result.get("msg")
    return result["answer"]


@pytest.mark.parametrize("minutes", WRONG)
@pytest.mark.parametrize(
    "opens, closes, answer",
    [(3, 60, "stop"), (-3, 60, "go"), (-60, 3, "go"), (-60, -2, "stop")],
    ids=["opens soon", "has opened", "closes soon", "has closed"],
)
def test_a_maintenance_window_opens_and_closes_for_all_at_the_same_time(
    ledger, set_clock, minutes, opens, closes, answer
):
    plan(ledger, windows=[window(opens, closes)])
    set_clock(minutes)
    assert ask(ledger, state.DRAIN) == answer


@pytest.mark.parametrize("minutes", WRONG)
@pytest.mark.parametrize("opens, closes, fits", [(-60, -2, False), (-60, 3, True)], ids=["has closed", "closes soon"])
def test_a_plan_and_a_request_find_the_same_room_in_the_windows(ledger, set_clock, minutes, opens, closes, fits):
    only = dict(window(opens, closes), date=after(opens).strftime("%Y-%m-%d"))
    del only["days"]
    set_clock(minutes)
    given = {
        "target": "2.0",
        "audits": {"a": {"audit": {"versions": {"loaded": "1.0"}}}},
        "markers": {"a": {"stat": {}}},
        "node_s": 60,
    }
    refused = act(rollout_plan, ledger, windows=[only], **given)
    assert bool(refused.get("failed")) != fits and bool(ledger.events()) == fits, refused.get("msg")
    assert not act(rollout_plan, ledger, windows=[], **given).get("failed")
    changed = act(rollout_control, ledger, verb="set_budget", user="kim", reason="x", limits={"windows": [only]})
    assert bool(changed.get("failed")) != fits and bool(ledger.view().policy["windows"]) == fits, changed.get("msg")


@pytest.mark.parametrize("granted", WRONG)
@pytest.mark.parametrize("used", WRONG)
def test_a_ticket_lasts_for_the_same_time_wherever_it_is_used(ledger, set_clock, granted, used):
    plan(ledger, ticket_s=120)
    set_clock(granted)
    assert ask(ledger, state.DRAIN) == "go"
    ticket = ledger.view().nodes.get("a").ticket
    assert is_now(ticket.granted) and is_now(
        format_time(Real.fromisoformat(ticket.expires[:-1] + "+00:00") - 2 * MINUTE)
    )
    set_clock(used)
    begun = act(rollout_step, ledger, name="drain")
    assert not begun.get("failed"), begun.get("msg")
    assert ask(ledger, state.DOWN, documents=fit("a")) == "go"


MINUTE = datetime.timedelta(minutes=1)


@pytest.mark.parametrize("minutes", WRONG)
@pytest.mark.parametrize("left, lives", [(2, True), (-2, False)], ids=["expires soon", "has expired"])
def test_a_ticket_has_expired_for_all_at_the_same_time(ledger, set_clock, minutes, left, lives):
    plan(ledger)
    ledger.transact(
        lambda transaction: transaction.append(
            "grant", run="run", node="a", phase="drain", ticket="t", expires=format_time(Real.now(UTC) + left * MINUTE)
        )
    )
    set_clock(minutes)
    begun = act(rollout_step, ledger, name="drain")
    assert bool(begun.get("failed")) != lives, begun.get("msg")
    assert (ask(ledger, state.DOWN, documents=fit("a")) == "go") == lives


@pytest.mark.parametrize("hours", [-5, 5])
@pytest.mark.parametrize("phase, step", [(state.DRAIN, "drain"), (state.DOWN, "install"), (state.RETURN, "soak")])
def test_no_clock_that_is_set_takes_a_ticket_away(ledger, monkeypatch, phase, step, hours):
    plan(ledger)
    for asked in state.PHASES[: state.PHASES.index(phase) + 1]:
        proof = {state.DOWN: fit("a"), state.RETURN: passed("a", "2")}.get(asked, {})
        assert ask(ledger, asked, documents=proof) == "go"
    clock = Transaction.clock
    monkeypatch.setattr(Transaction, "clock", lambda transaction: clock(transaction) + hours * 60 * MINUTE)
    begun = act(rollout_step, ledger, name=step)
    assert not begun.get("failed"), begun.get("msg")
    if phase == state.DRAIN:
        assert ask(ledger, state.DOWN, documents=fit("a")) == "go"


def test_events_documents_and_the_report_have_the_times_of_one_clock(ledger, set_clock):
    plan(ledger)
    for minutes, verb in ((5, "pause"), (-5, "resume")):
        set_clock(minutes)
        result = act(rollout_control, ledger, verb=verb, user="kim", reason="x")
        assert is_now(result["report"]["time"])
    set_clock(5)
    assert ask(ledger, state.DRAIN, documents={"baseline": {"b": 1}}) == "go"
    set_clock(-5)
    assert not act(rollout_step, ledger, name="drain").get("failed")
    times = [event["time"] for event in ledger.events()]
    assert times == sorted(times) and len(times) == 5 and all(is_now(text) for text in times)
    table = ledger.store.table["document"]
    saved = ledger.store.query(lambda connection: connection.execute(sa.select(table.c.time)).scalars().all())
    assert saved and all(is_now(text) for text in saved)
    doc = publish.gather_document(ledger)[0]
    assert is_now(doc["time"]) and doc["time"] >= times[-1]


@pytest.mark.parametrize("first", WRONG)
@pytest.mark.parametrize("second", WRONG)
def test_one_task_at_a_time_has_the_lease_of_the_webhook(ledger, set_clock, first, second):
    Story("a1").write(ledger)
    one, other = webhook.Outbox(ledger, WEBHOOK), webhook.Outbox(ledger, WEBHOOK)
    set_clock(first)
    assert one.take_lease()
    set_clock(second)
    assert other.take_lease() is None and other.look()[:2] == (True, False)
    other.update(lambda record, now: dict(record, until=true_time() - 120))
    assert other.look()[:2] == (True, True) and other.take_lease()["holder"] == other.token


def unseen(host):
    return dict(owner.identify_process(os.getpid()), host=host, pid_namespace="pid:[1]", boot_id=host)


@pytest.mark.parametrize("minutes", WRONG)
def test_the_lease_of_a_member_is_by_the_same_clock(ledger, set_clock, minutes):
    plan(ledger)
    one, other = unseen("one"), unseen("other")
    ledger.transact(lambda transaction: transaction.hold(members.make_shared_record("run", transaction.clock())))

    def join(who):
        ledger.transact(
            lambda transaction: members.add_member(transaction, who["host"], ["a"], who, transaction.clock())
        )

    join(one)
    set_clock(minutes)
    with pytest.raises(owner.OwnerError):
        join(other)
    assert ledger.rehearse(lambda transaction: members.find_own(transaction, one).until) > format_time(Real.now(UTC))
    heard = ledger.rehearse(lambda transaction: members.find_own(transaction, one))
    assert is_now(heard.heartbeat)

    def age(transaction):
        transaction.put_member(members.dataclasses.replace(heard, until=format_time(Real.now(UTC) - MINUTE)))

    ledger.transact(age)
    join(other)


def test_the_clock_goes_on_within_a_transaction_and_is_read_by_none_of_its_own_queries(ledger):
    plan(ledger)
    asked = []
    sa.event.listen(ledger.store.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))

    def work(transaction):
        first = transaction.clock()
        time.sleep(0.05)
        second = transaction.clock()
        transaction.append("control", run="run", verb="pause", user="kim", reason="x")
        members.require_membership(transaction, "r1", owner.identify_process(os.getpid()))
        return first, second

    first, second = ledger.transact(work)
    assert first < second < first + MINUTE and first.tzinfo is not None
    reads = [query for query in asked if "clock_timestamp" in query]
    assert len(reads) == 1 and "gpufleet_rollout" in reads[0], reads


def test_there_is_a_clock_before_there_is_a_ledger(ledger, set_clock, tmp_path):
    set_clock(5)
    assert is_now(format_time(ledger.store.clock())) and not ledger.store.exists()
    assert not is_now(format_time(Ledger(str(tmp_path), "r2").store.clock())), "that of a file is this machine's"


# Where the clock of the machine is asked: for what begins and ends on the same controller, and is read by no other.
OWN = {
    "_ledger/files.py": {"written_within"},  # how long ago this controller wrote a file of its own
    "_ledger/store.py": {"now"},  # the ledger's clock, where the ledger is a file
    "_rollout/holds.py": {"find_answers"},  # how old the answers in a file of this controller are
    "_rollout_report/publish.py": {"refresh_files"},  # how old the files of this controller are
    "_rollout/requests.py": {"decide_by_holds"},  # the answers of holds.py
    "rollout_gate.py": {"print_waiting"},  # when this controller prints a line
}


def test_the_clock_of_the_machine_is_asked_for_nothing_that_another_controller_reads():
    rooms = pathlib.Path(_ledger.__file__).parents[1]
    paths = [path for room in ("_ledger", "_rollout", "_rollout_report") for path in (rooms / room).glob("*.py")]
    paths += [rooms / "_rollout_action.py", rooms / "_planning_action.py"]
    paths += (rooms.parent / "action").glob("rollout_*.py")
    found = {}
    for path in paths:
        name = path.name if path.parent.name == "action" else str(path.relative_to(rooms))
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and any(asks(node) for node in ast.walk(function)):
                found.setdefault(name, set()).add(function.name)
    assert found == OWN


def asks(node):
    """Return True if this node of a program asks the clock of the machine."""
    return isinstance(node, ast.Attribute) and (ast.unparse(node.value), node.attr) in (
        ("time", "time"),
        ("datetime.datetime", "now"),
        ("datetime.datetime", "utcnow"),
        ("datetime.date", "today"),
    )
