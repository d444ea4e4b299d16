# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maintenance windows: when a node may start, so that it also ends inside. Pure.

Private to the collection: it may change at any time.

A window is C({days: [sat, sun], from: "22:00", to: "04:00", timezone: Europe/Berlin}): it opens on each of these days, and one that
ends before it begins ends on the next day. C(date) in place of C(days) makes it a single one. Times are those on the wall there; a day
on which clocks change is an hour longer or shorter.
"""

from __future__ import annotations

import datetime
import re
import typing as t

import zoneinfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
KEYS = ("days", "date", "from", "to", "timezone")


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
            raise WindowError("%s is %r; expected from and to such as '22:00', and if need be days or date, and timezone." % (where, window))
        if "date" in window:
            if "days" in window:
                raise WindowError("%s has days and a date; expected one of them." % where)
            _date(window["date"], where + ".date")
        for key in ("from", "to"):
            _clock(window[key], "%s.%s" % (where, key))
        days = window.get("days", list(DAYS))
        if not isinstance(days, list) or not days or [day for day in days if day not in DAYS]:
            raise WindowError("%s.days is %r; expected some of %s." % (where, days, ", ".join(DAYS)))
        _zone(window, where)
        if window["from"] == window["to"]:
            raise WindowError("%s opens and closes at %s; expected two different times." % (where, window["from"]))
    return windows


def require_room(windows, now, needed_s):
    """Refuse windows in which no node could ever start: all of them are over, or too short for one node."""
    check(windows)
    if not windows:
        return
    openings = sorted(span for window in windows for span in spans(window, now) if span[1] > now)
    if not openings:
        raise WindowError("rollout_windows are over: the last one closed before %s. Give later ones." % now.strftime("%Y-%m-%d %H:%M UTC"))
    if not any(state_at(windows, max(start, now), needed_s).open for start, dummy in openings):
        raise WindowError("No opening of rollout_windows is long enough for one node, which takes %d min (rollout_node_s: %d); the next is from %s to %s." % (
            -(-needed_s // 60), needed_s, openings[0][0].strftime("%Y-%m-%d %H:%M"), openings[0][1].strftime("%Y-%m-%d %H:%M UTC")))


def _date(text, where):
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d").date()
    except (TypeError, ValueError) as exc:
        raise WindowError("%s is %r; expected a date in quotes such as '2026-01-31'." % (where, text)) from exc


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
    """(start, end) of the window's openings from yesterday to a week ahead, or of the only one, in UTC."""
    zone = _zone(window)
    opens, closes = _clock(window["from"], "from"), _clock(window["to"], "to")
    today = now.astimezone(zone).date()
    days = [_date(window["date"], "date")] if "date" in window else [today + datetime.timedelta(days=offset) for offset in range(-1, 9)]
    for day in days:
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
    following = "it opens next at %s" % later[0].strftime("%Y-%m-%d %H:%M UTC") if later else "no other is known"
    if inside:
        return Opening(False, "the maintenance window closes at %s, before a node that needs %d min could end; %s" % (
            max(end for start, end in inside).strftime("%H:%M UTC"), -(-needed_s // 60), following))
    return Opening(False, "outside of the maintenance window; %s" % following)
