# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that change GPUs: the frame that they share (_nvml_task), and what the work of gpu_settings, gpu_mig and
gpu_reset is given. They run without a node: with a lock below a directory, and without a binding.
"""

from __future__ import annotations

import contextlib
import os
import re
import types

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import (
    _mig_options,
    _nvml_task,
    _reset_options,
    _settings_options,
)
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import task as mig_task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import holders, lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import table as settings
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import task as settings_task
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_mig, gpu_reset, gpu_settings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins import locks

pytestmark = pytest.mark.cores


class Done(Exception):
    pass


class FakeModule:
    """What the frame needs of AnsibleModule."""

    def __init__(self, options, given, check_mode, diff):
        spec = dict(options.ARGUMENT_SPEC, **binding.ARGUMENTS)
        self.params = dict((name, option.get("default")) for name, option in spec.items())
        self.params.update(given)
        self.check_mode, self._diff = check_mode, diff
        self.warnings = []
        self._remote_tmp = "/tmp/x"

    def warn(self, text):
        self.warnings.append(text)

    def exit_json(self, **result):
        self.result = result
        raise Done()

    def fail_json(self, **result):
        self.exit_json(**dict(result, failed=True))


class Frame:
    """Runs the modules of a test; the last AnsibleModule is in module."""

    def __init__(self, monkeypatch, path):
        self.monkeypatch, self.path, self.real = monkeypatch, path, lock.NodeLock
        self.module = None
        monkeypatch.setattr(
            lock, "NodeLock", lambda owner, timeout_s: self.real(path=path, owner=owner, timeout_s=timeout_s)
        )
        monkeypatch.setattr(lock, "ignore_hangup", lambda: None)

    def taken(self, **owner):
        """The lock, taken by another."""
        return self.real(path=self.path, owner=owner)

    def holder(self):
        """Who holds the lock; None where it is free."""
        return lock.read_json(self.path) if locks.is_held(self.path) else None

    def run(self, main, options, check_mode=False, diff=True, **given):
        """Return the result of MAIN, the main function of a module with OPTIONS."""
        self.module = FakeModule(options, given, check_mode, diff)
        self.monkeypatch.setattr(_nvml_task, "AnsibleModule", lambda **spec: self.module)
        with pytest.raises(Done):
            main()
        return self.module.result


def answer(**more):
    """A result of the work of a module."""
    return dict({"changed": True, "warnings": ["careful"], "diff": {"before": {}, "after": {}}, "msg": "done"}, **more)


class Work:
    """The work of a module. It notes each call and who held the lock, and answers RESULT or raises it."""

    def __init__(self, frame, result):
        self.frame, self.result, self.seen = frame, result, []

    def __call__(self, *arguments):
        self.seen.append((arguments, self.frame.holder()))
        if isinstance(self.result, Exception):
            raise self.result
        return dict(self.result)


@pytest.fixture
def frame(monkeypatch, tmp_path):
    return Frame(monkeypatch, str(tmp_path / "gpufleet.lock"))


OPTIONS = types.SimpleNamespace(
    ARGUMENT_SPEC=dict(lock.ARGUMENTS, wrong={"type": "str"}), contradiction=lambda params: params["wrong"]
)


@pytest.fixture
def play(frame):
    """play(result): (result of a module whose work answers or raises that, the locks that its work held)."""

    def run(result, **given):
        seen = []

        class Task(_nvml_task.NvmlTask):
            name, options, undone, subject = "gpu_example", OPTIONS, "nothing was done", "an example"

            def step(self):
                return "its own step"

            def work(self, held):
                seen.append((held is not None, frame.holder()))
                if isinstance(result, Exception):
                    raise result
                return dict(result)

        return frame.run(lambda: Task().main(), OPTIONS, **given), seen

    return run


def test_it_works_under_the_lock(play, frame):
    result, ((held, holder),) = play(answer(), rollout_id="r1", step="mig")
    assert (result["changed"], result["msg"], "failed" in result, "warnings" in result) == (True, "done", False, False)
    assert frame.module.warnings == ["careful"] and result["lock_waited_s"] >= 0 and "diff" in result
    assert held and (holder["module"], holder["rollout_id"], holder["step"]) == ("gpu_example", "r1", "mig")
    assert frame.holder() is None
    assert play(answer())[1][0][1]["step"] == "its own step"


def test_check_mode_needs_no_lock(play, frame):
    with frame.taken(module="dkms_module"):
        result, seen = play(answer(), check_mode=True)
    assert result["lock_waited_s"] is None and seen[0][0] is False


def test_a_lock_that_is_held_stops_it_and_names_the_holder(play, frame):
    with frame.taken(module="dkms_module", step="build"):
        result, seen = play(answer(), lock_timeout_s=0)
    assert result["failed"] is True and result["lock"]["step"] == "build" and "dkms_module" in result["msg"]
    assert seen == []


def test_who_is_not_root_is_told_so(play, monkeypatch):
    @contextlib.contextmanager
    def denied(owner, timeout_s):
        if owner is not None:
            raise PermissionError(13, "Permission denied", "/run/gpufleet.lock")
        yield

    monkeypatch.setattr(lock, "NodeLock", denied)
    result, seen = play(answer())
    assert result["failed"] is True and "an example needs root (become: true)" in result["msg"] and seen == []


@pytest.mark.parametrize(("snapshot", "more"), [(None, {}), ({"status": "stuck"}, {"snapshot": {"status": "stuck"}})])
def test_work_that_was_not_done_fails(play, frame, snapshot, more):
    assert play(_nvml_task.Undone("no such GPU", snapshot))[0] == dict({"failed": True, "msg": "no such GPU"}, **more)
    assert frame.holder() is None


def test_a_failure_has_all_rows(play):
    result, dummy = play(answer(failed=True, gpus=[{"status": "refused"}]), diff=False)
    assert result["failed"] is True and result["changed"] is True and result["gpus"] == [{"status": "refused"}]
    assert "diff" not in result


def test_node_without_the_binding_asks_for_it(play):
    result, seen = play(answer(), binding={"digest": "d" * 64, "version": "1", "source": None})
    assert result == {"changed": False, "needs_binding": True} and seen == []


def test_binding_that_is_wrong_fails(play):
    result, seen = play(answer(), binding={"digest": "d" * 64, "version": "1", "source": "x"})
    assert result["failed"] is True and result["msg"].startswith("nothing was done: ") and seen == []


def test_options_that_do_not_go_together_fail(play):
    result, seen = play(answer(), wrong="no setting")
    assert result["failed"] is True and "no setting" in result["msg"] and seen == []


# ---- gpu_settings ----


@pytest.fixture
def play_settings(frame):
    """play_settings(result): (result of the module, the calls of its work)."""

    def run(result, **given):
        work = Work(frame, result)
        frame.monkeypatch.setattr(settings_task, "run", work)
        return frame.run(gpu_settings.main, _settings_options, **dict({"power_limit_w": "500"}, **given)), work.seen

    return run


def test_settings_get_options_binding_and_lock(play_settings):
    result, (((params, check_mode, load, stuck_file), holder),) = play_settings(answer(settings=[]))
    assert (result["settings"], params["power_limit_w"], check_mode) == ([], "500", False)
    assert isinstance(load.__self__, binding.Binding) and stuck_file == load.__self__.stuck_file
    assert (holder["module"], holder["step"]) == ("gpu_settings", "settings present")


def test_settings_fail_without_a_setting(play_settings):
    result, seen = play_settings(answer(), power_limit_w=None)
    assert result["failed"] is True and "no setting is named" in result["msg"] and seen == []


def test_every_setting_is_documented():
    choices = re.search(r"\n  settings:.*?choices: \[(.*?)\]", gpu_settings.DOCUMENTATION, re.DOTALL).group(1)
    assert re.split(r",\s+", choices) == sorted(settings.NAMES)


# ---- gpu_mig ----


@pytest.fixture
def play_mig(frame):
    """play_mig(result): (result of the module, the calls of its work)."""

    def run(result, **given):
        work = Work(frame, result)
        frame.monkeypatch.setattr(mig_task, "run", work)
        wanted = dict({"config": {"version": "v1"}, "config_name": "wanted"}, **given)
        return frame.run(gpu_mig.main, _mig_options, **wanted), work.seen

    return run


def test_mig_gets_options_tools_and_lock(play_mig):
    result, (((params, check_mode, tools, name_processes), holder),) = play_mig(answer(gpus=[]))
    assert (result["gpus"], params["config_name"], check_mode) == ([], "wanted", False)
    assert (tools.timeout_s, tools.stuck_file) == (120, tools.load.__self__.stuck_file)
    assert name_processes == holders.name_holders
    assert (holder["module"], holder["step"]) == ("gpu_mig", "MIG present")


@pytest.mark.parametrize(
    ("check_mode", "given"),
    [
        (True, {}),
        (False, {"state": "exported", "config": None}),
        (False, {"state": "generated", "config": None, "config_name": None}),
    ],
)
def test_mig_that_changes_nothing_needs_no_lock(play_mig, frame, check_mode, given):
    with frame.taken(module="dkms_module"):
        result, seen = play_mig(answer(), check_mode=check_mode, **given)
    assert result["lock_waited_s"] is None and len(seen) == 1


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ({}, True),
        ({"config_name": None}, False),
        ({"config": None}, False),
        ({"timeout_s": 0}, False),
        ({"lock_timeout_s": -1}, False),
        ({"state": "cleared"}, False),
        ({"state": "cleared", "config": None, "config_name": None}, True),
        ({"state": "exported", "config": None}, True),
        ({"state": "exported"}, False),
        ({"state": "generated", "config": None}, False),
        ({"config": None, "config_name": None, "layout": []}, False),
        ({"config": None, "config_name": None, "layout": [{"mig_enabled": False}]}, True),
        ({"config": None, "layout": [{"mig_enabled": False}]}, False),
        ({"baseline": {}}, False),
        ({"state": "restored", "config": None, "config_name": None}, False),
    ],
)
def test_mig_options_that_go_together(play_mig, given, right):
    result, seen = play_mig(answer(), **given)
    assert (result.get("failed") is None, len(seen)) == (right, int(right))


# ---- gpu_reset ----


@pytest.fixture
def play_reset(monkeypatch, frame):
    """play_reset(result): (result of the module, [(run or preview, whether it calls commands, who held the lock)])."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def run(result, **given):
        worked = []

        class GpuReset:
            def __init__(self, params, take, command=None, run=None):
                self.take, self.given = take, command is not None and run is not None

            def carry_out(self, way):
                self.take(["ecc"])
                worked.append((way, self.given, frame.holder()))
                if isinstance(result, Exception):
                    raise result
                return dict(result)

            def run(self):
                return self.carry_out("run")

            def preview(self):
                return self.carry_out("preview")

        monkeypatch.setattr(gpu_reset.gpu_reset, "GpuReset", GpuReset)
        run.taken = []
        monkeypatch.setattr(gpu_reset.snapshot, "take", lambda *args: run.taken.append(args))
        return frame.run(gpu_reset.main, _reset_options, **dict({"gpus": ["all"]}, **given)), worked

    return run


