# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text out of anything a node may have said, safe to print, and tables of plain text. Pure."""

from __future__ import annotations

import re

# Control characters, line and paragraph separators, marks and overrides of the direction of writing, what has no width
# and what no XML may hold.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\ufffe\uffff]"
)
SHOWN_LIMIT = 400


def clean_text(value: object) -> str:
    """VALUE as text in which nothing steers a terminal, a browser or an XML parser. Line ends and tabs stay."""
    return UNSAFE.sub(lambda found: "\\x%02x" % ord(found.group()), str(value).replace("\r\n", "\n"))


def one_line(value: object, limit: int | None = None) -> str:
    """VALUE on one line, cut at LIMIT characters."""
    text = " ".join(clean_text("" if value is None else value).split())
    return text if limit is None or len(text) <= limit else text[: limit - 1].rstrip() + "…"


def format_value(value: object) -> str:
    """A found or expected value for people."""
    if value is None or value == [] or value == {} or value == "":
        return "nothing"
    return one_line(_format_flat(value), SHOWN_LIMIT)


def _format_flat(value) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join("%s=%s" % (key, _format_flat(value[key])) for key in sorted(value, key=str))
    if isinstance(value, (list, tuple)):
        return ", ".join(_format_flat(item) for item in value)
    return str(value)


def plain_json(value: object) -> object:
    """VALUE for a JSON document: the keys of mappings sorted, and nothing but JSON's own types."""
    if isinstance(value, dict):
        return {str(key): plain_json(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value)


def align_columns(rows: list) -> list[str]:
    """Lines of plain text of ROWS, the first of which is the head; the last column is never padded."""
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def count_noun(number: int, singular: str, plural: str | None = None) -> str:
    """1 node, 2 nodes."""
    return "%d %s" % (number, singular if number == 1 else plural or singular + "s")
