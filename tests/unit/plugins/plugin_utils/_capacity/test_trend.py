# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The trend: an exact line has no error, a gap is no value, and nothing is told beyond what the data can bear."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import catalog, trend

LEAST = catalog.limit("trend_days_min")
FACTOR = catalog.limit("horizon_factor")
DATES = ("earliest", "likely", "latest")


def line(slope, height=10.0, days=range(30)):
    return [(day, height + slope * day) for day in days]


def noisy(slope, spread, days=range(60), seed=1):
    source = random.Random(seed)
    return [(day, 10 + slope * day + source.gauss(0, spread)) for day in days]


def told(points, capacity, today=None):
    return trend.estimate(points, capacity, points[-1][0] if today is None and points else today or 0, catalog.limit)


TABLE = [
    # what it is, points, capacity, today, status, likely day
    ("grows and meets", line(1), 50.0, 29, "meets", 40),
    ("grows and meets today", line(1), 39.0, 29, "met", None),
    ("is above", line(0, 60), 50.0, 29, "met", None),
    ("is flat", line(0), 50.0, 29, "not_within", None),
    ("shrinks", line(-0.1), 50.0, 29, "not_within", None),
    ("grows too slowly", line(0.01), 50.0, 29, "not_within", None),
    ("meets on the last day of the horizon", line(1), 39.0 + 30 * FACTOR, 29, "meets", 29 + 30 * FACTOR),
    ("meets the day after it", line(1), 40.5 + 30 * FACTOR, 29, "not_within", None),
    ("is one day too short", line(1, days=range(LEAST - 1)), 50.0, LEAST - 2, "too_short", None),
    ("is just long enough", line(1, days=range(LEAST)), 50.0, LEAST - 1, "meets", 40),
    ("has no point", [], 50.0, 29, "too_short", None),
    ("has just not ended", line(1), 50.0, 29 + catalog.limit("trend_age_max"), "meets", 40),
    ("has ended", line(1), 50.0, 30 + catalog.limit("trend_age_max"), "stale", None),
    ("has no capacity", line(1), 0.0, 29, "no_capacity", None),
    ("is not known what of", line(1), None, 29, "no_capacity", None),
]


@pytest.mark.parametrize(
    "points, capacity, today, status, likely", [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_what_is_told(points, capacity, today, status, likely):
    found = told(points, capacity, today)
    assert (found["status"], found["likely"]) == (status, likely)
    if status != "meets":
        assert [found[name] for name in DATES] == [None] * 3


def test_a_growth_that_is_clear_has_dates_on_both_sides():
    found = told(noisy(0.5, 2), 60.0)
    assert found["status"] == "meets" and found["earliest"] < found["likely"] < found["latest"]
    assert found["slope"] == pytest.approx(0.5, abs=3 * found["slope_error"]) and found["slope_error"] > 0


def test_a_growth_that_may_be_chance_has_no_likely_date():
    found = told(noisy(0.0, 8), 30.0)
    assert found["status"] == "uncertain" and found["earliest"] is not None
    assert (found["likely"], found["latest"]) == (None, None)


def test_a_line_that_rises_within_its_error_has_no_likely_date_either():
    """It would meet the capacity in 40 days, if it were no chance."""
    points = [(day, 10 + 0.05 * day + (8 if day % 2 else -8)) for day in range(60)]
    found = told(points, 15.0)
    assert 0 < found["slope"] < 2 * found["slope_error"]
    assert (found["status"], found["likely"], found["latest"]) == ("uncertain", None, None)


def test_days_that_resemble_each_other_tell_less():
    """A long job is busy on many days in a row: the error of least squares alone would pretend."""
    alone = [(day, 10 + (1 if day % 2 else -1)) for day in range(60)]
    runs = [(day, 10 + (1 if day // 10 % 2 else -1)) for day in range(60)]
    assert told(runs, 50.0)["slope_error"] > 2 * told(alone, 50.0)["slope_error"]


def test_the_error_is_that_of_least_squares():
    """By the textbook's formula, of points whose neighbours differ."""
    points = list(enumerate([3.0, 1.0, 4.0, 2.0, 5.0, 2.5, 5.5, 3.0, 6.0, 4.5, 6.5, 4.0, 8.0, 5.0]))
    xs, ys = zip(*points)
    slope, intercept = statistics.linear_regression(xs, ys)
    residual = sum((y - intercept - slope * x) ** 2 for x, y in points)
    expected = (residual / 12 / sum((x - statistics.fmean(xs)) ** 2 for x in xs)) ** 0.5
    assert told(points, 50.0)["slope_error"] == pytest.approx(expected)


@pytest.mark.parametrize("freedom, value", [(5, 2.571), (10, 2.228), (12, 2.179), (28, 2.048), (1000, 1.962)])
def test_the_quantile_is_that_of_the_tables(freedom, value):
    assert trend.t_quantile(0.975, freedom) == pytest.approx(value, abs=0.001)


subsets = st.sets(st.integers(0, 89), min_size=3, max_size=90)


@given(slope=st.floats(-5, 5), height=st.floats(0, 5000), days=subsets)
def test_an_exact_line_has_no_error_whatever_is_missing_of_it(slope, height, days):
    found = told(line(slope, height, sorted(days)), 1e6)
    if len(days) < LEAST:
        assert (found["status"], found["slope"]) == ("too_short", None)
    else:
        assert found["slope_error"] == 0 and found["slope"] == pytest.approx(slope, abs=1e-6)


@given(days=subsets, seed=st.integers(0, 1000), slope=st.floats(-1, 1), capacity=st.floats(1, 100))
def test_nothing_is_told_that_the_days_with_data_do_not_bear(days, seed, slope, capacity):
    points = noisy(slope, 1, sorted(days), seed)
    found = told(points, capacity)
    dates = [found[name] for name in DATES if found[name] is not None]
    assert found["days"] == len(days)
    assert dates == sorted(dates) and all(0 <= day - points[-1][0] <= FACTOR * len(days) for day in dates)
    if len(days) < LEAST:
        assert found["status"] == "too_short" and dates == []
    if found["status"] == "meets":
        assert found["earliest"] is not None and found["slope"] > found["slope_error"] > 0


@given(days=st.sets(st.integers(0, 59), min_size=LEAST, max_size=59), seed=st.integers(0, 200))
def test_a_gap_is_as_if_its_days_had_never_been(days, seed):
    """A missing day is no zero and no repeated value: what is told is of the days that are there."""
    assume(max(days) >= 59 - catalog.limit("trend_age_max"))
    points = noisy(0.3, 1, sorted(days), seed)
    found = told(points, 40.0, 59)
    fitted = statistics.linear_regression(*zip(*points))
    assert found["slope"] == pytest.approx(fitted.slope) and found["days"] == len(days)
    assert found["horizon_days"] == FACTOR * len(days)
