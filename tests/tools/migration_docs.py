# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page about the variables of other projects and what takes their place, rendered from tests/tools/migration.toml.

Pure but for reading that file: data in, text out.
"""

from __future__ import annotations

import pathlib

import tomllib

DATA = pathlib.Path(__file__).resolve().parent / "migration.toml"
PAGE = "docs/migration.md"
BEGIN = "<!-- generated from tests/tools/migration.toml by `make docs` -->"


def load():
    """Return the data as it is written."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def names(row):
    """Return the names of their variables in a row; the first one has the example."""
    return [row["theirs"].partition(":")[0], *row.get("more", [])]


def _theirs(row, refused):
    first = "`%s`" % row["theirs"]
    marks = [
        "%s%s" % (first if name == names(row)[0] else "`%s`" % name, " (refused)" * (name in refused))
        for name in names(row)
    ]
    return ", ".join(marks)


def _ours(row):
    lines = ["`%s`" % line for line in row["ours"].strip().splitlines()]
    if row.get("module"):
        lines.append("of the module `%s`" % row["module"])
    return ", ".join(lines) or "none"


def render(data, refused):
    """Return the page. REFUSED: names of theirs that the playbooks refuse."""
    lines = [BEGIN, "", *data["introduction"].splitlines()]
    for source in data["sources"]:
        lines += ["", "## " + source["title"], "", source["text"], "", "| Theirs | Here | Note |", "|---|---|---|"]
        lines += ["| %s | %s | %s |" % (_theirs(row, refused), _ours(row), row["note"]) for row in source["rows"]]
    return "\n".join(lines) + "\n"
