# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done on a GPU for a layout, and what keeps it from being done, as a truth table; the baseline's layout;
documents.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import baseline, config, documents, plan
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._mig import boards

pytestmark = pytest.mark.pythons

OFF = config.Layout(False, {})
EMPTY = config.Layout(True, {})


def on(**devices):
    return config.Layout(True, {name[1:].replace("_", "."): count for name, count in devices.items()})


LOST = codes.missing(15)
HALVES = ((9, 4, 4, (3,)), (9, 0, 4, (3,)))
SILENT = [dict(profile, placements=None) for profile in boards.a100()]


NO_MIG = boards.gpu(mig_mode_current=codes.missing(3), mig_layout=codes.missing(3))


def gpu_off(**more):
    return boards.gpu(profiles=SILENT, mode=0, **more)


@pytest.mark.parametrize(
    ("gpu", "layout", "status", "code"),
    [
        # The layout is there.
        (gpu_off(), OFF, plan.SAME, None),
        (boards.gpu(), EMPTY, plan.SAME, None),
        (boards.gpu(instances=HALVES), on(d3g_20gb=2), plan.SAME, None),
        (boards.gpu(instances=((9, 4, 4, (2, 1)),)), on(d2c_3g_20gb=1, d1c_3g_20gb=1), plan.SAME, None),
        (boards.gpu(instances=HALVES, processes=[(7, 1, 0)]), on(d3g_20gb=2), plan.SAME, None),
        (NO_MIG, OFF, plan.SAME, None),
        # It differs.
        (gpu_off(), EMPTY, plan.CHANGE, None),
        (gpu_off(), on(d1g_5gb=7), plan.CHANGE, None),
        (boards.gpu(), OFF, plan.CHANGE, None),
        (boards.gpu(instances=HALVES), EMPTY, plan.CHANGE, None),
        (boards.gpu(instances=((9, 4, 4, ()),)), EMPTY, plan.CHANGE, None),
        (boards.gpu(instances=((9, 4, 4, ()),)), on(d3g_20gb=1), plan.CHANGE, None),
        (boards.gpu(instances=HALVES), on(d3g_20gb=1), plan.CHANGE, None),
        (boards.gpu(instances=HALVES, processes=[(7, 1, 0)]), on(d3g_20gb=1, d1g_5gb=1), plan.CHANGE, None),
        # It waits for a reset, or the reset would take it away.
        (gpu_off(pending=1), EMPTY, plan.PENDING, None),
        (boards.gpu(pending=0), OFF, plan.PENDING, None),
        (gpu_off(pending=1), OFF, plan.REFUSED, "reset_pending"),
        (boards.gpu(pending=0), on(d1g_5gb=1), plan.REFUSED, "reset_pending"),
        # It cannot be had.
        (gpu_off(), None, plan.REFUSED, "uncovered"),
        (NO_MIG, EMPTY, plan.REFUSED, "not_supported"),
        (boards.gpu(mig_mode_current=LOST), OFF, plan.REFUSED, "unreadable"),
        (boards.gpu(mig_mode_pending=LOST), EMPTY, plan.REFUSED, "unreadable"),
        (boards.gpu(mig_layout=codes.missing(4)), EMPTY, plan.REFUSED, "unreadable"),
        (boards.gpu(), on(d1g_10gb=1, d3g_40gb=1), plan.REFUSED, "unknown_profile"),
        (boards.gpu(), on(d1g_5gb=8), plan.REFUSED, "does_not_fit"),
        (boards.gpu(), on(d3g_20gb=3, d1g_5gb=1), plan.REFUSED, "does_not_fit"),
        (gpu_off(), on(d3g_20gb=3, d1g_5gb=1), plan.REFUSED, "does_not_fit"),
        # Work is in the way: of the GPU itself, of an instance that would go, of a compute instance that would go.
        (gpu_off(processes=[(7, None, None)]), on(d1g_5gb=7), plan.REFUSED, "in_use"),
        (boards.gpu(processes=[(7, None, None)]), OFF, plan.REFUSED, "in_use"),
        (boards.gpu(instances=HALVES, processes=[(7, 1, 0)]), EMPTY, plan.REFUSED, "in_use"),
        (boards.gpu(instances=HALVES, processes=[(7, 1, 0), (8, 2, 0)]), on(d3g_20gb=1), plan.REFUSED, "in_use"),
        (boards.gpu(instances=((9, 4, 4, (2, 1)),), processes=[(7, 1, 0)]), on(d1c_3g_20gb=3), plan.REFUSED, "in_use"),
        (boards.gpu(instances=((9, 4, 4, (2, 1)),), processes=[(7, 1, 1)]), on(d1c_3g_20gb=3), plan.CHANGE, None),
    ],
)
def test_what_becomes_of_a_gpu(gpu, layout, status, code):
    found = plan.decide(gpu, layout, {7: "python3 (pid 7)"})
    assert found.status == status
    assert [problem.code for problem in found.problems] == ([code] if code else [])
    assert bool(found.steps) == (status == plan.CHANGE)


