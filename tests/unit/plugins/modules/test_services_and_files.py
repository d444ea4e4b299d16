# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_services and node_state: what a task answers, and how it fails."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock, services
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import node_state as state_of_node
from ansible_collections.gpufleet.lifecycle.plugins.modules import node_services, node_state

pytestmark = pytest.mark.cores

SHOWN = "Id=a.service\nNames=a.service\nLoadState=loaded\nActiveState=%s\nSubState=x\nResult=success\nType=simple"


@pytest.fixture(name="run")
def run_module(monkeypatch, call_module, tmp_path):
    monkeypatch.setattr(state_of_node.perform, "__defaults__", (str(tmp_path / "lock"), str(tmp_path)))
    return call_module


@pytest.fixture(name="systemd")
def a_unit(monkeypatch, tmp_path):
    """A unit a.service that is active; what was told of it. stays: it does not end."""

    class Systemd:
        active, stays, told = "active", False, []

        def __call__(self, argv, timeout):
            if argv[1] == "show":
                return (0, SHOWN % self.active, "") if self.active else (1, "", "no bus")
            self.told.append(argv[1:])
            self.active = self.active if self.stays else {"stop": "inactive", "start": "active"}[argv[1]]
            return 0, "", ""

    found = Systemd()
    found.told = []
    monkeypatch.setattr(services.perform, "__defaults__", (lambda descriptors: found, str(tmp_path / "lock")))
    monkeypatch.setattr(services.lock, "ignore_hangup", lambda: None)
    return found


def test_services_are_stopped_once_and_check_mode_says_so_before(run, systemd):
    said = run(node_services, check=True, services=["a"], state="stopped")
    assert said["changed"] and said["actions"] == ["stop a.service"] and systemd.told == []
    done = run(node_services, services=["a"], state="stopped", step="stop")
    assert done["changed"] and done["services"][0]["active"] == "inactive" and systemd.told == [["stop", "a.service"]]
    assert run(node_services, services=["a"], state="stopped")["changed"] is False and len(systemd.told) == 1


def test_a_service_that_does_not_stop_fails_the_task_and_is_named(run, systemd):
    systemd.stays = True
    result = run(node_services, services=["a"], state="stopped")
    assert result["failed"] and result["failures"][0]["code"] == "not_stopped" and "a.service" in result["msg"]
    assert result["changed"]


def test_systemd_that_does_not_answer_fails_the_task_before_anything_is_done(run, systemd):
    systemd.active = ""
    result = run(node_services, services=["a"], state="stopped")
    assert result["failed"] and "Nothing was changed" in result["msg"] and systemd.told == []


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (node_services, {"services": ["a"], "state": "stopped"}),
        (node_state, {"record": "files", "state": "present", "content": {"/nowhere/at/all": ""}}),
    ],
)
def test_a_node_that_is_locked_says_by_whom(run, systemd, tmp_path, module, options):
    with lock.NodeLock(path=str(tmp_path / "lock"), owner={"module": "driver_packages", "step": "install"}):
        result = run(module, lock_timeout_s=0, **options)
    assert result["failed"] and result["lock"]["module"] == "driver_packages" and systemd.told == []


def test_a_file_is_written_once_and_check_mode_says_so_before(run, tmp_path):
    path = tmp_path / "etc" / "mig.json"
    about = {"record": "files", "state": "present"}
    given = dict(about, content={str(path): "{}\n"})
    assert run(node_state, check=True, **given)["written"] == [str(path)] and not path.exists()
    assert run(node_state, **given)["changed"] and path.read_text() == "{}\n"
    assert run(node_state, **given)["changed"] is False
    refused = run(node_state, **about, content={"etc/mig.json": ""})
    assert refused["failed"] and "no absolute path" in refused["msg"]
    (tmp_path / "file").write_text("")
    below = run(node_state, **about, content={str(tmp_path / "file" / "x"): ""})
    assert below["failed"] and str(tmp_path / "file") in below["msg"]
