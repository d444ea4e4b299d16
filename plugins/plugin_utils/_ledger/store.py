# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database of the ledgers: its tables, its transactions, and waiting for it when it is away.

SQLite in one file is for one controller, PostgreSQL for several. A transaction holds its rollout alone: SQLite locks the file, before which
the processes of the controller wait for their turn; PostgreSQL locks the rollout's row. Whatever is committed is on disk.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import time
import uuid

try:
    import sqlalchemy as sa
    from sqlalchemy import exc as sa_exc
except ImportError:  # told when a ledger is opened, with the way out
    sa = None
    sa_exc = None

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import file_lock, keys

SCHEMA_VERSION = "1"
PATIENCE_S = 120.0
# What SQLite says when waiting mends nothing.
BROKEN = ("disk is full", "disk I/O error", "unable to open database file", "readonly database", "malformed", "not a database")
PEEKS = "gpufleet_peeks"
# What the meta table says of a ledger whose table of nodes has the column of their failure domains. A ledger of an
# earlier version gets it, with its index, in the first transaction that writes to it; its rows are left as they are,
# and the failure domains of a row without them are those of the node itself.
PLACED = "node_domains"
PLACE_INDEX = "gpufleet_node_place"
DIRECTORY_MODE, FILE_MODE = 0o700, 0o600


class StoreError(Exception):
    """The database cannot be used; the message says what to do. It never holds a password."""


