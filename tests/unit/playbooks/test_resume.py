# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller that is killed with a node in every step there is, and another one, with nothing but the ledger, that
goes on.

So it is when the controller itself was booted, and when another machine takes over, also without a node that is gone
for good.
"""

from __future__ import annotations

import collections
import datetime
import shutil
import signal

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger, owner
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import wait_for

OLD, NEW = "1.0.1", "2.0.1"
PERSISTENCED = "nvidia-persistenced.service"

# Where the controller dies; what else is so on the node; what is so when the next controller comes; what becomes of it.
Course = collections.namedtuple("Course", ["waits_at", "fields", "then", "step", "state"])


def course(waits_at, step, state="done", fields=None, **then):
    return Course(waits_at, fields or {}, then, step, state)


SICK = {"sick_with": [NEW]}
COURSES = {
    "evidence": course("health baseline", "evidence"),
    "drain": course("show", "drain"),
    "stop": course("stop", "stop"),
    "install": course("install " + NEW, "install"),
    "prove": course("prove", "prove"),
    "reboot": course("reboot", "reboot"),
    "validate": course("health post", "validate"),
    "soak": course("health soak", "soak"),
    "back-install": course("install " + OLD, "rollback_install", "rolled_back", SICK),
    # Somebody's work came back to the node while nobody looked.
    "drain-busy": course("show", "drain", "failed", busy=True),
    "stop-busy": course("stop", "stop", "failed", busy=True),
    "install-busy": course("install " + NEW, "install", "quarantined", busy=True),
    "soak-busy": course("health soak", "soak", "done", busy=True),
    "soak-busy-sick": course("health soak", "soak", "quarantined", busy=True, sick_with=[NEW]),
    "back-install-busy": course("install " + OLD, "rollback_install", "quarantined", SICK, busy=True),
    # While a driver is changed NVML may not tell who computes: then whoever has the device files open counts.
    "prove-held": course(
        "prove",
        "prove",
        "quarantined",
        holders=[{"pid": 4712, "comm": "python3", "unit": None, "user": "x", "devices": []}],
    ),
    "prove-free": course(
        "prove",
        "prove",
        holders=[{"pid": 1, "comm": "nvidia-persiste", "unit": PERSISTENCED, "user": "x", "devices": []}],
    ),
}
# What `make test` takes of them: around the change of the driver, on the way back, and a node that is left alone.
FEW = {name: COURSES[name] for name in ("install", "reboot", "back-install", "stop-busy")}


def killed_in_install(fleet, names, playbook="upgrade", **variables):
    """A rollout whose controller dies, with its workers, while every one of NAMES is being installed; what it began on
    the nodes comes to its end.
    """
    with fleet.going(playbook, **variables) as first:
        wait_for(lambda: first.poll() is not None or all("waits" in fleet.read(name)["log"] for name in names))
        assert first.poll() is None, "it ended"
    for name in names:
        fleet.change(name, waits_at=[])
    wait_for(lambda: not fleet.at_work())
    fleet.kill_controllers()


def ran_on(fleet, heard, **place):
    """Let the ledger say that its controller ran in another PLACE than this one, and when it was HEARD last."""

    def work(transaction):
        record = transaction.owner
        transaction.hold(
            dict(record, owner=dict(record["owner"], **place), heartbeat=heard.strftime("%Y-%m-%dT%H:%M:%S.000Z"))
        )

    ledger.Ledger(str(fleet.artifacts), "upgrade-" + NEW).transact(work)


def test_another_machine_takes_over_without_a_node_that_is_lost_and_one_that_is_given_up(fleet):
    for name in ("a1", "a2", "a3"):
        fleet.add(name, waits_at=["install " + NEW])
    fleet.add("a4")
    policy = {"rollout_max_down": 3, "rollout_failure_budget": 9}
    killed_in_install(fleet, ("a1", "a2", "a3"), **policy)
    # What is left of the first machine is a copy of its database; of the nodes one is gone, and one was taken out of
    # the inventory.
    there, fleet.artifacts = fleet.artifacts, fleet.directory / "another-machine" / ".gpufleet"
    (fleet.artifacts / "rollouts").mkdir(parents=True)
    shutil.copy(there / "rollouts" / "ledger.sqlite", fleet.artifacts / "rollouts")
    shutil.rmtree(there)
    ran_on(
        fleet,
        datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1),
        host="first-machine",
        boot_id="of the first machine",
    )
    fleet.change("a2", unreachable=True)
    fleet.names.remove("a3")
    before = {name: fleet.read(name)["log"] for name in ("a1", "a2", "a3", "a4")}

    for check in ([], ["--check"]):
        unseen = fleet.run("upgrade", *check, rollout_abandon=["a3"], **policy)
        assert unseen.rc == 2 and "on first-machine" in unseen.output
        assert "run again with rollout_break_lock=true" in unseen.output
        assert ("  refused: Rollout upgrade-2.0.1 is recorded as run by process " in unseen.output) == bool(check)
    missing = fleet.run("upgrade", rollout_break_lock=True, **policy)
    assert missing.rc == 2 and "a3 was in flight (down, in step install) when its run was interrupted" in missing.output
    before["a1"].append("reboot into " + NEW)
    assert {name: fleet.read(name)["log"] for name in before} == before, "only what was in flight is finished"

    result = fleet.run("upgrade", rollout_break_lock=True, rollout_abandon=["a3"], **policy)
    assert result.rc in (2, 4) and result.report["verdict"] == "failed"
    assert result.states == fleet.recorded() == {"a1": "done", "a2": "lost", "a3": "lost", "a4": "done"}
    reasons = {name: node["reason"] for name, node in result.report["nodes"].items()}
    assert reasons["a2"].startswith("did not answer before the rollout: ")
    assert reasons["a3"] == "abandoned: it was down when its run was interrupted"
    assert "2 of 9 failures" in result.output, "both count"
    assert fleet.read("a3")["log"] == before["a3"] and fleet.read("a2")["log"] == before["a2"]
    assert fleet.read("a1")["log"].count("installed " + NEW) == 1
    assert fleet.read("a1")["loaded"] == fleet.read("a4")["loaded"] == NEW


@pytest.mark.parametrize(
    "since, goes_on", [(-0.5, True), (0.5, False)], ids=["silent since before its boot", "heard of since"]
)
def test_a_controller_that_was_booted_goes_on_with_what_it_left_unless_somebody_was_heard_of_since(
    fleet, since, goes_on
):
    fleet.add("a1", waits_at=["install " + NEW])
    killed_in_install(fleet, ("a1",))
    now = datetime.datetime.now(datetime.timezone.utc)
    boot = owner.find_boot_time(now)
    ran_on(fleet, boot + since * (now - boot), boot_id="of the boot before")
    result = fleet.run("upgrade")
    assert result.rc == (0 if goes_on else 2)
    assert ("a1: driver 1.0.1 -> 2.0.1, was in flight when its run was interrupted" in result.output) == goes_on
    assert ("run again with rollout_break_lock=true" in result.output) != goes_on
    assert fleet.recorded() == {"a1": "done" if goes_on else "down"}
    assert fleet.read("a1")["log"].count("installed " + NEW) == 1


def wait_in_every_step(fleet, courses):
    """Add nodes that each wait in a step of their own, and that many forks; return the variables of the rollout."""
    for name, one in courses.items():
        fleet.add(name, waits_at=[one.waits_at], **one.fields)
    fleet.environment["ANSIBLE_FORKS"] = str(len(courses) + 2)
    return {
        "rollout_max_down": len(courses),
        "rollout_failure_budget": 99,
        "rollout_common_cause": 99,
        "rollout_canaries": list(courses),
        "rollout_canary_failures": len(courses),
        "rollout_canary_soak_s": 1,
        "gpu_node_upgrade_soak_interval": 1,
    }


def killed_in_every_step(fleet, controllers, url, courses):
    """Kill the CONTROLLERS when every node waits; {node: what was done to it}. Afterwards things are as the next one
    finds them.
    """
    try:
        wait_for(
            lambda: (
                any(one.poll() is not None for one in controllers)
                or all("waits" in fleet.read(name)["log"] for name in courses)
            )
        )
        assert [one.poll() for one in controllers] == [None] * len(controllers), "one ended"
    finally:
        for one in controllers:
            one.kill()
        for one in controllers:
            fleet.ended(one)
    assert {one.returncode for one in controllers} == {-signal.SIGKILL}
    view = fleet.view(url=url)
    assert {name: view.nodes.get(name).steps[-1].name for name in courses} == {
        name: one.step for name, one in courses.items()
    }
    for name in courses:
        fleet.change(name, waits_at=[])
    # The modules that it began go on alone.
    wait_for(lambda: not fleet.at_work() and fleet.read("reboot")["boots"] == 1)
    # Ansible's workers may outlive it, with nobody to report to.
    fleet.kill_controllers()
    before = {name: fleet.read(name)["log"] for name in courses}
    for name, one in courses.items():
        fleet.change(name, **one.then)
    return before


def every_node_came_to_its_end(fleet, recorded, reasons, before, courses):
    assert recorded == {name: one.state for name, one in courses.items()}, reasons
    for name, one in courses.items():
        node = fleet.read(name)
        assert node["log"].count("installed " + NEW) <= 1 and node["log"].count("reboot into " + NEW) <= 1, (
            name,
            "nothing is done twice",
        )
        if one.state == "done":
            assert (node["loaded"], node["disk"], node["log"].count("reboot into " + NEW)) == (NEW, NEW, 1), name
        if one.state == "rolled_back":
            assert (node["loaded"], node["disk"]) == (OLD, OLD), name
    for name in [name for name, one in courses.items() if one.then and one.state != "done"]:
        new = fleet.read(name)["log"][len(before[name]) :]
        assert not [entry for entry in new if not entry.startswith(("start ", "looked at"))], (name, new)
        assert "4712" in reasons[name] if "held" in name else "4711" in reasons[name], reasons[name]
    for name in {"drain-busy", "stop-busy"} & courses.keys():
        assert fleet.read(name)["running"] == [PERSISTENCED], name
    assert "prove-held" not in courses or "python3 4712" in reasons["prove-held"]
    assert "GPU 3 does not answer with driver 2.0.1" in reasons["back-install"], "the first failure is not forgotten"


@pytest.mark.parametrize(
    "courses", [pytest.param(FEW, marks=pytest.mark.promise), COURSES], ids=["few steps", "every step"]
)
def test_another_controller_goes_on_wherever_the_first_one_was_killed(fleet, courses):
    variables = dict(wait_in_every_step(fleet, courses), rollout_ledger="sqlite:///%s/shared.db" % fleet.directory)
    before = killed_in_every_step(fleet, [fleet.start("upgrade", **variables)], variables["rollout_ledger"], courses)
    fleet.artifacts = fleet.directory / "second-controller"
    result = fleet.run("upgrade", **variables)
    assert result.rc == 2
    reasons = {name: node["reason"] for name, node in result.report["nodes"].items()}
    recorded = fleet.recorded(variables["rollout_ledger"])
    every_node_came_to_its_end(fleet, recorded, reasons, before, courses)


def test_a_controller_that_dies_while_it_plans_leaves_no_half_of_a_plan(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    fleet.change("a2", waits_at=["claim read"])
    process = fleet.start("upgrade")
    try:
        wait_for(lambda: "waits" in fleet.read("a2")["log"] or process.poll() is not None)
        process.kill()
    finally:
        fleet.ended(process)
        fleet.change("a2", waits_at=[])
    wait_for(lambda: not fleet.at_work())
    assert fleet.view().run is None and fleet.recorded() == {}
    again = fleet.run("upgrade")
    assert again.rc == 0 and again.states == {"a1": "done", "a2": "done"}, again.output
    assert [fleet.read(name)["log"].count("installed " + NEW) for name in fleet.names] == [1, 1]
