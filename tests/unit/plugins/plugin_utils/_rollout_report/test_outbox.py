# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The webhook: nothing is lost, nothing is sent twice if the first arrival is known, and no task waits for it."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import notices, outbox
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._rollout_report.stories import Story
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.webserver import Server, serving, wait_for

pytestmark = pytest.mark.cores

ALL = ("started", "canary", "failed", "stopped", "operator", "held", "finished")


def told(made, kinds=ALL):
    return notices.wanted(notices.notices(list(enumerate(made.events, start=1))), kinds)


def lines(made, kinds=ALL):
    return [(notice.kinds, notice.lines) for notice in told(made, kinds)]


class TestNotices:
    def test_a_rollout_from_its_beginning_to_its_end(self):
        made = Story("a1", "b1", "c1", canaries=["a1"], failure_budget=1).done("a1").fails("b1").end()
        assert lines(made) == [
            (["started"], ["Rollout r1 began: 3 nodes to 2.0, at most 1 down at a time."]),
            (["canary"], ["The canaries have ended: a1 done."]),
            (
                ["failed", "stopped"],
                ["b1 is rolled back: GPU 3 is gone", "No further node starts: the failure budget of 1 is spent by b1."],
            ),
            (["finished"], ["Rollout r1 is over: failed (1 pending, 1 done, 1 rolled back)."]),
        ]

    def test_a_canary_that_failed_is_told_once_with_the_reason(self):
        made = Story("a1", "b1", canaries=["a1"], failure_budget=5).fails("a1").done("b1")
        assert [kinds for kinds, dummy in lines(made)] == [["started"], ["failed", "canary"]]
        assert "Canary a1 failed: GPU 3 is gone" in lines(made)[1][1]

    def test_words_of_an_operator_and_holds(self):
        made = (
            Story("a1")
            .add("control", verb="pause", user="kim", reason="fabric.")
            .add("control", verb="skip", node="a1", user="kim", reason="x")
        )
        made.add("hold", names=["q"], reason="q: 1 series").add("hold", names=[], reason="")
        assert [text for dummy, text in lines(made)][1:] == [
            ["Rollout r1: paused by kim: fabric."],
            ["Rollout r1: a1 left out by kim: x."],
            ["Rollout r1 is held: q: 1 series"],
            ["Rollout r1 is no longer held."],
        ]

    def test_only_what_is_wanted_is_told(self):
        made = Story("a1", "b1", canaries=["a1"]).done("a1").fails("b1").end()
        assert [notice.kinds for notice in told(made, ["stopped"])] == [["failed", "stopped"]] and told(made, []) == []

    def test_whether_anything_is_notable_is_never_less_than_what_is_told(self):
        made = (
            Story("a1", "b1", "c1", "d1", canaries=["a1"], failure_budget=3)
            .done("a1")
            .fails("b1")
            .done("c1")
            .fails("d1", "lost")
            .end()
        )
        numbers = {notice.number for notice in told(made)}
        rough = {number for number, event in enumerate(made.events, start=1) if notices.notable(event, {"a1"})}
        assert numbers <= rough and len(rough) < 10

    def test_payloads(self):
        notice = told(Story("a1", failure_budget=1).fails("a1", reason="<script> & @here"), ["failed"])[0]
        slack = json.loads(notices.payload(notice, "slack", False))
        assert list(slack) == ["text"] and "&lt;script&gt; &amp; @here" in slack["text"]
        assert "sent again" in json.loads(notices.payload(notice, "slack", True))["text"]
        plain = json.loads(notices.payload(notice, "json", True))
        assert (plain["schema"], plain["id"], plain["node"], plain["repeat"], plain["counts"]) == (
            "gpufleet.event/1",
            "r1/%d" % notice.number,
            "a1",
            True,
            {"rolled_back": 1},
        )


pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")


@pytest.fixture
def server():
    with serving() as one:
        yield one


@pytest.fixture
def ledger(tmp_path, url):
    made = Ledger(str(tmp_path), "r1", url)
    Story("a1", "b1").fails("a1").end().write(made)
    return made


@pytest.fixture
def lite(tmp_path):
    made = Ledger(str(tmp_path), "r1")
    Story("a1", "b1").fails("a1").end().write(made)
    return made


def webhook(server, **more):
    return dict({"url": server.url + "/services/s3cr3t", "kind": "json", "events": ALL, "timeout": 600.0}, **more)


def sender(ledger, server, **more):
    return outbox.Sender(ledger, webhook(server, **more), give_up_s=600.0, pause_s=0.05)


def kinds(server):
    return [body["events"] for body in server.bodies()]


