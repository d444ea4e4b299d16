# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connections of a worker to PostgreSQL."""

from __future__ import annotations

import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger

pytestmark = pytest.mark.cores

sa = pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")


def test_a_worker_has_one_connection_for_all_it_does_and_none_while_it_waits(postgresql, tmp_path):
    import psycopg

    name = "t%d" % time.monotonic_ns()
    ledger = Ledger(str(tmp_path), "r1", "%s&application_name=%s" % (postgresql.database(name), name))
    begun = []
    sa.event.listen(ledger.store.engine, "connect", lambda connection, record: begun.append(connection))

    def served():
        """Return the number of connections of this worker that the server has."""
        with psycopg.connect(host=postgresql.base, user="postgres", autocommit=True) as watch:
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
            return watch.execute(query, [name]).fetchone()[0]

    def use():
        ledger.transact(lambda transaction: transaction.append("control", run="r", verb="pause", user="u", reason="x"))
        ledger.look(lambda view: view.paused)
        ledger.events()
        ledger.controllers()
        ledger.store.clock()

    assert not ledger.store.exists() and served() == 1
    for dummy in range(3):
        use()
        assert (len(begun), served()) == (1, 1)
    ledger.store.rest()
    until = time.monotonic() + 60
    while served():
        assert time.monotonic() < until, "the connection is still there"
        time.sleep(0.05)
    use()
    assert (len(begun), served()) == (2, 1)
    ledger.store.rest()
