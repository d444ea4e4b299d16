# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of gpu_settings: what it sends to the node, and what it refuses before the node is asked."""

from __future__ import annotations

import copy
import json
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import gpu_settings
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

pytestmark = pytest.mark.cores

DIGEST = "d" * 64


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.setattr(_binding, "shipped", lambda: _binding.Archive(b"zip", DIGEST, "1", None))


def act(args, *answers):
    """(result, calls) of the action whose node gives ANSWERS one after the other."""
    task = mock.Mock(args=args, async_val=0, check_mode=False, diff=False, action="x", environment=None)
    action = gpu_settings.ActionModule(task, mock.Mock(), mock.Mock(check_mode=False), DataLoader(), mock.Mock(), None)
    action._load_name = "x"
    calls, left = [], list(copy.deepcopy(answers))

    def execute(module_name, module_args, task_vars):
        calls.append((module_name, dict(module_args)))
        return left.pop(0)

    action._execute_module = execute
    return action.run(task_vars={"inventory_hostname": readings.NODE}), calls


def test_the_node_gets_what_the_task_says(tmp_path):
    result, calls = act(
        {"power_limit_w": 500, "gpus": ["0"], "locked_graphics_clocks_mhz": {"min": 1000, "max": 1500}},
        {"changed": True, "settings": [{"gpu": "GPU-1"}]},
    )
    assert result["changed"] is True and result["settings"] == [{"gpu": "GPU-1"}]
    assert calls == [
        (
            "gpufleet.lifecycle.gpu_settings",
            {
                "state": "present",
                "gpus": ["0"],
                "power_limit_w": "500",
                "processes": "refuse",
                "timeout_s": 60,
                "lock_timeout_s": 600,
                "binding_digest": DIGEST,
                "locked_graphics_clocks_mhz": {"min": 1000, "max": 1500, "unlocked": False},
            },
        )
    ]


def test_a_failure_of_the_node_stays_one():
    result, calls = act({"ecc_mode": True}, {"failed": True, "msg": "1 of 1 settings failed"})
    assert result["failed"] is True and result["msg"] == "1 of 1 settings failed" and len(calls) == 1


def test_the_binding_follows_where_the_node_asks_for_it():
    result, calls = act({"ecc_mode": True}, {"needs_binding": True, "warnings": ["tampered"]}, {"changed": False})
    assert result["warnings"] == ["tampered"] and [
        sorted(set(call[1]) & {"binding_digest", "binding_archive"}) for call in calls
    ] == [["binding_digest"], ["binding_archive", "binding_digest"]]


def test_why_the_controller_sent_no_binding_is_told(monkeypatch):
    monkeypatch.setattr(
        _binding, "shipped", lambda: _binding.Archive(b"zip", DIGEST, None, "the controller has no nvidia-ml-py")
    )
    result, dummy = act(
        {"ecc_mode": True},
        {"failed": True, "msg": "NVML cannot be read", "snapshot": {"status": "no_binding", "message": "none"}},
    )
    assert result["msg"] == "NVML cannot be read (the controller has no nvidia-ml-py)"


@pytest.mark.parametrize("where", ["option", "file"])
def test_the_node_gets_the_part_of_the_baseline_that_it_needs(tmp_path, where):
    baseline = readings.baseline()
    args = {"state": "restored", "baseline": baseline}
    if where == "file":
        (tmp_path / "b.json").write_text(json.dumps(baseline))
        args = {"state": "restored", "baseline_file": str(tmp_path / "b.json")}
    dummy, calls = act(args, {"changed": False})
    sent = calls[0][1]["baseline"]
    assert (
        "baseline_file" not in calls[0][1]
        and set(sent) == {"schema", "node", "snapshot"}
        and set(sent["snapshot"]) == {"gpus"}
    )
    assert len(sent["snapshot"]["gpus"]) == len(baseline["snapshot"]["gpus"])
    for gpu, whole in zip(sent["snapshot"]["gpus"], baseline["snapshot"]["gpus"]):
        assert set(gpu) == {
            "uuid",
            "power_limit_mw",
            "applications_clocks_mhz",
            "applications_clocks_default_mhz",
            "compute_mode",
            "persistence_mode",
            "mig_mode_current",
            "ecc_mode_current",
            "ecc_mode_pending",
        }
        assert all(gpu[key] == whole[key] for key in gpu)
    # The module takes what is sent.
    defaults = dict((name, option.get("default")) for name, option in options.ARGUMENT_SPEC.items())
    assert options.contradiction(dict(defaults, **calls[0][1])) is None
    assert "snapshot" in baseline and "audit" in baseline


@pytest.mark.parametrize(
    "args, text",
    [
        ({}, "gpu-1: no setting is named"),
        ({"state": "restored"}, "gpu-1: state: restored needs a baseline"),
        ({"state": "restored", "baseline": readings.baseline(node="gpu-2")}, "that of node gpu-2, not of gpu-1"),
        ({"state": "restored", "baseline": {"schema": "x"}}, "the baseline has schema 'x'"),
        ({"state": "restored", "baseline": readings.baseline(), "ecc_mode": True}, "remove ecc_mode from the task"),
        ({"state": "restored", "baseline": readings.baseline(), "baseline_file": "/x"}, "mutually exclusive"),
        (
            {"state": "restored", "baseline_file": "/nonexistent/b.json"},
            "/nonexistent/b.json on the controller cannot be read: No such file",
        ),
        (
            {"state": "restored", "baseline": readings.baseline(), "settings": ["fan"]},
            "value of settings must be one or more of",
        ),
        ({"power_limit_w": 500, "baseline": readings.baseline()}, "baseline goes with state: restored"),
        ({"locked_graphics_clocks_mhz": {"min": 1000}}, "required together: min, max"),
        ({"compute_mode": "shared"}, "value of compute_mode must be one of"),
        (
            {"application_clocks_mhz": {"graphics": "fast", "memory": 1}},
            "cannot be converted to an int|unable to convert to int",
        ),
        ({"ecc_mode": True, "timeout_s": 0}, "timeout_s is 0; expected at least 1 second"),
        ({"ecc_mode": True, "surprise": 1}, "Unsupported parameters"),
        ({"ecc_mode": True, "binding_digest": "x"}, "set by the action plugin"),
        ({"ecc_mode": True, "binding_archive": "x"}, "set by the action plugin"),
    ],
)
def test_bad_input_is_refused_before_the_node_is_asked(args, text):
    with pytest.raises(AnsibleActionFail, match=text):
        act(args)


def test_a_baseline_file_that_is_no_json_is_named(tmp_path):
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(AnsibleActionFail, match="b.json on the controller is not JSON"):
        act({"state": "restored", "baseline_file": str(tmp_path / "b.json")})
