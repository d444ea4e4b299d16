# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan that wants a MIG layout, a driver version, or both: truth tables of what becomes of each node."""

from __future__ import annotations

import types

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import config
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, plan, plan_text, probes
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.order import PlanError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe

POLICY = limits.complete_policy({}, 10)
ENTRY = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2}}
HALVES = {"name": "halves", "config": {"version": "v1", "mig-configs": {"halves": [ENTRY]}}}
THIRDS = {"name": "thirds", "config": {"version": "v1", "mig-configs": {"thirds": [ENTRY]}}}
SAME, CHANGE = {"gpus": [{"status": "same"}]}, {"gpus": [{"status": "same"}, {"status": "change"}]}


def ended(name="a", value="done", steps=(), finished="2026-01-01T00:00:00.000Z", **fields):
    """The view of this rollout after a run in which the node came to VALUE."""
    node = state.Node(
        name,
        **dict(
            {
                "state": value,
                "from_version": "1.0",
                "to_version": "1.0",
                "layout": HALVES,
                "failure": state.HARD if value in state.FAILED else "",
                "steps": [state.Step(step, "2026-01-01T00:00:00.000Z") for step in steps],
            },
            **fields,
        ),
    )
    return state.Rollout(
        rollout_id="r",
        run="r0",
        started="2026-01-01T00:00:00.000Z",
        finished=finished,
        policy=POLICY,
        nodes=state.Nodes([node]),
    )


def made(probe, target="", previous=None, **more):
    layout = more.pop("layout", HALVES)
    return plan.build_plan(target, [probe], POLICY, previous, layouts={"a": layout} if layout else None, **more)


@pytest.mark.parametrize(
    ("target", "version", "there", "verdict", "expected", "install"),
    [
        # The layout alone: the version stays.
        ("", "1.0", True, "pass", "skipped", False),
        ("", "1.0", True, "fail", "failed", False),
        ("", "1.0", True, "", "failed", False),
        ("", "1.0", False, "pass", "pending", False),
        ("", "1.0", None, "pass", "pending", False),  # not known is not there
        ("", None, True, "pass", "failed", False),
        # Both.
        ("2.0", "2.0", True, "pass", "skipped", False),
        ("2.0", "2.0", True, "unknown", "failed", False),
        ("2.0", "2.0", False, "pass", "pending", False),
        ("2.0", "1.0", True, "pass", "pending", True),
        ("2.0", "1.0", False, "pass", "pending", True),
    ],
)
def test_a_node_goes_unless_it_has_all_that_is_wanted(target, version, there, verdict, expected, install):
    result = made(Probe("a", version=version, layout=there, verdict=verdict), target)
    node = result.nodes["a"]
    assert (node["state"], node["install"], node["layout"]) == (expected, install, HALVES)
    assert (node["from"], node["to"]) == (version, target or version)
    assert result.order == (["a"] if expected == "pending" else [])


@pytest.mark.parametrize(
    ("before", "there", "expected"),
    [
        (ended(), True, "done"),
        (ended(), None, "done"),  # a rollback cannot ask: what this rollout brought there is there
        (ended(), False, "pending"),
        (ended(layout=THIRDS), True, "skipped"),  # by the look at it now
        (ended(layout=THIRDS), None, "pending"),
        (ended(value="rolled_back", steps=("stop", "mig", "rollback_mig")), False, "pending"),
        # repaired, and proven by nothing since
        (ended(value="quarantined", steps=("stop", "mig", "quarantine")), True, "pending"),
    ],
)
def test_what_this_rollout_proved_is_done(before, there, expected):
    probe = Probe("a", version="1.0", layout=there, verdict="pass", identity={"machine_id": "1" * 32})
    before.nodes.get("a").machine = {"machine_id": "1" * 32}
    node = made(probe, previous=before).nodes["a"]
    assert (node["state"], node["install"]) == (expected, False)


