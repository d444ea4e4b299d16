# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's diagnostic: documents of both major versions, and all the ways in which there is none."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._smoke import dcgm

pytestmark = pytest.mark.pythons

FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def text(name):
    return (FIXTURES / (name + ".json")).read_text()


def statuses(parsed):
    return dict((test["name"], test["status"]) for test in parsed["tests"])


@pytest.mark.parametrize(
    "name, major, version, driver, expected",
    [
        (
            "dcgm3-pass",
            3,
            "3.3.9",
            "535.216.03",
            {"Denylist": "pass", "NVML Library": "pass", "PCIe": "pass", "GPU Memory": "pass", "Pulse Test": "skip"},
        ),
        ("dcgm3-fail", 3, "3.1.8", None, {"Persistence Mode": "warn", "GPU Memory": "fail"}),
        ("dcgm4-pass", 4, "4.2.3", "570.124.06", {"software": "pass", "pcie": "pass"}),
        ("dcgm4-fail", 4, "4.2.3", "570.124.06", {"memory": "fail", "software": "pass"}),
    ],
)
def test_both_shapes_are_read(name, major, version, driver, expected):
    parsed = dcgm.parse_document(text(name))
    assert (parsed["status"], parsed["major"], parsed["version"], parsed["driver_version"]) == (
        "ok",
        major,
        version,
        driver,
    )
    assert statuses(parsed) == expected


@pytest.mark.parametrize(
    "name, entities", [("dcgm3-fail", [["GPU 0"], ["GPU 1"]]), ("dcgm4-fail", [["GPU 0"], ["GPU 1"]])]
)
def test_a_failure_names_its_gpu_and_says_why(name, entities):
    test = [test for test in dcgm.parse_document(text(name))["tests"] if test["status"] == "fail"][0]
    assert [result["entities"] for result in test["results"]] == entities
    assert test["results"][1]["warnings"] == ["A DBE memory error was detected on GPU 1."]


def test_one_result_for_several_gpus_names_them_all():
    assert dcgm.parse_document(text("dcgm3-pass"))["tests"][0]["results"][0]["entities"] == ["GPU 0", "GPU 1"]


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda d: d["DCGM Diagnostic"].update(runtime_error="no GPU is supported"), "early: no GPU is supported"),
        (lambda d: d.update(runtime_error="hostengine gone"), "ended early: hostengine gone"),
        (lambda d: d["DCGM Diagnostic"].update(test_categories=[]), "reports no test"),
        (lambda d: d["DCGM Diagnostic"].update(test_categories="x"), "reports no test"),
        (lambda d: d.pop("DCGM Diagnostic"), "JSON without DCGM Diagnostic or DCGM GPU Diagnostic"),
    ],
)
def test_a_document_without_a_result_is_none(change, message):
    document = json.loads(text("dcgm4-pass"))
    change(document)
    parsed = dcgm.parse_document(json.dumps(document))
    assert parsed["status"] == "unreadable" and message in parsed["message"]


@pytest.mark.parametrize("word", ["", "Passing", None, 1, "Incomplete"])
def test_a_word_that_is_not_known_never_passes(word):
    document = json.loads(text("dcgm4-pass"))
    test = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
    test["results"][1]["status"] = word
    assert statuses(dcgm.parse_document(json.dumps(document)))["software"] == "unknown"


def test_a_summary_that_fails_is_not_outvoted_by_results_that_pass():
    document = json.loads(text("dcgm4-pass"))
    document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["test_summary"]["status"] = "Fail"
    assert statuses(dcgm.parse_document(json.dumps(document)))["software"] == "fail"


def test_a_test_without_results_is_unknown():
    document = json.loads(text("dcgm4-pass"))
    document["DCGM Diagnostic"]["test_categories"][0]["tests"][0] = {"name": "software"}
    assert statuses(dcgm.parse_document(json.dumps(document)))["software"] == "unknown"


@pytest.mark.parametrize(
    "garbage", ["", "Error: unable to establish a connection to the specified host: localhost", "{", "[1, 2]", "{}"]
)
def test_what_is_no_document_is_unreadable(garbage):
    assert dcgm.parse_document(garbage)["status"] == "unreadable"


@pytest.mark.parametrize(
    "rc, out, status",
    [
        (127, "", "missing"),
        (124, "", "timeout"),
        (0, text("dcgm4-pass"), "ok"),
        (226, text("dcgm4-fail"), "ok"),
        (1, "Error: unable to establish a connection", "unreadable"),
    ],
)
def test_the_command_and_what_came_of_it(rc, out, status):
    calls = []

    def runner(argv, timeout):
        calls.append((argv, timeout))
        return rc, out, ""

    answer = dcgm.run_diagnostic(runner, 3, 600, [0, 2])
    assert calls == [(["dcgmi", "diag", "-r", "3", "-j", "-i", "0,2"], 600)]
    assert (answer["status"], answer["rc"], answer["level"]) == (status, rc, 3)
    assert bool(answer["message"]) == (status != "ok")
    if rc == 1:
        assert "unable to establish a connection" in answer["message"]


def test_nothing_is_started_without_a_gpu_to_test():
    assert dcgm.run_diagnostic(lambda argv, timeout: pytest.fail("started"), 1, 60, [])["status"] == "not_run"
