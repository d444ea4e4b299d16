# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A MIG layout goes over a fleet by the plan and gate of a driver: with the real playbooks, role and ledger."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import host_tasks

OLD = "1.0.1"
HALVES = {"version": "v1", "mig-configs": {"halves": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2}}]}}
WANTED = {"nvidia_mig_config": "halves", "nvidia_mig_configs": HALVES, "rollout_version": "", "rollout_max_down": 3, "rollout_failure_budget": 9}
GPU = "gpu:stub_gpu"  # of Slurm, by the name that the stub nodes' GPUs tell
WHOLE, SEVENTHS = GPU + ":2", GPU + "_1g.10gb:14"
UNTOUCHED = ("installed", "reboot", "failed to install")


def recorded(fleet, rollout_id="mig-halves"):
    return {node.name: node.state for node in fleet.view(rollout_id).nodes.everything()}


def with_slurm(fleet, *names):
    """Slurm gives these nodes work, and no scheduler the others."""
    arguments, variables = fleet.use_slurm()
    backends = variables.pop("gpu_scheduler_backends")
    fleet.variables = {name: {"gpu_scheduler_backends": backends} for name in names}
    return arguments, variables


def done(fleet, name):
    return [line for line in fleet.read(name)["log"] if "MIG devices" in line]


def kept(fleet, name):
    return json.loads((fleet.nodes / name / "state" / "mig.json").read_text())


