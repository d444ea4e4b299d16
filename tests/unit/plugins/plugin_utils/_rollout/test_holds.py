# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries that keep nodes from starting: nothing but a whole, empty and fresh answer lets one go."""

from __future__ import annotations

import json
import time
import urllib.parse

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import holds
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.webserver import serving

pytestmark = pytest.mark.cores

SECRET = "Bearer s3cr3t-token"


def vector(*results, **more):
    return json.dumps(
        dict({"status": "success", "data": {"resultType": "vector", "result": list(results)}}, **more)
    ).encode()


SERIES = {"metric": {"__name__": "ALERTS", "alertname": "FabricDegraded", "severity": "page"}, "value": [1, "1"]}


@pytest.fixture
def server():
    with serving() as one:
        one.answer = lambda number: (200, vector(), {})
        yield one


def query(server, **more):
    return dict(
        {"name": "alerts", "url": server.url, "query": 'ALERTS{alertstate="firing"}', "timeout": 600, "headers": {}},
        **more,
    )


def found(path, queries, **more):
    return holds.judge_holds(
        holds.strip_queries(queries),
        queries,
        holds.find_answers(str(path), queries, 15),
        600,
        15,
        more.get("now", time.time()),
    )


def test_an_empty_vector_lets_nodes_go(server, tmp_path):
    assert found(tmp_path / "holds", [query(server)]) == ([], "")
    path, dummy, body = server.requests[0]
    assert path == "/api/v1/query" and urllib.parse.parse_qs(body.decode()) == {
        "query": ['ALERTS{alertstate="firing"}'],
        "partial_response": ["false"],
    }


@pytest.mark.parametrize(
    "answer, words",
    [
        ((200, vector(SERIES), {}), '1 series: ALERTS{alertname="FabricDegraded", severity="page"} = 1'),
        ((200, vector(*[SERIES] * 5), {}), "5 series: "),
        ((200, vector({"odd": 1}, 7), {}), "2 series: "),
        (
            (200, vector(warnings=["some stores gave a partial response"]), {}),
            "its answer is not complete: some stores gave a partial response",
        ),
        ((200, vector(partialResponse=True), {}), "its answer is not complete"),
        ((200, vector(isPartial=True), {}), "its answer is not complete"),
        (
            (
                200,
                json.dumps(
                    {"status": "success", "data": {"resultType": "vector", "result": [], "isPartial": True}}
                ).encode(),
                {},
            ),
            "not complete",
        ),
        (
            (200, json.dumps({"status": "success", "data": {"resultType": "scalar", "result": [1, "0"]}}).encode(), {}),
            "its answer is scalar, expected a vector",
        ),
        (
            (200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode(), {}),
            "expected a vector",
        ),
        ((200, json.dumps({"status": "success", "data": {"resultType": "vector"}}).encode(), {}), "expected a vector"),
        ((200, json.dumps({"status": "success", "data": None}).encode(), {}), "expected a vector"),
        ((200, json.dumps({"status": "success"}).encode(), {}), "expected a vector"),
        ((200, b"[]", {}), "it answered HTTP 200"),
        ((200, b"null", {}), "it answered HTTP 200"),
        ((200, b"<html>log in</html>", {}), "is not JSON"),
        ((200, b"", {}), "is not JSON"),
        ((200, b"[" * 100000, {}), "is not JSON"),
        ((200, b"\xff\xfe", {}), "is not JSON"),
        (
            (400, json.dumps({"status": "error", "error": "parse error: x"}).encode(), {}),
            "it answered HTTP 400: parse error: x",
        ),
        ((200, json.dumps({"status": "error", "error": "timeout"}).encode(), {}), "it answered HTTP 200: timeout"),
        ((503, vector(), {}), "it answered HTTP 503"),
        ((401, b"{}", {}), "it answered HTTP 401"),
        ((302, vector(), {"Location": "http://127.0.0.1:1/x"}), "it answered HTTP 302"),
        ((200, b" " * 2000000, {}), "longer than"),
        ("hang", "did not"),
        ("drip", "did not"),
        ("cut", ""),
    ],
)
def test_everything_else_lets_them_wait(server, tmp_path, answer, words):
    server.answer = lambda number: answer
    begun = time.monotonic()  # the server of the tests hangs for ten minutes
    names, why = found(tmp_path / "holds", [query(server, timeout=2.0 if answer in ("hang", "drip") else 600)])
    assert names == ["alerts"] and words in why and why.startswith("alerts: ")
    assert time.monotonic() - begun < 300


