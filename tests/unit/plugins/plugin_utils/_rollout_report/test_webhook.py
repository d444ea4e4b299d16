# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The webhook: nothing is lost, and nothing is sent twice if the first arrival is known."""

from __future__ import annotations

import json
import os
import types

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import webhook as hooks
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._rollout_report.stories import Story
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.webserver import serving, wait_for

pytestmark = pytest.mark.cores

ALL = ("started", "canary", "failed", "stopped", "operator", "held", "finished")


def told(made, kinds=ALL):
    return hooks.list_notices(list(enumerate(made.events, start=1)), kinds)


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
        rough = {number for number, event in enumerate(made.events, start=1) if hooks.may_notify(event, {"a1"})}
        assert numbers <= rough and len(rough) < 10

    def test_payloads(self):
        notice = told(Story("a1", failure_budget=1).fails("a1", reason="<script> & @here"), ["failed"])[0]
        slack = json.loads(hooks.render_body(notice, "slack", False))
        assert list(slack) == ["text"] and "&lt;script&gt; &amp; @here" in slack["text"]
        assert "sent again" in json.loads(hooks.render_body(notice, "slack", True))["text"]
        plain = json.loads(hooks.render_body(notice, "json", True))
        assert (plain["schema"], plain["id"], plain["node"], plain["repeat"], plain["counts"]) == (
            "gpufleet.event/1",
            "r1/%d" % notice.number,
            "a1",
            True,
            {"rolled_back": 1},
        )


pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

EXPECTED = [["started"], ["failed", "stopped"], ["finished"]]


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


def outbox(ledger, server, **more):
    return hooks.Outbox(ledger, webhook(server, **more))


def record(ledger, server):
    return outbox(ledger, server).look()[2]


def kinds(server):
    return [body["events"] for body in server.bodies()]


def repeats(server):
    return [body["repeat"] for body in server.bodies()]


def end_pause(ledger, server):
    """Let the pause after a failure be over."""
    outbox(ledger, server).update(lambda found, now: dict(found, resume=0.0))


def test_all_notices_are_sent_once_and_in_order(ledger, server):
    assert outbox(ledger, server).look()[:2] == (True, True)
    for dummy in range(2):
        hooks.send_pending(ledger, webhook(server))
    assert kinds(server) == EXPECTED and not any(repeats(server))
    assert outbox(ledger, server).look()[:2] == (False, False)
    ledger.transact(lambda transaction: transaction.append("control", run="run1", verb="pause", user="kim", reason="x"))
    hooks.send_pending(ledger, webhook(server))
    assert kinds(server)[3:] == [["operator"]]


@pytest.mark.parametrize(
    "answer, is_repeated",
    [
        ((500, b"", {}), False),
        ((429, b"", {}), False),
        ((404, b"", {}), False),
        ((302, b"", {"Location": "http://127.0.0.1:1/"}), False),
        ("hang", True),
        ("cut", True),
        ("drip", True),
    ],
)
def test_receiver_that_fails_for_a_while_gets_all_notices_from_later_tasks(
    lite, server, monkeypatch, answer, is_repeated
):
    server.answer = lambda number: answer if number in (2, 3) else (200, b"ok", {})
    request = hooks.web.request

    def ask(url, timeout, *more):
        """Wait briefly only for an answer that never comes; the server has the request in any case."""
        number = len(server.requests) + 1
        try:
            return request(url, 2.0 if number in (2, 3) and answer in ("hang", "drip") else timeout, *more)
        finally:
            wait_for(lambda: len(server.requests) >= number)

    monkeypatch.setattr(hooks.web, "request", ask)
    for sent in (2, 3, 5):
        hooks.send_pending(lite, webhook(server))
        assert len(server.requests) == sent, "a task stops at the first failure"
        end_pause(lite, server)
    assert kinds(server) == EXPECTED[:1] + [EXPECTED[1]] * 3 + EXPECTED[2:]
    # Without an answer it is not known whether the first attempt arrived; the next one says so.
    assert repeats(server) == [False, False, is_repeated, is_repeated, False]
    assert len({body["id"] for body in server.bodies()}) == 3


def test_no_task_posts_in_the_pause_after_a_failure_which_grows(lite, server):
    server.answer = lambda number: (503, b"", {"Retry-After": "30"}) if number == 1 else (500, b"", {})
    pauses = []
    for number in range(1, 5):
        hooks.send_pending(lite, webhook(server))
        hooks.send_pending(lite, webhook(server))
        assert len(server.requests) == number
        pauses.append(record(lite, server)["resume"] - lite.store.clock().timestamp())
        end_pause(lite, server)
    assert 25 < pauses[0] <= 30 and pauses[1] <= 2 < pauses[2] <= 4 < pauses[3] <= 8


