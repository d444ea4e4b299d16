# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role gpu_scheduler and upgrade.yml on stub nodes that a real API server, stub commands of Slurm, or both give
work.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import threading
import urllib.parse

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.kube.conftest import LIFECYCLE, NO_EVICTION
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection, host_tasks
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import Fleet

OLD, NEW = "1.0.1", "2.0.1"
ID = "upgrade-" + NEW
MARK = "gpufleet.lifecycle/mark"
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
BRINGUP_TAINT = {"key": "gpufleet.lifecycle/bringup", "value": "unproven", "effect": "NoSchedule"}
LABELS = {
    "gpufleet.lifecycle/gpu-model": "Stub-GPU",
    "gpufleet.lifecycle/gpu-count": "2",
    "gpufleet.lifecycle/class": "training",
    "rack": "r1",
}
KUBE, SLURM = "kubernetes", "slurm"
SECOND = 3  # host-tasks that a second scheduler may add: ask, drain, resume

PLAY = """
- hosts: gpu_nodes
  gather_facts: false
  tasks:
    - name: Each entry point
      ansible.builtin.include_tasks: entry.yml
      loop: "{{ entries | product([entries | join]) }}"
      loop_control:
        loop_var: item_of
      vars:
        entry: "{{ item_of[0] }}"
"""
ENTRY = """
- block:
    - name: Take it
      ansible.builtin.include_role:
        name: gpufleet.lifecycle.gpu_scheduler
        tasks_from: "{{ entry }}"
    - name: Tell
      ansible.builtin.debug:
        msg: "told {{ told | to_json }} end"
  rescue:
    - name: Tell that it failed
      ansible.builtin.debug:
        msg: "told {{ told | combine({'failed': ansible_failed_result.msg}) | to_json }} end"
  vars:
    told:
      node: "{{ inventory_hostname }}"
      entry: "{{ entry }}"
      drained: "{{ gpu_scheduler_drained | default(none) }}"
      marks: "{{ gpu_scheduler_mark | default({}) }}"
      blockers: "{{ gpu_scheduler_blockers | default([]) }}"
"""
NOTHING = """
- name: Leave this machine as it is
  ansible.builtin.meta: noop
"""
DRIVER = """
- name: Install the driver on the stub node
  gpufleet.lifecycle.driver_packages:
    version: "{{ nvidia_driver_version }}"
    state: present
"""


class KubeFleet(Fleet):
    """Stub nodes that have objects in the cluster, by another name."""

    REAL = Fleet.REAL + ("plugins/action/kube_node.py", "plugins/modules/kube_node.py")

    def __init__(self, directory, modules, world):
        super().__init__(directory, modules)
        self.world = world
        self.arguments, self.common = self.use_slurm()
        self.common.update(
            gpu_scheduler_kubernetes_node="%s-{{ inventory_hostname }}" % world.node,
            gpu_node_upgrade_gate_patience=180,
            gpu_node_upgrade_gate_patience_max=180,
        )

    def add(self, name, *backends, variables=None, unschedulable=False, account=LIFECYCLE, gpus=2, **fields):
        super().add(name, **fields)
        self.variables[name] = dict(
            self.common,
            gpu_scheduler_backends=list(backends),
            gpu_scheduler_kubernetes_kubeconfig=str(self.world.plane.kubeconfig(account)),
        )
        self.variables[name].update(variables or {})
        if KUBE in backends:
            self.world.add_node(self.called(name), unschedulable=unschedulable, gpus=gpus)

    def called(self, name):
        return "%s-%s" % (self.world.node, name)

    def object(self, name):
        return self.world.read(self.called(name))

    def pod(self, name, on, **more):
        self.world.add_pod(name, node=self.called(on), gpus=1, **more)

    def pods(self, name):
        return self.world.pods(self.called(name))

    def state(self, name):
        """Whether it takes no pods, and the mark of whom it carries."""
        found = self.object(name)
        text = found["metadata"].get("annotations", {}).get(MARK)
        return found["spec"].get("unschedulable", False), text and json.loads(text)["token"]

    def leave_out(self, *roles, driver):
        """What bringup.yml does to a machine: nothing, but for the driver, which is the stub node's. Its order and what
        the schedulers are told is real.
        """
        for name in roles + (driver,):
            role = self.collection / "roles" / name
            if role.is_symlink():
                role.unlink()
            collection.put(role / "tasks" / "main.yml", DRIVER if name == driver else NOTHING)
        role = self.collection / "roles" / "gpu_scheduler"
        role.unlink()
        shutil.copytree(collection.ROOT / "roles" / "gpu_scheduler", role)
        collection.put(role / "tasks" / "slurm" / "join.yml", NOTHING)

    def changed(self, result, name):
        """How many tasks changed the node."""
        return int(re.search(r"^%s +: .*changed=(\d+)" % re.escape(name), result.output, re.MULTILINE).group(1))

    def take(self):
        """The entry points of every node, and what each told: {node: {entry point: facts}}."""
        (self.directory / "role.yml").write_text(PLAY)
        (self.directory / "entry.yml").write_text(ENTRY)
        result = self.run("role", *self.arguments)
        assert result.rc == 0, "a failure is told by its task"
        told = {}
        for text in result.output.split('"msg": "told ')[1:]:
            one = json.loads(json.loads('"%s"' % text.split(' end"')[0]))
            told.setdefault(one["node"], {})[one["entry"]] = one
        return result, told


