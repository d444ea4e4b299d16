# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.state import (
    DRAIN,
    SERVING,
    STEPS,
    find_resume_step,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import (
    entries,
    gate,
    joining,
    limits,
    plan,
    plan_text,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import reduce

POLICY = limits.complete_policy({}, 10)
ENDED = "2026-01-01T00:00:00.000Z"
GONE, MARKED = Probe("a", reachable=False), Probe("a", version="1.0", quarantined="a marker")


def probes(*names, **fields):
    return [
        Probe(name, version=fields.get("version", "1.0"), domains={"rack": "rack_%s" % name.split("-")[1]})
        for name in names
    ]


def before(name, value):
    """A run that ended."""
    failure = state.HARD if value in state.FAILED else ""
    return story(state.Node(name, state=value, failure=failure, machine={"machine_id": "1" * 32}), finished=ENDED)


def test_failure_domains_take_turns_and_numbers_sort_as_numbers():
    made = plan.build_plan("2.0", probes("g-r1-10", "g-r1-2", "g-r2-1", "g-r1-1", "g-r3-1"), POLICY)
    assert made.order == ["g-r1-1", "g-r2-1", "g-r3-1", "g-r1-2", "g-r1-10"]


@pytest.mark.parametrize(
    "lines, last", [(1, "line 0"), (100, "line 99"), (101, "  ... and 1 more"), (5000, "  ... and 4900 more")]
)
def test_the_table_that_is_handed_on_has_a_hundred_lines_and_says_how_many_more(lines, last):
    given = ["line %d" % number for number in range(lines)]
    table = plan_text.cut_lines(given)
    assert table[: plan_text.HANDED] == given[: plan_text.HANDED] and table[-1] == last
    assert len(table) == min(lines, plan_text.HANDED + 1)


LOADS = {"i": False, "u": None, "w": True}


@pytest.mark.parametrize(
    "loads, expected",
    [
        # The first letter is the rack, the last the load: idle, unknown, at work.
        ("a1w a2i", "a2i a1w"),
        ("a1w a2u a3i", "a3i a2u a1w"),
        ("a1i a2i a3i", "a1i a2i a3i"),
        ("a1w a2w a3w", "a1w a2w a3w"),
        ("a1w a2i a3w a4i", "a2i a4i a1w a3w"),
        # Racks keep their positions, whatever is idle in the other one.
        ("a1w a2w b1i b2i", "a1w b1i a2w b2i"),
        ("a1w a2i b1w b2i", "a2i b2i a1w b1w"),
        ("a1w a2w a3i b1i", "a3i b1i a1w a2w"),
    ],
)
def test_idle_nodes_go_first_where_the_order_is_free(loads, expected):
    def made(text, **more):
        found = [
            Probe(name, version="1.0", domains={"rack": name[0]}, at_work=LOADS[name[-1]]) for name in text.split()
        ]
        return plan.build_plan("2.0", found, more.pop("policy", POLICY), **more)

    one = made(loads)
    assert one.order == expected.split() == made(" ".join(reversed(loads.split()))).order, (
        "whatever the order in which they are told"
    )
    assert {name: node["load"] for name, node in one.nodes.items()} == {
        name: {"i": "idle", "u": "", "w": "at work"}[name[-1]] for name in loads.split()
    }
    for name in one.order:
        word = {"i": ", idle", "u": "2.0", "w": ", at work"}[name[-1]]
        assert [line for line in plan_text.describe_plan(one, "r") if " %s (" % name in line][0].endswith(word)


@pytest.mark.parametrize(
    "now, following, installed, expected",
    [
        ("k2", "k2", ("k1", "k2"), "k1"),
        ("k1", "k2", ("k1", "k2"), "k1"),  # it runs, and the next boot would bring another one
        ("k2", "k1", ("k1", "k2"), "k1"),  # what an interrupted run had chosen
        ("k1", "k1", ("k1", "k2"), None),
        ("k2", "k2", ("k2",), None),
        ("k2", "k2", (), None),  # there are none: that was read
        (None, None, (), None),
    ],
)
def test_a_node_goes_back_with_the_kernel_that_ran(now, following, installed, expected):
    """And one that stays, as it is not installed any more, is told; what the node boots is part of what is approved."""
    found = [
        Probe("a", version="2.0", kernel=now, next_kernel=following, kernels=installed),
        Probe("b", version="2.0", kernel="k2"),
    ]
    plain = plan.build_plan("", found, POLICY, targets={"a": "1.0", "b": "1.0"})
    made = plan.build_plan("", found, POLICY, targets={"a": "1.0", "b": "1.0"}, kernels={"a": "k1"})
    assert (
        made.nodes["a"].get("to_kernel") == expected
        and "to_kernel" not in made.nodes["b"]
        and made.nodes["a"]["from_kernel"] == now
    )
    lines = plan_text.describe_plan(made, "r")
    assert ("  1. a: driver 2.0 -> 1.0 (a downgrade)%s" % (", kernel k1" if expected else "")) in lines
    notes = [line for line in lines if "kernel k1" in line and "no longer installed on a" in line]
    assert bool(notes) == ("k1" not in installed)
    assert (made.sha256 != plain.sha256) == bool(expected)


def test_kernels_that_are_not_known_are_told_as_that_and_not_taken_as_there():
    """On a and b the kernels that can boot are unknown, c has the wanted one no more, and d runs it and boots it
    next.
    """
    found = [Probe(name, version="2.0", kernel="k2", next_kernel="k2") for name in "ab"]
    found += [
        Probe("c", version="2.0", kernel="k2", next_kernel="k2", kernels=("k2",)),
        Probe("d", version="2.0", kernel="k1", next_kernel="k1"),
    ]
    made = plan.build_plan("", found, POLICY, targets=dict.fromkeys("abcd", "1.0"), kernels=dict.fromkeys("abcd", "k1"))
    assert [node.get("to_kernel") for node in made.nodes.values()] == [None] * 4 and made.order == list("abcd")
    gone, unknown = made.notes
    assert "kernel k1" in gone and "no longer installed on c:" in gone
    assert "not known whether kernel k1" in unknown and "on a, b:" in unknown and "driver_audit on the node" in unknown


@pytest.mark.parametrize("value", ["done", "down"])
def test_the_kernel_that_ran_before_is_not_what_a_second_run_finds(value):
    left = state.Node("a", value, from_version="1.0", to_version="2.0", from_kernel="k1")
    found = [Probe("a", version="2.0", kernel="k2"), Probe("b", version="1.0", kernel="k2")]
    made = plan.build_plan("2.0", found, POLICY, previous=story(left, finished=ENDED))
    assert {name: node["from_kernel"] for name, node in made.nodes.items()} == {"a": "k1", "b": "k2"}
    view = reduce([dict(plan.make_event(made, "r"), event="plan", run="x", time="2026-01-02T00:00:00.000Z")])
    assert view.nodes.get("a").from_kernel == "k1"


def test_kernel_of_a_rollout_boots_with_its_driver():
    """On the nodes whose driver is changed: b is at its target, c cannot be reached, and d boots it anyway."""
    found = [
        Probe("a", version="1.0", kernel="k1", next_kernel="k1", kernels=("k1", "k2")),
        Probe("b", version="2.0", kernel="k1", next_kernel="k1", kernels=("k1",), verdict="pass"),
        Probe("c", reachable=False),
        Probe("d", version="1.0", kernel="k2", next_kernel="k2", kernels=("k2",)),
    ]
    made = plan.build_plan("2.0", found, POLICY, kernel="k2")
    assert {name: node.get("to_kernel") for name, node in made.nodes.items()} == {"a": "k2", **dict.fromkeys("bcd")}
    assert made.notes == [entries.KERNEL_STAYS % ("k2", "b")]
    assert made.sha256 != plan.build_plan("2.0", found, POLICY).sha256


@pytest.mark.parametrize(
    "kernels, target, layouts, words",
    [
        (("k1",), "2.0", None, "Kernel k2 (rollout_kernel) is not installed on a: there is k1."),
        (None, "2.0", None, "none that is known"),
        (("k1", "k2"), "", {"a": {"name": "halves", "config": "1"}}, "no node gets a driver"),
    ],
)
def test_kernel_that_no_driver_boots_with_is_refused(kernels, target, layouts, words):
    found = [Probe("a", version="1.0", kernel="k1", next_kernel="k1", kernels=kernels)]
    with pytest.raises(plan.PlanError) as caught:
        plan.build_plan(target, found, POLICY, layouts=layouts, kernel="k2")
    assert words in str(caught.value) and "Nothing was changed" in str(caught.value)


def test_no_node_that_does_not_go_has_to_boot_another_kernel():
    found = [
        Probe("a", version="1.0", kernel="k2", next_kernel="k2", kernels=("k1", "k2")),
        Probe("b", reachable=False, kernels=("k1",)),
    ]
    made = plan.build_plan("1.0", found, POLICY, kernels={"a": "k1", "b": "k1"})
    assert not made.order and not [node for node in made.nodes.values() if "to_kernel" in node] and not made.notes


def test_no_job_that_begins_or_ends_makes_a_plan_another_one():
    def made(*at_work, **more):
        found = [Probe("abcd"[number], version="1.0", at_work=work) for number, work in enumerate(at_work)]
        return plan.build_plan("2.0", found, more.pop("policy", POLICY), **more)

    quiet, busy = made(False, False, False, False), made(True, None, False, True)
    assert busy.order == ["c", "b", "a", "d"] and quiet.order == ["a", "b", "c", "d"] and busy.sha256 == quiet.sha256
    # Canaries and orphaned nodes keep their positions; a node stays in its wave.
    assert made(True, True, False, False, canaries=["b"]).order == ["b", "c", "d", "a"]
    assert made(False, False, False, True, previous=story(state.Node("d", "down"))).order == ["d", "a", "b", "c"]
    waves = limits.complete_policy({"waves": [2, 2]}, 4)
    assert made(True, False, True, False, policy=waves).order == ["b", "a", "d", "c"]


def test_canaries_go_first_in_the_order_given():
    made = plan.build_plan("2.0", probes("g-r1-1", "g-r1-2", "g-r2-1"), POLICY, canaries=["g-r2-1", "g-r1-2"])
    assert made.order == ["g-r2-1", "g-r1-2", "g-r1-1"]


@pytest.mark.parametrize(
    "fields, previous, expected, words",
    [
        ({"version": "1.0"}, None, "pending", ""),
        # A version alone finishes nothing: the health check has to have passed.
        ({"verdict": "pass"}, None, "skipped", "already at 2.0"),
        ({"verdict": "pass"}, "rolled_back", "skipped", "already at 2.0"),
        ({"verdict": "fail", "complaint": "7 GPUs"}, None, "failed", "already at 2.0, and not proven: 7 GPUs"),
        ({"verdict": "unknown", "complaint": "no NVML"}, None, "failed", "already at 2.0, and not proven: no NVML"),
        ({}, None, "failed", "already at 2.0, and not proven: its GPUs were not checked"),
        ({"verdict": "pass", "unproven_in": "x"}, None, "pending", ""),
        ({"verdict": "pass", "unproven_in": "x"}, "done", "pending", ""),
        ({}, "done", "done", ""),
        ({"verdict": "pass"}, "done", "done", ""),
        # an unknown verdict takes no proof away
        ({"verdict": "unknown", "complaint": "busy"}, "done", "done", ""),
        ({"verdict": "fail", "complaint": "no driver"}, "done", "failed", "was done earlier, and now: no driver"),
        ({"version": "1.0"}, "done", "pending", ""),  # the node is believed, not the ledger
        ({"version": "1.0"}, "rolled_back", "pending", ""),
        ({"version": None}, None, "failed", "no driver was found"),
        ({"version": "1.0", "error": "dpkg is broken"}, None, "failed", "dpkg is broken"),
        ({"version": "1.0", "lacks": "has 7 of the GPUs"}, None, "failed", "has 7 of the GPUs"),
        ({"verdict": "pass", "lacks": "has 7 of the GPUs"}, None, "failed", "has 7 of the GPUs"),
        ({"version": "1.0", "lacks": "has 7 of the GPUs"}, "done", "failed", "has 7 of the GPUs"),
        ({"lacks": "has 7 of the GPUs"}, "done", "done", ""),  # proven after its last change
        ({"reachable": False, "error": "timed out"}, None, "lost", "did not answer before the rollout: timed out"),
        ({"reachable": False}, "down", "lost", "unreachable"),
        ({"quarantined": "marker lies there"}, None, "quarantined", "marker lies there"),
        ({"version": "1.0", "quarantined": "marker"}, "down", "quarantined", "marker"),
    ],
)
def test_state_of_a_node_in_the_plan(fields, previous, expected, words):
    probe = Probe("a", **{"version": "2.0", "identity": {"machine_id": "1" * 32}, **fields})
    made = plan.build_plan("2.0", [probe], POLICY, previous=before("a", previous) if previous else None)
    assert made.nodes["a"]["state"] == expected
    assert words in made.nodes["a"]["reason"]
    assert made.order == (["a"] if expected == "pending" else [])


@pytest.mark.parametrize(
    "away, meanwhile",
    [
        ({"reachable": False, "version": None}, "lost"),
        ({"quarantined": "a marker"}, "quarantined"),
        ({"error": "dpkg is locked"}, "failed"),
        ({"version": None}, "failed"),
    ],
)
def test_a_node_that_was_done_keeps_its_way_back_while_it_is_out_of_reach(away, meanwhile):
    """A rollback goes by it, and would leave the node out as one that has its version."""
    steps = [state.Step("install", "2026-01-01T00:00:00.000Z", "2026-01-01T00:01:00.000Z", "ok")]
    left = state.Node("a", "done", attempt=1, proven=True, steps=steps, from_kernel="k1", ended=ENDED)
    view = story(left, finished=ENDED)
    for run, found, expected in (("2", away, meanwhile), ("3", away, meanwhile), ("4", {}, "done")):
        probe = Probe("a", **{"version": "2.0", "kernel": "k2", "verdict": "pass", **found})
        made = plan.build_plan("2.0", [probe], POLICY, previous=view)
        events.apply_event(view, dict(plan.make_event(made, "x"), event="plan", run=run, time=ENDED))
        node = view.nodes.get("a")
        assert (node.state, node.from_version, node.from_kernel, node.steps) == (expected, "1.0", "k1", steps)
        assert not limits.filter_charged(view.nodes.with_state(*state.FAILED)) and not state.is_unproven(node)
        view.finished = ENDED


@pytest.mark.parametrize("layout", [{}, {"name": "small", "config": {}}])
@pytest.mark.parametrize(
    "verdict, expected", [("pass", "done"), ("fail", "failed"), ("unknown", "failed"), ("", "failed")]
)
def test_a_node_that_was_done_and_is_found_sick_costs_no_budget_and_is_done_again_by_a_look_that_passes(
    verdict, expected, layout
):
    steps = [state.Step("install", "2026-01-01T00:00:00.000Z", "2026-01-01T00:01:00.000Z", "ok")]
    left = state.Node("a", "done", attempt=1, proven=True, steps=steps, from_kernel="k1", layout=layout, ended=ENDED)
    view = story(left, finished=ENDED)
    wanted = {"a": layout} if layout else None
    for number, found in enumerate(["fail", verdict], start=2):
        seen = {
            "kernel": "k2",
            "verdict": found,
            "complaint": "no driver is loaded",
            "layout": True if layout else None,
        }
        probe = Probe("a", version="2.0", **seen)
        made = plan.build_plan("2.0", [probe], POLICY, previous=view, layouts=wanted)
        view = events.apply_event(
            view,
            dict(plan.make_event(made, "x"), event="plan", run=str(number), time="2026-01-0%dT00:00:00.000Z" % number),
        )
        node = view.nodes.get("a")
        assert made.order == [] and (node.from_version, node.from_kernel) == ("1.0", "k1")
        assert (node.proven, node.attempt, node.steps) == (True, 1, steps)
        assert node.state == (expected if number == 3 else "failed")
        assert not limits.filter_charged(view.nodes.with_state(*state.FAILED)) and state.judge_rollout(view, True) == (
            "complete" if node.state == "done" else "failed"
        )
        events.apply_event(view, {"event": "end", "run": str(number), "time": "2026-01-0%dT00:01:00.000Z" % number})


@pytest.mark.parametrize("value", state.IN_FLIGHT)
@pytest.mark.parametrize("version, error", [("2.0", ""), ("1.0", ""), (None, ""), (None, "nothing loaded")])
def test_nodes_left_in_flight_go_first_whatever_is_on_them(value, version, error):
    found = probes("a-r1", "b-r1") + [Probe("z-r9", version=version, error=error)]
    made = plan.build_plan("2.0", found, POLICY, previous=before("z-r9", value), canaries=["b-r1"])
    assert made.order == ["z-r9", "b-r1", "a-r1"]
    assert made.orphans == ["z-r9"]
    assert made.nodes["z-r9"]["from"] == "1.0"


KEPT_OUT = "drain stop validate return"
KEPT, RESUME = "quarantined, they said no", "the resume in its schedulers failed"


@pytest.mark.parametrize(
    "version, steps, marker, finished, planned, again",
    [
        # It had a ticket to serve with the version: only the resume is left.
        ("2.0", KEPT_OUT, "", "t", "validating", RESUME),
        ("2.0", KEPT_OUT, "", None, "validating", RESUME),
        ("2.0", KEPT_OUT + " soak", "", "t", "validating", RESUME),
        # It was changed by hand since, or rolled back: it starts as any other node, whether or not its run ended.
        ("1.0", KEPT_OUT, "", "t", "pending", KEPT),
        ("1.0", KEPT_OUT + " rollback_install", "", None, "pending", KEPT),
        ("1.0", "drain", "", "t", "pending", KEPT),
        ("2.0", "drain", "", "t", "failed", None),
        # A marker says that it is broken.
        ("2.0", KEPT_OUT, "a marker", "t", "quarantined", None),
        # One whose marker was removed was repaired: it is proven from the beginning, whatever it has.
        ("2.0", KEPT_OUT + " quarantine", "", "t", "pending", KEPT),
        ("1.0", KEPT_OUT + " quarantine", "", "t", "pending", KEPT),
    ],
)
def test_node_that_its_schedulers_kept_out(version, steps, marker, finished, planned, again):
    done = [state.Step(name, "t") for name in steps.split()]
    left = state.Node("a", state="quarantined", failure=state.HARD, reason="they said no", steps=done)
    probe = Probe("a", version=version, quarantined=marker)
    made = plan.build_plan("2.0", [probe], POLICY, previous=story(left, finished=finished))
    view = events.apply_event(
        story(left, finished=finished), dict(plan.make_event(made, "r"), event="plan", run="2", time="t")
    )
    node = view.nodes.get("a")
    assert (node.state, node.orphaned, made.nodes["a"].get("again")) == (planned, again == RESUME, again)
    if again == RESUME:
        assert (node.reason, made.nodes["a"]["from"]) == ("they said no", "1.0")
        assert find_resume_step([step.name for step in node.steps]) == SERVING
        assert "died" not in "".join(plan_text.describe_plan(made, "r"))


@pytest.mark.parametrize(
    "steps, version, orphaned",
    [
        (["evidence", "drain"], "1.0", False),
        (["stop"], "1.0", True),
        (["stop", "install"], "1.0", True),
        (["stop", "install", "reboot"], "2.0", True),
    ],
)
def test_a_node_that_was_lost_after_its_change_is_taken_up_whatever_it_has(steps, version, orphaned):
    done = [state.Step(name, "t") for name in steps]
    left = state.Node("a", state="lost", failure=state.LOST, reason="gone", steps=done)
    away = plan.build_plan("2.0", [Probe("a", reachable=False)], POLICY, previous=story(left))
    assert (away.nodes["a"]["state"], away.order) == ("lost", [])
    view = events.apply_event(story(left), dict(plan.make_event(away, "r"), event="plan", run="2", time="t"))
    for previous in (story(left), story(left, finished="t"), view):
        made = plan.build_plan("2.0", [Probe("a", version=version, verdict="pass")], POLICY, previous=previous)
        assert (made.orphans == ["a"]) is orphaned and made.order == ["a"], "it is never finished by its version"
        assert made.nodes["a"]["from"] == "1.0", "where it goes back to is not forgotten while it does not answer"


def requested(view, *verbs):
    """The view after these requests of an operator for node a."""
    for verb in verbs:
        event = {"event": "control", "run": view.run, "verb": verb, "user": "kim", "reason": "why", "node": "a"}
        events.apply_event(view, dict(event, time="t"))
    return view


@pytest.mark.parametrize("finished", [None, "t"])
@pytest.mark.parametrize(
    "value, verbs, is_planned_again",
    [
        ("quarantined", [], True),  # repaired, planned again, and its turn did not come
        ("quarantined", ["skip"], True),
        ("lost", ["retire", "retry"], False),
        ("lost", ["retire"], False),
    ],
)
def test_a_node_that_was_changed_and_not_proven_is_never_finished_by_its_version(
    value, verbs, is_planned_again, finished
):
    done = [state.Step(name, "t") for name in ("drain", "stop", "install", "quarantine")]
    view = story(state.Node("a", state=value, failure=state.HARD, reason="why", steps=done))
    probe = Probe("a", version="2.0", verdict="pass")
    if is_planned_again:
        made = plan.build_plan("2.0", [probe], POLICY, previous=view)
        events.apply_event(view, dict(plan.make_event(made, "r"), event="plan", run="2", time="t"))
    requested(view, *verbs).finished = finished
    made = plan.build_plan("2.0", [probe], POLICY, previous=view)
    if "skip" in verbs and finished is None:  # as the operator wants it, for as long as the run goes on
        assert made.nodes["a"]["reason"] == "skipped by kim: why"
    else:
        assert made.order == ["a"] and made.nodes["a"]["again"]
    if view.nodes.get("a").state == "pending":
        assert joining.entry_of(probe, view.nodes.get("a"), {}) is None, "a member that joins leaves it so"


NEW = Probe("a", version="1.0")
ONE_PSU = limits.complete_policy({"domain_caps": {"psu": 1}}, 1)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"probes": []}, "list of nodes is empty"),
        ({"target": ""}, "No driver version is given for a"),
        ({"target": None}, "No driver version is given"),
        ({"target": "latest"}, "'latest'; expected digits and dots"),
        ({"target": "535.1.1-"}, "expected digits and dots"),
        ({"target": "535.1.1-1 2"}, "expected digits and dots"),
        ({"probes": [NEW, NEW]}, "named twice: a"),
        ({"canaries": ["b"]}, "not in this rollout: b"),
        ({"policy": ONE_PSU}, "one psu, .*: a"),
        ({"canaries_per_stratum": 2}, "canaries_per_stratum is 2, and the rollout has 1 nodes"),
        ({"target": "", "targets": {"a": "1.0"}, "probes": [NEW, Probe("b")]}, "given for b"),
    ],
)
def test_bad_input_is_named(arguments, words):
    with pytest.raises(plan.PlanError, match=words):
        plan.build_plan(**dict({"target": "2.0", "probes": [NEW], "policy": POLICY}, **arguments))


