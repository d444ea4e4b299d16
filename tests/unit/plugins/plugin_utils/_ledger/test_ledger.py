# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import datetime
import json
import multiprocessing
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import types

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _host_answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger as ledger_module
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import others, schema, state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import HEAD, Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import LedgerError, format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits, plan_text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import plan as planning
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import go, plan, reduce

pytestmark = pytest.mark.cores
ROOT = pathlib.Path(__file__).resolve().parents[5]

sqlalchemy = pytest.importorskip(
    "sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it"
)


def test_reading_a_rollout_that_was_never_planned_makes_nothing(ledger, tmp_path):
    assert ledger.view().run is None
    assert (
        ledger.events() == []
        and ledger.owner() is None
        and ledger.last_id() is None
        and ledger.load("a", "baseline") is None
    )
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_is_there_for_the_next_one(ledger, tmp_path, url):
    ledger.transact(lambda transaction: plan(transaction, "a", "b"))
    ledger.transact(lambda transaction: go(transaction, "a"))
    other = Ledger(str(tmp_path), "r1", url)
    assert [(node.name, node.state, node.position) for node in other.view().nodes.list_all()] == [
        ("a", "draining", 0),
        ("b", "pending", 1),
    ]
    assert [event["event"] for event in other.events()] == ["plan", "grant"]
    assert all(event["time"].endswith("Z") for event in other.events())
    assert other.last_id() == "r1"


def test_no_transaction_is_open_while_a_story_is_read(ledger, tmp_path, url, monkeypatch):
    """A report of many events does not keep nodes from writing meanwhile."""
    ledger.transact(lambda transaction: plan(transaction, "a", "b"))
    for number in range(5):
        ledger.transact(
            lambda transaction, number=number: transaction.append(
                "step", run="r", node="a", step="drain", detail=str(number)
            )
        )
    writer, taken, real = Ledger(str(tmp_path), "r1", url, patience_s=1.0), [], json.loads

    def loads(body):
        if len(taken) < 4:
            taken.append(None)
            monkeypatch.setattr(json, "loads", real)
            writer.transact(
                lambda transaction: transaction.append("control", run="r", verb="pause", user="kim", reason="x")
            )
            monkeypatch.setattr(json, "loads", loads)
        return real(body)

    monkeypatch.setattr(ledger_module, "CHUNK", 2)
    monkeypatch.setattr(json, "loads", loads)
    found = ledger.events()
    monkeypatch.setattr(json, "loads", real)
    assert len(taken) == 4
    assert [event["event"] for event in found[:6]] == ["plan"] + ["step"] * 5, "in order, and none twice"
    assert [event["detail"] for event in found[1:6]] == list("01234")
    assert found == ledger.events()[: len(found)]


def test_the_rows_are_what_the_events_amount_to(ledger):
    ledger.transact(lambda transaction: plan(transaction, "a", "b", "c", c="skipped"))
    ledger.transact(lambda transaction: go(transaction, "a"))
    ledger.transact(lambda transaction: transaction.append("step", run="r", node="a", step="evidence"))
    ledger.transact(lambda transaction: transaction.append("step", run="r", node="a", step="drain"))
    ledger.transact(lambda transaction: go(transaction, "a", "down"))
    ledger.transact(
        lambda transaction: transaction.append(
            "control", run="r", verb="set_budget", user="kim", reason="x", policy={"max_down": 3}
        )
    )
    ledger.transact(
        lambda transaction: transaction.append(
            "step_failed", run="r", node="a", reason="bad", failure="hard", signature="s"
        )
    )
    ledger.transact(lambda transaction: transaction.append("state", run="r", node="a", state="rolled_back"))
    view, replayed = ledger.view(), reduce(ledger.events())
    assert [dataclasses.asdict(node) for node in view.nodes.list_all()] == [
        dataclasses.asdict(node) for node in replayed.nodes.list_all()
    ]
    assert {key: getattr(view, key) for key in HEAD} == {key: getattr(replayed, key) for key in HEAD}
    assert (view.nodes.get("a").state, view.nodes.get("a").failure, view.policy["max_down"]) == (
        "rolled_back",
        "hard",
        3,
    )