def test_reset_gets_options_snapshot_and_lock(play_reset):
    result, ((way, given, holder),) = play_reset(answer(gpus=[]), rollout_id="r1", step="mig", timeout_s=7)
    assert result["gpus"] == [] and (way, given) == ("run", True)
    assert (holder["module"], holder["rollout_id"], holder["step"]) == ("gpu_reset", "r1", "mig")
    ((deadline_s, stuck_file, gather, load),) = play_reset.taken
    assert (deadline_s, stuck_file, gather) == (7, load.__self__.stuck_file, ["ecc"])


def test_reset_in_check_mode_previews(play_reset, frame):
    with frame.taken(module="dkms_module"):
        result, worked = play_reset(answer(), check_mode=True)
    assert result["lock_waited_s"] is None and worked[0][:2] == ("preview", False)


def test_reset_without_root_fails_before_anything_is_read(play_reset, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result, worked = play_reset(answer(), check_mode=True)
    assert result["failed"] is True and "become: true" in result["msg"] and worked == []


@pytest.mark.parametrize(
    "module, error",
    [("settings", settings_task.TaskError), ("mig", mig_task.TaskError), ("reset", gpu_reset.gpu_reset.ResetError)],
)
def test_a_node_that_cannot_be_judged_fails_with_its_snapshot(request, module, error):
    result = request.getfixturevalue("play_" + module)(error("no such GPU", {"status": "stuck"}))[0]
    assert result == {"failed": True, "msg": "no such GPU", "snapshot": {"status": "stuck"}}


@pytest.mark.parametrize(
    "given", [{"gpus": []}, {"gpus": [" "]}, {"timeout_s": 0}, {"reset_timeout_s": 0}, {"lock_timeout_s": -1}]
)
def test_reset_options_that_do_not_do(play_reset, given):
    result, worked = play_reset(answer(), **given)
    assert result["failed"] is True and worked == []