@pytest.mark.parametrize("value", state.IN_FLIGHT)
def test_a_node_in_flight_that_is_left_out_is_not_forgotten(value):
    why = r"z was in flight \(%s\) when its run was interrupted, and is not among the nodes of this run" % value
    with pytest.raises(plan.PlanError, match=why):
        plan.build_plan("2.0", probes("a-r1"), POLICY, previous=before("z", value))
    made = plan.build_plan("2.0", probes("a-r1"), POLICY, previous=before("z", value), abandoned=["z"])
    assert made.order == ["a-r1"] and made.nodes["z"]["state"] == "lost"
    assert made.nodes["z"]["reason"] == "abandoned: it was %s when its run was interrupted" % value


@pytest.mark.parametrize(
    "value, kept", [("lost", True), ("quarantined", True), ("done", False), ("pending", False), ("rolled_back", False)]
)
def test_a_node_out_of_service_holds_its_slot_also_when_it_is_left_out(value, kept):
    made = plan.build_plan("2.0", probes("a-r1"), POLICY, previous=before("z", value))
    assert made.order == ["a-r1"] and ("z" in made.nodes) == kept
    if kept:
        assert (made.nodes["z"]["state"], made.nodes["z"]["failure"]) == (value, state.HARD)


def test_every_node_can_have_a_version_of_its_own():
    made = plan.build_plan(
        "", [Probe("a", version="3.0"), Probe("b", version="3.0")], POLICY, targets={"a": "1.0", "b": "2.0"}
    )
    assert (made.nodes["a"]["to"], made.nodes["b"]["to"], made.target) == ("1.0", "2.0", "1.0, 2.0")


