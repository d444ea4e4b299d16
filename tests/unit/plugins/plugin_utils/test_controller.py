# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker whose playbook was killed: it goes on with its task, and begins nothing more on the node."""

from __future__ import annotations

import signal
import time
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="only the controller has workers")

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import reboot

from ansible_collections.gpufleet.lifecycle.plugins.action import dkms_module, driver_reload, slurm_gres, slurm_node
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller

pytestmark = pytest.mark.cores

MINE = {"ledger": "l1", "rollout_id": "r1", "attempt": 2, "run": "b"}
DEBIAN = {"name": "debian", "version": "12", "family": "debian"}
DUE = {"changed": False, "action": "reboot", "reboot_required": True}


@pytest.fixture(name="parent")
def _parent(monkeypatch):
    """The process that started this one; parent.pid = 99999 is another one than that which is its parent now."""
    known = mock.Mock(pid=4711)  # whatever started the tests
    monkeypatch.setattr(_controller.os, "getppid", lambda: 4711)
    monkeypatch.setattr(_controller.multiprocessing, "parent_process", lambda: known)
    return known


class Node:
    """What is asked of a node, in order. DIES_AT: the call in which the playbook ends."""

    def __init__(self, parent, dies_at=None):
        self.parent, self.dies_at, self.calls = parent, dies_at, []

    def call(self, name, answer):
        self.calls.append(name)
        if name == self.dies_at:
            self.parent.pid = 99999
        return answer

    def run(self, kind, monkeypatch, environment=(), **args):
        task = mock.Mock(
            args=args,
            async_val=0,
            check_mode=False,
            diff=False,
            action="x",
            environment=list(environment),
            _uuid="t",
            loop=None,
            until=[],
            retries=None,
        )
        task.copy.side_effect = lambda: mock.Mock(
            args=None, async_val=0, check_mode=False, environment=list(environment)
        )
        connection = mock.Mock(transport="ssh")
        action = kind.ActionModule(
            task, connection, mock.Mock(check_mode=False), DataLoader(), mock.Mock(), mock.Mock()
        )
        action._load_name, action._shared_loader_obj = "x", mock.Mock()
        action._execute_module = lambda module_name, module_args, task_vars, wrap_async=False: self.call(
            "module", dict(DUE)
        )
        real = reboot.ActionModule(
            task.copy(), connection, mock.Mock(check_mode=False), DataLoader(), mock.Mock(), mock.Mock()
        )
        monkeypatch.setattr(
            reboot.ActionModule, "get_distribution", lambda this, task_vars: self.call("distribution", DEBIAN)
        )
        monkeypatch.setattr(
            reboot.ActionModule, "get_system_boot_time", lambda this, distribution: self.call("boot time", BOOT_ID)
        )
        monkeypatch.setattr(
            reboot.ActionModule,
            "get_shutdown_command",
            lambda this, task_vars, distribution: self.call("find", "/sbin/shutdown"),
        )
        monkeypatch.setattr(
            reboot.ActionModule, "validate_reboot", lambda this, *dummy, **more: {"rebooted": True, "changed": True}
        )
        monkeypatch.setattr(
            real, "_low_level_execute_command", lambda command, sudoable=True: self.call(command, {"rc": 0})
        )
        action._shared_loader_obj.action_loader.get.side_effect = lambda name, task, **dummy: (
            setattr(real, "_task", task) or real
        )
        return action.run(task_vars={"inventory_hostname": "a1"})


BOOT_ID = "0f4a4c1e-7e4b-4f0f-9a0c-1a2b3c4d5e6f"


@pytest.mark.parametrize("noise", ["", "Last login: %s\n", "up %s seconds\r\n"])
def test_boot_id_is_read_whatever_a_login_shell_prints(noise):
    texts = [(noise % number if noise else "") + BOOT_ID for number in (1, 2)]
    assert [driver_reload.boot_id(text) for text in texts] == [BOOT_ID, BOOT_ID]
    with pytest.raises(AnsibleError):
        driver_reload.boot_id("Last login: today")


def test_the_node_reboots_for_a_playbook_that_lives(parent, monkeypatch):
    node = Node(parent)
    result = node.run(driver_reload, monkeypatch, reboot=True)
    assert (
        result["rebooted"]
        and node.calls[:4] == ["module", "distribution", "boot time", "find"]
        and len(node.calls) == 5
    )
    assert node.calls[4].startswith("/sbin/shutdown -r ")


