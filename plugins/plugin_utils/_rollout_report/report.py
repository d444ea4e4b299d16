# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout as a document, which begins with the verdict and its reasons. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import estimate, limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import timeline
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report.reasons import (
    left_out,
    next_steps,
    reasons,
)

SCHEMA = "gpufleet.report/1"


def document(view, ended, time=None, last_event=None, story=None, several=False, edition=(None, 0)):
    """Return the report of a rollout. ENDED: True if its run has ended. TIME: now, in the format of the ledger.

    The verdict, the counts and the budgets are of the last run. STORY, a Timeline, has nodes of earlier runs. SEVERAL:
    the plan was made for several controllers. EDITION: (identity of the ledger, number of events that the report is
    made of), by which an older report of another controller is told from a newer one.
    """
    absent, earlier = (story.absent, story.earlier) if story is not None else ([], {})
    verdict = state.verdict(view, ended)
    failed = view.nodes.having(*state.FAILED)
    spent = limits.spent(view.policy, failed, view.attempted) if view.policy else ""
    return {
        "verdict": verdict,
        "reasons": reasons(view, verdict, spent, absent),
        "next_steps": next_steps(view, verdict, spent, several),
        "schema": SCHEMA,
        "rollout_id": view.rollout_id,
        "ledger": edition[0],
        "events": edition[1],
        "time": time or view.finished or view.started,
        "started": view.started,
        "finished": view.finished,
        "last_event": last_event or view.finished or view.started,
        "target": view.target,
        "sha256": view.sha256,
        "counts": counts(view),
        "left_out": [node.name for node in left_out(view)],
        "paused": view.paused,
        "stopped": view.stopped,
        "held": list(view.held),
        "spent": spent,
        "budgets": budgets(view, failed),
        "estimate": None if ended or verdict != "running" else left(view, time),
        "policy": view.policy,
        "nodes": dict(
            {node.name: _node(node, True, earlier) for node in view.nodes.everything()},
            **{node.name: _node(node, False, earlier) for node in absent},
        ),
    }


def counts(view):
    """Return {state: number of nodes}, of the states in which there are any."""
    found = view.nodes.count()
    return {name: found[name] for name in state.STATES if found.get(name)}


def _node(node, in_run, earlier):
    return {
        "state": node.state,
        "in_run": in_run,
        "from": node.from_version,
        "to": node.to_version,
        "layout": node.layout.get("name", ""),
        "reason": node.reason,
        "failure": node.failure,
        "domains": node.domains,
        "canary": node.canary,
        "attempt": node.attempt,
        "orphaned": node.orphaned,
        "ended": node.ended,
        "evidence": [],  # directories on the controller, for nodes that need attention
        "steps": _steps(node.steps),
        "earlier": [dict(attempt, steps=_steps(attempt["steps"])) for attempt in earlier.get(node.name, ())],
    }


def _steps(steps):
    return [
        {"name": step.name, "started": step.started, "finished": step.finished, "status": step.status} for step in steps
    ]


def budgets(view, failed):
    """Return the use and the limit of each budget."""
    policy = view.policy
    down = len(view.nodes.having(*(state.NOT_SERVING + state.OUT_OF_SERVICE)))
    return {
        "down": {
            "used": down + policy.get("broken_elsewhere", 0),
            "limit": policy.get("max_down"),
            "window": view.window,
        },
        "draining": {"used": len(view.nodes.having("draining")), "limit": policy.get("max_draining")},
        "failures": {
            "used": sum(timeline.failure_weight(node) for node in failed),
            "limit": policy.get("failure_budget"),
        },
    }


def left(view, time):
    """Return the estimate of the remaining time; None without data for it."""
    if not view.policy or not time:
        return None
    now = timeline.seconds(time)
    took = [
        timeline.seconds(node.ended) - timeline.seconds(node.steps[0].started)
        for node in view.nodes.having("done")
        if node.ended and node.steps
    ]
    ages = [
        now - timeline.seconds(node.steps[0].started) if node.steps else 0.0
        for node in view.nodes.having(*state.IN_FLIGHT)
    ]
    slots = view.policy["max_down"] - len(view.nodes.having(*state.OUT_OF_SERVICE)) - view.policy["broken_elsewhere"]
    expected, bound = estimate.remaining(len(view.nodes.having("pending")), ages, slots, took, view.policy["node_s"])
    return {"expected_s": round(expected), "lower_bound_s": round(bound), "measured": len(took)}
