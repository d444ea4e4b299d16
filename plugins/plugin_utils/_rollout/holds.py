# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries that a Prometheus has to answer with nothing before a node may go.

Only an answer that is surely complete and surely empty lets a node go. A query is asked outside of any transaction; its answer is kept
for a short while for the other nodes that wait, and is worth nothing after it.
"""

from __future__ import annotations

import hashlib
import json
import time
import urllib.parse

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

CLEAR, HOLDS, UNKNOWN = "clear", "holds", "unknown"


class HoldError(Exception):
    """A query cannot be asked; the message says why."""


def check(queries):
    """Refuse queries that could not be asked."""
    names = [query["name"] for query in queries]
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:
        raise HoldError("rollout_hold_queries has %s twice; expected a name of its own for each query." % twice[0])
    for query in queries:
        wrong = web.complaint(query["url"])
        if not query["name"].strip() or not query["query"].strip():
            raise HoldError("rollout_hold_queries has a query without a name or without its text: %r." % (query["name"] or query["query"]))
        if wrong:
            raise HoldError("rollout_hold_queries: the url of %s cannot be used: %s." % (query["name"], wrong))
        if not 0 < query["timeout"] <= 120:
            raise HoldError("rollout_hold_queries: the timeout of %s is %g; expected more than 0 and at most 120 seconds." % (query["name"], query["timeout"]))


def check_times(age_s, deadline_s):
    """Refuse times that would make an answer worth nothing, or worth something for ever."""
    for name, value, least, most in (("age_s", age_s, 0, 3600), ("deadline_s", deadline_s, 1, 7 * 86400)):
        if not least <= value <= most:
            raise HoldError("rollout_hold_%s is %s; expected %d to %d seconds. Give another value and run again. Nothing was changed." % (
                name, value, least, most))


def wanted(queries):
    """What the policy remembers of them: text by name. Neither a URL nor a header is in it."""
    return {query["name"]: query["query"] for query in queries}


def judge(status, body):
    """(CLEAR, HOLDS or UNKNOWN, why) out of what a Prometheus answered to an instant query. Pure."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return UNKNOWN, "its answer (HTTP %d) is no JSON" % status
    if status != 200 or not isinstance(found, dict) or found.get("status") != "success":
        said = found.get("error") if isinstance(found, dict) else ""
        return UNKNOWN, "it answered HTTP %d%s" % (status, ": " + text.line(said, 200) if said else "")
    # Some of the servers behind it did not answer: nobody knows what they would have said.
    partial = [found[key] for key in ("warnings", "partialResponse", "isPartial") if found.get(key)]
    data = found.get("data")
    if partial or (isinstance(data, dict) and data.get("isPartial")):
        return UNKNOWN, "its answer is not complete: %s" % text.line(text.shown(partial), 200)
    if not isinstance(data, dict) or data.get("resultType") != "vector" or not isinstance(data.get("result"), list):
        kind = data.get("resultType") if isinstance(data, dict) else None
        return UNKNOWN, "its answer is %s, expected a vector" % text.line(text.shown(kind), 40)
    result = data["result"]
    if not result:
        return CLEAR, ""
    return HOLDS, "%s: %s" % (text.count(len(result), "series", "series"), limits.listed((_series(entry) for entry in result), 3))


def _series(entry):
    metric = entry.get("metric") if isinstance(entry, dict) else None
    value = entry.get("value") if isinstance(entry, dict) else None
    labels = ", ".join('%s="%s"' % (key, metric[key]) for key in sorted(metric) if key != "__name__") if isinstance(metric, dict) else ""
    name = metric.get("__name__", "") if isinstance(metric, dict) else ""
    number = value[1] if isinstance(value, list) and len(value) == 2 else "?"
    return text.line("%s{%s} = %s" % (name, labels, number), 160)


def ask(query):
    """(state, why) of one query, now."""
    url = query["url"].rstrip("/") + "/api/v1/query"
    # Thanos would otherwise leave out what does not answer.
    body = urllib.parse.urlencode({"query": query["query"], "partial_response": "false"}).encode()
    headers = {str(key): str(value) for key, value in query["headers"].items()}
    headers.update({"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"})
    try:
        answer = web.request(url, query["timeout"], body, headers)
    except web.WebError as exc:
        return UNKNOWN, "%s: %s" % (web.place(query["url"]), exc)
    found, why = judge(answer.status, answer.body)
    return found, "%s: %s" % (web.place(query["url"]), why) if found == UNKNOWN else why


def _digest(queries):
    plain = [[query["name"], query["url"], query["query"], query["timeout"]] for query in queries]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def answers(path, queries, age_s, now=time.time):
    """What the QUERIES answered no longer than AGE_S ago: {"time", "results": {name: [state, why]}, "unanswered_since": {name: time}}.

    None when somebody else asks and does not come to an end.
    """
    patience = sum(query["timeout"] for query in queries) + 5
    with files.alone(path, patience) as handle:
        if handle is None:
            return None
        kept, digest = files.note(handle), _digest(queries)
        if not (_usable(kept, queries) and kept["digest"] == digest and 0 <= now() - kept["time"] <= age_s):
            begun = now()
            results = {query["name"]: list(ask(query)) for query in queries}
            before = kept["unanswered_since"] if _usable(kept, queries) else {}
            silent = {name: before.get(name, begun) for name, (found, dummy) in results.items() if found == UNKNOWN}
            # As old as its first question.
            kept = {"digest": digest, "time": begun, "results": results, "unanswered_since": silent}
            files.keep(handle, kept)
        return kept


def _usable(kept, queries):
    results = kept.get("results")
    return (isinstance(results, dict) and isinstance(kept.get("time"), (int, float)) and isinstance(kept.get("unanswered_since"), dict)
            and isinstance(kept.get("digest"), str) and all(isinstance(results.get(query["name"]), list) for query in queries))


def verdict(policy_holds, queries, found, deadline_s, age_s, now):
    """(names that keep nodes from starting, why). Nothing but a fresh and empty answer to every query of the policy lets one go. Pure."""
    known = {query["name"]: query["query"] for query in queries}
    names, why = [], []
    fresh = found is not None and 0 <= now - found["time"] <= age_s + sum(query["timeout"] for query in queries)
    for name, query in sorted(policy_holds.items()):
        if known.get(name) != query:
            said = "is part of the plan, but rollout_hold_queries as this task has it does not name it so"
        elif found is None:
            said = "has no answer: another process asks it and does not come to an end"
        elif not fresh:
            said = "has no answer that is young enough"
        else:
            state, said = found["results"].get(name, [UNKNOWN, "has no answer"])
            if state == CLEAR:
                continue
            since = found["unanswered_since"].get(name)
            if state == UNKNOWN and since is not None and now - since >= deadline_s:
                said += "; it has not answered for %d s (rollout_hold_deadline_s is %d), and no node starts before it does or an operator lifts it" % (
                    now - since, deadline_s)
        names.append(name)
        why.append("%s: %s" % (name, said))
    return names, "; ".join(why)
