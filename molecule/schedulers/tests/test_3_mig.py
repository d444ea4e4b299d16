# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A MIG layout rolled over three machines, two of them nodes of the real Slurm, and kept over a reboot.

What a machine has is read through NVML by a program of its own, and from Slurm as an operator asks it. The cases build
on each other.
"""

from __future__ import annotations

import json
import time

import pytest
import yaml

from tests.lab import scenario, slurm
from tests.lab.play import play

NODES = ("slurm-1", "slurm-2", "kube-1")  # the last one has no scheduler here
MODEL = "nvidia_a100-sxm4-40gb"
LAYOUTS = {
    "version": "v1",
    "mig-configs": {
        "sliced": [
            {"devices": [0, 1, 2], "mig-enabled": True, "mig-devices": {"1g.5gb": 2, "3g.20gb": 1}},
            {"devices": [3], "mig-enabled": False},
        ],
        "other": [{"devices": "all", "mig-enabled": True, "mig-devices": {"7g.40gb": 1}}],
    },
}
SLICED = [["1g.5gb", "1g.5gb", "3g.20gb"]] * 3 + [[]]
SLICED_GRES = "gpu:a100:1,gpu:%s_1g.5gb:6,gpu:%s_3g.20gb:3" % (MODEL, MODEL)
# slurm-2 has a layout already, made by hand.
BEFORE = [["2g.10gb", "2g.10gb"], [], [], []]
BEFORE_GRES = "gpu:a100:3,gpu:%s_2g.10gb:2" % MODEL
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
BOOT_UNIT, SLURMD = "gpufleet-mig.service", "slurmd.service"
# The MIG devices of each GPU, as the machine's own NVML library tells them.
READ = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
count, found = ctypes.c_uint(), []
assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
for index in range(count.value):
    gpu, most, names = ctypes.c_void_p(), ctypes.c_uint(), []
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu)) == 0
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, ctypes.byref(most)) == 0
    for number in range(most.value):
        device, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        answer = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number, ctypes.byref(device))
        if answer == 0:
            assert nvml.nvmlDeviceGetName(device, text, 96) == 0
            names.append(text.value.decode().split()[-1])
        else:
            assert answer in (2, 6), answer  # MIG is off; there is none of this number
    found.append(sorted(names))
print(json.dumps(found))
"""


def layout(machine):
    return json.loads(machine.check_output("python3 -c %s", READ))


def writes(machine):
    """How many NVML calls were to change something."""
    return int(machine.check_output("cat /run/gpusim/writes | wc -l"))


def gres(host, name):
    words = host.check_output("scontrol show node n-" + name).split()
    return next(word for word in words if word.startswith("Gres="))[len("Gres=") :]


def active(machine, unit):
    return machine.run("systemctl is-active " + unit).stdout.strip()


def at(machine, unit, name):
    """A moment of a unit, in microseconds since the boot."""
    return int(machine.check_output("systemctl show --property=%sMonotonic --value %s" % (name, unit)))


@pytest.fixture(scope="module")
def machines():
    return {name: scenario.machine(name) for name in NODES}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    return tmp_path_factory.mktemp("mig")


@pytest.fixture(scope="module")
def run(artifacts):
    """run(playbook, **variables): one run with what the fleet's owner says of its nodes."""
    known = {name: {"gpu_scheduler_backends": ["slurm"] if name != "kube-1" else []} for name in NODES}
    inventory = artifacts / "inventory.yml"
    inventory.write_text(yaml.safe_dump({"gpu_nodes": {"hosts": known}}))
    common = {
        "gpufleet_artifact_dir": str(artifacts),
        "rollout_other_ledger_s": 0,  # each test has a ledger of its own
        "gpu_scheduler_slurm_host": "slurm-c",
        "gpu_scheduler_slurm_node": "n-{{ inventory_hostname }}",
        "gpu_scheduler_slurm_gres_dir": "/etc/slurm",
        "gpu_scheduler_slurm_gres_types": {MODEL: "a100"},
        "gpu_scheduler_slurm_reconfigure": True,
        "gpu_scheduler_slurm_restart": True,  # Debian's Slurm is older than 23.11
        "gpu_scheduler_poll": 1,
        "gpu_scheduler_slice": 5,
        "gpu_scheduler_resume_timeout": 60,
    }
    return lambda playbook, **more: play(playbook, [scenario.INVENTORY, inventory], {**common, **more})


