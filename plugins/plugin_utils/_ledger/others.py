# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The other rollouts of a ledger, as one rollout reads them: their owners, their plans and their nodes.

Those that name the same pool share their down slots and failure domains. A pool is a name in the policy of a plan, and
nothing is stored for it. While one of its rollouts decides whether a node may go down, none of the others does.
"""

from __future__ import annotations

import json

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.nodes import node_of
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.text import dump_json


class Others:
    """Queries of one rollout about the others of its ledger."""

    def __init__(self, connection, database, rollout_id) -> None:
        self._connection = connection
        self._database = database
        self._id = rollout_id

    def find_owners(self, now) -> list[tuple]:
        """Return (rollout id, owner record) of every other rollout that has an owner, or for each living member."""
        table = self._database.table["rollout"]
        query = sa.select(table.c.rollout_id, table.c.owner).where(
            table.c.rollout_id != self._id, table.c.owner.is_not(None)
        )
        found = []
        for name, record in [(name, json.loads(text)) for name, text in self._connection.execute(query).all()]:
            if members.is_shared(record):
                theirs = [
                    one
                    for one in members.load_members(self._connection, self._database, name, record["run"])
                    if members.is_alive(one, now)
                ]
                found.extend((name, members.record_of(one)) for one in theirs)
            else:
                found.append((name, record))
        return found

    def find_shared(self, other_id, names) -> list[str]:
        """Return those of NAMES that are in the plan of another rollout too."""
        table = self._database.table["node"]
        theirs = {
            name for (name,) in self._connection.execute(sa.select(table.c.name).where(table.c.rollout_id == other_id))
        }
        return sorted(theirs & set(names))

    def state_of(self, other_id, name) -> str | None:
        """Return the state of a node in another rollout of this ledger; None if that has no such node."""
        table = self._database.table["node"]
        return self._connection.execute(
            sa.select(table.c.state).where(table.c.rollout_id == other_id, table.c.name == name)
        ).scalar()

    def in_flight_among(self, names) -> list[tuple]:
        """Return (rollout id, node, state) of those of NAMES that are in flight in other rollouts."""
        table, wanted = self._database.table["node"], set(names)
        query = (
            sa.select(table.c.rollout_id, table.c.name, table.c.state)
            .where(table.c.rollout_id != self._id, table.c.state.in_(state.IN_FLIGHT))
            .order_by(table.c.rollout_id, table.c.name)
        )
        return [tuple(row) for row in self._connection.execute(query) if row[1] in wanted]

    def heads_with(self, key, text) -> list[tuple]:
        """Return (rollout id, head) of every other rollout whose head has KEY with TEXT somewhere."""
        table = self._database.table["rollout"]
        query = sa.select(table.c.rollout_id, table.c.head).where(
            table.c.rollout_id != self._id, table.c.head.contains(dump_json({key: text})[1:-1], autoescape=True)
        )
        return [(other_id, json.loads(head)) for other_id, head in self._connection.execute(query)]

    def nodes_of(self, rollout_ids, states) -> list[tuple]:
        """Return (rollout id, node) of the nodes of these rollouts that are in one of STATES."""
        if not rollout_ids:
            return []
        table = self._database.table["node"]
        query = (
            sa.select(table.c.rollout_id, table.c.body)
            .where(table.c.rollout_id.in_(sorted(rollout_ids)), table.c.state.in_(states))
            .order_by(table.c.rollout_id, table.c.name)
        )
        return [(other_id, node_of(body)) for other_id, body in self._connection.execute(query)]

    def in_flight_beside(self, names) -> list[tuple]:
        """Return (rollout id, node) of every node in flight in another rollout that is not one of NAMES."""
        table, ours = self._database.table["node"], set(names)
        query = (
            sa.select(table.c.rollout_id, table.c.name, table.c.body)
            .where(table.c.rollout_id != self._id, table.c.state.in_(state.IN_FLIGHT))
            .order_by(table.c.rollout_id, table.c.name)
        )
        return [
            (other_id, node_of(body)) for other_id, name, body in self._connection.execute(query) if name not in ours
        ]

    def find_unproven(self, names) -> list[tuple]:
        """Return (rollout id, node) of other rollouts, for those of NAMES that one of them may have left unproven."""
        table, wanted = self._database.table["node"], set(names)
        others = sa.select(table.c.rollout_id, table.c.name, table.c.body).where(table.c.rollout_id != self._id)
        open_states = state.IN_FLIGHT + state.OUT_OF_SERVICE
        rows = self._connection.execute(others.where(table.c.state.in_(open_states)))
        doubtful = sorted({row[1] for row in rows if row[1] in wanted})
        if not doubtful:
            return []
        return [
            (rollout_id, node_of(body))
            for rollout_id, dummy, body in self._connection.execute(others.where(table.c.name.in_(doubtful)))
        ]


OUT = state.LEAVING + state.OUT_OF_SERVICE


def name_pool(policy) -> str:
    """Return the name of the pool of a policy, empty if it has none."""
    return policy.get("pool") or ""


def find_pool_rollouts(transaction, pool) -> dict:
    """Return for each other rollout of a pool whether it has ended; none for the empty name."""
    return {
        other_id: head["finished"] is not None
        for other_id, head in (transaction.others.heads_with("pool", pool) if pool else ())
        if name_pool(head["policy"]) == pool
    }


def read_pool_nodes(transaction, lock) -> None:
    """Set the nodes of other rollouts that take part of the limits of this one.

    LOCK: keep the other rollouts of the pool from deciding until the transaction has ended, for a decision that is
    recorded in it.
    """
    view, pool = transaction.view, name_pool(transaction.view.policy)
    view.beside = []
    if not pool:
        return
    if lock:
        transaction.lock_pool(pool)
    ended = find_pool_rollouts(transaction, pool)
    view.beside = [
        (other_id, node)
        for other_id, node in transaction.others.nodes_of(list(ended), OUT)
        if takes_limits(node, ended[other_id], view.nodes.get(node.name))
    ]


def takes_limits(node, ended, mine) -> bool:
    """Return True if a node of another rollout takes part of the limits. Pure.

    ENDED: its rollout has ended, after which a node that is out of service is no longer its rollout's matter. MINE: the
    node of the same name in this rollout, which is not counted twice; None if there is none.
    """
    if ended and node.state in state.OUT_OF_SERVICE:
        return False
    return mine is None or mine.state not in OUT
