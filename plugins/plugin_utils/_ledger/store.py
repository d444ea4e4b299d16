# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database of the ledgers: its tables, its transactions, and retries while it is not available.

SQLite in one file is for one controller, PostgreSQL for several. A transaction locks its rollout: in SQLite the file,
after files.py has serialized the processes of the controller; in PostgreSQL the row of the rollout. What is
committed is on disk.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import re
import time
import uuid

try:
    import sqlalchemy as sa
    from sqlalchemy import exc as sa_exc
except ImportError:  # refused when a ledger is opened, with the next step
    sa = None
    sa_exc = None

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import SCHEMA_VERSION, define_tables

PATIENCE_S = 120.0
# Errors of SQLite for which a retry does not help.
BROKEN = (
    "disk is full",
    "disk I/O error",
    "unable to open database file",
    "readonly database",
    "malformed",
    "not a database",
)
# File systems over a network: what one machine locks or writes there, another may not see
# (https://www.sqlite.org/lockingv3.html, 6.0).
REMOTE = re.compile(
    r"nfs4?|cifs|smb3?|smbfs|9p|afs|ceph|lustre|gpfs|beegfs|(fuse\.)?glusterfs|fuse\.(sshfs|ceph|s3fs).*"
)
PEEKS = "gpufleet_peeks"
NO_RIGHT = "42501"  # insufficient_privilege, Appendix A of PostgreSQL's documentation
WHY = 600  # characters of what the driver says
# Settings in the query of a URL that are shown, with values of this form.
PUBLIC = {
    "host": re.compile(r"[A-Za-z0-9_./:,-]{1,253}"),
    "port": re.compile(r"[0-9]{1,5}"),
    "sslmode": re.compile(r"disable|allow|prefer|require|verify-ca|verify-full"),
}
DIRECTORY_MODE, FILE_MODE = 0o700, 0o600


class StoreError(Exception):
    """The database cannot be used; the message says what to do. It never holds a password."""


def is_public(name, value) -> bool:
    """Return True if a setting in the query of a URL is one that is no secret, with a value that is none."""
    return name in PUBLIC and isinstance(value, str) and bool(PUBLIC[name].fullmatch(value))


if sa is not None:
    # Tasks run in forks of the process that imports this module, which then inherit the tables.
    define_tables()


def default_url(artifact_dir) -> str:
    """Return the URL of the SQLite file in the artifact directory."""
    return "sqlite:///" + os.path.join(os.path.abspath(os.path.expanduser(artifact_dir)), "rollouts", "ledger.sqlite")