def test_the_digest_tells_plans_apart_and_nothing_else():
    found = probes("a-r1", "b-r2")
    one = plan.build_plan("2.0", found, POLICY)
    assert one.sha256 == plan.build_plan("2.0", list(reversed(found)), POLICY).sha256
    others = [
        plan.build_plan("2.1", found, POLICY),
        plan.build_plan("2.0", found[:1], POLICY),
        plan.build_plan("2.0", found, dict(POLICY, max_down=2)),
        plan.build_plan("2.0", found, POLICY, canaries=["b-r2"]),
        plan.build_plan("2.0", probes("a-r1", "b-r2", version="1.1"), POLICY),
        plan.build_plan("2.0", found, POLICY, canaries=["a-r1"]),  # the same order, and others wait for it
        # a cap holds others apart
        plan.build_plan("2.0", [dataclasses.replace(probe, domains={"rack": "rack_r9"}) for probe in found], POLICY),
        plan.build_plan("2.0", found, limits.complete_policy({"on_failure": "stop"}, 10)),
    ]
    assert len({one.sha256} | {other.sha256 for other in others}) == 9


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"max_down": 200, "domain_caps": {"rack": 3}, "growth_start": 4},
        {"max_down": "2%", "waves": [1, "10%", "100%"]},
    ],
)
def test_ten_thousand_nodes_are_planned_and_none_is_forgotten(policy):
    def taken(name, rack, number):
        return Probe(
            name,
            version="2.0" if number == 7 else "1.0",
            domains={"rack": "rack_%d" % rack},
            stratum="s%d" % (number % 9),
        )

    found = [taken("gpu-%d-%d" % (rack, number), rack, number) for rack in range(100) for number in range(100)]
    made = plan.build_plan("2.0", found, limits.complete_policy(policy, len(found)), canaries_per_stratum=2)
    lines = plan_text.describe_plan(made, "x", 900)
    assert len(made.order) == 9900 and set(made.order) | {probe.name for probe in found if probe.version == "2.0"} == {
        probe.name for probe in found
    }
    assert len(made.canaries) == 18 and len(lines) == 10002
    others = made.order[18:]
    assert len({made.nodes[name]["domains"]["rack"] for name in others[:80]}) == 80


