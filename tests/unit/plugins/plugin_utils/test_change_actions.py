# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugins of gpu_settings, gpu_reset and gpu_mig: what they send, and what they refuse before it."""

from __future__ import annotations

import functools
import json
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.action import gpu_mig, gpu_reset, gpu_settings
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding, _controller
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions

pytestmark = pytest.mark.cores

DIGEST = "d" * 64
BINDING = {"digest": DIGEST, "version": "1"}


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.setattr(_binding, "find", lambda: _binding.Binding(b"source", "1", DIGEST))


run_settings = functools.partial(actions.run_in_turn, gpu_settings, readings.NODE)
run_reset = functools.partial(actions.run_in_turn, gpu_reset, "gpu-r1-1")
BOTH = pytest.mark.parametrize("run, args", [(run_settings, {"ecc_mode": True}), (run_reset, {"gpus": ["all"]})])


@BOTH
def test_a_failure_of_the_node_stays_one(run, args):
    failure = {"failed": True, "msg": "refused", "reasons": [{"id": "holder"}]}
    result, calls = run(args, failure)
    assert {key: result[key] for key in failure} == failure and len(calls) == 1


@BOTH
def test_the_binding_follows_where_the_node_asks_for_it(run, args):
    result, calls = run(args, {"needs_binding": True, "warnings": ["tampered"]}, {"changed": False})
    assert result["warnings"] == ["tampered"] and "needs_binding" not in result
    assert [sorted(call[1]["binding"]) for call in calls] == [["digest", "version"], ["digest", "source", "version"]]


def test_settings_are_sent_as_the_task_has_them(tmp_path):
    result, calls = run_settings(
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
                "binding": BINDING,
                "locked_graphics_clocks_mhz": {"min": 1000, "max": 1500, "unlocked": False},
            },
        )
    ]


def test_why_the_controller_sent_no_binding_is_told(monkeypatch):
    monkeypatch.setattr(
        _binding, "find", mock.Mock(side_effect=_binding.BindingError("the controller has no nvidia-ml-py"))
    )
    result, dummy = run_settings(
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
    dummy, calls = run_settings(args, {"changed": False})
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
        ({"ecc_mode": True, "binding": BINDING}, "set by the action plugin"),
    ],
)
def test_bad_input_is_refused_before_the_node_is_asked(args, text):
    with pytest.raises(AnsibleActionFail, match=text):
        run_settings(args)


def test_a_baseline_file_that_is_no_json_is_named(tmp_path):
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(AnsibleActionFail, match="b.json on the controller is not JSON"):
        run_settings({"state": "restored", "baseline_file": str(tmp_path / "b.json")})


def test_reset_is_sent_as_the_task_has_it():
    result, calls = run_reset(
        {"gpus": ["0"], "when_needed": "yes", "reason": "ECC"}, {"changed": True, "gpus": [{"uuid": "GPU-1"}]}
    )
    assert result["changed"] is True and result["gpus"] == [{"uuid": "GPU-1"}]
    assert calls == [
        (
            "gpufleet.lifecycle.gpu_reset",
            {
                "gpus": ["0"],
                "when_needed": True,
                "destroy_mig": False,
                "reason": "ECC",
                "reset_timeout_s": 300,
                "timeout_s": 60,
                "lock_timeout_s": 600,
                "binding": BINDING,
            },
        )
    ]


@pytest.mark.parametrize(
    "args",
    [
        {"gpus": []},
        {"gpus": ["all"], "reset_timeout_s": 0},
        {"gpus": ["all"], "binding": BINDING},
        {},
        {"gpus": ["all"], "force": True},
    ],
)
def test_options_that_do_not_do_are_refused_before_the_node_is_asked(args):
    with pytest.raises(AnsibleError):
        run_reset(args)


def test_a_task_whose_playbook_has_ended_resets_nothing(monkeypatch):
    monkeypatch.setattr(_controller, "require", mock.Mock(side_effect=_controller.ControllerError("ended")))
    with pytest.raises(_controller.ControllerError):
        run_reset({"gpus": ["all"]})


def test_the_node_is_named_in_a_refusal():
    with pytest.raises(AnsibleActionFail, match="gpu-r1-1"):
        run_reset({"gpus": []})


