# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions to the HTTP API of Prometheus, one by one and for the history of a window, part by part.

An answer that is not surely whole is an error with a code of its own.
"""

from __future__ import annotations

import concurrent.futures
import json
import math
import typing as t
import urllib.parse

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import catalog
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.catalog import CapacityError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.history import DAY, HOUR, History, Window
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

LARGEST = 256 << 20
NEXT = "Nothing was written; a report that was there before is as it was."
# Prometheus tells with these of a query that is unusual, not of data that is missing.
HINT = "PromQL info:"
Sample = t.Tuple[t.Dict[str, str], t.List[t.Tuple[float, float]]]


def judge(status: int, body: bytes, query: str) -> t.List[Sample]:
    """Return the series of an answer as (labels, [(time, value)]), or raise why it cannot be used. Pure."""

    def refuse(code: str, found: str) -> t.NoReturn:
        raise CapacityError(code, "query %s: %s. %s" % (query, found, NEXT))

    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        refuse("error", "HTTP %d and no JSON: is it a Prometheus?" % status)
    if not isinstance(found, dict) or status != 200 or found.get("status") != "success":
        said = text.one_line(found.get("error"), 300) if isinstance(found, dict) else ""
        refuse("error", "it answered HTTP %d%s" % (status, ": " + said if said else ""))
    warnings = [one for one in found.get("warnings") or [] if not str(one).startswith(HINT)]
    data = found.get("data")
    if warnings or found.get("isPartial") or isinstance(data, dict) and data.get("isPartial"):
        refuse("partial", "its answer is not whole: %s" % (text.one_line(text.format_value(warnings), 300)))
    kind = data.get("resultType") if isinstance(data, dict) else None
    if kind not in ("vector", "matrix") or not isinstance(data.get("result"), list):
        refuse("error", "its answer is %s, expected a vector or a matrix" % text.one_line(text.format_value(kind), 40))
    try:
        return [_series(entry, kind) for entry in data["result"]]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        refuse("error", "a series of its answer is not as the API has it")


def _series(entry: t.Dict[str, t.Any], kind: str) -> Sample:
    points = [entry["value"]] if kind == "vector" else entry["values"]
    # A quotient without a divisor is no value.
    found = [(float(time), float(value)) for time, value in points]
    if not all(math.isfinite(time) for time, dummy in found):
        raise ValueError("a time is not finite")
    return (
        {str(key): str(value) for key, value in entry["metric"].items()},
        [(time, value) for time, value in found if math.isfinite(value)],
    )


class Prometheus:
    """The API at a URL. HEADERS are secrets and are told to no one else."""

    def __init__(self, url: str, timeout: float, headers: t.Optional[t.Dict[str, str]] = None) -> None:
        self.url, self.timeout = url.rstrip("/"), timeout
        self.headers = {str(key): str(value) for key, value in (headers or {}).items()}

    @property
    def place(self) -> str:
        return web.place(self.url)

    def now(self, query: str, expr: str, time: int) -> t.List[Sample]:
        """Return the answer to EXPR at a TIME. QUERY is its name in messages."""
        return self._ask("query", query, {"query": expr, "time": str(time)})

    def over(self, query: str, expr: str, first: int, last: int, step: int) -> t.List[Sample]:
        """Return the answers to EXPR at FIRST and each STEP after it, up to LAST."""
        return self._ask(
            "query_range", query, {"query": expr, "start": str(first), "end": str(last), "step": str(step)}
        )

    def _ask(self, path: str, query: str, values: t.Dict[str, str]) -> t.List[Sample]:
        # Thanos would otherwise leave out what does not answer.
        body = urllib.parse.urlencode(dict(values, partial_response="false")).encode()
        headers = dict(
            self.headers, **{"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        )
        try:
            answer = web.request("%s/api/v1/%s" % (self.url, path), self.timeout, body, headers, LARGEST)
        except web.WebError as exc:
            raise CapacityError(
                "away",
                "Prometheus at %s: query %s: %s. Look whether it runs and whether capacity_prometheus_url and "
                "capacity_timeout are right. %s" % (self.place, query, exc, NEXT),
            ) from exc
        try:
            return judge(answer.status, answer.body, query)
        except CapacityError as exc:
            why = redaction.redact(exc, web.header_secrets(self.headers), 1000)
            raise CapacityError(exc.code, "Prometheus at %s: %s" % (self.place, why)) from None


# Instants of five minutes that a day of a GPU has.
INSTANTS = 288
CHUNK_MAX, AT_ONCE = 7, 4


def chunk_days(gpus: int, samples_max: int) -> int:
    """Return how many days one request may span, so that Prometheus reads about SAMPLES_MAX samples at most. Pure."""
    return max(1, min(CHUNK_MAX, samples_max // max(1, gpus * INSTANTS)))


def requests(
    asked: catalog.Asked, window: Window, days: int
) -> t.Iterator[t.Tuple[str, str, str, t.Tuple[int, int, int]]]:
    """Yield (query, group or "", PromQL, (first, last, step)) of every request over a range. Pure."""
    for begin, end in window.chunks(days):
        for query in catalog.queries("hours"):
            yield query["id"], "", catalog.expression(query, asked.environment), (begin + HOUR, end, HOUR)
        for query in catalog.queries("peaks"):
            for group in (catalog.FLEET, *asked.groups):
                expr = catalog.expression(query, asked.environment, group)
                yield query["id"], group, expr, (begin + HOUR, end, HOUR)
        for query in catalog.queries("days"):
            yield query["id"], "", catalog.expression(query, asked.environment), (begin + DAY, end, DAY)


def history(prometheus: Prometheus, asked: catalog.Asked, window: Window) -> History:
    """Return the history that PROMETHEUS has of a window. The first question without a whole answer ends it."""
    found = History(window, asked.groups)
    for query in catalog.queries("now"):
        answer = prometheus.now(query["id"], catalog.expression(query, asked.environment), window.end)
        found.now[query["id"]] = [(labels, points[0][1]) for labels, points in answer if points]
    count = catalog.expression({"expr": "count(gpufleet:gpu_temperature:celsius{${select}})"}, asked.environment)
    gpus = sum(points[0][1] for dummy, points in prometheus.now("gpus", count, window.end) if points)
    # Where none is seen now, as many as may be.
    days = chunk_days(int(gpus), catalog.limit("samples_max")) if gpus else 1

    def ask(request: t.Tuple[str, str, str, t.Tuple[int, int, int]]) -> t.Tuple[str, str, t.List[Sample]]:
        query, group, expr, (first, last, step) = request
        return query, group, prometheus.over(query, expr, first, last, step)

    kinds = {query["id"]: query["kind"] for query in catalog.queries()}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = list(requests(asked, window, days))
        # As many at a time as are worked on: answers of a large fleet do not pile up.
        for number in range(0, len(waiting), AT_ONCE):
            for query, group, samples in pool.map(ask, waiting[number : number + AT_ONCE]):
                for labels, points in samples:
                    if kinds[query] == "hours":
                        found.add_hours(query, labels, points)
                    elif kinds[query] == "peaks":
                        found.add_peaks(group, labels, points)
                    else:
                        found.add_days(query, labels, points)
    return found
