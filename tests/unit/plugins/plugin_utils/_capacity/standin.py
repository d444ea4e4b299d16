# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the HTTP API of Prometheus: it knows the report's queries by their text and evaluates none."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import threading
import urllib.parse

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import catalog

END = 1_798_761_600  # 2027-01-01T00:00:00Z
TIME = "2027-01-01T00:00:00Z"
HOUR, DAY = 3600, 86400
NODES = {
    "n1": {"environment": "prod", "rack": "r1", "node": "n1", "class": "train", "model": "h100", "team": "blue"},
    "n2": {"environment": "prod", "rack": "r2", "node": "n2", "class": "infer", "model": "a30", "team": "red"},
}


def always(value):
    return lambda time: value


def utilization(time):
    """Return how busy every GPU is: 0.2, and 0.8 for two hours of each day."""
    return 0.8 if time % DAY in (10 * HOUR, 11 * HOUR) else 0.2


class Fleet:
    """Two nodes with 8 and 4 GPUs. SERIES: by (query, group), [(labels, value at a time or None)]."""

    def __init__(self, since=0, missing=lambda time: False, use=utilization):
        gpus = {"n1": 8, "n2": 4}

        def seen(value):
            return lambda time: None if time <= since or missing(time) else value(time)

        def of(number, share):
            return lambda time: number * share(time)

        def hours(share):
            return [(NODES[name], seen(of(number, share))) for name, number in gpus.items()]

        self.series = {
            ("present", ""): hours(always(1)),
            ("measured", ""): hours(always(1)),
            ("busy", ""): hours(use),
            ("allocated", ""): hours(always(0.5)),
            ("idle", ""): [(NODES["n2"], seen(always(4)))],
            ("idle_allocated", ""): [(NODES["n2"], seen(always(2)))],
            ("peak", "fleet"): [({}, seen(use))],
            ("xids", ""): [
                ({"class": "train", "model": "h100", "xid_class": "reset"}, always(1.0004)),
                ({"class": "train", "model": "h100", "xid_class": "app"}, always(0.0)),
            ],
            ("out_of_service", ""): [({"class": "infer", "model": "a30", "reason": "quarantine"}, always(12.0))],
            ("drivers", ""): [
                (dict(NODES["n1"], driver="535.261.03"), always(1)),
                (dict(NODES["n1"], node="n3", driver="535.261.03"), always(1)),
                (dict(NODES["n1"], node="n4", driver="535.216.03"), always(1)),
                (dict(NODES["n2"], driver="535.261.03"), always(1)),
            ],
            ("hold_age", ""): [
                (dict(NODES["n1"], kind="driver"), always(3 * DAY)),
                (dict(NODES["n2"], kind="kernel"), always(20 * DAY)),
                (dict(NODES["n2"], kind="other"), always(0)),
            ],
            ("held_updates", ""): [(dict(NODES["n2"], kind="kernel"), always(2))],
            ("age", ""): [(NODES["n1"], always(60)), (NODES["n2"], always(7200))],
            ("price", ""): [({}, always(2.5))],
            ("gpus", ""): [({}, always(12))],
        }
        for group in catalog.LABELS:
            self.series["peak", group] = [({group: labels[group]}, seen(use)) for labels in NODES.values()]

    def without(self, *queries):
        for key in list(self.series):
            if key[0] in queries:
                del self.series[key]
        return self


def texts(environment):
    """Return (query, group) by the text of each query."""
    found = {}
    for query in catalog.queries():
        for group in (catalog.FLEET, *catalog.LABELS) if query["kind"] == "peaks" else ("",):
            found[catalog.expression(query, environment, group)] = (query["id"], group)
    count = "count(gpufleet:gpu_temperature:celsius{${select}})"
    found[catalog.expression({"expr": count}, environment)] = ("gpus", "")
    return found


class Api:
    """The API in front of a FLEET. FAULT may answer (status, body) in its place, by query and number of the request."""

    def __init__(self, fleet, environment=""):
        self.fleet, self.known = fleet, texts(environment)
        self.asked, self.headers = [], []
        self.fault = lambda query, number: None

    def answer(self, path, values):
        query, group = self.known[values["query"]]
        self.asked.append((query, group, path, dict(values)))
        wrong = self.fault(query, len(self.asked))
        if wrong:
            return wrong
        ranged = path.endswith("/query_range")
        first, last = (int(values["start"]), int(values["end"])) if ranged else (int(values["time"]),) * 2
        times = range(first, last + 1, int(values.get("step", 1)))
        result = []
        for labels, value in self.fleet.series.get((query, group), []):
            points = [[time, repr(float(value(time)))] for time in times if value(time) is not None]
            if points:
                result.append(dict({"metric": labels}, **({"values": points} if ranged else {"value": points[0]})))
        return 200, {"status": "success", "data": {"resultType": "matrix" if ranged else "vector", "result": result}}


@contextlib.contextmanager
def serving(api):
    """Serve an API; yields its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            api.headers.append(dict(self.headers))
            status, content = api.answer(self.path, dict(urllib.parse.parse_qsl(body)))
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            pass

    class Threaded(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True

    server = Threaded(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield "http://127.0.0.1:%d" % server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