@functools.lru_cache(maxsize=None)
def tables():
    """The tables, the same for every engine. Made by a call, so that this module can be read without SQLAlchemy."""
    meta = sa.MetaData()
    ident = sa.String(200)
    time_text = sa.String(32)
    sa.Table("gpufleet_meta", meta, sa.Column("name", ident, primary_key=True), sa.Column("value", sa.Text, nullable=False))
    sa.Table(
        "gpufleet_rollout", meta,
        sa.Column("rollout_id", ident, primary_key=True),
        sa.Column("planned", time_text),  # when it was planned last; none for a row that only holds a lock
        sa.Column("head", sa.Text),  # everything of the view but its nodes, as JSON
        sa.Column("owner", sa.Text),  # who runs it, as JSON
    )
    sa.Table(
        "gpufleet_node", meta,
        sa.Column("rollout_id", ident, primary_key=True),
        sa.Column("name", sa.String(260), primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column(keys.ORPHANED, sa.Boolean, key="orphaned", nullable=False),
        sa.Column("position", sa.Integer),
        sa.Column("canary", sa.Boolean, nullable=False),
        sa.Column("body", sa.Text, nullable=False),  # the whole node as JSON
        sa.Column("domains", sa.Text),  # its failure domains as JSON; null in a row of an earlier version
        # Who is next, without a look at all that wait. No other index of states is beside it: PostgreSQL would take that
        # one where it has no statistics.
        sa.Index(PLACE_INDEX, "rollout_id", "state", "position"),
    )
    sa.Table(
        "gpufleet_event", meta,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("rollout_id", ident, nullable=False),
        sa.Column("time", time_text, nullable=False),
        sa.Column("node", sa.String(260)),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("token", sa.String(40), nullable=False),  # of the transaction that wrote it
        sa.Column("body", sa.Text, nullable=False),
        sa.Index("gpufleet_event_rollout", "rollout_id", "id"),
    )
    sa.Table(
        "gpufleet_document", meta,
        sa.Column("rollout_id", ident, primary_key=True),
        sa.Column("node", sa.String(260), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("time", time_text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    return meta


if sa is not None:
    # Each task of a rollout is done by a copy of the process that imports this, which then has them already.
    tables()


def default_url(artifact_dir):
    return "sqlite:///" + os.path.join(os.path.abspath(os.path.expanduser(artifact_dir)), "rollouts", "ledger.sqlite")


class Store:
    """One database. Opening it makes nothing; the first transaction does."""

    def __init__(self, url, patience_s=PATIENCE_S):
        if sa is None:
            raise StoreError(
                "The ledger needs the Python module SQLAlchemy (2.0 or newer) in the environment of ansible-core on the controller: install it there.")
        try:
            self.url = sa.engine.make_url(url)
        except (sa_exc.ArgumentError, ValueError):  # no URL, or a port that is no number
            raise StoreError("rollout_ledger is no database URL; expected sqlite:////path/file or postgresql+psycopg://user@host/database.") from None
        if self.url.get_backend_name() not in ("sqlite", "postgresql"):
            raise StoreError("rollout_ledger names the database %s; sqlite and postgresql are supported." % self.url.get_backend_name())
        self.patience_s = patience_s
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.file = self.url.database if self.sqlite else None
        if self.sqlite and (not self.file or not os.path.isabs(self.file)):
            raise StoreError("rollout_ledger is %s; expected an absolute path, such as sqlite:////var/lib/gpufleet/ledger.sqlite." % self.shown)
        try:
            self.engine = sa.create_engine(self.url, poolclass=sa.pool.NullPool, connect_args=self._connect_args())
        except (ImportError, sa_exc.NoSuchModuleError) as exc:
            raise StoreError("The ledger %s needs a Python module that is missing on the controller: %s." % (self.shown, exc)) from None
        if self.sqlite:
            sa.event.listen(self.engine, "connect", self._configure)
            sa.event.listen(self.engine, "begin", self._begin)
        self.meta = tables()
        self.table = {name[len("gpufleet_"):]: table for name, table in self.meta.tables.items()}
        self.placed = False  # whether the ledger that was opened last has the column of failure domains

    @property
    def shown(self):
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)

    def _connect_args(self):
        # isolation_level None: the driver begins nothing by itself, the listener does.
        return {"timeout": 30, "isolation_level": None} if self.sqlite else {"connect_timeout": 10}

    @staticmethod
    def _configure(connection, record):
        connection.execute("PRAGMA synchronous = FULL")

    @staticmethod
    def _begin(connection):
        # Whoever only peeks locks nobody out but for the moment of a commit.
        connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get(PEEKS) else "BEGIN IMMEDIATE")

    def exists(self):
        """Whether there is anything to read; never makes it."""
        if self.sqlite:
            return os.path.exists(self.file)
        return self._patiently(lambda: sa.inspect(self.engine).has_table("gpufleet_meta"))

    def transact(self, rollout_id, work):
        """WORK(connection, repeated) in one transaction that holds ROLLOUT_ID alone, and its answer.

        It is run again while the database is away, so that it must have no effect but on the database. REPEATED says that an earlier
        try broke off, maybe after it was committed.
        """
        tries = []

        def once():
            tries.append(None)
            with self._locked(), self._open() as connection:
                self._place(connection)
                self._hold(connection, rollout_id)
                answer = work(connection, len(tries) > 1)
                connection.commit()
                return answer

        return self._patiently(once)

    @contextlib.contextmanager
    def reading(self):
        """A connection to look something up; a database that is not there has nothing in it."""
        if not self.exists():
            yield None
            return
        with contextlib.ExitStack() as stack:
            yield self._patiently(lambda: self._entered(stack))

    @contextlib.contextmanager
    def peeking(self):
        """A connection to read what never changes once it is there, without a turn and without holding anybody up; None where nothing was ever written."""
        if not self.exists():
            yield None
            return
        with contextlib.ExitStack() as stack:
            yield self._patiently(lambda: self._peek(stack))

    def _peek(self, stack):
        """A connection for peeking, until the end of STACK."""
        with contextlib.ExitStack() as attempt:
            connection = attempt.enter_context(self.engine.connect().execution_options(**{PEEKS: True}))
            found = sa.inspect(connection).has_table("gpufleet_event")
            stack.push(attempt.pop_all())
            return connection if found else None

    def _entered(self, stack):
        """A connection with its turn, both until the end of STACK."""
        with contextlib.ExitStack() as attempt:
            attempt.enter_context(self._locked())
            connection = attempt.enter_context(self._open())
            stack.push(attempt.pop_all())
            return connection

    def _locked(self):
        """The turn of this process, which a file needs; a server sees to that itself."""
        if not self.sqlite:
            return contextlib.nullcontext()
        os.makedirs(os.path.dirname(self.file), mode=DIRECTORY_MODE, exist_ok=True)
        return file_lock.hold(self.file + ".turn", self.patience_s)

    def _open(self):
        if self.sqlite and not os.path.exists(self.file):
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        connection = self.engine.connect()
        try:
            connection.begin()
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection):
        """Make the tables in an empty database; refuse those of another version."""
        meta = self.table["meta"]
        if not sa.inspect(connection).has_table("gpufleet_meta"):
            if not self.sqlite:
                # Two controllers may begin at once; this lock ends with the transaction.
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7283465)")
            self.meta.create_all(connection, checkfirst=True)
            if connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema_version")).first() is None:
                connection.execute(sa.insert(meta), [
                    {"name": "schema_version", "value": SCHEMA_VERSION}, {"name": PLACED, "value": "1"}])
        found = dict(connection.execute(sa.select(meta.c.name, meta.c.value)).all())
        if found.get("schema_version") != SCHEMA_VERSION:
            raise StoreError("The ledger %s has schema version %s, and this collection writes %s: use the collection that made it, or another ledger." % (
                self.shown, found.get("schema_version"), SCHEMA_VERSION))
        self.placed = PLACED in found

    def _place(self, connection):
        """Give a ledger of an earlier version the column of failure domains, in the transaction that writes to it first."""
        if self.placed:
            return
        meta, node = self.table["meta"], self.table["node"]
        if not self.sqlite:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7283465)")
        if connection.execute(sa.select(meta.c.value).where(meta.c.name == PLACED)).first() is None:
            connection.exec_driver_sql("ALTER TABLE gpufleet_node ADD COLUMN domains TEXT")
            connection.exec_driver_sql("DROP INDEX IF EXISTS gpufleet_node_state")
            next(index for index in node.indexes if index.name == PLACE_INDEX).create(connection)
            connection.execute(sa.insert(meta).values(name=PLACED, value="1"))
        self.placed = True

    def one_of(self, column, values, label):
        """The condition that COLUMN is one of VALUES, however many: they are sent as one parameter, named LABEL."""
        if self.sqlite:
            query = sa.text("SELECT value FROM json_each(:%s)" % label).bindparams(**{label: json.dumps(sorted(values))})
            return column.in_(query.columns(sa.column("value")))
        texts = sa.ARRAY(sa.Text)
        return column == sa.any_(sa.cast(sa.bindparam(label, sorted(values), type_=texts), texts))

    def _hold(self, connection, rollout_id):
        if self.sqlite:
            return  # BEGIN IMMEDIATE holds the whole file
        table = self.table["rollout"]
        query = sa.select(table.c.rollout_id).where(table.c.rollout_id == rollout_id).with_for_update()
        if connection.execute(query).first() is None:
            from sqlalchemy.dialects import postgresql

            connection.execute(postgresql.insert(table).values(rollout_id=rollout_id).on_conflict_do_nothing())
            connection.execute(query)

    def identity(self, connection, make=False):
        """What tells this ledger from every other one, also from one that is made anew in its place; None before the first that begins a rollout in it."""
        meta = self.table["meta"]
        query = sa.select(meta.c.value).where(meta.c.name == "ledger_id")
        found = connection.execute(query).scalar()
        if found is None and make:
            if not self.sqlite:
                # Two rollouts may ask at once; this lock ends with the transaction.
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7283467)")
                found = connection.execute(query).scalar()
            if found is None:
                found = uuid.uuid4().hex
                connection.execute(sa.insert(meta).values(name="ledger_id", value=found))
        return found

    def hold_all(self, connection):
        """Keep every other rollout of this database from beginning until the transaction ends; nodes of those that run go on.

        Only who begins a rollout asks for it, and holds the row of that rollout already, which nobody else who asks for it waits for.
        """
        if not self.sqlite:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7283466)")

    def _patiently(self, attempt):
        """ATTEMPT(), again while the database is away or busy, and no longer than the patience."""
        until = time.monotonic() + self.patience_s
        pause = 0.05
        while True:
            try:
                return attempt()
            except (sa_exc.OperationalError, sa_exc.InterfaceError) as exc:
                if self.sqlite and any(word in self._why(exc) for word in BROKEN):
                    raise StoreError("The ledger %s cannot be used: %s. See to its disk, or give it another place by rollout_ledger or "
                                     "gpufleet_artifact_dir." % (self.shown, self._why(exc))) from None
                if time.monotonic() + pause > until:
                    raise StoreError("The ledger %s did not answer within %d s: %s. Nothing was decided; see to the database and run the playbook again." % (
                        self.shown, self.patience_s, self._why(exc))) from None
            except sa_exc.DBAPIError as exc:
                raise StoreError("The ledger %s cannot be used: %s." % (self.shown, self._why(exc))) from None
            except file_lock.FileLockError as exc:
                raise StoreError("The ledger %s did not answer: %s. Nothing was decided; see to that process and run the playbook again." % (
                    self.shown, exc)) from None
            except OSError as exc:
                raise StoreError("The ledger %s cannot be used: %s. Give it a place that can be written, by rollout_ledger or gpufleet_artifact_dir." % (
                    self.shown, exc)) from None
            time.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2.0, pause * 2)

    @staticmethod
    def _why(exc):
        return " ".join(str(exc.orig or exc).split())
