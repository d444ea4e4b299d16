# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import datetime

import hypothesis
import pytest
import zoneinfo
from hypothesis import strategies

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

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
    limits.check_windows([window])
    assert limits.state_at([window], at(now), needed).open is expected


def test_windows_that_touch_are_one():
    pair = [{"from": "20:00", "to": "00:00"}, {"from": "00:00", "to": "02:00"}]
    assert limits.state_at(pair, at("2026-01-03 23:30"), 7200).open
    assert not limits.state_at(pair, at("2026-01-03 23:30"), 3 * 3600).open


def test_why_it_is_closed_and_when_it_opens():
    assert (
        limits.state_at([NIGHT], at("2026-01-03 12:00"), 0).reason
        == "outside of the maintenance window; the next one opens at 2026-01-03 22:00 UTC"
    )
    late = limits.state_at([NIGHT], at("2026-01-04 03:50"), 1200)
    assert "closes at 04:00 UTC" in late.reason and "20 min" in late.reason and "2026-01-10 22:00 UTC" in late.reason


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
def test_invalid_windows_are_named(bad, words):
    with pytest.raises(limits.WindowError, match=words):
        limits.check_windows(bad)


@pytest.mark.parametrize(
    "found, needed, words",
    [
        ([], 900, None),
        ([NIGHT], 900, None),
        ([NIGHT], 6 * 3600, None),
        ([NIGHT], 6 * 3600 + 1, "No window of rollout_windows is long enough for one node, which takes 361 min"),
        ([{"date": "2026-01-02", "from": "22:00", "to": "23:00"}], 900, "rollout_windows are over"),
        ([{"date": "2026-01-02", "from": "22:00", "to": "23:00"}, NIGHT], 900, None),
        ([{"date": "2027-01-02", "from": "22:00", "to": "23:00"}], 900, None),
        # too little is left of it
        ([{"date": "2026-01-03", "from": "11:00", "to": "12:10"}], 900, "long enough for one node"),
    ],
)
def test_windows_in_which_no_node_could_ever_start_are_refused(found, needed, words):
    if words is None:
        limits.require_room(found, at("2026-01-03 12:00"), needed)
        return
    with pytest.raises(limits.WindowError, match=words):
        limits.require_room(found, at("2026-01-03 12:00"), needed)


# Zones and a week around each of their changes of clocks: by one hour, by 30 minutes, at midnight, and none.
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("America/Santiago", "2026-04-05"),
    ("America/Santiago", "2026-09-06"),
    ("Asia/Kolkata", "2026-03-29"),
    ("UTC", "2026-03-29"),
]


def clock(minutes):
    return "%02d:%02d" % divmod(minutes % 1440, 60)


def wall_says(window, now):
    """Return True if the window is open, by local time alone."""
    wall = now.astimezone(zoneinfo.ZoneInfo(window["timezone"]))
    today, minutes = wall.date(), wall.hour * 60 + wall.minute
    opens, closes = (int(window[key][:2]) * 60 + int(window[key][3:]) for key in ("from", "to"))
    if opens < closes:
        return window["days"].count(limits.DAYS[today.weekday()]) > 0 and opens <= minutes < closes
    yesterday = limits.DAYS[(today.weekday() - 1) % 7]
    return (
        minutes >= opens
        and limits.DAYS[today.weekday()] in window["days"]
        or minutes < closes
        and yesterday in window["days"]
    )


@strategies.composite
def moments(draw):
    """A window of a zone whose clocks change, and a moment near that, both often within hours of it."""
    zone, day = draw(strategies.sampled_from(CHANGES))
    opens = draw(strategies.integers(0, 95)) * 15
    length = draw(strategies.one_of(strategies.integers(1, 16), strategies.integers(1, 95))) * 15
    days = draw(
        strategies.one_of(
            strategies.just(list(limits.DAYS)),
            strategies.lists(strategies.sampled_from(limits.DAYS), min_size=1, unique=True),
        )
    )
    window = {"from": clock(opens), "to": clock(opens + length), "days": days, "timezone": zone}
    now = at(day + " 00:00") + datetime.timedelta(
        minutes=draw(strategies.one_of(strategies.integers(-900, 1200), strategies.integers(-4000, 4000)))
    )
    return window, now