@pytest.fixture(scope="module")
def roll(run):
    """roll(name, hosts): one run of the playbook mig."""

    def rolling(name, hosts, **more):
        wanted = {"nvidia_mig_config": name, "nvidia_mig_configs": LAYOUTS, "mig_hosts": ":".join(hosts)}
        policy = {"rollout_max_down": 3, "rollout_failure_budget": 9, "rollout_common_cause": 0}
        return run("gpufleet.lifecycle.mig", **wanted, **policy, **more)

    return rolling


def booted(run, machine):
    """Reboot, and wait until all that starts at boot has come to its end, well or not."""
    before = scenario.boot_id(machine)
    tasks = [{"ansible.builtin.reboot": {}}]
    outcome = run([{"hosts": "slurm-1", "become": True, "gather_facts": False, "tasks": tasks}])
    assert outcome.rc == 0, outcome.tail()
    machine.run("systemctl is-system-running --wait")
    assert scenario.boot_id(machine) != before


def test_slurm_is_given_a_layout_that_was_made_by_hand(host, machines, run):
    machines["slurm-2"].run_expect([0], "gpusim mig --gpu 0 2g.10gb 2g.10gb")
    host.run_expect([0], "scontrol update nodename=n-slurm-2 state=drain reason='its gres'")
    role = {"name": "gpufleet.lifecycle.gpu_scheduler", "tasks_from": "gres"}
    plays = [{"hosts": "slurm-2", "become": True, "gather_facts": False, "tasks": [{"include_role": role}]}]
    outcome = run(plays)
    assert outcome.rc == 0, outcome.tail()
    assert layout(machines["slurm-2"]) == BEFORE and gres(host, "slurm-2") == BEFORE_GRES
    again = run(plays)
    assert (again.rc, again.changed.get("slurm-2", 0)) == (0, 0), again.tail()
    host.run_expect([0], "scontrol update nodename=n-slurm-2 state=resume")
    scenario.wait_for(lambda: slurm.state(host, "n-slurm-2") == "IDLE", "slurm-2 does not serve")


def test_a_node_whose_gres_may_not_be_changed_is_refused_before_its_drain(host, machines, roll):
    began = time.time()
    outcome = roll("sliced", ["slurm-1"], gpu_scheduler_slurm_reconfigure=False, rollout_id="mig-stayed")
    assert outcome.rc == 2, outcome.tail()
    assert "Gres=" + SLICED_GRES in outcome.output and "scontrol reconfigure" in outcome.output
    assert slurm.log(host, "n-slurm-1", began) == [] and gres(host, "slurm-1") == "gpu:a100:4"
    assert layout(machines["slurm-1"]) == [[]] * 4


def test_a_layout_goes_over_the_nodes_the_canary_first(host, machines, roll, artifacts):
    boots = {name: scenario.boot_id(machine) for name, machine in machines.items()}
    began = time.time()
    outcome = roll("sliced", NODES, rollout_canaries=["slurm-1"])
    assert outcome.rc == 0, outcome.tail()
    nodes = json.loads((artifacts / "rollouts" / "mig-sliced" / "report.json").read_text())["nodes"]
    assert {name: node["state"] for name, node in nodes.items()} == dict.fromkeys(NODES, "done")
    assert {name: scenario.boot_id(machine) for name, machine in machines.items()} == boots, "no reboot for a layout"
    rolled_out(host, machines, began)