def test_a_layout_goes_over_a_fleet_and_back(fleet):
    """c1 is the canary; a1 had no MIG, a2 another layout, a3 the wanted one; a4 does not get it and is put back.

    Slurm gives a1, a4 and a5 work. It does not take the new MIG devices of a5, which is put back too. Kubernetes gives c1 work.
    """
    fleet.add("a1", slurm={"gres": WHOLE})
    fleet.add("a2", mig_devices=7)
    fleet.add("a3", mig_devices=2)
    fleet.add("a4", mig_devices=7, cannot_have=[2], slurm={"gres": SEVENTHS})
    fleet.add("a5", mig_devices=7, slurm={"gres": SEVENTHS, "ignores": GPU + "_1g.10gb:4"})
    fleet.add("c1")
    arguments, slurm = with_slurm(fleet, "a1", "a4", "a5")
    fleet.variables["c1"] = {"gpu_scheduler_backends": ["kubernetes"]}
    slurm.update(fleet.use_gres("a1", "a4", "a5"))
    result = fleet.run("mig", *arguments, rollout_canaries=["c1"], rollout_common_cause=0, **WANTED, **slurm)
    assert result.rc == 2, result.output
    assert recorded(fleet) == {"a1": "done", "a2": "done", "a3": "skipped", "a4": "rolled_back", "a5": "rolled_back", "c1": "done"}
    view = fleet.view("mig-halves")
    assert view.nodes.get("c1").went == 1 and [step.name for step in view.nodes.get("c1").steps] == [
        "evidence", "drain", "stop", "mig", "validate", "return"]
    assert [step.name for step in view.nodes.get("a2").steps] == ["evidence", "drain", "stop", "mig_clear", "mig", "validate", "return"]
    assert done(fleet, "a1") == ["mig: 0 MIG devices", "mig: 2 MIG devices"] and done(fleet, "a3") == []
    assert done(fleet, "a4")[-1] == "rollback_mig: 7 MIG devices"
    for name, devices in (("a1", 2), ("a2", 2), ("a3", 2), ("a4", 7), ("a5", 7), ("c1", 2)):
        node = fleet.read(name)
        assert (node["mig_now"] if name != "a3" else 2, node["boots"], node["loaded"]) == (devices, 0, OLD), name
        assert not [line for line in node["log"] if line.startswith(UNTOUCHED)] and node["running"] == ["nvidia-persistenced.service"]
    # Slurm knew of no device while the layout was made, and has what was made then: also where that is the layout before.
    told, lines = fleet.gres("a1")
    assert told == [("(null)", 0), (GPU + "_1g.10gb:4", 2)] and len(lines) == 4 and "MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap110," in lines[3]
    assert "mig: 2 MIG devices" in done(fleet, "a5") and done(fleet, "a5")[-1] == "rollback_mig: 7 MIG devices"
    for name in ("a4", "a5"):
        told, lines = fleet.gres(name)
        assert told == [("(null)", 0), (SEVENTHS, 7)] and len(lines) == 14, name
    assert [fleet.slurm(name)[0] for name in ("a1", "a4", "a5")] == ["IDLE"] * 3
    for name in ("a1", "c1"):
        asked = [task for task in host_tasks.of_play(result.host_tasks, "Upgrade")[name] if "slurm_gres" in task]
        assert len(asked) == (2 if name == "a1" else 0)
    assert fleet.read("c1")["kube"] == [["drained", False], ["resumed", True]], "a device plugin does not see that a layout changed"
    assert kept(fleet, "a1") == {"config": HALVES, "config_name": "halves"}
    assert kept(fleet, "a4")["layout"][0] == {"gpus": ["GPU-a"], "mig_enabled": True, "mig_devices": {"1g.10gb": 7}}
    ledger = Ledger(str(fleet.artifacts), "mig-halves", "")
    assert all(ledger.load(name, "health-after")["verdict"] == "pass" for name in ("a1", "a2", "a4", "c1"))

    # What has it is left alone, the nodes that were put back too once they are left out.
    logs = {name: fleet.read(name)["log"] for name in fleet.names}
    again = fleet.run("mig", *arguments, mig_hosts="gpu_nodes:!a4:!a5", **WANTED, **slurm)
    assert again.rc == 0 and logs == {name: fleet.read(name)["log"] for name in fleet.names}, again.output
    assert set(recorded(fleet).values()) <= {"done", "skipped"}

    # And back to what each node had before, which was not changed on a3.
    back = fleet.run("rollback", *arguments, rollback_hosts="a1,a2,a3", rollback_of="mig-halves", **{
        key: value for key, value in WANTED.items() if key.startswith("rollout_")}, **slurm)
    assert back.rc == 0 and recorded(fleet, "rollback-mig-halves") == {"a1": "done", "a2": "done", "a3": "skipped"}, back.output
    assert [fleet.read(name)["mig_now"] for name in ("a1", "a2")] == [0, 7] and sum(fleet.read(name)["boots"] for name in fleet.names) == 0
    told, lines = fleet.gres("a1")
    assert told[2:] == [("(null)", 0), (WHOLE, 0)] and [line.rpartition("=")[2] for line in lines] == ["/dev/nvidia0", "/dev/nvidia1"]


def test_a_layout_that_nobody_can_have_is_refused_before_anything_is_drained(fleet):
    fleet.add("a1")
    fleet.add("a2", no_mig=True)
    for more, words in (({}, "a2 cannot have"), ({"nvidia_mig_config": "havles"}, "havles"), ({"nvidia_mig_configs": {}}, "nvidia_mig_config_file")):
        result = fleet.run("mig", **dict(WANTED, **more))
        assert result.rc == 2 and words in result.output, result.output
    assert fleet.touched() == []


def test_a_layout_that_slurm_cannot_be_given_is_refused_before_anything_is_drained(fleet):
    fleet.add("a1", slurm={"gres": WHOLE})
    arguments, slurm = with_slurm(fleet, "a1")
    result = fleet.run("mig", *arguments, **WANTED, **slurm)
    assert result.rc == 2 and "a1 cannot have" in result.output, result.output
    assert "gpu_scheduler_slurm_gres_dir" in result.output and "Gres=gpu:stub_gpu_1g.10gb:4" in result.output
    assert fleet.touched() == [] and fleet.slurm("a1") == ("IDLE", "", []) and recorded(fleet).get("a1") is None