def test_without_a_server_nodes_wait(server, tmp_path):
    server.stop()
    names, why = found(tmp_path / "holds", [query(server)])
    assert names == ["alerts"] and "refused" in why.lower()


def test_with_an_unknown_host_name_nodes_wait(server, tmp_path):
    names, why = found(tmp_path / "holds", [query(server, url="http://prometheus.invalid:9090")])
    assert names == ["alerts"] and "prometheus.invalid:9090" in why


def test_one_query_of_several_is_enough_to_wait_and_is_named(server, tmp_path):
    server.answer = lambda number: (200, vector(*([SERIES] if number == 2 else [])), {})
    queries = [query(server, name="a"), query(server, name="b"), query(server, name="c")]
    names, why = found(tmp_path / "holds", queries)
    assert names == ["b"] and why.startswith("b: 1 series")


def test_headers_are_sent_to_the_server_and_appear_nowhere(server, tmp_path):
    server.answer = lambda number: (302, SECRET.encode(), {"Location": server.url + "/elsewhere"})
    queries = [query(server, headers={"Authorization": SECRET})]
    names, why = found(tmp_path / "holds", queries)
    assert server.requests[0][1]["Authorization"] == SECRET and len(server.requests) == 1, "a redirect is not followed"
    assert "s3cr3t" not in why and "s3cr3t" not in (tmp_path / "holds").read_text() and names
    assert "s3cr3t" not in json.dumps(holds.strip_queries(queries))


def test_an_answer_holds_good_for_others_until_it_is_old(server, tmp_path):
    queries, path = [query(server)], str(tmp_path / "holds")
    first = holds.find_answers(path, queries, 15)
    assert holds.find_answers(path, queries, 15) == first and len(server.requests) == 1
    assert (
        holds.find_answers(path, queries, 15, now=lambda: time.time() + 20)["time"] > first["time"]
        and len(server.requests) == 2
    )
    assert holds.find_answers(path, queries, 15, now=lambda: time.time() - 3600)["time"] < first["time"], (
        "a clock that was put back"
    )
    holds.find_answers(path, [query(server, query="up == 0")], 15)
    assert len(server.requests) == 4, "another query is another question"


@pytest.mark.parametrize(
    "junk", ["", "no json", "[]", '{"time": "x"}', '{"results": {"alerts": ["clear", ""]}, "time": 1e99}']
)
def test_a_kept_answer_that_cannot_be_read_is_asked_again(server, tmp_path, junk):
    (tmp_path / "holds").write_text(junk)
    server.answer = lambda number: (200, vector(SERIES), {})
    assert found(tmp_path / "holds", [query(server)])[0] == ["alerts"] and len(server.requests) == 1


def test_a_process_that_never_finishes_lets_the_others_wait(server, tmp_path, monkeypatch):
    queries, path = [query(server, timeout=0.1)], str(tmp_path / "holds")
    monkeypatch.setattr(files, "open_locked", _never_released)
    assert holds.find_answers(path, queries, 15) is None
    names, why = holds.judge_holds(holds.strip_queries(queries), queries, None, 600, 15, time.time())
    assert names == ["alerts"] and "has no answer" in why


class _never_released:
    def __init__(self, path, patience_s):
        assert patience_s < 10

    def __enter__(self):
        return None

    def __exit__(self, *args):
        return False


class TestVerdict:
    QUERIES = [{"name": "a", "url": "http://x", "query": "up == 0", "timeout": 1.0, "headers": {}}]
    POLICY = {"a": "up == 0"}

    def answer(self, result, age=0.0, silent=None):
        return {
            "time": 1000.0 - age,
            "results": {"a": result},
            "unanswered_since": {} if silent is None else {"a": silent},
        }

    def test_nothing_to_ask_is_nothing_to_wait_for(self):
        assert holds.judge_holds({}, self.QUERIES, None, 600, 15, 1000.0) == ([], "")

    def test_an_answer_that_is_too_old_by_now_is_none(self):
        assert holds.judge_holds(self.POLICY, self.QUERIES, self.answer(["clear", ""], 10), 600, 15, 1000.0) == ([], "")
        assert holds.judge_holds(self.POLICY, self.QUERIES, self.answer(["clear", ""], 17), 600, 15, 1000.0)[0] == ["a"]
        assert holds.judge_holds(self.POLICY, self.QUERIES, self.answer(["clear", ""], -5), 600, 15, 1000.0)[0] == [
            "a"
        ], "from the future"

    @pytest.mark.parametrize("queries", [[], [dict(QUERIES[0], query="vector(1) == 0")], [dict(QUERIES[0], name="b")]])
    def test_a_task_that_lacks_a_query_of_the_plan_grants_no_ticket(self, queries):
        names, why = holds.judge_holds(self.POLICY, queries, self.answer(["clear", ""]), 600, 15, 1000.0)
        assert names == ["a"] and "part of the plan" in why

    def test_after_the_deadline_it_waits_on_and_says_how_to_go_on(self):
        early = holds.judge_holds(
            self.POLICY, self.QUERIES, self.answer(["unknown", "gone"], silent=900.0), 600, 15, 1000.0
        )
        late = holds.judge_holds(
            self.POLICY, self.QUERIES, self.answer(["unknown", "gone"], silent=100.0), 600, 15, 1000.0
        )
        assert early[0] == late[0] == ["a"] and "no answer for" not in early[1]
        assert "no answer for 900 s" in late[1] and "an operator lifts the hold" in late[1]

    @pytest.mark.parametrize("result", [["holds", "x"], ["unknown", "x"], ["", ""], ["CLEAR", ""]])
    def test_only_clear_is_clear(self, result):
        assert holds.judge_holds(self.POLICY, self.QUERIES, self.answer(result), 600, 15, 1000.0)[0] == ["a"]


