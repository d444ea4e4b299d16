# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the benchmark of a rollout's memory does to the machine that it runs on."""

from __future__ import annotations

import multiprocessing
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import memory


@pytest.fixture
def ksm(tmp_path, monkeypatch):
    for name, value in {"run": "0", "pages_to_scan": "100", "sleep_millisecs": "20"}.items():
        (tmp_path / name).write_text(value + "\n")
    monkeypatch.setattr(memory, "KSM", tmp_path)
    return lambda: {path.name: path.read_text().strip() for path in tmp_path.iterdir()}


def test_the_kernel_merges_while_it_lasts_and_is_as_before_also_when_it_fails(ksm):
    before = ksm()
    with pytest.raises(ZeroDivisionError), memory.merging():
        assert ksm() == memory.SETTINGS and ksm()["run"] == "1"
        raise ZeroDivisionError
    assert ksm() == before


def test_a_kernel_that_merges_nothing_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "KSM", tmp_path / "ksm")
    with pytest.raises(SystemExit, match="this kernel merges no pages: there is no "), memory.merging():
        raise AssertionError("it goes on")


def test_memory_that_is_shared_counts_once(tmp_path):
    assert memory.pss(0) is None and memory.pss(2 ** 22 + 1) is None, "one that has ended"
    own = memory.sample([memory.os.getpid()])
    assert own[0] == own[1] > 10 ** 6 and own[2] == 0


def test_workers_count_and_what_they_start_does_not():
    context = multiprocessing.get_context("fork")
    over = context.Event()
    worker = context.Process(target=over.wait)
    worker.start()
    other = subprocess.Popen(["sleep", "60"])
    try:
        first = memory.os.getpid()
        whole = memory.sample([first, worker.pid, other.pid])
        assert whole[2] == 1 and whole[0] > whole[1] > 0
        assert memory.sample([first, other.pid])[2] == 0
    finally:
        over.set()
        worker.join()
        other.kill()
        other.wait()
