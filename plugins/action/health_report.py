# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the health of a fleet, out of what gpu_health answered for every node."""

from __future__ import annotations

import datetime
import os
import re

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.lifecycle.plugins.modules.health_report import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import files, fleet, precheck, text

display = Display()

NAMES = {"html": "report.html", "json": "report.json", "junit": "junit.xml", "markdown": "report.md"}
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars or {})
        dummy, args = self.validate_argument_spec(
            argument_spec=ARGUMENT_SPEC, mutually_exclusive=[("variable", "results")], required_one_of=[("variable", "results")])
        time = args.get("time") or datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        if not TIME.fullmatch(time):
            raise AnsibleActionFail("time is %r, expected a time in UTC like 2026-12-31T12:00:00Z" % (time,))
        names = args["nodes"]
        results = args["results"] if args.get("results") is not None else self.registered(names, args["variable"], task_vars or {})
        asked = {key: text.line(value) for key, value in args["asked"].items() if value not in (None, "", [], {})}
        doc = fleet.document(names, results, args["fail_on"], asked, time)

        dest = os.path.abspath(args["dest"])
        paths = {name: os.path.join(dest, NAMES[name]) for name in args["formats"]}
        contents = {NAMES[name]: self.render(name, doc, results) for name in sorted(args["formats"])}
        changed = True
        if not self._task.check_mode:
            try:
                changed = any(files.write(dest, contents, int(args["mode"], 8)).values())
            except OSError as exc:
                raise AnsibleActionFail("the report cannot be written to %s on the controller: %s; give another dest" % (dest, exc.strerror)) from exc
        lines = precheck.table(doc)
        for line in lines + (["not written in check mode"] if self._task.check_mode else ["%-9s %s" % (name + ":", paths[name]) for name in sorted(paths)]):
            display.display(line)
        result.update(changed=changed, verdict=doc["verdict"], counts=doc["counts"], failed_nodes=doc["failed_nodes"], table=lines, files=paths)
        return result

    @staticmethod
    def render(name, doc, results):
        if name == "html":
            return precheck.html_text(doc)
        if name == "junit":
            return precheck.junit_text(doc, results)
        return precheck.markdown_text(doc) if name == "markdown" else files.json_text(doc)

    @staticmethod
    def registered(names, variable, task_vars):
        """What each node registered, as it stands: not a template, and not copied into the arguments of a task."""
        hostvars = task_vars.get("hostvars") or {}
        found = {}
        for name in names:
            known = hostvars.raw_get(name) if hasattr(hostvars, "raw_get") else hostvars.get(name)
            if isinstance(known, dict) and isinstance(known.get(variable), dict):
                found[name] = known[variable]
        return found
