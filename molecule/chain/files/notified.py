# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records what Alertmanager notifies: one line of JSON a notification, with the receiver and when it came."""

from __future__ import annotations

import http.server
import json
import time

RECORD = "/var/lib/notified.jsonl"


class Recorder(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:  # the name is http.server's
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(RECORD, "a", encoding="utf-8") as stream:
            stream.write(json.dumps({"at": time.time(), "receiver": self.path.strip("/"), "body": body}) + "\n")
        self.send_response(200)
        self.end_headers()


if __name__ == "__main__":
    open(RECORD, "a", encoding="utf-8").close()  # without a record nothing was recorded: that is no silence
    http.server.HTTPServer(("127.0.0.1", 9099), Recorder).serve_forever()
