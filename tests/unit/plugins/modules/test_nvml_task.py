# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frame of the modules that change GPUs: the lock around the work, who asks for the archive, and how a task
ends.
"""

from __future__ import annotations

import contextlib
import re
import types

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _mig_options, _nvml_task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.modules import framed

pytestmark = pytest.mark.cores

OPTIONS = types.SimpleNamespace(
    ARGUMENT_SPEC=dict(lock.ARGUMENTS, wrong={"type": "str"}),
    INTERNAL_SPEC=_mig_options.INTERNAL_SPEC,
    contradiction=lambda params: params["wrong"],
)


@pytest.fixture
def play(monkeypatch, tmp_path):
    """play(result): (result of a module whose work answers or raises that, the locks that its work held)."""
    frame = framed.Frame(monkeypatch, str(tmp_path / "gpufleet.lock"))

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

        return frame.run(lambda: Task().main(), OPTIONS, object(), **given), seen

    run.frame = frame
    return run


def test_it_works_under_the_lock(play):
    result, ((held, holder),) = play(framed.answer(), rollout_id="r1", step="mig")
    assert (result["changed"], result["msg"], "failed" in result, "warnings" in result) == (True, "done", False, False)
    assert play.frame.module.warnings == ["cache", "careful"] and result["lock_waited_s"] >= 0 and "diff" in result
    assert held and (holder["module"], holder["rollout_id"], holder["step"]) == ("gpu_example", "r1", "mig")
    assert play.frame.holder() is None
    assert play(framed.answer())[1][0][1]["step"] == "its own step"


def test_check_mode_needs_no_lock(play):
    with play.frame.taken(module="dkms_module"):
        result, seen = play(framed.answer(), check_mode=True)
    assert result["lock_waited_s"] is None and seen[0][0] is False


def test_a_lock_that_is_held_stops_it_and_names_the_holder(play):
    with play.frame.taken(module="dkms_module", step="build"):
        result, seen = play(framed.answer(), lock_timeout_s=0)
    assert (
        result["failed"] is True and result["lock"]["step"] == "build" and "dkms_module" in result["msg"] and seen == []
    )


def test_who_is_not_root_is_told_so(play, monkeypatch):
    @contextlib.contextmanager
    def denied(owner, timeout_s):
        if owner is not None:
            raise PermissionError(13, "Permission denied", "/run/gpufleet.lock")
        yield

    monkeypatch.setattr(lock, "NodeLock", denied)
    result, seen = play(framed.answer())
    assert result["failed"] is True and "an example needs root (become: true)" in result["msg"] and seen == []


@pytest.mark.parametrize(("snapshot", "more"), [(None, {}), ({"status": "stuck"}, {"snapshot": {"status": "stuck"}})])
def test_work_that_was_not_done_fails(play, snapshot, more):
    assert play(_nvml_task.Undone("no such GPU", snapshot))[0] == dict({"failed": True, "msg": "no such GPU"}, **more)
    assert play.frame.holder() is None


def test_a_failure_has_all_rows(play):
    result, dummy = play(framed.answer(failed=True, gpus=[{"status": "refused"}]), diff=False)
    assert result["failed"] is True and result["changed"] is True and result["gpus"] == [{"status": "refused"}]
    assert "diff" not in result


def test_the_node_asks_for_the_archive(play):
    result, seen = play(framed.answer(), ready=lambda *args: (None, ["tampered"]))
    assert result == {"changed": False, "needs_binding": True} and seen == []
    assert play.frame.module.warnings == ["tampered"]


def test_an_archive_that_is_wrong_fails(play):
    def ready(*args):
        raise binding.CacheError("no match")

    result, seen = play(framed.answer(), ready=ready)
    assert result["failed"] is True and result["msg"] == "nothing was done: no match" and seen == []


@pytest.mark.parametrize(
    ("given", "text"), [({"wrong": "no setting"}, "no setting"), ({"binding_digest": None}, "action")]
)
def test_options_that_do_not_do(play, given, text):
    result, seen = play(framed.answer(), **given)
    assert result["failed"] is True and text in result["msg"] and seen == []


def test_the_frame_brings_no_code_that_lies_in_the_archive():
    with open(_nvml_task.__file__, encoding="utf-8") as stream:
        imported = re.findall(r"^from ansible_collections\S*\._nvml import (.*)$", stream.read(), re.MULTILINE)
    assert imported == ["binding, node"]
