# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes on their way into quarantine and out of it, by hand and after a rollout."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import conftest, test_upgrade_course

OLD, NEW = "1.0.1", "2.0.1"
REASON = "XID 79 on GPU 3"
XID = {"action": "reboot", "xid": 79}


def marker(fleet, name):
    path = fleet.nodes / name / "state" / "quarantine.json"
    return json.loads(path.read_text()) if path.exists() else None


def records(fleet, name):
    return [
        json.loads((path / "record.json").read_text())
        for path in sorted((fleet.artifacts / "quarantine" / name).glob("*"))
    ]


def everything(fleet):
    """What could have been changed: the nodes' files and what is done in Slurm, the evidence and the records."""
    found = {
        str(path): path.read_bytes()
        for place in (fleet.nodes, fleet.artifacts)
        for path in place.rglob("*.json")
        if "host-tasks" not in path.name
    }
    return found


def keep_baseline(fleet, name, **fields):
    """The baseline that a node keeps of itself."""
    gpus = fields.pop("gpus", ["GPU-a", "GPU-b"])
    snapshot = {
        "schema": "gpufleet.snapshot/1",
        "status": "ok",
        "gpus": [
            {
                "index": index,
                "uuid": {"value": uuid, "rc": 0},
                "serial": {"value": "S/N " + uuid, "rc": 0},
                "pci_bus_id": {"value": "00000000:%02x:00.0" % (index + 1), "rc": 0},
            }
            for index, uuid in enumerate(gpus)
        ],
    }
    (fleet.nodes / name / "state" / "baseline.json").write_text(
        json.dumps(
            dict({"schema": "gpufleet.baseline/1", "node": name, "boot_id": "boot-0", "snapshot": snapshot}, **fields)
        )
    )


def add_nodes_to_quarantine(fleet):
    """Add a1, which is sick, at work and lacks a GPU; a2, which does not answer; a3, which serves. Return what every
    run is given, and what quarantine is given.
    """
    fleet.add("a1", faults=[XID], jobs=1, gpus=["GPU-a"])
    fleet.add("a2", unreachable=True)
    fleet.add("a3")
    keep_baseline(fleet, "a1")
    arguments, variables = fleet.use_slurm()
    return (
        arguments,
        variables,
        dict(variables, quarantine_hosts="a1,a2", quarantine_reason=REASON, quarantine_user="kim"),
    )


@pytest.mark.promise
def test_node_in_quarantine_is_drained_recorded_and_marked_and_returns_once_it_is_proven(fleet):
    arguments, variables, given = add_nodes_to_quarantine(fleet)
    done = fleet.run("quarantine", *arguments, **given)
    assert done.rc == 2 and "a2: no marker was left on it, since it does not answer" in done.text
    for name in ("a1", "a2"):
        state, reason, log = fleet.slurm(name)
        assert (state, log) == ("IDLE+DRAIN", ["drain " + reason])
        assert reason.startswith("gpufleet:quarantine quarantined: " + REASON)
    assert fleet.read("a1")["jobs"] == 1 and fleet.touched() == [], "no job was ended, and nothing else was done"
    (one,) = records(fleet, "a1")
    assert [gpu["serial"] for gpu in one["gpus"]] == ["S/N GPU-a", "S/N GPU-b"] and one["gpus"][1]["from_baseline"], (
        "the one that is lost is named"
    )
    assert [(row["xid"], row["class"], row["count"]) for row in one["xids"]] == [(79, "reboot", 2)]
    assert one["xids"][0]["first"] < one["xids"][0]["last"]
    assert (one["verdict"], [check["id"] for check in one["checks"]], one["user"]) == ("fail", ["gpu.xid"], "kim")
    kept = marker(fleet, "a1")
    assert kept["schema"] == "gpufleet.quarantine/1" and kept["serials"] == ["S/N GPU-a", "S/N GPU-b"]
    assert kept["checks"] == ["gpu.xid"]
    assert (kept["reason"], kept["origin"], kept["token"], kept["time"]) == (
        REASON,
        "quarantine",
        "quarantine",
        one["time"],
    )
    assert "79" in (fleet.artifacts / kept["record"] / "record.md").read_text()
    assert (fleet.artifacts / kept["evidence"] / "manifest.json").exists()
    (two,) = records(fleet, "a2")
    assert two["answered"] is False and two["gpus"] == [] and two["missing"][0]["part"] == "node"
    assert marker(fleet, "a2") is None

    fleet.change("a1", jobs=0, gpus=["GPU-a", "GPU-b"])
    sick = fleet.run("return_to_service", *arguments, return_to_service_hosts="a1", **variables)
    assert sick.rc == 2 and "XID 79 on GPU-b." in sick.text and marker(fleet, "a1") == kept
    fleet.change("a1", faults=[])
    back = fleet.run("return_to_service", *arguments, return_to_service_hosts="a1", **variables)
    assert back.rc == 0 and marker(fleet, "a1") is None and fleet.slurm("a1")[0] == "IDLE", back.output[-2000:]