def test_nothing_is_written_when_the_work_raises(ledger):
    ledger.transact(lambda transaction: plan(transaction, "a"))

    def fail(transaction):
        go(transaction, "a")
        transaction.save("a", "baseline", {})
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ledger.transact(fail)
    assert ledger.view().nodes.get("a").state == "pending"
    assert len(ledger.events()) == 1 and ledger.load("a", "baseline") is None


def _count_up(directory, url, times):
    ledger = Ledger(directory, "r1", url)

    def add(transaction):
        node = transaction.view.nodes.get("a")
        transaction.append("step", run="r", node="a", step="evidence", detail=str(len(node.steps)))

    for dummy in range(times):
        ledger.transact(add)


def test_writers_beside_each_other_lose_nothing(ledger, tmp_path, url):
    ledger.transact(lambda transaction: plan(transaction, "a"))
    writers = [
        multiprocessing.get_context("fork").Process(target=_count_up, args=(str(tmp_path), url, 10))
        for dummy in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [step.detail for step in ledger.view().nodes.get("a").steps] == [str(number) for number in range(40)]


def test_two_that_begin_an_empty_ledger_at_once_make_one(tmp_path, url):
    def begin(results):
        Ledger(str(tmp_path), "r1", url).transact(lambda transaction: results.append(transaction.view.run))

    results = []
    threads = [threading.Thread(target=begin, args=(results,)) for dummy in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [None] * 4


def test_a_writer_that_is_killed_leaves_all_of_it_or_nothing(ledger, tmp_path, url):
    ledger.transact(lambda transaction: plan(transaction, "a"))

    def die():
        def work(transaction):
            go(transaction, "a")
            transaction.view.nodes.flush()
            os.kill(os.getpid(), signal.SIGKILL)

        Ledger(str(tmp_path), "r1", url).transact(work)

    process = multiprocessing.get_context("fork").Process(target=die)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert ledger.view().nodes.get("a").state == "pending" and len(ledger.events()) == 1
    ledger.transact(lambda transaction: go(transaction, "a"))
    assert ledger.view().nodes.get("a").state == "draining"


def test_a_larger_document_than_a_node_has_is_refused_and_nothing_is_written(ledger, monkeypatch):
    monkeypatch.setattr(_host_answers, "MAX_DOCUMENT_BYTES", 4096)

    def write(transaction):
        plan(transaction, "a")
        transaction.save("a", "baseline", {"x": "y" * 4096})

    with pytest.raises(LedgerError, match="^a: "):
        ledger.transact(write)
    assert ledger.view().run is None and ledger.load("a", "baseline") is None


def test_documents_of_a_node(ledger):
    ledger.transact(lambda transaction: transaction.save("gpu-1", "baseline", {"a": 1}))
    ledger.transact(lambda transaction: transaction.save("gpu-1", "baseline", {"a": 2}))
    assert ledger.load("gpu-1", "baseline") == {"a": 2}
    assert ledger.load("gpu-1", "other") is None and ledger.load("gpu-2", "baseline") is None


def test_rollouts_of_one_ledger_are_apart(ledger, tmp_path, url):
    ledger.transact(lambda transaction: plan(transaction, "a"))
    other = Ledger(str(tmp_path), "r2", url)
    assert other.view().run is None
    other.transact(lambda transaction: plan(transaction, "a", "b"))
    other.transact(lambda transaction: go(transaction, "a"))
    assert ledger.view().nodes.get("a").state == "pending"
    assert ledger.last_id() == "r2"
    assert ledger.transact(lambda transaction: transaction.others.find_shared("r2", ["a", "c"])) == ["a"]


def test_order_is_by_number_where_the_clock_was_set_back(ledger, tmp_path, url, monkeypatch):
    """The clock of a file is the controller's; that of a server is not patched, and its order is the same."""
    other, real = Ledger(str(tmp_path), "r2", url), store.Store.now
    ledger.transact(lambda transaction: plan(transaction, "a"))
    ledger.transact(lambda transaction: go(transaction, "a"))
    monkeypatch.setattr(store.Store, "now", lambda *given: real(*given) - datetime.timedelta(hours=2))
    other.transact(lambda transaction: plan(transaction, "b"))
    other.transact(lambda transaction: go(transaction, "b"))
    assert ledger.last_id() == "r2"
    numbers = [event["sequence"] for one in (ledger, other) for event in one.events()]
    assert numbers == sorted(set(numbers)) and other.view().nodes.get("b").granted == numbers[-1]


def test_newest_document_of_a_node_is_found_where_the_clock_was_set_back(ledger, tmp_path, url, monkeypatch):
    other, real = Ledger(str(tmp_path), "r2", url), store.Store.now
    ledger.transact(lambda transaction: transaction.save("a", "baseline", {"of": "r1"}))
    monkeypatch.setattr(store.Store, "now", lambda *given: real(*given) - datetime.timedelta(hours=2))
    other.transact(lambda transaction: transaction.save("a", "baseline", {"of": "r2"}))
    assert others.last_document(ledger.store, "a", "baseline") == {"of": "r2"}
    assert others.last_document(ledger.store, "b", "baseline") is None


def test_a_ledger_of_another_version_is_refused(ledger, url):
    ledger.transact(lambda transaction: plan(transaction, "a"))
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE gpufleet_meta SET value = '99'"))
    with pytest.raises(store.StoreError, match="schema version 99; expected %s" % schema.SCHEMA_VERSION):
        ledger.view()


def test_a_server_that_is_away_for_a_while_is_waited_for(tmp_path, postgresql, monkeypatch):
    ledger = Ledger(str(tmp_path), "r1", postgresql.database("away"))
    ledger.transact(lambda transaction: plan(transaction, "a"))
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 4:
            postgresql.start()

    postgresql.stop()
    monkeypatch.setattr(store, "time", types.SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    ledger.transact(lambda transaction: go(transaction, "a"))
    assert len(pauses) >= 4 and ledger.view().nodes.get("a").state == "draining"


def test_a_server_that_goes_in_the_middle_is_asked_again(tmp_path, postgresql):
    ledger = Ledger(str(tmp_path), "r1", postgresql.database("middle"))
    ledger.transact(lambda transaction: plan(transaction, "a"))
    tries = []

    def work(transaction):
        tries.append(None)
        go(transaction, "a")
        if len(tries) == 1:
            postgresql.stop()
            postgresql.start()
        return len(tries)

    assert ledger.transact(work) == 2
    assert [event["event"] for event in ledger.events()] == ["plan", "grant"]


READS = {
    "owner": lambda ledger: ledger.owner(),
    "controllers": lambda ledger: ledger.controllers(),
    "view": lambda ledger: ledger.view(),
    "events": lambda ledger: ledger.events(),
    "last event": lambda ledger: ledger.last_event(),
    "planned": lambda ledger: ledger.load_plan_event("r"),
    "document": lambda ledger: ledger.load("a", "baseline"),
    "last rollout": lambda ledger: ledger.last_id(),
    "other rollouts": lambda ledger: ledger.elsewhere(["a"]),
    "standing": lambda ledger: others.find_states_of_node(ledger.store, "a"),
    "last document": lambda ledger: others.last_document(ledger.store, "a", "baseline"),
}


@pytest.mark.parametrize("name", READS)
def test_a_server_that_goes_while_it_is_read_is_asked_again(tmp_path, postgresql, monkeypatch, name):
    ledger = Ledger(str(tmp_path), "r1", postgresql.database("reads%d" % time.monotonic_ns()))
    ledger.transact(lambda transaction: plan(transaction, "a"))
    expected = READS[name](ledger)
    real, cut = sqlalchemy.engine.Connection.execute, []

    def execute(connection, statement, *arguments, **options):
        # The connection ends between the moment it is opened and the query.
        if not cut and "gpufleet_meta" not in str(statement):
            cut.append(str(statement))
            victim = connection.connection.driver_connection.info.backend_pid
            with sqlalchemy.create_engine(ledger.store.url).connect() as other:
                real(other, sqlalchemy.text("SELECT pg_terminate_backend(%d, 5000)" % victim))
        return real(connection, statement, *arguments, **options)

    monkeypatch.setattr(sqlalchemy.engine.Connection, "execute", execute)
    found = READS[name](ledger)
    assert len(cut) == 1
    if name == "view":
        found, expected = found.nodes.count(), expected.nodes.count()
    assert found == expected


def test_a_server_that_stays_away_is_an_error_and_no_decision(tmp_path, postgresql):
    ledger = Ledger(
        str(tmp_path), "r1", postgresql.database("gone").replace("postgres@", "postgres:secret@"), patience_s=1
    )
    postgresql.stop()
    try:
        with pytest.raises(store.StoreError, match="did not answer within 1 s.*Nothing was decided") as caught:
            ledger.transact(lambda transaction: go(transaction, "a"))
    finally:
        postgresql.start()
    assert "secret" not in str(caught.value)


def test_a_commit_whose_answer_was_lost_is_not_made_twice(ledger, monkeypatch):
    ledger.transact(lambda transaction: plan(transaction, "a"))
    real, lost = sqlalchemy.engine.Connection.commit, []

    def commit(self):
        real(self)
        if not lost:
            lost.append(None)
            raise sqlalchemy.exc.OperationalError("COMMIT", {}, Exception("the connection was lost"))

    monkeypatch.setattr(sqlalchemy.engine.Connection, "commit", commit)
    assert ledger.transact(lambda transaction: go(transaction, "a") or "answer") == "answer"
    assert lost and [event["event"] for event in ledger.events()] == ["plan", "grant"]


def test_a_file_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "rollouts").write_text("in the way")
    ledger = Ledger(str(tmp_path), "r1")
    with pytest.raises(store.StoreError, match="ledger.sqlite cannot be used"):
        ledger.transact(lambda transaction: go(transaction, "a"))


@pytest.mark.parametrize(
    ("kind", "fails"),
    [
        *((kind, True) for kind in ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "fuse.sshfs", "9p")),
        *((kind, False) for kind in ("ext4", "xfs", "overlay", "tmpfs", "btrfs", "zfs", "fuseblk")),
    ],
)
def test_file_over_the_network_is_no_ledger(tmp_path, monkeypatch, kind, fails):
    (tmp_path / "mounts").write_text("/dev/sda1 / ext4 rw 0 0\nserver:/home %s %s rw 0 0\n" % (tmp_path, kind))
    monkeypatch.setattr(claim, "MOUNTS", str(tmp_path / "mounts"))
    if fails:
        with pytest.raises(store.StoreError, match=r"rollout_ledger.*Nothing was changed"):
            store.Store(store.default_url(str(tmp_path / "artifacts")))
        store.Store("sqlite:////srv/ledger.sqlite")
        store.Store("postgresql+psycopg://u@h/d")
    else:
        store.Store(store.default_url(str(tmp_path / "artifacts")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mounts"]


@pytest.mark.parametrize(("mounts", "fails"), [("none", True), ("none/none", False)])
def test_ledger_is_refused_where_the_mounts_are_there_and_cannot_be_read(tmp_path, monkeypatch, mounts, fails):
    """A controller without /proc has none to read."""
    monkeypatch.setattr(claim, "MOUNTS", str(tmp_path / mounts))
    if fails:
        with pytest.raises(store.StoreError, match=r"cannot be read.*Nothing was changed"):
            store.Store(store.default_url(str(tmp_path / "artifacts")))
    else:
        store.Store(store.default_url(str(tmp_path / "artifacts")))


def test_the_file_is_its_owners_alone(tmp_path):
    Ledger(str(tmp_path), "r1").transact(lambda transaction: plan(transaction, "a"))
    assert os.stat(tmp_path / "rollouts" / "ledger.sqlite").st_mode & 0o777 == 0o600
    assert os.stat(tmp_path / "rollouts").st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "bad, words",
    [
        ("nonsense", "not a database URL"),
        ("mysql://u@h/d", "names the database mysql"),
        ("sqlite:///relative.sqlite", "expected an absolute path"),
        ("sqlite://", "expected an absolute path"),
        ("postgresql+nothing://u:secret@h/d", "cannot|missing|not a database"),
    ],
)
def test_a_url_that_is_no_ledger_is_refused_without_its_password(tmp_path, bad, words):
    with pytest.raises(store.StoreError, match=words) as caught:
        Ledger(str(tmp_path), "r1", bad)
    assert "secret" not in str(caught.value)


PASSWORD = "s3cr3tpw"


@pytest.mark.parametrize(
    "url",
    [
        "u:%s@127.0.0.1:1/d",
        "u:a/%s@127.0.0.1:1/d",
        "u:a:%s@127.0.0.1:1/d",
        "u:%%40%s@127.0.0.1:1/d",
        "u@127.0.0.1:1/d?password=%s",
        "u@127.0.0.1:1/d?sslmode=verify-full&sslpassword=%s",
        "u@127.0.0.1:1/d?PASSWORD=%s",
        "u@127.0.0.1:1/d?passwd=%s",
        "u@127.0.0.1:1/d?options=-c%%20a%%3D%s",
        "u@127.0.0.1:1/d?sslmode=%s",
        "u@127.0.0.1:1/d?sslmode=require&sslmode=%s",
        "/d?host=127.0.0.1&port=1&user=a&password=%s",
        "u@127.0.0.1:1/d?connect_timeout=%s",
        "u@127.0.0.1:1/d?port=%s",
        "u:a@%s@127.0.0.1:1/d",
        "u:a@b/%s@127.0.0.1:1/d",
        "u:a@b?%s@127.0.0.1:1/d",
        "u:a@%s:b@127.0.0.1:1/d",
        "u:%s@127.0.0.1:notaport/d",
        "u:%s@[::1/d",
        "u:%s\n@127.0.0.1:1/d",
    ],
)
def test_password_anywhere_in_the_url_is_in_no_message(url):
    """Neither in what names the ledger, nor in what its driver says, nor in a cause that Ansible would print."""
    with pytest.raises(store.StoreError) as caught:
        database = store.Store("postgresql+psycopg://" + url % PASSWORD, 0.05)
        assert PASSWORD not in database.shown
        database.transact("r", lambda connection, repeated: None)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_what_is_no_secret_of_a_url_is_shown():
    url = "postgresql+psycopg://u:pw@h:5432/d?application_name=x&sslmode=verify-full"
    assert store.Store(url).shown == url.replace("pw", "***").replace("application_name=x&", "")


def test_unescaped_at_sign_in_a_password_is_refused_before_anything_is_sent(monkeypatch):
    monkeypatch.setattr(store.sa, "create_engine", lambda *dummy, **dummy2: pytest.fail("a connection was prepared"))
    with pytest.raises(store.StoreError, match="%40"):
        store.Store("postgresql+psycopg://u:a@%s@h/d" % PASSWORD)


def test_without_sqlalchemy_the_way_out_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "sa", None)
    with pytest.raises(store.StoreError, match="needs the Python module SQLAlchemy"):
        Ledger(str(tmp_path), "r1")


@pytest.mark.parametrize(
    "text",
    [
        "database or disk is full",
        "unable to open database file",
        "attempt to write a readonly database",
        "disk I/O error",
    ],
)
def test_a_file_that_waiting_does_not_mend_is_told_at_once(tmp_path, text):
    broken = store.Store("sqlite:///%s" % (tmp_path / "ledger.sqlite"), patience_s=600)

    def attempt():
        raise sqlalchemy.exc.OperationalError("INSERT", {}, sqlite3.OperationalError(text))

    with pytest.raises(store.StoreError, match="cannot be used: %s" % text):
        broken._call_patiently(attempt)


def planned_again(ledger, probes, policy=None, run="s", **arguments):
    """Plan as rollout_plan does in its transaction."""

    def work(transaction):
        made = planning.build_plan(
            "2.0", probes, policy or limits.complete_policy({}, len(probes)), transaction.view, **arguments
        )
        transaction.append("plan", run=run, **planning.make_event(made, "r1"))
        return made

    return ledger.transact(work)


def test_two_that_were_lost_stop_the_next_run_too(ledger):
    ledger.transact(lambda transaction: plan(transaction, "a", "b", "c"))
    for name in "ab":
        ledger.transact(lambda transaction, name=name: go(transaction, name))
        ledger.transact(
            lambda transaction, name=name: transaction.append(
                "state", run="r", node=name, state="lost", reason="gone", failure="lost"
            )
        )
    ledger.transact(lambda transaction: transaction.append("end", run="r"))
    found = [Probe("a", reachable=False), planning.Probe("b", reachable=False), planning.Probe("c", version="1.0")]
    planned_again(ledger, found, limits.complete_policy({"max_down": 4}, 3))
    decision = ledger.look(lambda view: gate.decide(view, state.DRAIN, "c"))
    assert decision.answer == "stop" and "the failure budget of 1 is spent by a, b" in decision.reason


def test_the_share_of_failures_counts_every_node_that_ever_went(ledger):
    names = ["n%02d" % number for number in range(40)]
    ledger.transact(lambda transaction: plan(transaction, *names))
    for name in names[:20]:
        ledger.transact(lambda transaction, name=name: go(transaction, name))
        value = "rolled_back" if name in ("n00", "n01") else "done"
        ledger.transact(
            lambda transaction, name=name, value=value: transaction.append(
                "state", run="r", node=name, state=value, failure="hard"
            )
        )
    found = [Probe(name, version="2.0" if "n01" < name < "n20" else "1.0") for name in names]
    planned_again(
        ledger, found, limits.complete_policy({"failure_budget": 9, "failure_percent": 10, "common_cause": 0}, 40)
    )
    view = ledger.view()
    assert (view.went, view.attempt_count) == (0, 20)
    assert gate.decide(view, state.DRAIN, "n20").answer == "go"
    assert [event["event"] for event in ledger.events()].count("plan") == 2 and reduce(
        ledger.events()
    ).attempt_count == 20


def test_a_pause_and_limits_and_skips_outlive_their_controller(ledger):
    ledger.transact(lambda transaction: plan(transaction, "a", "b", "c", "d"))
    ledger.transact(lambda transaction: go(transaction, "d"))
    said = {"run": "r", "user": "kim", "reason": "why"}
    ledger.transact(lambda transaction: transaction.append("control", verb="pause", **said))
    ledger.transact(lambda transaction: transaction.append("control", verb="skip", node="b", **said))
    ledger.transact(lambda transaction: transaction.append("control", verb="skip", node="d", **said))
    ledger.transact(
        lambda transaction: transaction.append(
            "control", verb="set_budget", policy={"max_down": 2, "node_s": 60}, **said
        )
    )
    found = [Probe(name, version="1.0") for name in "abcd"]
    made = planned_again(ledger, found, limits.complete_policy({"max_down": 1, "node_s": 30}, 4))
    lines = "\n".join(plan_text.describe_plan(made, "r1"))
    assert "paused by kim: why" in lines and "rollout_verb=resume" in lines
    assert "max_down is 2, as set by set_budget, and not 1" in lines
    assert "set_budget had set node_s to 60 (it was 900); rollout_node_s is now given as 30" in lines
    assert "left out: b, skipped, skipped by kim: why (to include it, rollout_control with rollout_verb=retry)" in lines
    view = ledger.view()
    assert (view.paused, view.policy["max_down"], view.policy["node_s"]) == ("kim: why", 2, 30)
    assert (view.nodes.get("b").state, view.nodes.get("d").order) == ("skipped", "skipped by kim: why")
    assert (
        gate.decide(view, state.DRAIN, "a").answer == "wait"
        and "paused by kim" in gate.decide(view, state.DRAIN, "a").reason
    )
    # The run that took over dies as well.
    planned_again(ledger, found, limits.complete_policy({"max_down": 1, "node_s": 30}, 4), run="t")
    assert (ledger.view().paused, ledger.view().policy["max_down"], ledger.view().nodes.get("b").state) == (
        "kim: why",
        2,
        "skipped",
    )
    replayed = reduce(ledger.events())
    assert {key: getattr(ledger.view(), key) for key in HEAD} == {key: getattr(replayed, key) for key in HEAD}
    # One that came to its end has said its last word.
    ledger.transact(lambda transaction: transaction.append("end", run="t"))
    planned_again(ledger, found, run="u")
    view = ledger.view()
    assert (view.paused, view.policy["max_down"], view.nodes.get("b").state, view.changed) == ("", 1, "pending", {})


def test_a_stop_whose_controller_died_waits_for_a_word(ledger):
    ledger.transact(lambda transaction: plan(transaction, "a", "b"))
    ledger.transact(
        lambda transaction: transaction.append("control", run="r", verb="stop", user="kim", reason="wrong version")
    )
    planned_again(ledger, [Probe(name, version="1.0") for name in "ab"])
    view = ledger.view()
    assert view.stopped == "" and gate.decide(view, state.DRAIN, "a") == gate.Decision(
        "wait", "paused by kim: wrong version (it was a stop)"
    )
    ledger.transact(
        lambda transaction: transaction.append(
            "control", run="s", verb="resume", user="kim", reason="the right one now"
        )
    )
    assert gate.decide(ledger.view(), state.DRAIN, "a").answer == "go"


def test_a_node_that_drained_and_was_paused_for_hours_is_pending_again(ledger):
    ledger.transact(lambda transaction: plan(transaction, "a"))
    now = datetime.datetime.now(datetime.timezone.utc)
    ledger.transact(
        lambda transaction: transaction.append(
            "grant",
            run="r",
            node="a",
            phase="drain",
            ticket="t",
            expires=format_time(now + datetime.timedelta(hours=4)),
        )
    )

    def down(transaction, after_h):
        decision = gate.decide(transaction.view, state.DOWN, "a", None, now + datetime.timedelta(hours=after_h))
        if decision.answer == "stop":
            transaction.append("state", run="r", node="a", state="pending", reason=decision.reason)
        return decision

    ledger.transact(lambda transaction: transaction.append("control", run="r", verb="pause", user="kim", reason="why"))
    assert ledger.transact(lambda transaction: down(transaction, 3)).answer == "wait"
    assert ledger.transact(lambda transaction: down(transaction, 5)).answer == "stop"
    node = ledger.view().nodes.get("a")
    assert (node.state, node.ticket, node.went) == (
        "pending",
        None,
        None,
    ) and "its ticket to drain was granted at" in node.reason


def test_the_tables_are_there_once_the_store_was_imported_and_are_the_same_for_every_ledger(tmp_path):
    """A task is done by a copy of the process that imported it."""
    asked = (
        "import tests.unit.conftest\nfrom %s import store\nprint(store.define_tables.cache_info().currsize)"
        % store.__name__.rpartition(".")[0]
    )
    found = subprocess.run([sys.executable, "-c", asked], cwd=str(ROOT), stdout=subprocess.PIPE, text=True, check=True)
    assert found.stdout == "1\n"
    one, other = (
        Ledger(str(tmp_path / name), "r1", "sqlite:///%s" % (tmp_path / name / "ledger.sqlite")) for name in "ab"
    )
    assert one.store.meta is other.store.meta
    one.transact(lambda transaction: plan(transaction, "a"))
    assert one.view().run == "r" and other.view().run is None, "and each has its own content"
