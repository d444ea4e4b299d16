# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reference page of the health checks, rendered from the table that judges. Pure: data in, text out."""

from __future__ import annotations

import functools
import re
import types

BEGIN = "<!-- generated from plugins/module_utils/_health and the health policy by `make docs` -->"
PACKAGE = "module_utils._health."
# What these say holds for every check: how NVML's codes are taken, and what a signal means that is not there.
COMMON = ("codes", "model", "policy", "signals")
INTRODUCTION = """\
What `gpufleet.lifecycle.gpu_health` checks, by family. A check of scope *gpu* is made for every GPU that NVML opens, \
one of scope *node*
once. A check that cannot be made for lack of a signal is `unknown` and asks to `hold` the node, \
besides the actions that are listed; a
signal that answered in the baseline and does not now fails. *Policy* names the thresholds of the check, which are
[listed below](#thresholds). What is marked *(a notice)* passes and is shown; with its id in `strict` of the policy it \
fails.
"""


def strings(value):
    """All texts in a constant or a table, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings(key)
            yield from strings(inner)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for inner in value:
            yield from strings(inner)


def _ours(module):
    return PACKAGE in module and module.rpartition(".")[2] not in COMMON


def _named(code, scope, ident):
    """What CODE and the code in it refers to: constants, functions and tables of this package."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _named(constant, scope, ident)
        else:
            yield constant
    for name in code.co_names:
        value = scope.get(name)
        if isinstance(value, types.ModuleType) and _ours(value.__name__):
            for inner in code.co_names:
                yield _of_table(getattr(value, inner, None), ident)
        else:
            yield _of_table(value, ident)


def _of_table(value, ident):
    return value[ident] if isinstance(value, dict) and ident in value else value


def texts(judge, ident):
    """Every text that may take part in what JUDGE answers."""
    found, seen, left = set(), set(), [judge]
    while left:
        thing = left.pop()
        if isinstance(thing, functools.partial):
            left += [thing.func, *thing.args, *thing.keywords.values()]
        elif isinstance(thing, types.FunctionType):
            if thing not in seen and _ours(thing.__module__):
                seen.add(thing)
                left += list(_named(thing.__code__, thing.__globals__, ident)) + list(thing.__defaults__ or ())
                left += [cell.cell_contents for cell in thing.__closure__ or ()]
        elif isinstance(thing, type):
            if thing not in seen and _ours(thing.__module__):
                seen.add(thing)
                left += [
                    part.fget if isinstance(part, property) else part
                    for name, part in vars(thing).items()
                    if not name.startswith("__")
                ]
        else:
            found.update(strings(thing))
    return found


def actions(row, known):
    said = texts(row.judge, row.ident)
    return [action for action in known if action in said and action != "none"] or ["hold"]


def thresholds(row, known):
    """The thresholds that the judge asks for, also those whose names it puts together."""
    said = texts(row.judge, row.ident)
    # The compiler leaves of "bank_%s_max" the two ends.
    starts = tuple(text for text in said if re.fullmatch(r"[a-z0-9_]+_", text))
    ends = tuple(text for text in said if re.fullmatch(r"_[a-z0-9_]+", text))
    return sorted(
        key for key in known if key in said or (starts and ends and key.startswith(starts) and key.endswith(ends))
    )


def _cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def _table(head, rows):
    return [
        "| " + " | ".join(head) + " |",
        "|" + " --- |" * len(head),
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows),
        "",
    ]


def _codes(names):
    return ", ".join("`{0}`".format(name) for name in names)


def _heading(family):
    """The first sentence of a family's documentation."""
    return " ".join(family.__doc__.strip().split("\n\n")[0].split()).rstrip(".")


def render(families, known_actions, policy):
    """The page. POLICY are the rows of the data file."""
    limits = dict((key, row) for key, row in policy.items() if isinstance(row, dict))
    lines = [BEGIN, "", "# The health checks", "", *INTRODUCTION.splitlines(), ""]
    used = {}
    for family in families:
        rows = []
        for row in family.ROWS:
            keys = thresholds(row, limits)
            for key in keys:
                used.setdefault(key, []).append(row.ident)
            rows.append(
                (
                    "`{0}`".format(row.ident),
                    ", ".join(str(number) for number in row.row),
                    row.scope,
                    row.title,
                    _codes(row.signals),
                    _codes(actions(row, known_actions)),
                    _codes(keys),
                    row.source,
                )
            )
        lines += [
            "## " + _heading(family),
            "",
            *_table(
                ("Check", "No.", "Scope", "Passes when", "Reads", "Asks for", "Policy", "Source of the rule"), rows
            ),
        ]
    lines += [
        "## Thresholds",
        "",
        "Those of `gpu_health_policy`; the default is in `plugins/plugin_utils/_data/health_policy.json`.",
        "",
    ]
    lines += _table(
        ("Threshold", "Default", "Unit", "From", "To", "What it is", "Source", "Used by"),
        [
            (
                "`{0}`".format(key),
                row["value"],
                row["unit"],
                row.get("minimum", 0),
                row.get("maximum", ""),
                row["text"],
                row["source"],
                _codes(used.get(key, ())),
            )
            for key, row in sorted(limits.items())
        ],
    )
    return "\n".join(lines).rstrip("\n") + "\n"
