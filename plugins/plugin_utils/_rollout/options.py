# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the playbooks as options of the rollout actions: validated, and left out where they are empty. Pure.

Null and the empty string mean the default, as surveys and command lines give them. A message names the variable of the
playbook that the user set, not the option of the action.
"""

from __future__ import annotations

import ast
import json
import math
import re

# The playbook variable of each option; other options are passed on unchanged.
VARIABLES = {
    "artifact_dir": "gpufleet_artifact_dir",
    "ledger": "rollout_ledger",
    "rollout_id": "rollout_id",
    "webhook": "rollout_webhook",
    "textfile_dir": "rollout_textfile_dir",
    "hold_queries": "rollout_hold_queries",
    "hold_deadline_s": "rollout_hold_deadline_s",
    "hold_age_s": "rollout_hold_age_s",
}
MOST_NODES, MOST_SECONDS = 1000000, 31 * 86400
# Maintenance windows are searched for a week, so a node that takes longer would fit in none.
MOST = {"node_s": 7 * 86400}
SHOWN = 60
LONGEST, LONG = 253, 8000
# 1,25% is one share in many languages, and two entries of a list here.
DECIMAL_COMMA = re.compile(r"[0-9],[0-9]+(?:\.[0-9]+)? *%")
LONG_TEXTS = ("artifact_dir", "dest", "ledger", "query", "reason", "textfile_dir", "url")


class OptionError(Exception):
    """A variable cannot be used; the message names it, what it is, and what is expected."""

    def __init__(self, name, value, expected, secret=False):
        super().__init__(
            "%s is %s; expected %s. Nothing was changed." % (name, kind(value) if secret else shown(value), expected)
        )


def kind(value):
    """Return the kind of a value in words."""
    if value is None:
        return "null"
    return {bool: "true or false", int: "a number", float: "a number", str: "a text"}.get(
        next((one for one in (bool, int, float, str) if isinstance(value, one)), None),
        "a dictionary"
        if isinstance(value, dict)
        else "a list"
        if isinstance(value, (list, tuple))
        else "neither a text nor a number",
    )


def shown(value):
    """Return a value on one line, without the content of dictionaries and lists, which may have secrets."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**SHOWN else "a number of more than %d digits" % SHOWN
    if isinstance(value, (str, float)):
        text = repr(str(value)) if isinstance(value, str) else str(value)
        return text if len(text) <= SHOWN else text[:SHOWN] + "..."
    return kind(value)


YES, NO = ("true", "yes", "on", "y", "t", "1"), ("false", "no", "off", "n", "f", "0")


def empty(value):
    return value is None or isinstance(value, str) and not value.strip()


def read(given, spec, variables):
    """Return the GIVEN options; those of VARIABLES are converted to the types of SPEC, and left out if empty."""
    found = {}
    for key, value in given.items():
        name = variables.get(key)
        if name is None or key not in spec:
            found[key] = value
        elif not empty(value):
            found[key] = _made(name, key, value, spec[key])
        elif spec[key].get("required"):
            raise OptionError(name, value, "a value")
    return found


def _made(name, key, value, spec, secret=False):
    secret = (
        secret or bool(spec.get("no_log")) or any(one.get("no_log") for one in (spec.get("options") or {}).values())
    )
    made = MAKERS[spec.get("type", "str")](name, key, value, spec, secret)
    if spec.get("choices") and spec.get("type", "str") != "list" and made not in spec["choices"]:
        raise OptionError(name, value, "one of %s" % ", ".join(spec["choices"]), secret)
    return made


def _text(name, key, value, spec, secret):
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise OptionError(name, value, "a text" + (", in quotes" if isinstance(value, float) else ""), secret)
    most = LONG if key in LONG_TEXTS else LONGEST
    if isinstance(value, str) and (len(value) > most or re.search(r"[\x00-\x1f\x7f]", value.strip())):
        raise OptionError(name, value, "one line of at most %d characters" % most, secret)
    return str(value).strip() if isinstance(value, str) else shown(value)


