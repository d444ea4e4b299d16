# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ledger behind PgBouncer in transaction mode: more controllers than the server has connections for them."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import time

import pytest

pytest.importorskip("psycopg", reason="ansible-test's environment has none; the plain pytest run has it")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import LATER

pytestmark = pytest.mark.slow

POOL, MEMBERS, EACH = 2, 8, 6
NAMES = ["a%02d" % number for number in range(MEMBERS * EACH)]
# To PgBouncer's documentation of its settings: a connection of the server is given to another client after each
# transaction.
SETTINGS = """
[databases]
ledger = host=%(server)s user=postgres
[pgbouncer]
pool_mode = transaction
default_pool_size = %(pool)d
max_client_conn = 100
listen_addr =
unix_socket_dir = %(place)s
auth_type = any
admin_users = postgres
logfile = %(place)s/log
"""


@pytest.fixture
def url(postgresql, tmp_path_factory):
    """The URL of a database of its own behind PgBouncer."""
    assert shutil.which("pgbouncer", path="/usr/sbin"), "PgBouncer is not installed: run make setup-test"
    import psycopg

    place = os.path.join(postgresql.base, "bouncer")
    with psycopg.connect(host=postgresql.base, user="postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS ledger")
        connection.execute("CREATE DATABASE ledger")
    os.makedirs(place)
    with open(os.path.join(place, "pgbouncer.ini"), "w", encoding="utf-8") as stream:
        stream.write(SETTINGS % {"server": postgresql.base, "pool": POOL, "place": place})
    if postgresql.as_user:
        shutil.chown(place, "postgres")
    command = [*postgresql.as_user, "/usr/sbin/pgbouncer", os.path.join(place, "pgbouncer.ini")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while not os.path.exists(os.path.join(place, ".s.PGSQL.6432")):
            assert process.poll() is None and time.monotonic() < until, open(os.path.join(place, "log")).read()
            time.sleep(0.05)
        yield "postgresql+psycopg://postgres@/ledger?host=%s&port=6432" % place
    finally:
        process.terminate()
        process.wait(timeout=60)
        shutil.rmtree(place)


def controller(number):
    """A controller that cannot be seen from here."""
    return dict(owner.identify_process(os.getpid()), host="c%d" % number, boot_id=str(number), pid_namespace="pid:[1]")


def plan(transaction):
    transaction.append(
        "plan",
        run="run",
        rollout_id="r1",
        target="2",
        order=NAMES,
        nodes={name: {"state": "pending", "from": "1", "to": "2"} for name in NAMES},
        policy=limits.complete_policy({"max_down": 3}, len(NAMES)),
        sha256="f",
    )
    transaction.name_ledger()
    transaction.hold(members.make_shared_record("run", transaction.clock()))


def work_through(place, url, number):
    """Take the nodes of one controller through the rollout; the most nodes that were down when one went down."""
    ledger, me, most = Ledger(place, "r1", url), controller(number), 0
    mine = NAMES[number::MEMBERS]
    ledger.transact(lambda transaction: members.add_member(transaction, "m%d" % number, mine, me, transaction.clock()))
    for name in mine:
        for phase in (state.DRAIN, state.DOWN):

            def ask(transaction, name=name, phase=phase):
                members.require_membership(transaction, "r1", me)
                decision = gate.decide(transaction.view, phase, name)
                if decision.answer == "go":
                    transaction.append("grant", run="run", node=name, phase=phase, ticket="t" + phase, expires=LATER)
                return decision.answer, len(transaction.view.nodes.with_state(*state.NOT_SERVING))

            until = time.monotonic() + 300
            answer, down = ledger.transact(ask)
            while answer != "go":
                assert answer == "wait" and time.monotonic() < until
                time.sleep(0.05)
                answer, down = ledger.transact(ask)
            most = max(most, down)
        ledger.transact(
            lambda transaction, name=name: transaction.append("state", run="run", node=name, state="done", reason="x")
        )
        assert ledger.look(lambda view, name=name: view.nodes.get(name).state) == "done"
    ledger.store.rest()
    return most


def test_many_controllers_share_the_connections_of_one_server(tmp_path, url):
    ledger = Ledger(str(tmp_path), "r1", url)
    ledger.transact(plan)
    with concurrent.futures.ThreadPoolExecutor(MEMBERS) as threads:
        most = list(threads.map(lambda number: work_through(str(tmp_path), url, number), range(MEMBERS)))
    assert max(most) == 3, "the slots are used, and no more of them"
    assert ledger.look(lambda view: view.nodes.count()) == {"done": len(NAMES)}
    ledger.transact(lambda transaction: transaction.append("end", run="run"))
    assert ledger.view().finished and ledger.rehearse(lambda transaction: transaction.ledger_id)
