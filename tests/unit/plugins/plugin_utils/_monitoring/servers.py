# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's Prometheus and Alertmanager, each on a port of its own and with a directory of its own, and their tools."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import socket
import subprocess
import threading
import time
import typing as t
import urllib.error
import urllib.request

DEADLINE_S = 120


def run_tool(*arguments: str, place: t.Any = None) -> t.Tuple[int, str]:
    """Run promtool or amtool in the directory PLACE; return its exit status and what it printed."""
    done = subprocess.run(
        arguments, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(url: str, body: t.Any = None) -> t.Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    return json.loads(text) if re.match(r"\s*[\[{]", text) else text


def until(what: t.Callable[[], t.Any], why: str) -> t.Any:
    """Wait until WHAT answers something true, and return it."""
    end = time.monotonic() + DEADLINE_S
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, why
        time.sleep(0.05)


def ready(url: str, process: subprocess.Popen) -> bool:
    assert process.poll() is None, "the server ended: %s" % process.returncode
    try:
        return bool(ask(url))
    except (OSError, urllib.error.URLError):
        return False


@contextlib.contextmanager
def running(command: t.List[str], url: str, log: t.Any) -> t.Iterator[str]:
    with open(str(log), "wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            until(lambda: ready(url + "/-/ready", process), "it does not answer, see %s" % log)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=DEADLINE_S)


@contextlib.contextmanager
def alertmanager(config: t.Any, base: t.Any) -> t.Iterator[str]:
    """Run an Alertmanager with the file CONFIG; yields its URL."""
    port = free_port()
    command = [
        "prometheus-alertmanager",
        "--config.file=%s" % config,
        "--storage.path=%s" % (base / "alertmanager"),
        "--web.listen-address=127.0.0.1:%d" % port,
        "--cluster.listen-address=",
    ]
    with running(command, "http://127.0.0.1:%d" % port, base / "alertmanager.log") as url:
        yield url


@contextlib.contextmanager
def prometheus(config: t.Any, base: t.Any) -> t.Iterator[str]:
    """Run a Prometheus with the file CONFIG on the blocks in BASE/data; yields its URL."""
    port = free_port()
    command = [
        "prometheus",
        "--config.file=%s" % config,
        "--storage.tsdb.path=%s" % (base / "data"),
        "--web.listen-address=127.0.0.1:%d" % port,
        "--storage.tsdb.retention.time=10y",
        "--web.enable-lifecycle",
    ]
    with running(command, "http://127.0.0.1:%d" % port, base / "prometheus.log") as url:
        yield url


@contextlib.contextmanager
def receiver() -> t.Iterator[t.Tuple[str, t.List[t.Dict[str, t.Any]]]]:
    """Run a receiver of webhooks; yields its URL and the list of what it was sent."""
    bodies: t.List[t.Dict[str, t.Any]] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name is http.server's
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: t.Any) -> None:
            """Write no line for each request."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "http://127.0.0.1:%d" % server.server_port, bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
