# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document about a fleet: one verdict out of the results of all nodes, whatever state they are in."""

from __future__ import annotations

import copy
import itertools
import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import (
    files,
    precheck,
    precheck_formats,
    precheck_page,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._report import samples

PASS = samples.healthy("n")
FAIL = samples.broken(PASS, "gpu.present")
UNKNOWN = samples.broken(PASS, "gpu.present", "unknown")


def node(result, **more):
    return precheck.build_document(["n"], {"n": result}, **more)["nodes"]["n"]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "unknown"),
        (["pass"], "pass"),
        (["pass", "pass"], "pass"),
        (["pass", "unknown"], "unknown"),
        (["unknown", "fail"], "fail"),
        (["fail", "pass"], "fail"),
        (["PASS"], "unknown"),
        ([None, "pass"], "unknown"),
        (["fine", "fail"], "fail"),
    ],
)
def test_the_worst_verdict_wins(verdicts, expected):
    for order in itertools.permutations(verdicts):
        assert precheck.find_worst_verdict(order) == expected


@pytest.mark.parametrize(
    ("result", "verdict", "state"),
    [
        (PASS, "pass", "judged"),
        (FAIL, "fail", "judged"),
        (UNKNOWN, "unknown", "judged"),
        (samples.unreachable(), "unknown", "unreachable"),
        (samples.failed(), "unknown", "failed"),
        (None, "unknown", "missing"),
        ({}, "unknown", "missing"),
        ({"skipped": True, "skip_reason": "Conditional result was False"}, "unknown", "missing"),
        ({"changed": False}, "unknown", "failed"),
        ({"health": {"verdict": "pass"}}, "unknown", "failed"),
        ({"health": {"verdict": "pass", "checks": []}}, "unknown", "failed"),
        ({"health": "pass"}, "unknown", "failed"),
        ("pass", "unknown", "missing"),
        (dict(PASS, unreachable=True, msg="gone"), "unknown", "unreachable"),
        (
            {"failed": True, "msg": "Timed out after 300 second(s).", "timedout": {"period": 300}},
            "unknown",
            "unreachable",
        ),
    ],
)
def test_a_node_is_what_its_result_shows(result, verdict, state):
    entry = node(result)
    assert (entry["verdict"], entry["state"], entry["fails"]) == (verdict, state, verdict != "pass")
    assert entry["next_step"] if state != "judged" else not entry["next_step"]


@pytest.mark.parametrize("damage", ["verdict", "checks", "check", "status", "no pass"])
def test_a_damaged_verdict_never_looks_better(damage):
    result = copy.deepcopy(FAIL)
    checks = result["health"]["checks"]
    if damage == "verdict":
        result["health"]["verdict"] = "pass"
        assert node(result)["verdict"] == "fail", "its own check fails"
        return
    result = copy.deepcopy(PASS)
    checks = result["health"]["checks"]
    if damage == "checks":
        checks.append("gpu.present")
    elif damage == "check":
        del checks[0]["entity"]
    elif damage == "status":
        checks[0]["status"] = "fine"
    else:
        result["health"]["checks"] = [entry for entry in checks if entry["status"] != "pass"]
    assert node(result)["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("fail_on", "failing"),
    [
        (["fail", "unknown"], ["f", "gone", "u"]),
        (["fail"], ["f", "gone"]),
        (["unknown"], ["gone", "u"]),
        ([], ["gone"]),
    ],
)
def test_who_fails_is_asked_for_but_a_node_without_a_verdict_always_does(fail_on, failing):
    p, f, u = (samples.healthy(name) for name in "pfu")
    results = {
        "p": p,
        "f": samples.broken(f, "gpu.present"),
        "u": samples.broken(u, "gpu.present", "unknown"),
        "gone": samples.unreachable(),
    }
    doc = precheck.build_document(list(results), results, fail_on)
    assert doc["failed_nodes"] == failing
    assert doc["verdict"] == "fail", "what is accepted is still what it is"


