# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet's document as JUnit XML. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import fleet, junit, text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report.precheck import (
    driver_version,
    entity_label,
    gpu_label,
    headline,
    model_name,
)


def suites(doc, results):
    """A suite for each node and a case for each check that does not pass; what passes is counted, a case for each kind
    of check.
    """
    return [_suite(name, node, results.get(name), doc["time"]) for name, node in doc["nodes"].items()]


def _suite(name, node, result, time):
    checks = fleet.checks_of(result) if node["state"] == fleet.JUDGED else []
    quiet = (model.PASS, model.NOT_APPLICABLE)
    cases = [
        _case(name, check, title) for check, title in _counted(check for check in checks if check["status"] in quiet)
    ]
    cases += [
        _case(name, check, "%s [%s]" % (check["id"], _place(check)), gpu_label(node, _place(check)))
        for check in checks
        if check["status"] not in quiet
    ]
    troubled = [case for case in cases if case.outcome in ("failure", "error")]
    if node["verdict"] != "pass" and not troubled:
        # Whatever else keeps a node from passing is a case of its own: no suite may look better than its node.
        cases.append(
            junit.Case(
                "verdict",
                "gpufleet.%s.node" % name,
                "failure" if node["verdict"] == "fail" else "error",
                node["state"],
                headline(node),
                "\n".join(part for part in (node["message"], node["next_step"]) if part),
            )
        )
    properties = [
        ("verdict", node["verdict"]),
        ("state", node["state"]),
        ("driver", driver_version(node)),
        ("gpus", model_name(node)),
        ("kernel", node["kernel"]),
    ]
    said = [
        "notice: %s %s: %s" % (entry["id"], entity_label(node, entry), entry["message"])
        for entry in node["findings"]
        if entry.get("notice")
    ]
    return junit.Suite(name, "gpufleet.precheck", node["time"] or time, properties, cases, said)


def _place(check):
    return "node" if check["entity"] == model.NODE else check["entity"]


def _counted(checks):
    """(check, title) for each kind of check that passed, or that does not apply; the check is the first of its kind."""
    found = {}
    for check in checks:
        found.setdefault((check["status"], check["id"]), []).append(check)
    return [
        (same[0], "%s [%d %s]" % (ident, len(same), "passed" if status == model.PASS else "not applicable"))
        for (status, ident), same in found.items()
    ]


def _case(name, check, title, label=""):
    classname = "gpufleet.%s.%s" % (name, check["id"].split(".")[0])
    message = "" if check.get("message") is None else str(check["message"])
    if check["status"] == model.PASS:
        return junit.Case(title, classname, "passed", "", "", "")
    if check["status"] in (model.WAIVED, model.NOT_APPLICABLE):
        return junit.Case(title, classname, "skipped", "", "%s: %s" % (check["status"].replace("_", " "), message), "")
    found = "of: %s\nfound: %s\nexpected: %s\naction: %s\n%s" % (
        label,
        text.shown(check.get("observed")),
        text.shown(check.get("expected")),
        check.get("action"),
        message,
    )
    outcome = "failure" if check["status"] == model.FAIL else "error"
    return junit.Case(
        title, classname, outcome, check["status"], message or "%s: %s" % (check["id"], check["status"]), found
    )


def junit_text(doc, results):
    return junit.render(suites(doc, results))
