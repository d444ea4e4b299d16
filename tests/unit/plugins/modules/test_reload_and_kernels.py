# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""driver_reload, boot_kernel and kernel_packages: what a task answers, and how it fails."""

from __future__ import annotations

import os

import pytest
from ansible.module_utils import basic

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import reload
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import boot_default
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import kernel_packages as kernels_of_node
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.manager import ManagerError
from ansible_collections.gpufleet.lifecycle.plugins.modules import boot_kernel, driver_reload, kernel_packages

pytestmark = pytest.mark.cores

RUNNING, OTHER = "6.1.0-50-amd64", "6.1.0-56-amd64"


@pytest.fixture(name="run")
def run_module(monkeypatch, call_module, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(lock.NodeLock.__init__, "__defaults__", (str(tmp_path / "lock"), None, 0))
    return call_module


def outcome(action="reload", **more):
    return dict(
        {
            "changed": True,
            "action": action,
            "why": "",
            "reasons": [],
            "reboot_required": action == "reboot",
            "reboot_reason": "",
            "actions": [],
            "problems": [],
        },
        **more,
    )


@pytest.fixture(name="task")
def a_task(monkeypatch):
    """What the task would do, and which of its two ways was taken."""
    taken = {"answer": outcome(), "way": []}

    class Reload:
        def __init__(self, params, runner=None):
            taken["runner"] = runner

        def preview(self):
            taken["way"].append("preview")
            return taken["answer"]

        def run(self):
            taken["way"].append("run")
            return taken["answer"]

    monkeypatch.setattr(driver_reload, "DriverReload", Reload)
    return taken


def test_a_reload_holds_the_nodes_lock_and_hands_it_on(run, task):
    result = run(driver_reload)
    assert not result.get("failed") and task["way"] == ["run"] and len(task["runner"].pass_fds) == 1


@pytest.mark.parametrize("policy", ["auto", "reload", "reboot"])
def test_check_mode_takes_no_lock_and_all_else_does(run, task, tmp_path, policy):
    run(driver_reload, check=True, policy=policy)
    assert task["way"] == ["preview"] and not (tmp_path / "lock").exists()
    run(driver_reload, policy=policy)
    assert task["way"] == ["preview", "run"] and (tmp_path / "lock").exists()


def test_work_on_the_gpus_is_told_before_all_else(run, task):
    task["answer"] = outcome(
        "refuse",
        changed=False,
        reasons=[
            reload.explain_holder("policy", "the policy is to reboot", "reboot the node"),
            reload.explain_holder("at_work", "python3 computes", "let it end", False),
        ],
    )
    result = run(driver_reload, policy="reboot")
    assert result["failed"] and result["msg"] == (
        "The GPUs are at work, so that the driver is not loaded anew and the node not rebooted: python3 computes. Next "
        "step: let it end. Nothing was changed."
    )


@pytest.mark.parametrize(
    ("helps", "words"),
    [(True, "without a reboot: python3 holds it"), (False, "and a reboot would not help: python3 holds it")],
)
def test_a_refusal_names_the_reasons_and_the_next_step(run, task, helps, words):
    task["answer"] = outcome(
        "refuse", changed=False, reasons=[reload.explain_holder("x", "python3 holds it", "end it", helps)]
    )
    result = run(driver_reload, policy="reload")
    assert result["failed"] and words in result["msg"] and "Next step: end it. Nothing was changed." in result["msg"]
    task["answer"]["actions"] = ["stop a", "start a"]
    assert "Done and undone: stop a, start a." in run(driver_reload, policy="reload")["msg"]


def test_a_refusal_of_a_reboot_does_not_advise_one(run, task):
    task["answer"] = outcome(
        "refuse",
        changed=False,
        reasons=[
            reload.explain_holder("policy", "the policy is to reboot", "reboot the node"),
            reload.explain_holder("holders_unknown", "nobody knows", "look at the node", False),
        ],
    )
    said = run(driver_reload, policy="reboot")["msg"]
    assert "nobody knows. Next step: look at the node. Nothing was changed." in said and "reboot the node" not in said


def test_problems_fail_and_before_a_reboot_they_are_told(run, task, monkeypatch):
    told = []
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda module, text, **more: told.append(text))
    task["answer"] = outcome("refuse", problems=["could not start x"], actions=["unload nvidia"])
    result = run(driver_reload)
    assert result["failed"]
    assert "could not start x. Done: unload nvidia. Next step: look at the kernel log" in result["msg"]
    task["answer"] = outcome("reboot", problems=["could not start x"])
    result = run(driver_reload)
    assert not result.get("failed") and told == ["Before the reboot that is due: could not start x"]


def test_a_locked_node_names_the_holder(run, task):
    with lock.NodeLock(owner={"module": "dkms_module"}):
        result = run(driver_reload, lock_timeout_s=0)
    assert result["failed"] and result["lock"]["module"] == "dkms_module" and task["way"] == []