@hypothesis.given(moments(), strategies.one_of(strategies.just(0), strategies.integers(0, 240)))
@hypothesis.example(
    ({"from": "02:30", "to": "04:00", "days": ["sun"], "timezone": "Europe/Berlin"}, at("2026-10-25 01:15")), 0
)
@hypothesis.example(
    ({"from": "22:00", "to": "02:30", "days": ["sat"], "timezone": "Europe/Berlin"}, at("2026-03-29 01:15")), 0
)
@hypothesis.example(
    ({"from": "02:15", "to": "02:45", "days": ["sun"], "timezone": "Europe/Berlin"}, at("2026-10-25 01:20")), 10
)
@hypothesis.example(
    ({"from": "22:00", "to": "23:59", "days": ["sat"], "timezone": "America/Santiago"}, at("2026-04-05 03:00")), 0
)
def test_a_window_is_open_when_the_clock_on_the_wall_says_so_and_at_no_other_time(moment, needed_min):
    window, now = moment
    limits.check_windows([window])
    expected = all(wall_says(window, now + datetime.timedelta(minutes=number)) for number in range(max(needed_min, 1)))
    assert limits.state_at([window], now, needed_min * 60).open is expected, "%s, %s" % (window, now)


@pytest.mark.parametrize("zone, day", CHANGES)
def test_every_quarter_of_an_hour_around_a_change_of_clocks(zone, day):
    for opens, closes in (
        ("22:00", "02:15"),
        ("02:15", "04:00"),
        ("01:45", "02:45"),
        ("23:30", "00:30"),
        ("00:15", "03:30"),
    ):
        window = {"from": opens, "to": closes, "days": list(limits.DAYS), "timezone": zone}
        wrong = []
        for number in range(-900, 1200, 15):
            now = at(day + " 00:00") + datetime.timedelta(minutes=number)
            if limits.state_at([window], now, 0).open is not wall_says(window, now):
                wrong.append(now.strftime("%d %H:%M"))
        assert wrong == [], window


@pytest.mark.parametrize(
    "zone, words",
    [
        ("Europe", "is 'Europe', a directory of time zones"),
        ("America/Argentina", "is 'America/Argentina', a directory of time zones"),
        ("", "is empty"),
        ("  ", "is empty"),
        ("/usr/share/zoneinfo/Europe/Berlin", "is '/usr/share/zoneinfo/Europe/Berlin', a path"),
        ("../zoneinfo/Europe/Berlin", "is '../zoneinfo/Europe/Berlin', a path"),
        ("Mars/Base", "is 'Mars/Base', which this controller does not know"),
        ("Europe/Berlin ", "is 'Europe/Berlin ', which this controller does not know"),
        ("tzdata.zi", "is 'tzdata.zi', which this controller does not know"),
        ("a\0b", "which this controller does not know"),
        (None, "is None, which is not a string"),
        (2, "is 2, which is not a string"),
        (["UTC"], "is ['UTC'], which is not a string"),
    ],
)
def test_zones_that_are_none_have_their_own_words(zone, words):
    with pytest.raises(limits.WindowError) as caught:
        limits.check_windows([{"from": "22:00", "to": "23:00", "timezone": zone}])
    assert (
        str(caught.value).startswith("rollout_windows[0].timezone ")
        and words in str(caught.value)
        and "such as Europe/Berlin" in str(caught.value)
    )


@pytest.mark.parametrize("date", ["9999-12-31", "0001-01-01", "1969-12-31"])
def test_dates_that_no_clock_reaches_are_refused(date):
    with pytest.raises(limits.WindowError, match=r"rollout_windows\[0\].date is '%s'; expected a date" % date):
        limits.require_room(
            [{"date": date, "from": "22:00", "to": "23:00", "timezone": "Asia/Kolkata"}], at("2026-01-03 12:00"), 60
        )