def test_a_node_that_its_controller_left_goes_on_with_the_version_that_it_had():
    before = ended(value="down", steps=("stop", "mig"), finished=None)
    node = made(Probe("a", version="2.0", layout=True, verdict="pass"), previous=before).nodes["a"]
    assert node["orphaned"] and (node["from"], node["to"], node["install"]) == ("1.0", "1.0", False), (
        "another driver since then has to be seen"
    )
    before = ended(value="down", steps=("stop", "install"), finished=None, to_version="2.0")
    node = made(Probe("a", version="2.0", layout=True, verdict="pass"), "2.0", before).nodes["a"]
    assert node["orphaned"] and (node["from"], node["to"], node["install"]) == ("1.0", "2.0", True)


def test_a_driver_that_another_rollout_left_unproven_is_installed_again_if_one_is_wanted():
    probe = Probe("a", version="2.0", layout=True, verdict="pass", unproven_in="other")
    assert made(probe, "2.0").nodes["a"]["install"] and not made(probe).nodes["a"]["install"]
    assert made(probe).order == ["a"]


def test_a_node_that_does_not_answer_is_lost_whatever_is_wanted():
    node = made(Probe("a", reachable=False, error="no route")).nodes["a"]
    assert (node["state"], node["to"]) == ("lost", None)


def test_an_operators_skip_is_no_canary_that_has_its_layout():
    before = ended(value="skipped", order="skipped by kim: broken", finished=None)
    with pytest.raises(PlanError, match="rollout_canaries names a"):
        made(Probe("a", version="1.0", layout=False), previous=before, canaries=["a"])


def test_digest_covers_the_layout():
    plain = made(Probe("a", version="1.0"), "2.0", layout=None)
    assert "layout" not in plain.nodes["a"] and "install" not in plain.nodes["a"]
    digests = {
        made(Probe("a", version="1.0", layout=False), target, layout=layout).sha256
        for target in ("", "2.0")
        for layout in (HALVES, THIRDS, dict(HALVES, config={}))
    }
    assert len(digests | {plain.sha256}) == 7, "what is approved is this layout and no other"


def test_the_plan_says_what_changes():
    alone, both = made(Probe("a", version="1.0")), made(Probe("a", version="1.0"), "2.0")
    assert alone.target == "MIG layout halves" and both.target == "2.0 and MIG layout halves"
    assert "  1. a: MIG layout halves" in plan_text.describe_plan(alone, "r")
    assert "  1. a: driver 1.0 -> 2.0 and MIG layout halves" in plan_text.describe_plan(both, "r")


def test_the_ledger_keeps_the_layout():
    view = state.Rollout()
    events.apply_event(
        view,
        dict(
            plan.make_event(made(Probe("a", version="1.0")), "r"),
            event="plan",
            run="r1",
            time="2026-01-01T00:00:00.000Z",
        ),
    )
    assert view.nodes.get("a").layout == HALVES
    events.apply_event(
        view,
        dict(
            event="grant",
            run="r1",
            node="a",
            phase="drain",
            ticket="t",
            expires="2099",
            time="2026-01-01T00:00:01.000Z",
        ),
    )
    # one in flight to another layout needs its plan approved, as to another version
    for layout, diverted in ((HALVES, False), (THIRDS, True)):
        again = made(Probe("a", version="1.0", layout=False), previous=view, layout=layout)
        events.apply_event(
            view, dict(plan.make_event(again, "r"), event="plan", run="r2", time="2026-01-01T00:00:02.000Z")
        )
        node = view.nodes.get("a")
        assert (node.layout, node.orphaned, node.diverted) == (layout, True, diverted)


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (SAME, (True, False, False)),
        (CHANGE, (False, False, False)),
        ({"gpus": [{"status": "pending"}]}, (False, False, False)),
        (
            {"gpus": [{"status": "refused"}], "failures": [{"code": "in_use"}], "msg": "in use by 4711"},
            (False, False, False),
        ),
        ({"gpus": [{"status": "refused"}], "failures": [{"code": "gpu_lost"}], "msg": "gone"}, (None, True, False)),
        (
            {"gpus": [{"status": "refused"}], "failures": [{"code": "reset_pending"}], "msg": "at the next reset"},
            (None, True, False),
        ),
        (
            {
                "gpus": [{"status": "refused"}],
                "failures": [{"code": "unreadable"}, {"code": "does_not_fit"}],
                "msg": "too much",
            },
            (None, False, True),
        ),
        (
            {"gpus": [{"status": "refused"}], "failures": [{"code": "not_supported"}], "msg": "no MIG"},
            (None, False, True),
        ),
        (
            {"gpus": [{"status": "refused"}], "failures": [{"code": "unknown_profile"}], "msg": "1g.1tb"},
            (None, False, True),
        ),
        (
            {"gpus": [{"status": "refused"}], "failures": [{"code": "uncovered"}], "msg": "no entry"},
            (None, False, True),
        ),
        (
            {"gpus": [{"status": "change"}], "failures": [{"code": "refused_by_playbook"}], "msg": "no directory"},
            (None, False, True),
        ),
        ({"gpus": [], "failures": []}, (None, True, False)),
        ({"failed": True, "msg": "NVML cannot be read"}, (None, True, False)),
        ({"unreachable": True}, (None, False, False)),
        ({"skipped": True}, (None, False, False)),
        ({}, (None, False, False)),
        (None, (None, False, False)),
    ],
)
def test_what_a_look_at_the_layout_says(look, expected):
    there, unread, unfit = probes.layout_looked_at(look)
    assert (there, bool(unread), bool(unfit)) == expected
    found = probes.make_probe("a", {"audit": {"versions": {"loaded": "1.0"}}}, {"stat": {}}, {}, look=look)
    assert found.layout is there and bool(found.error) == bool(unread)


