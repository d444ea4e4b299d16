# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import itertools
import multiprocessing
import os
import pathlib
import signal
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files, store

pytestmark = pytest.mark.cores

RUNBOOK = pathlib.Path(__file__).resolve().parents[5] / "docs" / "runbooks" / "upgrade.md"
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "turn")


def hold(path, has_it, until):
    with files.hold_in_turn(path, 600):
        has_it.set()
        until.wait(600)


@pytest.fixture
def other(path):
    """Another process that has the lock, and the event that ends it."""
    has_it, until = FORK.Event(), FORK.Event()
    process = FORK.Process(target=hold, args=(path, has_it, until))
    process.start()
    assert has_it.wait(600)
    yield process, until
    if process.is_alive():  # one that was killed while it waited would be waited for
        until.set()
    process.join()


def count(path, counter, times):
    for dummy in range(times):
        with files.hold_in_turn(path, 60):
            seen = int(open(counter, encoding="ascii").read())
            time.sleep(0.001)
            with open(counter, "w", encoding="ascii") as stream:
                stream.write(str(seen + 1))


def test_one_at_a_time(path, tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    workers = [FORK.Process(target=count, args=(path, str(counter), 10)) for dummy in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert counter.read_text() == "80" and os.stat(path).st_mode & 0o777 == 0o600


def test_a_process_that_holds_it_for_too_long_is_named(path, other):
    process, dummy = other
    with pytest.raises(files.FileLockError, match="process %d has held %s for more than 1 s" % (process.pid, path)):
        with files.hold_in_turn(path, 1):
            raise AssertionError("two have the lock")


def test_a_process_waits_as_long_as_others_acquire_the_lock(path, other, monkeypatch):
    """Other processes hold the lock, in total longer than the patience. At each check another minute has passed."""
    looks = itertools.count(1)

    def clock():
        look = next(looks)
        os.utime(path, ns=(look, look))
        if look == 6:
            other[1].set()
        return 60.0 * look

    monkeypatch.setattr(files, "LOOK_S", 0.01)
    monkeypatch.setattr(files.time, "monotonic", clock)
    with files.hold_in_turn(path, 100):
        assert next(looks) > 6


def test_a_process_waits_no_longer_than_the_patience_if_no_other_acquires_the_lock(path, other, monkeypatch):
    looks = itertools.count(1)
    monkeypatch.setattr(files, "LOOK_S", 0.01)
    monkeypatch.setattr(files.time, "monotonic", lambda: 60.0 * next(looks))
    with pytest.raises(files.FileLockError), files.hold_in_turn(path, 100):
        raise AssertionError("two have the lock")
    assert next(looks) < 6


def test_it_ends_with_the_process_that_has_it(path, other):
    os.kill(other[0].pid, signal.SIGKILL)
    other[0].join()
    with files.hold_in_turn(path, 10), open(path, "rb") as stream:
        assert files.read_holder(stream.fileno()) == str(os.getpid())


def test_one_that_gave_up_takes_nothing_later(path, other):
    with pytest.raises(files.FileLockError), files.hold_in_turn(path, 0.1):
        pass
    other[1].set()
    other[0].join()
    for dummy in range(3):
        with files.hold_in_turn(path, 5):
            pass


def test_the_ledger_names_the_process_that_holds_the_lock_and_decides_nothing(tmp_path):
    url = "sqlite:///%s/ledger.sqlite" % tmp_path
    store.Store(url).transact("r", lambda connection, repeated: None)
    has_it, until = FORK.Event(), FORK.Event()
    process = FORK.Process(target=hold, args=(str(tmp_path / "ledger.sqlite.turn"), has_it, until))
    process.start()
    assert has_it.wait(600)
    done = []
    try:
        impatient = store.Store(url, patience_s=0.1)
        with pytest.raises(
            store.StoreError, match="did not answer: process %d has held .*Nothing was decided" % process.pid
        ):
            impatient.transact("r", lambda connection, repeated: done.append(1))
        with pytest.raises(store.StoreError, match="process %d has held" % process.pid):
            impatient.query(lambda connection: done.append(2))
    finally:
        until.set()
        process.join()
    assert not done
    assert store.Store(url).query(lambda connection: "read") == "read"
    store.Store(url).transact("r", lambda connection, repeated: done.append(3))
    assert done == [3], "a reader releases the lock"


def test_the_files_of_a_ledger_are_documented_and_the_lock_may_be_removed_while_it_is_not_used(tmp_path):
    database = store.Store("sqlite:///%s/ledger.sqlite" % tmp_path)
    table = database.table["rollout"]
    database.transact("r", lambda connection, repeated: connection.execute(table.insert().values(rollout_id="r")))
    assert sorted(os.listdir(tmp_path)) == ["ledger.sqlite", "ledger.sqlite.turn"]
    assert all("`%s`" % name in RUNBOOK.read_text(encoding="utf-8") for name in os.listdir(tmp_path))
    os.remove(str(tmp_path / "ledger.sqlite.turn"))
    assert database.query(lambda connection: connection.execute(table.select()).scalars().all()) == ["r"]
    assert sorted(os.listdir(tmp_path)) == ["ledger.sqlite", "ledger.sqlite.turn"], "it is created again"