def test_who_is_in_the_way_is_named():
    (problem,) = plan.decide(
        boards.gpu(processes=[(7, None, None), (8, 3, 0)]), OFF, {7: "python3 (pid 7, user root)"}
    ).problems
    assert "python3 (pid 7, user root)" in problem.message and "pid 8" in problem.message
    assert "GPU instance 3" in problem.message


def steps(gpu, layout):
    found = plan.decide(gpu, layout, {})
    assert found.problems == ()
    return [tuple(part for key, part in sorted(step.items()) if key != "gpu") for step in found.steps]


def test_the_mode_comes_first_and_instances_when_it_is_on():
    assert steps(gpu_off(), on(d1g_5gb=7)) == [("set_mode", 1)]


def test_before_mig_goes_off_its_instances_do():
    assert steps(boards.gpu(instances=((9, 4, 4, (3,)),)), OFF) == [
        (0, "destroy_compute", 1),
        ("destroy", 1),
        ("set_mode", 0),
    ]


def test_an_instance_that_is_wanted_stays():
    """One half stays, the other is cut into 2g and two 1g."""
    found = plan.decide(boards.gpu(instances=HALVES), on(d3g_20gb=1, d2g_10gb=1, d1g_5gb=2), {})
    gone = [step["instance"] for step in found.steps if step["do"] == plan.DESTROY]
    made = [(step["profile"], step["compute"]) for step in found.steps if step["do"] == plan.CREATE]
    assert len(gone) == 1 and sorted(made) == [(14, [2]), (19, [1]), (19, [1])]
    # What goes does so before what comes.
    assert [step["do"] for step in found.steps] == ["destroy_compute", "destroy", "create", "create", "create"]


def test_of_compute_instances_those_stay_that_are_wanted():
    assert steps(boards.gpu(instances=((9, 4, 4, (2, 1)),)), on(d1c_3g_20gb=3)) == [
        (0, "destroy_compute", 1),
        ("create_compute", 1, 1),
        ("create_compute", 1, 1),
    ]


def test_an_empty_instance_is_filled():
    assert steps(boards.gpu(instances=((9, 4, 4, ()),)), on(d3g_20gb=1)) == [("create_compute", 1, 3)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"1c.3g.20gb": 3}, [(9, (1, 1, 1))]),
        ({"1c.3g.20gb": 4}, [(9, (1, 1, 1)), (9, (1,))]),
        ({"2c.3g.20gb": 1, "1c.3g.20gb": 1}, [(9, (2, 1))]),
        ({"2c.3g.20gb": 2}, [(9, (2,)), (9, (2,))]),
        ({"3g.20gb": 1, "1c.3g.20gb": 1}, [(9, (3,)), (9, (1,))]),
        ({}, []),
        ({"1g.5gb": 2, "1g.5gb+me": 1}, [(19, (1,)), (19, (1,)), (20, (1,))]),
    ],
)
def test_devices_of_a_profile_share_an_instance_as_long_as_it_has_room(wanted, expected):
    assert plan.slots(wanted, boards.a100()) == [plan.Slot(*slot) for slot in expected]


