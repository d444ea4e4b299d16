# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Actions that gave their worker back go on where they were: nothing is done twice, and the result is that of one process."""

from __future__ import annotations

import copy
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="only the controller has workers")

from ansible.errors import AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import dkms_module, driver_packages, driver_reload, kernel_packages
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives import Claims
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking import waiting

pytestmark = pytest.mark.cores

VERSION = "535.261.03"
ARCHIVE = "nvidia-current_%s_6.1.0-1-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % VERSION
STARTED = {"changed": True, "started": 1, "finished": 0, "ansible_job_id": "j7.1", "results_file": "/root/.ansible_async/j7.1"}
CLEARED = {"changed": False}


def ended(**answer):
    return dict(STARTED, finished=1, **answer)


class Node:
    """Runs an action with the answers of its modules, in their order; its calls are those of this run."""

    def __init__(self, kind, args, gone):
        self.kind, self.args, self.gone = kind, args, gone
        self.calls, self.rebooter = [], None

    def run(self, *answers):
        """The result, or None when the worker was given back."""
        task = mock.Mock(args=dict(self.args), async_val=0, check_mode=False, diff=False, action="x", environment=[], _uuid="t")
        task.loop, task.until, task.retries = None, [], None
        task.copy.side_effect = lambda: mock.Mock(args=None)
        connection, loader = mock.Mock(), mock.Mock()
        action = self.kind.ActionModule(task, connection, mock.Mock(check_mode=False), DataLoader(), mock.Mock(), loader)
        action._load_name = "x"
        self.calls, left = [], list(copy.deepcopy(answers))

        def execute(module_name, module_args, task_vars, wrap_async=False):
            self.calls.append("%s%s" % (module_name.split(".")[-1], " " + module_args["mode"] if "jid" in module_args else " by itself" if wrap_async else ""))
            return left.pop(0) if left else {"changed": True}

        def get(name, task, **dummy):
            if name == driver_reload.REBOOT:
                self.rebooter.task = task
                return self.rebooter
            self.calls.append(name.split(".")[-1])
            return mock.Mock(run=lambda task_vars: {"changed": True})

        action._execute_module = execute
        action._shared_loader_obj = loader
        action.cleanup = lambda: None
        action._low_level_execute_command = lambda command: {"rc": 0}
        loader.action_loader.get.side_effect = get
        try:
            return action.run(task_vars={"inventory_hostname": "a1"})
        except self.gone:
            return None
        finally:
            assert not left, "a module was asked less often than expected"


@pytest.fixture(autouse=True)
def _ends(monkeypatch, gone):
    def leave(status):
        raise gone(status)

    monkeypatch.setattr(waiting.os, "_exit", leave)


@pytest.mark.parametrize("kind, name", [(driver_packages, "driver_packages"), (kernel_packages, "kernel_packages")])
def test_packages_are_installed_by_the_node_itself(place, gone, kind, name):
    node = Node(kind, {"version": VERSION}, gone)
    assert node.run(STARTED) is None and node.calls == [name + " by itself"]
    assert node.run(STARTED) is None and node.calls == ["async_status status"]
    assert node.run(ended(resolved={"a": 1}), CLEARED) == {"changed": True, "resolved": {"a": 1}}
    place.open = False
    assert node.run({"changed": False, "resolved": {}})["resolved"] == {} and node.calls == [name]


@pytest.fixture(name="store")
def _store(tmp_path):
    directory = tmp_path / "store"
    directory.mkdir()
    (directory / ARCHIVE).write_bytes(b"x")
    (directory / (ARCHIVE + ".sha256")).write_text("")
    return directory


def test_an_archive_is_brought_once_and_imported_by_the_node_itself(place, gone, store):
    node = Node(dkms_module, {"version": VERSION, "archive_dir": str(store), "state": "prepared"}, gone)
    assert node.run(STARTED) is None and node.calls == ["dkms_module by itself"]
    assert node.run(ended(changed=False, needs_archives=[ARCHIVE], warnings=["one"]), CLEARED, {"changed": True}, STARTED) is None
    assert node.calls == ["async_status status", "async_status cleanup", "file", "copy", "copy", "dkms_module by itself"]
    assert node.run(STARTED) is None and node.calls == ["async_status status"]
    result = node.run(ended(changed=False, steps=["import"], warnings=["two"]), CLEARED)
    assert node.calls == ["async_status status", "async_status cleanup"]
    assert result == {"changed": True, "steps": ["import"], "warnings": ["one", "two"], "received": [ARCHIVE], "waited_for": []}


