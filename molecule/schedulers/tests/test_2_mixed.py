# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One upgrade of a fleet that Slurm, Kubernetes, and both give work, beside each other: real jobs, and pods on the real
API server.

There is no kubelet and no controller: the lab-node-agent ends the pods that the server lets go, and the test writes the
budget's status. The driver is the lab's stub.
"""

from __future__ import annotations

import datetime
import json
import time

import pytest
import yaml

from tests.lab import scenario, slurm
from tests.lab.kube import cluster

TARGET = "535.274.02"
ID = "upgrade-" + TARGET
BACKENDS = {
    "slurm-1": ["slurm"],
    "slurm-2": ["slurm", "kubernetes"],
    "kube-1": ["kubernetes"],
    "kube-2": ["kubernetes"],
}
MARK = "gpufleet.lifecycle/mark"
TAINTS = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
DRAIN_TAINT = {"key": "gpufleet.lifecycle/upgrade", "value": "", "effect": "NoSchedule"}
STEPS = ["prestage", "evidence", "drain", "stop", "install", "prove", "reboot", "validate", "return"]
END, ENDED = "/var/tmp/mixed-end", "/var/tmp/mixed-ended"
JOB = "while [ ! -e %s ]; do sleep 0.2; done; date +%%s.%%N > %s" % (END, ENDED)


def kube_name(name):
    return name + ".cluster.example.org"


def slurm_name(name):
    return "n-" + name


@pytest.fixture
def space(tmp_path):
    """The nodes as the cluster has them: one serves no pods by an operator's order, and one has a pod that its budget
    keeps.
    """
    with cluster.running(tmp_path / "kube") as plane:
        space = cluster.Space(plane, "team")
        for name in ("slurm-2", "kube-1", "kube-2"):
            space.add_node(kube_name(name), {"rack": "r1"}, unschedulable=name == "kube-2", taints=TAINTS, gpus=4)
            space.add_pod("train-" + name, kube_name(name), gpus=1)
        space.add_pod("slurmd", kube_name("slurm-2"), gpus=1, owner="DaemonSet")
        space.add_pod("monitor", kube_name("kube-1"), gpus=1, owner="DaemonSet")
        space.add_pod("web", kube_name("kube-1"))
        space.add_budget("keep", "train-kube-1", allowed=0)
        yield space


@pytest.fixture
def jobs(host):
    """A running job on each node of Slurm, by machine: each ends by itself when it is told to."""
    found = {}
    for name in ("slurm-1", "slurm-2"):
        scenario.machine(name).run_expect([0], "rm -f %s %s" % (END, ENDED))
        found[name] = slurm.submit(host, slurm_name(name), JOB, *(["--gres=gpu:1"] if name == "slurm-1" else []))
    yield found
    for number in found.values():
        host.run("scancel " + number)


@pytest.fixture
def inventory(tmp_path, space):
    """What the fleet's owner says of each machine: who gives it work, and by which name."""
    common = {
        "gpu_scheduler_slurm_host": "slurm-c",
        "gpu_scheduler_slurm_node": slurm_name("{{ inventory_hostname }}"),
        "gpu_scheduler_poll": 1,
        "gpu_scheduler_slice": 5,
        "gpu_scheduler_kubernetes_node": kube_name("{{ inventory_hostname }}"),
        "gpu_scheduler_kubernetes_kubeconfig": str(space.plane.kubeconfig(cluster.LIFECYCLE)),
        "gpu_scheduler_kubernetes_drain_taints": [DRAIN_TAINT],
    }
    path = tmp_path / "schedulers.yml"
    hosts = {name: {"gpu_scheduler_backends": backends, **common} for name, backends in BACKENDS.items()}
    path.write_text(yaml.safe_dump({"gpu_nodes": {"hosts": hosts}}))
    return path


def standing(space, name):
    """Whether the node takes no pods, the token of our mark, and its taints."""
    found = space.read(kube_name(name))
    text = found["metadata"].get("annotations", {}).get(MARK)
    taints = [
        {"value": "", **taint}
        for taint in found["spec"].get("taints", [])
        if taint["key"] != "node.kubernetes.io/not-ready"
    ]
    return found["spec"].get("unschedulable", False), text and json.loads(text)["token"], taints


def asked(space, verb, what, name):
    """(when, answer, body) of the account's requests of that kind about something, but for those that were to change
    nothing.
    """
    found = []
    for each in space.plane.audit():
        thing, body = each.get("objectRef", {}), each.get("requestObject", {})
        path = "/".join(filter(None, (thing.get("resource"), thing.get("subresource"))))
        if (each["verb"], path, thing.get("name")) == (verb, what, name) and "dryRun" not in each[
            "requestURI"
        ] + json.dumps(body):
            found.append(
                (
                    datetime.datetime.fromisoformat(each["stageTimestamp"]).timestamp(),
                    each["responseStatus"]["code"],
                    body,
                )
            )
    return found


