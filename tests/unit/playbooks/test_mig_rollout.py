# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A MIG layout goes over a fleet by the plan and gate of a driver: with the real playbooks, role and ledger."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import host_tasks
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import wait_for

OLD = "1.0.1"
HALVES = {
    "version": "v1",
    "mig-configs": {"halves": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2}}]},
}
WANTED = {
    "nvidia_mig_config": "halves",
    "nvidia_mig_configs": HALVES,
    "rollout_version": "",
    "rollout_max_down": 3,
    "rollout_failure_budget": 9,
}
GPU = "gpu:stub_gpu"  # of Slurm, by the name that the stub nodes' GPUs tell
WHOLE, SEVENTHS = GPU + ":2", GPU + "_1g.10gb:14"
PERSISTENCED, MANAGER = "nvidia-persistenced.service", "nvidia-mig-manager.service"
UNTOUCHED = ("installed", "reboot", "failed to install")


def recorded(fleet, rollout_id="mig-halves"):
    return {node.name: node.state for node in fleet.view(rollout_id).nodes.list_all()}


def with_slurm(fleet, *names):
    """Slurm gives these nodes work, and no scheduler the others."""
    arguments, variables = fleet.use_slurm()
    backends = variables.pop("gpu_scheduler_backends")
    fleet.variables = {name: {"gpu_scheduler_backends": backends} for name in names}
    return arguments, variables


def done(fleet, name):
    return [line for line in fleet.read(name)["log"] if "MIG devices" in line]


def after_stop(fleet, name):
    """What was done to the node while its services were stopped."""
    log = fleet.read(name)["log"]
    first, last = log.index("stop nvidia-persistenced.service"), log.index("start nvidia-persistenced.service")
    return [line for line in log[first + 1 : last] + log[last + 1 :] if not line.startswith(("stop ", "start "))]


def went(view):
    return [node for node in view.nodes.list_all() if node.went is not None]


def kept(fleet, name):
    return json.loads((fleet.nodes / name / "state" / "mig.json").read_text())


