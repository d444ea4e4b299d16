# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The counters file of the exporter: rendered from the data, and judged as an exporter parses it (encoding/csv of Go,
and ExtractCounters of dcgm-exporter). Pure.

The exporter ends at its start over a line that it cannot read, so that a mistake in the file would end all series of
a node.
"""

from __future__ import annotations

import functools
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import catalog, versions

# A cell of encoding/csv: quoted from its first letter on, or without a quotation mark.
CELLS = re.compile(r'(?:^|,)(?:"((?:[^"]|"")*)"|([^",]*))(?=,|$)')
PROFILING, PREFIX = "DCGM_FI_PROF_", "DCGM_FI_"
OLDEST = "4.1.0"
HEAD = (
    "# Written by gpufleet.lifecycle (nvidia_dcgm_exporter); changes are overwritten.\n"
    "# Field, type, help without a comma.\n"
)


@functools.lru_cache(maxsize=None)
def known_fields() -> t.Dict[str, str]:
    """Return every field that an exporter knows, with the first version of the exporter that does."""
    data = catalog.load("fields")
    found = {PREFIX + name: version for version, names in data["fields"].items() for name in names.split()}
    return {**found, **data["exporter_fields"]}


def is_served(field: str, exporter: str) -> bool:
    """Return whether an exporter of this version knows FIELD; one of an unknown version is taken for the oldest."""
    since = known_fields().get(field)
    return since is not None and versions.parse_numbers(since) <= versions.parse_numbers(exporter or OLDEST)


def render(profiling: bool, exporter: str = "") -> str:
    """Return the collection's own counters file, without the fields that the EXPORTER does not know."""
    data = catalog.load("counters")
    parts = [HEAD]
    for group in data["groups"] + (data["profiling"] if profiling else []):
        fields = [field for field in group["fields"] if is_served(field[0], exporter)]
        parts.append("\n# %s\n" % group["name"] if fields else "")
        parts.extend("%s, %s, %s\n" % tuple(field) for field in fields)
    return "".join(parts)


def check(text: str, profiling: bool, exporter: str = "") -> t.Dict[str, t.Any]:
    """Return the fields of a counters file, and what is wrong with it: the line, what was found, what was expected.

    EXPORTER is the version of the exporter that reads it; if empty, a field that any version knows is accepted.
    """
    data = catalog.load("counters")
    fields: t.List[str] = []
    errors: t.List[t.Dict[str, t.Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line[:-1] if line.endswith("\r") else line
        if line and not line.startswith("#"):
            cells = [(quoted.replace('""', '"') or plain).strip(" ") for quoted, plain in CELLS.findall(line)]
            is_whole = "".join(match.group() for match in CELLS.finditer(line)) == line
            wrong = _find_problem(cells if is_whole else None, data, fields, profiling, exporter)
            if wrong:
                errors.append(dict(wrong, line=number))
            else:
                fields.append(cells[0])
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
    return {"fields": fields, "errors": errors, "message": " ".join(map(_make_sentence, errors))}


def _find_problem(
    cells: t.Optional[t.List[str]], data: t.Mapping[str, t.Any], before: t.List[str], profiling: bool, exporter: str
) -> t.Optional[t.Dict[str, t.Any]]:
    """Return what is wrong with the CELLS of a line, None if they cannot be told apart; None if nothing is."""
    if cells is None:
        return _make_problem("quote", "a quotation mark", "none, or a cell that begins and ends with one")
    if len(cells) < 3:
        return _make_problem("fields", "%d fields" % len(cells), "three: field, type, help")
    if len(cells) > 3:
        return _make_problem("comma", "%d fields" % len(cells), "three: field, type, and a help without a comma")
    field, kind, text = cells
    if field not in known_fields():
        return _make_problem("field", field or "no field", "a field that DCGM has, such as DCGM_FI_DEV_GPU_TEMP")
    if exporter and not is_served(field, exporter):
        return _make_problem(
            "version", field, "fields that the exporter %s knows; this one needs %s" % (exporter, known_fields()[field])
        )
    if kind not in data["types"]:
        return _make_problem("type", kind or "no type", "one of %s" % ", ".join(data["types"]))
    if not text:
        return _make_problem("help", "no help", "a help")
    if field in before:
        return _make_problem("twice", field + " a second time", "each field once")
    if field.startswith(PROFILING) and not profiling:
        return _make_problem("profiling", field, "no DCGM_FI_PROF_ field unless nvidia_dcgm_exporter_profiling is true")
    return None


def _make_problem(ident: str, found: str, expected: str) -> t.Dict[str, t.Any]:
    return {"id": ident, "found": found, "expected": expected, "message": ""}


def _make_sentence(error: t.Mapping[str, t.Any]) -> str:
    place = (
        "Line %d has %s" % (error["line"], error["found"])
        if error["line"]
        else "%s Found: %s" % (error["message"], error["found"])
    )
    return "%s; expected %s." % (place, error["expected"])
