# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of a rollout: reading it, and the only way to write to it.

Every transaction appends events and updates the rows of the nodes, both or neither. The gate reads the rows. The
events are the history, and reducing them gives the same rows.
"""

from __future__ import annotations

import dataclasses
import datetime
import heapq
import json
import re
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files, keys, members, state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa

ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}")
NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}")
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
    "paused",
    "stopped",
    "held",
    "held_reason",
)


# The states of nodes that are neither pending nor finished well: few, whatever the size of the plan.
AT_WORK = frozenset(state.STATES) - {"pending", "done", "skipped"}
# Nodes to read at a time when searching for the first of many.
BATCH = 200
# Events to read at a time.
CHUNK = 1000


class LedgerError(Exception):
    """The ledger cannot be used in this way; the message says what to do."""


def timestamp(now=None):
    """Return a UTC time in the format of a rollout's documents."""
    return state.timestamp(now or datetime.datetime.now(datetime.timezone.utc))


def check_id(rollout_id):
    """Refuse a rollout id that cannot be the name of a directory."""
    if not ROLLOUT_ID.fullmatch(rollout_id or ""):
        raise LedgerError(
            "rollout_id is %r, which cannot be the name of a directory; expected up to 100 letters, digits and . _ + ~ "
            "-." % (rollout_id,)
        )
    return rollout_id


def check_node(name):
    """Refuse the name of a node that cannot be the name of a directory."""
    if not NODE_NAME.fullmatch(name or ""):
        raise LedgerError(
            "The node name %r cannot be the name of a directory; expected letters, digits and . _ : -." % (name,)
        )
    return name


def dump(value):
    """Return the JSON text of a value, equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def node_of(body):
    """Return the node of a row's JSON."""
    fields = keys.restored(json.loads(body))
    fields["steps"] = [state.Step(**step) for step in fields["steps"]]
    fields["ticket"] = state.Ticket(**fields["ticket"]) if fields["ticket"] else None
    return state.Node(**fields)


