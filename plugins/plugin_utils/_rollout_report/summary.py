# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout in a terminal: the table, the summary, and the hosts that fail. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report.words import (
    LISTED,
    REASON,
    count,
    said,
    took,
    wanted,
    when_over,
)

CONTROLLER = "localhost"


def table(doc):
    """Return the summary as lines of plain text. The verdict is last, so that it is visible in a terminal."""
    rows = [("node", "state", "from", "to", "took", "reason")]
    folded = len(doc["nodes"]) > LISTED
    for name, node in doc["nodes"].items():
        if not (folded and node["state"] in ("done", "skipped", "pending") and not node["orphaned"]):
            rows.append(
                (
                    text.line(name),
                    node["state"],
                    text.line(node["from"]) or "-",
                    wanted(node),
                    took(node) or "-",
                    said(node, REASON) or "-",
                )
            )
    lines = text.columns(rows)
    if folded:
        lines.append(
            "... and %s that %s done, skipped or pending"
            % (text.count(len(doc["nodes"]) - len(rows) + 1, "node"), "is" if len(doc["nodes"]) == len(rows) else "are")
        )
    if when_over(doc):
        lines.append(when_over(doc))
    lines.append(
        "%s%s: %s, target %s" % (doc["verdict"], "".join(_exceptions(doc)), count(doc), text.line(doc["target"]))
    )
    return lines


def _exceptions(doc):
    """Yield the nodes that the verdict leaves out although they are not done: a line that is read alone must say so."""
    if doc["left_out"]:
        yield ", without %s that an operator left out (%s)" % (
            text.count(len(doc["left_out"]), "node"),
            limits.listed(map(text.line, doc["left_out"])),
        )
    open_ones = [
        "%s %s" % (text.line(name), node["state"])
        for name, node in doc["nodes"].items()
        if not node["in_run"] and node["state"] not in ("done", "skipped")
    ]
    if open_ones:
        yield ", without %s of earlier runs (%s)" % (text.count(len(open_ones), "node"), limits.listed(open_ones))


def summary(doc, path):
    """Return the table, the reasons, the next steps and the PATH of the report. The verdict is last."""
    lines = table(doc)
    return (
        lines[:-1]
        + [""]
        + [text.line(reason) for reason in doc["reasons"]]
        + ["next: %s" % text.line(step) for step in doc["next_steps"]]
        + ["report: %s" % path, lines[-1]]
    )


def blame(doc, hosts, gone, host, verdict, part=None):
    """Return {host: message} for the HOSTS that have to fail at the end of a run.

    PART are the hosts of this controller, if others work on the rollout too (None: it has all of them). Then the run
    fails for its own nodes alone.

    VERDICT is the message about the whole rollout, HOST the host of the task. Nodes without problems do not fail: the
    controller fails with the verdict. GONE are hosts that have left the play, failed or unreachable, and set Ansible's
    exit status already. If nothing else makes the playbook fail, HOST does.
    """
    if doc["verdict"] == "complete":
        return {}
    if part is not None and all(
        node["state"] in ("done", "skipped") for name, node in doc["nodes"].items() if name in part
    ):
        return {}
    mine = {name: node for name, node in doc["nodes"].items() if name in hosts and node["in_run"]}
    found = {
        name: "%s is %s%s" % (name, node["state"], ": " + node["reason"] if node["reason"] else "")
        for name, node in mine.items()
        if node["state"] in state.FAILED
    }
    if CONTROLLER in hosts:
        return dict(found, **{CONTROLLER: verdict})
    found.update(
        {
            name: "%s is %s: %s" % (name, node["state"], node["reason"] or doc["reasons"][0])
            for name, node in mine.items()
            if node["state"] in ("pending",) + state.IN_FLIGHT or node["orphaned"]
        }
    )
    told = found or any(
        name in gone and node["in_run"] and node["state"] not in ("done", "skipped")
        for name, node in doc["nodes"].items()
    )
    return found if told else {host: verdict}
