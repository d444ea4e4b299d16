# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a rollout in the text format of Prometheus. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import timeline

VERDICTS = ("complete", "failed", "incomplete", "running")


def escape(value):
    """Return the value of a label, escaped."""
    return text.clean(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _line(name, labels, value):
    shown = ",".join('%s="%s"' % (key, escape(label)) for key, label in labels)
    return "%s{%s} %s" % (name, shown, ("%.3f" % value).rstrip("0").rstrip(".") if isinstance(value, float) else value)


def families(doc):
    """Return (name, help, [(labels, value)]) of all metrics. Unknown values have no sample."""
    mine = ("rollout", doc["rollout_id"])
    budgets, now = doc["budgets"], doc["estimate"]

    def one(value):
        return [((mine,), value)] if value is not None else []

    return (
        (
            "info",
            "The target version of the rollout and the digest of its plan.",
            [((mine, ("target", doc["target"]), ("plan", doc["sha256"][:12])), 1)],
        ),
        (
            "verdict",
            "1 for the current verdict of the rollout.",
            [((mine, ("verdict", word)), int(doc["verdict"] == word)) for word in VERDICTS],
        ),
        (
            "nodes",
            "Nodes of the plan by state.",
            [((mine, ("state", name)), doc["counts"].get(name, 0)) for name in state.STATES],
        ),
        (
            "down_nodes",
            "Down slots in use: nodes that serve no work, are lost, or are broken elsewhere.",
            one(budgets["down"]["used"]),
        ),
        ("down_budget", "Down slots of the policy.", one(budgets["down"]["limit"])),
        ("down_window", "Down slots that growth allows now.", one(budgets["down"]["window"])),
        ("draining_nodes", "Nodes that drain.", one(budgets["draining"]["used"])),
        ("draining_budget", "Nodes that may drain at a time.", one(budgets["draining"]["limit"])),
        (
            "failures",
            "Failures in the failure budget, where a lost node counts twice.",
            one(budgets["failures"]["used"]),
        ),
        ("failure_budget", "Failures at which no further node starts.", one(budgets["failures"]["limit"])),
        ("paused", "1 while an operator has paused the rollout.", one(int(bool(doc["paused"])))),
        (
            "stopped",
            "1 when an operator has stopped the rollout, or a budget is spent.",
            one(int(bool(doc["stopped"] or doc["spent"]))),
        ),
        ("held", "1 while a hold query keeps nodes from starting.", one(int(bool(doc["held"])))),
        (
            "remaining_seconds",
            "Expected time until the last node has ended.",
            one(float(now["expected_s"]) if now else None),
        ),
        ("started_timestamp_seconds", "Time of the last plan of the rollout.", one(timeline.seconds(doc["started"]))),
        ("finished_timestamp_seconds", "Time at which the rollout ended.", one(timeline.seconds(doc["finished"]))),
        (
            "last_event_timestamp_seconds",
            "Time of the last event in its ledger.",
            one(timeline.seconds(doc["last_event"])),
        ),
        ("report_timestamp_seconds", "Time at which this file was written.", one(timeline.seconds(doc["time"]))),
    )


def render(doc):
    """Return the file. It begins with the verdict in a comment."""
    lines = ["# rollout %s: %s" % (text.line(doc["rollout_id"]), text.line(doc["verdict"]))]
    lines += ["# %s" % text.line(reason, 300) for reason in doc["reasons"][:5]]
    for name, meaning, samples in families(doc):
        if samples:
            whole = "gpufleet_rollout_" + name
            lines += ["# HELP %s %s" % (whole, meaning), "# TYPE %s gauge" % whole]
            lines += [_line(whole, labels, value) for labels, value in samples]
    return "\n".join(lines) + "\n"
