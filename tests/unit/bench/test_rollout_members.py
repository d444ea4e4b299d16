# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the benchmarks of rollouts read from the journals of nodes, and that they see a limit that is not kept."""

from __future__ import annotations

import argparse
import contextlib
import json
import types

import pytest

from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import fleet, jobs, members, times
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import conftest as ledger_tests

postgresql = ledger_tests.postgresql


def journal(*entries):
    return [json.dumps([when, running, "1", "1", 0, ""]) for when, running in entries]


@pytest.mark.parametrize(
    ("lines", "span"),
    [
        (journal((1, ["x"]), (2, ["x"])), None),
        (journal((1, ["x"]), (2, []), (3, []), (4, ["x"]), (5, ["x"])), (2, 5)),
        (journal((2, [])), (2, 2)),
        ([], None),
    ],
)
def test_a_node_is_out_of_service_from_its_stop_until_it_was_last_at_work(lines, span):
    assert fleet.out_of_service(lines) == span


@pytest.mark.parametrize(
    ("spans", "most"),
    [([], 0), ([(1, 2), (2, 3)], 1), ([(1, 3), (2, 4), (3, 5)], 2), ([(1, 9), (2, 3), (4, 6), (5, 7)], 3)],
)
def test_the_most_at_once(spans, most):
    assert fleet.most_at_once(spans) == most


@pytest.mark.parametrize(("down", "cap", "kept"), [(2, 1, True), (1, 1, False), (2, 0, False)])
def test_more_out_of_service_than_allowed_is_seen(down, cap, kept):
    one = jobs.Alone.__new__(jobs.Alone)
    one.racks = {"n1": "r1", "n2": "r2", "n3": "r1"}
    spans = {"n1": (1, 3), "n2": (2, 4), "n3": (3, 5)}
    one.run = types.SimpleNamespace(out=lambda: spans, most_down=lambda: 1)
    assert one.most_out() == (2, 1)
    assert members.limits(one, "x", argparse.Namespace(down=down, rack_cap=cap))[1] is kept


@pytest.mark.slow
def test_the_benchmark_runs_and_a_failure_of_one_member_stops_all(tmp_path, postgresql):
    """Few nodes that take no time, so that the benchmark itself does not rust."""
    options = argparse.Namespace(nodes=6, members=2, down=2, rack=2, rack_cap=1, scale=10000.0, failing=1)
    with contextlib.ExitStack() as stack:
        several = jobs.Several(tmp_path, times.typical(options.nodes, 0), options, postgresql.database("bench"))
        lines, kept = members.failing(several, options, stack)
    assert kept, lines
    states = several.states()
    assert states["rolled_back"] == 1 and states["pending"] >= 1 and sum(states.values()) == 6
