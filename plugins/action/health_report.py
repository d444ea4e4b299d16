# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the health of a fleet, out of what gpu_health answered for every node."""

from __future__ import annotations

import datetime
import json
import os
import re

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts
from ansible_collections.gpufleet.lifecycle.plugins.modules.health_report import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import (
    files,
    precheck,
    precheck_formats,
    precheck_page,
    text,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import display

NAMES = {"html": "report.html", "json": "report.json", "junit": "junit.xml", "markdown": "report.md"}
LIMITED = "limited"
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")


def read_nodes(path: str) -> set[str]:
    """Return the nodes of a report that was written before; none if there is none that can be read."""
    try:
        return set(json.loads(_artifacts.read_file(path).decode("utf-8"))["nodes"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars or {})
        dummy, args = self.validate_argument_spec(
            argument_spec=ARGUMENT_SPEC,
            mutually_exclusive=[("variable", "results")],
            required_one_of=[("variable", "results")],
        )
        time = args.get("time") or datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        if not TIME.fullmatch(time):
            raise AnsibleActionFail("time is %r, expected a time in UTC like 2026-12-31T12:00:00Z" % (time,))
        names = args["nodes"]
        results = (
            args["results"]
            if args.get("results") is not None
            else self.read_registered(names, args["variable"], task_vars or {})
        )
        results = _answers.accept_all("gpu_health", results)
        asked = {key: text.one_line(value) for key, value in args["asked"].items() if value not in (None, "", [], {})}
        doc = precheck.build_document(names, results, args["fail_on"], asked, time)

        dest, kept = self.choose_directory(args, (task_vars or {}).get("groups") or {})
        paths = {name: os.path.join(dest, NAMES[name]) for name in args["formats"]}
        contents = {NAMES[name]: self.render(name, doc, results) for name in sorted(args["formats"])}
        changed = True
        if not self._task.check_mode:
            try:
                changed = any(files.write(dest, contents, int(args["mode"], 8)).values())
            except OSError as exc:
                raise AnsibleActionFail(
                    "the report cannot be written to %s on the controller: %s; give another dest" % (dest, exc.strerror)
                ) from exc
        lines = precheck_formats.render_summary(doc)
        places = ["%-9s %s" % (name + ":", paths[name]) for name in sorted(paths)]
        for line in lines + kept + (["not written in check mode"] if self._task.check_mode else places):
            display.display(line)
        result.update(
            changed=changed,
            verdict=doc["verdict"],
            counts=doc["counts"],
            failed_nodes=doc["failed_nodes"],
            table=lines,
            files=paths,
        )
        if doc["twins"]:
            result.update(failed=True, msg=doc["twins"])
        lacks = ["%s %s." % (name, node["lacks"]) for name, node in doc["nodes"].items() if node.get("lacks")]
        if lacks and "fail" in args["fail_on"]:
            more = ["And %s, see the report." % text.count_noun(len(lacks) - 3, "more node")] if len(lacks) > 3 else []
            result.update(failed=True, msg=" ".join([doc["twins"]] * bool(doc["twins"]) + lacks[:3] + more))
        if doc["uncompared"] and not any(node["compared"] for node in doc["nodes"].values()):
            why = (
                "No node was compared: %s has no baseline of any. Correct the directory, or leave it out."
                % (doc["asked"][precheck.BASELINES])
            )
            result.update(failed=True, msg=" ".join(filter(None, [result.get("msg"), why])))
        return result

    @staticmethod
    def choose_directory(args: dict, groups: dict) -> tuple[str, list[str]]:
        """Return the path to write to, and a line about the report that is left alone; no line if there is no such
        report."""
        dest = os.path.abspath(args["dest"])
        others = (
            read_nodes(os.path.join(dest, NAMES["json"])) & set(groups.get("all") or []) - set(args["nodes"])
            if args["keep_others"]
            else set()
        )
        if not others:
            return dest, []
        return os.path.join(dest, LIMITED), [
            "the report in %s knows %s of the inventory and stays as it is"
            % (dest, text.count_noun(len(others), "other node"))
        ]

    @staticmethod
    def render(name: str, doc: dict, results: dict) -> str:
        if name == "html":
            return precheck_page.render_page(doc)
        if name == "junit":
            return precheck_formats.render_junit(doc, results)
        return precheck_formats.render_markdown(doc) if name == "markdown" else files.json_text(doc)

    @staticmethod
    def read_registered(names: list[str], variable: str, task_vars: dict) -> dict[str, dict]:
        """Return the registered results of each node, unchanged: not as templates, and not copied into the arguments of
        a task."""
        hostvars = task_vars.get("hostvars") or {}
        found = {}
        for name in names:
            known = hostvars.raw_get(name) if hasattr(hostvars, "raw_get") else hostvars.get(name)
            if isinstance(known, dict) and isinstance(known.get(variable), dict):
                found[name] = known[variable]
        return found
