# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waves: the real playbook with rollout_mode waves."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import Result, wait_for

WAVES = {"rollout_mode": "waves", "rollout_max_down": 3}


def spans(report):
    """(first step began, last step ended) of every node that went."""
    return {
        name: (node["steps"][0]["started"], node["steps"][-1]["finished"])
        for name, node in report["nodes"].items()
        if node["steps"]
    }


def test_no_wave_begins_before_the_one_before_it_has_ended(fleet):
    for number in range(1, 6):
        fleet.add("a%d" % number)
    for name in ("a2", "a4", "a5"):
        fleet.change(name, waits_in_install=True)
    with fleet.going("upgrade", rollout_waves=[1, "40%", "100%"], **WAVES) as process:
        wait_for(lambda: "waits" in fleet.read("a2")["log"] and fleet.recorded()["a3"] == "done")
        fleet.change("a2", waits_in_install=False)
        wait_for(lambda: all("waits" in fleet.read(name)["log"] for name in ("a4", "a5")))  # beside each other
        for name in ("a4", "a5"):
            fleet.change(name, waits_in_install=False)
        process.wait(timeout=1800)
    result = Result(fleet, process, process.output)
    assert result.rc == 0
    assert set(result.states.values()) == {"done"}
    assert "in waves of 1, 2, 2" in result.output and "2. a2: driver 1.0.1 -> 2.0.1, wave 2" in result.output
    when = spans(result.report)
    for earlier, later in ((["a1"], ["a2", "a3"]), (["a2", "a3"], ["a4", "a5"])):
        assert max(when[name][1] for name in earlier) <= min(when[name][0] for name in later)
    assert min(when[name][1] for name in ("a4", "a5")) > max(when[name][0] for name in ("a4", "a5")), (
        "beside each other within a wave"
    )
    assert "wave 3 of 3 begins when the one before it has ended: " in result.output
    again = fleet.run("upgrade", rollout_waves=[1, "40%", "100%"], **WAVES)
    assert again.rc == 0 and [len(fleet.read(name)["log"]) for name in fleet.names] == [3, 4, 3, 4, 4]


def test_a_wave_in_which_every_node_failed_ends_the_rollout_with_its_report(fleet):
    for number in range(1, 5):
        fleet.add("a%d" % number, sick_with=[] if number > 2 else ["2.0.1"])
    result = fleet.run("upgrade", rollout_waves=[2], rollout_failure_budget=2, **WAVES)
    assert result.rc == 2
    assert result.states == {"a1": "rolled_back", "a2": "rolled_back", "a3": "pending", "a4": "pending"}
    assert (result.report["verdict"], bool(result.report["finished"])) == ("failed", True)
    assert fleet.touched() == ["a1", "a2"]
    assert "stop (the failure budget of 2 is spent by a1, a2)" in result.output


@pytest.mark.promise
def test_the_next_wave_goes_on_within_the_budget(fleet):
    for number in range(1, 4):
        fleet.add("a%d" % number)
    fleet.change("a1", unreachable_with=["2.0.1"])
    result = fleet.run("upgrade", "--limit", "a1,a3", rollout_waves=[1], rollout_failure_budget=3, **WAVES)
    assert result.rc in (2, 4)
    assert result.states == {"a1": "lost", "a3": "done"}
    assert fleet.touched() == ["a1", "a3"]
