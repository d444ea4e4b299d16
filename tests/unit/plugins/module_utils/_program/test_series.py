# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's own series: what each signal becomes, and that a missing one takes its samples with it and no others."""

from __future__ import annotations

import copy
import json
import pathlib
import re
import shutil
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _program
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._program import counts, series

pytestmark = pytest.mark.pythons

DATA = pathlib.Path(_program.__file__).resolve().parents[2] / "plugin_utils" / "_data"
CONTRACT = json.loads((DATA / "node_series.json").read_text())
NAMES = {row["name"][len(series.PREFIX) :] for row in CONTRACT["series"]}
NOW = 1767225600  # 2026-01-01T00:00:00Z
DAY = 24 * 3600


def known(value):
    return {"rc": 0, "value": value}


def not_known(rc=3):
    return {"rc": rc, "error": "NOT_SUPPORTED"}


def gpu(index):
    return {
        "index": index,
        "handle": known(True),
        "uuid": known("GPU-%d" % index),
        "pci_bus_id": known("00000000:%02X:00.0" % (index + 1)),
        "name": known("NVIDIA H100 80GB HBM3"),
        "serial": known("16%d" % index),
        "board_part_number": known("692-2G520-0200-000"),
        "vbios_version": known("96.00"),
        "recovery_action": known(0),
        "temperature_limits_c": known({"slowdown": 90, "shutdown": 95, "gpu_max": 87, "memory_max": None}),
        "fabric": known({"state": 3, "status": 0}),
        "mig_mode_current": not_known(),
        "mig_mode_pending": not_known(),
    }


def held(package, days=None, security=()):
    since = "2025-12-%02dT00:00:00Z" % (32 - days) if days else None
    return {
        "package": package,
        "version": "1",
        "since": since,
        "security": None if security is None else list(security),
    }


def layout(devices):
    entry = {"devices": "all", "mig-enabled": bool(devices), "mig-devices": devices}
    return {"config": {"version": "v1", "mig-configs": {"wanted": [entry]}}, "config_name": "wanted"}


def node(gpus=2):
    """A node of which everything is known."""
    return {
        "now": NOW,
        "problems": {},
        "boot_id": "b1",
        "snapshot": {
            "status": "ok",
            "message": "",
            "count": known(gpus),
            "gpus": [gpu(index) for index in range(gpus)],
        },
        "layout": layout({}),
        "kernels": {"running": "6.1.0-1", "installed": ["6.1.0-1", "6.1.0-2"], "next_boot": "6.1.0-2"},
        "modules": {name: module(name) for name in ("6.1.0-1", "6.1.0-2")},
        "loaded": {"state": "loaded", "version": "580.95.05"},
        "library": {"version": "580.95.05"},
        "holds": {
            "signature": [],
            "rows": {"kernel": [held("linux-image", 3, ["2"])], "driver": [held("nvidia", 2)], "other": []},
        },
        "expected_gpus": gpus,
        "verdicts": [verdict("fail", "2026-01-01T00:00:00Z", "gpu.xid"), None],
        "claim": {"claim": None, "problem": ""},
        "drain": {"note": None, "problem": ""},
        "quarantine": {"note": {"time": "2025-12-31T00:00:00Z"}, "problem": ""},
        "changed_files": ["/etc/x"],
    }


def module(kernel, version="580.95.05", **more):
    return dict(
        {"path": "/m", "version": version, "vermagic": kernel + " SMP", "listed": True, "error": None, "others": []},
        **more,
    )


def verdict(word, time, *failed, boot_id="b0"):
    checks = [{"id": ident, "entity": "node", "status": "fail"} for ident in failed] + [
        {"id": "x", "entity": "node", "status": "pass"}
    ]
    return {"schema": "gpufleet.health/1", "verdict": word, "time": time, "boot_id": boot_id, "checks": checks}


