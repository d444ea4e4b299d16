# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the benchmark of a rollout's memory counts."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import types

from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import memory
from ansible_collections.gpufleet.lifecycle.tests.tools import workers


def test_a_node_is_in_flight_while_it_is_at_work_on_what_takes_so_long(tmp_path):
    for name, node in {"n1": {"at": "download"}, "n2": {"at": "install 2.0.1"}, "n3": {}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "node.json").write_text(json.dumps(node))
    assert memory.in_flight(types.SimpleNamespace(nodes=tmp_path)) == 1


def test_memory_that_is_shared_counts_once(tmp_path):
    assert memory.pss(0) is None and memory.pss(2**22 + 1) is None, "one that has ended"
    own = memory.sample([memory.os.getpid()])
    assert own[0] == own[1] > 10**6 and own[2] == 0


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
        found = workers.of(first)
        assert worker.pid in found and other.pid not in found and first not in found
    finally:
        over.set()
        worker.join()
        other.kill()
        other.wait()
    assert worker.pid not in workers.of(memory.os.getpid()) and workers.of(2**22 + 1) == []
