# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The history of a window, hour by hour, put together out of samples. What was not seen stays unseen. Pure."""

from __future__ import annotations

import array
import dataclasses
import math
import statistics
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.catalog import FLEET

HOUR, DAY = 3600, 86400
Key = t.Tuple[str, str]
Labels = t.Dict[str, str]


@dataclasses.dataclass(frozen=True)
class Window:
    """So many whole hours up to END, in seconds since 1970."""

    end: int
    days: int

    @classmethod
    def until(cls, now: float, days: int) -> Window:
        """Return the window of so many DAYS that ends with the last whole hour before NOW."""
        return cls(int(now) // HOUR * HOUR, days)

    @property
    def start(self) -> int:
        return self.end - self.days * DAY

    @property
    def hours(self) -> int:
        return self.days * 24

    def hour(self, time: float) -> int:
        """Return the number of the hour that ends at TIME; below 0 or too large outside of the window."""
        return int(math.floor((time - self.start) / HOUR + 0.5)) - 1

    def day(self, hour: int) -> int:
        """Return the day since 1970, in UTC, that an hour belongs to."""
        return (self.start + hour * HOUR) // DAY

    def chunks(self, days: int) -> t.List[t.Tuple[int, int]]:
        """Return parts of the window, so many DAYS long, as (start, end)."""
        return [(begin, min(begin + days * DAY, self.end)) for begin in range(self.start, self.end, days * DAY)]


class History:
    """Samples added up by group. GROUPS are labels; a node counts for its groups and for the whole fleet."""

    def __init__(self, window: Window, groups: t.Iterable[str]) -> None:
        self.window = window
        self.groups = (FLEET, *groups)
        self.totals: t.Dict[Key, t.Dict[str, float]] = {}
        # By hour, for all but nodes, of which there are many.
        self.hourly: t.Dict[Key, t.Dict[str, array.array]] = {}
        self.peaks: t.Dict[Key, array.array] = {}
        # By node, a bit for each hour in which one of its GPUs was seen.
        self.seen: t.Dict[str, int] = {}
        self.daily: t.Dict[str, t.Dict[t.Tuple[Key, ...], float]] = {}
        self.now: t.Dict[str, t.List[t.Tuple[Labels, float]]] = {}

    def _find_unseen(self) -> array.array:
        return array.array("d", [math.nan]) * self.window.hours

    def add_hours(self, query: str, labels: Labels, points: t.Iterable[t.Tuple[float, float]]) -> None:
        """Add the values of a node, one an hour."""
        keys = [(group, FLEET if group == FLEET else labels.get(group, "")) for group in self.groups]
        for time, value in points:
            hour = self.window.hour(time)
            if not 0 <= hour < self.window.hours:
                continue
            if query == "present":
                self.seen[labels.get("node", "")] = self.seen.get(labels.get("node", ""), 0) | 1 << hour
            for key in keys:
                total = self.totals.setdefault(key, {})
                total[query] = total.get(query, 0.0) + value
                if key[0] != "node":
                    hours = self.hourly.setdefault(key, {})
                    if query not in hours:
                        hours[query] = self._find_unseen()
                    before = hours[query][hour]
                    hours[query][hour] = value if math.isnan(before) else before + value

    def add_peaks(self, group: str, labels: Labels, points: t.Iterable[t.Tuple[float, float]]) -> None:
        """Add the highest values of a group, one an hour."""
        key = (group, FLEET if group == FLEET else labels.get(group, ""))
        peaks = self.peaks.setdefault(key, self._find_unseen())
        for time, value in points:
            hour = self.window.hour(time)
            if 0 <= hour < self.window.hours:
                peaks[hour] = value

    def add_days(self, query: str, labels: Labels, points: t.Iterable[t.Tuple[float, float]]) -> None:
        """Add up the values of the days of the window."""
        found = self.daily.setdefault(query, {})
        key = tuple(sorted(labels.items()))
        found[key] = found.get(key, 0.0) + sum(
            value for time, value in points if self.window.start < time <= self.window.end
        )

    def hours_seen(self, key: Key) -> int:
        """Return the number of hours in which any GPU of a group was seen."""
        if key[0] == "node":
            return bin(self.seen.get(key[1], 0)).count("1")
        return len(known(self.hourly.get(key, {}).get("present", ())))

    def gaps(self) -> t.List[t.Tuple[int, int]]:
        """Return (first hour, number of hours) of each time in which no GPU was seen."""
        present = self.hourly.get((FLEET, FLEET), {}).get("present", self._find_unseen())
        found: t.List[t.Tuple[int, int]] = []
        for hour, value in enumerate(present):
            if not math.isnan(value):
                continue
            if found and sum(found[-1]) == hour:
                found[-1] = (found[-1][0], found[-1][1] + 1)
            else:
                found.append((hour, 1))
        return found


def known(values: t.Iterable[float]) -> t.List[float]:
    return [value for value in values if not math.isnan(value)]


def quantile95(values: t.List[float]) -> t.Optional[float]:
    """Return the 95th percentile, between two values in proportion; nothing where there is no value."""
    if len(values) < 2:
        return values[0] if values else None
    return statistics.quantiles(values, n=20, method="inclusive")[18]


def mark_partial(found: t.List[t.Dict[str, t.Any]], share_min: float) -> None:
    """Mark the days on which fewer GPUs were seen than both before and after: what the others did is not known."""
    before, after, highest = [], [], 0.0
    for one in found:
        before.append(highest)
        highest = max(highest, one["gpus"])
    highest = 0.0
    for one in reversed(found):
        after.append(highest)
        highest = max(highest, one["gpus"])
    for one, most_before, most_after in zip(found, before, reversed(after)):
        one["partial"] = one["gpus"] < share_min * min(most_before, most_after)


def days(history: History, key: Key, share_min: float, gpus_min: float) -> t.List[t.Dict[str, t.Any]]:
    """Return what a group was like on each day of which enough is known; a day with less is left out."""
    hourly, peaks = history.hourly.get(key, {}), history.peaks.get(key, ())
    by_day: t.Dict[int, t.List[int]] = {}
    for hour, value in enumerate(hourly.get("measured", ())):
        if value > 0:
            by_day.setdefault(history.window.day(hour), []).append(hour)
    found = []
    for day, hours in sorted(by_day.items()):
        if len(hours) < share_min * 24:
            continue
        measured = sum(hourly["measured"][hour] for hour in hours)
        busy = sum(known(hourly["busy"][hour] for hour in hours)) if "busy" in hourly else 0.0
        high = known(peaks[hour] for hour in hours) if len(peaks) else []
        gpus_at_peak = known(peaks[hour] * hourly["measured"][hour] for hour in hours) if len(peaks) else []
        found.append(
            {
                "day": day,
                "hours": len(hours),
                "gpus": measured / len(hours),
                "busy": busy / len(hours),
                "busy_p95": quantile95(gpus_at_peak),
                "mean": busy / measured,
                "p95": quantile95(high),
                "maximum": max(high) if high else None,
            }
        )
    mark_partial(found, gpus_min)
    return found