def counted(gpus=2):
    state = counts.fresh("b1")
    state.update(
        position={"boot_id": "b1", "seq": 1, "monotonic_us": 1}, xids={}, sxids={}, updates={"linux-image=2": NOW - DAY}
    )
    state["gpus"] = {
        "0000:%02x:00.0" % (index + 1): {"gpu": str(index), "UUID": "GPU-%d" % index} for index in range(gpus)
    }
    return state


def samples(found=None, state=None):
    """{(name, words of the labels without those of the GPU's identity)}: value"""
    result = {}
    for name, listed in series.samples(found or node(), state or counted()).items():
        for labels, value in listed:
            words = (
                tuple(text for label, text in labels.items() if label != "UUID")
                if name not in ("gpu_info", "node_info")
                else ()
            )
            result[(name,) + words + ((labels["gpu"],) if name == "gpu_info" else ())] = value
    return result


def test_of_a_node_that_is_known_every_series_is_told_and_every_value_of_a_label_that_is_listed():
    found = series.samples(node(), counted())
    assert set(found) == NAMES
    for row in CONTRACT["series"]:
        name = row["name"][len(series.PREFIX) :]
        for label, about in row["labels"].items():
            told = {labels[label] for labels, dummy in found[name]}
            assert "values" not in about or told == set(about["values"]), name
        each = [tuple(sorted(labels.items())) for labels, dummy in found[name]]
        assert len(set(each)) == len(each), name


def test_the_lists_here_are_those_of_the_contract():
    values = {
        row["name"]: {label: about.get("values") for label, about in row["labels"].items()}
        for row in CONTRACT["series"]
    }
    assert tuple(values["gpufleet_xid_total"]["xid_class"]) == series.CLASSES
    assert tuple(values["gpufleet_xid_code_total"]["xid"]) == series.CODES
    assert tuple(values["gpufleet_health_verdict"]["verdict"]) == series.VERDICTS
    assert tuple(values["gpufleet_hold_age_seconds"]["kind"]) == series.KINDS
    several = next(row for row in CONTRACT["series"] if row["name"] == "gpufleet_health_check_failed")["labels"][
        "check"
    ]["several"]
    assert several == series.MOST_CHECKS


GPU_SERIES = {
    "gpu_info",
    "gpus_present",
    "gpu_recovery_action",
    "gpu_temperature_limit_celsius",
    "gpu_fabric_state",
    "mig_layout_matches",
}


@pytest.mark.parametrize(
    "missing, lost",
    [
        ("snapshot", GPU_SERIES),
        ("layout", {"mig_layout_matches"}),
        ("kernels", {"node_info", "next_kernel_has_driver"}),
        ("modules", {"next_kernel_has_driver"}),
        ("loaded", set()),
        ("library", set()),
        ("boot_id", set()),
        ("holds", {"hold_age_seconds", "held_security_updates", "held_security_update_age_seconds"}),
        ("expected_gpus", {"gpus_expected"}),
        ("verdicts", {"health_verdict", "health_verdict_timestamp_seconds", "health_check_failed"}),
        ("claim", set()),
        ("drain", set()),
        ("quarantine", {"quarantine_start_timestamp_seconds"}),
        ("changed_files", {"changed_files"}),
    ],
)
def test_a_part_that_is_not_known_takes_its_series_with_it(missing, lost):
    found = series.samples(dict(node(), **{missing: None}), counted())
    assert NAMES - set(found) == lost
    assert found["nvml_answers"] == [({}, int(missing != "snapshot"))]


def test_each_part_of_the_reading_is_in_the_table():
    rows = test_a_part_that_is_not_known_takes_its_series_with_it.pytestmark[0].args[1]
    assert {row[0] for row in rows} == set(node()) - {"now", "problems"}


def test_what_was_not_counted_is_not_told():
    assert NAMES - set(series.samples(node(), counts.fresh("b1"))) == {"xid_total", "xid_code_total", "sxid_total"}


@pytest.mark.parametrize("status", ["timeout", "stuck", "nvml_error", "no_binding"])
def test_nvml_that_does_not_answer_leaves_no_value_of_a_gpu_but_what_the_kernel_logged(status):
    found = node()
    found["snapshot"]["status"] = status
    told = samples(found)
    assert told[("nvml_answers",)] == 0 and not {key[0] for key in told} & GPU_SERIES
    assert told[("xid_total", "1", "hold")] == 0


