# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The horizontal time scale of a chart, without the hours in which nothing happened. Pure."""

from __future__ import annotations

import datetime

STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
# A pause is cut out if it is longer than this, and longer than this share of the busy time.
PAUSE_S, PAUSE_SHARE = 900.0, 0.25
BREAK_WIDTH, TICK_WIDTH = 14.0, 95.0


def busy(intervals):
    """Return the sorted union of the intervals (start, end), with short pauses closed."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    longest = max(PAUSE_S, PAUSE_SHARE * sum(end - start for start, end in merged))
    joined = merged[:1]
    for start, end in merged[1:]:
        if start - joined[-1][1] <= longest:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    return [tuple(part) for part in joined]


class TimeScale:
    """Maps times to x coordinates between LEFT and RIGHT."""

    def __init__(self, intervals, left, right):
        parts = busy(intervals) or [(0.0, 1.0)]
        total = sum(end - start for start, end in parts) or 1.0
        self.left, self.right = left, right
        self.scale = (right - left - BREAK_WIDTH * (len(parts) - 1)) / total
        self.parts = []  # (start, end, x of the start, x of the end)
        where = left
        for start, end in parts:
            self.parts.append((start, end, where, where + (end - start) * self.scale))
            where = self.parts[-1][3] + BREAK_WIDTH

    def x(self, time):
        """Return the x coordinate of a time."""
        for start, end, at, dummy in self.parts:
            if time < start:
                return at  # in a pause
            if time <= end:
                return at + (time - start) * self.scale
        return self.parts[-1][3]

    def breaks(self):
        """Return (x, seconds) of the pauses that were cut out."""
        return [(one[3] + BREAK_WIDTH / 2, other[0] - one[1]) for one, other in zip(self.parts, self.parts[1:])]

    def ticks(self):
        """Return (x, label) of the ticks, in UTC, with the date where it changes."""
        step = next((one for one in STEPS if one * self.scale >= TICK_WIDTH), STEPS[-1])
        found, day = [], None
        for start, end, dummy, dummy2 in self.parts:
            first = -(-start // step) * step
            times = [first + number * step for number in range(int((end - first) // step) + 1)] if first <= end else []
            if not times:
                times = [start]
            for time in times:
                moment = datetime.datetime.fromtimestamp(time, datetime.timezone.utc)
                words = moment.strftime("%H:%M:%S" if step < 60 or time % 60 else "%H:%M")
                if moment.date() != day and (day is not None or len(self.parts) > 1 or step >= 86400):
                    words = moment.strftime("%d %b ") + words
                day = moment.date()
                found.append((self.x(time), words))
        # Labels must not overlap.
        shown = []
        for where, words in found:
            if not shown or where - shown[-1][0] >= 62:
                shown.append((where, words))
        return shown