def test_a_layout_goes_over_a_fleet_and_back(fleet):
    """c1 is the canary; a1 had no MIG and gets it on one of its GPUs; a2 had another layout, a3 the wanted one; a4 does
    not get it and is put back.

    Slurm gives a1, a4 and a5 work. It does not take the new MIG devices of a5, which is put back too. Kubernetes gives
    c1 work. The MIG mode of r1, r2 and r3 waits for a reset: r1 gets it, nvidia-smi fails on r2, and after that of r3
    the mode waits as before. u1 cannot be reached.
    """
    fleet.add("a1", slurm={"gres": WHOLE}, whole_gpus=["GPU-b"])
    fleet.add("a2", mig_devices=7)
    fleet.add("a3", mig_devices=2)
    fleet.add("a4", mig_devices=7, cannot_have=[2], slurm={"gres": SEVENTHS})
    fleet.add("a5", mig_devices=7, slurm={"gres": SEVENTHS, "ignores": GPU + "_1g.10gb:4"})
    fleet.add("c1")
    fleet.add("r1", mode_waits=True)
    fleet.add("r2", mode_waits=True, cannot_reset=True)
    fleet.add("r3", mode_waits=True, reset_keeps_mode=True)
    fleet.add("u1", unreachable=True, mig_devices=2)
    arguments, slurm = with_slurm(fleet, "a1", "a4", "a5")
    fleet.variables["c1"] = {"gpu_scheduler_backends": ["kubernetes"]}
    slurm.update(fleet.use_gres("a1", "a4", "a5"))
    result = fleet.run("mig", *arguments, rollout_canaries=["c1"], rollout_common_cause=0, **WANTED, **slurm)
    assert result.rc == 2, result.output
    expected = dict.fromkeys(("a1", "a2", "c1", "r1"), "done")
    expected.update(dict.fromkeys(("a4", "a5", "r2", "r3"), "rolled_back"), a3="skipped", u1="lost")
    assert recorded(fleet) == expected
    view = fleet.view("mig-halves")
    assert view.nodes.get("c1").went == 1
    assert [step.name for step in view.nodes.get("c1").steps] == [
        "evidence",
        "drain",
        "stop",
        "mig",
        "validate",
        "return",
    ]
    assert [step.name for step in view.nodes.get("a2").steps] == [
        "evidence",
        "drain",
        "stop",
        "mig_clear",
        "mig",
        "validate",
        "return",
    ]
    assert done(fleet, "a1") == ["mig: 0 MIG devices", "mig: 2 MIG devices"] and done(fleet, "a3") == []
    assert done(fleet, "a4")[-1] == "rollback_mig: 7 MIG devices"
    # A mode that waits for a reset is made with one, and only where it waits; no layout is made without it, and the way
    # back is the same.
    waits, reset = "the MIG mode waits for a reset", "reset all"
    assert after_stop(fleet, "r1") == ["mig: 0 MIG devices", "mig: " + waits, reset, "mig: 2 MIG devices"]
    assert after_stop(fleet, "r2") == ["mig: 0 MIG devices", "mig: " + waits] + ["rollback_mig: 0 MIG devices"] * 2
    assert (
        after_stop(fleet, "r3")
        == ["mig: 0 MIG devices", "mig: " + waits, reset, "mig: " + waits] + ["rollback_mig: 0 MIG devices"] * 2
    )
    reasons = {name: view.nodes.get(name).reason for name in ("r2", "r3")}
    assert "nvidia-smi did not reset GPU-b" in reasons["r2"] and "2 GPUs wait for a reset" in reasons["r3"]
    assert reset not in fleet.read("a1")["log"]
    assert fleet.touched() == ["a1", "a2", "a4", "a5", "c1", "r1", "r2", "r3"]
    assert "u1" not in [node.name for node in went(view)]
    for name, devices in (
        ("a1", 2),
        ("a2", 2),
        ("a3", 2),
        ("a4", 7),
        ("a5", 7),
        ("c1", 2),
        ("r1", 2),
        ("r2", 0),
        ("r3", 0),
    ):
        node = fleet.read(name)
        assert (node["mig_now"] if name != "a3" else 2, node["boots"], node["loaded"]) == (devices, 0, OLD), name
        assert not [line for line in node["log"] if line.startswith(UNTOUCHED)]
        assert node["running"] == ["nvidia-persistenced.service"]
    # Slurm knew of what stays alone while the layout was made, and has what was made then: also where that is the
    # layout before.
    told, lines = fleet.gres("a1")
    assert told == [(GPU + ":1", 0), (GPU + ":1," + GPU + "_1g.10gb:2", 2)] and len(lines) == 3
    assert "MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap10," in lines[1]
    assert lines[2].endswith(" File=/dev/nvidia1")
    assert "mig: 2 MIG devices" in done(fleet, "a5") and done(fleet, "a5")[-1] == "rollback_mig: 7 MIG devices"
    for name in ("a4", "a5"):
        told, lines = fleet.gres(name)
        assert told == [("(null)", 0), (SEVENTHS, 7)] and len(lines) == 14, name
    assert [fleet.slurm(name)[0] for name in ("a1", "a4", "a5")] == ["IDLE"] * 3
    for name in ("a1", "c1"):
        asked = [task for task in host_tasks.of_play(result.host_tasks, "Upgrade")[name] if "slurm_gres" in task]
        assert len(asked) == (2 if name == "a1" else 0)
    assert fleet.read("c1")["kube"] == [["drained", False, True, None], ["resumed", True, True, {"1g.10gb": 4}]], (
        "a device plugin does not see that a layout changed"
    )
    assert kept(fleet, "a1") == {"config": HALVES, "config_name": "halves"}
    assert kept(fleet, "a4")["layout"][0] == {"gpus": ["GPU-a"], "mig_enabled": True, "mig_devices": {"1g.10gb": 7}}
    ledger = Ledger(str(fleet.artifacts), "mig-halves", "")
    assert all(ledger.load(name, "health-after")["verdict"] == "pass" for name in ("a1", "a2", "a4", "c1"))

    # What has it is left alone, the nodes that were put back too once they are left out.
    fleet.change("u1", unreachable=False)
    logs = {name: fleet.read(name)["log"] for name in fleet.names}
    again = fleet.run("mig", *arguments, mig_hosts="gpu_nodes:!a4:!a5:!r2:!r3", **WANTED, **slurm)
    assert again.rc == 0 and logs == {name: fleet.read(name)["log"] for name in fleet.names}, again.output
    assert set(recorded(fleet).values()) <= {"done", "skipped"}

    # What Slurm cannot be given, or another unit would undo at the next boot, is refused before a node is drained, on
    # the way back too.
    policy = {key: value for key, value in WANTED.items() if key.startswith("rollout_")}
    fleet.change("a2", enabled=[PERSISTENCED, MANAGER])
    refused = fleet.run(
        "rollback",
        *arguments,
        rollback_hosts="a1,a2,a3",
        rollback_of="mig-halves",
        **policy,
        **dict(slurm, gpu_scheduler_slurm_gres_dir=""),
    )
    words = refused.text
    assert refused.rc == 2 and "a1, a2 cannot have" in words and "gpu_scheduler_slurm_gres_dir" in words
    assert MANAGER in words, refused.output
    assert logs == {name: fleet.read(name)["log"] for name in fleet.names}
    assert recorded(fleet, "rollback-mig-halves") == {}
    fleet.change("a2", enabled=[PERSISTENCED])

    # And back to what each node had before, which was not changed on a3.
    back = fleet.run("rollback", *arguments, rollback_hosts="a1,a2,a3", rollback_of="mig-halves", **policy, **slurm)
    assert back.rc == 0 and recorded(fleet, "rollback-mig-halves") == {"a1": "done", "a2": "done", "a3": "skipped"}, (
        back.output
    )
    assert [fleet.read(name)["mig_now"] for name in ("a1", "a2")] == [0, 7]
    assert sum(fleet.read(name)["boots"] for name in fleet.names) == 0
    told, lines = fleet.gres("a1")
    assert told[2:] == [(GPU + ":1", 0), (WHOLE, 0)]
    assert [line.rpartition("=")[2] for line in lines] == ["/dev/nvidia0", "/dev/nvidia1"]


