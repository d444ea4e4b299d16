# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout as Markdown and as JUnit XML, which begin with the verdict and its reasons. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import junit, markdown, text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report.words import (
    LISTED,
    NEXT_STEP,
    SERVES,
    both,
    count,
    duration,
    failed_step,
    said,
    took,
    troubled,
    wanted,
    when_over,
)


def markdown_text(doc):
    """Return the report as Markdown."""
    escape = markdown.escape
    lines = ["# Driver rollout to %s: %s" % (escape(doc["target"]), doc["verdict"]), ""]
    lines += ["- " + escape(reason) for reason in doc["reasons"]]
    lines += markdown.section(
        "What to do", ["%d. %s" % (number, escape(step)) for number, step in enumerate(doc["next_steps"], start=1)]
    )
    lines += [
        "",
        escape(
            "Rollout %s, started %s, finished %s%s. %s."
            % (
                doc["rollout_id"],
                both(doc["started"]),
                both(doc["finished"]) or "not yet",
                ", after %s" % duration(doc["started"], doc["finished"]) if doc["finished"] else "",
                count(doc),
            )
        ),
    ]
    if when_over(doc):
        lines += ["", escape(when_over(doc)[:1].upper() + when_over(doc)[1:] + ".")]
    bad = troubled(doc)
    lines += markdown.section(
        "Nodes that need attention",
        bad
        and markdown.table(
            ("node", "state", "failed in", "reason", "serves"),
            (
                (name, node["state"], failed_step(node) or "-", said(node), SERVES.get(node["state"], "unknown"))
                for name, node in bad
            ),
        ),
    )
    lines += markdown.section(
        "Evidence",
        ["- %s: %s" % (escape(name), escape(", ".join(node["evidence"]))) for name, node in bad if node["evidence"]],
    )
    lines += markdown.section(
        "Budgets",
        markdown.table(
            ("budget", "used", "limit"),
            ((name, str(entry["used"]), str(entry["limit"])) for name, entry in doc["budgets"].items()),
        ),
    )
    some = [
        (name, node)
        for name, node in doc["nodes"].items()
        if len(doc["nodes"]) <= LISTED or node["state"] not in ("done", "skipped", "pending")
    ]
    lines += markdown.section(
        "Nodes",
        markdown.table(
            ("node", "state", "from", "to", "took", "reason"),
            (
                (name, node["state"], node["from"] or "-", wanted(node), took(node) or "-", said(node))
                for name, node in some
            ),
        ),
    )
    if len(some) < len(doc["nodes"]):
        lines += [
            "",
            "%s more are done, skipped or pending; report.json names them."
            % text.count(len(doc["nodes"]) - len(some), "node"),
        ]
    for name, node in some[:LISTED]:
        if node["steps"]:
            lines += markdown.section(
                name,
                markdown.table(
                    ("step", "started", "took", "status"),
                    (
                        (
                            step["name"],
                            step["started"],
                            duration(step["started"], step["finished"]) or "-",
                            step["status"],
                        )
                        for step in node["steps"]
                    ),
                ),
                3,
            )
        if node["earlier"]:
            lines += markdown.section(
                "%s: earlier attempts" % name,
                markdown.table(
                    ("attempt", "ended", "state", "failed in", "reason"),
                    (
                        (str(one["attempt"]), one["ended"] or "-", one["state"], failed_step(one) or "-", one["reason"])
                        for one in node["earlier"]
                    ),
                ),
                3,
            )
    return "\n".join(lines) + "\n"


def junit_text(doc):
    """Return the report as JUnit XML: a suite for the whole rollout, and one with a case for each node."""
    verdict = doc["verdict"]
    outcome = {"complete": "passed", "running": "skipped", "failed": "failure"}.get(verdict, "error")
    whole = junit.Case(
        "verdict",
        "gpufleet.rollout",
        outcome,
        verdict,
        "%s: %s" % (verdict, count(doc)),
        "\n".join(doc["reasons"] + doc["next_steps"]),
    )
    properties = [
        ("verdict", verdict),
        ("rollout", doc["rollout_id"]),
        ("target", doc["target"]),
        ("plan", doc["sha256"]),
    ]
    time = doc["time"] or ""
    return junit.render(
        [
            junit.Suite("rollout", "gpufleet.rollout", time, properties, [whole], doc["reasons"]),
            junit.Suite(
                "nodes", "gpufleet.rollout", time, [], [_case(name, node) for name, node in doc["nodes"].items()], []
            ),
        ]
    )


def _case(name, node):
    place = "gpufleet.rollout.%s" % (",".join("%s-%s" % item for item in sorted(node["domains"].items())) or "nodes")
    words = node["reason"] or node["state"]
    if not node["in_run"]:
        return junit.Case(name, place, "skipped", "", "not part of this run, %s: %s" % (node["state"], words), "")
    if node["state"] == "done":
        return junit.Case(name, place, "passed", "", "", "")
    if node["state"] in state.FAILED:
        steps = "\n".join(
            [
                "%s: %s, %s" % (step["name"], step["status"], duration(step["started"], step["finished"]) or "open")
                for step in node["steps"]
            ]
            + ["earlier, attempt %d: %s, %s" % (one["attempt"], one["state"], one["reason"]) for one in node["earlier"]]
        )
        return junit.Case(
            name,
            place,
            "error" if node["state"] == "lost" else "failure",
            node["state"],
            words,
            "%s\n%s\n%s" % (words, NEXT_STEP[node["state"]], steps),
        )
    # A node that is in flight or did not start has no verdict, which is not a pass.
    return junit.Case(
        name, place, "skipped", "", "%s%s" % (node["state"], ": " + node["reason"] if node["reason"] else ""), ""
    )