@pytest.mark.parametrize(
    "given",
    [
        {},
        None,
        {"name": ""},
        {"name": ["halves"], "configs": HALVES["config"]},
        {"name": "halves"},
        {"name": "halves", "configs": HALVES["config"], "file": "/x"},
        {"name": "havles", "configs": HALVES["config"]},
        {"name": "halves", "configs": {"version": "v9"}},
        {"name": "halves", "configs": "halves"},
        {"name": "broken", "file": "/x"},
    ],
)
def test_a_layout_that_cannot_be_read_is_refused(given):
    with pytest.raises(PlanError, match=r"\ba\b"):
        probes.find_layouts({"a": given}, lambda path: HALVES["config"])


def test_two_ways_to_write_a_layout_are_one():
    loose = {
        "version": "v1",
        "mig-configs": {
            "halves": [
                {
                    "devices": "all",
                    "device-filter": [],
                    "mig-enabled": True,
                    "mig-devices": {"1g.10gb": 2, "2g.20gb": 0},
                }
            ],
            "other": [dict(ENTRY)],
        },
    }
    read = []

    def reader(path):
        read.append(path)
        return loose

    found = probes.find_layouts(
        {
            "a": {"name": "halves", "configs": loose},
            "b": {"name": "halves", "file": "/x"},
            "c": {"name": "halves", "file": "/x"},
        },
        reader,
    )
    assert found["a"] == found["b"] == found["c"] == HALVES and read == ["/x"]
    off = {
        "version": "v1",
        "mig-configs": {
            "off": [{"devices": [0, 1], "device-filter": "0x233010DE", "mig-enabled": False, "mig-devices": {}}]
        },
    }
    assert probes.canonical_document(off, "off")["mig-configs"]["off"] == [
        {"devices": [0, 1], "device-filter": ["0x233010DE"], "mig-enabled": False}
    ]


def test_nodes_that_cannot_have_their_layout_are_named():
    refused = {"gpus": [{"status": "refused"}], "failures": [{"code": "does_not_fit"}], "msg": "three 3g"}
    with pytest.raises(PlanError, match="b, c .*three 3g"):
        probes.refuse_unfit({"a": SAME, "b": refused, "c": refused, "d": {}})
    probes.refuse_unfit({"a": SAME, "d": None})


