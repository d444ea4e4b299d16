# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that wait for the gate, without Ansible: they ask by the code of rollout_gate, at the times that it chooses.

They are threads of a few processes instead of workers of Ansible, so that a small machine can have thousands of them.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import heapq
import itertools
import multiprocessing
import os
import random
import statistics
import threading
import time

import psycopg

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_gate
from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_gate import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, steps
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.text import timestamp
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, requests
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.requests import Request
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import fit

ROLLOUT, RUN, SLOTS, POLL_S = "load", "run", 40, 1.0
HERE = owner.identify(os.getpid())
OLD, NEW = "1.0.1", "2.0.1"
# As a task that gives the gate nothing but the version.
ASKING = dict({name: option.get("default") for name, option in ARGUMENT_SPEC.items()}, version=NEW)


class Gate(rollout_gate.ActionModule):
    """rollout_gate of one member, without Ansible."""

    def __init__(self, identity):
        self.identity = identity

    def controller(self):
        return self.identity

    def request(self, node, present, phase=steps.DRAIN, **more):
        return Request(node, phase, self.identity, present, dict(ASKING, phase=phase, **more))

    def say(self, line):
        pass

    def say_brakes(self, ledger, found):
        pass


def identity(number):
    """A controller that cannot be seen from here."""
    return dict(HERE, host="member-%d" % number, boot_id=str(number), pid_namespace="pid:[1]")


def plan(place, url, names, shared, down=SLOTS, slots=SLOTS):
    """Plan a rollout in which the first DOWN nodes are down."""
    ledger = Ledger(place, ROLLOUT, url)

    def work(transaction):
        if not shared:
            owner.claim(transaction, ROLLOUT, RUN, names, identity(0))
        transaction.append(
            "plan",
            run=RUN,
            rollout_id=ROLLOUT,
            target=NEW,
            order=names,
            nodes={
                name: {"state": "pending", "from": OLD, "to": NEW, "domains": {"rack": "r%d" % (number % 100)}}
                for number, name in enumerate(names)
            },
            policy=limits.complete({"max_down": slots, "domain_caps": {"rack": 4}}, len(names)),
            sha256="f" * 64,
        )
        if shared:
            transaction.hold(members.unowned(RUN, transaction.clock()))
        for name in names[:down]:
            grant(transaction, name)

    ledger.transact(work)
    return ledger


def grant(transaction, name):
    expires = timestamp(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=4))
    for phase in (steps.DRAIN, steps.DOWN):
        transaction.append("grant", run=RUN, node=name, phase=phase, ticket="t" + phase, expires=expires)


def names_of(count):
    return ["gpu-%05d" % number for number in range(count)]


def calls(place, url, count, rounds):
    """{what: median milliseconds} of a call of the gate with COUNT planned nodes."""
    names = names_of(count)
    ledger = plan(place, url, names, False, SLOTS - 1 - rounds if SLOTS > rounds + 1 else 0, max(SLOTS, 2 * rounds))
    gate = Gate(identity(0))
    took = {"wait": [], "look": [], "go": []}
    gone = (node.name for node in list(ledger.view().nodes.everything()) if node.state == "pending")
    for name in itertools.islice(gone, rounds):
        for what, work in (
            ("wait", lambda: gate.request_ticket(ledger, gate.request(names[-1], names))),
            ("look", lambda: gate.find_wait(ledger, gate.request(names[-1], names))),
            ("go", lambda name=name: gate.request_ticket(ledger, gate.request(name, names))),
        ):
            began = time.perf_counter()
            answer = work()
            took[what].append((time.perf_counter() - began) * 1000)
            assert answer["answer"] == ("go" if what == "go" else "wait"), (what, answer)
    ledger.store.rest()
    return {what: statistics.median(times) for what, times in took.items()}


