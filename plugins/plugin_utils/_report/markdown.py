# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Markdown that says what was meant, whatever a node answered. Pure."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def escape(value: object, limit: int | None = None) -> str:
    """VALUE on one line, with nothing in it that Markdown or HTML would read as its own."""
    escaped = SPECIAL.sub(r"\\\1", text.line(value, limit))
    # No page makes a link of an address that a node answered.
    return re.sub(r"(?i)(?:(?<=http)|(?<=https)|(?<=ftp))://", r"\\://", escaped).replace("www.", "www\\.")


def table(head: list, rows: list) -> list[str]:
    """Lines of a table; cells are escaped."""
    lines = ["| %s |" % " | ".join(escape(cell) for cell in head), "|%s" % ("---|" * len(head))]
    lines += ["| %s |" % " | ".join(escape(cell) or " " for cell in row) for row in rows]
    return lines


def section(title: str, lines: list[str], level: int = 2) -> list[str]:
    """A heading and what stands under it; nothing when there is nothing."""
    return ["", "%s %s" % ("#" * level, escape(title)), "", *lines] if lines else []
