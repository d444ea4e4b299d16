# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A straight line through daily values, its error, and the day on which it meets the capacity. Pure.

Each day stands for itself: a day without data is no value. The error is that of least squares, made larger where
neighbouring days resemble each other, as those of a long job do: they then tell less than their number.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import typing as t

Point = t.Tuple[int, float]
# Below this share of the largest value a difference is one of rounding.
ROUNDING = 1e-9
TOO_SHORT, STALE, NO_CAPACITY = "too_short", "stale", "no_capacity"
MET, MEETS, UNCERTAIN, NOT_WITHIN = "met", "meets", "uncertain", "not_within"


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of HEIGHT at day MIDDLE and SLOPE a day, and the SPREAD of N days around it.

    SXX is the sum of squares of their distances from the middle, K how many errors an interval is wide.
    """

    middle: float
    height: float
    slope: float
    spread: float
    n: int
    sxx: float
    k: float

    def at(self, day: float) -> float:
        return self.height + self.slope * (day - self.middle)

    def band(self, day: float) -> float:
        """Return how far from the line its true height may be at a day."""
        return self.k * self.spread * math.sqrt(1 / self.n + (day - self.middle) ** 2 / self.sxx)

    @property
    def slope_error(self) -> float:
        """Return the standard error of the slope."""
        return self.spread / math.sqrt(self.sxx)


def t_quantile(p: float, freedom: int) -> float:
    """Return the quantile of Student's distribution, expanded around the normal one: to 0.001 from 5 degrees on."""
    z = statistics.NormalDist().inv_cdf(p)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def alike(points: t.List[Point], residuals: t.List[float]) -> float:
    """Return the correlation of neighbouring days' distances from the line, from 0 to 0.95."""
    pairs = [
        (residuals[number], residuals[number + 1])
        for number in range(len(points) - 1)
        if points[number + 1][0] == points[number][0] + 1
    ]
    square = sum(one * one for one in residuals) / len(residuals)
    if len(pairs) < 3 or square == 0:
        return 0.0
    return min(0.95, max(0.0, sum(one * other for one, other in pairs) / len(pairs) / square))


def line(points: t.List[Point], confidence: float) -> Line:
    """Return the line through three or more POINTS of different days, in their order."""
    first = points[0][0]
    xs, ys = [float(day - first) for day, dummy in points], [value for dummy, value in points]
    fitted = statistics.linear_regression(xs, ys)
    middle = statistics.fmean(xs)
    height = fitted.intercept + fitted.slope * middle
    scale = ROUNDING * max(map(abs, ys))
    residuals = [y - height - fitted.slope * (x - middle) for x, y in zip(xs, ys)]
    slope = 0.0 if abs(fitted.slope) * (xs[-1] - xs[0]) <= scale else fitted.slope
    spread = 0.0
    if max(map(abs, residuals)) > scale:
        likeness = alike(points, residuals)
        spread = math.sqrt(sum(r * r for r in residuals) / (len(xs) - 2) * (1 + likeness) / (1 - likeness))
    return Line(
        middle=first + middle,
        height=height,
        slope=slope,
        spread=spread,
        n=len(xs),
        sxx=sum((x - middle) ** 2 for x in xs),
        k=t_quantile((1 + confidence) / 2, len(xs) - 2),
    )


def estimate(
    points: t.List[Point], capacity: t.Optional[float], today: int, limits: t.Callable[[str], t.Any]
) -> t.Dict[str, t.Any]:
    """Return when daily POINTS meet the CAPACITY, or why that cannot be told. LIMITS gives the limits by name.

    Days are counted since 1970. Of what the line says beyond so many days of data, nothing is told.
    """
    points = sorted(points)
    found: t.Dict[str, t.Any] = {
        "status": TOO_SHORT,
        "days": len(points),
        "first_day": points[0][0] if points else None,
        "last_day": points[-1][0] if points else None,
        "now": None,
        "capacity": capacity,
        "slope": None,
        "slope_error": None,
        "horizon_days": None,
        "earliest": None,
        "likely": None,
        "latest": None,
    }
    # A line needs three points, whatever the limit.
    if len(points) < max(3, limits("trend_days_min")):
        return found
    if today - points[-1][0] > limits("trend_age_max"):
        return dict(found, status=STALE)
    fitted = line(points, limits("confidence"))
    horizon = limits("horizon_factor") * len(points)
    found.update(now=fitted.at(today), slope=fitted.slope, slope_error=fitted.slope_error, horizon_days=horizon)
    if not capacity or capacity <= 0:
        return dict(found, status=NO_CAPACITY)
    if fitted.at(today) >= capacity:
        return dict(found, status=MET)
    for ahead in range(horizon + 1):
        day = today + ahead
        height, band = fitted.at(day), fitted.band(day)
        for name, value in (("earliest", height + band), ("likely", height), ("latest", height - band)):
            if found[name] is None and value >= capacity:
                found[name] = day
    grows = fitted.slope - fitted.k * fitted.slope_error > 0
    if grows and found["likely"] is not None:
        return dict(found, status=MEETS)
    # What rises by chance alone has no likely date.
    return dict(found, status=NOT_WITHIN if found["earliest"] is None else UNCERTAIN, likely=None, latest=None)
