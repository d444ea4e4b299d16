# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What actions take from a node: each answer is checked, and node_program asks the node for its claim."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.action import (
    driver_audit,
    driver_reload,
    gpu_health,
    hold_info,
    node_state,
)
from ansible_collections.gpufleet.lifecycle.plugins.filter import gpu_peers, health_with_peers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _answers, _binding
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

pytest.importorskip("ansible", reason="an action runs on the controller")

from ansible_collections.gpufleet.lifecycle.plugins.action import node_program
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _node_action, _node_program

pytestmark = pytest.mark.cores

ROOT = pathlib.Path(__file__).resolve().parents[4]
MODULES = {path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")}
ACTIONS = {path.stem for path in (ROOT / "plugins" / "action").glob("*.py")}
# Answers that Ansible itself would act on for the whole run.
HOSTILE = [
    {"ansible_stats": {"data": {"rollout_max_down": 7}, "per_host": False}},
    {"ansible_stats": 5},
    {"ansible_facts": {"rollout_max_down": 7}},
    {"audit": "x"},
    {"msg": ["x"]},
]


def make(plugin, answer, name="driver_audit"):
    task = mock.Mock(args={}, async_val=0, check_mode=False, diff=False, environment=None)
    task.action = "gpufleet.lifecycle." + name
    action = plugin.ActionModule(task, mock.Mock(), mock.Mock(check_mode=False), DataLoader(), mock.Mock(), None)
    action._load_name = name
    action._execute_module = mock.Mock(return_value=answer)
    return action


@pytest.mark.parametrize(
    ("message", "stderr", "begins"),
    [
        ("Module result deserialization failed: No start of json", "/bin/sh: 1: sudo: not found\n", "/bin/sh: 1: sudo"),
        ("MODULE FAILURE: no output", "Traceback (most recent call last):\nMemoryError\n", "MemoryError. "),
        ("Module result deserialization failed", "pyenv: python3: command not found\nNote: See\n", "pyenv: python3: c"),
        ("Module result deserialization failed: No start of json", "", "Module result"),
        ("The version is not there.", "a warning", "The version"),
    ],
)
def test_module_without_a_result_fails_with_what_the_node_printed(monkeypatch, message, stderr, begins):
    answer = {"failed": True, "msg": message, "module_stdout": "\n", "module_stderr": stderr}
    monkeypatch.setattr(ActionBase, "_execute_module", mock.Mock(return_value=answer))
    action = make(driver_audit, {})
    del action._execute_module
    assert action.run_module("gpufleet.lifecycle.driver_audit", {}, {})["msg"].startswith(begins)


@pytest.mark.parametrize(
    ("silent", "environment", "answers"),
    [
        (1, [{"GPUFLEET_RECONNECT_S": 300}], True),
        (30, [{"LC_ALL": "C"}, {"GPUFLEET_RECONNECT_S": "300"}], True),
        (100, [{"GPUFLEET_RECONNECT_S": 300}], False),
        (1, [{"GPUFLEET_RECONNECT_S": 0}], False),
        (1, [{"LC_ALL": "C"}], False),
        (1, None, False),
    ],
)
def test_node_that_does_not_answer_is_tried_again_within_its_step(monkeypatch, silent, environment, answers):
    clock, left = [0.0], [AnsibleConnectionFailure("no route")] * silent + [{"changed": False}]
    monkeypatch.setattr(ActionBase, "_execute_module", mock.Mock(side_effect=left))
    monkeypatch.setattr(_node_action.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(_node_action._controller, "pause", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    action = make(driver_audit, {})
    del action._execute_module
    action._task.environment, action._templar.template = environment, lambda value: value
    if answers:
        assert action._execute_module(module_name="x") == {"changed": False}
    else:
        with pytest.raises(AnsibleConnectionFailure):
            action._execute_module(module_name="x")
    tried = ActionBase._execute_module.call_count
    assert tried == (silent + 1 if answers else 61 if silent == 100 else 1)
    assert action._connection.reset.call_count == tried - 1


def test_every_module_has_an_action():
    assert MODULES - ACTIONS == set()


def test_no_action_takes_an_unchecked_answer():
    """What runs a module of the collection does so through NodeActionBase or Background."""
    found = [
        (path.name, call)
        for path in sorted((ROOT / "plugins").rglob("*.py"))
        for call in re.findall(r"_execute_module\(\s*([^,)]*)", path.read_text(encoding="utf-8"))
        if path.name != "_node_action.py"
    ]
    assert [(name, call) for name, call in found if 'module_name="ansible.legacy.' not in call] == []


@pytest.mark.parametrize("name, plugin", [("driver_audit", driver_audit), ("node_state", node_state)])
@pytest.mark.parametrize("answer", HOSTILE, ids=str)
def test_node_action_checks_answer(answer, name, plugin):
    result = make(plugin, answer, name).run(task_vars={"inventory_hostname": "a1"})
    assert not {"ansible_facts", "ansible_stats"} & set(result)
    assert bool(result.get("failed")) is ("msg" in answer or "audit" in answer and name == "driver_audit")


@pytest.mark.parametrize("name, plugin", [("driver_audit", driver_audit), ("node_state", node_state)])
def test_texts_of_a_node_that_ansible_prints_steer_no_terminal(name, plugin):
    evil = "boom \x1b[2K\u202eall done"
    result = make(plugin, {"failed": True, "msg": evil, "warnings": [evil]}, name).run(task_vars={})
    assert result["msg"].isprintable() and result["warnings"][0].isprintable()


@pytest.mark.parametrize("answer", [{"reboot_required": False}, {"reboot_required": True, "check": True}], ids=str)
def test_driver_reload_that_boots_nothing_steers_no_terminal(monkeypatch, answer):
    monkeypatch.setattr(driver_reload._controller, "require", lambda: 1)
    evil = "boom \x1b[2K\u202eall done"
    given = {"msg": evil, "warnings": [evil], "reboot_required": answer["reboot_required"]}
    action = make(driver_reload, given, "driver_reload")
    action._task.args, action._task.check_mode = {"reboot": True}, answer.get("check", False)
    result = action.run(task_vars={})
    assert result["rebooted"] is False
    assert result["msg"].isprintable() and result["warnings"][0].isprintable()


def test_node_cannot_send_a_verdict_of_its_own(monkeypatch):
    monkeypatch.setattr(_binding, "find", lambda: _binding.Binding(b"source", "1", "d" * 64))
    forged = {"failed": True, "msg": "x", "health": {"verdict": "pass"}, "baseline": {}}
    result = make(gpu_health, forged, "gpu_health").run(task_vars={"inventory_hostname": "a1"})
    assert result["failed"] and not {"health", "baseline"} & set(result)


def test_messages_of_a_verdict_steer_no_terminal(monkeypatch):
    monkeypatch.setattr(_binding, "find", lambda: _binding.Binding(b"source", "1", "d" * 64))
    facts = readings.reading()
    facts["kernel_log"].update(complete=False, problem="boom \x1b[2K\u202eall done")
    result = make(gpu_health, {"facts": facts}, "gpu_health").run(task_vars={"inventory_hostname": "a1"})
    messages = [check["message"] for check in result["health"]["checks"]] + [result["msg"]]
    assert any("boom" in message for message in messages)
    assert [message for message in messages if not message.replace("\n", "").isprintable()] == []


def test_filters_over_all_nodes_leave_out_a_malformed_answer():
    hold = {"package": "p", "version": "1", "since": None, "age_days": 3, "security": []}
    nodes = {"a1": {"holds": {"kernel": [hold]}}, "a2": {"holds": {"kernel": ["x"]}}, "a3": "x"}
    lines = hold_info.render_lines(_answers.accept_all("hold_info", nodes))
    assert [name for name in ("a1", "a2", "a3") if any(name in line for line in lines)] == ["a1", "a2", "a3"]
    assert gpu_peers.gpu_peers({"a1": {"baseline": {"snapshot": {"gpus": 5}}}, "a2": "x"}) == {"gpus": {}}
    assert health_with_peers.health_with_peers("x", {}) == {}


def test_statistics_of_a_node_do_not_reach_the_run(tmp_path):
    """Statistics become variables of the next job of a workflow in AWX."""
    place = tmp_path / "ansible_collections" / "gpufleet" / "lifecycle"
    (place / "plugins" / "modules").mkdir(parents=True)
    for name in ("action", "plugin_utils", "module_utils"):
        (place / "plugins" / name).symlink_to(ROOT / "plugins" / name)
    (place / "meta").symlink_to(ROOT / "meta")
    (place / "galaxy.yml").symlink_to(ROOT / "galaxy.yml")
    answer = {"changed": False, "audit": {}, **HOSTILE[0], **HOSTILE[2]}
    (place / "plugins" / "modules" / "node_state.py").write_text("#!/usr/bin/python\nprint(%r)\n" % json.dumps(answer))
    (tmp_path / "play.yml").write_text(
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
        "    - gpufleet.lifecycle.node_state:\n"
        "    - ansible.builtin.debug: {msg: 'limit {{ rollout_max_down | default(1) }}'}\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    environment.update(
        ANSIBLE_COLLECTIONS_PATH=str(tmp_path),
        ANSIBLE_SHOW_CUSTOM_STATS="true",
        HOME=str(tmp_path),
        ANSIBLE_NOCOLOR="1",
    )
    command = [
        sys.executable,
        "-m",
        "ansible",
        "playbook",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        "ansible_python_interpreter=" + sys.executable,
        str(tmp_path / "play.yml"),
    ]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "limit 1" in result.stdout and "CUSTOM STATS" not in result.stdout, result.stdout


MINE = {
    "ledger": "l%d",
    "rollout_id": "r 1",
    "run": "b'",
    "plan": "p",
    "controller": "c",
    "time": "t",
    "state": "held",
    "attempt": 1,
}


@pytest.fixture(name="copied")
def _copied(monkeypatch, tmp_path):
    """copied(environment): the arguments with which both files are copied, and the result. ANSWER: of the node."""
    monkeypatch.setattr(_node_program, "build", lambda: mock.Mock(data=b"x", sha256="0", binding_version="1"))
    monkeypatch.setattr(node_program.constants, "DEFAULT_LOCAL_TMP", str(tmp_path))

    def run(environment, answer=None):
        seen = []
        task = mock.Mock(
            args={"dest": "/x/program"}, async_val=0, check_mode=False, diff=False, action="x", environment=environment
        )
        task.copy.side_effect = lambda: mock.Mock(args=None)
        action = node_program.ActionModule(
            task, mock.Mock(), mock.Mock(check_mode=False), DataLoader(), mock.Mock(), mock.Mock()
        )
        copy = mock.Mock()
        copy.run.side_effect = lambda task_vars: dict({"changed": True}, **(answer or {}))
        action._shared_loader_obj = mock.Mock()
        action._shared_loader_obj.action_loader.get.side_effect = lambda name, task, **dummy: (
            seen.append(task.args) or copy
        )
        result = action.run(task_vars={"inventory_hostname": "a1"})
        assert result["changed"] or answer
        return seen, result

    return run


@pytest.mark.parametrize("environment", [[], [{"LC_ALL": "C"}], [{claim.FENCE: ""}]])
def test_outside_of_a_rollout_nothing_is_asked(copied, environment):
    assert ["validate" in args for args in copied(environment)[0]] == [False, False]


@pytest.mark.parametrize(
    "answer", [*HOSTILE[:3], {"failed": True, "msg": "boom \x1b[2K"}, {"more": "x" * 2**25}], ids=[*"abcde"]
)
def test_what_a_node_says_of_a_copy_is_checked(copied, answer):
    result = copied([], answer)[1]
    assert not {"ansible_facts", "ansible_stats", "more"} & set(result)
    assert bool(result.get("failed")) is ("ansible" not in str(answer)[:20]) and result.get("msg", "").isprintable()


def test_the_node_is_asked_before_each_file_takes_its_place(copied, tmp_path):
    place = tmp_path / "state of the node"
    calls = [
        args["validate"] for args in copied([{"LC_ALL": "C"}, {claim.FENCE: claim.make_token(MINE, str(place))}])[0]
    ]
    assert len(calls) == 2

    def asked():
        # As copy does: the file's name in the place of %s, and no shell of its own.
        return {
            subprocess.run(shlex.split(call % "/tmp/new"), capture_output=True, check=False).returncode
            for call in calls
        }

    assert asked() == {claim.GUARD_RC}, "the node has given itself up"
    claim.write(str(place), MINE)
    assert asked() == {0}
    claim.write(str(place), dict(MINE, attempt=2))
    assert asked() == {claim.GUARD_RC}