def test_the_layout_before_is_that_of_the_baseline_of_what_was_changed():
    def gpu(mode):
        return {
            "uuid": {"rc": 0, "value": "GPU-1"},
            "mig_mode_current": mode,
            "mig_instances": {"rc": 0, "value": [{"name": "H MIG 1g.10gb"}]},
        }

    on, lost = gpu({"rc": 0, "value": 1}), gpu({"rc": 15, "value": None})
    nodes = [
        types.SimpleNamespace(name=name, layout=layout, attempt=attempt)
        for name, layout, attempt in (("a", HALVES, 1), ("never", HALVES, 0), ("driver", {}, 1), ("early", HALVES, 1))
    ]
    kept = {name: {"snapshot": {"gpus": [on]}} for name in ("a", "never", "driver")}
    assert probes.find_layouts_before("r", nodes, kept.get) == {
        "a": {"name": "before r", "layout": [{"gpus": ["GPU-1"], "mig_enabled": True, "mig_devices": {"1g.10gb": 1}}]}
    }
    with pytest.raises(PlanError, match="no earlier MIG layout of a"):
        probes.find_layouts_before("r", nodes[:1], lambda name: {"snapshot": {"gpus": [lost]}})


@pytest.mark.parametrize("value", [None, 5, ["x"], [5], [{"name": {}}], {"x": 1}])
def test_baseline_of_another_shape_tells_no_layout_before(value):
    gpu = {"uuid": {"rc": 0, "value": "GPU-1"}, "mig_mode_current": {"rc": 0, "value": 1}}
    node = types.SimpleNamespace(name="a", layout=HALVES, attempt=1)
    for gpus in ([dict(gpu, mig_instances={"rc": 0, "value": value})], [value], value):
        baseline = {"snapshot": {"gpus": gpus}}
        with pytest.raises(PlanError, match="no earlier MIG layout of a"):
            probes.find_layouts_before("r", [node], {"a": baseline}.get)


@pytest.mark.parametrize("version", ["535.1; x", "../535.1", "535", "-oProxyCommand=x", "535.1\u202e", "x" * 200])
def test_version_that_no_driver_has_is_an_error_of_its_node(version):
    package = {"loaded": "535.1", "package": "535.1-1 " + version.lstrip("-")}
    for versions in ({"loaded": version}, {"library": version}, package):
        found = probes.make_probe("a", {"audit": {"versions": versions}}, {"stat": {}}, {})
        assert (found.version, found.package) == (None, None) and "driver version" in found.error


def test_words_of_a_node_are_cleaned_before_they_are_planned():
    evil = {"failed": True, "msg": "boom \x1b[2K\u202eall done http://kim:s3cret@h/ " + "x" * 100000}
    well, marks = {"audit": {"versions": {"loaded": "535.1"}}}, {"stat": {}}
    bad = {"health": {"verdict": "fail", "checks": [{"status": "fail", "message": evil["msg"]}]}}
    broken = {"gpus": [], "failures": [{"code": "unreadable"}], "msg": evil["msg"]}
    for found in (
        probes.make_probe("a", evil, marks, {}).error,
        probes.make_probe("a", dict(evil, unreachable=True), marks, {}).error,
        probes.make_probe("a", well, evil, {}).error,
        probes.make_probe("a", well, dict(marks, problem=evil["msg"]), {}).error,
        probes.make_probe("a", well, marks, {}, health=evil).complaint,
        probes.make_probe("a", well, marks, {}, health=bad).complaint,
        probes.make_probe("a", well, marks, {}, look=broken).error,
        probes.layout_looked_at(dict(broken, failures=[{"code": "does_not_fit"}]))[2],
    ):
        assert "boom" in found and found.isprintable() and "s3cret" not in found and len(found) < 5000


def test_refusal_of_a_layout_without_a_source_has_an_example_that_can_be_used():
    with pytest.raises(PlanError) as refused:
        probes.find_layouts({"a": {"name": "all-1g.10gb"}}, lambda path: None)
    assert config.EXAMPLE in str(refused.value)
    given = yaml.safe_load(config.EXAMPLE)["nvidia_mig_configs"]
    found = probes.find_layouts({"a": {"name": "all-1g.10gb", "configs": given}}, lambda path: None)
    assert found["a"]["config"]["mig-configs"]["all-1g.10gb"][0]["mig-devices"] == {"1g.10gb": 7}