OFF = [{"devices": "all", "mig-enabled": False}]
ON = [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]
DOCUMENT = {"version": "v1", "mig-configs": {"off": OFF, "on": ON}}
run_mig = functools.partial(actions.run_in_turn, gpu_mig, readings.NODE)


def sent(args):
    ((name, given),) = run_mig(args, {"changed": False})[1]
    assert name == "gpufleet.lifecycle.gpu_mig" and given["binding"] == BINDING
    return given


def refused(args):
    with pytest.raises(AnsibleActionFail) as caught:
        run_mig(args)
    assert readings.NODE in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("where", ["option", "yaml", "json"])
def test_of_a_configuration_the_wanted_layout_travels(tmp_path, where):
    path = tmp_path / ("mig." + where)
    path.write_text(
        json.dumps(DOCUMENT)
        if where == "json"
        else "version: v1\nmig-configs:\n  disabled: [{devices: all, mig-enabled: false}]\n"
        '  "on":\n    - devices: all\n      mig-enabled: true\n      mig-devices: {"1g.10gb": 7}\n'
    )
    given = sent(dict({"config": DOCUMENT} if where == "option" else {"config_file": str(path)}, config_name="on"))
    assert (
        given["config"] == {"version": "v1", "mig-configs": {"on": ON}}
        and "config_file" not in given
        and given["config_name"] == "on"
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("version: v1\nmig-configs:\n  one: [{devices: all, mig-enabled: false, mig-enabled: true}]\n", "mig-enabled"),
        ("version: v2\n", "v2"),
        ("version: v1\nmig-configs: [", "line"),
        ("version: v1\nmig-configs:\n  on: []\n", "key on "),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, named):
    path = tmp_path / "mig.yml"
    path.write_text(text)
    message = refused({"config_file": str(path), "config_name": "on"})
    assert str(path) in message and named in message


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert str(tmp_path / "none.yml") in refused({"config_file": str(tmp_path / "none.yml"), "config_name": "on"})


def test_a_misspelt_layout_is_refused_before_the_node_is_asked():
    assert "off, on" in refused({"config": DOCUMENT, "config_name": "onn"})


def test_a_list_is_looked_through_before_the_node_is_asked():
    assert "layout[1]" in refused(
        {"layout": [{"mig_enabled": False}, {"mig_enabled": True, "mig_devices": {"bogus": 1}}]}
    )
    assert sent({"layout": [{"mig_enabled": False}]})["layout"][0]["mig_enabled"] is False


@pytest.mark.parametrize("where", ["option", "file"])
def test_a_baseline_becomes_a_list_by_uuid(tmp_path, where):
    found = readings.baseline()
    path = tmp_path / "b.json"
    path.write_text(json.dumps(found))
    given = sent(
        dict({"state": "restored"}, **({"baseline": found} if where == "option" else {"baseline_file": str(path)}))
    )
    assert given["state"] == "present" and "baseline" not in given
    assert [entry["gpus"] for entry in given["layout"]] == [[gpu["uuid"]["value"]] for gpu in found["snapshot"]["gpus"]]


def test_a_baseline_that_does_not_tell_the_layout_is_refused():
    found = readings.baseline()
    found["snapshot"]["gpus"][0]["mig_mode_current"] = {"value": None, "rc": 15, "error": "GPU_IS_LOST"}
    assert "mig_mode_current" in refused({"state": "restored", "baseline": found})


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"config": DOCUMENT},
        {"state": "restored"},
        {"state": "cleared", "config": DOCUMENT},
        {"config": DOCUMENT, "layout": [{"mig_enabled": False}]},
        {"state": "gone"},
        {"layout": [{}]},
        {"config": DOCUMENT, "config_name": "on", "binding": BINDING},
    ],
)
def test_options_that_do_not_go_together_are_refused(args):
    with pytest.raises(AnsibleActionFail):
        run_mig(args)


def test_what_changes_nothing_needs_nothing():
    assert (
        sent({"state": "cleared"})["state"] == "cleared"
        and sent({"state": "exported", "config_name": "now"})["config_name"] == "now"
    )
