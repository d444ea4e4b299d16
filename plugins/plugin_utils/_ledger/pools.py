# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of one ledger that share their down slots and failure domains: those that name the same pool.

A pool is a name in the policy of a plan, and nothing is stored for it. While one of its rollouts decides whether a node
may go down, none of the others does.
"""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state

OUT = state.LEAVING + state.OUT_OF_SERVICE


def of(policy):
    """Return the name of the pool of a policy, empty if it has none."""
    return policy.get("pool") or ""


def rollouts(transaction, pool):
    """Return for each other rollout of a pool whether it has ended; none for the empty name."""
    return {
        other_id: head["finished"] is not None
        for other_id, head in (transaction.others.heads_with("pool", pool) if pool else ())
        if of(head["policy"]) == pool
    }


def fill(transaction, lock):
    """Set the nodes of other rollouts that take part of the limits of this one.

    LOCK: keep the other rollouts of the pool from deciding until the transaction has ended, for a decision that is
    recorded in it.
    """
    view, pool = transaction.view, of(transaction.view.policy)
    view.beside = []
    if not pool:
        return
    if lock:
        transaction.lock_pool(pool)
    ended = rollouts(transaction, pool)
    view.beside = [
        (other_id, node)
        for other_id, node in transaction.others.nodes_of(list(ended), OUT)
        if counts(node, ended[other_id], view.nodes.get(node.name))
    ]


def counts(node, ended, mine):
    """Return True if a node of another rollout takes part of the limits. Pure.

    ENDED: its rollout has ended, after which a node that is out of service is no longer its rollout's matter. MINE: the
    node of the same name in this rollout, which is not counted twice; None if there is none.
    """
    if ended and node.state in state.OUT_OF_SERVICE:
        return False
    return mine is None or mine.state not in OUT