class StoredNodes:
    """The nodes of one rollout in the database. Has the methods of state.Nodes, and collects changes for flush()."""

    def __init__(self, connection, database, rollout_id):
        self._connection = connection
        self._database = database
        self._table = database.table["node"]
        self._id = rollout_id
        self._known = {}
        self._changed = set()
        self._replaced = False
        self._at_work = False  # whether those that are neither pending nor settled well were read

    def _rows(self, *conditions, column="body"):
        query = sa.select(self._table.c[column], self._table.c.name).where(
            self._table.c.rollout_id == self._id, *conditions
        )
        return self._connection.execute(query).all()

    def _nodes(self, *conditions):
        """Return nodes that meet the conditions in the database, and all that were changed since.

        The caller tests again.
        """
        if not self._replaced:
            for body, name in self._rows(*conditions):
                if name not in self._known:
                    self._known[name] = node_of(body)
        return self._sorted()

    def _sorted(self):
        nodes = [node for node in self._known.values() if node is not None]
        return sorted(nodes, key=lambda node: (node.position is None, node.position or 0, node.name))

    def get(self, name):
        if name not in self._known and not self._replaced:
            rows = self._rows(self._table.c.name == name)
            self._known[name] = node_of(rows[0][0]) if rows else None
        return self._known.get(name)

    def put(self, node):
        self._known[node.name] = node
        self._changed.add(node.name)

    def replace(self, nodes):
        self._known = {node.name: node for node in nodes}
        self._changed = set(self._known)
        self._replaced = True

    def everything(self):
        return self._nodes()

    def having(self, *states):
        # Most questions are about few nodes, so that all of these are read at once.
        if AT_WORK.issuperset(states):
            conditions = () if self._at_work else (self._table.c.state.in_(sorted(AT_WORK)),)
            found = self._nodes(*conditions) if conditions else self._sorted()
            self._at_work = True
            return [node for node in found if node.state in states]
        return [node for node in self._nodes(self._table.c.state.in_(states)) if node.state in states]

    def orphaned(self):
        return [node for node in self._nodes(self._table.c.orphaned.is_(True)) if node.orphaned]

    def canaries(self):
        return [node for node in self._nodes(self._table.c.canary.is_(True)) if node.canary]

    def count(self):
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

    def count_waiting_before(self, position, present, most):
        """Return the number of pending nodes before POSITION in the database, and MOST if there are more."""
        columns = self._table.c
        query = sa.select(columns.position).where(
            columns.rollout_id == self._id, columns.state == "pending", columns.position < position
        )
        if present is not None:
            query = query.where(self._database.one_of(columns.name, present, "present"))
        counted = sa.select(sa.func.count()).select_from(query.limit(most).subquery())
        return self._connection.execute(counted).scalar()

    def _stored_waiting_before(self, position, present, barred):
        """Yield (position, name) of pending nodes in the database that were not changed since, a batch at a time.

        In most cases the first batch is enough. Later queries leave out nodes that are not present, and failure domains
        that were found barred. Otherwise all pending nodes would be read where most of them cannot go.
        """
        after, batch, known, among = -1, [] if self._replaced else None, {}, None
        while batch is None or len(batch) == BATCH:
            batch = self._waiting(after, position, among, known)
            for place, name, text in batch:
                if present is not None and name not in present:
                    among = present
                elif name not in self._changed and not (barred and self._barred(name, text, barred, known)):
                    yield place, name
            after = batch[-1][0] if batch else after

    def _barred(self, name, text, barred, known):
        """Return True if the failure domains of a node, stored as TEXT, are barred. KNOWN caches the answers."""
        if text is None:
            return barred(self.get(name).domains)
        if text not in known:
            known[text] = barred(json.loads(text))
        return known[text]

    def _waiting(self, after, position, present, known):
        """Return one batch of (position, name, failure domains as stored) of pending nodes between two positions.

        KNOWN: for stored failure domains, whether they are barred. A row without domains is never left out for them.
        """
        columns = self._table.c
        text = columns.domains if self._database.placed else sa.null()
        query = sa.select(columns.position, columns.name, text).where(
            columns.rollout_id == self._id,
            columns.state == "pending",
            columns.position > after,
            columns.position < position,
        )
        if present is not None:
            query = query.where(self._database.one_of(columns.name, present, "present"))
        full = [found for found, bars in known.items() if bars]
        if full:
            in_full = self._database.one_of(columns.domains, full, "full")
            query = query.where(sa.or_(columns.domains.is_(None), sa.not_(in_full)))
        return self._connection.execute(query.order_by(columns.position).limit(BATCH)).all()

    def flush(self):
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
                sa.insert(self._table), [self._row(self._known[name]) for name in sorted(self._changed)]
            )

    def _row(self, node):
        return {
            "rollout_id": self._id,
            "name": node.name,
            "state": node.state,
            "orphaned": node.orphaned,
            "position": node.position,
            "canary": node.canary,
            "body": dump(keys.stored(dataclasses.asdict(node))),
            "domains": dump(node.domains),
        }


