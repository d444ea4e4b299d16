# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a rollout as rows of a ledger, read when they are asked for."""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections.abc import Iterator

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import dump_json
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa

# The states of nodes that are neither pending nor finished well: few, whatever the size of the plan.
AT_WORK = frozenset(state.STATES) - {"pending", "done", "skipped"}
# Nodes to read at a time when searching for the first of many.
BATCH = 200


def node_of(body) -> state.Node:
    """Return the node of a row's JSON."""
    fields = json.loads(body)
    fields["steps"] = [state.Step(**step) for step in fields["steps"]]
    fields["ticket"] = state.Ticket(**fields["ticket"]) if fields["ticket"] else None
    return state.Node(**fields)


class StoredNodes:
    """The nodes of one rollout in the database. Has the methods of state.Nodes, and collects changes for flush()."""

    def __init__(self, connection, database, rollout_id) -> None:
        self._connection = connection
        self._database = database
        self._table = database.table["node"]
        self._id = rollout_id
        self._known = {}
        self._changed = set()
        self._replaced = False
        self._at_work = False  # whether those that are neither pending nor settled well were read

    def _select_rows(self, *conditions, column="body") -> list:
        query = sa.select(self._table.c[column], self._table.c.name).where(
            self._table.c.rollout_id == self._id, *conditions
        )
        return self._connection.execute(query).all()

    def _find_nodes(self, *conditions) -> list[state.Node]:
        """Return nodes that meet the conditions in the database, and all that were changed since.

        The caller tests again.
        """
        if not self._replaced:
            for body, name in self._select_rows(*conditions):
                if name not in self._known:
                    self._known[name] = node_of(body)
        return self._sort_nodes()

    def _sort_nodes(self) -> list[state.Node]:
        nodes = [node for node in self._known.values() if node is not None]
        return sorted(nodes, key=lambda node: (node.position is None, node.position or 0, node.name))

    def get(self, name) -> state.Node | None:
        if name not in self._known and not self._replaced:
            rows = self._select_rows(self._table.c.name == name)
            self._known[name] = node_of(rows[0][0]) if rows else None
        return self._known.get(name)

    def store(self, node) -> None:
        self._known[node.name] = node
        self._changed.add(node.name)

    def replace(self, nodes) -> None:
        self._known = {node.name: node for node in nodes}
        self._changed = set(self._known)
        self._replaced = True

    def list_all(self) -> list[state.Node]:
        return self._find_nodes()

    def with_state(self, *states) -> list[state.Node]:
        # Most questions are about few nodes, so that all of these are read at once.
        if AT_WORK.issuperset(states):
            conditions = () if self._at_work else (self._table.c.state.in_(sorted(AT_WORK)),)
            found = self._find_nodes(*conditions) if conditions else self._sort_nodes()
            self._at_work = True
            return [node for node in found if node.state in states]
        return [node for node in self._find_nodes(self._table.c.state.in_(states)) if node.state in states]

    def find_orphaned(self) -> list[state.Node]:
        return [node for node in self._find_nodes(self._table.c.orphaned.is_(True)) if node.orphaned]

    def canaries(self) -> list:
        return [node for node in self._find_nodes(self._table.c.canary.is_(True)) if node.canary]

    def count(self) -> dict[str, int]:
        if self._replaced:
            counts = {}
        else:
            query = (
                sa.select(self._table.c.state, sa.func.count())
                .where(self._table.c.rollout_id == self._id)
                .group_by(self._table.c.state)
            )
            counts = {row[0]: row[1] for row in self._connection.execute(query)}
            if self._changed:
                query = sa.select(self._table.c.state).where(
                    self._table.c.rollout_id == self._id, self._table.c.name.in_(sorted(self._changed))
                )
                for (name,) in self._connection.execute(query):
                    counts[name] -= 1
        for name in self._changed:
            now = self._known[name].state
            counts[now] = counts.get(now, 0) + 1
        return {name: number for name, number in counts.items() if number}

    def waiting_before(self, position, present=None, barred=None):
        """Return the names of pending nodes before POSITION, in order; no more are read than needed.

        PRESENT: the set of nodes that count (None: all). BARRED: a function that returns True for the failure domains
        of a node that does not count (None: all count).
        """
        mine = sorted(
            (node.position, node.name)
            for node in self._known.values()
            if node is not None
            and node.name in self._changed
            and node.state == "pending"
            and node.position is not None
            and node.position < position
            and (present is None or node.name in present)
            and not (barred and barred(node.domains))
        )
        return (name for dummy, name in heapq.merge(mine, self._stored_waiting_before(position, present, barred)))

    def count_waiting_before(self, position, present, most) -> int:
        """Return the number of pending nodes before POSITION in the database, and MOST if there are more."""
        columns = self._table.c
        query = sa.select(columns.position).where(
            columns.rollout_id == self._id, columns.state == "pending", columns.position < position
        )
        if present is not None:
            query = query.where(self._database.one_of(columns.name, present, "present"))
        counted = sa.select(sa.func.count()).select_from(query.limit(most).subquery())
        return self._connection.execute(counted).scalar()

    def _stored_waiting_before(self, position, present, barred) -> Iterator:
        """Yield (position, name) of pending nodes in the database that were not changed since, a batch at a time.

        In most cases the first batch is enough. Later queries leave out nodes that are not present, and failure domains
        that were found barred. Otherwise all pending nodes would be read where most of them cannot go.
        """
        after, batch, known, among = -1, [] if self._replaced else None, {}, None
        while batch is None or len(batch) == BATCH:
            batch = self._load_waiting(after, position, among, known)
            for place, name, text in batch:
                if present is not None and name not in present:
                    among = present
                elif name not in self._changed and not (barred and self._is_barred(text, barred, known)):
                    yield place, name
            after = batch[-1][0] if batch else after

    @staticmethod
    def _is_barred(text, barred, known) -> bool:
        """Return True if the failure domains stored as TEXT are barred. KNOWN caches the answers."""
        if text not in known:
            known[text] = barred(json.loads(text))
        return known[text]

    def _load_waiting(self, after, position, present, known) -> list:
        """Return one batch of (position, name, failure domains as stored) of pending nodes between two positions.

        KNOWN: for stored failure domains, whether they are barred.
        """
        columns = self._table.c
        query = sa.select(columns.position, columns.name, columns.domains).where(
            columns.rollout_id == self._id,
            columns.state == "pending",
            columns.position > after,
            columns.position < position,
        )
        if present is not None:
            query = query.where(self._database.one_of(columns.name, present, "present"))
        full = [found for found, bars in known.items() if bars]
        if full:
            query = query.where(sa.not_(self._database.one_of(columns.domains, full, "full")))
        return self._connection.execute(query.order_by(columns.position).limit(BATCH)).all()

    def flush(self) -> None:
        """Write the changes."""
        if self._replaced:
            self._connection.execute(sa.delete(self._table).where(self._table.c.rollout_id == self._id))
        elif self._changed:
            self._connection.execute(
                sa.delete(self._table).where(
                    self._table.c.rollout_id == self._id, self._table.c.name.in_(sorted(self._changed))
                )
            )
        if self._changed:
            self._connection.execute(
                sa.insert(self._table), [self._make_row(self._known[name]) for name in sorted(self._changed)]
            )

    def _make_row(self, node) -> dict:
        return {
            "rollout_id": self._id,
            "name": node.name,
            "state": node.state,
            "orphaned": node.orphaned,
            "position": node.position,
            "canary": node.canary,
            "body": dump_json(dataclasses.asdict(node)),
            "domains": dump_json(node.domains),
        }