@pytest.mark.parametrize("module", [driver_reload, kernel_packages])
def test_root_is_needed(run, monkeypatch, task, module):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in run(module)["msg"] and task["way"] == []


def test_a_reboot_needs_the_action_plugin(run, task):
    assert "gpufleet.lifecycle.driver_reload" in run(driver_reload, reboot=True)["msg"] and task["way"] == []


@pytest.fixture(name="boot")
def a_boot_loader(monkeypatch, tmp_path):
    state = {"default": RUNNING, "unproven": "", "problem": None, "acts": 0, "pinned": True}

    def decide(facts, kernel, pin):
        return {
            "problem": state["problem"],
            "changed": state["default"] != kernel or pin and not state["pinned"],
            "menu": False,
        }

    def act(root, runner, kernel, pin):
        state["acts"] += 1
        state["pinned"] = state["pinned"] or pin
        if state.get("breaks"):
            raise boot_default.BootError("the disk is full")
        state["default"] = kernel
        return True

    monkeypatch.setattr(boot_default, "read_boot", lambda root, runner: {})
    monkeypatch.setattr(boot_default, "decide_boot", decide)
    monkeypatch.setattr(
        boot_default,
        "explain_unproven",
        lambda root, runner, kernel, version: state.update(asked=version) or state["unproven"],
    )
    monkeypatch.setattr(boot_default, "set_default", act)
    monkeypatch.setattr(
        boot_kernel.kernels,
        "read",
        lambda root, runner: {"running": RUNNING, "installed": [RUNNING, OTHER], "next_boot": state["default"]},
    )
    return state


def test_a_kernel_is_made_the_default(run, boot):
    foreseen = run(boot_kernel, check=True, kernel=OTHER)
    assert foreseen["changed"] and boot["acts"] == 0
    result = run(boot_kernel, kernel=OTHER, driver_version="535.261.03")
    assert result["changed"] and result["reboot_required"] and result["kernels"]["next_boot"] == OTHER
    assert run(boot_kernel, kernel=OTHER)["changed"] is False and boot["acts"] == 1


def test_a_default_by_chance_is_pinned_where_that_is_wanted(run, boot):
    boot["pinned"] = False
    assert run(boot_kernel, kernel=RUNNING, pin=False)["changed"] is False and boot["acts"] == 0
    assert run(boot_kernel, kernel=RUNNING)["changed"] is True and boot["acts"] == 1 and boot["pinned"]
    assert run(boot_kernel, kernel=OTHER, pin=False, driver_version="1:535.261.03-1~bpo12+1")["changed"] is True
    assert boot["asked"] == "535.261.03", "the module's version has no revision of a package"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "unproven",
            "there is no NVIDIA module for x",
            "there is no NVIDIA module for x. The default boot entry was left as it is. Next step: build",
        ),
        (
            "problem",
            "the boot loader is not known",
            "the boot loader is not known. The default boot entry was left as it is. Next step: look",
        ),
        ("breaks", True, "is not the default: the disk is full. Next step:"),
    ],
)
def test_a_default_that_is_refused_or_fails(run, boot, key, value, words):
    boot[key] = value
    result = run(boot_kernel, kernel=OTHER, driver_version="535.261.03")
    assert result["failed"] and words in result["msg"] and result["kernels"]["next_boot"] == RUNNING


def test_a_locked_node_keeps_its_default(run, boot):
    with lock.NodeLock(owner={"module": "dkms_module"}):
        result = run(boot_kernel, kernel=OTHER, lock_timeout_s=0)
    assert result["failed"] and result["lock"]["module"] == "dkms_module" and boot["acts"] == 0


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (kernels_of_node.Refused("no kernel package is installed"), "no kernel package is installed."),
        (boot_default.BootError("the menu is gone"), "the menu is gone. Next step"),
        (ManagerError("apt-get install", 100, "", "E: no such package"), "E: no such package"),
    ],
)
def test_kernel_packages_says_what_went_wrong(run, monkeypatch, error, words):
    def perform(params, runner, acting):
        raise error

    monkeypatch.setattr(kernel_packages, "perform", perform)
    result = run(kernel_packages)
    assert result["failed"] and words in result["msg"]


def test_kernel_packages_in_check_mode_and_not(run, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(
        kernel_packages,
        "perform",
        lambda params, runner, acting: seen.append((acting, len(runner.pass_fds))) or {"changed": True},
    )
    run(kernel_packages, check=True)
    assert not (tmp_path / "lock").exists()
    run(kernel_packages)
    assert seen == [(False, 0), (True, 1)]
    with lock.NodeLock(owner={"module": "dkms_module"}):
        assert run(kernel_packages, lock_timeout_s=0)["lock"]["module"] == "dkms_module"


@pytest.mark.parametrize("state", ["staged", "removed"])
def test_a_kernel_has_to_be_named(run, state):
    assert "No kernel is named" in run(kernel_packages, state=state, kernel="")["msg"]
    assert "kernel" in run(kernel_packages, state=state)["msg"]