@pytest.mark.promise
def test_a_layout_that_nobody_can_have_is_refused_before_anything_is_drained(fleet):
    fleet.add("a1")
    fleet.add("a2", no_mig=True)
    for more, words in (
        ({}, "a2 cannot have"),
        ({"nvidia_mig_config": "havles"}, "havles"),
        ({"nvidia_mig_configs": {}}, "nvidia_mig_config_file"),
    ):
        result = fleet.run("mig", **dict(WANTED, **more))
        assert result.rc == 2 and words in result.output, result.output
    assert fleet.touched() == []


def test_a_node_on_which_another_unit_makes_a_layout_at_boot_is_refused_before_it_is_drained(fleet):
    fleet.add("a1", enabled=[PERSISTENCED, MANAGER])
    result = fleet.run("mig", **WANTED)
    assert result.rc == 2 and "a1 cannot have" in result.output and MANAGER in result.output, result.output
    assert fleet.touched() == [] and recorded(fleet) == {}
    for more in ({"nvidia_mig_replace_manager": True}, {"nvidia_mig_boot": False}):
        assert fleet.run("mig", "--check", "--limit", "a1", **WANTED, **more).rc == 0


def test_another_controller_goes_on_where_the_first_one_died_and_what_is_left_of_that_does_nothing(fleet):
    """k1 and k2 were about to get their layout, which k2 then cannot have.

    Of the first controller a stop comes late on s1, a start on s2, and on s3 the layout that is kept for each boot.
    """
    fleet.add("k1", waits_at=["mig"])
    fleet.add("k2", mig_devices=7, waits_at=["mig"])
    late = {"s1": "services stopped in attempt 1", "s2": "services started in attempt 1", "s3": "files in attempt 1"}
    for name, where in late.items():
        fleet.add(name, waits_at=[where])
    policy = dict(WANTED, rollout_max_down=5)
    with fleet.killed("mig", **policy) as first:
        wait_for(lambda: first.poll() is not None or all("waits" in fleet.read(name)["log"] for name in fleet.names))
        assert first.poll() is None, "it ended"
    view = fleet.view("mig-halves")
    assert {name: view.nodes.get(name).steps[-1].name for name in fleet.names} == {
        "k1": "mig",
        "k2": "mig",
        "s1": "stop",
        "s2": "validate",
        "s3": "mig",
    }
    for name, more in (("k1", {}), ("k2", {"cannot_have": [2]})):
        fleet.change(name, waits_at=[], **more)
    wait_for(lambda: all(done(fleet, name)[-1:] == ["mig: 0 MIG devices"] for name in ("k1", "k2")))

    result = fleet.run("mig", **policy)
    assert result.rc == 2
    assert recorded(fleet) == {"k1": "done", "k2": "rolled_back", "s1": "done", "s2": "done", "s3": "done"}, (
        result.output
    )
    assert [(fleet.read(name)["mig_now"], fleet.read(name)["running"]) for name in fleet.names] == [
        (devices, [PERSISTENCED]) for devices in (2, 7, 2, 2, 2)
    ]
    ledger = Ledger(str(fleet.artifacts), "mig-halves", "")
    assert {ledger.load(name, "health-after")["verdict"] for name in fleet.names} == {"pass"}
    assert not [line for name in fleet.names for line in fleet.read(name)["log"] if line.startswith(UNTOUCHED)]

    # The node is no longer the first controller's: it serves, or an operator is at work on it.
    running = {"s1": [PERSISTENCED], "s2": [], "s3": [PERSISTENCED]}
    (fleet.nodes / "s3" / "state" / "mig.json").write_text("{}")
    logs = {name: fleet.read(name)["log"] for name in late}
    for name in late:
        fleet.change(name, waits_at=[], running=running[name])
    wait_for(lambda: not fleet.at_work())
    assert {name: fleet.read(name)["running"] for name in late} == running
    assert {name: fleet.read(name)["log"] for name in late} == logs
    assert kept(fleet, "s3") == {}
    assert {name: (fleet.nodes / name / "refused").read_text() for name in late} == {
        "s1": "stop stopped Fenced\n",
        "s2": "validate started Fenced\n",
        "s3": "mig files Fenced\n",
    }


def test_a_play_of_ones_own_that_gives_the_role_no_layout_gets_no_ticket(fleet):
    """In mode ledger the role would end well with its driver, and the layout of the plan would not be made."""
    fleet.add("a1")
    playbooks = fleet.collection / "playbooks"
    upgrade = (
        (playbooks / "upgrade.yml").read_text().replace("_playbook: plan.yml", "_playbook: gpufleet.lifecycle.plan")
    )
    without = [line for line in upgrade.splitlines() if not line.startswith("    gpu_node_upgrade_layout:")]
    assert len(without) == len(upgrade.splitlines()) - 1
    (fleet.directory / "upgrade.yml").write_text("\n".join(without) + "\n")
    (fleet.directory / "own.yml").write_text((playbooks / "mig.yml").read_text())
    for name in ("checks", "tasks"):
        (fleet.directory / name).symlink_to(playbooks / name)
    result = fleet.run("own", **WANTED)
    assert result.rc == 2 and "gpu_node_upgrade_layout of a1 is empty; expected halves" in result.output, result.output
    assert fleet.touched() == [] and recorded(fleet)["a1"] not in ("done", "skipped")
