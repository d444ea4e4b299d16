# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The counters file of the exporter: rendered from the data, and judged before an exporter reads it. Pure.

The exporter ends at its start over a line that it cannot read, so that a mistake in the file would end all series of
a node.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import catalog

FIELD = re.compile(r"DCGM_(?:FI|EXP)_[A-Z0-9_]+")
PROFILING, OWN = "DCGM_FI_PROF_", "DCGM_EXP_"
HEAD = (
    "# Written by gpufleet.lifecycle (nvidia_dcgm_exporter); changes are overwritten.\n"
    "# Field, type, help without a comma.\n"
)


def render(profiling: bool) -> str:
    """Return the collection's own counters file."""
    data = catalog.load("counters")
    parts = [HEAD]
    for group in data["groups"] + (data["profiling"] if profiling else []):
        parts.append("\n# %s\n" % group["name"])
        parts.extend("%s, %s, %s\n" % tuple(field) for field in group["fields"])
    return "".join(parts)


def check(text: str, profiling: bool) -> t.Dict[str, t.Any]:
    """Return the fields of a counters file, and what is wrong with it: the line, what was found, what was expected."""
    data = catalog.load("counters")
    fields: t.List[str] = []
    errors: t.List[t.Dict[str, t.Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            wrong = _line(line, data, fields, profiling)
            if wrong:
                errors.append(dict(wrong, line=number))
            else:
                fields.append(line.split(",")[0].strip())
    if not errors and not set(fields) & set(data["moving"]):
        errors.append(
            {
                "id": "moving",
                "line": 0,
                "found": "%d fields" % len(fields),
                "expected": "one of " + ", ".join(data["moving"]),
                "message": "The file has no field by which a stale engine could be told from a live one.",
            }
        )
    return {"fields": fields, "errors": errors, "message": " ".join(map(_sentence, errors))}


def _line(
    line: str, data: t.Mapping[str, t.Any], before: t.List[str], profiling: bool
) -> t.Optional[t.Dict[str, t.Any]]:
    """Return what is wrong with a line that is no comment; None if nothing is."""
    cells = [cell.strip() for cell in line.split(",")]
    if '"' in line:
        return _wrong("quote", "a quotation mark", "none")
    if len(cells) < 3:
        return _wrong("fields", "%d fields" % len(cells), "three: field, type, help")
    if len(cells) > 3:
        return _wrong("comma", "%d fields" % len(cells), "three: field, type, and a help without a comma")
    field, kind, text = cells
    if not FIELD.fullmatch(field) or field.startswith(OWN) and field not in data["exporter_fields"]:
        return _wrong("field", field or "no field", "DCGM_FI_... or one of %s" % ", ".join(data["exporter_fields"]))
    if kind not in data["types"]:
        return _wrong("type", kind or "no type", "one of %s" % ", ".join(data["types"]))
    if not text:
        return _wrong("help", "no help", "a help")
    if field in before:
        return _wrong("twice", field + " a second time", "each field once")
    if field.startswith(PROFILING) and not profiling:
        return _wrong("profiling", field, "no DCGM_FI_PROF_ field unless nvidia_dcgm_exporter_profiling is true")
    return None


def _wrong(ident: str, found: str, expected: str) -> t.Dict[str, t.Any]:
    return {"id": ident, "found": found, "expected": expected, "message": ""}


def _sentence(error: t.Mapping[str, t.Any]) -> str:
    place = (
        "Line %d has %s" % (error["line"], error["found"])
        if error["line"]
        else "%s Found: %s" % (error["message"], error["found"])
    )
    return "%s; expected %s." % (place, error["expected"])
