# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts in memory, for tests of what is decided about them."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

LATER = "2030-01-01T00:00:00.000Z"
TIME = "2026-01-01T00:00:%02d.000Z"


def view_of(states, orphaned=(), canaries=(), domains=None, failures=None, window=None, **policy):
    """A rollout whose nodes are in the STATES of a dictionary, in its order."""
    view = state.Rollout(
        rollout_id="x",
        run="r",
        sha256="f" * 64,
        policy=limits.complete_policy(policy, max(10, len(states))),
        total=len(states),
        window=window,
    )
    for number, (name, value) in enumerate(states.items()):
        node = state.Node(
            name,
            value,
            number,
            orphaned=name in orphaned,
            canary=name in canaries,
            domains=(domains or {}).get(name, {}),
        )
        if value in state.IN_FLIGHT and name not in orphaned:
            phase = state.DRAIN if value == "draining" else state.DOWN
            node.ticket = state.Ticket("t-" + name, phase, TIME % 0, LATER, view.sha256)
        if value in state.FAILED:
            node.failure = (failures or {}).get(name, state.HARD)
        view.nodes.store(node)
    return view


def grant(name, phase="drain", second=1, run="r"):
    return {
        "event": "grant",
        "node": name,
        "run": run,
        "time": TIME % second,
        "phase": phase,
        "ticket": "t",
        "expires": LATER,
    }


def fit(node, sequence=10**6):
    """Return the documents with which a node may go down."""
    gpu = {"index": 0, "compute_processes": {"rc": 0, "value": []}}
    return {
        "health-before": {"verdict": "pass", "phase": "baseline", "node": node, "sequence": sequence},
        "baseline": {"snapshot": {"gpus": [gpu]}, "audit": {"versions": {"loaded": "1.0"}}},
    }


def passed(node, version="2.0", sequence=10**6):
    """Return the documents with which a node may serve again."""
    verdict = {"verdict": "pass", "phase": "post", "node": node, "sequence": sequence}
    return {"health-after": dict(verdict, driver={"expected": version}, time="2099-01-01T00:00:00Z")}
