# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark of rollouts: its times, its model, and what it counts."""

from __future__ import annotations

import statistics

import pytest

from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import __main__ as bench
from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import model, times


def test_times_are_the_typical_ones_and_the_same_for_the_same_draw():
    drawn = times.typical(4000, 3)
    assert drawn == times.typical(4000, 3) != times.typical(4000, 4)
    minutes = sorted(sum(steps) / 60 for steps in drawn)
    assert 11.5 < statistics.median(minutes) < 12.6
    assert 0.02 < sum(one > 24 for one in minutes) / 4000 < 0.06, "stragglers"
    assert 45 < minutes[-1] < 90


def test_bounds_and_orders_of_a_small_fleet():
    drawn = [[1, 0, 0, 3], [2, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 4]]  # 4, 2, 2, 4 seconds
    assert times.lower_bound(drawn, 2) == 6
    assert times.window(drawn, 2) == 8  # 4 and then 4 in one slot, 2 and 2 in the other
    assert times.waves(drawn, 2) == 8
    assert times.linear(drawn, 2) == (2 + 3) + (1 + 4)
    assert times.lower_bound(drawn, 4) == times.window(drawn, 4) == 4


@pytest.mark.parametrize(("number", "down"), [(12, 1), (40, 4), (200, 10)])
def test_the_gate_itself_loses_no_time(number, down):
    drawn = times.typical(number, 1)
    one = model.Model(drawn, {"max_down": down, "failure_budget": 1})
    assert one.run() == pytest.approx(times.window(drawn, down))
    assert one.states() == {"done": number} and one.most_down == down


@pytest.mark.parametrize("budget", [1, 2, 5])
@pytest.mark.parametrize("bad", [{0}, {3, 4, 5, 6, 7}, set(range(60))])
def test_after_the_first_bad_node_no_more_go_than_the_budget_less_one_and_those_in_flight(budget, bad):
    drawn = times.typical(60, 2)
    one = model.Model(drawn, {"max_down": 6, "failure_budget": budget, "common_cause": 0}, bad=bad)
    one.run()
    states = one.states()
    failed = states.get("rolled_back", 0)
    if len(bad) < budget:
        assert states == {"done": 60 - len(bad), "rolled_back": len(bad)}
        return
    assert failed >= budget and states["pending"] == 60 - failed - states.get("done", 0) > 0
    if bad == set(range(60)):
        assert failed <= budget - 1 + 6


def test_waves_in_the_model_are_those_of_serial():
    drawn = times.typical(50, 1)
    one = model.Model(drawn, {"max_down": 10, "failure_budget": 1, "waves": [10]}, poll_s=0.0)
    assert one.run() == pytest.approx(times.waves(drawn, 10))
    assert one.states() == {"done": 50}


def test_the_model_keeps_its_limits_and_says_so_when_it_does_not(monkeypatch):
    monkeypatch.setattr(bench, "SIZES", ((100, 10, 3, True),))
    assert bench.modelled(model, times)[1] is True
    monkeypatch.setattr(bench, "EFFICIENCY", 0.999)
    lines, kept = bench.modelled(model, times)
    assert kept is False and "LIMIT NOT KEPT" in lines[-1]