def _whole(name, key, value, spec, secret):
    most = MOST.get(key) or (MOST_SECONDS if key.endswith("_s") else MOST_NODES)
    expected = "a whole number, at most %d" % most
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,%d}\s*" % SHOWN, value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > most:
        raise OptionError(name, value, expected, secret)
    return value


def _number(name, key, value, spec, secret):
    try:
        number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or abs(number) > MOST_SECONDS:
        raise OptionError(name, value, "a number, at most %d" % MOST_SECONDS, secret)
    return number


def _bool(name, key, value, spec, secret):
    word = (
        value.strip().lower()
        if isinstance(value, str)
        else {0: "no", 1: "yes"}.get(value)
        if isinstance(value, (int, float))
        else None
    )
    if word not in YES + NO:
        raise OptionError(name, value, "true or false", secret)
    return word in YES


def literal(value):
    """Return the list or dictionary in a string of the command line, such as '{"rack": 1}'; else the string itself."""
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, (list, dict, tuple)) else value
    return value


def names(value):
    """Return the names in a string with commas or lines, as a survey gives them."""
    return [part.strip() for part in re.split(r"[,\r\n]", value) if part.strip()]


def _list(name, key, value, spec, secret):
    if isinstance(value, str):
        value = literal(value) if value.strip()[:1] in "[{(" else value
    if isinstance(value, str) and spec.get("elements") == "raw" and DECIMAL_COMMA.search(value):
        expected = "a point in a share (1.25%), or a blank after each comma between two entries (1, 25%)"
        raise OptionError(name, value, expected, secret)
    if isinstance(value, str) and spec.get("elements") != "dict":
        value = names(value)
    if not isinstance(value, (list, tuple)):
        if spec.get("elements") in ("str", "raw") and isinstance(value, int) and not isinstance(value, bool):
            value = [value]
        else:
            raise OptionError(name, value, "a list", secret)
    element = {"type": spec.get("elements", "str"), "options": spec.get("options"), "choices": spec.get("choices")}
    for number, one in enumerate(value):
        if empty(one):
            raise OptionError("%s[%d]" % (name, number), one, "no empty entry", secret)
    return [_made("%s[%d]" % (name, number), key, one, element, secret) for number, one in enumerate(value)]


def _dict(name, key, value, spec, secret):
    if isinstance(value, str):
        value = literal(value) if value.strip()[:1] == "{" else value
    if not isinstance(value, dict):
        raise OptionError(name, value, "a dictionary", secret)
    wanted = spec.get("options")
    if not wanted:
        return dict(value)
    unknown = sorted(str(one) for one in value if one not in wanted)
    if unknown:
        raise OptionError("%s.%s" % (name, unknown[0][:SHOWN]), None, "only the keys %s" % ", ".join(sorted(wanted)))
    lacking = sorted(one for one, more in wanted.items() if more.get("required") and empty(value.get(one)))
    if lacking:
        raise OptionError("%s.%s" % (name, lacking[0]), None, "a value, which every entry needs")
    return {
        one: _made("%s.%s" % (name, one), one, inner, wanted[one]) for one, inner in value.items() if not empty(inner)
    }


def _raw(name, key, value, spec, secret):
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise OptionError(name, value, "a number such as 2, or a share such as 10%", secret)
    if (
        isinstance(value, (int, float))
        and not abs(value) <= MOST_NODES
        or isinstance(value, str)
        and len(value) > SHOWN
    ):
        raise OptionError(name, value, "a number of at most %d, or a share such as 10%%" % MOST_NODES, secret)
    return value


MAKERS = {
    "str": _text,
    "path": _text,
    "int": _whole,
    "float": _number,
    "bool": _bool,
    "list": _list,
    "dict": _dict,
    "raw": _raw,
}
