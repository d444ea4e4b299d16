# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import multiprocessing
import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import ledger


@pytest.fixture
def book(tmp_path):
    return ledger.Ledger(str(tmp_path), "r1")


def write(book, *events):
    with book.transaction() as transaction:
        for event in events:
            transaction.append(event)


def test_reading_a_rollout_that_was_never_planned_makes_nothing(book, tmp_path):
    assert book.read() == []
    assert not book.exists()
    assert list(tmp_path.iterdir()) == []


def test_events_come_back_in_order_with_a_time(book):
    write(book, "a")
    write(book, "b", "c")
    events = book.read()
    assert [event["event"] for event in events] == ["a", "b", "c"]
    assert all(event["time"].endswith("Z") for event in events)


def test_a_transaction_is_one_line(book):
    write(book, "a", "b")
    with open(book.journal, encoding="utf-8") as stream:
        lines = stream.read().splitlines()
    assert [event["event"] for event in json.loads(lines[0])] == ["a", "b"] and len(lines) == 1


def test_every_cut_of_the_last_line_is_a_transaction_that_never_happened(book):
    write(book, "a")
    whole = os.path.getsize(book.journal)
    write(book, "b", "c")
    with open(book.journal, "rb") as stream:
        data = stream.read()
    for cut in range(whole, len(data)):
        with open(book.journal, "wb") as stream:
            stream.write(data[:cut])
        assert [event["event"] for event in book.read()] == ["a"]
        write(book, "d")
        assert [event["event"] for event in book.read()] == ["a", "d"]


def test_damage_before_the_last_line_is_refused(book):
    write(book, "a")
    with open(book.journal, "ab") as stream:
        stream.write(b"{torn\n")
    with pytest.raises(ledger.LedgerError, match="Line 2 .* damaged"):
        book.read()
    with pytest.raises(ledger.LedgerError, match="Line 2"):
        write(book, "b")


def test_nothing_is_written_when_the_block_raises(book):
    write(book, "a")
    with pytest.raises(RuntimeError):
        with book.transaction() as transaction:
            transaction.append("b")
            raise RuntimeError
    assert [event["event"] for event in book.read()] == ["a"]


def _count_up(directory, times):
    book = ledger.Ledger(directory, "r1")
    for dummy in range(times):
        with book.transaction() as transaction:
            transaction.append("n", value=len(transaction.events))


def test_writers_beside_each_other_lose_nothing(tmp_path):
    writers = [multiprocessing.get_context("fork").Process(target=_count_up, args=(str(tmp_path), 25)) for dummy in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [event["value"] for event in ledger.Ledger(str(tmp_path), "r1").read()] == list(range(100))


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "-x", "a\n", None])
def test_names_that_would_leave_the_directory_are_refused(tmp_path, name):
    with pytest.raises(ledger.LedgerError):
        ledger.Ledger(str(tmp_path), name)
    with pytest.raises(ledger.LedgerError):
        ledger.check_node(name)


def test_documents_of_a_node(book):
    assert book.load("gpu-1", "baseline") is None
    book.save("gpu-1", "baseline", {"a": 1})
    assert book.load("gpu-1", "baseline") == {"a": 1}
    assert sorted(os.listdir(book.path("gpu-1"))) == ["baseline.json"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "x"
    ledger.write_file(str(path), "old")

    def full(*args):
        raise OSError("disk")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError):
        ledger.write_file(str(path), "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_the_last_rollout_is_remembered(tmp_path):
    assert ledger.last_id(str(tmp_path)) is None
    ledger.remember_last(str(tmp_path), "r1")
    assert ledger.last_id(str(tmp_path)) == "r1"