def test_a_fleet_without_nodes_is_unknown():
    assert precheck.build_document([], {})["verdict"] == "unknown"


def test_the_verdict_is_the_first_field_and_the_same_input_gives_the_same_bytes():
    results = {"p": PASS, "f": FAIL, "u": UNKNOWN, "gone": samples.unreachable()}
    shuffled = {name: copy.deepcopy(results[name]) for name in ("gone", "u", "p", "f")}
    shuffled["p"]["health"]["checks"].reverse()
    shuffled["p"]["health"]["driver"] = dict(reversed(shuffled["p"]["health"]["driver"].items()))
    one = precheck.build_document(list(results), results, time=samples.TIME)
    two = precheck.build_document(["f", "f", "gone", "p", "u"], shuffled, time=samples.TIME)
    assert files.json_text(one) == files.json_text(two)
    assert files.json_text(one).startswith('{\n  "verdict": "fail",\n  "schema": "gpufleet.precheck/1"')
    for render in (precheck_formats.render_markdown, precheck_page.render_page, precheck_formats.render_summary):
        assert render(one) == render(two)
    assert precheck_formats.render_junit(one, results) == precheck_formats.render_junit(two, shuffled)


def test_what_passes_is_counted_and_the_rest_is_there_in_full():
    waiver = {"reason": "cooling", "expires": "2026-12-31"}
    result = samples.broken(FAIL, "gpu.power_limit", "waived", entity="GPU-n-1", waiver=waiver)
    result["health"]["checks"].append(samples.check("gpu.temperature", "GPU-n-2", notice=True, message="warm"))
    entry = node(result)
    statuses = {found["id"]: found["status"] for found in entry["findings"]}
    assert statuses == {"gpu.power_limit": "waived", "gpu.present": "fail", "gpu.temperature": "pass"}
    assert entry["findings"][0]["waiver"] == waiver and entry["findings"][2]["notice"] is True
    assert entry["passed"]["gpu.pcie_width"] == 8 and entry["passed"]["gpu.present"] == 7
    assert entry["not_applicable"] == {"baseline.usable": 1, "node.units": 1}
    assert entry["counts"]["notices"] == 1 and entry["counts"]["waived"] == 1
    assert json.loads(files.json_text(entry)) == entry


def test_the_worst_finding_is_failed_before_unknown_and_severe_before_mild():
    result = samples.broken(UNKNOWN, "gpu.pcie_width", action="restore_setting")
    assert node(result)["worst"]["id"] == "gpu.pcie_width"
    result = samples.broken(result, "gpu.row_remap", action="field_diag")
    assert node(result)["worst"]["id"] == "gpu.row_remap"
    assert node(PASS)["worst"] is None
    result = samples.broken(result, "nvml.answers", entity="node", action="restart_service")
    assert node(result)["worst"]["id"] == "nvml.answers", "the rest follows from it"


@pytest.mark.parametrize(
    ("status", "compared"), [("pass", True), ("not_applicable", False), ("unknown", False), ("fail", False)]
)
def test_compared_is_what_had_a_usable_baseline(status, compared):
    assert (
        node(samples.broken(samples.healthy("n", compared=True), "baseline.usable", status, source="baseline"))[
            "compared"
        ]
        is compared
    )


def test_a_check_of_an_unknown_kind_does_not_stop_the_report():
    result = samples.broken(
        PASS, "gpu.present", action="dance", message=None, observed={"b": [1, None], "a": object}, expected=[]
    )
    doc = precheck.build_document(["n"], {"n": result})
    assert doc["nodes"]["n"]["worst"]["action"] == "hold"
    for render in (
        precheck_formats.render_markdown,
        precheck_page.render_page,
        precheck_formats.render_summary,
        files.json_text,
    ):
        assert render(doc)


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        [],
        {},
        {"gpus": None},
        {"gpus": [None, "x", {}, {"index": None, "uuid": 3, "handle": {"rc": 0, "value": True}}]},
    ],
)
def test_a_damaged_reading_does_not_stop_the_report(snapshot):
    result = copy.deepcopy(PASS)
    result["baseline"]["snapshot"] = snapshot
    doc = precheck.build_document(["n"], {"n": result})
    assert doc["nodes"]["n"]["verdict"] == "pass", "the verdict is gpu_health's; only the inventory is missing"
    for render in (precheck_formats.render_markdown, precheck_page.render_page, precheck_formats.render_summary):
        assert render(doc)