def test_the_way_back_makes_what_was_there_at_its_place():
    before = boards.gpu(instances=((9, 4, 4, (3,)), (19, 0, 1, (1,))))
    after = boards.gpu(instances=((9, 4, 4, (3,)), (14, 0, 2, (2,))))
    found = plan.undo(before, after, 1)
    assert [(step["do"], step.get("instance"), step.get("profile"), step.get("start")) for step in found] == [
        ("destroy_compute", 2, None, None),
        ("destroy", 2, None, None),
        ("create", None, 19, 0),
    ]
    assert plan.undo(before, before, 1) == []
    assert [step["do"] for step in plan.undo(gpu_off(), boards.gpu(instances=((19, 0, 1, (1,)),)), 0)] == [
        "destroy_compute",
        "destroy",
        "set_mode",
    ]


# ---- the layout of a baseline ----


def taken(*gpus):
    return {"gpus": list(gpus)}


def old(mode, names=(), uuid="GPU-0"):
    return {
        "index": 0,
        "uuid": codes.value(uuid),
        "mig_mode_current": mode,
        "mig_instances": codes.value([{"name": "NVIDIA A100 MIG " + name} for name in names]),
    }


def test_the_layout_of_a_baseline():
    assert baseline.entries(
        taken(
            old(codes.value(1), ["1g.5gb", "1g.5gb", "1c.3g.20gb"]),
            old(codes.value(0), uuid="GPU-1"),
            old(codes.missing(3), uuid="GPU-2"),
        )
    ) == [
        {"gpus": ["GPU-0"], "mig_enabled": True, "mig_devices": {"1g.5gb": 2, "1c.3g.20gb": 1}},
        {"gpus": ["GPU-1"], "mig_enabled": False},
        {"gpus": ["GPU-2"], "mig_enabled": False},
    ]


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        {},
        {"gpus": None},
        taken(old(LOST)),
        taken({}),
        taken(dict(old(codes.value(1)), uuid=LOST)),
        taken(dict(old(codes.value(1)), mig_instances=LOST)),
        taken(dict(old(codes.value(1)), mig_instances=codes.value([{"name": None}]))),
    ],
)
def test_a_baseline_that_does_not_tell_is_refused(snapshot):
    with pytest.raises(baseline.BaselineProblem):
        baseline.entries(snapshot)


# ---- documents ----


def test_what_is_exported_is_the_layout_again():
    gpus = [boards.gpu(0, instances=HALVES), boards.gpu(1, profiles=SILENT, mode=0), boards.gpu(2, instances=HALVES)]
    document, notes = documents.export_layout(gpus, "now")
    assert notes == [] and [entry["devices"] for entry in document["mig-configs"]["now"]] == [[0, 2], [1]]
    entries = config.choose(config.parse(document), "now")
    for position, gpu in enumerate(gpus):
        layout = config.layout_of(entries, plan.target(gpu, position))
        assert plan.decide(gpu, layout, {}).status == plan.SAME


def test_what_a_configuration_cannot_say_is_told():
    document, notes = documents.export_layout(
        [boards.gpu(instances=((9, 4, 4, ()),)), boards.gpu(1, mig_mode_current=LOST)], "now"
    )
    assert len(notes) == 2
    assert document["mig-configs"]["now"] == [{"devices": [0], "mig-enabled": True, "mig-devices": {}}]


def test_layouts_are_generated_from_what_the_gpus_offer():
    configs = documents.generate_document([boards.gpu()])["mig-configs"]
    assert configs["all-1g.5gb"] == [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}]
    assert configs["all-1g.5gb.me"][0]["mig-devices"] == {"1g.5gb+me": 1}
    assert configs["all-balanced"][0]["mig-devices"] == {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}
    assert len(configs) == 2 + 7 + 1


def test_layouts_of_different_boards_are_filtered_by_device():
    other = boards.gpu(1, profiles=boards.a30(), pci_device_id=codes.value("10de:20b7"))
    configs = documents.generate_document([boards.gpu(), other])["mig-configs"]
    assert [(entry["device-filter"], entry["mig-devices"]) for entry in configs["all-balanced"]] == [
        (["0x20b010de"], {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
        (["0x20b710de"], {"1g.6gb": 2, "2g.12gb": 1}),
    ]
    assert "device-filter" not in configs["all-disabled"][0]
