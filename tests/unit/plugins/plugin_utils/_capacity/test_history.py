# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The history of a window, as Prometheus answers it part by part."""

from __future__ import annotations

import json
import math

import pytest

pytest.importorskip("hypothesis", reason="the plain pytest run has it")

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import catalog, client, history
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.catalog import FLEET

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.just(10**400), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


def answer(series, kind="matrix"):
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": series}}).encode()


@pytest.mark.parametrize("time", [10**400, float("inf"), float("nan"), "x", None, []], ids=str)
def test_time_that_is_none_is_an_error(time):
    with pytest.raises(catalog.CapacityError) as caught:
        client.judge(200, answer([{"metric": {}, "values": [[time, "1"]]}]), "q")
    assert caught.value.code == "error"


@given(st.sampled_from(["vector", "matrix"]), st.lists(JSON, max_size=2))
def test_any_series_is_read_or_an_error(kind, series):
    try:
        found = client.judge(200, answer(series, kind), "q")
    except catalog.CapacityError as exc:
        assert exc.code == "error"
    else:
        assert all(math.isfinite(number) for dummy, points in found for point in points for number in point)


DAY, HOUR = history.DAY, history.HOUR
ALL = (FLEET, FLEET)
WINDOW = history.Window.until(10 * DAY + 1234, 3)


def made(window=WINDOW, groups=("node", "team")):
    return history.History(window, groups)


def points(hours, value=1.0, window=WINDOW):
    """Return VALUE at the end of each of some hours."""
    return [(window.start + (hour + 1) * HOUR, value) for hour in hours]


def labels(node, team="blue"):
    return {"node": node, "team": team, "environment": "e"}


def test_a_window_is_of_whole_hours_and_its_hours_are_of_days():
    assert (WINDOW.end, WINDOW.start, WINDOW.hours) == (10 * DAY, 7 * DAY, 72)
    assert [WINDOW.hour(WINDOW.start + seconds) for seconds in (0, HOUR, 3 * DAY)] == [-1, 0, 71]
    assert [WINDOW.day(hour) for hour in (0, 23, 24, 71)] == [7, 7, 8, 9]
    assert WINDOW.chunks(2) == [(7 * DAY, 9 * DAY), (9 * DAY, 10 * DAY)]
    assert history.Window.until(10 * DAY + 5 * HOUR, 1).day(0) == 9, "a day is one of UTC, wherever the window begins"


@given(st.integers(1, 800), st.integers(1, 40))
def test_parts_are_the_whole_window_and_nothing_twice(length, size):
    parts = history.Window(1000 * DAY, length).chunks(size)
    assert parts[0][0] == (1000 - length) * DAY and parts[-1][1] == 1000 * DAY
    assert [end for dummy, end in parts[:-1]] == [begin for begin, dummy in parts[1:]]


@pytest.mark.parametrize("gpus, days", [(0, 7), (12, 7), (992, 7), (1000, 6), (8000, 1), (10**6, 1)])
def test_a_part_is_small_enough_for_prometheus(gpus, days):
    assert client.chunk_days(gpus, 2_000_000) == days


def test_nodes_add_up_in_their_groups_and_in_the_fleet():
    found = made()
    found.add_hours("present", labels("a"), points(range(10), 8.0))
    found.add_hours("present", labels("b"), points(range(5, 15), 4.0))
    found.add_hours("present", labels("c", "red"), points([0], 2.0))
    assert {key: total["present"] for key, total in found.totals.items()} == {
        ("node", "a"): 80.0,
        ("node", "b"): 40.0,
        ("node", "c"): 2.0,
        ("team", "blue"): 120.0,
        ("team", "red"): 2.0,
        ALL: 122.0,
    }
    assert [
        found.hours_seen(key) for key in (("node", "a"), ("node", "b"), ("team", "blue"), ("team", "red"), ALL)
    ] == [10, 10, 15, 1, 15]
    assert found.hourly["team", "blue"]["present"][7] == 12.0


def test_a_node_that_moved_to_another_team_counts_for_each_in_its_time():
    found = made()
    found.add_hours("present", labels("a"), points(range(10)))
    found.add_hours("present", labels("a", "red"), points(range(10, 30)))
    assert (found.totals["team", "blue"]["present"], found.totals["team", "red"]["present"]) == (10.0, 20.0)
    assert found.hours_seen(("node", "a")) == 30