@pytest.mark.parametrize(
    "key, name",
    [
        ("recovery_action", "gpu_recovery_action"),
        ("temperature_limits_c", "gpu_temperature_limit_celsius"),
        ("fabric", "gpu_fabric_state"),
    ],
)
def test_a_value_that_one_gpu_does_not_tell(key, name):
    found = node()
    found["snapshot"]["gpus"][1][key] = not_known()
    assert set(samples()) - set(samples(found)) == {(name, "1")}


def test_a_gpu_that_nvml_cannot_open_has_no_series_and_is_counted():
    found = node()
    found["snapshot"]["gpus"][1] = {
        "index": 1,
        "handle": not_known(15),
        "uuid": not_known(15),
        "mig_mode_current": not_known(15),
        "mig_mode_pending": not_known(15),
    }
    told = samples(found)
    assert ("gpu_info", "1") not in told and told[("gpus_present",)] == 2 and ("gpu_info", "0") in told


@pytest.mark.parametrize(
    "change, told",
    [
        ({}, 1),
        ({"modules": {"6.1.0-1": module("6.1.0-1"), "6.1.0-2": None}}, 0),
        ({"modules": {"6.1.0-2": module("6.1.0-2", "570.1.2")}}, 0),
        ({"modules": {"6.1.0-2": module("6.1.0-1")}}, 0),
        ({"modules": {"6.1.0-2": module("6.1.0-2", None, error="modinfo is not installed")}}, None),
        ({"kernels": {"running": "6.1.0-1", "installed": ["6.1.0-1"], "next_boot": "6.1.0-2"}}, 0),
        ({"kernels": {"running": "6.1.0-1", "installed": ["6.1.0-1"], "next_boot": None}}, None),
        ({"library": {"version": None}}, 1),
        ({"library": {"version": None}, "loaded": {"version": None}}, None),
        ({"library": {"version": "590.1.2"}}, 0),
    ],
)
def test_the_kernel_that_boots_next(change, told):
    assert series.next_kernel(dict(node(), **change)) == told


LAYOUT = {"profiles": [], "instances": [], "processes": []}


@pytest.mark.parametrize(
    "change, wanted, told",
    [
        ({}, False, 1),
        ({}, True, 0),
        ({"mig_mode_current": known(0), "mig_mode_pending": known(0), "mig_layout": known(LAYOUT)}, False, 1),
        ({"mig_mode_current": known(1), "mig_mode_pending": known(1), "mig_layout": known(LAYOUT)}, False, 0),
        ({"mig_mode_current": known(0), "mig_mode_pending": known(1), "mig_layout": known(LAYOUT)}, False, 0),
        ({"mig_mode_current": not_known(999), "mig_mode_pending": not_known(999)}, False, None),
        ({"mig_mode_current": known(1), "mig_mode_pending": known(1), "mig_layout": not_known(4)}, False, None),
        ({"handle": not_known(15)}, False, None),
    ],
)
def test_the_layout_of_a_gpu(change, wanted, told):
    assert series.layouts(layout({"1g.10gb": 7} if wanted else {}), [dict(gpu(0), **change)]) == [told]


def test_a_layout_that_names_a_gpu_which_is_not_there_is_on_none():
    assert series.layouts({"layout": [{"gpus": ["GPU-9"], "mig_enabled": False}]}, [gpu(0), gpu(1)]) == [0, 0]
    assert series.layouts(None, [gpu(0)]) == [None]


