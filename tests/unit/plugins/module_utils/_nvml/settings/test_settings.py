# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be set, what the node remembers of it, and what the table of settings and the task say of each."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes, session, snapshot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import plan as settings_plan
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import state as settings_state
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import table as settings
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import task as settings_task
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings import settingsnode
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings.settingsnode import (
    LOAD,
    LOCK,
    OK,
    UUID,
    gpu,
    refused,
    wish,
)


@pytest.mark.pythons
def test_what_is_kept_comes_back(tmp_path):
    place = str(tmp_path / "state")
    assert settings_state.read_state(place) == {}
    kept = {UUID: {"locked_graphics_clocks_mhz": {"value": LOCK, "load": LOAD}}}
    settings_state.write(kept, place)
    assert settings_state.read_state(place) == kept and os.listdir(place) == ["settings.json"]
    settings_state.write({}, place)
    assert settings_state.read_state(place) == {}


@pytest.mark.pythons
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": "x", "gpus": {}}',
        '{"schema": "gpufleet.settings/1", "gpus": []}',
        '{"schema": "gpufleet.settings/1", "gpus": {"a": {"b": {}}}}',
        '{"schema": "gpufleet.settings/1", "gpus": {"a": 1}}',
        '{"schema": "gpufleet.settings/1", "gpus": {"a": {"b": {"value": 1, "load": "x"}}}}',
    ],
)
def test_a_file_that_is_damaged_is_an_error(tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(settings_state.StateError, match="settings.json is damaged"):
        settings_state.read_state(str(tmp_path))


@pytest.mark.pythons
def test_a_file_that_others_can_change_or_that_is_a_link_is_not_used(tmp_path):
    settings_state.write({}, str(tmp_path))
    os.chmod(str(tmp_path / "settings.json"), 0o666)
    with pytest.raises(settings_state.StateError, match="others than root can change it"):
        settings_state.read_state(str(tmp_path))
    os.rename(str(tmp_path / "settings.json"), str(tmp_path / "other"))
    os.symlink("other", str(tmp_path / "settings.json"))
    with pytest.raises(settings_state.StateError, match="it is a link"):
        settings_state.read_state(str(tmp_path))


@pytest.mark.pythons
def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(settings_state.StateError, match="cannot be written"):
        settings_state.write({}, str(tmp_path / "state"))


@pytest.mark.pythons
def test_the_mark_of_a_load(tmp_path):
    assert settings_state.load_mark(str(tmp_path)) is None
    boot = tmp_path / "proc/sys/kernel/random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("11111111-2222-3333-4444-555555555555\n")
    assert settings_state.load_mark(str(tmp_path)) is None
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    first = settings_state.load_mark(str(tmp_path))
    assert first.startswith("11111111-") and settings_state.load_mark(str(tmp_path)) == first
    (boot / "boot_id").write_text("99999999-2222-3333-4444-555555555555\n")
    assert settings_state.load_mark(str(tmp_path)) not in (None, first)


@pytest.mark.pythons
@pytest.mark.parametrize(
    "pid, comm, runs",
    [("7\n", "nvidia-persiste\n", True), ("7", "bash\n", False), ("8", "nvidia-persiste\n", False), ("x", "", False)],
)
@pytest.mark.parametrize("uid, is_system", [(0, True), (None, True), (1000, False)])
def test_whether_the_daemon_runs(tmp_path, pid, comm, runs, uid, is_system):
    (tmp_path / "run/nvidia-persistenced").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "run/nvidia-persistenced/nvidia-persistenced.pid").write_text(pid)
    (tmp_path / "proc/7/comm").write_text(comm)
    owner = (tmp_path / "run/nvidia-persistenced").stat().st_uid if uid is None else uid
    (tmp_path / "proc/7/status").write_text("Name:\tx\nUid:\t%d\t%d\t%d\t%d\n" % ((owner,) * 4))
    assert settings_state.daemon_runs(str(tmp_path), str(tmp_path / "proc")) is (runs and is_system)
    assert settings_state.daemon_runs(str(tmp_path / "none"), str(tmp_path / "proc")) is False


class Binding:
    """A binding that notes its calls and refuses those in FAIL."""

    class NVMLError(Exception):
        def __init__(self, value):
            super().__init__(value)
            self.value = value

    def __init__(self, fail=None):
        self.fail, self.calls = fail or {}, []

    def nvmlInit(self):
        self._enter("nvmlInit")

    def nvmlShutdown(self):
        self._enter("nvmlShutdown")

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self._enter("nvmlDeviceGetHandleByUUID")
        return uuid

    def _enter(self, symbol):
        self.calls.append(symbol)
        if symbol in self.fail:
            raise self.NVMLError(self.fail[symbol])

    def _nvmlGetFunctionPointer(self, symbol):
        def call(handle, *arguments):
            self.calls.append((symbol, handle) + tuple(argument.value for argument in arguments))
            return self.fail.get((symbol, handle), 0)

        return call


