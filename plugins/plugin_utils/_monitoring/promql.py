# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the series that an expression of PromQL reads. It does not judge the expression: promtool does that. Pure."""

from __future__ import annotations

import re
import typing as t

WORDS = {
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "offset",
    "bool",
    "inf",
    "nan",
}
STRINGS = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')
# What stands in braces, in brackets, and behind the words that take lists of labels, names no series.
ELSEWHERE = re.compile(
    r"\{[^{}]*\}|\[[^\[\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)|\boffset\s+[0-9a-z]+"
)
NAME = re.compile(r"(?<![\w:.$])([A-Za-z_:][\w:]*)(?!\w|\s*\()")


def series(expression: str) -> t.Set[str]:
    """Return the names of the series in EXPRESSION."""
    text = ELSEWHERE.sub(" ", STRINGS.sub('""', expression))
    return {name for name in NAME.findall(text) if name.lower() not in WORDS}