def waits(place, url, parts, until, answers):
    """Let the nodes of some members wait, each by its own clock, in one process.

    PARTS: for each member its number, its hosts, and those of them that wait.
    """
    asked, late, granted = 0, 0.0, []
    due = [
        (time.monotonic() + random.uniform(0, POLL_S), number, name) for number, dummy, part in parts for name in part
    ]
    everything = {number: hosts for number, hosts, dummy in parts}
    heapq.heapify(due)
    lock = threading.Lock()
    # A node keeps its ledger as long as its task lasts.
    ledgers = {name: Ledger(place, ROLLOUT, url) for dummy, number, name in due}

    def ask(number, name):
        gate, ledger = Gate(identity(number)), ledgers[name]
        try:
            drain = gate.request(name, everything[number])
            answer = gate.find_wait(ledger, drain) or gate.request_ticket(ledger, drain)
            if answer["answer"] == "go":
                gate.request_ticket(ledger, gate.request(name, everything[number], steps.DOWN, documents=fit(name)))
        finally:
            ledger.store.rest()
        with lock:
            if answer["answer"] == "go":
                granted.append((time.time(), name))
            elif answer["answer"] != "wait":
                raise RuntimeError("%s: %s (%s)" % (name, answer["answer"], answer["reason"]))
            else:
                pause = requests.compute_interval(POLL_S, answer["ahead"]) * random.uniform(0.8, 1.2)
                heapq.heappush(due, (time.monotonic() + pause, number, name))

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        running = set()
        while time.time() < until:
            with lock:
                first = due[0][0] if due else time.monotonic() + 0.05
            if first > time.monotonic() or len(running) >= 4:
                time.sleep(0.002)
                running = {one for one in running if not one.done() or one.result()}
                continue
            with lock:
                at, number, name = heapq.heappop(due)
            asked, late = asked + 1, max(late, time.monotonic() - at)
            running.add(threads.submit(ask, number, name))
    answers.put((asked, late, granted))


def load(server, place, url, count, parts, processes, seconds, every):
    """The numbers of COUNT nodes that wait in PARTS members, while a slot becomes free every EVERY seconds.

    Transactions are counted once every node has asked for the first time, when it finds out what the server is.
    """
    names = names_of(count + SLOTS)
    ledger = plan(place, url, names, True)
    shares = [names[number::parts] for number in range(parts)]
    for number, share in enumerate(shares):
        ledger.transact(
            lambda transaction, number=number, share=share: members.join(
                transaction, "m%d" % number, share, identity(number), transaction.clock()
            )
        )
    ledger.store.rest()
    pending = set(names[SLOTS:])
    work = [(number, share, [name for name in share if name in pending]) for number, share in enumerate(shares)]
    answers, until = multiprocessing.Queue(), time.time() + seconds
    running = [
        multiprocessing.Process(target=waits, args=(place, url, work[number::processes], until, answers))
        for number in range(processes)
    ]
    most, looks, freed, began = 0, 0, [], time.monotonic()
    with psycopg.connect(host=server.base, user="postgres", autocommit=True) as watch:
        counted_from = before = None
        for process in running:
            process.start()
        following = iter(names)
        while time.time() < until:
            # One connection is this one.
            looks += 1
            if counted_from is None and time.monotonic() - began > requests.LONGEST_S:
                counted_from, before, looks = time.monotonic(), transactions(watch), 0
            most = max(most, connections(watch) - 1)
            if time.monotonic() - began > every * (len(freed) + 1):
                name = next(following)
                ledger.transact(
                    lambda transaction, name=name: transaction.append(
                        "state", run=RUN, node=name, state="done", reason="bench"
                    )
                )
                ledger.store.rest()
                freed.append(time.time())
            time.sleep(0.05)
        lasted = time.monotonic() - began
        # Without those that count.
        counted = (transactions(watch) - before - looks) / (time.monotonic() - counted_from)
    found = [answers.get(timeout=60) for dummy in running]
    for process in running:
        process.join()
    granted = sorted(itertools.chain.from_iterable(part[2] for part in found))
    taken = [at - free for free, (at, dummy) in zip(freed, granted)]
    return {
        "asked": sum(part[0] for part in found) / lasted,
        "late": max(part[1] for part in found),
        "transactions": counted,
        "connections": most,
        "freed": len(freed),
        "taken": taken,
    }


def transactions(connection):
    """The transactions so far, without the one with which the server begins each connection."""
    connection.execute("SELECT pg_stat_clear_snapshot()")
    return connection.execute(
        "SELECT xact_commit + xact_rollback - sessions FROM pg_stat_database WHERE datname = 'postgres'"
    ).fetchone()[0]


def connections(connection):
    return connection.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").fetchone()[
        0
    ]