@pytest.mark.parametrize(
    "verdicts, told",
    [
        ([None, None], None),
        ([{}, []], None),
        ([verdict("maybe", "2026-01-01T00:00:00Z")], None),
        ([verdict("pass", "yesterday")], None),
        ([dict(verdict("pass", "2026-01-01T00:00:00Z"), schema="gpufleet.health/2")], None),
        ([verdict("pass", "2026-01-01T00:00:00Z"), verdict("fail", "2026-01-01T00:00:01Z")], "fail"),
        ([verdict("unknown", "2026-01-01T00:00:02Z"), verdict("fail", "2026-01-01T00:00:01Z")], "unknown"),
        # The check at boot, before the node's clock was set.
        ([verdict("fail", "2015-01-01T00:00:00Z", boot_id="b1"), verdict("pass", "2025-12-31T00:00:00Z")], "fail"),
        ([verdict("pass", "2036-01-01T00:00:00Z"), verdict("fail", "2025-12-31T00:00:00Z")], "fail"),
    ],
)
def test_the_last_verdict(verdicts, told):
    found = samples(dict(node(), verdicts=verdicts))
    assert [key[1] for key, value in found.items() if key[0] == "health_verdict" and value == 1] == (
        [told] if told else []
    )


def test_at_most_so_many_failed_checks():
    many = verdict("fail", "2026-01-01T00:00:00Z", *["check.%02d" % (number % 25) for number in range(50)])
    told = [key[1] for key in samples(dict(node(), verdicts=[many])) if key[0] == "health_check_failed"]
    assert told == ["check.%02d" % number for number in range(20)]


def claimed(state):
    return {"claim": {"state": state}, "problem": ""}


@pytest.mark.parametrize(
    "claim, marker, told",
    [
        ({"claim": None, "problem": ""}, {"note": None, "problem": ""}, {"rollout": 0, "quarantine": 0}),
        (claimed("held"), {"note": None, "problem": ""}, {"rollout": 1, "quarantine": 0}),
        (claimed("released"), {"note": None, "problem": ""}, {"rollout": 0, "quarantine": 0}),
        (claimed("quarantined"), {"note": None, "problem": ""}, {"rollout": 0, "quarantine": 1}),
        ({"claim": None, "problem": "it is not JSON"}, {"note": None, "problem": ""}, {"quarantine": 0}),
        ({"claim": None, "problem": ""}, {"note": {"time": "x"}, "problem": ""}, {"rollout": 0, "quarantine": 1}),
        ({"claim": None, "problem": ""}, {"note": None, "problem": "it is not JSON"}, {"rollout": 0, "quarantine": 1}),
        (None, {"note": None, "problem": ""}, {"quarantine": 0}),
        (claimed("held"), None, {"rollout": 1}),
        (None, None, {}),
    ],
)
def test_what_keeps_the_node_out_of_service(claim, marker, told):
    found = samples(dict(node(), claim=claim, drain=None, quarantine=marker))
    assert {key[1]: value for key, value in found.items() if key[0] == "node_out_of_service"} == told


@pytest.mark.parametrize(
    ("note", "told"),
    [
        ({"note": None, "problem": ""}, 0),
        ({"note": {"token": "by-hand"}, "problem": ""}, 1),
        ({"note": {}, "problem": ""}, 1),
        ({"note": None, "problem": "it is not JSON"}, None),
        (None, None),
    ],
)
def test_a_drained_node_is_out_of_service(note, told):
    found = samples(dict(node(), drain=note))
    assert {key[1]: value for key, value in found.items() if key[0] == "node_out_of_service"}.get("drain") == told


@pytest.mark.parametrize(
    "rows, age, updates",
    [
        ([], 0, 0),
        ([held("a", 2), held("b", 5)], 5 * DAY, 0),
        ([held("a")], None, 0),
        ([held("a"), held("b", 5, ["2", "3"])], 5 * DAY, 2),
        ([held("a", 1, None)], DAY, None),
        ([held("a", 1, ["2"]), held("b", 1, None)], DAY, None),
    ],
)
def test_the_holds_of_a_kind(rows, age, updates):
    found = dict(node(), holds={"signature": [], "rows": {"kernel": rows, "driver": [], "other": []}})
    told = samples(found)
    assert (told.get(("hold_age_seconds", "kernel")), told.get(("held_security_updates", "kernel"))) == (age, updates)
    assert (told[("hold_age_seconds", "driver")], told[("held_security_updates", "other")]) == (0, 0)
    assert (("held_security_update_age_seconds",) in told) == (updates is not None)


