# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JUnit XML that the schemas of Ant and of Jenkins both accept. Pure."""

from __future__ import annotations

import collections
from xml.etree import ElementTree

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

# time is the moment in UTC like 2026-01-31T12:00:00Z; cases are Case; notes are lines for the suite's output.
Suite = collections.namedtuple("Suite", ["name", "package", "time", "properties", "cases", "notes"])
# outcome: passed, failure, error or skipped. kind, message and text say more about those that did not pass.
Case = collections.namedtuple("Case", ["name", "classname", "outcome", "kind", "message", "text"])
OUTCOMES = ("passed", "failure", "error", "skipped")
EPOCH = "1970-01-01T00:00:00"


def render(suites: list) -> str:
    """The document as text."""
    root = ElementTree.Element("testsuites")
    for number, suite in enumerate(suites):
        _suite(root, number, suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root, number, suite):
    outcomes = collections.Counter(case.outcome for case in suite.cases)
    element = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": _token(suite.name),
            "package": _token(suite.package),
            "id": str(number),
            "hostname": _token(suite.name),
            # The schema knows no time zone; the report is in UTC throughout.
            "timestamp": suite.time[:19] or EPOCH,
            "time": "0",
            "tests": str(len(suite.cases)),
            "failures": str(outcomes["failure"]),
            "errors": str(outcomes["error"]),
            "skipped": str(outcomes["skipped"]),
        },
    )
    properties = ElementTree.SubElement(element, "properties")
    for key, value in suite.properties:
        ElementTree.SubElement(properties, "property", {"name": _token(key), "value": text.line(value)})
    for case in suite.cases:
        _case(element, case)
    ElementTree.SubElement(element, "system-out").text = "\n".join(text.line(note) for note in suite.notes)
    ElementTree.SubElement(element, "system-err").text = ""


def _case(suite, case):
    if case.outcome not in OUTCOMES:
        raise ValueError("outcome is %r, expected one of %s" % (case.outcome, ", ".join(OUTCOMES)))
    element = ElementTree.SubElement(
        suite, "testcase", {"name": _token(case.name), "classname": _token(case.classname), "time": "0"}
    )
    if case.outcome == "skipped":
        ElementTree.SubElement(element, "skipped", {"message": text.line(case.message)})
    elif case.outcome != "passed":
        detail = ElementTree.SubElement(
            element, case.outcome, {"type": _token(case.kind), "message": text.line(case.message)}
        )
        detail.text = text.clean(case.text)


def _token(value):
    return text.line(value) or "-"
