# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened, as a document, as Markdown and as a table. Pure.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import datetime

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import state

SCHEMA = "gpufleet.report/1"


def document(view, ended):
    """The report of a rollout; C(ended) says whether its last play has been reached."""
    return {
        "schema": SCHEMA,
        "started": view.started,
        "finished": view.finished,
        "target": view.target,
        "verdict": state.verdict(view, ended),
        "nodes": {
            node.name: {
                "state": node.state,
                "from": node.from_version,
                "to": node.to_version,
                "reason": node.reason,
                "steps": [{"name": step.name, "started": step.started, "finished": step.finished, "status": step.status} for step in node.steps],
            }
            for node in view.nodes.everything()
        },
    }


def _moment(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")


def duration(started, finished):
    """Seconds as people read them; empty when one end is missing."""
    if not started or not finished:
        return ""
    seconds = int(round((_moment(finished) - _moment(started)).total_seconds()))
    if seconds < 60:
        return "%d s" % seconds
    if seconds < 3600:
        return "%d min %02d s" % divmod(seconds, 60)
    return "%d h %02d min" % divmod(seconds // 60, 60)


def took(node):
    ends = [step["finished"] for step in node["steps"] if step["finished"]]
    return duration(node["steps"][0]["started"], ends[-1]) if ends else ""


def count(doc):
    """C(3 done, 1 rolled_back)."""
    states = [node["state"] for node in doc["nodes"].values()]
    return ", ".join("%d %s" % (states.count(name), name) for name in state.STATES if name in states) or "no nodes"


def table(doc):
    """The summary as lines of plain text."""
    rows = [("node", "state", "from", "to", "took")]
    for name, node in doc["nodes"].items():
        rows.append((name, node["state"], node["from"] or "-", node["to"] or "-", took(node) or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines.extend("%s: %s" % (name, " ".join(node["reason"].split())) for name, node in doc["nodes"].items() if node["reason"])
    lines.append("%s: %s, target %s" % (doc["verdict"], count(doc), doc["target"]))
    return lines


def _cell(text):
    return " ".join(str(text or "").split()).replace("\\", "\\\\").replace("|", "\\|")


def markdown(doc):
    """The same for people who read Markdown."""
    lines = [
        "# Driver rollout to %s: %s" % (doc["target"], doc["verdict"]),
        "",
        "Started %s, finished %s%s. %s."
        % (
            doc["started"],
            doc["finished"] or "not yet",
            ", after %s" % duration(doc["started"], doc["finished"]) if doc["finished"] else "",
            count(doc),
        ),
        "",
        "| node | state | from | to | took | reason |",
        "|---|---|---|---|---|---|",
    ]
    for name, node in doc["nodes"].items():
        cells = (name, node["state"], node["from"] or "-", node["to"] or "-", took(node) or "-", node["reason"])
        lines.append("| %s |" % " | ".join(_cell(cell) for cell in cells))
    for name, node in doc["nodes"].items():
        if node["steps"]:
            lines += ["", "## %s" % name, "", "| step | started | took | status |", "|---|---|---|---|"]
            lines += [
                "| %s | %s | %s | %s |" % (step["name"], step["started"], duration(step["started"], step["finished"]) or "-", step["status"])
                for step in node["steps"]
            ]
    return "\n".join(lines) + "\n"