def step(gpu, symbol, *arguments, optional=False):
    return {"gpu": gpu, "setting": "x", "symbol": symbol, "arguments": list(arguments), "optional": optional}


STEPS = [step("GPU-0", "A", 3), step("GPU-0", "B", 7), step("GPU-1", "B", 1, 2)]


def test_the_steps_are_called_in_their_order():
    nvml, places = Binding(), []
    assert settings.act(nvml, STEPS, places.append) == [OK, OK, OK]
    assert [call for call in nvml.calls if isinstance(call, tuple)] == [
        ("A", "GPU-0", 3),
        ("B", "GPU-0", 7),
        ("B", "GPU-1", 1, 2),
    ]
    assert (nvml.calls[0], nvml.calls[-1]) == ("nvmlInit", "nvmlShutdown")
    assert "B of GPU-1" in places


def test_after_a_failure_other_gpus_go_on():
    nvml = Binding({("A", "GPU-0"): 999})
    assert settings.act(nvml, STEPS) == [refused(999), refused(999, False), OK]
    assert [call[0] for call in nvml.calls if isinstance(call, tuple)] == ["A", "B"]
    for rc in settings.UNSUPPORTED:
        assert settings.act(Binding({("A", "GPU-0"): rc}), STEPS) == [refused(rc), refused(rc, False), OK]
        assert settings.act(Binding({("A", "GPU-0"): rc}), [step("GPU-0", "A", optional=True)] + STEPS[1:]) == [
            refused(rc),
            OK,
            OK,
        ]
    assert settings.act(Binding({("A", "GPU-0"): 4}), [step("GPU-0", "A", optional=True)] + STEPS[1:]) == [
        refused(4),
        refused(4, False),
        OK,
    ]
    assert settings.act(Binding({"nvmlDeviceGetHandleByUUID": 15}), STEPS) == [
        refused(15),
        refused(15, False),
        refused(15),
    ]
    assert settings.act(Binding({"nvmlInit": 9}), STEPS) == [refused(9, False)] * 3


def taken(*gpus, **more):
    found = snapshot.make_blank("ok", "", 0)
    found.update(gpus=list(gpus), system={"driver_version": codes.value("1")}, **more)
    return found


def run(tmp_path, looks, child=None, check=False, **given):
    left = list(looks)
    return settings_task.run(
        settingsnode.complete(given),
        check,
        root=str(tmp_path),
        state_directory=str(tmp_path / "state"),
        take=lambda **options: left.pop(0),
        child=child,
    )


def test_nothing_is_called_in_check_mode_or_if_nothing_is_due(tmp_path):
    assert run(tmp_path, [taken(gpu())], check=True, power_limit_w=500)["changed"] is True
    result = run(tmp_path, [taken(gpu())], power_limit_w=700)
    assert result["changed"] is False and result["msg"] == "GPU settings: 1 same"
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("status", ["timeout", "stuck", "crashed"])
def test_a_child_without_an_answer_is_a_failure_whatever_is_read_back(tmp_path, status):
    outcome = session.Outcome(status, None, "NVML did not answer")
    for after in (gpu(power_limit_mw=500000), gpu()):
        result = run(tmp_path, [taken(gpu()), taken(after)], child=lambda *args: outcome, power_limit_w=500)
        assert result["failed"] is True and "NVML did not answer" in result["msg"]
        assert result["changed"] is (after["power_limit_mw"]["value"] == 500000)


def test_what_cannot_be_read_back_is_a_failure(tmp_path):
    outcome = session.Outcome("ok", [OK], "")
    result = run(
        tmp_path,
        [taken(gpu()), snapshot.make_blank("timeout", "it hangs")],
        child=lambda *args: outcome,
        power_limit_w=500,
    )
    assert result["failed"] is True and "it cannot be read back" in result["msg"]
    assert "what was set could not be read back: it hangs" in result["warnings"][0]


def test_a_node_without_gpus_has_no_settings(tmp_path):
    with pytest.raises(settings_task.TaskError, match="NVML shows no GPU"):
        run(tmp_path, [taken()], power_limit_w=500)


def test_clocks_that_cannot_be_remembered_are_a_failure(tmp_path):
    (tmp_path / "state").write_text("")
    outcome = session.Outcome("ok", [OK], "")
    result = run(tmp_path, [taken(gpu()), taken(gpu())], child=lambda *args: outcome, locked_graphics_clocks_mhz=LOCK)
    assert result["failed"] is True and "cannot be remembered for the next reload" in result["msg"]


@pytest.mark.parametrize("status", ["no_binding", "nvml_error", "timeout", "stuck"])
def test_a_node_that_cannot_be_read_is_left_alone(tmp_path, status):
    with pytest.raises(settings_task.TaskError, match="NVML cannot be read .%s., and nothing was set: why" % (status,)):
        run(tmp_path, [snapshot.make_blank(status, "why")], power_limit_w=500)


