# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the API of AWX, and no AWX: objects in memory, in the forms that awx.awx 24.6.1 reads.

It knows lists with filters, objects by id, associations, surveys, the source that AWX makes for a constructed
inventory, roles, and templates of approval. It judges nothing that AWX judges: no survey, no
playbook's name, no permission.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
import urllib.parse

KINDS = (
    "organizations",
    "teams",
    "credentials",
    "notification_templates",
    "execution_environments",
    "projects",
    "inventories",
    "inventory_sources",
    "job_templates",
    "workflow_job_templates",
    "workflow_job_template_nodes",
    "workflow_approval_templates",
    "schedules",
    "roles",
)
UNIFIED = ("job_templates", "workflow_job_templates", "projects", "inventory_sources")
ROLES = {
    "job_templates": ("admin", "execute", "read"),
    "workflow_job_templates": ("admin", "execute", "read", "approval"),
}
# What AWX itself sets where nothing is said, of the fields that the modules compare.
DEFAULTS = {
    "inventories": {"kind": "", "host_filter": None, "variables": ""},
    "projects": {"scm_revision": "", "credential": None},
}


class Api:
    def __init__(self):
        self.objects = {kind: {} for kind in KINDS}
        self.associated = {}  # path of a list: ids
        self.surveys = {}  # path: the survey
        self.requests = []  # (method, path) of all that change something
        self.strange = []  # what was asked and is not known here
        self.number = 0

    # -- the data
    def add(self, endpoint, **fields):
        self.number += 1
        one = dict(
            DEFAULTS.get(endpoint, {}),
            id=self.number,
            url="/api/v2/%s/%d/" % (endpoint, self.number),
            type=endpoint.rstrip("s"),
        )
        one.update(fields, related={"survey_spec": one["url"] + "survey_spec/"}, summary_fields={})
        self.objects[endpoint][self.number] = one
        if endpoint in ROLES:
            roles = {name + "_role": {"id": self.add("roles", name=name)["id"]} for name in ROLES[endpoint]}
            one["summary_fields"]["object_roles"] = roles
        if endpoint == "inventories" and one["kind"] == "constructed":
            self.add(
                "inventory_sources",
                name="Auto-created source for: " + one["name"],
                inventory=one["id"],
                source="constructed",
                source_vars="",
            )
        return one

    def find(self, kind, query):
        found = [
            each
            for one in (UNIFIED if kind == "unified_job_templates" else (kind,))
            for each in self.objects[one].values()
        ]
        for key, values in query.items():
            if key not in ("page", "page_size"):
                found = [each for each in found if str(each.get(re.sub("^or__", "", key))) in values]
        return found

    # -- one request
    def answer(self, method, path, query, body):
        """(status, body)."""
        parts = path.strip("/").split("/")[2:]
        if method != "GET":
            self.requests.append((method, path))
        if len(parts) == 1 and (parts[0] in self.objects or parts[0] == "unified_job_templates"):
            if method == "POST":
                return 201, self.add(parts[0], **body)
            found = self.find(parts[0], query)
            return 200, {"count": len(found), "next": None, "previous": None, "results": found}
        one = self.objects.get(parts[0], {}).get(int(parts[1])) if len(parts) > 1 and parts[1].isdigit() else None
        if one is None:
            self.strange.append((method, path))
            return 404, {"detail": "Not found."}
        if len(parts) == 2:
            if method == "PATCH":
                one.update(body)
            return 200, one
        return self.below(method, path, parts, one, body)

    def below(self, method, path, parts, one, body):
        if parts[2] == "survey_spec":
            if method == "POST":
                self.surveys[path] = body
            return 200, self.surveys.get(path, {})
        if parts[2] == "create_approval_template":
            made = self.add("workflow_approval_templates", **body)
            one["unified_job_template"], one["related"]["unified_job_template"] = made["id"], made["url"]
            return 201, made
        if parts[0] == "workflow_approval_templates":
            self.strange.append((method, path))
            return 404, {"detail": "Not found."}
        ids = self.associated.setdefault(path, [])
        if method == "POST":
            if body.get("disassociate"):
                ids.remove(body["id"])
            else:
                ids.append(body["id"])
            return 204, None
        return 200, {"count": len(ids), "next": None, "previous": None, "results": [{"id": number} for number in ids]}


class Server:
    """The stand-in behind HTTP."""

    def __init__(self, token):
        self.api = api = Api()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                parts = urllib.parse.urlsplit(self.path)
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Authorization") != "Bearer " + token:
                    status, answer = 401, {"detail": "Authentication credentials were not provided."}
                else:
                    body = json.loads(data) if self.command in ("POST", "PATCH") and data else None
                    status, answer = api.answer(self.command, parts.path, urllib.parse.parse_qs(parts.query), body)
                text = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("X-API-Product-Name", "AWX")
                self.send_header("X-API-Product-Version", "24.6.1")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_one

            def log_message(self, *dummy):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
