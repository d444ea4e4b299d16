# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks Prometheus for the history of a window, part by part, and gives it to a History."""

from __future__ import annotations

import concurrent.futures
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import catalog
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.client import Prometheus, Sample
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.history import DAY, HOUR, History, Window

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