EXPECTED = [["started"], ["failed", "stopped"], ["finished"]]


def test_everything_is_told_once_and_in_order(ledger, server):
    assert outbox.Outbox(ledger).waiting()[0]
    assert sender(ledger, server).run() and sender(ledger, server).run()
    assert kinds(server) == EXPECTED and not any(body["repeat"] for body in server.bodies())
    assert not outbox.Outbox(ledger).waiting()[0]
    ledger.transact(lambda transaction: transaction.append("control", run="run1", verb="pause", user="kim", reason="x"))
    assert outbox.Outbox(ledger).waiting()[0] and sender(ledger, server).run()
    assert kinds(server)[3:] == [["operator"]]


@pytest.mark.parametrize(
    "answer, repeats",
    [
        ((500, b"", {}), False),
        ((503, b"", {"Retry-After": "0"}), False),
        ((429, b"", {}), False),
        ((404, b"", {}), False),
        ((302, b"", {"Location": "http://127.0.0.1:1/"}), False),
        ("hang", True),
        ("cut", True),
        ("drip", True),
    ],
)
def test_a_server_that_is_wrong_slow_or_silent_for_a_while_gets_all_of_it(lite, server, monkeypatch, answer, repeats):
    server.answer = lambda number: answer if number in (2, 3) else (200, b"ok", {})
    request = outbox.web.request

    def ask(url, timeout, *more):
        """Only an answer that never comes is waited for briefly; the server has the request in any case."""
        number = len(server.requests) + 1
        try:
            return request(url, 2.0 if number in (2, 3) and answer in ("hang", "drip") else timeout, *more)
        finally:
            wait_for(lambda: len(server.requests) >= number)

    monkeypatch.setattr(outbox.web, "request", ask)
    assert sender(lite, server).run()
    assert kinds(server) == EXPECTED[:1] + [EXPECTED[1]] * 3 + EXPECTED[2:]
    # Whether the first try arrived is not known when there was no answer: then the next one says so.
    assert [body["repeat"] for body in server.bodies()] == [False, False, repeats, repeats, False]
    assert len({body["id"] for body in server.bodies()}) == 3


def test_a_server_that_is_down_gets_it_when_it_is_back_and_no_repeat_is_said(lite, server):
    server.stop()
    mine = outbox.Sender(lite, webhook(server), give_up_s=0.3, pause_s=0.05)
    assert not mine.run()
    record = outbox.Outbox(lite).read()
    assert record["seen"] == 0 and record["sender"] is None and record["error"] and "s3cr3t" not in json.dumps(record)
    server.start()
    assert (
        sender(lite, server).run() and kinds(server) == EXPECTED and not any(body["repeat"] for body in server.bodies())
    )


def test_a_message_that_is_not_taken_is_left_out_and_the_others_are_told(lite, server):
    server.answer = lambda number: (
        (400, b"invalid_payload", {}) if b"failed" in server.requests[number - 1][2] else (200, b"ok", {})
    )
    assert sender(lite, server, events=["started", "failed", "operator"]).run()
    record = outbox.Outbox(lite).read()
    assert (record["told"], record["left_out"], record["error"]) == (1, 1, "HTTP 400") and len(server.requests) == 4


def test_a_sender_that_died_after_it_posted_says_that_it_repeats(ledger, server):
    mine = sender(ledger, server)
    mine.lease(60)
    first = notices.notices(outbox.Outbox(ledger).events())[0]
    mine.lease(60, sending=first.number)  # posted, and killed before it could write so
    outbox.Outbox(ledger).change(lambda record, now: dict(record, until=0.0))
    assert sender(ledger, server).run()
    assert [body["repeat"] for body in server.bodies()] == [True, False, False]


def test_two_senders_tell_it_once(ledger, server):
    one, other = sender(ledger, server), sender(ledger, server)
    assert one.lease(60)
    assert other.run() and server.requests == [], "the lease is the other's"
    assert one.run() and kinds(server) == EXPECTED


def test_a_sender_whose_lease_was_taken_stops(lite, server):
    mine = sender(lite, server)

    def steal(number):
        outbox.Outbox(lite).change(
            lambda record, now: dict(
                record, sender=dict(owner.identify(os.getpid()), token="other"), until=now.timestamp() + 60
            )
        )
        return 200, b"ok", {}

    server.answer = steal
    assert not mine.run() and len(server.requests) == 1