class Store:
    """One database. The first transaction creates it and its tables, opening it does not."""

    def __init__(self, url, patience_s=PATIENCE_S) -> None:
        if sa is None:
            raise StoreError(
                "The ledger needs the Python module SQLAlchemy (2.0 or newer), which is missing on the controller. "
                "Install it in the environment of ansible-core."
            )
        try:
            self.url = sa.engine.make_url(url)
        except (sa_exc.ArgumentError, ValueError):  # not a URL, or a port that is not a number
            raise StoreError(
                "rollout_ledger is not a database URL; expected sqlite:////path/file or "
                "postgresql+psycopg://user@host/database."
            ) from None
        if self.url.get_backend_name() == "postgresql" and str(url).count("@") > 1:
            # SQLAlchemy takes what is behind the first one for the host, which is looked up by name and shown.
            raise StoreError(
                "rollout_ledger has more than one @; expected one, before the host. Write each @ of the user, the "
                "password and the query as %40, or give the password in ~/.pgpass or PGPASSWORD."
            )
        if self.url.get_backend_name() not in ("sqlite", "postgresql"):
            raise StoreError(
                "rollout_ledger names the database %s; expected sqlite or postgresql." % (self.url.get_backend_name())
            )
        self.patience_s = patience_s
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.file = self.url.database if self.sqlite else None
        if self.sqlite and (not self.file or not os.path.isabs(self.file)):
            raise StoreError(
                "rollout_ledger is %s; expected an absolute path, such as sqlite:////var/lib/gpufleet/ledger.sqlite."
                % (self.shown)
            )
        mount = claim.find_mount(os.path.dirname(self.file), self._read_mounts()) if self.sqlite else None
        if mount and REMOTE.fullmatch(mount[1]):
            raise StoreError(
                "The ledger %s is on %s, a file system over the network (%s), where the locks of SQLite do not hold. "
                "Set rollout_ledger to a file on a disk of this controller, such as "
                "sqlite:////var/lib/gpufleet/ledger.sqlite, or to a database in PostgreSQL. Nothing was changed."
                % (self.shown, mount[0], mount[1])
            )
        try:
            self.engine = sa.create_engine(
                self.url, connect_args=self._connect_args(), hide_parameters=True, **self._pool_options()
            )
        except (sa_exc.ArgumentError, TypeError, ValueError) as exc:
            raise self._unusable_error(exc) from None
        except (ImportError, sa_exc.NoSuchModuleError) as exc:
            raise StoreError(
                "The ledger %s needs a Python module that is missing on the controller: %s. Install it in the "
                "environment of ansible-core." % (self.shown, redaction.describe(exc, self._list_secrets()))
            ) from None
        if self.sqlite:
            sa.event.listen(self.engine, "connect", self._configure)
            sa.event.listen(self.engine, "begin", self._begin)
        self.meta = define_tables()
        self.table = {name[len("gpufleet_") :]: table for name, table in self.meta.tables.items()}
        self.there = False  # whether a connection has found the tables

    @property
    def shown(self) -> str:
        """The URL without its password, and without settings of the driver whose values may be secrets."""
        query = {name: value for name, value in self.url.query.items() if is_public(name, value)}
        return self.url.set(query=query).render_as_string(hide_password=True)

    def _list_secrets(self) -> list[str]:
        """Return the values of the URL that are not shown."""
        hidden = [value for name, value in self.url.query.items() if not is_public(name, value)]
        flat = [one for value in hidden for one in ([value] if isinstance(value, str) else value)]
        return [self.url.password or "", *flat]

    def _unusable_error(self, exc) -> StoreError:
        return StoreError(
            "The ledger %s cannot be used: %s. Correct rollout_ledger."
            % (self.shown, redaction.describe(exc, self._list_secrets()))
        )

    def _connect(self):
        try:
            return self.engine.connect()
        except (sa_exc.ArgumentError, TypeError, ValueError) as exc:  # the driver does not take a setting of the URL
            raise self._unusable_error(exc) from None

    def _read_mounts(self) -> list[tuple]:
        """Return the mounts of the controller; none on one without /proc, such as macOS."""
        if not os.path.isdir(os.path.dirname(claim.MOUNTS)):
            return []
        try:
            return claim.read_mounts()
        except OSError as exc:
            raise StoreError(
                "%s cannot be read: %s. Whether the ledger %s is on a file system over the network is not known. Mount "
                "/proc on this controller, or set rollout_ledger to a database in PostgreSQL. Nothing was changed."
                % (claim.MOUNTS, exc.strerror, self.shown)
            ) from None

    def _connect_args(self) -> dict:
        if self.sqlite:
            # isolation_level None: the driver begins no transaction, the listener does.
            return {"timeout": 30, "isolation_level": None}
        # Behind PgBouncer in transaction mode the next transaction may be on another connection of the server, where a
        # statement that was prepared is not known.
        return dict({"connect_timeout": 10}, **({"prepare_threshold": None} if self._uses_psycopg() else {}))

    def _uses_psycopg(self) -> bool:
        return self.url.get_driver_name() == "psycopg"

    def _pool_options(self) -> dict:
        """Return the options of the engine for its connections: one for the whole task, until rest()."""
        if self.sqlite:
            return {"poolclass": sa.pool.NullPool}
        # Each new connection would be asked for a type that the ledger does not use.
        return dict(
            {"pool_size": 1, "max_overflow": 2}, **({"use_native_hstore": False} if self._uses_psycopg() else {})
        )

    def rest(self) -> None:
        """Close the connection for a while in which it is not used, since a server has a limited number of them."""
        self.engine.dispose()

    @staticmethod
    def _configure(connection, record) -> None:
        connection.execute("PRAGMA synchronous = FULL")

    @staticmethod
    def _begin(connection) -> None:
        # A connection for peeking takes no lock that keeps others from writing.
        connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get(PEEKS) else "BEGIN IMMEDIATE")

    def exists(self) -> bool:
        """Return True if the database has tables to read. Does not create it."""
        if self.sqlite:
            return os.path.exists(self.file)

        def once() -> bool:
            with self._connect() as connection:
                return sa.inspect(connection).has_table("gpufleet_meta")

        return self._call_patiently(once)

    def transact(self, rollout_id, work):
        """Call WORK(connection, repeated) in one transaction that locks ROLLOUT_ID, and return its result.

        WORK is called again while the database is not available, and must have no effect but on the database. REPEATED
        is True if an earlier attempt was interrupted, possibly after its commit.
        """
        tries = []

        def once():
            tries.append(None)
            with self._open_lock(), self._begin_work() as connection:
                self._hold(connection, rollout_id)
                answer = work(connection, len(tries) > 1)
                connection.commit()
                return answer

        return self._call_patiently(once)

    def query(self, work, nothing=None):
        """Return WORK(connection), or NOTHING from a ledger without tables.

        WORK is called again while the database is not available, also if the connection ends on the way, and must have
        no effect.
        """
        if self.sqlite and not self.exists():
            return nothing

        def once():
            with self._open_lock(), self._begin_work(create=self.sqlite) as connection:
                return work(connection) if self.sqlite or self.there else nothing

        return self._call_patiently(once)

    def peek(self, work, nothing=None) -> list:
        """As query, without a lock: for what never changes once written."""
        if not self.exists():
            return nothing

        def once() -> list:
            with self._connect().execution_options(**{PEEKS: True}) as connection:
                return work(connection) if sa.inspect(connection).has_table("gpufleet_event") else nothing

        return self._call_patiently(once)

    def _open_lock(self) -> contextlib.AbstractContextManager:
        """Return the lock that serializes the processes of this controller, which only a file needs."""
        if not self.sqlite:
            return contextlib.nullcontext()
        os.makedirs(os.path.dirname(self.file), mode=DIRECTORY_MODE, exist_ok=True)
        return files.hold_in_turn(self.file + ".turn", self.patience_s)

    def _begin_work(self, create=True):
        if self.sqlite and not os.path.exists(self.file):
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        connection = self._connect()
        try:
            connection.begin()
            self._prepare(connection, create)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection, create) -> None:
        """Create the tables in an empty database, if CREATE; refuse a schema of a version that is not known."""
        meta = self.table["meta"]
        version = sa.select(meta.c.value).where(meta.c.name == "schema_version")
        # The tables of a server are never removed; a file may be.
        self.there = (self.there and not self.sqlite) or sa.inspect(connection).has_table("gpufleet_meta")
        if not self.there:
            if not create:
                return
            if not self.sqlite:
                # Two controllers may do this at the same time; the lock ends with the transaction.
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7283465)")
            self.meta.create_all(connection, checkfirst=True)
            if connection.execute(version).first() is None:
                connection.execute(sa.insert(meta).values(name="schema_version", value=SCHEMA_VERSION))
        found = connection.execute(version).scalar()
        if found != SCHEMA_VERSION:
            raise StoreError(
                "The ledger %s has schema version %s; expected %s. Use the version of the collection that created it, "
                "or another ledger." % (self.shown, found, SCHEMA_VERSION)
            )

    def clock_column(self) -> list:
        """Return the column, in a list, by which any query also reads the clock of the database; [] for a file.

        clock_timestamp() also moves within a transaction, which may have waited for its lock.
        """
        return [] if self.sqlite else [sa.func.clock_timestamp()]

    def now(self, connection) -> datetime.datetime:
        """Return the time, aware, of the clock that all controllers share: the database's, or this machine's."""
        if self.sqlite:
            return datetime.datetime.now(datetime.timezone.utc)
        return connection.execute(sa.select(*self.clock_column())).scalar().astimezone(datetime.timezone.utc)

    def clock(self) -> datetime.datetime:
        """Return the time of the same clock outside of a transaction, also where the database has no tables yet."""
        if self.sqlite:
            return self.now(None)

        def once() -> datetime.datetime:
            with self._connect() as connection:
                return self.now(connection)

        return self._call_patiently(once)

    def one_of(self, column, values, label):
        """Return the condition that COLUMN is one of VALUES. They are sent as one parameter, so there may be many."""
        if self.sqlite:
            query = sa.text("SELECT value FROM json_each(:%s)" % label).bindparams(
                **{label: json.dumps(sorted(values))}
            )
            return column.in_(query.columns(sa.column("value")))
        texts = sa.ARRAY(sa.Text)
        return column == sa.any_(sa.cast(sa.bindparam(label, sorted(values), type_=texts), texts))

    def _hold(self, connection, rollout_id) -> None:
        if self.sqlite:
            return  # BEGIN IMMEDIATE locks the whole file
        table = self.table["rollout"]
        query = sa.select(table.c.rollout_id).where(table.c.rollout_id == rollout_id).with_for_update()
        if connection.execute(query).first() is None:
            from sqlalchemy.dialects import postgresql

            connection.execute(postgresql.insert(table).values(rollout_id=rollout_id).on_conflict_do_nothing())
            connection.execute(query)

    def identity(self, connection, make=False) -> str | None:
        """Return the identity of this ledger, unlike that of any other, also of one that replaced it later.

        None before a rollout has begun in it, unless MAKE.
        """
        meta = self.table["meta"]
        query = sa.select(meta.c.value).where(meta.c.name == "ledger_id")
        found = connection.execute(query).scalar()
        if found is None and make:
            if not self.sqlite:
                # Two rollouts may do this at the same time; the lock ends with the transaction.
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7283467)")
                found = connection.execute(query).scalar()
            if found is None:
                found = uuid.uuid4().hex
                connection.execute(sa.insert(meta).values(name="ledger_id", value=found))
        return found

    def block_new_rollouts(self, connection) -> None:
        """Keep other rollouts of this database from beginning until the transaction ends. Running rollouts continue.

        A transaction that begins a rollout takes this lock after the row of its own rollout. No other transaction that
        holds this lock waits for that row, so there is no deadlock.
        """
        if not self.sqlite:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7283466)")

    def lock_pool(self, connection, pool) -> None:
        """Let one transaction at a time decide for the rollouts of a pool.

        It is taken after the row of the rollout, and no transaction that has it waits for the row of another rollout,
        so there is no deadlock.
        """
        if not self.sqlite:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7283468, hashtext(:pool))").bindparams(pool=pool))

    def _call_patiently(self, attempt):
        """Call ATTEMPT(), again while the database is not available or busy, for up to patience_s."""
        until = time.monotonic() + self.patience_s
        pause = 0.05
        while True:
            try:
                return attempt()
            except (sa_exc.OperationalError, sa_exc.InterfaceError) as exc:
                if self.sqlite and any(word in self._explain_error(exc) for word in BROKEN):
                    raise StoreError(
                        "The ledger %s cannot be used: %s. Check its disk, or set another place with rollout_ledger or "
                        "gpufleet_artifact_dir." % (self.shown, self._explain_error(exc))
                    ) from None
                if time.monotonic() + pause > until:
                    raise StoreError(
                        "The ledger %s did not answer within %d s: %s. Nothing was decided. Check the database, then "
                        "run the playbook again." % (self.shown, self.patience_s, self._explain_error(exc))
                    ) from None
            except sa_exc.DBAPIError as exc:
                if getattr(exc.orig, "sqlstate", None) == NO_RIGHT:
                    raise StoreError(
                        "The ledger %s cannot be used: %s. Its user needs to create, read and write tables: as the "
                        "owner of the database, GRANT USAGE, CREATE ON SCHEMA public TO that user, or let it own the "
                        "database." % (self.shown, self._explain_error(exc))
                    ) from None
                raise StoreError("The ledger %s cannot be used: %s." % (self.shown, self._explain_error(exc))) from None
            except files.FileLockError as exc:
                raise StoreError(
                    "The ledger %s did not answer: %s. Nothing was decided. Check that process, then run the playbook "
                    "again." % (self.shown, exc)
                ) from None
            except OSError as exc:
                raise StoreError(
                    "The ledger %s cannot be used: %s. Set a place that can be written, with rollout_ledger or "
                    "gpufleet_artifact_dir." % (self.shown, exc)
                ) from None
            time.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2.0, pause * 2)

    def _explain_error(self, exc) -> str:
        return redaction.describe(exc.orig or exc, self._list_secrets(), WHY)