class TestPeers:
    def fleet(self, count=3, size=4):
        return {"n%d" % number: samples.healthy("n%d" % number, size) for number in range(count)}

    def odd(self, results):
        return precheck.build_document(list(results), results)["peers"]

    def set(self, results, name, key, value, gpus=(0,)):
        for index in gpus:
            results[name]["baseline"]["snapshot"]["gpus"][index][key] = value

    def test_all_alike_is_no_notice(self):
        assert self.odd(self.fleet()) == []

    @pytest.mark.parametrize(
        ("key", "value", "trait", "shown"),
        [
            ("vbios_version", samples.value("96.00.61.00.01"), "VBIOS", "96.00.61.00.01"),
            ("inforom_image_version", samples.value("G520.0200.00.03"), "InfoROM", "G520.0200.00.03"),
            ("memory_total_bytes", samples.value(42949672960), "memory", "40.0 GiB"),
            ("power_limit_mw", samples.value(500000), "power limit", "500 W"),
            ("nvlink_active", samples.value([True] * 17 + [False]), "NVLinks up", "17"),
            ("pcie_width_current", samples.value(8), "PCIe width", "x8"),
            ("vbios_version", {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}, "VBIOS", "NOT_SUPPORTED"),
            ("power_limit_mw", {"value": None, "rc": 15, "error": "GPU_IS_LOST"}, "power limit", "GPU_IS_LOST"),
        ],
    )
    def test_one_that_differs_is_named(self, key, value, trait, shown):
        results = self.fleet()
        self.set(results, "n1", key, value, (2,))
        (notice,) = self.odd(results)
        assert (notice["trait"], notice["alike"], notice["of"], notice["per"]) == (trait, 11, 12, "GPU")
        assert notice["odd"] == [{"node": "n1", "value": shown, "gpus": [2]}]
        assert "but %s on n1 GPU 2" % shown in precheck.describe_outlier(notice)

    def test_a_driver_is_the_node_s(self):
        results = dict(self.fleet(), n3=samples.healthy("n3", 4, driver=samples.OTHER))
        (notice,) = self.odd(results)
        assert (notice["trait"], notice["of"], notice["per"], notice["odd"]) == (
            "driver",
            4,
            "node",
            [{"node": "n3", "value": samples.OTHER, "gpus": []}],
        )

    def test_models_are_compared_with_their_like(self):
        results = self.fleet()
        for number in range(3):
            results["a%d" % number] = samples.healthy("a%d" % number, 4, samples.A100)
            self.set(results, "a%d" % number, "power_limit_mw", samples.value(400000), range(4))
        assert self.odd(results) == []

    def test_too_few_have_no_majority(self):
        results = {"n0": samples.healthy("n0", 2)}
        self.set(results, "n0", "power_limit_mw", samples.value(1), (1,))
        assert self.odd(results) == []

    def test_without_a_majority_all_values_are_named(self):
        results = self.fleet(2)
        self.set(results, "n1", "power_limit_mw", samples.value(500000), range(4))
        (notice,) = self.odd(results)
        assert notice["majority"] is None and [entry["value"] for entry in notice["odd"]] == ["700 W", "500 W"]
        assert precheck.describe_outlier(notice) == "%s: no common power limit: 4 × 500 W, 4 × 700 W" % samples.H100

    def test_a_lost_gpu_and_nodes_without_a_reading_are_no_peers(self):
        results = dict(self.fleet(), gone=samples.unreachable())
        self.set(results, "n1", "handle", {"value": None, "rc": 15, "error": "GPU_IS_LOST"})
        self.set(results, "n1", "power_limit_mw", {"value": None, "rc": 15, "error": "GPU_IS_LOST"})
        assert self.odd(results) == []

    def test_it_changes_no_verdict(self):
        results = self.fleet()
        self.set(results, "n1", "power_limit_mw", samples.value(1))
        assert precheck.build_document(list(results), results)["verdict"] == "pass"


