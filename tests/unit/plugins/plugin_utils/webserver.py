# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An HTTP server of the tests' own that can be slow, wrong, silent or away."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import threading
import time


class Server:
    """Answers what ANSWER(request number) says: (status, body, headers), "hang", "drip", "cut" or "late" (took it, and
    answers nothing).
    """

    def __init__(self):
        self.requests = []  # (path, headers, body)
        self.answer = lambda number: (200, b"ok", {})
        self._server = None
        self.port = None
        self._stop = threading.Event()

    def start(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append((self.path, dict(self.headers), body))
                said = outer.answer(len(outer.requests))
                if said == "hang":
                    outer._stop.wait(600)
                    return
                if said == "cut":
                    self.close_connection = True
                    return
                if said == "drip":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                    for dummy in range(6000):
                        if outer._stop.wait(0.1):
                            return
                        self.wfile.write(b" ")
                    return
                status, data, headers = said
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST

            def log_message(self, *args):
                pass

        class Threaded(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request, client_address):
                pass

        self._stop.clear()
        self._server = Threaded(("127.0.0.1", self.port or 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self):
        if self._server:
            self._stop.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.port

    def bodies(self):
        return [json.loads(body) for dummy, dummy2, body in self.requests]


@contextlib.contextmanager
def serving():
    server = Server().start()
    try:
        yield server
    finally:
        server.stop()


def wait_for(condition, seconds=600):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.05)