def test_a_node_that_waits_for_another_ones_module_holds_no_worker_and_its_time_goes_on(place, gone, store, monkeypatch):
    said, now = [], [100.0]
    monkeypatch.setattr(dkms_module.display, "display", said.append)
    monkeypatch.setattr("ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives.time.monotonic", lambda: now[0])
    node = Node(dkms_module, {"version": VERSION, "archive_dir": str(store), "build_timeout_s": 50}, gone)
    assert node.run(STARTED) is None
    with Claims(str(store), [ARCHIVE], "b7", 60, None):
        assert node.run(ended(compiles=[ARCHIVE]), CLEARED) is None
        now[0] = 149.0
        assert node.run() is None and node.calls == [], "the node is not asked again what it said already"
        now[0] = 150.0
        with pytest.raises(Exception, match="is waited for in vain: after 50 s node b7 still compiles"):
            node.run()
    assert said == ["a1: waits for the module that node b7 compiles"]


def test_the_node_that_compiles_for_others_keeps_its_worker(place, gone, store):
    """Its claim ends with its process."""
    node = Node(dkms_module, {"version": VERSION, "archive_dir": str(store)}, gone)
    assert node.run(STARTED) is None
    result = node.run(ended(compiles=[ARCHIVE]), CLEARED, {"changed": True, "steps": []})
    assert node.calls == ["async_status status", "async_status cleanup", "dkms_module"] and result["waited_for"] == []


class Rebooter:
    """Ansible's own reboot: a node that boots for as long as BACK is false."""

    def __init__(self):
        self.back, self.told, self.validated = False, 0, []
        self.get_shutdown_command = lambda task_vars, distribution: "/sbin/shutdown"

    def run(self, task_vars):
        self.told += 1
        return self.validate_reboot({"name": "debian"}, 10, action_kwargs={"previous_boot_time": "boot-1"})

    def check_boot_time(self, distribution, previous_boot_time):
        assert (distribution, previous_boot_time) == ({"name": "debian"}, "boot-1")
        if not self.back:
            raise AnsibleConnectionFailure("Failed to connect to the host via ssh:\nno route to host")

    def validate_reboot(self, distribution, original_connection_timeout=None, action_kwargs=None):
        self.validated.append((distribution, action_kwargs))
        return {"rebooted": True, "changed": True}


@pytest.fixture(name="rebooting")
def _rebooting(gone, monkeypatch):
    node = Node(driver_reload, {"policy": "reboot", "reboot": True, "reboot_timeout": 900}, gone)
    node.rebooter = Rebooter()
    node.now = [1000.0]
    monkeypatch.setattr(driver_reload.time, "monotonic", lambda: node.now[0])
    return node


def booted(node):
    """As a new process has it."""
    rebooter = Rebooter()
    rebooter.back = True
    node.rebooter = rebooter
    return rebooter


ANSWER = {"changed": False, "action": "reboot", "reboot_required": True, "reboot_reason": "the policy is to reboot"}


def test_a_node_that_boots_is_told_once_and_holds_no_worker(place, rebooting):
    assert rebooting.run(ANSWER) is None and rebooting.calls == ["driver_reload"] and rebooting.rebooter.told == 1
    rebooting.rebooter, rebooting.now[0] = Rebooter(), 1060.0
    assert rebooting.run() is None and rebooting.rebooter.told == 0 and rebooting.calls == []
    assert [seconds for host, task, seconds in place.arrivals()] == [2.0, 15.0]
    rebooter, rebooting.now[0] = booted(rebooting), 1075.0
    result = rebooting.run()
    assert result == dict(ANSWER, changed=True, reboot_required=False, rebooted=True, elapsed=75)
    assert rebooter.told == 0 and rebooter.validated == [({"name": "debian"}, {"previous_boot_time": "boot-1"})]
    assert rebooter.task.args == {"msg": driver_reload.MESSAGE, "reboot_timeout": 900}


def test_a_node_that_does_not_come_back_fails_when_its_time_is_over(place, rebooting):
    assert rebooting.run(ANSWER) is None
    rebooting.rebooter, rebooting.now[0] = Rebooter(), 1899.0
    assert rebooting.run() is None
    rebooting.rebooter, rebooting.now[0] = Rebooter(), 1900.0
    result = rebooting.run()
    assert result["failed"] is True and result["elapsed"] == 900
    assert result["msg"] == "Timed out waiting for last boot time check (timeout=900): no route to host"


def test_without_leave_to_go_ansible_waits_for_the_node_as_ever(place, rebooting):
    place.open = False
    result = rebooting.run(ANSWER)
    assert result["rebooted"] is True and result["reboot_required"] is False and rebooting.rebooter.told == 1 and place.arrivals() == []
