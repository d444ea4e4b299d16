# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import datetime

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import windows

NIGHT = {"days": ["sat"], "from": "22:00", "to": "04:00"}


def at(text):
    return datetime.datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    "window, now, needed, expected",
    [
        (NIGHT, "2026-01-03 21:59", 0, False),  # a Saturday
        (NIGHT, "2026-01-03 22:00", 0, True),
        (NIGHT, "2026-01-04 03:59", 0, True),  # it goes on into Sunday
        (NIGHT, "2026-01-04 04:00", 0, False),
        (NIGHT, "2026-01-04 22:30", 0, False),  # and does not open on Sunday
        (NIGHT, "2026-01-04 03:40", 1200, True),
        (NIGHT, "2026-01-04 03:41", 1200, False),
        ({"from": "08:00", "to": "09:00"}, "2026-01-07 08:30", 0, True),  # any day
        ({"date": "2026-03-01", "from": "22:00", "to": "04:00"}, "2026-03-02 03:59", 0, True),
        ({"date": "2026-03-01", "from": "22:00", "to": "04:00"}, "2026-03-02 22:00", 0, False),
        (dict(NIGHT, timezone="Europe/Berlin"), "2026-01-03 21:00", 0, True),  # winter: one hour ahead
        (dict(NIGHT, timezone="Europe/Berlin"), "2026-07-04 20:00", 0, True),  # summer: two
        (dict(NIGHT, timezone="Europe/Berlin"), "2026-07-04 19:59", 0, False),
        # The night of 28 March 2026 is an hour shorter there: 22:00 to 04:00 is 21:00 to 02:00 UTC.
        (dict(NIGHT, timezone="Europe/Berlin"), "2026-03-28 21:00", 5 * 3600, True),
        (dict(NIGHT, timezone="Europe/Berlin"), "2026-03-28 21:00", 6 * 3600, False),
        (dict(NIGHT, timezone="Europe/Berlin"), "2026-10-24 20:00", 7 * 3600, True),  # and this one an hour longer
    ],
)
def test_when_a_window_is_open(window, now, needed, expected):
    windows.check([window])
    assert windows.state_at([window], at(now), needed).open is expected


def test_windows_that_touch_are_one():
    pair = [{"from": "20:00", "to": "00:00"}, {"from": "00:00", "to": "02:00"}]
    assert windows.state_at(pair, at("2026-01-03 23:30"), 7200).open
    assert not windows.state_at(pair, at("2026-01-03 23:30"), 3 * 3600).open


def test_why_it_is_closed_and_when_it_opens():
    assert windows.state_at([NIGHT], at("2026-01-03 12:00"), 0).reason == "outside of the maintenance window; it opens next at 2026-01-03 22:00 UTC"
    late = windows.state_at([NIGHT], at("2026-01-04 03:50"), 1200)
    assert late.reason == ("the maintenance window closes at 04:00 UTC, before a node that needs 20 min could end; "
                           "it opens next at 2026-01-10 22:00 UTC")


@pytest.mark.parametrize(
    "bad, words",
    [
        ("x", "expected a list"),
        (["x"], r"rollout_windows\[0\] is 'x'"),
        ([{"from": "22:00"}], "expected from and to"),
        ([{"from": "22:00", "to": "23:00", "till": 1}], "expected from and to"),
        ([{"from": "22", "to": "23:00"}], r"\[0\].from is '22'; expected a time in quotes"),
        ([{"from": 1320, "to": "23:00"}], "from is 1320"),  # what YAML makes of 22:00 without quotes
        ([{"from": "24:00", "to": "23:00"}], "from is '24:00'"),
        ([{"from": "22:00", "to": "22:00"}], "two different times"),
        ([{"from": "22:00", "to": "23:00", "days": ["someday"]}], "days is"),
        ([{"from": "22:00", "to": "23:00", "days": []}], "days is"),
        ([{"from": "22:00", "to": "23:00", "days": ["sat"], "date": "2026-01-31"}], "days and a date"),
        ([{"from": "22:00", "to": "23:00", "date": "31.1.2026"}], "date is '31.1.2026'; expected a date in quotes"),
        ([{"from": "22:00", "to": "23:00", "timezone": "Mars/Base"}], "timezone is 'Mars/Base'"),
    ],
)
def test_windows_that_nobody_can_follow_are_named(bad, words):
    with pytest.raises(windows.WindowError, match=words):
        windows.check(bad)


@pytest.mark.parametrize(
    "found, needed, words",
    [
        ([], 900, None),
        ([NIGHT], 900, None),
        ([NIGHT], 6 * 3600, None),
        ([NIGHT], 6 * 3600 + 1, "No opening of rollout_windows is long enough for one node, which takes 361 min"),
        ([{"date": "2026-01-02", "from": "22:00", "to": "23:00"}], 900, "rollout_windows are over"),
        ([{"date": "2026-01-02", "from": "22:00", "to": "23:00"}, NIGHT], 900, None),
        ([{"date": "2027-01-02", "from": "22:00", "to": "23:00"}], 900, None),
        ([{"date": "2026-01-03", "from": "11:00", "to": "12:10"}], 900, "long enough for one node"),  # too little is left of it
    ],
)
def test_windows_in_which_no_node_could_ever_start_are_refused(found, needed, words):
    if words is None:
        windows.require_room(found, at("2026-01-03 12:00"), needed)
        return
    with pytest.raises(windows.WindowError, match=words):
        windows.require_room(found, at("2026-01-03 12:00"), needed)