def rolled_out(host, machines, began):
    assert {name: layout(machine) for name, machine in machines.items()} == dict.fromkeys(NODES, SLICED)
    for name in ("slurm-1", "slurm-2"):
        assert gres(host, name) == SLICED_GRES
        assert (slurm.state(host, "n-" + name), slurm.reason(host, "n-" + name)) == ("IDLE", "none")

    # The canary served again before another node was drained.
    served = [moment for moment, state in slurm.log(host, "n-slurm-1", began) if state == "IDLE"]
    drained = [moment for moment, state in slurm.log(host, "n-slurm-2", began) if state.startswith("DRAIN")]
    assert served and drained and served[0] <= drained[0]


def test_a_node_that_fails_gets_its_layout_and_gres_back(host, machines, roll, artifacts):
    node = machines["slurm-2"]
    node.run_expect([0], "gpusim clear && gpusim inject error %s 999 --first 1" % CREATE)
    outcome = roll("other", ["slurm-2"])
    assert outcome.rc == 2, outcome.tail()
    nodes = json.loads((artifacts / "rollouts" / "mig-other" / "report.json").read_text())["nodes"]
    assert nodes["slurm-2"]["state"] == "rolled_back"
    assert "rollback_mig" in [step["name"] for step in nodes["slurm-2"]["steps"]]
    node.run_expect([0], "gpusim clear")
    assert (layout(node), gres(host, "slurm-2")) == (SLICED, SLICED_GRES)
    assert (slurm.state(host, "n-slurm-2"), slurm.reason(host, "n-slurm-2")) == ("IDLE", "none")


def test_a_second_run_changes_nothing(host, machines, roll):
    before = {name: writes(machines[name]) for name in ("slurm-1", "kube-1")}
    began = time.time()
    outcome = roll("sliced", ["slurm-1", "kube-1"], rollout_id="mig-again")
    assert outcome.rc == 0, outcome.tail()
    assert {name: outcome.changed.get(name, 0) for name in ("slurm-1", "slurm-c", "kube-1")} == dict.fromkeys(
        ("slurm-1", "slurm-c", "kube-1"), 0
    )
    assert {name: writes(machines[name]) for name in before} == before
    assert slurm.log(host, "n-slurm-1", began) == []


def test_a_job_gets_the_slice_that_it_asks_for(host):
    asks = "srun --nodelist=n-slurm-1 --chdir=/ --immediate=60 --gres=gpu:%s_%s:1 sh -c %%s"
    said = host.check_output(
        asks % (MODEL, "1g.5gb"), "scontrol show job $SLURM_JOB_ID -d; printenv CUDA_VISIBLE_DEVICES"
    )
    assert "GRES=gpu:%s_1g.5gb:1(" % MODEL in said
    assert said.splitlines()[-1].isdigit(), "the device that it is given"
    assert host.run(asks % (MODEL, "2g.10gb"), "true").rc != 0, "no node has such slices any more"


def test_a_boot_makes_it_before_slurmd_registers(host, machines, run):
    node = machines["slurm-1"]
    booted(run, node)
    assert (active(node, BOOT_UNIT), active(node, SLURMD)) == ("active", "active")
    assert 0 < at(node, BOOT_UNIT, "ExecMainExitTimestamp") <= at(node, SLURMD, "ExecMainStartTimestamp")
    assert layout(node) == SLICED
    scenario.wait_for(
        lambda: slurm.state(host, "n-slurm-1") == "IDLE", "it does not serve: " + slurm.state(host, "n-slurm-1")
    )
    assert gres(host, "slurm-1") == SLICED_GRES


def test_a_boot_that_cannot_make_it_starts_no_slurmd(host, machines, run):
    node = machines["slurm-1"]
    node.run_expect([0], "gpusim inject error %s 999 --gpu 1" % CREATE)
    booted(run, node)
    assert (active(node, BOOT_UNIT), active(node, SLURMD)) == ("failed", "inactive")
    assert at(node, SLURMD, "ExecMainStartTimestamp") == 0, "it never ran in this boot"
    node.run_expect([0], "gpusim clear")
    node.run_expect([0], "systemctl start " + SLURMD)
    assert (active(node, BOOT_UNIT), active(node, SLURMD), layout(node)) == ("active", "active", SLICED)
    scenario.wait_for(lambda: slurm.state(host, "n-slurm-1") == "IDLE", "it does not serve again")