def test_nothing_is_changed_in_check_mode_by_a_second_run_or_by_a_return_that_is_refused(fleet):
    arguments, variables, given = add_nodes_to_quarantine(fleet)
    before = everything(fleet)
    foreseen = fleet.run("quarantine", "--check", *arguments, **given)
    assert everything(fleet) == before, "check mode changed something"
    assert "a1 would be in quarantine" in foreseen.output and foreseen.rc == 2, "a2 would lack its marker"

    assert fleet.run("quarantine", *arguments, **given).rc == 2
    after = everything(fleet)
    again = fleet.run("quarantine", *arguments, **dict(given, quarantine_reason=REASON))
    assert everything(fleet) == after, "a second run changed something"
    assert again.rc == 2 and "a1 was in quarantine since" in again.output

    refused = fleet.run("return_to_service", *arguments, return_to_service_hosts="a1,a3", **variables)
    assert refused.rc == 2 and "a3 was not in quarantine" in refused.output and "held by 1 jobs" in refused.output
    assert everything(fleet) == after
    fleet.change("a1", jobs=0, faults=[])
    after = everything(fleet)
    other = fleet.run("return_to_service", *arguments, return_to_service_hosts="a1", **variables)
    assert other.rc == 2 and "missing is GPU-b (serial number S/N GPU-b" in other.text and everything(fleet) == after
    fleet.change("a1", gpus=["GPU-a", "GPU-b"])
    kept, before = marker(fleet, "a1"), fleet.slurm("a1")
    foreseen = fleet.run("return_to_service", "--check", *arguments, return_to_service_hosts="a1", **variables)
    assert foreseen.rc == 0 and "a1 passed, and would serve again" in foreseen.output
    assert marker(fleet, "a1") == kept is not None and fleet.slurm("a1") == before


def began(fleet, name):
    """The tasks of a node in the order in which they began."""
    lines = [line.rpartition(" : ") for line in (fleet.directory / "started").read_text().splitlines()]
    return [task for host, dummy, task in lines if host.partition(" ")[0] == name]


def history(fleet, name):
    path = fleet.nodes / name / "state" / "recovery.json"
    return (
        [(entry["action"], entry["outcome"]) for entry in json.loads(path.read_text())["actions"]]
        if path.exists()
        else []
    )


def test_a_node_in_mig_mode_is_recovered_and_returned_with_its_layout(fleet):
    """a1 needs a reset and a2 a reboot; a3 does not get its layout after the reset, and a4 is well."""
    old = {"gpus": ["GPU-a", "GPU-b"], "mig_devices": 7}
    fleet.add("a1", faults=[{"action": "reset_gpu", "xid": 62}], **old)
    fleet.add("a2", faults=[XID], **old)
    fleet.add("a3", faults=[{"action": "reset_gpu", "xid": 62}], mig_fails_with=[OLD], **old)
    fleet.add("a4", **old)
    arguments, variables = fleet.use_slurm()
    done = fleet.run("recover_gpu", *arguments, recover_gpu_hosts="gpu_nodes", **variables)
    assert done.rc == 2, done.output[-3000:]
    assert {name: (fleet.read(name)["mig_now"], fleet.slurm(name)[0]) for name in ("a1", "a2")} == {
        "a1": (7, "IDLE"),
        "a2": (7, "IDLE"),
    }
    assert [line for line in fleet.read("a1")["log"] if "reset" in line or "MIG" in line] == [
        "reset GPU-b",
        ": 7 MIG devices",
    ]
    assert history(fleet, "a1") == [("reset_gpu", "pass")] and history(fleet, "a2") == [("reboot", "pass")]
    # Prometheus has to see the drain before the node goes away.
    order = ["Record on the node that it is drained, which silences its alerts", "Wait until Prometheus has scraped it"]
    order.append("Reboot")
    assert [task for task in began(fleet, "a2") if task in order] == order and order[1] not in began(fleet, "a1")
    assert fleet.touched() == ["a1", "a2", "a3"] and fleet.slurm("a4")[0] == "IDLE"
    assert "MIG layout" in marker(fleet, "a3")["reason"] and fleet.slurm("a3")[0] == "IDLE+DRAIN"

    # What MIG hides is read before it returns.
    keep_baseline(fleet, "a3")
    given = dict(variables, return_to_service_hosts="a3", return_to_service_smoke_level="none")
    # Where its layout is not made again its services run again all the same.
    fleet.change("a3", mig_now=7)
    left = fleet.run("return_to_service", *arguments, **given)
    assert left.rc == 2 and marker(fleet, "a3") and fleet.read("a3")["mig_now"] == 0, left.output[-2000:]
    assert fleet.read("a3")["running"] == ["nvidia-persistenced.service"]
    fleet.change("a3", mig_fails_with=[], mig_now=7, rows_failed_with=[OLD])
    refused = fleet.run("return_to_service", *arguments, **given)
    assert refused.rc == 2 and "A row remapping of GPU 0 failed." in refused.text and marker(fleet, "a3"), (
        refused.output[-2000:]
    )
    assert fleet.read("a3")["mig_now"] == 7 and fleet.read("a3")["running"] == ["nvidia-persistenced.service"]
    fleet.change("a3", rows_failed_with=[], log=[])
    foreseen = fleet.run("return_to_service", "--check", *arguments, **given)
    assert foreseen.rc == 0 and fleet.read("a3")["log"] == [], foreseen.output[-2000:]
    back = fleet.run("return_to_service", *arguments, **given)
    assert back.rc == 0 and marker(fleet, "a3") is None and fleet.slurm("a3")[0] == "IDLE", back.output[-2000:]
    assert [line for line in fleet.read("a3")["log"] if "MIG" in line] == [": 0 MIG devices", ": 7 MIG devices"]


