# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugins of gpu_info and gpu_health: two calls at most, the binding they send, the verdict they make."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.action import gpu_health, gpu_info, gpu_smoke
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions

pytestmark = pytest.mark.cores

BINDING = _binding.Binding(b"source", "1", "d" * 64)
ANNOUNCED = {"digest": BINDING.digest, "version": "1"}


@pytest.fixture
def shipped(monkeypatch):
    monkeypatch.setattr(_binding, "find", lambda: BINDING)
    return monkeypatch


def make(plugin, args, *answers):
    """An action whose node gives ANSWERS one after the other; the calls are in its attribute calls."""
    execute, calls = actions.answer_in_turn(*answers)
    action = actions.make_action(plugin, args, execute)
    action.calls = calls
    return action


def run(action):
    return action.run(task_vars={"inventory_hostname": readings.NODE})


def test_a_node_that_has_the_binding_is_asked_once(shipped):
    action = make(gpu_info, {"timeout_s": 5}, {"snapshot": {"status": "ok"}, "changed": False})
    assert run(action)["snapshot"] == {"status": "ok"}
    assert action.calls == [("gpufleet.lifecycle.gpu_info", {"timeout_s": 5, "binding": ANNOUNCED})]


def test_a_node_that_asks_for_the_binding_gets_it_and_keeps_its_warning(shipped):
    action = make(
        gpu_info,
        {},
        {"needs_binding": True, "warnings": ["tampered"]},
        {"snapshot": {"status": "ok"}, "warnings": ["other"]},
    )
    result = run(action)
    assert result["warnings"] == ["tampered", "other"] and "needs_binding" not in result
    assert [args for name, args in action.calls] == [
        {"binding": ANNOUNCED},
        {"binding": dict(ANNOUNCED, source=base64.b64encode(zlib.compress(b"source", 9)).decode())},
    ]


def test_a_failure_is_not_asked_again(shipped):
    action = make(gpu_info, {}, {"failed": True, "needs_binding": True, "msg": "no"})
    assert run(action)["failed"] is True and len(action.calls) == 1


def test_a_controller_without_a_binding_lets_the_node_use_its_own(monkeypatch):
    monkeypatch.setattr(
        _binding, "find", mock.Mock(side_effect=_binding.BindingError("the controller has no nvidia-ml-py"))
    )
    action = make(gpu_info, {}, {"snapshot": {"status": "ok", "message": ""}})
    assert run(action)["snapshot"]["message"] == ""
    assert action.calls == [("gpufleet.lifecycle.gpu_info", {})]
    action = make(
        gpu_info, {}, {"snapshot": {"status": "no_binding", "message": "none"}, "failed": True, "msg": "none"}
    )
    result = run(action)
    assert result["snapshot"]["message"] == result["msg"] == "none (the controller has no nvidia-ml-py)"


def test_the_verdict_says_why_the_controller_sent_no_binding(monkeypatch):
    monkeypatch.setattr(
        _binding, "find", mock.Mock(side_effect=_binding.BindingError("another package shadows pynvml"))
    )
    health = run(
        make(gpu_health, {}, facts(dict(readings.snapshot(), status="no_binding", message="no NVML binding", gpus=[])))
    )
    assert health["failed"] is True
    assert "no NVML binding (another package shadows pynvml)" in health["msg"]


@pytest.mark.parametrize("plugin", [gpu_info, gpu_health])
def test_a_playbook_cannot_bring_its_own_binding(shipped, plugin):
    action = make(plugin, {"binding": ANNOUNCED})
    with pytest.raises(AnsibleActionFail, match="binding"):
        run(action)
    assert action.calls == []


def facts(snapshot=None):
    return {"facts": readings.reading(snapshot, boot_id="b", kernel_log=readings.kernel_log("b")), "changed": False}


def test_the_verdict_is_made_here(shipped):
    action = make(gpu_health, {"phase": "baseline", "expect": readings.EXPECT}, facts())
    result = run(action)
    assert "failed" not in result and "facts" not in result and result["changed"] is False
    assert (
        result["health"]["verdict"],
        result["health"]["node"],
        result["health"]["boot_id"],
        result["health"]["phase"],
    ) == ("pass", readings.NODE, "b", "baseline")
    assert result["msg"].startswith("gpu-1: GPU health PASS (phase baseline")
    document = result["baseline"]
    assert (document["schema"], document["node"], document["boot_id"], document["time"]) == (
        "gpufleet.baseline/1",
        readings.NODE,
        "b",
        result["health"]["time"],
    )
    assert action.calls == [("gpufleet.lifecycle.gpu_health", {"timeout_s": 60, "binding": ANNOUNCED})]
    again = make(
        gpu_health, {"phase": "post", "baseline": document, "expected_driver_version": readings.DRIVER}, facts()
    )
    assert run(again)["health"]["verdict"] == "pass"


