# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layouts made through the simulated NVML library: real C calls, real structures, each task a process of its own."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._mig import boards
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._mig.mignode import (
    codes,
    configuration,
    everywhere,
    layouts,
    mig,
    several,
    statuses,
    task,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels

pytestmark = pytest.mark.pythons

BALANCED = {"d3g_40gb": 1, "d2g_20gb": 1, "d1g_10gb": 2}
MADE = {"enabled": True, "devices": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}
OFF = {"enabled": False, "devices": {}}


@pytest.fixture
def make(make_node):
    def new(model="h100-sxm", gpus=2):
        node = make_node(model, gpus)
        if model != "rtx-pro-6000":
            return node.booted()
        # Blackwell takes the open modules only.
        node.kernel()
        node.module("580.105.08", licence="Dual MIT/GPL")
        node.library("580.105.08")
        node.sim("boot")
        return node

    return new


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_check_apply_check_apply(make, wheel):
    node = make()
    first = mig(node, check=True, wheel=wheel, **everywhere(**BALANCED))
    assert (first["changed"], first["nvml_writes"], layouts(first)) == (True, 0, [MADE, MADE])
    second = mig(node, wheel=wheel, **everywhere(**BALANCED))
    # One write for the mode of each GPU, two for each of its devices.
    assert (second["changed"], second["nvml_writes"], layouts(second), statuses(second)) == (
        True,
        18,
        [MADE, MADE],
        ["changed", "changed"],
    )
    assert second["diff"] == first["diff"]
    for check in (True, False):
        again = mig(node, check=check, wheel=wheel, **everywhere(**BALANCED))
        assert (again["changed"], again["nvml_writes"], statuses(again), again["diff"]) == (
            False,
            0,
            ["same", "same"],
            {"before": {}, "after": {}},
        )


@pytest.mark.parametrize(
    "model",
    ["a100-80-sxm", "rtx-pro-6000"]
    + [pytest.param(model, marks=pytest.mark.slow) for model in ("a100-sxm", "h100-sxm", "h200", "a30")],
)
def test_every_layout_that_nvidia_ships_is_made_exported_and_recognized(make, model):
    shipped = boards.shipped("a100" if model == "a100-sxm" else model)
    shipped += [{"2g.12gb+me": 1}] if model == "a30" else []
    node = make(model, 1)
    on = [{"devices": "all", "mig-enabled": True, "mig-devices": {}}]
    first = mig(node, **configuration(*on))
    if first["reset_required"]:
        node.tool("nvidia-smi", "--gpu-reset")
    asked = []
    for devices in shipped:
        wanted = configuration({"devices": "all", "mig-enabled": True, "mig-devices": devices})
        asked += [task(node, **wanted), task(node, state="exported"), task(node, check=True, **wanted)]
    results = several(node, asked)
    for number, devices in enumerate(shipped):
        made, exported, asserted = results[3 * number : 3 * number + 3]
        assert ("failed" in made, statuses(made), layouts(made)) == (
            False,
            ["changed"],
            [{"enabled": True, "devices": devices}],
        ), made["msg"]
        (entry,) = exported["config"]["mig-configs"]["current"]
        assert entry == {"devices": "all", "mig-enabled": True, "mig-devices": devices}
        assert (asserted["changed"], statuses(asserted), asserted["nvml_writes"]) == (False, ["same"], 0)


def test_every_layout_that_is_generated_is_one_that_nvidia_ships(make):
    offered = mig(make("h100-sxm", 1), state="generated")["config"]["mig-configs"]
    found = [
        entries[0]["mig-devices"] for name, entries in offered.items() if name not in ("all-disabled", "all-enabled")
    ]
    assert sorted(map(sorted, map(dict.items, found))) == sorted(
        map(sorted, map(dict.items, boards.shipped("h100-sxm")))
    )


@pytest.mark.parametrize(
    ("devices", "code"),
    [
        ({"d3g_40gb": 3, "d1g_10gb": 1}, "does_not_fit"),
        ({"d1g_10gb": 8}, "does_not_fit"),
        ({"d1g_5gb": 7}, "unknown_profile"),
    ],
)
def test_what_cannot_be_made_destroys_nothing(make, devices, code):
    node = make()
    mig(node, **everywhere(**BALANCED))
    refused = mig(node, **everywhere(**devices))
    assert (refused["failed"], refused["changed"], refused["nvml_writes"], codes(refused)) == (True, False, 0, [code])
    assert mig(node, **everywhere(**BALANCED))["nvml_writes"] == 0


def test_one_gpu_that_cannot_have_its_layout_keeps_the_others_from_being_touched(make):
    node = make()
    refused = mig(
        node,
        **configuration(
            {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
            {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}},
        ),
    )
    assert (refused["failed"], refused["nvml_writes"], statuses(refused)) == (True, 0, ["change", "refused"])
    assert [row["after"] for row in refused["gpus"]] == [OFF, OFF]


def test_a_gpu_that_no_entry_is_about_is_refused(make):
    node = make()
    assert codes(mig(node, **configuration({"devices": [0], "mig-enabled": False}))) == ["uncovered"]


def test_only_gpus_that_differ_are_touched_and_what_can_stay_stays(make):
    node = make()
    mig(node, **everywhere(d3g_40gb=2))
    uuids = [n["uuid"] for n in devices(node)]
    changed = mig(
        node,
        layout=[
            {"mig_enabled": True, "mig_devices": {"3g.40gb": 2}},
            {"gpus": ["1"], "mig_enabled": True, "mig_devices": {"3g.40gb": 1, "2g.20gb": 1}},
        ],
    )
    assert statuses(changed) == ["same", "changed"] and changed["nvml_writes"] == 4
    now = [n["uuid"] for n in devices(node)]
    assert set(now[:2]) == set(uuids[:2]) and len(set(now) & set(uuids)) == 3


def devices(node):
    return node.ask("""[{"gpu": i, "uuid": text(n.nvmlDeviceGetUUID, d)} for i in range(n.nvmlDeviceGetCount())
                        for d in [value(n.nvmlDeviceGetMigDeviceHandleByIndex, handle(i), \
k) for k in range(7)] if not isinstance(d, str)]""")


def test_instances_without_compute_instances_are_seen_and_filled(make):
    node = make()
    mig(node, **everywhere())
    node.ask("rc(n.nvmlDeviceCreateGpuInstance, handle(0), 9)")
    found = mig(node, state="exported")
    assert len(found["warnings"]) == 1
    assert mig(node, check=True, **everywhere())["gpus"][0]["before"] == {"enabled": True, "devices": {"0c.3g.40gb": 1}}
    filled = mig(
        node,
        **configuration(
            {"devices": [0], "mig-enabled": True, "mig-devices": {"3g.40gb": 1}},
            {"devices": [1], "mig-enabled": True, "mig-devices": {}},
        ),
    )
    assert statuses(filled) == ["changed", "same"] and filled["nvml_writes"] == 1


def test_instances_go_and_the_mode_stays(make):
    node = make()
    mig(node, **everywhere(**BALANCED))
    cleared = mig(node, state="cleared")
    assert layouts(cleared) == [{"enabled": True, "devices": {}}] * 2
    off = mig(node, **configuration({"devices": "all", "mig-enabled": False}))
    assert layouts(off) == [OFF, OFF] and mig(node, state="cleared")["nvml_writes"] == 0


def test_a_board_without_mig(make):
    node = make("l4", 1)
    assert mig(node, **configuration({"devices": "all", "mig-enabled": False}))["changed"] is False
    assert codes(mig(node, **everywhere())) == ["not_supported"]


@pytest.mark.parametrize("symbol", ["nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"])
def test_a_gpu_that_does_not_get_its_layout_gets_back_the_one_it_had(make, symbol):
    """The first of its calls fails, those of the way back do not."""
    node = make()
    mig(node, **everywhere(d3g_40gb=2))
    node.sim("inject", "error", symbol, "999", "--gpu", "1", "--first", "1")
    failed = mig(node, **everywhere(d2g_20gb=3))
    assert failed["failed"] is True and statuses(failed) == ["changed", "failed"] and codes(failed) == ["failed"]
    assert layouts(failed) == [
        {"enabled": True, "devices": {"2g.20gb": 3}},
        {"enabled": True, "devices": {"3g.40gb": 2}},
    ]


def test_nvml_that_answers_success_and_does_nothing_is_found_out(make):
    node = make()
    node.sim("inject", "ignored", "nvmlDeviceSetMigMode", "--gpu", "0")
    failed = mig(node, **everywhere())
    assert failed["failed"] is True and statuses(failed) == ["failed", "changed"] and layouts(failed)[0] == OFF


def test_a_driver_that_hangs_is_not_waited_for(make):
    node = make()
    node.sim("inject", "hang", "nvmlDeviceGetMigMode", "forever")
    found = mig(node, timeout=2, **everywhere())
    assert "error" in found and found["snapshot"]["status"] == "timeout"


def test_a_gpu_that_the_node_does_not_have(make):
    assert "GPU-none" in mig(make(), layout=[{"gpus": ["GPU-none"], "mig_enabled": False}])["error"]


def test_a_node_whose_gpus_are_all_gone_has_no_layout(make):
    node = make()
    for number in range(2):
        node.sim("inject", "gpu-missing", "--gpu", str(number))
    for check in (True, False):
        assert "no GPU" in mig(node, check=check, **everywhere(d1g_10gb=7)).get("error", "")


def test_a_configuration_that_is_not_there(make):
    options = everywhere()
    options["config_name"] = "wnated"
    (result,) = several(
        make(),
        [{"options": dict(options, state="present"), "check": False, "stuck": None, "processes": {}, "timeout": 60}],
    )
    assert "wanted" in result["error"]
