# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own diagnostic where it is installed: dcgmi diag, of DCGM 3 and 4.

The exit status says little (it is not 0 for a test that was skipped in some versions and for a setting in others), so
the document is read and every word that is not known counts as unknown.
"""

from __future__ import annotations

import json

RC_NOT_FOUND, RC_TIMEOUT = 127, 124
# Top-level name of the document by major version.
ROOTS = (("DCGM Diagnostic", 4), ("DCGM GPU Diagnostic", 3))
STATUSES = {
    "pass": "pass",
    "passed": "pass",
    "fail": "fail",
    "failed": "fail",
    "error": "fail",
    "warn": "warn",
    "warning": "warn",
    "skip": "skip",
    "skipped": "skip",
    "not run": "not_run",
    "notrun": "not_run",
}
# From what decides to what says nothing.
ORDER = ("fail", "unknown", "warn", "not_run", "pass", "skip")
TEXT_LIMIT = 600


def run_diagnostic(runner, level, timeout_s, indices) -> dict:
    """Run the diagnostic of LEVEL (1 to 4) on the GPUs with these indexes; what came of it, as data."""
    command = ["dcgmi", "diag", "-r", str(level), "-j", "-i", ",".join(str(index) for index in indices)]
    answer = {
        "command": " ".join(command),
        "status": "ok",
        "rc": None,
        "major": None,
        "version": None,
        "driver_version": None,
        "level": level,
        "tests": [],
        "message": "",
    }
    if not indices:
        answer.update(status="not_run", message="no GPU of this node can be tested now")
        return answer
    rc, out, err = runner(command, timeout_s)
    answer["rc"] = rc
    if rc == RC_NOT_FOUND:
        answer.update(status="missing", message="dcgmi is not installed (package datacenter-gpu-manager)")
    elif rc == RC_TIMEOUT:
        answer.update(status="timeout", message="dcgmi diag did not end within %g s" % (timeout_s,))
    else:
        answer.update(parse_document(out))
        if answer["status"] != "ok" and (err or out).strip():
            answer["message"] += ": " + " ".join((err.strip() or out.strip()).split())[:TEXT_LIMIT]
    return answer


def parse_document(text) -> dict:
    """{"status", "message", "major", "version", "driver_version", "tests"} of the document in TEXT, which other words
    may precede.
    """
    answer = {
        "status": "unreadable",
        "message": "",
        "major": None,
        "version": None,
        "driver_version": None,
        "tests": [],
    }
    document = _find_document(text)
    if document is None:
        answer["message"] = "dcgmi printed no JSON; is its service running (systemctl status nvidia-dcgm)?"
        return answer
    known = [(document[name], major) for name, major in ROOTS if isinstance(document.get(name), dict)]
    if not known:
        answer["message"] = "dcgmi printed JSON without %s" % (" or ".join(name for name, dummy in ROOTS),)
        return answer
    root, major = known[0]
    places = [root, document, document.get("metadata")]
    answer.update(
        major=major,
        version=_find_first(places, "version"),
        driver_version=_find_first(places, "Driver Version Detected"),
    )
    categories = root.get("test_categories")
    answer["tests"] = [test for category in _list_dictionaries(categories) for test in _list_tests(category)]
    problem = _find_first(places, "runtime_error")
    if problem:
        answer["message"] = "dcgmi diag ended early: %s" % (problem,)
    elif not answer["tests"]:
        answer["message"] = "dcgmi diag reports no test"
    else:
        answer["status"] = "ok"
    return answer


def _find_document(text) -> dict | None:
    start = text.find("{")
    while start >= 0:
        try:
            document = json.JSONDecoder().raw_decode(text, start)[0]
            if isinstance(document, dict):
                return document
        except ValueError:
            pass
        start = text.find("{", start + 1)
    return None


def _find_first(places, key) -> str | None:
    for place in places:
        if isinstance(place, dict) and isinstance(place.get(key), str) and place[key]:
            return place[key]
    return None


def _list_dictionaries(value) -> list[dict]:
    # Lists of tests have held null between the tests.
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _list_tests(category) -> list[dict]:
    found = []
    for test in _list_dictionaries(category.get("tests")):
        results = [_parse_result(result) for result in _list_dictionaries(test.get("results"))]
        statuses = [result["status"] for result in results]
        summary = test.get("test_summary")
        if isinstance(summary, dict):
            statuses.append(_parse_status(summary.get("status")))
        found.append(
            {
                "category": str(category.get("category")),
                "name": str(test.get("name")),
                "status": choose_worst(statuses),
                "results": results,
            }
        )
    return found


def choose_worst(statuses) -> str:
    """The status that decides; of nothing, unknown."""
    for status in ORDER:
        if status in statuses:
            return status
    return "unknown"


def _parse_status(word) -> str:
    return STATUSES.get(" ".join(word.lower().split()), "unknown") if isinstance(word, str) else "unknown"


def _parse_result(result) -> dict:
    entities = _name_entity(result)
    texts = []
    for warning in _make_list(result.get("warnings")):
        texts.append(str(warning.get("warning")) if isinstance(warning, dict) else str(warning))
    return {
        "entities": entities,
        "status": _parse_status(result.get("status")),
        "warnings": [text[:TEXT_LIMIT] for text in texts[:8]],
    }


def _make_list(value) -> list:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _name_entity(result) -> list[str]:
    """Return the name of a result's subject: "GPU 0". DCGM 3 has one or several GPU numbers, DCGM 4 an entity and its
    group."""
    if "entity_id" in result:
        return ["%s %s" % (result.get("entity_group") or "entity", result["entity_id"])]
    numbers = result.get("gpu_id", result.get("gpu_ids"))
    if numbers is None:
        return []
    return ["GPU %s" % (number.strip(),) for number in str(numbers).split(",") if number.strip()]