def broken():
    snapshot = readings.snapshot()
    snapshot["gpus"][1]["persistence_mode"] = readings.value(0)
    return snapshot


def test_a_failing_node_fails_the_task_and_says_why(shipped, tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(readings.baseline()))
    result = run(make(gpu_health, {"phase": "post", "baseline_file": str(path)}, facts(broken())))
    assert result["failed"] is True and result["health"]["verdict"] == "fail"
    lines = result["msg"].split("\n")
    assert lines[0].startswith("gpu-1: GPU health FAIL (phase post, action restart_service): 1 failed, 0 unknown")
    assert lines[1].startswith("FAIL gpu.persistence GPU-00000001: found 0, expected 1.")


def test_a_failed_task_shows_what_fails_and_says_what_it_left_out(shipped):
    args = {"phase": "post", "baseline": readings.baseline()}
    result = run(make(gpu_health, args, facts(broken())))
    assert "baseline" not in result
    assert [(check["id"], check["entity"]) for check in result["health"]["checks"]] == [
        ("gpu.persistence", readings.uuid(1))
    ]
    assert result["health"]["left_out"]["pass"] > 20
    assert len(json.dumps(result, indent=2).split("\n")) < 100


@pytest.mark.parametrize("args, verbosity", [({"full": True}, 0), ({"fail_on": []}, 0), ({}, 2)])
def test_everything_is_returned_where_it_is_wanted(shipped, monkeypatch, args, verbosity):
    monkeypatch.setattr(gpu_health, "Display", lambda: mock.Mock(verbosity=verbosity))
    result = run(make(gpu_health, dict({"phase": "post", "baseline": readings.baseline()}, **args), facts(broken())))
    assert result["baseline"]["node"] == readings.NODE and result["health"]["left_out"] == {}
    assert set(check["status"] for check in result["health"]["checks"]) >= {"pass", "fail"}


@pytest.mark.parametrize("plugin", [gpu_health, gpu_smoke])
def test_a_baseline_from_the_future_is_refused_before_the_node_is_asked(shipped, tmp_path, plugin):
    document = readings.baseline(time="2099-01-01T00:00:00Z")
    (tmp_path / "b.json").write_text(json.dumps(document))
    for given in ({"baseline": document}, {"baseline_file": str(tmp_path / "b.json")}):
        action = make(plugin, dict(given, phase="post"))
        with pytest.raises(AnsibleActionFail, match="the clock of one of the controllers is wrong"):
            run(action)
        assert action.calls == []


def test_no_clock_says_which_reading_of_a_rollout_was_first(shipped):
    """The clock of the controller was set back, or another one, which is behind, took the rollout over."""
    given = {"phase": "post", "baseline": readings.baseline(time="2099-01-01T00:00:00Z"), "sequence": 7}
    result = run(make(gpu_health, dict(given, expected_driver_version=readings.DRIVER), facts()))
    assert (result["health"]["verdict"], result["health"]["sequence"]) == ("pass", 7)


def test_the_kernel_log_is_read_from_where_the_baseline_ended_or_from_where_it_is_told(shipped):
    def of(position):
        return readings.baseline(kernel_log=dict(readings.kernel_log("b"), position=position))

    baseline = of({"boot_id": "b", "seq": 7, "monotonic_us": 1})
    action = make(gpu_health, {"baseline": baseline}, facts())
    run(action)
    assert action.calls[0][1]["since"] == {"boot_id": "b", "seq": 7, "monotonic_us": 1}
    action = make(gpu_health, {"baseline": baseline, "since": {"boot_id": "c", "seq": 9}}, facts())
    run(action)
    assert action.calls[0][1]["since"] == {"boot_id": "c", "seq": 9, "monotonic_us": None}
    action = make(gpu_health, {"baseline": of({"boot_id": None, "seq": True})}, facts())
    run(action)
    assert "since" not in action.calls[0][1]


@pytest.mark.parametrize("fail_on, failed", [([], False), (["unknown"], False), (["fail"], True)])
def test_what_fails_the_task_can_be_chosen(shipped, fail_on, failed):
    result = run(
        make(gpu_health, {"phase": "post", "baseline": readings.baseline(), "fail_on": fail_on}, facts(broken()))
    )
    assert bool(result.get("failed")) is failed and result["health"]["verdict"] == "fail"


def test_unknown_fails_the_task_by_itself(shipped):
    result = run(make(gpu_health, {"phase": "post", "expect": readings.EXPECT}, facts()))
    assert result["failed"] is True and result["health"]["verdict"] == "unknown"


def test_a_waiver_is_passed_on(shipped):
    waivers = [{"check": "gpu.persistence", "reason": "on purpose", "expires": "2999-01-01"}]
    result = run(
        make(gpu_health, {"phase": "post", "baseline": readings.baseline(), "waivers": waivers}, facts(broken()))
    )
    assert result["health"]["verdict"] == "pass"
    assert [check["status"] for check in result["health"]["checks"] if check["id"] == "gpu.persistence"] == [
        "pass",
        "waived",
    ]


