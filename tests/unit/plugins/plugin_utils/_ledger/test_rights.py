# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights in PostgreSQL that the page on security names are enough for a rollout, and no more."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import webhook

pytestmark = pytest.mark.cores

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

PAGE = pathlib.Path(__file__).resolve().parents[5] / "docs" / "security.md"
GRANTS = re.search(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1)
PASSWORD = "s3cr3t"


@pytest.fixture
def granted(postgresql, tmp_path):
    """A connection as the owner of the tables, and the ledger of an account that has what the page says."""
    import psycopg

    url = postgresql.database("rights")
    with psycopg.connect(host=postgresql.base, user="postgres", autocommit=True) as connection:
        try:
            store.Store(url).transact("r0", lambda transaction, repeated: None)
            connection.execute("SET search_path TO rights")
            connection.execute("CREATE ROLE gpufleet LOGIN")
            for statement in GRANTS.replace("SCHEMA public", "SCHEMA rights").split(";\n"):
                if statement.strip():
                    connection.execute(statement)
            yield connection, Ledger(str(tmp_path), "r1", url.replace("postgres@", "gpufleet:%s@" % PASSWORD))
        finally:
            connection.execute("DROP SCHEMA rights CASCADE")
            connection.execute("DROP ROLE IF EXISTS gpufleet")


def test_the_rights_are_enough_and_no_password_is_kept(granted):
    connection, ledger = granted
    me = owner.identify_process(os.getpid())

    def plan(transaction):
        owner.claim_rollout(transaction, "r1", "run1", ["a1"], me)
        transaction.append(
            "plan",
            run="run1",
            rollout_id="r1",
            target="2",
            order=["a1"],
            nodes={"a1": {"state": "pending", "from": "1", "to": "2"}},
            policy=limits.complete_policy({"max_down": 1}, 1),
            sha256="f",
        )
        transaction.hold(members.make_shared_record("run1", transaction.clock()))

    ledger.transact(plan)
    ledger.transact(lambda transaction: transaction.append("state", run="run1", node="a1", state="done", reason=""))
    outbox = webhook.Outbox(ledger, {})
    for dummy in range(2):  # written, and replaced
        outbox.update(lambda record, now: dict(record, sent=record["sent"] + 1))
    assert outbox.look()[2]["sent"] == 2
    assert len(outbox.read_events()) == 2
    assert PASSWORD not in ledger.store.shown
    for table in ledger.store.meta.tables:
        rows = connection.execute("SELECT * FROM %s" % table).fetchall()
        assert rows or table == "gpufleet_member", table
        assert PASSWORD not in repr(rows)


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE more (a INTEGER)", "DROP TABLE gpufleet_event", "ALTER TABLE gpufleet_node ADD COLUMN more TEXT"],
)
def test_they_permit_no_other_tables(granted, statement):
    dummy, ledger = granted
    with pytest.raises(store.StoreError, match="cannot be used"):
        ledger.store.query(lambda connection: connection.exec_driver_sql(statement))


def test_the_page_names_every_table(granted):
    dummy, ledger = granted
    assert [name for name in ledger.store.meta.tables if name not in GRANTS] == []