def test_receiver_that_is_down_gets_all_notices_when_it_is_back_without_repeats(lite, server):
    server.stop()
    hooks.send_pending(lite, webhook(server))
    found = record(lite, server)
    assert found["sent"] == 0 and found["holder"] is None and found["error"] and "s3cr3t" not in json.dumps(found)
    server.start()
    end_pause(lite, server)
    hooks.send_pending(lite, webhook(server))
    assert kinds(server) == EXPECTED and not any(repeats(server))


def test_notice_that_the_receiver_refuses_is_left_out_and_the_others_are_sent(lite, server):
    server.answer = lambda number: (
        (400, b"invalid_payload", {}) if b"failed" in server.requests[number - 1][2] else (200, b"ok", {})
    )
    for dummy in range(3):
        hooks.send_pending(lite, webhook(server, events=["started", "failed", "operator"]))
        end_pause(lite, server)
    found = record(lite, server)
    assert (found["delivered"], found["left_out"], found["error"]) == (1, 1, "HTTP 400")
    assert len(server.requests) == 4


def test_task_that_was_killed_after_its_post_is_followed_by_a_repeat(ledger, server):
    killed = outbox(ledger, server)
    killed.take_lease()
    first = hooks.list_notices(killed.read_events(), ALL)[0]
    killed.update(lambda found, now: dict(found, posting=first.number))
    hooks.send_pending(ledger, webhook(server))
    assert server.requests == [], "its lease has not run out"
    killed.update(lambda found, now: dict(found, until=now - 1))
    hooks.send_pending(ledger, webhook(server))
    assert kinds(server) == EXPECTED and repeats(server) == [True, False, False]


def test_task_whose_lease_was_taken_stops(lite, server):
    def steal(number):
        outbox(lite, server).update(lambda found, now: dict(found, holder="other", until=now + 60))
        return 200, b"ok", {}

    server.answer = steal
    hooks.send_pending(lite, webhook(server))
    assert len(server.requests) == 1 and record(lite, server)["holder"] == "other"


def test_secret_is_in_no_file_and_no_row(lite, server, tmp_path):
    server.answer = lambda number: (500, b"", {})
    hooks.send_pending(lite, webhook(server))
    assert server.requests
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes(), path


def test_nothing_is_read_without_a_webhook_and_seldom_by_a_node_that_waits(lite, server, monkeypatch):
    calls = []
    monkeypatch.setattr(hooks.Outbox, "send", lambda outbox: calls.append(outbox.token))
    for absent in (None, {}, {"url": ""}):
        hooks.send_pending(lite, absent)
        hooks.flush_pending(lite, absent)
    assert not calls and not os.path.exists(lite.path("webhook.lock"))
    for dummy in range(2):
        hooks.send_pending(lite, webhook(server), idle=True)
    assert len(calls) == 1
    hooks.send_pending(lite, webhook(server))
    assert len(calls) == 2


@pytest.mark.parametrize("error", [OSError("no more processes"), store.StoreError("the database is away")])
def test_an_error_is_reported_and_stops_nothing(lite, server, monkeypatch, error):
    def broken(*args):
        raise error

    said = []
    monkeypatch.setattr(hooks.Outbox, "send", broken)
    hooks.send_pending(lite, webhook(server), complain=said.append)
    assert len(said) == 1 and str(error) in said[0] and "s3cr3t" not in said[0]


def test_end_tries_again_for_a_while_and_reports_what_is_left(lite, server, monkeypatch):
    server.answer = lambda number: (500, b"", {})
    clock = iter(range(0, 10000, 3))
    fake = types.SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: end_pause(lite, server))
    monkeypatch.setattr(hooks, "time", fake)
    said = []
    hooks.flush_pending(lite, webhook(server, timeout=2.0), said.append)
    assert len(said) == 1 and "HTTP 500" in said[0] and len(server.requests) > 1
    monkeypatch.undo()
    server.answer = lambda number: (200, b"ok", {})
    end_pause(lite, server)
    hooks.flush_pending(lite, webhook(server), said.append)
    assert len(said) == 1 and record(lite, server)["delivered"] == 3


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
        hooks.check_webhook(good) is good
        and hooks.check_webhook({}) is None
        and hooks.check_webhook(None) is None
        and hooks.check_webhook(dict(good, url="")) is None
    )
    with pytest.raises(hooks.WebhookError, match=words) as found:
        hooks.check_webhook(dict(good, **given))
    assert "s3cr3t" not in str(found.value)
