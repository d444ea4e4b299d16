# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The other rollouts of a ledger, as one rollout reads them: their owners, their plans and their nodes.

Those that name the same pool share their down slots and failure domains. A pool is a name in the policy of a plan, and
nothing is stored for it. While one of its rollouts decides whether a node may go down, none of the others does.

Below: what is asked of all rollouts of a ledger at once, and the archives of compiled kernel modules that came from a
builder, by their digests: a document for each, which neither a node nor the artifact host can write.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.nodes import node_of
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import (
    check_node,
    dump_json,
    format_time,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa


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

    def find_running(self, now) -> set[str]:
        """Return the ids of the other rollouts at which a controller may be at work."""
        return {other_id for other_id, record in self.find_owners(now) if owner.is_running(record, now)}

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
        settled = table.c.state.in_(state.PROVEN) | table.c.body.contains('"steps":[]', autoescape=True)
        rows = self._connection.execute(others.with_only_columns(table.c.name).where(sa.not_(settled)))
        doubtful = sorted({name for (name,) in rows if name in wanted})
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


def last_id(database) -> str | None:
    """Return the id of the rollout that was planned last, or None."""
    table = database.table["event"]
    return read_value(
        database, sa.select(table.c.rollout_id).where(table.c.kind == "plan").order_by(table.c.id.desc()).limit(1)
    )


def find_last_changes(database, names: t.Iterable[str]) -> t.Dict[str, t.List[str]]:
    """Return {rollout id: those of NAMES that this rollout was the last to change}, the newest rollout first.

    A node that no rollout changed is in none of the lists.
    """
    event, node = database.table["event"], database.table["node"]
    newest = sa.func.max(event.c.id)
    query = sa.select(event.c.rollout_id).where(event.c.kind == "plan")

    def read_rows(connection) -> dict[str, list]:
        missing, found = set(names), {}
        for rollout_id in (
            connection.execute(query.group_by(event.c.rollout_id).order_by(newest.desc())).scalars().all()
        ):
            if not missing:
                break
            rows = sa.select(node.c.name, node.c.body).where(node.c.rollout_id == rollout_id, node.c.state != "pending")
            changed = [
                name
                for name, body in connection.execute(rows)
                if name in missing and state.find_resume_step([step["name"] for step in json.loads(body)["steps"]])
            ]
            if changed:
                found[rollout_id] = sorted(changed)
                missing -= set(changed)
        return found

    return database.query(read_rows, nothing={})


def find_states_of_node(database, name) -> tuple[str | None, dict]:
    """Return (identity of the ledger, {rollout id: state of the node NAME in it}); (None, {}) for an empty ledger."""
    table = database.table["node"]
    query = sa.select(table.c.rollout_id, table.c.state).where(table.c.name == name).order_by(table.c.rollout_id)

    def read_rows(connection) -> tuple[str | None, dict]:
        rows = connection.execute(query).all()
        return database.identity(connection), {row.rollout_id: row.state for row in rows}

    return database.query(read_rows, nothing=(None, {}))


def in_flight(database, names) -> list[str]:
    """Return those of NAMES that any rollout of the ledger has in flight."""
    table, wanted = database.table["node"], set(names)
    query = sa.select(table.c.name).where(table.c.state.in_(state.IN_FLIGHT))
    found = database.query(lambda connection: connection.execute(query).scalars().all(), nothing=[])
    return sorted(wanted.intersection(found))


def last_document(database, node, name) -> dict[str, str] | None:
    """Return the newest document of a node with this name, from any rollout and by no clock, or None."""
    table = database.table["document"]
    query = (
        sa.select(table.c.body)
        .where(table.c.node == node, table.c.name == name)
        .order_by(table.c.sequence.desc())
        .limit(1)
    )
    body = read_value(database, query)
    return json.loads(body) if body is not None else None


def read_value(database, query) -> int | str | None:
    """Return the one value of a query; None if there is none, or nothing was written."""
    return database.query(lambda connection: connection.execute(query).scalar())


# Stands for the rollout of these documents: no id of a rollout begins like this.
OF_NO_ROLLOUT = "_archives"


def record_archive(database, builder: str, name: str, sha256: str, modules: str = "") -> None:
    """Record that BUILDER compiled the archive NAME with this digest. A record that is there stays.

    MODULES: the digest of what it brings without signatures; empty where that cannot be read.
    """
    check_node(builder)
    table = database.table["document"]

    def write(connection, dummy_repeated) -> None:
        key = (table.c.rollout_id == OF_NO_ROLLOUT, table.c.node == builder, table.c.name == sha256)
        if connection.execute(sa.select(table.c.name).where(*key)).first() is None:
            row = {
                "rollout_id": OF_NO_ROLLOUT,
                "node": builder,
                "name": sha256,
                "body": dump_json({"archive": name, "modules": modules}),
            }
            connection.execute(sa.insert(table).values(time=format_time(database.now(connection)), **row))

    database.transact(OF_NO_ROLLOUT, write)


def find_builders(database, archives: t.Mapping[str, str], agree: int = 1) -> dict[str, str]:
    """Return {name: builder} of those ARCHIVES ({name: digest}) that are recorded with their name and digest.

    AGREE: so many builders have to have compiled an archive of the name with the same modules.
    """
    table = database.table["document"]
    query = sa.select(table.c.node, table.c.name, table.c.body).where(table.c.rollout_id == OF_NO_ROLLOUT)
    if agree == 1:
        query = query.where(table.c.name.in_(sorted(set(archives.values()))))
    rows = database.query(lambda connection: connection.execute(query).all(), nothing=[]) if archives else []
    builders, modules, alike = {}, {}, {}
    for builder, sha256, body in rows:
        found = json.loads(body)
        key = found["archive"], sha256
        builders[key], modules[key] = builder, found.get("modules")
        alike.setdefault((found["archive"], found.get("modules")), set()).add(builder)
    return {
        name: builders[name, sha256]
        for name, sha256 in archives.items()
        if (name, sha256) in builders
        and (agree == 1 or modules[name, sha256] and len(alike[name, modules[name, sha256]]) >= agree)
    }