def test_canaries_of_every_stratum_beside_those_that_were_named():
    found = [
        Probe(
            "n%d" % number,
            version="1.0",
            domains={"rack": "r%d" % (number // 4)},
            stratum="h100" if number % 4 else "a100",
        )
        for number in range(8)
    ]
    made = plan.build_plan("2.0", found, POLICY, canaries=["n6"], canaries_per_stratum=1)
    assert made.canaries == ["n6", "n0"], "n6 speaks for the h100"
    assert made.order[:2] == ["n6", "n0"] and sorted(made.order) == sorted(probe.name for probe in found)
    two = plan.build_plan("2.0", found, POLICY, canaries_per_stratum=2)
    assert [two.nodes[name]["canary"] for name in two.canaries] == [True] * 4


def test_neighbours_in_the_order_share_no_domain_of_the_tightest_cap():
    found = [
        Probe("n%02d" % number, version="1.0", domains={"rack": "r%d" % (number % 2), "island": "i%d" % (number // 4)})
        for number in range(12)
    ]
    made = plan.build_plan("2.0", found, limits.complete_policy({"domain_caps": {"island": 1, "rack": 2}}, 12))
    islands = [made.nodes[name]["domains"]["island"] for name in made.order]
    assert all(len(set(islands[number : number + 3])) == 3 for number in range(0, 12, 3))


@pytest.mark.parametrize(
    "count, policy, canaries, expected",
    [
        (10, {}, 0, (1000, 1000)),
        (10, {"max_down": 5}, 0, (200, 200)),
        (1, {"max_down": 5}, 0, (100, 100)),
        (10, {"max_down": 5}, 1, (200, 300)),  # the canary alone, then nine by five
        (10, {"max_down": 5, "canary_soak_s": 600}, 1, (200, 900)),
        (10, {"max_down": 5, "canary_soak_s": 600}, 0, (200, 200)),
        (8, {"max_down": 8, "domain_caps": {"rack": 1}}, 0, (100, 400)),  # two racks
        (7, {"max_down": 4, "growth_start": 1}, 0, (200, 300)),  # 1, 2, 4
        (4, {"max_down": 3, "broken_elsewhere": 1}, 0, (200, 200)),
        (0, {}, 0, (0, 0)),
    ],
)
def test_how_long_it_will_take(count, policy, canaries, expected):
    found = [
        Probe("n%02d" % number, version="1.0", domains={"rack": "r%d" % (number % 2)}) for number in range(count)
    ] or [Probe("x", version="2.0")]
    made = plan.build_plan(
        "2.0", found, limits.complete_policy(policy, 10), canaries=[probe.name for probe in found[:canaries]]
    )
    assert plan_text.estimate_plan(made, 100) == expected


def test_one_version_for_all_goes_before_what_the_inventory_has():
    """Nodes have their nvidia_driver_version in the inventory: an upgrade that is asked for is not over before it
    began.
    """
    made = plan.build_plan("2.0", probes("a-r1"), POLICY, targets={"a-r1": "1.0"})
    assert made.order == ["a-r1"] and made.nodes["a-r1"]["to"] == "2.0"


def test_an_approval_does_not_change_what_is_approved():
    found = probes("a-r1")
    assert (
        plan.build_plan("2.0", found, dict(POLICY, approved="x")).sha256 == plan.build_plan("2.0", found, POLICY).sha256
    )


def test_the_plan_for_people():
    made = plan.build_plan("2.0", probes("a-r1") + [Probe("b-r2", version="2.0", verdict="pass")], POLICY)
    lines = plan_text.describe_plan(made, "x")
    assert lines[0].startswith("Rollout x: 1 of 2 nodes to 2.0, at most 1 down at a time, stop at 1 failed (plan ")
    assert lines[1:] == ["  1. a-r1 (rack_r1): driver 1.0 -> 2.0", "  left out: b-r2, skipped, already at 2.0"]


def test_the_steps_are_told_once_for_all_nodes_with_the_same_ones():
    made = plan.build_plan("2.0", probes("a-r1", "b-r2", "c-r3"), POLICY)
    (line,) = plan_text.list_steps(made)
    assert line.startswith("each node would go through ")
    layout = {"install": False, "layout": {"name": "all-1g"}}
    mixed = dataclasses.replace(made, nodes=dict(made.nodes, **{"b-r2": dict(made.nodes["b-r2"], **layout)}))
    driver, mig = (line.partition(" would go through ") for line in plan_text.list_steps(mixed))
    assert (driver[0], mig[0]) == ("a-r1, c-r3", "b-r2") and driver[2] == line.partition(" would go through ")[2]
    for told, wanted in ((driver, {"install", "prove", "reload", "reboot"}), (mig, set())):
        words = set(told[2].replace(",", "").split()) & set(STEPS)
        every = {"evidence", "drain", "stop", "mig_clear", "mig", "validate", "return"}
        assert words - {"prestage"} == every | wanted and ("mig (in MIG mode)" in told[2]) is (told is driver)


def story(*nodes, finished=None, **fields):
    """The state that an earlier run of the rollout left."""
    view = state.Rollout(rollout_id="x", run="before", finished=finished, **fields)
    for node in nodes:
        view.nodes.store(
            dataclasses.replace(node, from_version=node.from_version or "1.0", to_version=node.to_version or "2.0")
        )
    return view


@pytest.mark.parametrize("value", state.IN_FLIGHT)
def test_a_canary_that_was_in_flight_when_its_controller_died_is_one_again(value):
    left = story(state.Node("z-r9", value, canary=True))
    for named in (["z-r9"], []):
        made = plan.build_plan("2.0", probes("a-r1", "z-r9"), POLICY, previous=left, canaries=named)
        assert (made.order, made.orphans, made.canaries) == (["z-r9", "a-r1"], ["z-r9"], ["z-r9"])
        assert any(
            "z-r9" in line and "was in flight when its run was interrupted, canary" in line
            for line in plan_text.describe_plan(made, "x")
        )
    assert plan.build_plan(
        "2.0", probes("a-r1", "z-r9"), POLICY, previous=story(state.Node("z-r9", value)), canaries=["z-r9"]
    ).canaries == ["z-r9"]


def test_no_node_starts_beside_an_orphaned_canary():
    made = plan.build_plan(
        "2.0",
        probes("a-r1", "z-r9"),
        limits.complete_policy({"max_down": 2, "canary_soak_s": 60}, 2),
        canaries=["z-r9"],
        previous=story(state.Node("z-r9", "soaking", canary=True)),
    )
    view = reduce([dict(plan.make_event(made, "x"), event="plan", run="r", time=ENDED)])
    assert gate.decide(view, DRAIN, "z-r9").answer == "go"
    assert gate.decide(view, DRAIN, "a-r1").answer == "wait"
    assert gate.decide(view, DRAIN, "a-r1", ["a-r1"]).answer == "stop", "the canary has left the play"


def test_one_canary_of_a_stratum_is_enough_also_when_it_was_in_flight():
    found = [Probe(name, version="1.0", stratum="h100") for name in ("a", "b", "c")]
    made = plan.build_plan("2.0", found, POLICY, previous=story(state.Node("c", "down")), canaries_per_stratum=1)
    assert made.canaries == ["c"]


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"reachable": False}, "lost, did not answer before the rollout: unreachable"),
        ({"version": "1.0", "error": "dpkg is broken"}, "failed, could not be examined: dpkg is broken"),
        ({"version": "1.0", "quarantined": "a marker"}, "quarantined, was quarantined before: a marker"),
    ],
)
def test_canary_that_cannot_start_is_refused_before_any_node_starts(fields, words):
    match = "c, which cannot start: " + words + ".*Repair.*rollout_canaries.*Nothing was changed"
    with pytest.raises(plan.PlanError, match=match):
        plan.build_plan("2.0", probes("a-r1") + [Probe("c", **fields)], POLICY, canaries=["c"])


def test_a_canary_at_its_target_holds_up_no_node():
    same = Probe("d", version="2.0", identity=MACHINE)
    found = probes("a-r1") + [Probe("c", version="2.0", verdict="pass"), same]
    done = state.Node("d", "done", machine=entries.identify_machine(same))
    made = plan.build_plan("2.0", found, POLICY, previous=story(done), canaries=["c", "d"])
    assert (made.order, made.canaries) == (["a-r1"], [])
    assert (made.nodes["d"]["canary"], made.nodes["c"].get("canary", False)) == (True, False), (
        "one that was at the target before has shown nothing"
    )


@pytest.mark.parametrize(
    "found, left, expected",
    [
        (GONE, state.Node("a", "lost", failure="lost", signature="s"), ("lost", "lost", "s")),
        (GONE, state.Node("a", "rolled_back", failure="hard", signature="s"), ("lost", "hard", "s")),
        (MARKED, state.Node("a", "quarantined", failure="hard", signature="s"), ("quarantined", "hard", "s")),
        (MARKED, state.Node("a", "lost", failure="lost"), ("quarantined", "lost", "")),
        (GONE, state.Node("a", "lost", failure="sick"), ("lost", "sick", "")),  # it was so before the first run
        (GONE, state.Node("a", "pending"), ("lost", "sick", "")),  # it was not changed
        (GONE, state.Node("a", "done"), ("lost", "sick", "")),
        (MARKED, state.Node("a", "pending"), ("quarantined", "sick", "")),
        (
            Probe("a", version="1.0", error="dpkg"),
            state.Node("a", "rolled_back", failure="hard"),
            ("failed", "hard", ""),
        ),
        (Probe("a", version=None), state.Node("a", "rolled_back", failure="hard"), ("failed", "hard", "")),
    ]
    + [(GONE, state.Node("a", value), ("lost", "lost", "")) for value in state.IN_FLIGHT]
    + [(MARKED, state.Node("a", value), ("quarantined", "hard", "")) for value in state.IN_FLIGHT],
)
@pytest.mark.parametrize("finished", [None, ENDED])
def test_what_a_rollout_did_to_a_node_is_charged_to_its_next_run_too(found, left, expected, finished):
    node = plan.build_plan("2.0", [found], POLICY, previous=story(left, finished=finished)).nodes["a"]
    assert (node["state"], node["failure"], node.get("signature", "")) == expected


def test_a_node_that_is_left_out_is_charged_too():
    left = story(
        state.Node("y", "lost", failure="lost"), state.Node("z", "quarantined", failure="sick"), state.Node("x", "down")
    )
    nodes = plan.build_plan("2.0", probes("a-r1"), POLICY, previous=left, abandoned=["x"]).nodes
    assert {name: nodes[name]["failure"] for name in "xyz"} == {"x": "lost", "y": "lost", "z": "sick"}


@pytest.mark.parametrize(
    "finished, value, failure, counts",
    [
        (None, "rolled_back", "hard", True),
        (None, "failed", "soft", True),
        (None, "failed", "sick", False),
        (None, "done", "", False),
        (ENDED, "rolled_back", "hard", False),
    ],
)
def test_failures_outside_the_limit_count_in_a_run_that_goes_on(finished, value, failure, counts):
    left = state.Node("z", value, failure=failure, signature="s", reason="GPU 3 is gone", attempt=1)
    made = plan.build_plan("2.0", probes("a-r1"), POLICY, previous=story(left, finished=finished))
    assert made.order == ["a-r1"] and ("z" in made.nodes) == counts
    if counts:
        view = state.Rollout(nodes=state.Nodes([left]))
        events.apply_event(
            view, dict(plan.make_event(made, "x"), event="plan", time="2026-01-02T00:00:00.000Z", run="2")
        )
        assert gate.decide(view, DRAIN, "a-r1").answer == "stop", "the budget of 1 is spent"
        assert any("failures still count: z" in line for line in plan_text.describe_plan(made, "x"))


@pytest.mark.parametrize("value", ["rolled_back", "failed"])
def test_failures_stand_in_a_run_that_goes_on_and_are_tried_again_in_a_new_one(value):
    left = state.Node("a", value, failure="hard", signature="s", reason="GPU 3 is gone")
    found = [Probe("a", version="1.0"), Probe("b", version="1.0")]
    going_on = plan.build_plan("2.0", found, POLICY, previous=story(left))
    node = going_on.nodes["a"]
    assert (going_on.order, node["state"], node["failure"], node["signature"], node["reason"]) == (
        ["b"],
        value,
        "hard",
        "s",
        "GPU 3 is gone",
    )
    assert any("run before was interrupted" in line for line in plan_text.describe_plan(going_on, "x")) and any(
        "failures still count: a" in line and "rollout_verb=retry" in line
        for line in plan_text.describe_plan(going_on, "x")
    )
    later = plan.build_plan("2.0", found, POLICY, previous=story(left, finished=ENDED))
    assert later.order == ["a", "b"] and later.nodes["a"].get("failure", "") == ""
    assert "1. a: driver 1.0 -> 2.0, retried after: %s, GPU 3 is gone" % value in "\n".join(
        plan_text.describe_plan(later, "x")
    )
    sick = plan.build_plan("2.0", found, POLICY, previous=story(state.Node("a", "failed", failure="sick")))
    assert sick.order == ["a", "b"], "it is examined again"


@pytest.mark.parametrize(
    "target, package, expected, was",
    [
        ("550.163.01-4~bpo13+1", "550.163.01-2", "pending", "550.163.01-2"),
        ("550.163.01-2", "550.163.01-2", "skipped", "550.163.01-2"),
        ("550.163.01", "550.163.01-2", "skipped", "550.163.01"),
        ("550.200.01", "550.163.01-2", "pending", "550.163.01"),
        ("550.163.01-4~bpo13+1", None, "pending", "550.163.01"),
    ],
)
def test_where_a_package_version_is_wanted_the_packages_are_compared(target, package, expected, was):
    made = plan.build_plan(target, [Probe("a", version="550.163.01", package=package, verdict="pass")], POLICY)
    assert (made.nodes["a"]["state"], made.nodes["a"]["from"]) == (expected, was)


MACHINE = {"machine_id": "1" * 32, "board_serial": "B1", "gpus": ["GPU-a", "GPU-b"]}


@pytest.mark.parametrize(
    "now, verdict, expected",
    [
        ({}, "unknown", ("done", "1.0")),
        ({}, "pass", ("done", "1.0")),
        ({"board_serial": None}, "unknown", ("done", "1.0")),
        ({"gpus": None}, "unknown", ("done", "1.0")),
        ({"machine_id": "2" * 32}, "unknown", ("failed", "2.0")),  # installed again, or another machine
        ({"machine_id": "2" * 32}, "pass", ("skipped", "2.0")),
        ({"board_serial": "B2"}, "unknown", ("failed", "2.0")),  # a copied machine id
        ({"board_serial": "B2"}, "pass", ("skipped", "2.0")),
        ({"machine_id": None}, "unknown", ("failed", "1.0")),  # it is not known which machine it is
        ({"machine_id": None}, "pass", ("done", "1.0")),
        ({"gpus": ["GPU-a"]}, "unknown", ("failed", "1.0")),  # the proof was of other GPUs
        ({"gpus": ["GPU-a", "GPU-c"]}, "pass", ("done", "1.0")),
    ],
    ids=str,
)
def test_proof_is_of_one_machine(now, verdict, expected):
    first = Probe("a", version="1.0", identity=MACHINE)
    node = state.Node(
        "a", "done", from_version="1.0", to_version="2.0", proven=True, machine=entries.identify_machine(first)
    )
    probe = Probe("a", version="2.0", verdict=verdict, identity=dict(MACHINE, **now))
    entry = entries.entry_of(probe, "2.0", node, False)
    assert (entry["state"], entry["from"]) == expected


@pytest.mark.parametrize("version, planned", [("2.0", "skipped"), ("1.0", "pending")])
def test_what_was_done_to_another_machine_is_no_step_of_the_one_that_has_its_name_now(version, planned):
    left = state.Node("a", "quarantined", machine={"machine_id": "1" * 32}, steps=[state.Step("install", "t")])
    view = story(left, finished="t")
    probe = Probe("a", version=version, verdict="pass", identity={"machine_id": "2" * 32})
    for run in ("2", "3"):
        made = plan.build_plan("2.0", [probe], POLICY, previous=view)
        events.apply_event(view, dict(plan.make_event(made, "r"), event="plan", run=run, time="t"))
        node = view.nodes.get("a")
        assert (node.state, node.steps, node.from_version) == (planned, [], version)


@pytest.mark.parametrize(
    "before, now, states",
    [
        ("down", {"board_serial": "B2"}, ["lost", "pending"]),
        ("soaking", {"board_serial": "B2"}, ["lost", "pending"]),
        ("draining", {"board_serial": "B2"}, ["draining", "draining"]),  # nothing was changed: it begins again
        ("down", {"board_serial": None}, ["down", "down"]),
        ("down", {"machine_id": "2" * 32}, ["down", "down"]),  # installed again: its baseline decides
    ],
)
def test_another_machine_is_not_changed_in_place_of_one_that_was_in_flight(before, now, states):
    machine = entries.identify_machine(Probe("a", identity=MACHINE))
    step = state.Step("drain" if before == "draining" else "install", "t")
    view = story(state.Node("a", before, from_version="1.0", to_version="2.0", machine=machine, steps=[step]))
    probe, found = Probe("a", version="1.0", verdict="pass", identity=dict(MACHINE, **now)), []
    for run in ("2", "3"):
        made = plan.build_plan("2.0", [probe], dict(POLICY, max_down=2), previous=view)
        events.apply_event(view, dict(plan.make_event(made, "r"), event="plan", run=run, time="t"))
        found.append(view.nodes.get("a").state)
    assert found == states and bool(view.nodes.get("a").steps) == (states[1] != "pending")


def test_way_back_of_another_machine_is_not_taken_over():
    first = Probe("a", version="0.9", identity=MACHINE)
    for value in ("quarantined", "lost", "rolled_back", "failed"):
        node = state.Node("a", value, from_version="0.9", to_version="2.0", machine=entries.identify_machine(first))
        node.steps = [state.Step("install", "t")]
        probe = Probe("a", version="1.0", identity=dict(MACHINE, machine_id="2" * 32))
        entry = entries.entry_of(probe, "2.0", node, False)
        assert (entry["state"], entry["from"], entry.get("orphaned")) == ("pending", "1.0", None) and entry["again"]
    in_flight = state.Node("a", "down", from_version="0.9", to_version="2.0", machine=entries.identify_machine(first))
    assert entries.entry_of(probe, "2.0", in_flight, True)["orphaned"], "its slot is not given away"
