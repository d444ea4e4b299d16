# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an action waits with: its worker ends, or it sleeps."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible", reason="only the controller has workers")

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking import lot
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking.waiting import LEAST_S

pytestmark = pytest.mark.cores


def test_a_worker_ends_and_the_next_one_knows_what_it_knew(place, begin, action, gone):
    first = begin()
    assert first.gives_up and first.note == {}
    with pytest.raises(gone) as ended:
        first.pause(7, deadline=12.5)
    assert ended.value.args == (0,), "a worker that fails would end the whole playbook"
    assert place.arrivals() == [("n1", "task-1", 7)] and not first.slept
    assert action.cleanup.called and action._connection.close.called and action._loader.cleanup_all_tmp_files.called
    second = begin()
    assert second.note == {"deadline": 12.5}
    with pytest.raises(gone):
        second.pause(8, job="j1")
    assert begin("n2").note == {}
    assert begin().note == {"deadline": 12.5, "job": "j1"}


def test_a_node_that_goes_down_keeps_no_worker(place, begin, action, gone):
    action.cleanup.side_effect = AnsibleConnectionFailure("it reboots")
    with pytest.raises(gone):
        begin().pause(7)
    assert place.arrivals() == [("n1", "task-1", 7)]


def test_less_than_it_costs_is_not_waited_for(place, begin, gone):
    with pytest.raises(gone):
        begin().pause(0.1)
    assert place.arrivals() == [("n1", "task-1", LEAST_S)]


@pytest.mark.parametrize("field, value", [("loop", ["a"]), ("until", ["x"]), ("retries", 3), ("check_mode", True)])
def test_what_only_the_worker_knows_keeps_it(place, begin, action, field, value):
    setattr(action._task, field, value)
    waiting = begin()
    waiting.pause(3, deadline=1)
    assert waiting.slept == [3] and not waiting.gives_up and place.arrivals() == []


def test_without_the_callback_it_sleeps(monkeypatch, begin):
    monkeypatch.setattr(lot, "CURRENT", None)
    waiting = begin()
    waiting.pause(0.1, deadline=1)
    assert waiting.slept == [0.1] and not waiting.gives_up


def test_in_another_play_it_sleeps(place, begin):
    place.open = False
    waiting = begin()
    waiting.pause(4)
    assert waiting.slept == [4] and place.arrivals() == []


def test_nobody_is_begun_anew_who_has_no_name(place, begin):
    waiting = begin("")
    waiting.pause(4)
    assert waiting.slept == [4]
