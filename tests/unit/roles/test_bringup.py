# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of bringup with recorded modules: which node it refuses to partition, and how it closes a new one."""

from __future__ import annotations

import pathlib

import pytest
import yaml

pytest.importorskip("ansible.template", reason="a playbook is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.roles import recorded_node

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIGS = {
    "version": "v1",
    "mig-configs": {"sevenths": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]},
}
THERE = {"gpus": [{"changed": False}], "config": CONFIGS, "reset_required": False}
CLOSED = {"drained": False, "mark": {"owner": "ours"}, "blockers": [], "state": "cordoned"}


@pytest.fixture(name="node")
def _node(tmp_path):
    node = recorded_node.RecordedNode(
        tmp_path,
        ["nvidia_mig", "nvidia_container_toolkit"],
        gpu_mig=THERE,
        gpu_reset={},
        gpu_health={},
        kube_node=CLOSED,
        node_state={"changed": True},
        driver_audit=before(""),
    )
    yield node
    node.close()


def walked(tasks):
    for task in tasks:
        yield task
        yield from walked(task.get("block") or [])


def step(name):
    """The task of the playbook that has this name, in a list of its own."""
    text = (ROOT / "playbooks" / "bringup.yml").read_text(encoding="utf-8")
    found = [
        task for play in yaml.safe_load(text) for task in walked(play.get("tasks") or []) if task.get("name") == name
    ]
    assert len(found) == 1, name
    return found


def before(loaded):
    return {"audit": {"versions": {"loaded": loaded}}}


def test_driver_of_the_run_installer_is_refused_before_anything_is_changed(node):
    (first,) = step("Read the installed driver, and refuse one of NVIDIA's .run installer")
    assert node.run([first]).rc == 0
    (asked,) = node.asked("driver_audit")
    assert (asked["findings"], asked["fail_on"]) == (["runfile_remains"], ["fail"])
    node.answer(driver_audit={"failed": True, "msg": "The driver was once installed with NVIDIA's .run installer."})
    assert node.run([first]).rc != 0


@pytest.mark.parametrize(
    ("backends", "loaded", "differs", "made"),
    [
        (["slurm"], "535.216.03", True, False),
        (["slurm"], "535.216.03", False, True),
        (["slurm"], "", True, True),
        ([], "535.216.03", True, True),
    ],
)
def test_a_node_that_may_serve_is_not_partitioned(node, backends, loaded, differs, made):
    """A new one is, and one that no scheduler gives work; one that has its layout loses nothing."""
    node.answer(gpu_mig=dict(THERE, gpus=[{"changed": differs}]))
    result = node.run(
        step("Partition the GPUs"),
        gpu_scheduler_backends=backends,
        nvidia_driver_version="535.216.03",
        nvidia_mig_boot=False,
        __bringup_before=before(loaded),
        nvidia_mig_config="sevenths",
        nvidia_mig_configs=CONFIGS,
    )
    assert (result.rc == 0) == made and bool(node.asked("gpu_mig")) == made, result.output
    assert len(node.asked("gpu_health")) == 1, "while it has no instances, if it is new"


def test_a_new_node_is_closed_and_not_drained_whatever_the_command_line_says(node):
    """With a time for jobs to end, pods would be evicted; and a node that serves is left as it is."""
    name = "Keep its schedulers from giving it work before it is proven"
    said = dict(
        gpu_scheduler_backends=["kubernetes"], gpu_scheduler_drain_timeout=3600, gpu_scheduler_on_timeout="lift"
    )
    result = node.run(step(name), __bringup_before=before("535.216.03"), **said)
    assert result.rc == 0 and node.asked("kube_node") == [], result.output
    result = node.run(step(name), __bringup_before=before(""), **said)
    (asked,) = node.asked("kube_node")
    assert result.rc == 0 and (asked["state"], asked["timeout_s"], asked["token"]) == ("cordoned", 0, "bringup"), (
        result.output
    )


def test_node_whose_record_of_a_drain_stays_is_a_failure_of_its_resume(node):
    """The record silences the alerts of the node, which serves again."""
    resume = {"name": "gpufleet.lifecycle.gpu_scheduler", "tasks_from": "resume"}
    tasks = [{"name": "Resume the node", "ansible.builtin.include_role": resume}]
    said = {"gpu_scheduler_backends": ["kubernetes"], "gpu_scheduler_token": "bringup"}
    node.answer(kube_node=dict(CLOSED, state="resumed"))
    assert node.run(tasks, **said).rc == 0
    node.answer(node_state={"failed": True, "msg": "read-only file system"})
    result = node.run(tasks, **said)
    assert result.rc == 2 and [asked["state"] for asked in node.asked("node_state")] == ["absent"] * 2, result.output
