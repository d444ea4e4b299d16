# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render Markdown, and JUnit XML that the schemas of Ant and of Jenkins both accept. Pure."""

from __future__ import annotations

import collections
import re
import typing as t
from xml.etree import ElementTree

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def escape_markdown(value: object, limit: int | None = None) -> str:
    """Return VALUE on one line, with everything escaped that Markdown or HTML would interpret."""
    escaped = SPECIAL.sub(r"\\\1", text.one_line(value, limit))
    # No page makes a link of an address that a node answered.
    return re.sub(r"(?i)(?:(?<=http)|(?<=https)|(?<=ftp))://", r"\\://", escaped).replace("www.", "www\\.")


def render_table(head: t.Sequence[str], rows: t.Iterable[t.Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells are escaped."""
    lines = ["| %s |" % " | ".join(escape_markdown(cell) for cell in head), "|%s" % ("---|" * len(head))]
    lines += ["| %s |" % " | ".join(escape_markdown(cell) or " " for cell in row) for row in rows]
    return lines


def render_section(title: str, lines: list[str], level: int = 2) -> list[str]:
    """Return a heading, if there is a TITLE, and the LINES under it; nothing without lines."""
    heading = ["", "%s %s" % ("#" * level, escape_markdown(title))] if title else []
    return [*heading, "", *lines] if lines else []


Table = collections.namedtuple("Table", ["head", "rows"])
# body: a text, a list of items, or a Table. Without one the section is left out, and without a title it has no heading.
Section = collections.namedtuple("Section", ["title", "body", "level", "is_numbered"], defaults=[2, False])


def render_markdown(title: str, sections: t.Iterable[Section]) -> str:
    """Return a page with a title and the sections that have a body; everything is escaped."""
    lines = ["# " + escape_markdown(title)]
    for section in sections:
        body = section.body
        if isinstance(body, Table):
            rows = list(body.rows)
            body = render_table(body.head, rows) if rows else []
        elif isinstance(body, str):
            body = [escape_markdown(body)] if body else []
        else:
            sign = "%d. " if section.is_numbered else "- "
            body = [
                (sign % number if section.is_numbered else sign) + escape_markdown(item)
                for number, item in enumerate(body or (), 1)
            ]
        lines += render_section(section.title, body, section.level)
    return "\n".join(lines) + "\n"


# time is the moment in UTC like 2026-01-31T12:00:00Z; cases are Case; notes are lines for the suite's output.
Suite = collections.namedtuple("Suite", ["name", "package", "time", "properties", "cases", "notes"])
# outcome: passed, failure, error or skipped. kind, message and text say more about those that did not pass.
Case = collections.namedtuple("Case", ["name", "classname", "outcome", "kind", "message", "text"])
OUTCOMES = ("passed", "failure", "error", "skipped")
EPOCH = "1970-01-01T00:00:00"


def render_junit(suites: list) -> str:
    """Return a JUnit XML document."""
    root = ElementTree.Element("testsuites")
    for number, suite in enumerate(suites):
        _add_suite(root, number, suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add_suite(root, number, suite) -> None:
    outcomes = collections.Counter(case.outcome for case in suite.cases)
    element = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": _clean_token(suite.name),
            "package": _clean_token(suite.package),
            "id": str(number),
            "hostname": _clean_token(suite.name),
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
        ElementTree.SubElement(properties, "property", {"name": _clean_token(key), "value": text.one_line(value)})
    for case in suite.cases:
        _add_case(element, case)
    ElementTree.SubElement(element, "system-out").text = "\n".join(text.one_line(note) for note in suite.notes)
    ElementTree.SubElement(element, "system-err").text = ""


def _add_case(suite, case) -> None:
    if case.outcome not in OUTCOMES:
        raise ValueError("outcome is %r, expected one of %s" % (case.outcome, ", ".join(OUTCOMES)))
    element = ElementTree.SubElement(
        suite, "testcase", {"name": _clean_token(case.name), "classname": _clean_token(case.classname), "time": "0"}
    )
    if case.outcome == "skipped":
        ElementTree.SubElement(element, "skipped", {"message": text.one_line(case.message)})
    elif case.outcome != "passed":
        detail = ElementTree.SubElement(
            element, case.outcome, {"type": _clean_token(case.kind), "message": text.one_line(case.message)}
        )
        detail.text = text.clean_text(case.text)


def _clean_token(value) -> str:
    return text.one_line(value) or "-"