def test_the_lease_of_a_dead_process_is_free(lite):
    dead = dict(owner.identify(os.getpid()), pid=2**22 + 1, token="x")
    now = lite.store.clock()
    assert not outbox.taken({"sender": dead, "until": now.timestamp() + 60}, now)
    live = dict(owner.identify(os.getpid()), token="x")
    assert outbox.taken({"sender": live, "until": now.timestamp() + 60}, now)
    assert not outbox.taken({"sender": live, "until": now.timestamp() - 1}, now)


def test_a_separate_process_sends_it_and_no_task_waits(ledger, server):
    """The server answers the first message after the caller has continued; a caller that waited would send it again."""
    gone_on = threading.Event()

    def answer(number):
        gone_on.wait(600)
        return 200, b"ok", {}

    server.answer = answer
    outbox.kick(ledger, webhook(server, timeout=600.0))
    gone_on.set()
    wait_for(lambda: not outbox.Outbox(ledger).waiting()[0])
    assert kinds(server) == EXPECTED


def test_a_sender_that_is_killed_is_followed_by_another_one(lite, server):
    server.answer = lambda number: "hang"
    process = outbox.start(lite, webhook(server, timeout=600.0))
    wait_for(lambda: server.requests)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.answer = lambda number: (200, b"ok", {})
    outbox.kick(lite, webhook(server))
    wait_for(lambda: not outbox.Outbox(lite).waiting()[0])
    assert kinds(server) == EXPECTED[:1] + EXPECTED and server.bodies()[1]["repeat"]


def test_the_secret_is_in_no_argument_no_file_and_no_row(lite, server, tmp_path):
    server.answer = lambda number: "hang"
    process = outbox.start(lite, webhook(server, timeout=600.0))
    try:
        wait_for(lambda: server.requests)
        for name in ("cmdline", "environ"):
            with open("/proc/%d/%s" % (process.pid, name), "rb") as stream:
                assert b"s3cr3t" not in stream.read()
    finally:
        process.kill()
        process.wait()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes(), path


def test_without_a_webhook_or_news_nothing_is_started(lite, server, monkeypatch):
    started = []
    monkeypatch.setattr(outbox, "start", lambda *args: started.append(args))
    outbox.kick(lite, None)
    outbox.kick(lite, {})
    outbox.kick(lite, {"url": ""})
    assert not started and not os.path.exists(lite.path("webhook.lock"))
    outbox.kick(lite, webhook(server), idle=True)
    outbox.kick(lite, webhook(server), idle=True)
    assert len(started) == 1, "who waits looks only now and then"
    assert sender(lite, server).run()
    outbox.kick(lite, webhook(server))
    assert len(started) == 1


@pytest.mark.parametrize("error", [OSError("no more processes"), store.StoreError("the database is away")])
def test_an_error_is_reported_and_stops_nothing(lite, server, monkeypatch, error):
    def broken(*args):
        raise error

    said = []
    monkeypatch.setattr(outbox, "start", broken)
    outbox.kick(lite, webhook(server), complain=said.append)
    assert len(said) == 1 and str(error) in said[0] and "s3cr3t" not in said[0]


def test_the_end_waits_a_little_and_says_what_is_left(lite, server, monkeypatch):
    monkeypatch.setattr(outbox, "start", lambda *args: None)
    monkeypatch.setattr(outbox.time, "sleep", lambda seconds: None)
    clock = iter(range(0, 10000, 3))
    monkeypatch.setattr(outbox.time, "monotonic", lambda: next(clock))
    said = []
    outbox.flush(lite, webhook(server, timeout=2.0), said.append)
    assert len(said) == 1 and "did not get all notices yet" in said[0]
    monkeypatch.undo()
    assert sender(lite, server).run()
    outbox.flush(lite, webhook(server), said.append)
    assert len(said) == 1


@pytest.mark.parametrize(
    "given, words",
    [
        (dict(url="hooks.example.org/x"), "expected http"),
        (dict(url="https://u:s3cr3t@x"), "belong into a header"),
        (dict(timeout=0), "timeout"),
        (dict(timeout=1000), "timeout"),
    ],
)
def test_a_webhook_that_could_not_be_told_is_refused_before_anything_starts(given, words):
    good = {"url": "https://hooks.example.org/s3cr3t", "kind": "slack", "events": ALL, "timeout": 5.0}
    assert (
        outbox.check(good) is good
        and outbox.check({}) is None
        and outbox.check(None) is None
        and outbox.check(dict(good, url="")) is None
    )
    with pytest.raises(outbox.WebhookError, match=words) as found:
        outbox.check(dict(good, **given))
    assert "s3cr3t" not in str(found.value)


def test_a_server_of_the_tests_keeps_its_port():
    one = Server().start()
    port = one.port
    one.stop()
    assert one.start().port == port
    one.stop()