def test_how_long_it_has_not_answered_is_remembered(server, tmp_path):
    path, queries = str(tmp_path / "holds"), [query(server)]
    server.answer = lambda number: (500, b"", {}) if number != 3 else (200, vector(), {})
    clock = [1000.0]

    def ask():
        clock[0] += 100
        return holds.find_answers(path, queries, 15, now=lambda: clock[0])["unanswered_since"]

    assert [ask(), ask(), ask(), ask()] == [{"alerts": 1100.0}, {"alerts": 1100.0}, {}, {"alerts": 1400.0}]


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(url="ftp://x/y"), "expected http:// or https://"),
        (dict(url="prometheus:9090"), "expected http:// or https://"),
        (dict(url="http://"), "and a host"),
        (dict(url="http://kim:pw@x"), "those belong into a header"),
        (dict(url="http://x y"), "a blank"),
        (dict(url="http://x:99999"), "its port is no number"),
        (dict(name=" "), "without name"),
        (dict(query=""), "without name or query"),
        (dict(timeout=0), "timeout"),
        (dict(timeout=1e9), "timeout"),
    ],
)
def test_queries_that_could_not_be_asked_are_refused(changes, words):
    good = {"name": "a", "url": "https://x", "query": "up", "timeout": 5.0, "headers": {}}
    holds.check_queries([good])
    with pytest.raises(holds.HoldError, match=words):
        holds.check_queries([dict(good, **changes)])


def test_names_are_unique():
    good = {"name": "a", "url": "https://x", "query": "up", "timeout": 5.0, "headers": {}}
    with pytest.raises(holds.HoldError, match="a twice"):
        holds.check_queries([good, good])


@pytest.mark.parametrize("kind", [OSError, web.UrlsError])
@pytest.mark.parametrize("url", ["https://hooks.example.org/services/T0/B0/s3cr3t?k=s3cr3t"])
def test_no_error_says_the_url(url, kind, monkeypatch):
    monkeypatch.setattr(
        web, "open_url", lambda *args, **more: (dummy for dummy in ()).throw(kind("cannot open %s" % url))
    )
    with pytest.raises(web.WebError) as found_error:
        web.request(url, 1.0, b"{}")
    assert "s3cr3t" not in str(found_error.value) and "cannot open" in str(found_error.value)


@pytest.mark.parametrize("value", [SECRET + "\n", SECRET + "\nX: y", "\u2026" + SECRET])
def test_query_with_a_header_that_cannot_be_sent_is_refused_without_its_value(server, value):
    one = query(server, headers={"Authorization": value})
    with pytest.raises(holds.HoldError) as caught:
        holds.check_queries([one])
    assert "Authorization" in str(caught.value) and "s3cr3t" not in str(caught.value)
    state, why = holds.ask(one)
    assert state == holds.UNKNOWN and "s3cr3t" not in why and not server.requests


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"status": "error", "error": "who is " + SECRET}).encode(),
        vector(warnings=["who is " + SECRET]),
        vector({"metric": {"token": "s3cr3t-token"}, "value": [1, "1"]}),
    ],
    ids=["error", "warning", "series"],
)
def test_server_that_repeats_a_header_does_not_make_it_known(server, body):
    server.answer = lambda number: (200, body, {})
    state, why = holds.ask(query(server, headers={"Authorization": SECRET}))
    assert state != holds.CLEAR and why and "s3cr3t" not in why
