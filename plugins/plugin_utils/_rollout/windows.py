# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maintenance windows: when a node may start, so that it also ends inside. Pure.

Private to the collection: it may change at any time.

A window is C({days: [sat, sun], from: "22:00", to: "04:00", timezone: Europe/Berlin}): it opens on each of these days, and one that
ends before it begins ends on the next day. Times are those on the wall there; a day on which clocks change is an hour longer or shorter.
"""

from __future__ import annotations

import datetime
import re
import typing as t

import zoneinfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
KEYS = ("days", "from", "to", "timezone")


class WindowError(Exception):
    """A window cannot be understood; the message names it and what is expected."""


class Opening(t.NamedTuple):
    open: bool
    reason: str


def check(windows):
    """Refuse windows that say nothing or that nobody can follow."""
    if not isinstance(windows, list):
        raise WindowError("rollout_windows is %r; expected a list of windows." % (windows,))
    for number, window in enumerate(windows):
        where = "rollout_windows[%d]" % number
        if not isinstance(window, dict) or set(window) - set(KEYS) or not {"from", "to"} <= set(window):
            raise WindowError("%s is %r; expected from and to such as '22:00', and if need be days and timezone." % (where, window))
        for key in ("from", "to"):
            _clock(window[key], "%s.%s" % (where, key))
        days = window.get("days", list(DAYS))
        if not isinstance(days, list) or not days or [day for day in days if day not in DAYS]:
            raise WindowError("%s.days is %r; expected some of %s." % (where, days, ", ".join(DAYS)))
        _zone(window, where)
        if window["from"] == window["to"]:
            raise WindowError("%s opens and closes at %s; expected two different times." % (where, window["from"]))
    return windows


def _clock(text, where):
    match = re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", text) if isinstance(text, str) else None
    if not match:
        raise WindowError("%s is %r; expected a time in quotes such as '22:00'." % (where, text))
    return datetime.time(int(match.group(1)), int(match.group(2)))


def _zone(window, where="window"):
    name = window.get("timezone", "UTC")
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError) as exc:
        raise WindowError("%s.timezone is %r, which this controller does not know; expected a name such as Europe/Berlin." % (where, name)) from exc


def spans(window, now):
    """(start, end) of the window's openings from yesterday to a week ahead, in UTC."""
    zone = _zone(window)
    opens, closes = _clock(window["from"], "from"), _clock(window["to"], "to")
    today = now.astimezone(zone).date()
    for offset in range(-1, 9):
        day = today + datetime.timedelta(days=offset)
        if DAYS[day.weekday()] not in window.get("days", DAYS):
            continue
        last = day if closes > opens else day + datetime.timedelta(days=1)
        start = datetime.datetime.combine(day, opens, zone).astimezone(datetime.timezone.utc)
        end = datetime.datetime.combine(last, closes, zone).astimezone(datetime.timezone.utc)
        if end > start:
            yield start, end


def state_at(windows, now, needed_s):
    """Whether a node that needs so many seconds may start now."""
    openings = sorted(span for window in windows for span in spans(window, now))
    inside = [(start, end) for start, end in openings if start <= now < end]
    needed = datetime.timedelta(seconds=needed_s)
    # Windows that touch are one.
    for start, end in inside:
        for following, last in openings:
            if start < following <= end < last:
                end = last
        if now + needed <= end:
            return Opening(True, "")
    later = [start for start, end in openings if start > now]
    following = "it opens next at %s" % later[0].strftime("%Y-%m-%d %H:%M UTC") if later else "no other opens within a week"
    if inside:
        return Opening(False, "the maintenance window closes at %s, before a node that needs %d min could end; %s" % (
            max(end for start, end in inside).strftime("%H:%M UTC"), -(-needed_s // 60), following))
    return Opening(False, "outside of the maintenance window; %s" % following)
