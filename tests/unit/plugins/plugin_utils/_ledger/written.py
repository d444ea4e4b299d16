# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events of rollouts, and the tests' ways to write them to a ledger."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import LATER, TIME, grant


def reduce(story) -> state.Rollout:
    """Return the view that results from a list of events."""
    view = state.Rollout()
    for one in story:
        events.apply_event(view, one)
    return view


def plan(transaction, *names, run="r", racks=1, **states):
    nodes = {
        name: {
            "state": states.get(name, "pending"),
            "from": "1.0",
            "to": "2.0",
            "domains": {"rack": "r%d" % (number % racks)},
        }
        for number, name in enumerate(names)
    }
    order = [name for name in names if nodes[name]["state"] == "pending"]
    transaction.append(
        "plan",
        run=run,
        rollout_id="r1",
        target="2.0",
        order=order,
        nodes=nodes,
        policy=limits.complete_policy({}, 3),
        sha256="f",
    )


def go(transaction, name, phase="drain"):
    transaction.append("grant", run="r", node=name, phase=phase, ticket="t", expires=LATER)


def plan_event(*names, run="r", policy=None, **overrides):
    nodes = {
        name: dict(
            {"state": "pending", "from": "1.0", "to": "2.0", "reason": "", "domains": {}}, **overrides.get(name, {})
        )
        for name in names
    }
    order = [name for name in names if nodes[name]["state"] == "pending"]
    return {
        "event": "plan",
        "run": run,
        "time": TIME % 0,
        "rollout_id": "x",
        "target": "2.0",
        "order": order,
        "nodes": nodes,
        "policy": dict({"max_down": 1, "growth_start": None, "growth_step": 1}, **(policy or {})),
        "sha256": "f",
    }


def event(kind, node, second=1, run="r", **fields):
    return dict(fields, event=kind, node=node, run=run, time=TIME % second)


def control(verb, second=5, **fields):
    return dict(
        {"event": "control", "run": "r", "time": TIME % second, "verb": verb, "user": "kim", "reason": "why"}, **fields
    )


def changed(*steps, ended=None):
    """The story of a node that went through these steps of phase down, and how it ended."""
    story = [plan_event("a"), grant("a"), grant("a", "down")] + [
        event("step", "a", second, step=name) for second, name in enumerate(steps, start=2)
    ]
    return story + ([event("state", "a", 30, state=ended, reason="it is gone")] if ended else [])