class Transaction:
    """The rollout as it is while no other process can write, and the changes to write."""

    def __init__(self, connection, database, rollout_id):
        self._connection = connection
        self._database = database
        self._id = rollout_id
        table = database.table["rollout"]
        row = connection.execute(
            sa.select(table.c.head, table.c.owner, table.c.planned).where(table.c.rollout_id == rollout_id)
        ).first()
        self._there = row is not None
        self.owner = json.loads(row[1]) if row and row[1] else None
        self.view = _view(row[0] if row else None, StoredNodes(connection, database, rollout_id))
        self._planned = row[2] if row else None
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

    def hold(self, owner):
        """Set the record of the controller that owns the rollout."""
        self.owner, self._held = owner, True

    def clock(self):
        """Return the time, aware, of the clock that all controllers of this ledger share."""
        return self._database.now(self._connection)

    def _members_of(self, rollout_id, run):
        if not self._database.has_members:
            return []
        table = self._database.table["member"]
        query = sa.select(table.c.body).where(table.c.rollout_id == rollout_id, table.c.run == run)
        return [members.Member(**json.loads(body)) for (body,) in self._connection.execute(query)]

    def members(self):
        """Return every member of the plan that the rollout follows, those whose part has ended too."""
        if not members.shared(self.owner):
            return []
        if self._members is None:
            found = self._members_of(self._id, self.owner["run"])
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
        self.added.append(dict(fields, event=event, time=timestamp()))
        state.apply(self.view, self.added[-1])
        if event == "plan":
            self._planned = self.added[-1]["time"]

    def save(self, node, name, document):
        """Store a document of a node: its baseline, an audit, a verdict."""
        self._documents.append((check_node(node), check_node(name), document))

    def block_new_rollouts(self):
        """Keep every other rollout of this ledger from beginning until this transaction has ended."""
        self._database.block_new_rollouts(self._connection)

    def owners(self, now=None):
        """Return (rollout id, owner record) of every other rollout that has an owner, or for each living member."""
        table = self._database.table["rollout"]
        query = sa.select(table.c.rollout_id, table.c.owner).where(
            table.c.rollout_id != self._id, table.c.owner.is_not(None)
        )
        found = []
        for name, record in [(name, json.loads(text)) for name, text in self._connection.execute(query).all()]:
            if members.shared(record):
                now = now or self.clock()
                theirs = [one for one in self._members_of(name, record["run"]) if members.lives(one, now)]
                found.extend((name, members.record_of(one)) for one in theirs)
            else:
                found.append((name, record))
        return found

    def shared(self, other_id, names):
        """Return those of NAMES that are in the plan of another rollout too."""
        table = self._database.table["node"]
        theirs = {
            name for (name,) in self._connection.execute(sa.select(table.c.name).where(table.c.rollout_id == other_id))
        }
        return sorted(theirs & set(names))

    def state_elsewhere(self, other_id, name):
        """Return the state of a node in another rollout of this ledger; None if that has no such node."""
        table = self._database.table["node"]
        return self._connection.execute(
            sa.select(table.c.state).where(table.c.rollout_id == other_id, table.c.name == name)
        ).scalar()

    def in_flight_elsewhere(self, names):
        """Return (rollout id, node, state) of those of NAMES that are in flight in other rollouts."""
        table, wanted = self._database.table["node"], set(names)
        query = (
            sa.select(table.c.rollout_id, table.c.name, table.c.state)
            .where(table.c.rollout_id != self._id, table.c.state.in_(state.IN_FLIGHT))
            .order_by(table.c.rollout_id, table.c.name)
        )
        return [tuple(row) for row in self._connection.execute(query) if row[1] in wanted]

    def lock_pool(self, pool):
        """Keep other rollouts that lock the same pool waiting until this transaction has ended."""
        self._database.lock_pool(self._connection, pool)

    def heads_with(self, key, text):
        """Return (rollout id, head) of every other rollout whose head has KEY with TEXT somewhere."""
        table = self._database.table["rollout"]
        query = sa.select(table.c.rollout_id, table.c.head).where(
            table.c.rollout_id != self._id, table.c.head.contains(dump({key: text})[1:-1], autoescape=True)
        )
        return [(other_id, json.loads(head)) for other_id, head in self._connection.execute(query)]

    def nodes_of(self, rollout_ids, states):
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

    def in_flight_beside(self, names):
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
        for node, name, document in self._documents:
            key = (table.c.rollout_id == self._id, table.c.node == node, table.c.name == name)
            connection.execute(sa.delete(table).where(*key))
            connection.execute(
                sa.insert(table).values(
                    rollout_id=self._id, node=node, name=name, time=timestamp(), body=dump(document)
                )
            )