class Gateway:
    """A way to the API server that is there as long as OPEN says so; asked at every connection."""

    def __init__(self, plane, is_open):
        self.server = ("127.0.0.1", urllib.parse.urlsplit(plane.url).port)
        self.is_open = is_open
        self.door = socket.create_server(("127.0.0.1", 0))
        self.url = "https://127.0.0.1:%d" % self.door.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):  # the test is over
            while True:
                caller = self.door.accept()[0]
                if not self.is_open():
                    caller.close()
                    continue
                server = socket.create_connection(self.server)
                for source, target in ((caller, server), (server, caller)):
                    threading.Thread(target=self.pass_on, args=(source, target), daemon=True).start()

    @staticmethod
    def pass_on(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="session")
def modules(tmp_path_factory):
    """The modules as Ansible packed them, for all runs."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture
def fleet(tmp_path, modules, world):
    return KubeFleet(tmp_path, modules, world)


def owners(told):
    return {backend: mark["owner"] for backend, mark in told["marks"].items()}


def order(tasks):
    """What was asked of which scheduler and done to it, in order."""
    words = {
        "Drain the node in Slurm, and wait for its jobs": "drain slurm",
        "Drain the node in Kubernetes": "drain kubernetes",
        "Check whether the node can be drained in Kubernetes": "ask kubernetes",
        "Read the state of the node in Slurm": "ask slurm",
        "Resume the node in Kubernetes": "resume kubernetes",
        "Resume the node in Slurm": "resume slurm",
    }
    names = [task.rsplit(" | ", 1)[0].rsplit(" : ", 1)[-1] for task in tasks]
    if "Fail unless the node is drained" in names:  # what verify and status ask afterwards has no order
        names = [name for name in names if name != "Read the state of the node in Slurm"]
    return [words[name] for name in names if name in words]


def test_the_entry_points_of_the_role(fleet):
    way = {
        "entries": ["join", "label", "drain", "verify", "resume"],
        "gpu_scheduler_kubernetes_labels": {"rack": "r1", "gpufleet.lifecycle/class": "training"},
        "gpu_scheduler_kubernetes_drain_taints": [BRINGUP_TAINT],
        "gpu_scheduler_device_plugin_configs": {
            "shared": {"strategy": "time_slicing", "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}
        },
    }
    fleet.add("k1", KUBE, variables=way)
    fleet.add("k2", KUBE, variables=dict(way, entries=["drain", "resume", "status"]), unschedulable=True)
    fleet.add("b1", SLURM, KUBE, variables=dict(way, entries=way["entries"][1:]))
    fleet.add(
        "b2",
        KUBE,
        SLURM,
        variables=dict(way, entries=["drain", "resume"]),
        slurm={"state": "IDLE+DRAIN", "reason": "bad fan"},
    )
    for name in fleet.names:
        fleet.pod("train-" + name, name)
    others = fleet.object("k1")["spec"]["taints"]
    result, told = fleet.take()
    assert not [one for each in told.values() for one in each.values() if "failed" in one], told
    for name in fleet.names:
        assert told[name]["drain"]["drained"] and not told[name]["resume"]["drained"], name
        assert told[name]["drain"]["marks"][KUBE]["reason"] == "GPU maintenance" and fleet.pods(name) == []
    assert owners(told["b1"]["drain"]) == {SLURM: "ours", KUBE: "ours"} and owners(told["b1"]["resume"]) == {
        SLURM: "none",
        KUBE: "none",
    }
    assert owners(told["b2"]["drain"]) == {KUBE: "ours", SLURM: "operator"} and fleet.slurm("b2") == (
        "IDLE+DRAIN",
        "bad fan",
        [],
    )
    assert owners(told["k2"]["status"]) == {KUBE: "operator"} and fleet.state("k2") == (True, None), (
        "somebody else's cordon stays"
    )
    assert fleet.state("k1") == fleet.state("b1") == fleet.state("b2") == (False, None)
    assert fleet.slurm("b1")[2] == ["drain gpufleet:by-hand GPU maintenance", "resume"]
    ways = host_tasks.of_play(result.host_tasks, "gpu_nodes")
    changes = ["drain slurm", "drain kubernetes", "resume kubernetes", "resume slurm"]
    assert (
        order(ways["b1"]) == ["ask kubernetes"] + changes
        and order(ways["b2"]) == ["ask slurm"] + changes[1::-1] + changes[:1:-1]
    ), ways
    assert fleet.object("k1")["spec"]["taints"] == others + [GPU_TAINT]
    labels = fleet.object("b1")["metadata"]["labels"]
    assert {key: labels.get(key) for key in LABELS} == LABELS and labels["gpufleet.lifecycle/driver-version"] == OLD
    assert not fleet.object("k2")["metadata"].get("labels")
    written = (fleet.artifacts / "device-plugin.yml").read_text()
    assert "name: gpufleet-device-plugin" in written and "replicas: 4" in written


def test_what_is_in_vain_is_lifted_and_says_why(fleet):
    short = {"gpu_scheduler_drain_timeout": 3}
    fleet.add("no-config", SLURM, KUBE, variables={"gpu_scheduler_kubernetes_kubeconfig": "/nowhere/config"})
    fleet.add("not-permitted", SLURM, KUBE, account=NO_EVICTION)
    fleet.add("unknown", SLURM, KUBE, variables={"gpu_scheduler_kubernetes_node": "gpu-by-another-name"})
    fleet.add("no-slurm", KUBE, SLURM, slurm={"away": True})
    fleet.add("budget", SLURM, KUBE, variables=short)
    fleet.add("kept", KUBE, variables=dict(short, gpu_scheduler_on_timeout="keep"))
    fleet.add("jobs", KUBE, SLURM, variables=short, jobs=2)
    fleet.add("busy", KUBE, busy=True)
    fleet.add("serving", KUBE, variables={"entries": ["verify"]})
    fleet.add(
        "closed",
        KUBE,
        variables={"gpu_scheduler_drain_timeout": 0, "gpu_scheduler_kubernetes_drain_taints": [BRINGUP_TAINT]},
    )
    for name in fleet.names:
        fleet.variables[name].setdefault("entries", ["drain"])
        fleet.pod("train-" + name, name)
    for name in ("budget", "kept"):
        fleet.world.add_budget("keep-" + name, "train-" + name, allowed=0)
    dummy, told = fleet.take()
    told = {node: list(each.values())[0] for node, each in told.items()}
    assert {node for node, each in told.items() if "failed" not in each} == {"closed"}, told["closed"]

    # Nothing is drained in one scheduler for another that cannot be asked or refuses.
    for name, word in (
        ("no-config", "/nowhere/config"),
        ("not-permitted", "create pods/eviction"),
        ("unknown", "has no node gpu-by-another-name"),
    ):
        assert word in told[name]["failed"] and fleet.slurm(name)[2] == [], told[name]
        assert fleet.state(name) == (False, None) and fleet.pods(name) == ["train-" + name]
    assert (
        "slurmctld does not answer" in told["no-slurm"]["failed"]
        and fleet.state("no-slurm") == (False, None)
        and fleet.pods("no-slurm")
    )

    # One verdict: what was drained in the first is lifted when the second could not be.
    drained = ["drain gpufleet:by-hand GPU maintenance", "resume"]
    assert "keep-budget" in told["budget"]["failed"] and told["budget"]["failed"].startswith(
        fleet.called("budget") + ": not drained in 3 s"
    )
    assert "cordoned" not in told["budget"]["failed"] and not told["budget"]["drained"], (
        "it is not left as the module left it"
    )
    assert (
        fleet.slurm("budget") == ("IDLE", "", drained)
        and fleet.state("budget") == (False, None)
        and fleet.pods("budget") == ["train-budget"]
    )
    assert (
        "2 jobs hold it" in told["jobs"]["failed"]
        and fleet.slurm("jobs")[2] == drained
        and fleet.state("jobs") == (False, None)
    )
    assert "pid 4711" in told["busy"]["failed"] and fleet.state("busy") == (False, None)
    assert told["kept"]["failed"].endswith("It stays drained by us in kubernetes.")
    assert fleet.state("kept") == (True, "by-hand") and owners(told["kept"]) == {KUBE: "ours"}
    assert [(each["pod"], each["budget"]) for each in told["kept"]["blockers"]] == [("train-kept", "keep-kept")]
    assert "schedulable in kubernetes" in told["serving"]["failed"] and "held by 1 " in told["serving"]["failed"]
    assert (
        fleet.state("closed") == (True, "by-hand")
        and fleet.pods("closed") == ["train-closed"]
        and not told["closed"]["drained"]
    )
    assert BRINGUP_TAINT in fleet.object("closed")["spec"]["taints"]


def test_one_that_does_not_answer_keeps_no_other_from_being_told(fleet):
    away = {"lift", "mark"}  # their API server goes as soon as Slurm has been told to drain them
    gateways = []
    shut = {"gpu_scheduler_drain_timeout": 0, "gpu_scheduler_on_timeout": "keep"}
    fleet.add("lift", SLURM, KUBE)
    fleet.add("mark", KUBE, SLURM, variables={"gpu_scheduler_drain_timeout": 3}, jobs=2)
    fleet.add("shut-k", KUBE, SLURM, variables=dict(shut, gpu_scheduler_kubernetes_kubeconfig="/nowhere/config"))
    fleet.add("shut-s", SLURM, KUBE, variables=shut, slurm={"away": True})
    fleet.add(
        "shut",
        SLURM,
        KUBE,
        variables=dict(shut, gpu_scheduler_kubernetes_kubeconfig="/nowhere/config"),
        slurm={"away": True},
    )
    fleet.add("back", KUBE, SLURM, variables={"entries": ["drain", "resume"]}, slurm={"refuses": "resume"})
    for name in fleet.names:
        fleet.variables[name].setdefault("entries", ["drain"])
    for name in sorted(away):
        gateways.append(Gateway(fleet.world.plane, lambda name=name: name not in away or not fleet.slurm(name)[2]))
        path = fleet.world.plane.kubeconfig("gateway-" + name, fleet.world.plane.tokens[LIFECYCLE], gateways[-1].url)
        fleet.variables[name]["gpu_scheduler_kubernetes_kubeconfig"] = str(path)
    told = fleet.take()[1]
    failed = {node: each["resume" if node == "back" else "drain"].get("failed", "") for node, each in told.items()}
    drained, back = ["drain gpufleet:by-hand GPU maintenance"], ["drain gpufleet:by-hand GPU maintenance", "resume"]

    # What could be lifted is lifted, and the rest is named.
    assert fleet.slurm("lift") == ("IDLE", "", back) and fleet.state("lift") == (False, None)
    assert (
        "does not answer" in failed["lift"]
        and "Not lifted in kubernetes: " in failed["lift"]
        and "the next run lifts it" in failed["lift"]
    ), failed["lift"]
    assert owners(told["lift"]["drain"]) == {SLURM: "none", KUBE: "unknown"}, "nobody saw how it is there"
    assert fleet.slurm("mark") == ("IDLE", "", back) and fleet.state("mark") == (True, "by-hand")
    assert (
        "2 jobs hold it" in failed["mark"]
        and "Not lifted in kubernetes: " in failed["mark"]
        and "in slurm" not in failed["mark"]
    ), failed["mark"]
    # Closed wherever somebody answers, and the others are named.
    assert fleet.slurm("shut-k")[2] == drained and fleet.state("shut-s") == (True, "by-hand")
    assert (
        failed["shut-k"].startswith("not closed in kubernetes: ")
        and "/nowhere/config" in failed["shut-k"]
        and "slurm: " not in failed["shut-k"]
    )
    assert failed["shut-s"].startswith("not closed in slurm: ") and "slurmctld does not answer" in failed["shut-s"]
    assert failed["shut-k"].endswith("It stays drained by us in slurm.") and failed["shut-s"].endswith(
        "It stays drained by us in kubernetes."
    )
    assert (
        "slurm: n-shut: slurmctld does not answer" in failed["shut"]
        and "kubernetes: " in failed["shut"]
        and "stays" not in failed["shut"]
    )
    # Taken back by whoever answers, and not said to be back.
    assert (
        fleet.state("back") == (False, None)
        and fleet.slurm("back")[0] == "IDLE+DRAIN"
        and owners(told["back"]["drain"]) == {KUBE: "ours", SLURM: "ours"}
    )
    assert (
        failed["back"].startswith("not taken back by slurm: n-back: slurmctld does not answer")
        and "kubernetes has it back" in failed["back"]
    )

    # The next run finishes it.
    away.clear()
    fleet.names = ["mark", "back"]
    for name in fleet.names:
        fleet.variables[name]["entries"] = ["drain", "resume"]
    fleet.change("mark", jobs=0)
    fleet.change("back", slurm=dict(fleet.read("back")["slurm"], refuses=""))
    told = fleet.take()[1]
    for name in fleet.names:
        assert (
            fleet.state(name) == (False, None)
            and fleet.slurm(name)[0] == "IDLE"
            and "failed" not in told[name]["resume"]
        )


def test_a_drain_that_cannot_be_lifted_is_lifted_by_the_next_run(fleet):
    away = ["a1"]
    fleet.add(
        "a1", KUBE, SLURM, variables={"gpu_scheduler_drain_timeout": 3, "gpu_node_upgrade_gate_patience": 1}, jobs=1
    )
    gateway = Gateway(fleet.world.plane, lambda: not away or not fleet.slurm("a1")[2])
    path = fleet.world.plane.kubeconfig("gateway-a1", fleet.world.plane.tokens[LIFECYCLE], gateway.url)
    fleet.variables["a1"]["gpu_scheduler_kubernetes_kubeconfig"] = str(path)
    drain = "drain gpufleet:%s driver %s" % (ID, NEW)
    result = fleet.run("upgrade", *fleet.arguments)
    reason = result.report["nodes"]["a1"]["reason"]
    assert result.rc == 2 and result.states == {"a1": "quarantined"} and fleet.touched() == [], (
        "it holds its down slot: somebody keeps it out of service"
    )
    assert (
        reason.startswith("n-a1 is not empty in Slurm after 3 s") and "It was not taken back by kubernetes: " in reason
    )
    assert reason.endswith("slurm has it back. The next run tries again."), reason
    assert fleet.slurm("a1") == ("IDLE", "", [drain, "resume"]) and fleet.state("a1") == (True, ID)
    away.clear()
    fleet.change("a1", jobs=0)
    result = fleet.run("upgrade", *fleet.arguments)
    assert result.rc == 0 and result.states == {"a1": "done"}
    assert fleet.slurm("a1") == ("IDLE", "", [drain, "resume"] * 2) and fleet.state("a1") == (False, None)


def test_a_new_node_is_closed_in_kubernetes_until_it_is_proven(fleet):
    fleet.leave_out(
        "kernel_hold", "nvidia_repository", "nvidia_persistenced", "nvidia_fabricmanager", driver="nvidia_driver"
    )
    new = dict(
        loaded=None,
        disk=None,
        running=[],
        variables={"gpu_scheduler_kubernetes_labels": {"rack": "r1", "gpufleet.lifecycle/class": "training"}},
    )
    fleet.add("good", KUBE, **dict(new, waits_at=["health baseline"]))
    fleet.add("sick", KUBE, **dict(new, sick_with=[NEW]))
    fleet.add("mute", KUBE, **dict(new, variables={"gpu_scheduler_kubernetes_kubeconfig": "/nowhere/config"}))
    fleet.add("both", KUBE, SLURM, **dict(new, slurm={"away": True}))
    before = fleet.object("good")["spec"]["taints"]
    process = fleet.start("bringup", *fleet.arguments, nvidia_driver_version=NEW)
    try:
        fleet.world.wait(lambda: "waits" in fleet.read("good")["log"], 300)
        # Its driver runs, and nobody has looked yet whether it is well.
        assert fleet.read("good")["loaded"] == NEW and fleet.state("good") == (True, "bringup")
        assert [taint for taint in fleet.object("good")["spec"]["taints"] if "timeAdded" not in taint] == before + [
            GPU_TAINT,
            BRINGUP_TAINT,
        ]
        assert "gpufleet.lifecycle/gpu-model" not in fleet.object("good")["metadata"].get("labels", {})
        fleet.change("good", waits_at=[])
        assert process.wait(timeout=300) == 2
    finally:
        output = fleet.ended(process)
    assert fleet.state("good") == (False, None) and fleet.object("good")["spec"]["taints"] == before + [GPU_TAINT]
    labels = fleet.object("good")["metadata"]["labels"]
    assert {key: labels.get(key) for key in LABELS} == LABELS and labels["gpufleet.lifecycle/driver-version"] == NEW
    assert "good: driver 2.0.1, 2 GPUs, pass (simulated GPUs)" in output

    assert fleet.state("sick") == (True, "bringup") and BRINGUP_TAINT in fleet.object("sick")["spec"]["taints"]
    assert "gpufleet.lifecycle/gpu-model" not in fleet.object("sick")["metadata"].get("labels", {})
    assert (
        "sick was not brought up: GPU 3 does not answer with driver 2.0.1 It stays closed for work in kubernetes until "
        "a run has proven it." in output
    )
    assert (
        "/nowhere/config does not exist" in output
        and fleet.read("mute")["log"] == []
        and fleet.state("mute") == (False, None)
    ), "it is told before anything"
    # One of two schedulers does not answer: nothing is begun in the other one.
    assert "slurmctld does not answer" in output
    assert fleet.state("both") == (False, None) and fleet.read("both")["log"] == []

    # Another run changes nothing on what was proven, and opens what has been mended.
    fleet.names.remove("mute")
    fleet.change("sick", sick_with=[])
    fleet.change("both", slurm={})
    proven = fleet.object("good")["metadata"]["resourceVersion"], fleet.read("good")
    result = fleet.run("bringup", *fleet.arguments, nvidia_driver_version=NEW)
    assert result.rc == 0 and fleet.changed(result, "good") == 0
    assert (fleet.object("good")["metadata"]["resourceVersion"], fleet.read("good")) == proven
    assert fleet.state("sick") == (False, None) and fleet.object("sick")["spec"]["taints"] == before + [GPU_TAINT]
    assert fleet.object("sick")["metadata"]["labels"]["gpufleet.lifecycle/driver-version"] == NEW
    assert fleet.state("both") == (False, None) and fleet.slurm("both") == (
        "IDLE",
        "",
        ["drain gpufleet:bringup bring-up", "resume"],
    )


def test_an_upgrade_of_a_mixed_fleet_whose_first_controller_dies(fleet):
    fleet.add("b1", SLURM, KUBE, waits_at=["health post"])
    fleet.add("b2", SLURM, KUBE)
    fleet.add("k1", KUBE)
    fleet.add("s1", SLURM, slurm={"gres": "gpu:h100:2"})
    for name in ("b1", "b2", "k1"):
        fleet.pod("train-" + name, name)
    fleet.world.add_budget("keep", "train-k1", allowed=1)
    variables = fleet.install_for_real()
    first = fleet.start("upgrade", *fleet.arguments, **variables)
    try:
        fleet.world.wait(lambda: "waits" in fleet.read("b1")["log"], 300)
    finally:
        first.kill()
        first.wait()
        first.log.close()
    drain = "drain gpufleet:%s driver %s" % (ID, NEW)
    assert fleet.state("b1") == (True, ID) and fleet.slurm("b1") == (
        "IDLE+DRAIN",
        "gpufleet:%s driver %s" % (ID, NEW),
        [drain],
    )
    fleet.change("b1", waits_at=[])
    fleet.world.wait(lambda: not fleet.at_work())

    result = fleet.run("upgrade", *fleet.arguments, rollout_max_down=4, rollout_max_draining=4, **variables)
    assert result.rc == 0 and result.states == dict.fromkeys(fleet.names, "done")
    assert [fleet.state(name) for name in ("b1", "b2", "k1")] == [(False, None)] * 3 and [
        fleet.pods(name) for name in ("b1", "b2", "k1")
    ] == [[]] * 3
    for name in ("b1", "b2", "s1"):
        state, reason, log = fleet.slurm(name)
        assert (state, reason) == ("IDLE", "") and log[0] == drain and log[-1] == "resume" and len(log) % 2 == 0
    assert fleet.read("b1")["log"].count("installed " + NEW) == 1
    for name in ("b1", "b2", "k1"):
        assert fleet.object(name)["metadata"]["labels"]["gpufleet.lifecycle/driver-version"] == NEW, (
            "the labels tell what runs now"
        )
    ways = host_tasks.of_play(result.host_tasks, "Upgrade")
    assert order(ways["b2"])[-2:] == ["resume kubernetes", "resume slurm"]
    own = host_tasks.LIMIT - host_tasks.PREFLIGHT
    for name, allowed in (("k1", own + len(host_tasks.SCHEDULER)), ("b2", own + len(host_tasks.SCHEDULER) + SECOND)):
        tasks = host_tasks.way(result.host_tasks, [name])
        assert len(tasks) <= allowed, "\n".join(tasks)