def test_one_upgrade_of_a_fleet_of_slurm_kubernetes_and_both(host, space, jobs, inventory, tmp_path):
    machines = {name: scenario.machine(name) for name in BACKENDS}
    boots = {name: scenario.boot_id(machine) for name, machine in machines.items()}
    ours = "gpufleet:%s driver %s" % (ID, TARGET)
    variables = {
        "gpufleet_artifact_dir": str(tmp_path),
        "rollout_other_ledger_s": 0,  # each test has a ledger of its own
        "nvidia_driver_tree_dir": "",
        "upgrade_hosts": ":".join(BACKENDS),
        "rollout_version": TARGET,
        "rollout_max_down": len(BACKENDS),
        "gpu_scheduler_drain_timeout": 600,
        "gpu_scheduler_resume_timeout": 60,
    }
    began = time.time()
    with scenario.controller(
        tmp_path / "controller.log", "gpufleet.lifecycle.upgrade", variables, [scenario.INVENTORY, inventory]
    ) as running:
        for name in jobs:
            node = slurm_name(name)
            running.waits_for(
                lambda node=node: (slurm.state(host, node), slurm.reason(host, node)) == ("MIXED+DRAIN", ours),
                node + " is not drained",
                300,
            )
        running.waits_for(
            lambda: (
                len(asked(space, "create", "pods/eviction", "train-kube-1")) > 1
                or "kube-1: stop" in running.log.read_text()
            ),
            "its pod is not tried again",
        )
        said = running.says("kube-2: stop")

        # Three wait, each for another reason, and hold nobody up.
        assert [name for name in BACKENDS if name + ": stop" in said] == ["kube-2"]
        assert standing(space, "kube-1") == (True, ID, TAINTS + [DRAIN_TAINT])
        assert space.pods(kube_name("kube-1")) == ["monitor", "train-kube-1", "web"]
        assert {answer for _at, answer, _body in asked(space, "create", "pods/eviction", "train-kube-1")} == {429}, (
            "its budget keeps it"
        )
        assert standing(space, "slurm-2") == (False, None, TAINTS)
        assert space.pods(kube_name("slurm-2")) == ["slurmd", "train-slurm-2"], "its job comes first"
        for name in set(BACKENDS) - {"kube-2"}:
            assert scenario.boot_id(machines[name]) == boots[name]
            assert TARGET not in machines[name].check_output("nvidia-smi")

        for name, number in jobs.items():
            machines[name].run_expect([0], "touch " + END)
            running.waits_for(
                lambda number=number: slurm.job(host, number) == "COMPLETED", "job %s did not end by itself" % number
            )
        allowed = time.time()
        space.set_budget("keep", allowed=1)
        running.ends()
    ended = {name: float(machines[name].check_output("cat " + ENDED)) for name in jobs}

    nodes = json.loads((tmp_path / "rollouts" / ID / "report.json").read_text())["nodes"]
    assert {
        name: (node["state"], [step["name"] for step in node["steps"]]) for name, node in nodes.items()
    } == dict.fromkeys(BACKENDS, ("done", STEPS))
    for name, machine in machines.items():
        assert TARGET in machine.check_output("nvidia-smi") and scenario.boot_id(machine) != boots[name]

    # Back in service, wherever nobody else keeps it out.
    for name in jobs:
        assert (slurm.state(host, slurm_name(name)), slurm.reason(host, slurm_name(name))) == ("IDLE", "none")
    assert {name: standing(space, name) for name in ("slurm-2", "kube-1")} == dict.fromkeys(
        ("slurm-2", "kube-1"), (False, None, TAINTS)
    )
    assert standing(space, "kube-2") == (True, None, TAINTS), "what an operator cordoned stays so"
    for name in ("slurm-2", "kube-1", "kube-2"):
        labels = space.read(kube_name(name))["metadata"]["labels"]
        assert labels["rack"] == "r1" and labels["gpufleet.lifecycle/driver-version"] == TARGET
        assert labels["gpufleet.lifecycle/gpu-count"] == "4"

    # Gone is what had a GPU and is made anew elsewhere, and not before its budget let it go.
    left = {name: space.pods(kube_name(name)) for name in ("slurm-2", "kube-1", "kube-2")}
    assert left == {"slurm-2": ["slurmd"], "kube-1": ["monitor", "web"], "kube-2": []}
    let_go = [at for at, answer, _body in asked(space, "create", "pods/eviction", "train-kube-1") if answer == 201]
    assert len(let_go) == 1 and let_go[0] > allowed

    # In the order given, each when the one before had done; and back in the opposite order.
    (drained, first), *between, (resumed, last) = slurm.log(host, slurm_name("slurm-2"), began)
    writes = asked(space, "patch", "nodes", kube_name("slurm-2"))
    marks = [
        (at, body["metadata"]["annotations"][MARK])
        for at, _answer, body in writes
        if MARK in body["metadata"].get("annotations", {})
    ]
    assert (first, between, last) == ("DRAINING", [], "IDLE") and len(marks) == 2 and marks[0][1]
    assert marks[1][1] is None
    assert drained < ended["slurm-2"] < marks[0][0] < marks[1][0] < resumed

    # By the shipped account, which needed no more than it has.
    assert {each["user"]["username"] for each in space.plane.audit()} == {cluster.ACCOUNT}
    assert [each for each in space.plane.audit() if each["responseStatus"]["code"] in (401, 403)] == []