def _view(head, nodes):
    view = state.Rollout(nodes=nodes)
    for key, value in (json.loads(head) if head else {}).items():
        setattr(view, key, value)
    return view


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
        with self.store.reading() as connection:
            if connection is None:
                return question(state.Rollout())
            return question(Transaction(connection, self.store, self.rollout_id).view)

    def rehearse(self, work):
        """Call WORK(transaction) without writing, to find in check mode what would be refused.

        None if nothing was ever written to the ledger.
        """
        with self.store.reading() as connection:
            return work(Transaction(connection, self.store, self.rollout_id)) if connection is not None else None

    def view(self):
        """Return the whole rollout, in memory."""

        def whole(view):
            return dataclasses.replace(view, nodes=state.Nodes(view.nodes.everything()))

        return self.look(whole)

    def owner(self):
        """Return the record of the controller that owns this rollout; None if it was never planned."""
        with self.store.reading() as connection:
            return Transaction(connection, self.store, self.rollout_id).owner if connection is not None else None

    def controllers(self):
        """Return (record of the owner, records of the controllers that have the rollout, lines about its members)."""

        def read(transaction):
            now = transaction.clock()
            return transaction.owner, transaction.holders(now), members.described(transaction.members(), now)

        return self.rehearse(read) or (None, [], [])

    def planned(self, run):
        """Return the event of the plan of a run; None if there is none."""
        with self.store.reading() as connection:
            if connection is None:
                return None
            table = self.store.table["event"]
            query = (
                sa.select(table.c.body)
                .where(table.c.rollout_id == self.rollout_id, table.c.kind == "plan")
                .order_by(table.c.id.desc())
                .limit(1)
            )
            event = json.loads(connection.execute(query).scalar() or "{}")
        return event if event.get("run") == run else None

    def events(self):
        """Return all events, first to last. They are read in parts, so that no process that writes waits for them."""
        found, last = [], 0
        while True:
            with self.store.peeking() as connection:
                if connection is None:
                    return found
                table = self.store.table["event"]
                query = (
                    sa.select(table.c.id, table.c.body)
                    .where(table.c.rollout_id == self.rollout_id, table.c.id > last)
                    .order_by(table.c.id)
                    .limit(CHUNK)
                )
                rows = connection.execute(query).all()
            found.extend(json.loads(body) for number, body in rows)
            if len(rows) < CHUNK:
                return found
            last = rows[-1][0]

    def last_event(self):
        """Return the number of the last event; None if there is none."""
        with self.store.reading() as connection:
            if connection is None:
                return None
            table = self.store.table["event"]
            return connection.execute(
                sa.select(sa.func.max(table.c.id)).where(table.c.rollout_id == self.rollout_id)
            ).scalar()

    def load(self, node, name):
        """Return a stored document of a node, or None."""
        with self.store.reading() as connection:
            if connection is None:
                return None
            table = self.store.table["document"]
            query = sa.select(table.c.body).where(
                table.c.rollout_id == self.rollout_id, table.c.node == node, table.c.name == name
            )
            body = connection.execute(query).scalar()
        return json.loads(body) if body is not None else None

    def last_id(self):
        """Return the id of the rollout that was planned last in this ledger, or None."""
        return last_id(self.store)

    def elsewhere(self, names):
        """Return (rollout id, node) of other rollouts, for those of NAMES that one of them may have left unproven."""
        with self.store.reading() as connection:
            if connection is None:
                return []
            table, wanted = self.store.table["node"], set(names)
            others = sa.select(table.c.rollout_id, table.c.name, table.c.body).where(
                table.c.rollout_id != self.rollout_id
            )
            open_states = state.IN_FLIGHT + state.OUT_OF_SERVICE
            doubtful = sorted(
                {row[1] for row in connection.execute(others.where(table.c.state.in_(open_states))) if row[1] in wanted}
            )
            if not doubtful:
                return []
            return [
                (rollout_id, node_of(body))
                for rollout_id, dummy, body in connection.execute(others.where(table.c.name.in_(doubtful)))
            ]

    def path(self, *names):
        """Return the path of an artifact of this rollout."""
        return files.join(self.directory, *names)


def last_id(database):
    """Return the id of the rollout that was planned last, or None."""
    with database.reading() as connection:
        if connection is None:
            return None
        table = database.table["rollout"]
        query = (
            sa.select(table.c.rollout_id)
            .where(table.c.planned.is_not(None))
            .order_by(table.c.planned.desc(), table.c.rollout_id.desc())
            .limit(1)
        )
        return connection.execute(query).scalar()


def standing(database, name):
    """Return (identity of the ledger, {rollout id: state of the node NAME in it}); (None, {}) for an empty ledger."""
    with database.reading() as connection:
        if connection is None:
            return None, {}
        table = database.table["node"]
        rows = connection.execute(
            sa.select(table.c.rollout_id, table.c.state).where(table.c.name == name).order_by(table.c.rollout_id)
        ).all()
        return database.identity(connection), {row.rollout_id: row.state for row in rows}


def last_document(database, node, name):
    """Return the newest document of a node with this name, from any rollout, or None."""
    with database.reading() as connection:
        if connection is None:
            return None
        table = database.table["document"]
        query = (
            sa.select(table.c.body)
            .where(table.c.node == node, table.c.name == name)
            .order_by(table.c.time.desc())
            .limit(1)
        )
        body = connection.execute(query).scalar()
    return json.loads(body) if body is not None else None