@pytest.mark.parametrize("dies_at, told", [("module", 1), ("distribution", 2), ("boot time", 3), ("find", 4)])
def test_no_node_reboots_for_a_playbook_that_ended(parent, monkeypatch, dies_at, told):
    node = Node(parent, dies_at)
    with pytest.raises(_controller.ControllerError, match="process 99999, has ended"):
        node.run(driver_reload, monkeypatch, reboot=True)
    assert len(node.calls) <= 4 and not [call for call in node.calls if "shutdown" in call], node.calls


@pytest.mark.parametrize("kind", [driver_reload, dkms_module, slurm_gres, slurm_node])
def test_nothing_begins_for_a_playbook_that_ended(parent, monkeypatch, kind):
    parent.pid = 99999
    node = Node(parent)
    with pytest.raises(_controller.ControllerError, match="has ended"):
        node.run(kind, monkeypatch, reboot=True)
    assert node.calls == []


def test_nothing_waits_for_a_playbook_that_ended(parent):
    slept = []
    _controller.pause(1, slept.append)
    parent.pid = 99999
    with pytest.raises(_controller.ControllerError, match="has ended"):
        _controller.pause(2, slept.append)
    assert slept == [1]


def test_nothing_goes_on_after_a_wait_in_which_the_playbook_ended(parent):
    with pytest.raises(_controller.ControllerError, match="has ended"):
        _controller.pause(1, lambda seconds: setattr(parent, "pid", 99999))


@pytest.mark.parametrize(
    "answer, required",
    [
        ({"rebooted": True, "changed": True, "elapsed": 75}, False),
        ({"rebooted": True, "failed": True, "elapsed": 900, "msg": "Timed out"}, False),
        ({"failed": True, "msg": "the command was refused"}, True),
    ],
)
def test_what_the_reboot_answered_is_the_result(parent, monkeypatch, answer, required):
    monkeypatch.setattr(reboot.ActionModule, "run", lambda this, task_vars: dict(answer))
    result = Node(parent).run(driver_reload, monkeypatch, reboot=True, reboot_timeout=900)
    assert result["reboot_required"] is required and result["rebooted"] is answer.get("rebooted", False)
    assert {name: result.get(name) for name in answer} == answer


@pytest.mark.parametrize("environment", [[], [{"LC_ALL": "C"}], [{"GPUFLEET_FENCE": ""}]])
def test_outside_of_a_rollout_the_command_is_ansibles_own(parent, monkeypatch, environment):
    node = Node(parent)
    node.run(driver_reload, monkeypatch, environment, reboot=True)
    assert node.calls[4].startswith("/sbin/shutdown -r ")


def test_the_node_itself_sees_that_the_reboot_is_of_the_attempt_that_it_belongs_to(parent, monkeypatch):
    token = claim.make_token(MINE, "/var/lib/gpufleet")
    node = Node(parent)
    node.run(driver_reload, monkeypatch, [{"LC_ALL": "C"}, {claim.FENCE: token}], reboot=True)
    assert node.calls[4].startswith(claim.guard(token) + "/sbin/shutdown -r "), node.calls[4]


def test_what_takes_too_long_is_ended_and_nothing_is_left():
    began = time.monotonic()
    with pytest.raises(_controller.AnswerTimeout):
        with _controller.limit(1, "the node"):
            time.sleep(30)
    assert time.monotonic() - began < 10 and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with _controller.limit(1, "the node"):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_connection_that_tries_again_after_an_error_does_not_keep_it():
    """As Ansible's ssh does, with retries."""
    with pytest.raises(_controller.AnswerTimeout), _controller.limit(1, "the node"):
        for dummy in range(2):
            try:
                time.sleep(30)
            except Exception:  # noqa: BLE001 (connection plugins catch everything)
                continue


def test_the_time_of_the_task_goes_on_and_an_earlier_end_of_it_counts():
    class TaskTimeout(BaseException):
        pass

    def expire(number, frame):
        raise TaskTimeout

    before = signal.signal(signal.SIGALRM, expire)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(TaskTimeout), _controller.limit(20, "the node"):
            time.sleep(30)
        signal.setitimer(signal.ITIMER_REAL, 2)
        with pytest.raises(_controller.AnswerTimeout), _controller.limit(1, "the node"):
            time.sleep(30)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1.1 and signal.getsignal(signal.SIGALRM) is expire
        with pytest.raises(TaskTimeout):
            time.sleep(30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