def test_what_is_outside_of_the_window_counts_for_nothing():
    found = made()
    found.add_hours("present", labels("a"), [(WINDOW.start, 1.0), (WINDOW.end + HOUR, 1.0)])
    found.add_peaks(FLEET, {}, [(WINDOW.start, 1.0), (WINDOW.end + HOUR, 1.0)])
    found.add_days("xids", {}, [(WINDOW.start, 1.0), (WINDOW.end + DAY, 1.0), (WINDOW.end, 5.0)])
    assert found.totals == {} and history.known(found.peaks[ALL]) == [] and found.daily["xids"] == {(): 5.0}


@pytest.mark.parametrize(
    "seen, gaps",
    [
        (range(72), []),
        ([], [(0, 72)]),
        (range(10, 72), [(0, 10)]),
        (range(60), [(60, 12)]),
        ([*range(10), *range(20, 30), *range(31, 72)], [(10, 10), (30, 1)]),
        ([0, 71], [(1, 70)]),
    ],
)
def test_gaps_are_where_no_gpu_was_seen(seen, gaps):
    found = made()
    found.add_hours("present", labels("a"), points(seen))
    assert found.gaps() == gaps


@given(st.sets(st.integers(0, 71)))
def test_what_was_seen_and_the_gaps_are_the_window(seen):
    found = made()
    found.add_hours("present", labels("a"), points(sorted(seen)))
    missing = {hour for first, number in found.gaps() for hour in range(first, first + number)}
    assert missing == set(range(72)) - seen and found.hours_seen(ALL) == len(seen)


@pytest.mark.parametrize(
    "values, quantile",
    [
        ([], None),
        ([0.4], 0.4),
        ([0.0, 1.0], 0.95),
        (list(range(101)), 95.0),
        ([3.0] * 7, 3.0),
        ([5.0, 1.0, 3.0, 2.0, 4.0], 4.8),
    ],
)
def test_the_quantile_is_that_of_prometheus(values, quantile):
    """Both interpolate between the two neighbours."""
    found = history.quantile95(values)
    assert found == quantile if quantile is None else found == pytest.approx(quantile)


def filled(hours, busy=2.0, peak=0.5):
    found = made()
    found.add_hours("measured", labels("a"), points(hours, 8.0))
    found.add_hours("busy", labels("a"), points(hours, busy))
    found.add_peaks(FLEET, {}, points(hours, peak))
    return found


def test_a_day_has_its_mean_and_its_peak_in_gpus():
    (day,) = history.days(filled(range(24, 48)), ALL, 0.75, 0.9)
    assert day == {
        "day": 8,
        "hours": 24,
        "gpus": 8.0,
        "busy": 2.0,
        "busy_p95": 4.0,
        "mean": 0.25,
        "p95": 0.5,
        "maximum": 0.5,
        "partial": False,
    }


@pytest.mark.parametrize("hours, days", [(17, []), (18, [7]), (42, [7, 8]), (41, [7])])
def test_a_day_of_which_too_little_is_known_is_none(hours, days):
    assert [day["day"] for day in history.days(filled(range(hours)), ALL, 0.75, 0.9)] == days


def test_a_day_is_of_its_hours_with_data_alone():
    """Six hours without data are not six idle hours."""
    found = filled([*range(6), *range(12, 24)])
    assert [(day["hours"], day["busy"], day["gpus"]) for day in history.days(found, ALL, 0.75, 0.9)] == [(18, 2.0, 8.0)]


def test_a_group_that_nothing_is_known_of_has_no_days():
    assert history.days(made(), ALL, 0.75, 0.9) == []


@pytest.mark.parametrize(
    "gpus, partial",
    [
        ([8, 8, 8, 8], []),
        ([8, 8, 4, 8], [2]),
        ([8, 4, 4, 8], [1, 2]),
        ([8, 7.3, 8], []),
        ([8, 7.1, 8], [1]),
        # More GPUs were bought, or some were given away: no day is like another, and none is partial.
        ([8, 8, 16, 16], []),
        ([16, 16, 8, 8], []),
        ([8, 4, 16, 16], [1]),
        ([4], []),
        ([], []),
    ],
)
def test_a_day_on_which_some_gpus_were_not_seen_is_partial(gpus, partial):
    found = [{"gpus": float(number)} for number in gpus]
    history.mark_partial(found, 0.9)
    assert [number for number, one in enumerate(found) if one["partial"]] == partial
