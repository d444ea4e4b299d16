# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One transaction on a rollout: the only way to write to a ledger.

It appends events and updates the rows of the nodes, both or neither. The gate reads the rows. The events are the
history, and reducing them gives the same rows.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import time

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _host_answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, members, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.elsewhere import Others
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.names import LedgerError, check_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.nodes import StoredNodes
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.text import dump, timestamp

HEAD = (
    "rollout_id",
    "run",
    "target",
    "started",
    "finished",
    "sha256",
    "total",
    "went",
    "earlier",
    "window",
    "policy",
    "changed",
    "undo",
    "collection",
    "paused",
    "stopped",
    "refused",
    "held",
    "held_reason",
)


class Transaction:
    """The rollout as it is while no other process can write, and the changes to write."""

    def __init__(self, connection, database, rollout_id):
        self._connection = connection
        self._database = database
        self._id = rollout_id
        table = database.table["rollout"]
        row = connection.execute(
            sa.select(table.c.head, table.c.owner, table.c.planned, *database.clock_column()).where(
                table.c.rollout_id == rollout_id
            )
        ).first()
        self._read_clock = (row[3], time.monotonic()) if row and len(row) > 3 else None
        self._there = row is not None
        self.owner = json.loads(row[1]) if row and row[1] else None
        self.view = _view(row[0] if row else None, StoredNodes(connection, database, rollout_id))
        self.others = Others(connection, database, rollout_id)
        self._planned = row[2] if row else None
        self._sequence = None
        self.added = []
        self._documents = []
        self._held = False
        self._members = None  # those of the plan by id, once read
        self._put = set()

    @property
    def ledger_id(self):
        """The identity of this ledger, unlike that of any other; None if no rollout has begun in it."""
        return self._database.identity(self._connection)

    def name_ledger(self):
        """Return the identity of the ledger; create it if there is none."""
        return self._database.identity(self._connection, make=True)

    @property
    def sequence(self):
        """Return the number of this transaction, larger than that of every one that was committed before.

        It orders what happened to a node, in this rollout and in others of the ledger, whatever the clocks say.
        """
        if self._sequence is None:
            events, documents = self._database.table["event"], self._database.table["document"]
            numbers = sa.select(
                sa.select(sa.func.max(events.c.id)).scalar_subquery(),
                sa.select(sa.func.max(documents.c.sequence)).scalar_subquery(),
            )
            self._sequence = 1 + max(number or 0 for number in self._connection.execute(numbers).one())
        return self._sequence

    def hold(self, owner):
        """Set the record of the controller that owns the rollout."""
        self.owner, self._held = owner, True

    def clock(self):
        """Return the time, aware, of the clock that all controllers of this ledger share.

        That clock is read once in a transaction, by a query that is sent in any case, and continued by seconds of this
        machine, which are right also where its time is wrong.
        """
        if self._read_clock is None:
            self._read_clock = (self._database.now(self._connection), time.monotonic())
        found, then = self._read_clock
        return found.astimezone(datetime.timezone.utc) + datetime.timedelta(seconds=time.monotonic() - then)

    def members(self):
        """Return every member of the plan that the rollout follows, those whose part has ended too."""
        if not members.shared(self.owner):
            return []
        if self._members is None:
            found = members.stored(self._connection, self._database, self._id, self.owner["run"])
            self._members = {member.member: member for member in found}
        return list(self._members.values())

    def put_member(self, member):
        """Add a member, or replace it."""
        self.members()
        self._members[member.member] = member
        self._put.add(member.member)

    def holders(self, now):
        """Return the records of the controllers that have this rollout: its owner, or its living members."""
        if members.shared(self.owner):
            return [members.record_of(member) for member in members.living(self, now)]
        return [self.owner] if self.owner else []

    @property
    def changed(self):
        return bool(self.added or self._documents or self._held or self._put)

    def append(self, event, **fields):
        """Add an event, and apply it to the view."""
        self.added.append(dict(fields, event=event, time=timestamp(self.clock()), sequence=self.sequence))
        events.apply(self.view, self.added[-1])
        if event == "plan":
            self._planned = self.added[-1]["time"]

    def save(self, node, name, document):
        """Store a document of a node: its baseline, an audit, a verdict."""
        body = dump(document)
        try:
            _host_answers.check_size(len(body), _host_answers.MAX_DOCUMENT_BYTES, "its document %s" % name)
        except _host_answers.AnswerError as exc:
            raise LedgerError("%s: %s. Nothing was recorded. Examine the node." % (node, exc)) from exc
        self._documents.append((check_node(node), check_node(name), body))

    def load(self, node, name):
        """Return a document of a node, also one that this transaction is about to store; None if there is none."""
        for one, called, body in reversed(self._documents):
            if (one, called) == (node, name):
                return json.loads(body)
        table = self._database.table["document"]
        body = self._connection.execute(
            sa.select(table.c.body).where(table.c.rollout_id == self._id, table.c.node == node, table.c.name == name)
        ).scalar()
        return json.loads(body) if body is not None else None

    def block_new_rollouts(self):
        """Keep every other rollout of this ledger from beginning until this transaction has ended."""
        self._database.block_new_rollouts(self._connection)

    def lock_pool(self, pool):
        """Keep other rollouts that lock the same pool waiting until this transaction has ended."""
        self._database.lock_pool(self._connection, pool)

    def flush(self, token):
        """Write the changes; TOKEN marks the events of this transaction."""
        connection, tables = self._connection, self._database.table
        self.view.nodes.flush()
        row = {
            "planned": self._planned,
            "head": dump({key: getattr(self.view, key) for key in HEAD}),
            "owner": dump(self.owner) if self.owner else None,
        }
        table = tables["rollout"]
        if self._there:
            connection.execute(sa.update(table).where(table.c.rollout_id == self._id).values(**row))
        else:
            connection.execute(sa.insert(table).values(rollout_id=self._id, **row))
        if self.added:
            rows = [
                {
                    "rollout_id": self._id,
                    "time": event["time"],
                    "node": event.get("node"),
                    "kind": event["event"],
                    "token": token,
                    "body": dump(event),
                }
                for event in self.added
            ]
            connection.execute(sa.insert(tables["event"]), rows)
        table = tables["member"]
        for name in sorted(self._put):
            member = self._members[name]
            key = (table.c.rollout_id == self._id, table.c.member == name)
            connection.execute(sa.delete(table).where(*key))
            connection.execute(
                sa.insert(table).values(
                    rollout_id=self._id, member=name, run=member.run, body=dump(dataclasses.asdict(member))
                )
            )
        table = tables["document"]
        saved = timestamp(self.clock()) if self._documents else ""
        for node, name, body in self._documents:
            key = (table.c.rollout_id == self._id, table.c.node == node, table.c.name == name)
            connection.execute(sa.delete(table).where(*key))
            connection.execute(
                sa.insert(table).values(
                    rollout_id=self._id, node=node, name=name, time=saved, sequence=self.sequence, body=body
                )
            )


def _view(head, nodes):
    view = state.Rollout(nodes=nodes)
    for key, value in (json.loads(head) if head else {}).items():
        setattr(view, key, value)
    return view
