# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Others that write at the same time, a controller that dies, and a cluster of a thousand nodes."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, client, ownership
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.session import Session
from ansible_collections.gpufleet.lifecycle.tests.unit.kube.conftest import LIFECYCLE, ROOT
from tests.lab.kube import agent

MERGE = "application/merge-patch+json"
NODES = 1000


def connect(world):
    return client.Api(client.Cluster.connect(str(world.plane.kubeconfig(LIFECYCLE))))


def test_a_write_in_between_is_seen_and_kept(world):
    """The operator cordons the node between our reading and our writing: the server answers 409, and his cordon is what
    was found.
    """
    work = Session(connect(world), world.node, "r7")
    work.read()
    world.patch({"spec": {"unschedulable": True}, "metadata": {"labels": {"theirs": "1"}}})
    work.write(lambda node: ownership.place_marker(node, "r7", "", "now").merge(change.Change(labels={"ours": "1"})))
    assert work.api.requests == 4, "read, refused, read again, written"
    found = world.read()
    assert found["metadata"]["labels"]["theirs"] == found["metadata"]["labels"]["ours"] == "1"
    assert work.answer()["mark"]["previous"]["unschedulable"] is True
    world.ok("resumed")
    assert world.read()["spec"]["unschedulable"] is True


def test_nothing_is_lost_among_many_writers(world):
    """Eight writers, one label each, and another program that writes the node all the time."""
    stop = threading.Event()
    written = []

    def another():
        while not stop.is_set():
            written.append(str(len(written)))
            world.patch({"metadata": {"annotations": {"example.org/beat": written[-1]}}})
            stop.wait(0.02)

    def ours(number):
        work = Session(connect(world), world.node, "r7")
        work.bring(
            change.Change(
                labels={"writer-%d" % number: "1"},
                taints=[{"key": "writer-%d" % number, "value": "", "effect": "NoSchedule", "state": "present"}],
            )
        )
        return work.answer()["requests"]

    thread = threading.Thread(target=another)
    thread.start()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        requests = list(pool.map(ours, range(8)))
    stop.set()
    thread.join()
    found = world.read()
    names = {"writer-%d" % number for number in range(8)}
    assert names <= set(found["metadata"]["labels"]) and names <= {taint["key"] for taint in found["spec"]["taints"]}
    assert found["metadata"]["annotations"]["example.org/beat"] == written[-1]
    assert max(requests) > 2, "somebody was in the way at least once"


PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Drain
      gpufleet.lifecycle.kube_node:
        state: "{{ wish }}"
        node_name: "{{ node }}"
        token: r7
        kubeconfig: "{{ kubeconfig }}"
        timeout_s: 600
      register: found
    - name: Tell
      ansible.builtin.debug:
        msg: "owner={{ found.mark.owner }} drained={{ found.drained }}"
"""


def playbook(world, tmp_path, wish):
    path = tmp_path / "play.yml"
    path.write_text(PLAY)
    variables = {
        "wish": wish,
        "node": world.node,
        "kubeconfig": str(world.plane.kubeconfig(LIFECYCLE)),
        "ansible_connection": "local",
    }
    environment = dict(
        os.environ,
        ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"),
        ANSIBLE_COLLECTIONS_PATH=str(ROOT / ".lab/collections"),
        ANSIBLE_HOME=str(tmp_path / "ansible"),
    )
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-e", json.dumps(variables), str(path)]
    return subprocess.Popen(
        command,
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_a_controller_that_dies_leaves_a_mark_that_the_next_one_lifts(world, tmp_path):
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    world.add_pod("train", gpus=1, annotations={agent.STUCK: "yes"})
    first = playbook(world, tmp_path, "drained")
    try:
        world.wait(
            lambda: world.plane.must("GET", "/api/v1/namespaces/%s/pods/train" % world.space)["metadata"].get(
                "deletionTimestamp"
            ),
            120,
        )
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    assert world.read()["spec"]["unschedulable"] is True and world.pods() == ["train"]

    # Another process goes on where the first one was: it knows the mark as its own, and what was there before it.
    world.plane.must(
        "PATCH", "/api/v1/namespaces/%s/pods/train" % world.space, {"metadata": {"annotations": None}}, kind=MERGE
    )
    for wish, words in (("drained", "owner=ours drained=True"), ("resumed", "owner=none drained=False")):
        second = playbook(world, tmp_path, wish)
        output = second.communicate(timeout=180)[0]
        assert second.returncode == 0 and words in output, output
    assert "unschedulable" not in world.read()["spec"] and ownership.read_marker(world.read()) is None


def test_a_thousand_nodes_cost_no_more_than_one(world):
    path = "/api/v1/nodes"
    world.add_pod("alone", gpus=1)
    alone = world.ok("drained")
    names = ["many-%04d" % number for number in range(NODES)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: world.plane.must("POST", path, {"metadata": {"name": name}}), names))
    assert len(world.plane.must("GET", path)["items"]) > NODES

    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    for name in names[::100]:
        world.add_pod("train-" + name, node=name, gpus=1)
        found = world.ok("drained", node_name=name, taints=[taint])
        assert found["drained"] and world.pods(name) == []
        # One read, two questions about permissions, one about the version of evictions, one write, one eviction. The
        # rest waits for the pod: each look after the first two lists the pods and reads the node, which may have been
        # put back.
        lists = world.log.count(("list", "pods of node " + name))
        assert found["requests"] == len(world.log) == lists + 6 + (lists - 2)
        assert lists <= alone["requests"] and {what for verb, what in world.log if verb == "list"} == {
            "pods of node " + name
        }
        assert world.ok("resumed", node_name=name)["requests"] == 2
        assert world.ok("present", node_name=name, taints=[taint])["requests"] == 1

    # And every one of them tainted: two requests each, whatever their number.
    api = connect(world)
    for name in names:
        Session(api, name).bring(
            change.Change(taints=[dict(taint, state="present")], labels={"gpufleet.lifecycle/class": "training"})
        )
    tainted = [each for each in world.plane.must("GET", path)["items"] if taint in (each["spec"].get("taints") or [])]
    assert len(tainted) == NODES and api.requests == 2 * NODES