def test_since_when_updates_are_held_out():
    assert samples()[("held_security_update_age_seconds",)] == DAY
    assert samples(state=dict(counted(), updates={}))[("held_security_update_age_seconds",)] == 0
    assert (
        samples(state=dict(counted(), updates={"a=1": NOW - 5, "b=1": NOW - 50}))[("held_security_update_age_seconds",)]
        == 50
    )


def test_what_was_logged_of_a_gpu_and_of_a_place_that_is_none():
    state = counted()
    state["xids"] = {
        "0000:02:00.0": {"UUID": "GPU-1", "classes": {"hold": 2, "reset": 1}, "codes": {"79": 2}},
        "0000:99:00.0": {"UUID": "GPU-9", "classes": {"app": 4}, "codes": {}},
    }
    state["sxids"] = {"yes": 3}
    told = samples(state=state)
    assert told[("xid_total", "1", "hold")] == 2 and told[("xid_total", "1", "reset")] == 1
    assert told[("xid_total", "0", "hold")] == 0
    assert told[("xid_code_total", "1", "79")] == 2 and told[("xid_code_total", "0", "79")] == 0
    assert told[("xid_total", "", "app")] == 4 and told[("xid_total", "", "hold")] == 0
    assert told[("sxid_total", "yes")] == 3 and told[("sxid_total", "no")] == 0
    assert {labels["UUID"] for labels, dummy in series.samples(node(), state)["xid_total"]} == {
        "GPU-0",
        "GPU-1",
        "GPU-9",
    }


@pytest.mark.parametrize("gpus", [8, 16])
def test_a_node_has_at_most_300_series(gpus):
    """With as many failed checks as are told, and XIDs of as many places that are no GPU as are told apart."""
    state = counted(gpus)
    places = ["0000:f%d:00.0" % number for number in range(counts.MOST_STRANGERS)] + [counts.NOWHERE]
    state["xids"] = {place: {"UUID": "", "classes": {"hold": 1}, "codes": {}} for place in places}
    many = verdict("fail", "2026-01-01T00:00:00Z", *["check.%d" % number for number in range(99)])
    text = series.render(CONTRACT, series.samples(dict(node(gpus), verdicts=[many]), state))
    assert 100 < len([line for line in text.splitlines() if not line.startswith("#")]) <= 300


# ---- the text ----


def test_the_text_is_read_by_prometheus_and_says_the_same():
    found = node()
    found["snapshot"]["gpus"][0]["name"] = known('a "b" \\ c\nd')
    text = series.render(CONTRACT, series.samples(found, counted()))
    for line in text.splitlines():
        assert re.match(
            r'# (HELP|TYPE) gpufleet_\w+ .+$|gpufleet_\w+(\{(\w+="([^"\\\n]|\\["\\n])*",?)*\})? [0-9.e+-]+$', line
        ), line
    assert 'name="a \\"b\\" \\\\ c\\nd"' in text and text.endswith("\n") and "\n\n" not in text
    assert len(set(text.splitlines())) == len(text.splitlines())
    if shutil.which("promtool"):
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("value, text", [(0, "0"), (3, "3"), (1767225600, "1767225600"), (2.5, "2.5"), (3.0, "3")])
def test_a_number(value, text):
    assert series.number(value) == text


@pytest.mark.parametrize(
    "found",
    [
        {"no_such_series": [({}, 1)]},
        {"nvml_answers": [({"gpu": "0"}, 1)]},
        {"gpu_info": [({"gpu": "0"}, 1)]},
        {"health_verdict": [({"verdict": "maybe"}, 1)]},
    ],
)
def test_a_sample_that_the_contract_does_not_know_is_refused(found):
    with pytest.raises(series.ContractError):
        series.render(CONTRACT, found)


def test_a_contract_of_another_schema_is_refused():
    with pytest.raises(series.ContractError):
        series.render(dict(copy.deepcopy(CONTRACT), schema="gpufleet.node-series/2"), {})