def test_a_sick_node_is_recovered_by_what_its_verdict_asks_for_or_put_in_quarantine(fleet):
    """A GPU of a1 fell off the bus; a2 needs a reset; a3 is not helped by a reboot; a4 is well; a5 lacks a service."""
    service = "nvidia-persistenced.service"
    fleet.add("a1", faults=[XID], jobs=1)
    fleet.add("a2", faults=[{"action": "reset_gpu", "xid": 62}, XID])
    fleet.add("a3", faults=[dict(XID, until="never")])
    fleet.add("a4")
    fleet.add(
        "a5",
        running=[],
        faults=[{"id": "node.units", "entity": service, "action": "restart_service", "until": "start " + service}],
    )
    arguments, variables = fleet.use_slurm()
    given = dict(variables, recover_gpu_hosts="gpu_nodes", gpu_scheduler_drain_timeout=1)
    before = everything(fleet)
    foreseen = fleet.run("recover_gpu", "--check", *arguments, **given)
    assert foreseen.rc == 0 and everything(fleet) == before
    for name, what in {"a1": "reboot", "a2": "reboot", "a4": "is healthy", "a5": "restart_service"}.items():
        assert (
            "%s %s" % (name, what if what.startswith("is") else "would be drained, and then: " + what)
            in foreseen.output
        )

    fleet.change("a2", faults=[{"action": "reset_gpu", "xid": 62}])
    done = fleet.run("recover_gpu", *arguments, **given)
    said = done.text
    assert done.rc == 2 and fleet.touched() == ["a2", "a3", "a5"], "no job of a1 is ended"
    assert fleet.slurm("a1")[0] == "IDLE+DRAIN" and history(fleet, "a1") == []
    assert "n-a1 is not empty in Slurm after 1 s" in said
    assert [what for what in fleet.read("a2")["log"] if "reset" in what] == ["reset GPU-b"]
    assert fleet.read("a2")["running"] == [service]
    assert history(fleet, "a2") == [("reset_gpu", "pass")] and fleet.slurm("a2")[0] == "IDLE"
    assert marker(fleet, "a2") is None
    assert fleet.read("a3")["boots"] == 1 and history(fleet, "a3") == [("reboot", "fail")], "no more than once a day"
    kept = marker(fleet, "a3")
    assert (kept["origin"], kept["token"], kept["checks"]) == ("recover_gpu", "recover", ["gpu.xid"])
    assert records(fleet, "a3")[0]["xids"][0]["xid"] == 79
    assert fleet.slurm("a3")[0] == "IDLE+DRAIN" and fleet.read("a4")["log"] == [] and fleet.slurm("a4")[2] == []
    assert fleet.read("a5")["running"] == [service] and fleet.slurm("a5")[0] == "IDLE"

    # The job of a1 ended; a2 needs once more what it had today.
    fleet.change("a1", jobs=0)
    fleet.change("a2", faults=[{"action": "reset_gpu", "xid": 62}])
    again = fleet.run("recover_gpu", *arguments, **dict(given, recover_gpu_hosts="a1,a2,a3"))
    assert again.rc == 2 and fleet.read("a1")["boots"] == 1 and fleet.slurm("a1")[0] == "IDLE"
    assert history(fleet, "a1") == [("reboot", "pass")]
    assert len(history(fleet, "a2")) == 1
    assert marker(fleet, "a2")["reason"].startswith("recover_gpu: the verdict asks for reset_gpu")
    assert "a3 is in quarantine since " + kept["time"] in again.text and marker(fleet, "a3") == kept


