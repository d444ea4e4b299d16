# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a rollout: their types, ranges and defaults, and how they are read. Pure.

SPEC is an argument spec of Ansible by the name of the variable without C(rollout_). Beside Ansible's types it has
C(amount) (nodes, or a share of the fleet), C(amounts) (by name), C(percent) and C(name); C(minimum) and C(maximum) are
those of a whole number. Null and the empty text mean the default, as surveys and command lines give them.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._rollout_options import HOLDING, TELLING
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state

MOST_NODES, MOST_SECONDS, WEEK = 1000000, 31 * 86400, 7 * 86400
LONGEST, LONG = 253, 8000  # characters of a text
LONG_TEXTS = ("ledger", "query", "reason", "url")
SHOWN = 60  # characters of a value in a message

Spec = t.Mapping[str, t.Any]

# What a run needs to find its rollout, and who may run it.
RUN: t.Dict[str, t.Dict[str, t.Any]] = {
    "id": dict(type="str", default=""),
    "version": dict(type="str", default=""),
    "kernel": dict(type="str", default=""),
    "undo": dict(type="str", default=""),
    "ledger": dict(type="str", default=""),
    "mode": dict(type="str", choices=["window", "waves"], default="window"),
    "join": dict(type="bool", default=False),
    "join_canaries": dict(type="bool", default=False),
    "approve": dict(type="str", default=""),
    "require_approval": dict(type="bool", default=False),
    "abandon": dict(type="list", elements="str", default=[]),
    "break_lock": dict(type="bool", default=False),
    "domain_prefix": dict(type="str", default="rack_"),
    "report_dir": dict(type="path"),
    "textfile_dir": TELLING["textfile_dir"],
}
# What the plan records and an approval covers; rollout_control changes some of them while nodes are in flight.
LIMITS: t.Dict[str, t.Dict[str, t.Any]] = {
    "max_down": dict(type="amount", default=1),
    "max_draining": dict(type="amount"),  # as many as may be down
    "failure_budget": dict(type="amount", default=1),
    "failure_percent": dict(type="percent"),  # of the nodes that started
    "failure_classes": dict(type="amounts", keys=state.CLASSES, default={}),
    "domain_caps": dict(type="amounts", default={}),
    "growth_start": dict(type="int", minimum=1),  # all of max_down
    "growth_step": dict(type="int", default=1),
    "common_cause": dict(type="int", default=2),  # 0: never
    "canary_failures": dict(type="int", default=0),
    "canary_soak_s": dict(type="int", default=0, maximum=MOST_SECONDS),
    "max_delta_unhealthy": dict(type="percent"),  # of the fleet
    "broken_elsewhere": dict(type="int", default=0),
    "pool": dict(type="name", default=""),
    "ticket_s": dict(type="int", default=14400, minimum=60, maximum=MOST_SECONDS),
    "windows": dict(type="list", elements="dict", default=[]),
    "waves": dict(type="list", elements="amount", default=[1, "10%", "25%", "100%"]),
    # Maintenance windows are searched for a week, so a node that takes longer would fit in none.
    "node_s": dict(type="int", default=900, minimum=1, maximum=WEEK),
    "other_ledger_s": dict(type="int", default=86400, maximum=MOST_SECONDS),
    "on_failure": dict(type="str", choices=["rollback", "quarantine", "stop"], default="rollback"),
}
# What each plan begins with, and what holds its nodes or tells of them.
START: t.Dict[str, t.Dict[str, t.Any]] = {
    "canaries": dict(type="list", elements="str", default=[]),
    "canaries_per_stratum": dict(type="int", default=0),
    "webhook": TELLING["webhook"],
    "hold_queries": HOLDING["hold_queries"],
    "hold_deadline_s": dict(HOLDING["hold_deadline_s"], minimum=1, maximum=WEEK),
    "hold_age_s": dict(HOLDING["hold_age_s"], maximum=3600),
}
SPEC = {**RUN, **LIMITS, **START}
PREFIX = "rollout_"
# The variable that a playbook makes another one of, for messages.
SET_BY = {"rollout_undo": "rollback_of"}
# The playbook variable of each option of the actions of a rollout; other options are read as Ansible reads them.
VARIABLES = {
    "artifact_dir": "gpufleet_artifact_dir",
    "rollout_id": "rollout_id",
    **{key: PREFIX + key for key in ("ledger", "textfile_dir", "webhook", *HOLDING)},
}
POOL = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,99})?")
SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?) ?%")
# 1,25% is one share in many languages, and two entries of a list here.
DECIMAL_COMMA = re.compile(r"[0-9],[0-9]+(?:\.[0-9]+)? *%")


