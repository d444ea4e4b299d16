# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of a rollout: its transactions, and what is read from it outside of them."""

from __future__ import annotations

import dataclasses
import json
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files, members, owner, state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.elsewhere import Others
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.names import check_id
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.transaction import Transaction

# Events to read at a time.
CHUNK = 1000


class Ledger:
    """One rollout in a ledger, and the directory of its artifacts on the controller."""

    def __init__(self, artifact_dir, rollout_id, url="", patience_s=store.PATIENCE_S):
        self.rollout_id = check_id(rollout_id)
        self.artifact_dir = artifact_dir
        self.base = files.rollouts_dir(artifact_dir)
        self.directory = files.join(self.base, rollout_id)
        self.store = store.Store(url or store.default_url(artifact_dir), patience_s)

    @property
    def shown(self):
        return self.store.shown

    def transact(self, work):
        """Call WORK(transaction) in one isolated transaction and return its result. Nothing is written if it raises.

        WORK may be called more than once, and must have no effect but on the transaction.
        """
        token = uuid.uuid4().hex
        answers = []

        def attempt(connection, repeated):
            events = self.store.table["event"]
            if repeated and connection.execute(sa.select(events.c.id).where(events.c.token == token).limit(1)).first():
                return answers[-1]  # the earlier attempt was committed, and only the reply was lost
            transaction = Transaction(connection, self.store, self.rollout_id)
            answers.append(work(transaction))
            if transaction.changed:
                transaction.flush(token)
            return answers[-1]

        return self.store.transact(self.rollout_id, attempt)

    def look(self, question):
        """Return QUESTION(view) for the rollout as it is now; the view is empty if it was never planned."""
        found = self.rehearse(lambda transaction: (question(transaction.view),))
        return found[0] if found else question(state.Rollout())

    def rehearse(self, work):
        """Call WORK(transaction) without writing: to read, and in check mode to find what would be refused.

        None if nothing was ever written to the ledger. WORK may be called more than once, as in transact.
        """
        return self.store.read(lambda connection: work(Transaction(connection, self.store, self.rollout_id)))

    def view(self):
        """Return the whole rollout, in memory."""

        def whole(view):
            return dataclasses.replace(view, nodes=state.Nodes(view.nodes.everything()))

        return self.look(whole)

    def owner(self):
        """Return the record of the controller that owns this rollout; None if it was never planned."""
        return self.rehearse(lambda transaction: transaction.owner)

    def controllers(self):
        """Return (record of the owner, records of the controllers that have the rollout, lines about its members)."""

        def read(transaction):
            now = transaction.clock()
            return transaction.owner, transaction.holders(now), members.described(transaction.members(), now)

        return self.rehearse(read) or (None, [], [])

    def running(self):
        """Return True if a controller that has this rollout may still be at work."""

        def read(transaction):
            now = transaction.clock()
            return any(owner.running(record, now) for record in transaction.holders(now))

        return bool(self.rehearse(read))

    def planned(self, run):
        """Return the event of the plan of a run; None if there is none."""
        table = self.store.table["event"]
        query = (
            sa.select(table.c.body)
            .where(table.c.rollout_id == self.rollout_id, table.c.kind == "plan")
            .order_by(table.c.id.desc())
            .limit(1)
        )
        event = json.loads(_scalar(self.store, query) or "{}")
        return event if event.get("run") == run else None

    def events(self):
        """Return all events, first to last. They are read in parts, so that no process that writes waits for them."""
        found, last = [], 0
        table = self.store.table["event"]
        while True:
            query = (
                sa.select(table.c.id, table.c.body)
                .where(table.c.rollout_id == self.rollout_id, table.c.id > last)
                .order_by(table.c.id)
                .limit(CHUNK)
            )
            rows = self.store.peek(_all(query), [])
            found.extend(json.loads(body) for number, body in rows)
            if len(rows) < CHUNK:
                return found
            last = rows[-1][0]

    def last_event(self):
        """Return the number of the last event; None if there is none."""
        table = self.store.table["event"]
        return _scalar(self.store, sa.select(sa.func.max(table.c.id)).where(table.c.rollout_id == self.rollout_id))

    def load(self, node, name):
        """Return a stored document of a node, or None."""
        table = self.store.table["document"]
        body = _scalar(
            self.store,
            sa.select(table.c.body).where(
                table.c.rollout_id == self.rollout_id, table.c.node == node, table.c.name == name
            ),
        )
        return json.loads(body) if body is not None else None

    def last_id(self):
        """Return the id of the rollout that was planned last in this ledger, or None."""
        return last_id(self.store)

    def elsewhere(self, names):
        """Return (rollout id, node) of other rollouts, for those of NAMES that one of them may have left unproven."""
        return self.store.read(
            lambda connection: Others(connection, self.store, self.rollout_id).unproven(names), nothing=[]
        )

    def path(self, *names):
        """Return the path of an artifact of this rollout."""
        return files.join(self.directory, *names)


def last_id(database):
    """Return the id of the rollout that was planned last, or None."""
    table = database.table["event"]
    return _scalar(
        database, sa.select(table.c.rollout_id).where(table.c.kind == "plan").order_by(table.c.id.desc()).limit(1)
    )


def standing(database, name):
    """Return (identity of the ledger, {rollout id: state of the node NAME in it}); (None, {}) for an empty ledger."""
    table = database.table["node"]
    query = sa.select(table.c.rollout_id, table.c.state).where(table.c.name == name).order_by(table.c.rollout_id)

    def read(connection):
        rows = connection.execute(query).all()
        return database.identity(connection), {row.rollout_id: row.state for row in rows}

    return database.read(read, nothing=(None, {}))


def in_flight(database, names):
    """Return those of NAMES that any rollout of the ledger has in flight."""
    table, wanted = database.table["node"], set(names)
    query = sa.select(table.c.name).where(table.c.state.in_(state.IN_FLIGHT))
    found = database.read(lambda connection: connection.execute(query).scalars().all(), nothing=[])
    return sorted(wanted.intersection(found))


def last_document(database, node, name):
    """Return the newest document of a node with this name, from any rollout and by no clock, or None."""
    table = database.table["document"]
    query = (
        sa.select(table.c.body)
        .where(table.c.node == node, table.c.name == name)
        .order_by(table.c.sequence.desc())
        .limit(1)
    )
    body = _scalar(database, query)
    return json.loads(body) if body is not None else None


def _all(query):
    """Return what reads all rows of a query."""
    return lambda connection: connection.execute(query).all()


def _scalar(database, query):
    """Return the one value of a query; None if there is none, or nothing was written."""
    return database.read(lambda connection: connection.execute(query).scalar())