def test_a_node_without_a_scheduler_is_silent_from_its_recovery_until_it_serves(fleet):
    """Alerts are silent for a node that has the record of a drain. A reboot helps a2, and not a1."""
    fleet.add("a1", faults=[dict(XID, until="never")])
    fleet.add("a2", faults=[XID])
    kept = [fleet.nodes / name / "state" / "drain.json" for name in ("a1", "a2")]
    done = fleet.run("recover_gpu", recover_gpu_hosts="a1,a2")
    assert done.rc == 2 and [fleet.read(name)["boots"] for name in ("a1", "a2")] == [1, 1], done.output[-2000:]
    assert json.loads(kept[0].read_text())["token"] == "recover" and not kept[1].exists()
    fleet.change("a1", faults=[])
    back = fleet.run("return_to_service", return_to_service_hosts="a1", return_to_service_new_baseline=True)
    assert back.rc == 0 and marker(fleet, "a1") is None and not kept[0].exists(), back.output[-2000:]


def test_what_a_recovery_destroys_and_the_record_of_a_quarantine_are_on_the_artifact_host(fleet):
    """A reboot does not help a1, so that it ends in quarantine."""
    fleet.add("a1", faults=[dict(XID, until="never")])
    kept, arguments = test_upgrade_course.artifact_host(fleet)
    fleet.artifacts = fleet.directory / ".gpufleet"
    done = fleet.run("recover_gpu", *arguments, recover_gpu_hosts="a1")
    assert done.rc == 2 and history(fleet, "a1") == [("reboot", "fail")] and marker(fleet, "a1") is not None

    def bundles(place):
        return {
            (path.parent.relative_to(place), path.name): path.read_bytes()
            for part in ("evidence", "quarantine")
            for path in (place / part).rglob("*")
            if path.is_file()
        }

    ours = bundles(fleet.artifacts)
    names = {str(place) for place, dummy in ours}
    assert {"evidence/recovery/a1/1-before-reboot", "evidence/quarantine/a1/1-quarantined"} <= names and len(names) == 3
    assert bundles(kept) == ours


