# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import datetime

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import control, entries, gate, options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import view_of

NOW = datetime.datetime(2026, 3, 14, 12, 0, tzinfo=datetime.timezone.utc)


def word(verb, **fields):
    return dict({"verb": verb, "user": "kim", "reason": "why", "nodes": [], "limits": {}}, **fields)


def view():
    return view_of({"a": "pending", "b": "draining", "c": "down", "d": "failed", "e": "done"}, max_down=2)


@pytest.mark.parametrize(
    "said, fields, line",
    [
        (word("pause"), [{}], "Paused by kim: why."),
        (word("stop"), [{}], "Stopped by kim: why."),
        (word("skip", nodes=["a", "b"]), [{"node": "a"}, {"node": "b"}], "a: left out by kim: why."),
        (word("retry", nodes=["d"]), [{"node": "d"}], "d: to be tried again by kim: why."),
        (word("retire", nodes=["c"], running=False), [{"node": "c"}], "c: retired by kim: why."),
        (
            word("set_budget", limits={"max_down": "50%"}),
            [{"policy": {"max_down": 5, "max_draining": 5}}],
            "max_down: 2 -> 5 by kim: why.",
        ),
        (word("set_budget", limits={"max_down": 2}), [{"policy": {}}], "The limits are these already."),
    ],
)
def test_what_is_recorded(said, fields, line):
    recorded, lines = control.decide_events(view(), said)
    assert recorded == [dict({"verb": said["verb"], "user": "kim", "reason": "why"}, **more) for more in fields]
    assert line in lines


@pytest.mark.parametrize(
    "said, words",
    [
        (word("pause", reason=" "), "pause needs a reason"),
        (word("pause", nodes=["a"]), "whole rollout"),
        (word("stop", limits={"max_down": 1}), "only for set_budget"),
        (word("resume"), "is not paused"),
        (word("skip"), "skip needs nodes"),
        (word("skip", nodes=["x"]), "Not in the plan of rollout x: x"),
        (word("skip", nodes=["a", "c"]), "pending or draining: c is down"),
        (word("retry", nodes=["e"]), "failed or rolled_back or skipped: e is done"),
        (word("retire", nodes=["a"]), "lost or quarantined or draining .*: a is pending"),
        (word("retire", nodes=["d"]), "d is failed"),
        (word("retire", nodes=["c"], running=True), "lost or quarantined: c is down"),
        (word("retire"), "retire needs nodes"),
        (word("set_budget"), "set_budget needs rollout_limits"),
        (word("set_budget", limits={"canaries": ["a"]}), "set_budget cannot change canaries"),
    ],
)
def test_what_is_refused(said, words):
    with pytest.raises(control.ControlError, match=words):
        control.decide_events(view(), said)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(
    "said, is_refused",
    [
        (word("pause"), True),
        (word("resume"), True),
        (word("stop"), True),
        (word("set_budget", limits={"max_down": 1}), True),
        (word("skip", nodes=["a"]), True),
        # What the next run takes over.
        (word("retry", nodes=["d"]), False),
        (word("retire", nodes=["f"]), False),
        (word("status"), False),
    ],
)
def test_request_that_no_run_would_follow_is_refused(said, is_refused, running):
    ended = view_of({"a": "pending", "d": "failed", "f": "lost"}, max_down=2)
    ended.finished, ended.paused = "2026-03-14T11:00:00.000Z", "kim: why"
    if is_refused:
        with pytest.raises(control.ControlError, match="ended at 2026-03-14T11:00:00.000Z"):
            control.decide_events(ended, dict(said, running=running))
    else:
        control.decide_events(ended, dict(said, running=running))


def test_limits_are_checked_as_in_the_plan():
    with pytest.raises(options.OptionError, match="rollout_max_down is 0"):
        control.decide_events(view(), word("set_budget", limits={"max_down": 0}))


def test_windows_are_changed():
    window = [{"days": ["sat"], "from": "22:00", "to": "04:00"}]
    assert control.decide_events(view(), word("set_budget", limits={"windows": window}, now=NOW))[0][0]["policy"] == {
        "windows": window
    }


@pytest.mark.parametrize(
    "caps, words",
    [
        ({"rak": 1}, "rollout_domain_caps names rak, which no node .*: island, rack"),
        ({"island": 1}, "rollout_domain_caps limits the nodes of one island, .*: a"),
    ],
)
def test_caps_of_unknown_domains_are_refused(caps, words):
    racks = {"a": {"rack": "r1"}, "b": {"rack": "r1", "island": "i1"}, "c": {"rack": "r1"}}
    found = view_of({"a": "pending", "b": "pending", "c": "done"}, domains=racks)
    with pytest.raises(control.ControlError, match=words):
        control.decide_events(found, word("set_budget", limits={"domain_caps": caps}))
    assert control.decide_events(found, word("set_budget", limits={"domain_caps": {"rack": 2}}))[0][0]["policy"] == {
        "domain_caps": {"rack": 2}
    }


def test_status_records_nothing():
    assert control.decide_events(view(), word("status", reason="")) == ([], [])


def test_how_it_stands():
    found = view()
    found.paused = "kim: why"
    lines = control.standing(
        found, {"owner": {"pid": 1, "host": "h"}, "time": "t1", "heartbeat": "t2"}, lambda owner: "process 1 on h"
    )
    assert lines == [
        "paused by kim: why",
        "no further node starts: the failure budget of 1 is spent by d",
        "run by process 1 on h since t1, last heartbeat at t2",
    ]


@pytest.mark.parametrize("before", ["lost", "quarantined", "down", "draining"])
def test_retired_node_gives_its_slot_free_and_is_no_success(before):
    found = view_of({"a": before, "b": "pending"}, orphaned=["a"] if before in ("down", "draining") else (), max_down=1)
    node = found.nodes.get("a")
    node.steps = [state.Step("install", "t")]
    if before != "draining":
        assert gate.decide(found, "drain", "b").answer != "go"
    found = events.apply_event(found, dict(word("retire", node="a"), event="control", run="r", time="t"))
    node = found.nodes.get("a")
    assert (node.state, node.orphaned, node.ticket, node.steps[-1].status) == ("failed", False, None, "failed")
    assert "kim" in node.reason and before in node.reason and node.failure
    assert (
        gate.decide(dataclasses.replace(found, policy=dict(found.policy, failure_budget=9)), "drain", "b").answer
        == "go"
    )
    assert state.judge_rollout(found, True) == "failed"
    again = Probe("a", version="2.0", verdict="pass", reachable=True)
    assert entries.entry_of(again, "2.0", node, False)["again"], "it is changed from the beginning"