def test_one_machine_under_two_names_fails_whatever_its_verdict():
    nodes = {
        "a": samples.healthy("x"),
        "b": samples.healthy("x"),
        "c": samples.healthy("y"),
        "d": samples.unreachable(),
    }
    doc = precheck.build_document(list(nodes), nodes, fail_on=[])
    assert doc["verdict"] == "fail" and doc["failed_nodes"] == ["a", "b", "d"]
    assert doc["twins"].startswith("a and b are one machine under two names of the inventory: both have GPU GPU-x-0.")
    assert any(
        doc["twins"] in line for line in precheck_formats.render_summary(doc)
    ) and "a and b are one machine" in precheck_formats.render_markdown(doc)
    assert "a and b are one machine" in precheck_page.render_page(doc)
    apart = precheck.build_document(["a", "c"], nodes)
    assert (apart["verdict"], apart["twins"]) == ("pass", "")


def test_a_copied_machine_id_makes_no_twins_of_nodes_with_gpus_of_their_own():
    nodes = {name: samples.healthy(name) for name in "ab"}
    for result in nodes.values():
        result["baseline"]["audit"]["identity"] = {"machine_id": "m1", "board_serial": None, "gpus": None}
    assert precheck.build_document(list(nodes), nodes)["twins"] == ""
    nodes["b"]["baseline"]["snapshot"]["gpus"][0]["uuid"] = {"value": None, "rc": 999}
    assert "both have machine id m1" in precheck.build_document(list(nodes), nodes)["twins"]


def with_hardware(result, status, expected=None):
    result["health"]["checks"].append(samples.check("node.hardware", "node", status, expected=expected))
    return result


@pytest.mark.parametrize(
    "change, fails",
    [
        (lambda few: few, True),
        (lambda few: with_hardware(few, "not_applicable"), True),
        # its board comes in such numbers, which is not what it should have
        (lambda few: with_hardware(few, "pass", [1, 2, 4, 8]), True),
        (lambda few: with_hardware(few, "pass", 4), False),
        (lambda few: samples.healthy("few", 4, compared=True), False),
        (lambda few: samples.healthy("few", 8), False),
        (lambda few: samples.healthy("few", 4, name=samples.A100), False),
        (lambda few: samples.unreachable(), False),
    ],
)
@pytest.mark.parametrize("fail_on", [["fail", "unknown"], []])
def test_a_node_with_fewer_gpus_than_its_peers_does_not_pass(change, fails, fail_on):
    results = {name: samples.healthy(name) for name in "abc"}
    results["few"] = change(samples.healthy("few", 4))
    doc = precheck.build_document(list(results), results, fail_on)
    few = doc["nodes"]["few"]
    assert (few["verdict"] == "fail") is fails and ("lacks" in few) is fails
    if fails:
        assert (
            doc["verdict"] == "fail" and doc["failed_nodes"] == (["few"] if fail_on else []) and few["action"] == "hold"
        )
        assert (
            few["worst"]["id"] == "node.hardware"
            and "has 4 of the GPUs %s, and 3 of 4 nodes with them have 8" % samples.H100 in few["worst"]["message"]
        )
        assert few["counts"]["fail"] == 1 and "node.hardware" not in {**few["passed"], **few["not_applicable"]}
        assert any("node.hardware" in line for line in precheck_formats.render_summary(doc))
    assert [doc["nodes"][name]["verdict"] for name in "abc"] == ["pass"] * 3