def test_the_tolerance_of_the_data_file_holds(shipped):
    snapshot = readings.snapshot()
    snapshot["gpus"][0]["memory_total_bytes"] = readings.value(85520809984 - 400000000)
    assert (
        run(make(gpu_health, {"phase": "post", "baseline": readings.baseline()}, facts(snapshot)))["health"]["verdict"]
        == "pass"
    )


@pytest.mark.parametrize(
    "args, text",
    [
        ({"phase": "later"}, "value of phase must be one of"),
        ({"baseline": {"schema": "x"}}, "gpu-1: the baseline has schema 'x'"),
        ({"baseline": readings.baseline(node="gpu-2")}, "that of node gpu-2, not of gpu-1"),
        ({"baseline": readings.baseline(), "baseline_file": "/x"}, "mutually exclusive"),
        (
            {"baseline_file": "/nonexistent/x.json"},
            "/nonexistent/x.json on the controller cannot be read: No such file",
        ),
        ({"waivers": [{"check": "gpu.nvlink", "reason": "y", "expires": "soon"}]}, "expires is 'soon'"),
        ({"waivers": [{"check": "x"}]}, "missing required arguments: expires, reason"),
        ({"surprise": 1}, "Unsupported parameters"),
        (
            {"waivers": [{"check": "gpu.nvlinks", "reason": "y", "expires": "2999-01-01"}]},
            r"option waivers: waivers\[0\].check is 'gpu.nvlinks', and there is no",
        ),
        (
            {"policy": {"ecc_volatile_uncorrected_max": "many"}},
            "option policy: the health policy says ecc_volatile_uncorrected_max = 'many'",
        ),
        (
            {"policy_file": "/nonexistent/p.yml"},
            "policy file /nonexistent/p.yml on the controller cannot be read: No such file",
        ),
        ({"mig_free_reading": readings.baseline(node="gpu-2")}, "that of node gpu-2, not of gpu-1"),
    ],
)
def test_bad_input_is_refused_before_the_node_is_asked(shipped, args, text):
    action = make(gpu_health, args)
    with pytest.raises(AnsibleActionFail, match=text):
        run(action)
    assert action.calls == []


def test_a_baseline_file_that_is_no_json_is_named(shipped, tmp_path):
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(AnsibleActionFail, match="b.json on the controller is not JSON"):
        run(make(gpu_health, {"baseline_file": str(tmp_path / "b.json")}))


@pytest.mark.parametrize("answer", [{"failed": True, "msg": "boom"}, {"changed": False}])
def test_a_node_that_answers_nothing_is_no_pass(shipped, answer):
    result = run(make(gpu_health, {"fail_on": []}, answer))
    assert result["failed"] is True and result["msg"] and "health" not in result


@pytest.fixture
def controller(monkeypatch, tmp_path):
    """A controller whose only installed distributions are those in the returned directory."""
    import sys

    monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    def use(*places):
        monkeypatch.setattr(sys, "path", [str(place) for place in places])
        import importlib

        importlib.invalidate_caches()

    return use


@pytest.mark.parametrize("version", wheels.VERSIONS)
def test_the_binding_of_nvidia_ml_py_is_sent(controller, version):
    controller(wheels.path(version))
    source = (wheels.path(version) / "pynvml.py").read_bytes()
    assert _binding.find() == (source, version, hashlib.sha256(source).hexdigest())


def is_refused(reason):
    with pytest.raises(_binding.BindingError, match=reason):
        _binding.find()


def test_without_nvidia_ml_py_there_is_advice(controller, tmp_path):
    controller(tmp_path)
    is_refused("the controller has no nvidia-ml-py; install nvidia-ml-py")


def test_another_pynvml_in_front_is_not_sent(controller, tmp_path):
    (tmp_path / "pynvml.py").write_text("evil = 1\n")
    controller(tmp_path, wheels.path(wheels.VERSIONS[0]))
    is_refused("is not that of nvidia-ml-py")


def test_a_package_called_pynvml_is_not_sent(controller, tmp_path):
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text("")
    controller(tmp_path, wheels.path(wheels.VERSIONS[0]))
    is_refused("is not that of nvidia-ml-py")


def test_a_file_that_another_package_overwrote_is_not_sent(controller, tmp_path):
    import shutil

    shutil.copytree(str(wheels.path(wheels.VERSIONS[0])), str(tmp_path / "site"))
    with open(str(tmp_path / "site" / "pynvml.py"), "a") as stream:
        stream.write("# overwritten\n")
    controller(tmp_path / "site")
    is_refused("is not the file that nvidia-ml-py 12.535.133 installed")
