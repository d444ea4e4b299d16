# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fill thresholds and labels into the expressions and texts of rules, and find the series that they read. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring.catalog import MonitoringError

NODE = ("environment", "rack", "node", "class", "model", "team")
GPU = NODE + ("gpu", "UUID")
# DCGM's blanks: from 2147483632 in 32 bits, 140737488355328 in floating point and 9223372036854775792 in 64 bits on.
BLANK = 2147483632
PLACE = re.compile(
    r"\$\{(?:clean:(?P<series>[A-Za-z_]\w*(?:\{[^}]*\})?)|(?P<name>[a-z_]+)(?::(?P<form>words|percent))?)\}"
)
KEYWORDS = set("and or unless by without on ignoring group_left group_right offset bool inf nan".split())
STRINGS = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')
# What stands in braces, in brackets, and behind the words that take lists of labels, names no series.
ELSEWHERE = re.compile(
    r"\{[^{}]*\}|\[[^\[\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)|\boffset\s+[0-9a-z]+"
)
SERIES = re.compile(r"(?<![\w:.$])([A-Za-z_:][\w:]*)(?!\w|\s*\()")


def number(value: t.Union[int, float]) -> str:
    """Return VALUE as PromQL and people write it."""
    return "%d" % value if value == int(value) else repr(value)


def words(seconds: t.Union[int, float]) -> str:
    """Return a time in words: 3 days, 1 hour, 90 s."""
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            return "%d %s%s" % (seconds // size, name, "" if seconds == size else "s")
    return "%s s" % number(seconds)


def names(text: str) -> t.Set[str]:
    """Return the names of the thresholds that TEXT needs."""
    return {found.group("name") for found in PLACE.finditer(text) if found.group("name")} - {
        "node",
        "gpu",
        "price_text",
    }


def missing(text: str, thresholds: t.Dict[str, t.Dict[str, t.Any]]) -> t.List[str]:
    """Return the names of the thresholds that TEXT needs and that have no value."""
    return sorted(name for name in names(text) if name in thresholds and thresholds[name]["value"] is None)


def fill(text: str, thresholds: t.Dict[str, t.Dict[str, t.Any]]) -> str:
    """Return TEXT with its places filled; a place that names nothing is an error."""

    def place(found: t.Match[str]) -> str:
        if found.group("series"):
            return "(%s < %d)" % (found.group("series"), BLANK)
        name, form = found.group("name"), found.group("form")
        if name in ("node", "gpu"):
            return ", ".join(NODE if name == "node" else GPU)
        if name == "price_text":
            return price_text(thresholds)
        if name not in thresholds:
            raise MonitoringError(
                "${%s} names no threshold; expected one of %s." % (name, ", ".join(sorted(thresholds)))
            )
        value, unit = thresholds[name]["value"], thresholds[name]["unit"]
        if value is None:
            raise MonitoringError("Threshold %s has no value; set it in gpu_monitoring_thresholds." % name)
        if form == "words":
            return words(value)
        if form == "percent":
            return "%s%%" % number(round(value * 100, 6))
        return "%ds" % value if unit == "duration" else number(value)

    return PLACE.sub(place, text)


def price_text(thresholds: t.Dict[str, t.Dict[str, t.Any]]) -> str:
    """Return the price of an hour of a GPU, or that it is not known."""
    value = thresholds["price_gpu_hour"]["value"]
    return "an unknown amount (threshold price_gpu_hour is not set)" if value is None else number(value)


def find_series(expression: str) -> t.Set[str]:
    """Return the names of the series that an expression of PromQL reads."""
    text = ELSEWHERE.sub(" ", STRINGS.sub('""', expression))
    return {name for name in SERIES.findall(text) if name.lower() not in KEYWORDS}
