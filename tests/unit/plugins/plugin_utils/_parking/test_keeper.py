# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook's process begins anew what is due, and no more at a time than there is room for."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible", reason="only the controller has workers")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking import keeper

pytestmark = pytest.mark.cores


class Strategy:
    """What the keeper needs of Ansible's."""

    def __init__(self):
        self._queued_task_cache = {("n%d" % number, "t"): {"host": "n%d" % number, "task": "t", "task_vars": {}, "play_context": None} for number in range(9)}
        self._pending_results = 9
        self.begun = []
        self.starts = True

    def _queue_task(self, host, task, task_vars, play_context):
        if not self.starts:
            return
        self.begun.append(host)
        self._pending_results += 1

    def _process_pending_results(self, iterator, one_pass=False):
        return [iterator, one_pass]


class Place:
    def __init__(self, *found):
        self.found = list(found)

    def arrivals(self):
        found, self.found = self.found, []
        return found


@pytest.mark.parametrize("parked, cores, seconds", [(1, 2, 0.4), (500, 2, 200), (500, 16, 25), (0, 1, 0)])
def test_the_looks_of_all_take_half_of_the_cores(parked, cores, seconds):
    assert keeper.spacing_s(parked, cores) == pytest.approx(seconds)


def test_a_task_is_begun_anew_when_it_is_due_and_not_before():
    now, strategy = [100.0], Strategy()
    kept = keeper.Keeper(Place(("n1", "t", 10), ("n2", "t", 5)), 2, clock=lambda: now[0])
    kept.round(strategy)
    assert strategy.begun == []
    now[0] = 105.0
    kept.round(strategy)
    assert strategy.begun == ["n2"] and strategy._pending_results == 9, "a task has one result, however often it is begun"
    now[0] = 111.0
    kept.round(strategy)
    kept.round(strategy)
    assert strategy.begun == ["n2", "n1"] and not kept.parked


def test_a_worker_that_could_not_be_started_is_started_later():
    now, strategy = [0.0], Strategy()
    kept = keeper.Keeper(Place(("n1", "t", 2)), 2, clock=lambda: now[0])
    kept.round(strategy)
    now[0], strategy.starts = 5.0, False
    kept.round(strategy)
    assert strategy.begun == [] and strategy._pending_results == 9
    now[0], strategy.starts = 14.0, True
    kept.round(strategy)
    assert strategy.begun == []
    now[0] = 15.0
    kept.round(strategy)
    assert strategy.begun == ["n1"] and strategy._pending_results == 9 and not kept.parked


def test_with_many_nobody_is_looked_at_sooner_than_the_cores_bear():
    now, strategy = [0.0], Strategy()
    kept = keeper.Keeper(Place(*[("n%d" % number, "t", 2) for number in range(9)]), 1, clock=lambda: now[0])
    kept.round(strategy)
    assert [due for due, *dummy in sorted(kept.parked)] == pytest.approx([2.0, 2.0, 2.4, 3.2, 4.0, 4.8, 5.6, 6.4, 7.2])


def test_nobody_is_begun_anew_while_there_is_no_room():
    room, strategy = [False, True, False, True], Strategy()
    now = [0.0]
    kept = keeper.Keeper(Place(("n1", "t", 1), ("n2", "t", 1)), 2, room=lambda: room.pop(0), clock=lambda: now[0])
    kept.round(strategy)
    now[0] = 6.0
    for begun in ([], ["n1"], ["n1", "n2"]):
        kept.round(strategy)
        assert strategy.begun == begun
    assert room == []


def test_workers_that_take_long_hold_up_nobody_for_good():
    now, strategy = [0.0], Strategy()
    kept = keeper.Keeper(Place(("n1", "t", 2), ("n2", "t", 2)), 2, room=lambda: False, clock=lambda: now[0])
    for at, begun in ((0.0, []), (11.0, []), (12.0, ["n1"]), (12.1, ["n1", "n2"])):
        now[0] = at
        kept.round(strategy)
        assert strategy.begun == begun


def test_what_a_broken_off_play_left_is_left_alone():
    now, strategy = [0.0], Strategy()
    kept = keeper.Keeper(Place(("other", "t", 1), ("n1", "t", 1)), 2, clock=lambda: now[0])
    kept.round(strategy)
    now[0] = 9.0
    kept.round(strategy)
    assert strategy.begun == ["n1"] and not kept.parked


def test_every_strategy_serves_it():
    class Mine(Strategy):
        pass

    seen = []
    kept = keeper.Keeper(Place(), 1)
    kept.round = seen.append
    kept.serve(Mine)
    strategy = Mine()
    assert strategy._process_pending_results("iterator", one_pass=True) == ["iterator", True] and seen == [strategy]


def test_this_ansible_core_has_what_it_needs_and_another_one_is_told():
    assert keeper.missing() == []

    class Other:
        def __init__(self):
            self._pending_results = 0

        def _queue_task(self):
            pass

    assert keeper.missing(Other) == ["_process_pending_results", "_queued_task_cache"]
