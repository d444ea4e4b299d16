# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold queries: Prometheus queries that must return no series before a node may start.

Only a complete and empty answer lets a node start. Queries are sent outside of any transaction. Their answers are
cached for a short time for other nodes that wait.
"""

from __future__ import annotations

import hashlib
import json
import time
import urllib.parse

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

CLEAR, HOLDS, UNKNOWN = "clear", "holds", "unknown"
WHY = 1000  # characters


class HoldError(Exception):
    """A query cannot be asked; the message says why."""


def check_queries(queries) -> None:
    """Refuse queries that cannot be sent."""
    names = [query["name"] for query in queries]
    repeated = sorted(name for name in set(names) if names.count(name) > 1)
    if repeated:
        raise HoldError("rollout_hold_queries has %s twice; expected a different name for each query." % repeated[0])
    for query in queries:
        wrong = web.complaint(query["url"])
        if not query["name"].strip() or not query["query"].strip():
            raise HoldError(
                "rollout_hold_queries has a query without name or query: %r; expected both."
                % (query["name"] or query["query"])
            )
        if wrong:
            raise HoldError("rollout_hold_queries: the url of %s cannot be used: %s." % (query["name"], wrong))
        wrong = web.header_problem(query["headers"])
        if wrong:
            raise HoldError("rollout_hold_queries: the query %s cannot be sent: %s." % (query["name"], wrong))
        if not 0 < query["timeout"] <= 120:
            raise HoldError(
                "rollout_hold_queries: the timeout of %s is %g; expected more than 0 and at most 120 seconds."
                % (query["name"], query["timeout"])
            )


def strip_queries(queries) -> dict[str, str]:
    """Return the queries as the policy keeps them: the query by name, without URL and headers."""
    return {query["name"]: query["query"] for query in queries}


def judge_answer(status, body) -> tuple[str, str]:
    """Return (CLEAR, HOLDS or UNKNOWN, why) for the answer of a Prometheus to an instant query. Pure."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return UNKNOWN, "its answer (HTTP %d) is not JSON" % status
    if status != 200 or not isinstance(found, dict) or found.get("status") != "success":
        said = found.get("error") if isinstance(found, dict) else ""
        return UNKNOWN, "it answered HTTP %d%s" % (status, ": " + text.one_line(said, 200) if said else "")
    # Some of the servers behind it did not answer, so their series are unknown.
    partial = [found[key] for key in ("warnings", "partialResponse", "isPartial") if found.get(key)]
    data = found.get("data")
    if partial or (isinstance(data, dict) and data.get("isPartial")):
        return UNKNOWN, "its answer is not complete: %s" % text.one_line(text.format_value(partial), 200)
    if not isinstance(data, dict) or data.get("resultType") != "vector" or not isinstance(data.get("result"), list):
        kind = data.get("resultType") if isinstance(data, dict) else None
        return UNKNOWN, "its answer is %s, expected a vector" % text.one_line(text.format_value(kind), 40)
    result = data["result"]
    if not result:
        return CLEAR, ""
    return HOLDS, "%s: %s" % (
        text.count_noun(len(result), "series", "series"),
        limits.list_names((_describe_series(entry) for entry in result), 3),
    )


def _describe_series(entry) -> str:
    metric = entry.get("metric") if isinstance(entry, dict) else None
    value = entry.get("value") if isinstance(entry, dict) else None
    labels = (
        ", ".join('%s="%s"' % (key, metric[key]) for key in sorted(metric) if key != "__name__")
        if isinstance(metric, dict)
        else ""
    )
    name = metric.get("__name__", "") if isinstance(metric, dict) else ""
    number = value[1] if isinstance(value, list) and len(value) == 2 else "?"
    return text.one_line("%s{%s} = %s" % (name, labels, number), 160)


def ask(query) -> tuple[str, str]:
    """Send one query; return (state, why)."""
    url = query["url"].rstrip("/") + "/api/v1/query"
    # Without it Thanos leaves out servers that do not answer.
    body = urllib.parse.urlencode({"query": query["query"], "partial_response": "false"}).encode()
    headers = {str(key): str(value) for key, value in query["headers"].items()}
    headers.update({"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"})
    try:
        answer = web.request(url, query["timeout"], body, headers)
    except web.WebError as exc:
        return UNKNOWN, "%s: %s" % (web.place(query["url"]), exc)
    found, why = judge_answer(answer.status, answer.body)
    # A server, or a proxy before it, may repeat what it was sent.
    why = redaction.redact(why, web.header_secrets(query["headers"]), WHY)
    return found, "%s: %s" % (web.place(query["url"]), why) if found == UNKNOWN else why


def _digest_queries(queries) -> str:
    plain = [[query["name"], query["url"], query["query"], query["timeout"]] for query in queries]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def find_answers(path, queries, age_s, now=time.time) -> dict | None:
    """Return answers to the QUERIES that are at most AGE_S old.

    {"time", "results": {name: [state, why]}, "unanswered_since": {name: time}}; None if another process sends them and
    does not finish.
    """
    patience = sum(query["timeout"] for query in queries) + 5
    with files.open_locked(path, patience) as handle:
        if handle is None:
            return None
        kept, digest = files.read_json(handle), _digest_queries(queries)
        if not (_usable_answers(kept, queries) and kept["digest"] == digest and 0 <= now() - kept["time"] <= age_s):
            begun = now()
            results = {query["name"]: list(ask(query)) for query in queries}
            before = kept["unanswered_since"] if _usable_answers(kept, queries) else {}
            silent = {name: before.get(name, begun) for name, (found, dummy) in results.items() if found == UNKNOWN}
            # The answers are as old as the first query.
            kept = {"digest": digest, "time": begun, "results": results, "unanswered_since": silent}
            files.write_json(handle, kept)
        return kept


def _usable_answers(kept, queries) -> bool:
    results = kept.get("results")
    return (
        isinstance(results, dict)
        and isinstance(kept.get("time"), (int, float))
        and isinstance(kept.get("unanswered_since"), dict)
        and isinstance(kept.get("digest"), str)
        and all(isinstance(results.get(query["name"]), list) for query in queries)
    )


def judge_holds(policy_holds, queries, found, deadline_s, age_s, now) -> tuple[list, str]:
    """Return (names of the queries that keep nodes from starting, why). Pure.

    Only a fresh and empty answer to every query of the policy lets a node start.
    """
    known = {query["name"]: query["query"] for query in queries}
    names, why = [], []
    fresh = found is not None and 0 <= now - found["time"] <= age_s + sum(query["timeout"] for query in queries)
    for name, query in sorted(policy_holds.items()):
        if known.get(name) != query:
            said = "is part of the plan, but not of rollout_hold_queries in this task, or with another query"
        elif found is None:
            said = "has no answer: another process sends it and does not finish"
        elif not fresh:
            said = "has no recent answer"
        else:
            state, said = found["results"].get(name, [UNKNOWN, "has no answer"])
            if state == CLEAR:
                continue
            since = found["unanswered_since"].get(name)
            if state == UNKNOWN and since is not None and now - since >= deadline_s:
                said += (
                    "; no answer for %d s (rollout_hold_deadline_s is %d): no node starts before there is one, or an "
                    "operator lifts the hold" % (now - since, deadline_s)
                )
        names.append(name)
        why.append("%s: %s" % (name, said))
    return names, "; ".join(why)
