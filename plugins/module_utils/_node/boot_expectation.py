# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file that says what a node should have when it boots (schema gpufleet.boot-expectation/1).

{"schema": str, "driver_version": str, "hardware": {"gpus": int, ...}, "mig_file": str or null, "policy": {...}}

The role gpu_health writes it. The module that installs another driver writes that driver into it: otherwise the check
would fail at the reboot into it.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict

from . import files

PATH = "/etc/gpufleet/boot-check.json"
# Where the check at boot writes its verdict.
RESULT = "/run/gpufleet/boot-check.json"
SCHEMA = "gpufleet.boot-expectation/1"
KEYS = ("schema", "driver_version", "hardware", "mig_file", "policy")
MISSING, UNTRUSTED, MALFORMED, OTHER_SCHEMA = "missing", "untrusted", "malformed", "other_schema"
# What the check at boot finds where the file of the MIG layout cannot be used.
UNUSABLE_LAYOUT = "unusable_layout"
AGAIN = "Write it again with the role gpufleet.lifecycle.gpu_health (gpu_health_boot_check)"


class Unusable(Exception):
    """The file cannot be used; reason names it and says why, problem is MISSING, UNTRUSTED, MALFORMED or
    OTHER_SCHEMA.
    """

    def __init__(self, problem: str, text: str) -> None:
        super().__init__("%s. %s." % (text, AGAIN))
        self.problem, self.reason = problem, text


def read_expectation(path: str = PATH) -> Dict[str, Any]:
    """The document of the file PATH. What hardware and policy hold is not checked here. Raises Unusable."""
    try:
        text = files.read_owned(path)
    except FileNotFoundError as exc:
        raise Unusable(MISSING, "%s is not there, so what this node should have is not known" % (path,)) from exc
    except files.NotOwned as exc:
        raise Unusable(UNTRUSTED, "%s is not used: %s" % (path, exc)) from exc
    except (OSError, ValueError) as exc:
        raise Unusable(MALFORMED, "%s cannot be read: %s" % (path, exc)) from exc
    return parse(text, path)


def parse(text: str, path: str) -> Dict[str, Any]:
    """The document of TEXT, which is that of the file PATH. Raises Unusable."""
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise Unusable(MALFORMED, "%s is not JSON: %s" % (path, exc)) from exc
    if not isinstance(found, dict):
        raise Unusable(MALFORMED, "%s holds no dictionary" % (path,))
    if found.get("schema") != SCHEMA:
        raise Unusable(OTHER_SCHEMA, "%s has schema %r; expected %s" % (path, found.get("schema"), SCHEMA))
    return check_document(found, path)


def check_document(document: Dict[str, Any], where: str) -> Dict[str, Any]:
    """DOCUMENT, if it has all that the schema asks for. Raises Unusable, which calls its place WHERE."""
    wrong = sorted(set(document) ^ set(KEYS))
    if wrong:
        raise Unusable(MALFORMED, "%s: %s; expected exactly %s" % (where, ", ".join(wrong), ", ".join(KEYS)))
    version, parts, layout, policy = (document[key] for key in KEYS[1:])
    for key, good, expected in (
        ("driver_version", isinstance(version, str) and bool(version.strip()), "a version"),
        (
            "hardware",
            isinstance(parts, dict) and _natural(parts.get("gpus")),
            "a dictionary with at least the number of GPUs as gpus",
        ),
        ("mig_file", layout is None or isinstance(layout, str) and os.path.isabs(layout), "an absolute path, or null"),
        ("policy", isinstance(policy, dict), "a dictionary"),
    ):
        if not good:
            raise Unusable(MALFORMED, "%s: %s is %r; expected %s" % (where, key, document[key], expected))
    return document


def _natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def keep_driver(path: str, version: str) -> bool:
    """Write the driver VERSION into the file PATH; whether it changed.

    A node without the file gets none, and a file that cannot be used stays as it is.
    """
    try:
        document = read_expectation(path)
    except Unusable:
        return False
    return files.write_atomically(path, render_document(dict(document, driver_version=version)))


def render_document(document: Dict[str, Any]) -> str:
    """The text of the file for DOCUMENT, the same for the same content."""
    return json.dumps(document, indent=4, sort_keys=True) + "\n"