def test_what_a_rollout_holds_is_refused_and_what_it_put_in_quarantine_comes_back(fleet):
    """A rollout fails on a1; a2 is another one's; a3 has a marker of the first version; a4 is put there after a
    plan.
    """
    fleet.add("a1", half_installs=[NEW], cannot_install=[OLD])
    for name in ("a2", "a3", "a4"):
        fleet.add(name)
    arguments, variables = fleet.use_slurm()
    rolled = fleet.run("upgrade", *arguments, upgrade_hosts="a1", **variables)
    assert rolled.rc == 2 and rolled.states == {"a1": "quarantined"}
    kept = marker(fleet, "a1")
    assert (kept["schema"], kept["origin"], kept["rollout_id"], kept["token"]) == (
        "gpufleet.quarantine/1",
        "upgrade",
        "upgrade-" + NEW,
        "upgrade-" + NEW,
    )
    assert kept["serials"] == ["S/N GPU-a", "S/N GPU-b"] and kept["version"] == NEW and kept["previous_version"] == OLD
    assert kept["evidence"].endswith("-quarantined") and kept["record"] == "" and kept["not_put_back"]
    held = {
        "schema": "gpufleet.claim/1",
        "ledger": "another",
        "rollout_id": "other",
        "attempt": 1,
        "run": "r",
        "plan": "p",
        "controller": "ctl9",
        "time": "2026-01-01T00:00:00Z",
        "state": "held",
    }
    (fleet.nodes / "a2" / "state" / "claim.json").write_text(json.dumps(held))
    old = {
        "node": "a3",
        "rollout_id": "upgrade-1",
        "reason": "it failed",
        "not_put_back": "twice",
        "time": "2026-01-01T00:00:00Z",
    }
    (fleet.nodes / "a3" / "state" / "quarantine.json").write_text(json.dumps(old))

    marked = fleet.run("quarantine", *arguments, quarantine_hosts="a1,a2,a3", quarantine_reason=REASON, **variables)
    assert marked.rc == 2
    assert "a2 is left as it is: it is held by rollout other (attempt 1, begun on ctl9)" in marked.text
    assert marker(fleet, "a2") is None and fleet.slurm("a2") == ("IDLE", "", []) and not records(fleet, "a2")
    for name, before in (("a1", kept), ("a3", old)):
        now = marker(fleet, name)
        assert [now[key] for key in ("reason", "time", "not_put_back", "rollout_id")] == [
            before[key] for key in ("reason", "time", "not_put_back", "rollout_id")
        ], "why and since when stay"
        assert len(records(fleet, name)) == 1 and now["record"] and now["schema"] == "gpufleet.quarantine/1"
    assert fleet.slurm("a3")[1].startswith("gpufleet:upgrade-1 "), "it is that rollout's drain"
    (fleet.nodes / "a2" / "state" / "claim.json").unlink()

    # Repaired, with another GPU; and Slurm does not take it back at first.
    fleet.change(
        "a1",
        half_installs=[],
        cannot_install=[],
        disk=OLD,
        loaded=OLD,
        gpus=["GPU-a", "GPU-c"],
        slurm=dict(fleet.read("a1")["slurm"], refuses="resume"),
    )
    refused = fleet.run(
        "return_to_service",
        *arguments,
        return_to_service_hosts="a1,a3",
        return_to_service_new_baseline=True,
        **variables,
    )
    said = refused.text
    assert refused.rc == 2 and marker(fleet, "a3") is None and fleet.slurm("a3")[0] == "IDLE"
    assert "a1 is proven and stays in quarantine: not taken back by slurm" in said
    assert marker(fleet, "a1")["reason"] == kept["reason"]
    fleet.change("a1", slurm=dict(fleet.read("a1")["slurm"], refuses=""))
    back = fleet.run("return_to_service", *arguments, return_to_service_hosts="a1", **variables)
    assert back.rc == 2 and "new is GPU-c" in back.text, "its record has the GPU that is gone"
    back = fleet.run(
        "return_to_service", *arguments, return_to_service_hosts="a1", return_to_service_new_baseline=True, **variables
    )
    assert back.rc == 0 and marker(fleet, "a1") is None and fleet.slurm("a1")[0] == "IDLE", back.output[-2000:]
    assert not (fleet.nodes / "a1" / "state" / "claim.json").exists()
    last = json.loads((fleet.nodes / "a1" / "state" / "last-change.json").read_text())
    assert last["rollout_id"] == kept["rollout_id"], "for a rollout of another ledger"

    # One that is put there after the plan is left alone, and another goes.
    fleet.change("a3", waits_at=["install " + NEW])
    with fleet.going(
        "upgrade",
        *arguments,
        upgrade_hosts="a3,a4",
        rollout_id="late",
        rollout_max_down=2,
        rollout_canaries=["a3"],
        **variables,
    ) as process:
        conftest.wait_for(lambda: "waits" in fleet.read("a3")["log"])
        late = fleet.run("quarantine", *arguments, quarantine_hosts="a3,a4", quarantine_reason=REASON, **variables)
        assert late.rc == 2 and marker(fleet, "a4")["reason"] == REASON and marker(fleet, "a3") is None
        assert "a3 is left as it is: rollout late has it in flight" in late.text
        fleet.change("a3", waits_at=[])
        process.wait(timeout=1800)
    assert process.returncode == 2 and fleet.states("late") == {"a3": "done", "a4": "quarantined"}, process.output
    assert fleet.read("a4")["log"] == [] and fleet.slurm("a4")[0] == "IDLE+DRAIN"


def test_bad_input_is_refused_before_anything_is_changed(fleet):
    fleet.add("a1", faults=[XID])
    for playbook, given, words in (
        ("quarantine", {"quarantine_hosts": "a1", "quarantine_reason": " "}, "quarantine_reason is empty"),
        (
            "return_to_service",
            {"return_to_service_hosts": "a1", "return_to_service_baseline": "/x"},
            "return_to_service_baseline is no variable of",
        ),
        ("recover_gpu", {"recover_gpu_hosts": "a1", "recover_gpu_actions": ["power_cycle"]}, "power_cycle"),
    ):
        result = fleet.run(playbook, **given)
        assert result.rc not in (0, 4) and words in result.text, result.output
        assert fleet.touched() == [] and not fleet.artifacts.exists()
        assert list((fleet.nodes / "a1" / "state").iterdir()) == []
