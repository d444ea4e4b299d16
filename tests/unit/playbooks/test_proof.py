# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No node is finished by its version: with the real playbook, role and ledger."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import wait_for

OLD, NEW = "1.0.1", "2.0.1"


def test_a_node_that_was_lost_after_its_change_is_proven_or_put_back_however_long_it_was_away(fleet):
    """a1 and a2 do not come back from their reboot, nor in the next run, and then they run with the new driver: a1
    well, a2 sick.

    b1 and b2 have it from the beginning: b1 well, b2 sick.
    """
    fleet.add("a1", dies_with=[NEW])
    fleet.add("a2", dies_with=[NEW])
    fleet.add("b1", loaded=NEW, disk=NEW)
    fleet.add("b2", loaded=NEW, disk=NEW, sick_with=[NEW])
    budgets = {"rollout_max_down": 4, "rollout_failure_budget": 9, "rollout_common_cause": 0}
    there = {"b1": "skipped", "b2": "failed"}
    first = fleet.run("upgrade", **budgets)
    assert first.rc in (2, 4) and first.states == dict(there, a1="lost", a2="lost")
    assert "already at 2.0.1, and not proven: GPU 3 does not answer" in first.report["nodes"]["b2"]["reason"]
    again = fleet.run("upgrade", **budgets)
    assert again.rc in (2, 4) and again.states == first.states
    fleet.change("a1", unreachable=False, dies_with=[])
    fleet.change("a2", unreachable=False, dies_with=[], sick_with=[NEW])
    last = fleet.run("upgrade", **budgets)
    assert last.rc == 2 and last.states == dict(there, a1="done", a2="rolled_back")
    assert [fleet.read(name)["loaded"] for name in ("a1", "a2")] == [NEW, OLD]
    assert [fleet.read(name)["log"].count("installed " + NEW) for name in fleet.names] == [1, 1, 0, 0], (
        "nothing is installed twice"
    )
    for name in ("a1", "a2"):
        assert fleet.document(name, "health-after")["verdict"] == "pass"
        assert fleet.read(name)["running"] == ["nvidia-persistenced.service"]
    assert "GPU 3 does not answer with driver 2.0.1" in last.report["nodes"]["a2"]["reason"]


def test_a_node_that_was_done_and_is_sick_now_fails_the_next_run_and_is_not_touched(fleet):
    fleet.add("a1")
    assert fleet.run("upgrade").states == {"a1": "done"}
    fleet.change("a1", sick_with=[NEW])
    log = fleet.read("a1")["log"]
    sick = fleet.run("upgrade")
    assert sick.rc == 2 and sick.states == {"a1": "failed"} and sick.report["verdict"] == "failed"
    assert fleet.read("a1")["log"] == log
    assert sick.report["nodes"]["a1"]["reason"].startswith("was done earlier, and now: GPU 3 does not answer")
    fleet.change("a1", sick_with=[])
    well = fleet.run("upgrade")
    assert well.rc == 0 and well.states == {"a1": "done"} and well.report["nodes"]["a1"]["from"] == OLD


def test_what_a_play_of_ones_own_ignores_finishes_no_node(fleet):
    """Its errors are ignored from the outside, so that no rescue of the role is reached."""
    fleet.add("a1", sick_with=[NEW])
    (fleet.directory / "ignoring.yml").write_text(
        (fleet.collection / "playbooks" / "upgrade.yml")
        .read_text()
        .replace("import_playbook: plan.yml", "import_playbook: gpufleet.lifecycle.plan")
        .replace(
            "  strategy: ansible.builtin.host_pinned\n",
            "  strategy: ansible.builtin.host_pinned\n  ignore_errors: true\n",
        )
    )
    result = fleet.run("ignoring")
    assert result.rc == 2 and result.states == {"a1": "pending"} and result.report["verdict"] == "incomplete"
    assert fleet.touched() == []


@pytest.mark.parametrize(
    "given",
    [
        {"gpu_node_upgrade_version": "3.0.1"},
        {"gpu_node_upgrade_on_failure": "stop"},
        {"gpu_node_upgrade_install": False},
    ],
    ids=lambda given: next(iter(given)),
)
def test_variables_of_an_imported_playbook_do_not_change_what_was_planned(fleet, given):
    """Those of import_playbook outrank what the play gives the role."""
    fleet.add("a1")
    (fleet.directory / "own.yml").write_text(
        yaml.safe_dump([{"import_playbook": "gpufleet.lifecycle.upgrade", "vars": given}])
    )
    result = fleet.run("own")
    assert result.rc == 2 and result.states == {"a1": "pending"} and fleet.touched() == []
    assert next(iter(given)) in result.output or "3.0.1" in result.output, result.output


TWO_RACKS = """---
- name: Rack a
  ansible.builtin.import_playbook: gpufleet.lifecycle.upgrade
  vars: {upgrade_hosts: a1, rollout_id: a}
- name: Rack b
  ansible.builtin.import_playbook: gpufleet.lifecycle.upgrade
  vars: {upgrade_hosts: b1, rollout_id: b, rollout_require_approval: true}
"""


def test_second_rollout_of_one_run_does_not_end_as_complete_as_the_first(fleet):
    fleet.add("a1")
    fleet.add("b1")
    (fleet.directory / "racks.yml").write_text(TWO_RACKS)
    result = fleet.run("racks")
    assert result.rc == 2 and fleet.view("a").nodes.get("a1").state == "done" and fleet.touched() == ["a1"]
    assert fleet.view("b").run is None


OVER = [{"date": "2026-01-31", "from": "22:00", "to": "23:00"}]


@pytest.mark.parametrize(
    "options",
    [{"rollout_require_approval": True, "rollout_windows": OVER}, {"rollout_max_down": 0, "rollout_canaries": ["x"]}],
    ids=["held", "refused"],
)
def test_a_node_that_is_down_comes_back_whatever_keeps_others_from_starting(fleet, options):
    """The first controller dies before a1 boots.

    Then the rollout is stopped, and the next plan is not approved and outside of its windows, or refused.
    """
    fleet.add("a1", waits_at=["reboot"])
    fleet.add("a2")
    with fleet.killed("upgrade"):
        wait_for(lambda: "waits" in fleet.read("a1")["log"])
    fleet.change("a1", waits_at=[])
    assert fleet.run("rollout_control", rollout_verb="stop", rollout_reason="enough").rc == 0
    result = fleet.run("upgrade", **options)
    assert result.rc == 2 and result.states == {"a1": "done", "a2": "pending"}
    node = fleet.read("a1")
    assert (node["loaded"], node["log"].count("reboot into " + NEW), node["running"]) == (
        NEW,
        1,
        ["nvidia-persistenced.service"],
    )
    assert fleet.touched() == ["a1"]