class OptionError(Exception):
    """A variable cannot be used. The message names it, what was found, what is expected, and the next step."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "%s. Give another value (with -e, in the inventory, or in rollout_limits for set_budget) and run again. "
            "Nothing was changed." % message.rstrip(".")
        )


def describe_value(value: t.Any) -> str:
    """Return a value on one line, without the content of dictionaries and lists, which may have secrets."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**SHOWN else "a number of more than %d digits" % SHOWN
    if isinstance(value, (str, float)):
        text = repr(str(value)) if isinstance(value, str) else str(value)
        return text if len(text) <= SHOWN else text[:SHOWN] + "..."
    return (
        "a dictionary"
        if isinstance(value, dict)
        else "a list"
        if isinstance(value, (list, tuple))
        else "something else"
    )


def is_empty(value: t.Any) -> bool:
    return value is None or isinstance(value, str) and not value.strip()


def read_options(given: t.Mapping[str, t.Any], spec: Spec, variables: t.Mapping[str, str]) -> dict:
    """Return all options of a spec, validated and converted, with their defaults.

    Args:
        given: The options that are set.
        spec: The argument spec.
        variables: The variable by which a message calls an option. Of these, empty values mean the default.

    Raises:
        OptionError: A value cannot be used, or there is no such option.
    """
    names = {key: variables.get(key, key) for key in {*spec, *given}}
    values = {
        names[key]: _parse_value(names[key], value, spec[key]) if key in variables and key in spec else value
        for key, value in given.items()
        if not (key in variables and key in spec and is_empty(value))
    }
    bound = {names[key]: _bind_types(key, SPEC.get(key, one)) if key in variables else one for key, one in spec.items()}
    result = ArgumentSpecValidator(bound).validate(values)
    if result.error_messages:
        message = " ".join(result.error_messages[0].split())
        # Of a converter's refusal only what it expected and found.
        refusal = re.fullmatch(
            r"(?:argument|Elements value for option) '(\w+)' is of type \S+ and we .*?: (.*)", message
        )
        if refusal:
            message = "%s is %s" % refusal.groups()
        message = message.replace(". Supported parameters include:", " is unknown; expected one of:")
        for name, set_by in SET_BY.items():
            message = message.replace(name, set_by)
        raise OptionError(message)
    return {key: result.validated_parameters[names[key]] for key in spec}


def find_unusable(given: t.Mapping[str, t.Any], spec: Spec, variables: t.Mapping[str, str]) -> t.Dict[str, str]:
    """Return by option why it cannot be used, of the given ones that the spec has. The arguments are as of read()."""
    found = {}
    for key in spec.keys() & given.keys():
        try:
            read_options({key: given[key]}, {key: spec[key]}, variables)
        except OptionError as exc:
            found[key] = str(exc)
    return dict(sorted(found.items()))


def read_variables(given: t.Mapping[str, t.Any], spec: Spec) -> dict:
    """Return the options of a part of SPEC from variables of a playbook, as read() does."""
    options = {name.removeprefix(PREFIX): value for name, value in given.items()}
    return read_options(options, spec, {key: PREFIX + key for key in {*options, *spec}})


def _bind_types(key: str, spec: Spec) -> dict:
    """Return the spec of an option with functions for its types, which refuse more than Ansible's do."""
    bound = dict(spec, maximum_length=LONG if key in LONG_TEXTS or spec.get("type") == "path" else LONGEST)
    if "options" in spec:
        bound["options"] = {inner: _bind_types(inner, one) for inner, one in spec["options"].items()}
    for field in ("type", "elements"):
        if spec.get(field) in CONVERTERS:
            bound[field] = _make_converter(spec[field], bound)
    return bound


def _make_converter(kind: str, spec: Spec) -> t.Callable[[t.Any], t.Any]:
    def convert(value):
        return CONVERTERS[kind](value, spec)

    convert.__name__ = kind
    return convert


def _parse_value(name: str, value: t.Any, spec: Spec) -> t.Any:
    """Return a list or dictionary with its own empty values left out, also if it is given as text."""
    kind = "dict" if spec.get("type") == "amounts" else spec.get("type")
    if kind not in ("list", "dict"):
        return value
    if isinstance(value, str):
        value = _parse_text(name, value, kind, spec.get("elements"))
    if kind == "dict":
        if not isinstance(value, dict):
            raise OptionError("%s is no dictionary" % name)
        parts = spec.get("options")
        return (
            dict(value)
            if parts is None
            else {
                key if isinstance(key, str) else describe_value(key): _parse_value(
                    "%s.%s" % (name, key), one, parts.get(key, {})
                )
                for key, one in value.items()
                if not is_empty(one)
            }
        )
    if isinstance(value, int) and not isinstance(value, bool) and spec.get("elements") in ("str", "amount"):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise OptionError("%s is no list" % name)
    for number, one in enumerate(value):
        if is_empty(one):
            raise OptionError("%s[%d] is empty" % (name, number))
    entry = {"type": spec.get("elements"), "options": spec.get("options")}
    return [_parse_value("%s[%d]" % (name, number), one, entry) for number, one in enumerate(value)]


