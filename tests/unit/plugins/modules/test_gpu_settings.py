# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_settings: the lock around it, what it passes on, and how it ends."""

from __future__ import annotations

import contextlib
import re

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import table as settings
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import task as settings_task
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_settings

pytestmark = pytest.mark.cores


class Done(Exception):
    pass


class FakeModule:
    """What the module needs of AnsibleModule; the last one made is in LAST."""

    last = None

    def __init__(self, given, check_mode, diff):
        self.params = dict((name, option.get("default")) for name, option in dict(options.ARGUMENT_SPEC, **options.INTERNAL_SPEC).items())
        self.params.update({"power_limit_w": "500", "binding_digest": "d" * 64}, **given)
        self.check_mode, self._diff = check_mode, diff
        self.warnings = []
        self._remote_tmp = "/tmp/x"
        FakeModule.last = self

    def warn(self, text):
        self.warnings.append(text)

    def exit_json(self, **result):
        self.result = result
        raise Done()

    def fail_json(self, **result):
        self.exit_json(**dict(result, failed=True))


class Runtime:
    """What node.ready answers: its settings.task notes whether the lock was held, and answers RESULT or raises it."""

    TaskError = settings_task.TaskError

    def __init__(self, result, path):
        self.result, self.path, self.seen = result, path, []

    def module(self, name):
        assert name == "settings.task"
        return self

    def load_binding(self):
        raise AssertionError("only the child loads the binding")

    def run(self, params, check_mode, load, stuck_file):
        self.seen.append((check_mode, load == self.load_binding, gpu_settings.lock.is_held(self.path), gpu_settings.lock.read_json(self.path)))
        if isinstance(self.result, Exception):
            raise self.result
        return dict(self.result)


def answer(**more):
    return dict({"changed": True, "settings": [], "failures": [], "warnings": ["careful"], "diff": {"before": {}, "after": {}}, "msg": "done"}, **more)


@pytest.fixture
def play(monkeypatch, tmp_path):
    path = str(tmp_path / "gpufleet.lock")
    real = gpu_settings.lock.NodeLock
    monkeypatch.setattr(gpu_settings.lock, "NodeLock", lambda owner, timeout_s: real(path=path, owner=owner, timeout_s=timeout_s))
    monkeypatch.setattr(gpu_settings.lock, "ignore_hangup", lambda: None)

    def run(result, check_mode=False, diff=True, ready=None, **given):
        runtime = Runtime(result, path)
        monkeypatch.setattr(gpu_settings, "AnsibleModule", lambda **spec: FakeModule(given, check_mode, diff))
        monkeypatch.setattr(gpu_settings.node, "ready", ready or (lambda *args: (runtime, ["cache"])))
        with pytest.raises(Done):
            gpu_settings.main()
        return FakeModule.last.result, runtime.seen

    run.path = path
    run.lock = real
    return run


def test_it_works_under_the_lock(play):
    result, seen = play(answer(), rollout_id="r1", step="restore")
    assert (result["changed"], result["msg"], "failed" in result, "warnings" in result) == (True, "done", False, False)
    assert FakeModule.last.warnings == ["cache", "careful"] and result["lock_waited_s"] >= 0
    check_mode, load, held, holder = seen[0]
    assert (check_mode, load, held) == (False, True, True)
    assert (holder["module"], holder["rollout_id"], holder["step"]) == ("gpu_settings", "r1", "restore")
    assert gpu_settings.lock.is_held(play.path) is False


def test_check_mode_needs_no_lock(play):
    with play.lock(path=play.path, owner={}):
        result, seen = play(answer(), check_mode=True)
    assert result["lock_waited_s"] is None and seen[0][0] is True and "diff" in result


def test_a_lock_that_is_held_stops_it_and_names_the_holder(play):
    with play.lock(path=play.path, owner={"module": "dkms_module", "step": "build"}):
        result, seen = play(answer(), lock_timeout_s=0)
    assert result["failed"] is True and "The node is locked" in result["msg"] and "module dkms_module" in result["msg"]
    assert result["lock"]["step"] == "build" and seen == []


def test_who_is_not_root_is_told_so(play, monkeypatch):
    @contextlib.contextmanager
    def denied(owner, timeout_s):
        if owner is not None:
            raise PermissionError(13, "Permission denied", "/run/gpufleet.lock")
        yield

    monkeypatch.setattr(gpu_settings.lock, "NodeLock", denied)
    result, seen = play(answer())
    assert result["failed"] is True and "changing GPU settings needs root (become: true)" in result["msg"] and seen == []


def test_a_failed_setting_fails_the_task_with_all_rows(play):
    result, dummy = play(answer(failed=True, msg="1 of 2 settings failed", settings=[{"status": "failed"}]), diff=False)
    assert result["failed"] is True and result["changed"] is True and result["settings"] == [{"status": "failed"}] and "diff" not in result


@pytest.mark.parametrize("problem, more", [
    (settings_task.TaskError("no such GPU"), {}), (settings_task.TaskError("no such GPU", {"status": "stuck"}), {"snapshot": {"status": "stuck"}})])
def test_a_node_that_cannot_be_set_fails(play, problem, more):
    result, seen = play(problem)
    assert result == dict({"failed": True, "msg": "no such GPU"}, **more) and len(seen) == 1
    assert gpu_settings.lock.is_held(play.path) is False


def test_the_node_asks_for_the_binding(play):
    result, seen = play(answer(), ready=lambda *args: (None, ["tampered"]))
    assert result == {"changed": False, "needs_binding": True} and FakeModule.last.warnings == ["tampered"] and seen == []


def test_an_archive_that_is_wrong_fails(play):
    def ready(*args):
        raise binding.CacheError("no match")

    assert play(answer(), ready=ready)[0]["msg"] == "nothing was set: no match"


@pytest.mark.parametrize("given, text", [({"power_limit_w": None}, "no setting is named"), ({"binding_digest": None}, "the action plugin did not run")])
def test_options_that_do_not_do(play, given, text):
    result, seen = play(answer(), **given)
    assert result["failed"] is True and text in result["msg"] and seen == []


def test_every_setting_is_documented():
    choices = re.search(r"\n  settings:.*?choices: \[(.*?)\]", gpu_settings.DOCUMENTATION, re.DOTALL).group(1)
    assert choices.split(", ") == sorted(settings.NAMES)


def test_the_module_brings_no_code_that_lies_in_the_archive():
    with open(gpu_settings.__file__, encoding="utf-8") as stream:
        imported = re.findall(r"^from ansible_collections\S*\._nvml import (.*)$", stream.read(), re.MULTILINE)
    assert imported == ["binding, node"]


def test_the_archive_stays_out_of_the_logs():
    assert options.INTERNAL_SPEC["binding_archive"]["no_log"] is True
