# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load the controller's input of a verdict: baseline, policy and data files; errors name file, line and key."""

from __future__ import annotations

import datetime
import json
import os

import yaml

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts, _health
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._binding import DATA_DIRECTORY

POLICY_NAME = "health_policy.json"
INSTALL = "install the collection again"
AGAIN = "take a new one with gpu_health (phase: baseline)"


class InputError(Exception):
    """Something given cannot be used; the text names what, where and the next step."""


class _Plain(yaml.SafeLoader):
    """YAML whose dates stay text, as they are in JSON."""

    yaml_implicit_resolvers = dict(
        (first, [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"])
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    )


def load_located(text) -> tuple:
    """(data, {path: line}) of a YAML or JSON text.

    ValueError with a line for what is neither, or says a thing twice.
    """
    # YAML allows tabs in JSON, and PyYAML does not. In a text of JSON they are written \\t.
    loader = _Plain(text.replace("\t", " ") if text.lstrip()[:1] in ("{", "[") else text)
    lines = {}
    try:
        node = loader.get_single_node()
        return (None if node is None else _build_value(loader, node, (), lines)), lines
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise ValueError("%s%s" % ("line %d: " % (mark.line + 1) if mark else "", exc.problem or exc.context)) from exc
    except yaml.YAMLError as exc:
        raise ValueError(str(exc)) from exc
    except RecursionError as exc:
        raise ValueError("it refers to itself, or is nested too deep") from exc
    finally:
        loader.dispose()


def _build_value(loader, node, path, lines):
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_build_value(loader, child, path + (number,), lines) for number, child in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        result = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node)
            if not isinstance(key, str):
                # YAML reads on, off, yes and no as booleans: named as they are written.
                written = key_node.value if isinstance(key_node, yaml.ScalarNode) else key
                raise yaml.MarkedYAMLError(
                    problem="the key %s is no text: put it in quotes" % (written,), problem_mark=key_node.start_mark
                )
            if key in result:
                raise yaml.MarkedYAMLError(
                    problem="the key %r is there twice" % (key,), problem_mark=key_node.start_mark
                )
            lines[path + (key,)] = key_node.start_mark.line + 1
            result[key] = _build_value(loader, value_node, path + (key,), lines)
        return result
    return loader.construct_object(node)


def spot(lines, path) -> int | None:
    """The line of PATH, or of the nearest thing around it."""
    for length in range(len(path), -1, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def where(name, lines, path) -> str:
    line = spot(lines, tuple(path))
    return name if line is None else "%s, line %d" % (name, line)


def read_text(path, what, advice) -> str:
    try:
        return _artifacts.read_file(path, follow=True).decode("utf-8")
    except OSError as exc:
        raise InputError(
            "the %s %s on the controller cannot be read: %s; %s" % (what, path, exc.strerror, advice)
        ) from exc
    except UnicodeDecodeError as exc:
        raise InputError("the %s %s on the controller is no UTF-8 text; %s" % (what, path, advice)) from exc


def read_clock() -> str:
    """Return the time of this controller in UTC, like 2026-01-31T12:00:00Z."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def baseline(path, node, now="") -> dict:
    """The baseline of NODE in the file PATH of the controller. NOW: refuse one from after this time."""
    text = read_text(path, "baseline file", "take a baseline first (phase: baseline)")
    try:
        document = json.loads(text)
    except ValueError as exc:
        raise InputError(
            "the baseline file %s on the controller is not JSON: %s; take a new baseline (phase: baseline)"
            % (path, exc)
        ) from exc
    try:
        _health.check_baseline(document, node, now)
    except _health.BaselineError as exc:
        try:
            lines = load_located(text)[1]
        except ValueError:
            lines = {}
        raise InputError("the baseline file %s: %s" % (where(path, lines, exc.path), exc)) from exc
    return document


def policy(path=None, given=None, waivers=None) -> dict:
    """The policy to judge by: the collection's own, what the file PATH says, what is GIVEN in the task, and the WAIVERS
    of the task.

    Later ones win for thresholds and models; what is strict and what is waived adds up.
    """
    own = os.path.join(DATA_DIRECTORY, POLICY_NAME)
    full = _layer(*_of_file(own))
    rows = dict(full)
    layers = []
    if path:
        layers.append(_of_file(path))
    if given:
        layers.append((given, "option policy", {}))
    for document, name, lines in layers:
        _layer(document, name, lines, rows)
        _merge(full, document)
    if waivers:
        _layer({"waivers": waivers}, "option waivers", {}, rows)
        full["waivers"] = full.get("waivers", []) + waivers
    return full


def _of_file(path) -> tuple[dict, str, dict]:
    advice = "write a YAML or JSON dictionary of thresholds there, or remove policy_file"
    text = read_text(path, "policy file", advice)
    try:
        document, lines = load_located(text)
    except ValueError as exc:
        raise InputError("the policy file %s is neither YAML nor JSON: %s" % (path, exc)) from exc
    if not isinstance(document, dict):
        raise InputError("the policy file %s holds no dictionary; %s" % (where(path, lines, ()), advice))
    return document, "policy file " + path, lines


def _layer(document, name, lines, rows=None) -> dict:
    """DOCUMENT, if it can be followed by itself."""
    try:
        _health.check_policy(document, rows)
    except _health.PolicyError as exc:
        raise InputError("%s: %s" % (where(name, lines, exc.path), exc)) from exc
    return document


def _merge(full, document) -> None:
    for key, value in document.items():
        if key in ("strict", "waivers"):
            full[key] = full.get(key, []) + value
        elif key == "models":
            full[key] = dict(full.get(key, {}))
            for pattern, limits in value.items():
                full[key][pattern] = dict(full[key].get(pattern, {}), **limits)
        elif isinstance(full.get(key), dict) and not isinstance(value, dict):
            full[key] = dict(full[key], value=value)
        else:
            full[key] = value


def tables(directory=DATA_DIRECTORY) -> dict[str, dict]:
    """The collection's data files by name, such as xid; the policy is none of them.

    One that is damaged is refused with its key.
    """
    result = {}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".json") and name != POLICY_NAME:
            path = os.path.join(directory, name)
            try:
                document = json.loads(read_text(path, "table", INSTALL))
                _health.check_table(name[: -len(".json")], document, path)
            except ValueError as exc:
                raise InputError("the table %s on the controller is not JSON: %s; %s" % (path, exc, INSTALL)) from exc
            except _health.TableError as exc:
                raise InputError("the table on the controller cannot be used: %s; %s" % (exc, INSTALL)) from exc
            result[name[: -len(".json")]] = document
    return result