@pytest.mark.parametrize(
    "given, wanted",
    [
        ({"power_limit_w": "500"}, 500000),
        ({"power_limit_w": "499.5"}, 499500),
        ({"power_limit_w": "default"}, "default"),
        ({"application_clocks_mhz": {"graphics": 1410, "memory": 2619}}, {"graphics": 1410, "mem": 2619}),
        ({"application_clocks_mhz": {"default": True}}, "default"),
        ({"locked_graphics_clocks_mhz": {"min": 1000, "max": 1500}}, LOCK),
        ({"locked_memory_clocks_mhz": {"unlocked": True}}, "unlocked"),
        ({"compute_mode": "exclusive_process"}, 3),
        ({"compute_mode": "prohibited"}, 2),
        ({"compute_mode": "default"}, 0),
        ({"persistence_mode": True}, 1),
        ({"ecc_mode": False}, 0),
    ],
)
def test_wishes_of_a_task(given, wanted):
    assert settings_plan.list_task_wishes(settingsnode.complete(given)) == {
        list(given)[0]: {"value": wanted, "explicit": True}
    }


@pytest.mark.parametrize(
    "given, text",
    [
        ({"power_limit_w": "much"}, "power_limit_w is 'much'; expected a number of watts"),
        ({"power_limit_w": "0"}, "power_limit_w is '0'"),
        ({"power_limit_w": "nan"}, "power_limit_w is 'nan'"),
        ({"power_limit_w": "-5"}, "power_limit_w is '-5'"),
        ({"application_clocks_mhz": {}}, "application_clocks_mhz needs default: true"),
        ({"application_clocks_mhz": {"graphics": 0, "memory": 1}}, "application_"),
        ({"locked_graphics_clocks_mhz": {}}, "locked_graphics_clocks_mhz needs unlocked: true"),
        ({"locked_memory_clocks_mhz": {"min": 5, "max": 4}}, "min no higher than max"),
        ({"locked_memory_clocks_mhz": {"min": 1, "max": 4}}, "locked_memory"),
    ],
)
def test_wishes_that_cannot_be_understood(given, text):
    with pytest.raises(settings.WishError) as refused:
        settings_plan.list_task_wishes(settingsnode.complete(given))
    assert text in str(refused.value)


def test_wishes_of_a_baseline():
    kept = {
        "locked_graphics_clocks_mhz": {"value": LOCK, "load": "other"},
        "locked_memory_clocks_mhz": {"value": "unlocked", "load": LOAD},
    }
    old = gpu(power_limit_mw=500000, ecc_mode_current=1, ecc_mode_pending=0, compute_mode=3)
    assert settings_plan.list_baseline_wishes(old, kept) == {
        "persistence_mode": wish(1, False),
        "compute_mode": wish(3, False),
        "power_limit_w": wish(500000, False),
        "ecc_mode": wish(0, False),
        "application_clocks_mhz": wish({"graphics": 1980, "mem": 2619}, False, was_default=True),
        "locked_graphics_clocks_mhz": wish(LOCK),
    }
    assert settings_plan.list_baseline_wishes(old, None, ["power_limit_w", "locked_graphics_clocks_mhz"]) == {
        "power_limit_w": wish(500000, False)
    }
    for entry in ((3,), (26,), {"graphics": None, "mem": 1}):
        assert settings_plan.list_baseline_wishes(
            gpu(applications_clocks_mhz=entry), None, ["application_clocks_mhz"]
        ) == {"application_clocks_mhz": wish(None, False)}
    # In MIG mode the GPU has no compute mode of its own; out of it, the same code is an error.
    assert settings_plan.list_baseline_wishes(gpu(compute_mode=(2,), mig_mode_current=1), None, ["compute_mode"]) == {
        "compute_mode": wish(None, False)
    }
    assert (
        "problem" in settings_plan.list_baseline_wishes(gpu(compute_mode=(2,)), None, ["compute_mode"])["compute_mode"]
    )
    for entry in (1, [], {"graphics": "fast", "mem": 1}):
        assert (
            "problem"
            in settings_plan.list_baseline_wishes(gpu(applications_clocks_mhz=entry), None, ["application_clocks_mhz"])[
                "application_clocks_mhz"
            ]
        )


@pytest.mark.parametrize("entry", [(15,), (codes.UNREADABLE,), "high", True, -1, None, {"graphics": 1}])
def test_a_baseline_that_does_not_tell_is_no_wish(entry):
    problem = settings_plan.list_baseline_wishes(gpu(power_limit_mw=entry), None, ["power_limit_w"])["power_limit_w"][
        "problem"
    ]
    assert "the baseline does not tell power_limit_mw of this GPU" in problem and "take a new baseline" in problem
    for old in (dict(gpu(), power_limit_mw=7), dict(gpu(), power_limit_mw={})):
        assert (
            "the baseline has no power_limit_mw"
            in settings_plan.list_baseline_wishes(old, None, ["power_limit_w"])["power_limit_w"]["problem"]
        )