def _parse_text(name: str, text: str, kind: str, elements: t.Optional[str]) -> t.Any:
    """Return the list or dictionary in a text of a command line, or the names that a survey separates by lines."""
    if text.strip()[:1] in ("[", "{", "("):
        for parse in (json.loads, ast.literal_eval):
            try:
                return parse(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    if elements == "amount" and DECIMAL_COMMA.search(text):
        raise OptionError(
            "%s is %s; expected a point in a share (1.25%%), or a blank after each comma between two entries (1, 25%%)"
            % (name, describe_value(text))
        )
    if kind == "dict" or elements == "dict":
        return text
    return [part.strip() for part in re.split(r"[,\r\n]", text) if part.strip()]


def _raise_type_error(expected: str, value: t.Any) -> t.NoReturn:
    raise ValueError("%s; expected %s" % (describe_value(value), expected))


def _to_line(value: t.Any, spec: Spec) -> str:
    most = spec["maximum_length"]
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        _raise_type_error("a text, in quotes", value)
    text = value.strip() if isinstance(value, str) else describe_value(value)
    if len(text) > most or re.search(r"[\x00-\x1f\x7f]", text):
        raise ValueError("more than one line, or too long; expected at most %d characters" % most)
    return text


def _to_whole(value: t.Any, spec: Spec) -> int:
    least, most = spec.get("minimum", 0), spec.get("maximum", MOST_NODES)
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,%d}\s*" % SHOWN, value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        _raise_type_error("a whole number from %d to %d" % (least, most), value)
    return value


def _to_number(value: t.Any, spec: Spec) -> float:
    try:
        number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and abs(number) <= MOST_SECONDS):
        _raise_type_error("a number of at most %d" % MOST_SECONDS, value)
    return number


def _to_bool(value: t.Any, spec: Spec) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if isinstance(word, (str, int, float)):
        if word in ("true", "yes", "on", "y", "t", "1", 1):
            return True
        if word in ("false", "no", "off", "n", "f", "0", 0):
            return False
    return _raise_type_error("true or false", value)


def _to_percent(value: t.Any, spec: Spec) -> float:
    text = value.strip() if isinstance(value, str) else describe_value(value)
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?) ?%?", text[:SHOWN])
    if not found or float(found[1]) > 100:
        _raise_type_error("percent from 0 to 100", value)
    return float(found[1])


def _to_amount(value: t.Any, spec: Spec) -> t.Union[int, str]:
    """Return a number of nodes, or the text of a share such as C(10%)."""
    text = value.strip() if isinstance(value, str) else ""
    share = SHARE.fullmatch(text) if len(text) <= SHOWN else None
    if share and 0 < float(share[1]) <= 100:
        return text
    number = int(text) if re.fullmatch(r"[0-9]{1,%d}" % SHOWN, text) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_NODES:
        _raise_type_error("1 to %d nodes such as 2, or a share of the fleet such as 10%%" % MOST_NODES, value)
    return number


def _to_amounts(value: t.Any, spec: Spec) -> t.Dict[str, t.Union[int, str]]:
    known = spec.get("keys")
    unknown = sorted(describe_value(key) for key in value if known and key not in known)
    if unknown:
        raise ValueError("for %s; expected some of %s" % (unknown[0], ", ".join(known)))
    found = {}
    for key, one in value.items():
        try:
            found[key] = _to_amount(one, spec)
        except ValueError as exc:
            raise ValueError("for %s %s" % (key, exc)) from None
    return found


def _to_name(value: t.Any, spec: Spec) -> str:
    if not isinstance(value, str) or not POOL.fullmatch(value.strip()):
        _raise_type_error("a name of up to 100 letters, digits and . _ -, such as site-a", value)
    return value.strip()


def _to_path(value: t.Any, spec: Spec) -> str:
    return os.path.expanduser(os.path.expandvars(_to_line(value, spec)))


CONVERTERS: t.Dict[str, t.Callable[[t.Any, Spec], t.Any]] = {
    "str": _to_line,
    "path": _to_path,
    "int": _to_whole,
    "float": _to_number,
    "bool": _to_bool,
    "amount": _to_amount,
    "amounts": _to_amounts,
    "percent": _to_percent,
    "name": _to_name,
}
