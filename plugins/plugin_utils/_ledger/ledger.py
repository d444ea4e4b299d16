# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of a rollout: its transactions, the only way to write to it, and what is read from it outside of them.

A transaction appends events and updates the rows of the nodes, both or neither. The gate reads the rows. The events are
the history, and reducing them gives the same rows.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _host_answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import (
    events,
    files,
    members,
    others,
    state,
    store,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.nodes import StoredNodes
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import (
    LedgerError,
    check_id,
    check_node,
    dump_json,
    format_time,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa

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

    def __init__(self, connection, database, rollout_id) -> None:
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
        self.view = _make_view(row[0] if row else None, StoredNodes(connection, database, rollout_id))
        self.others = others.Others(connection, database, rollout_id)
        self._planned = row[2] if row else None
        self._sequence = None
        self.added = []
        self._documents = []
        self._held = False
        self._members = None  # those of the plan by id, once read
        self._put = set()

    @property
    def ledger_id(self) -> str | None:
        """The identity of this ledger, unlike that of any other; None if no rollout has begun in it."""
        return self._database.identity(self._connection)

    def name_ledger(self) -> str:
        """Return the identity of the ledger; create it if there is none."""
        return self._database.identity(self._connection, make=True)

    @property
    def sequence(self) -> int:
        """Return the number of this transaction, larger than that of every one that was committed before.

        It orders what happened to a node, in this rollout and in others of the ledger, independently of clocks.
        """
        if self._sequence is None:
            events, documents = self._database.table["event"], self._database.table["document"]
            numbers = sa.select(
                sa.select(sa.func.max(events.c.id)).scalar_subquery(),
                sa.select(sa.func.max(documents.c.sequence)).scalar_subquery(),
            )
            self._sequence = 1 + max(number or 0 for number in self._connection.execute(numbers).one())
        return self._sequence

    def hold(self, owner) -> None:
        """Set the record of the controller that owns the rollout."""
        self.owner, self._held = owner, True

    def clock(self) -> datetime.datetime:
        """Return the time, aware, of the clock that all controllers of this ledger share.

        That clock is read once in a transaction, by a query that is sent in any case, and continued by seconds of this
        machine, which are right also where its time is wrong.
        """
        if self._read_clock is None:
            self._read_clock = (self._database.now(self._connection), time.monotonic())
        found, then = self._read_clock
        return found.astimezone(datetime.timezone.utc) + datetime.timedelta(seconds=time.monotonic() - then)

    def members(self) -> list[members.Member]:
        """Return every member of the plan that the rollout follows, those whose part has ended too."""
        if not members.is_shared(self.owner):
            return []
        if self._members is None:
            found = members.load_members(self._connection, self._database, self._id, self.owner["run"])
            self._members = {member.member: member for member in found}
        return list(self._members.values())

    def put_member(self, member) -> None:
        """Add a member, or replace it."""
        self.members()
        self._members[member.member] = member
        self._put.add(member.member)

    def holders(self, now) -> list[dict]:
        """Return the records of the controllers that have this rollout: its owner, or its living members."""
        if members.is_shared(self.owner):
            return [members.record_of(member) for member in members.find_living(self, now)]
        return [self.owner] if self.owner else []

    @property
    def has_changes(self) -> bool:
        return bool(self.added or self._documents or self._held or self._put)

    def append(self, event, **fields) -> None:
        """Add an event, and apply it to the view."""
        self.added.append(dict(fields, event=event, time=format_time(self.clock()), sequence=self.sequence))
        events.apply_event(self.view, self.added[-1])
        if event == "plan":
            self._planned = self.added[-1]["time"]

    def save(self, node, name, document) -> None:
        """Store a document of a node: its baseline, an audit, a verdict."""
        body = dump_json(document)
        try:
            _host_answers.check_size(len(body), _host_answers.MAX_DOCUMENT_BYTES, "its document %s" % name)
        except _host_answers.AnswerError as exc:
            raise LedgerError("%s: %s. Nothing was recorded. Examine the node." % (node, exc)) from exc
        self._documents.append((check_node(node), check_node(name), body))

    def load(self, node, name) -> dict | None:
        """Return a document of a node, also one that this transaction is about to store; None if there is none."""
        for one, called, body in reversed(self._documents):
            if (one, called) == (node, name):
                return json.loads(body)
        table = self._database.table["document"]
        body = self._connection.execute(
            sa.select(table.c.body).where(table.c.rollout_id == self._id, table.c.node == node, table.c.name == name)
        ).scalar()
        return json.loads(body) if body is not None else None

    def block_new_rollouts(self) -> None:
        """Keep every other rollout of this ledger from beginning until this transaction has ended."""
        self._database.block_new_rollouts(self._connection)

    def lock_pool(self, pool) -> None:
        """Keep other rollouts that lock the same pool waiting until this transaction has ended."""
        self._database.lock_pool(self._connection, pool)

    def flush(self, token) -> None:
        """Write the changes; TOKEN marks the events of this transaction."""
        connection, tables = self._connection, self._database.table
        self.view.nodes.flush()
        row = {
            "planned": self._planned,
            "head": dump_json({key: getattr(self.view, key) for key in HEAD}),
            "owner": dump_json(self.owner) if self.owner else None,
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
                    "body": dump_json(event),
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
                    rollout_id=self._id, member=name, run=member.run, body=dump_json(dataclasses.asdict(member))
                )
            )
        table = tables["document"]
        saved = format_time(self.clock()) if self._documents else ""
        for node, name, body in self._documents:
            key = (table.c.rollout_id == self._id, table.c.node == node, table.c.name == name)
            connection.execute(sa.delete(table).where(*key))
            connection.execute(
                sa.insert(table).values(
                    rollout_id=self._id, node=node, name=name, time=saved, sequence=self.sequence, body=body
                )
            )


def _make_view(head, nodes) -> state.Rollout:
    view = state.Rollout(nodes=nodes)
    for key, value in (json.loads(head) if head else {}).items():
        setattr(view, key, value)
    return view


# Events to read at a time.
CHUNK = 1000


class Ledger:
    """One rollout in a ledger, and the directory of its artifacts on the controller."""

    def __init__(self, artifact_dir, rollout_id, url="", patience_s=store.PATIENCE_S) -> None:
        self.rollout_id = check_id(rollout_id)
        self.artifact_dir = artifact_dir
        self.base = files.rollouts_dir(artifact_dir)
        self.directory = files.join(self.base, rollout_id)
        self.store = store.Store(url or store.default_url(artifact_dir), patience_s)

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
            if transaction.has_changes:
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
        return self.store.query(lambda connection: work(Transaction(connection, self.store, self.rollout_id)))

    def view(self) -> state.Rollout:
        """Return the whole rollout, in memory."""

        def whole(view) -> state.Rollout:
            return dataclasses.replace(view, nodes=state.Nodes(view.nodes.list_all()))

        return self.look(whole)

    def owner(self) -> dict | None:
        """Return the record of the controller that owns this rollout; None if it was never planned."""
        return self.rehearse(lambda transaction: transaction.owner)

    def controllers(self) -> tuple[dict | None, list, list]:
        """Return (record of the owner, records of the controllers that have the rollout, lines about its members)."""

        def read_from(transaction) -> tuple[dict | None, list, list]:
            now = transaction.clock()
            return transaction.owner, transaction.holders(now), members.describe_members(transaction.members(), now)

        return self.rehearse(read_from) or (None, [], [])

    def running(self) -> bool:
        """Return True if a controller that has this rollout may still be at work."""

        def read_from(transaction) -> bool:
            return members.is_running(transaction, transaction.clock())

        return bool(self.rehearse(read_from))

    def load_plan_event(self, run) -> dict | None:
        """Return the event of the plan of a run; None if there is none."""
        table = self.store.table["event"]
        query = (
            sa.select(table.c.body)
            .where(table.c.rollout_id == self.rollout_id, table.c.kind == "plan")
            .order_by(table.c.id.desc())
            .limit(1)
        )
        event = json.loads(others.read_value(self.store, query) or "{}")
        return event if event.get("run") == run else None

    def events(self) -> list[dict]:
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
            rows = self.store.peek(_rows_reader(query), [])
            found.extend(json.loads(body) for number, body in rows)
            if len(rows) < CHUNK:
                return found
            last = rows[-1][0]

    def last_event(self) -> int | None:
        """Return the number of the last event; None if there is none."""
        table = self.store.table["event"]
        return others.read_value(
            self.store, sa.select(sa.func.max(table.c.id)).where(table.c.rollout_id == self.rollout_id)
        )

    def load(self, node, name) -> dict | None:
        """Return a stored document of a node, or None."""
        table = self.store.table["document"]
        body = others.read_value(
            self.store,
            sa.select(table.c.body).where(
                table.c.rollout_id == self.rollout_id, table.c.node == node, table.c.name == name
            ),
        )
        return json.loads(body) if body is not None else None

    def last_id(self) -> str | None:
        """Return the id of the rollout that was planned last in this ledger, or None."""
        return others.last_id(self.store)

    def elsewhere(self, names) -> list[tuple]:
        """Return (rollout id, node) of other rollouts, for those of NAMES that one of them may have left unproven."""
        return self.store.query(
            lambda connection: others.Others(connection, self.store, self.rollout_id).find_unproven(names), nothing=[]
        )

    def path(self, *names) -> str:
        """Return the path of an artifact of this rollout."""
        return files.join(self.directory, *names)


def _rows_reader(query):
    """Return what reads all rows of a query."""
    return lambda connection: connection.execute(query).all()
