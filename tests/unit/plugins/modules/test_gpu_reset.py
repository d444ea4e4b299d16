# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_reset: what its work is given, and what it refuses before that."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _reset_options as options
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_reset
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.modules import framed

pytestmark = pytest.mark.cores


class Snapshot(framed.Runtime):
    """What node.ready answers: its snapshot notes how it is taken."""

    def take(self, **options):
        self.seen.append(options)
        return {"status": "ok"}


@pytest.fixture
def play(monkeypatch, tmp_path):
    """play(result): (result of the module, how it worked: [(run or preview, whether it may call commands, who held the
    lock)]).
    """
    frame = framed.Frame(monkeypatch, str(tmp_path / "gpufleet.lock"))
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
        run.runtime = Snapshot(frame, "_nvml.snapshot", None)
        return frame.run(gpu_reset.main, options, run.runtime, **dict({"gpus": ["all"]}, **given)), worked

    run.frame = frame
    return run


def test_what_its_work_is_given(play):
    result, ((way, given, holder),) = play(framed.answer(gpus=[]), rollout_id="r1", step="mig", timeout_s=7)
    assert result["gpus"] == [] and (way, given) == ("run", True)
    assert (holder["module"], holder["rollout_id"], holder["step"]) == ("gpu_reset", "r1", "mig")
    (taken,) = play.runtime.seen
    assert (taken["deadline_s"], taken["gather"], taken["load"]) == (7, ["ecc"], play.runtime.load_binding)
    assert taken["stuck_file"]


def test_check_mode_previews(play):
    with play.frame.taken(module="dkms_module"):
        result, worked = play(framed.answer(), check_mode=True)
    assert result["lock_waited_s"] is None and worked[0][:2] == ("preview", False)


def test_who_is_not_root_is_told_so_before_anything_is_read(play, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result, worked = play(framed.answer(), check_mode=True)
    assert result["failed"] is True and "become: true" in result["msg"] and worked == []


def test_a_node_on_which_nothing_can_be_decided_fails(play):
    result, dummy = play(gpu_reset.gpu_reset.ResetError("no such GPU", {"status": "stuck"}))
    assert result == {"failed": True, "msg": "no such GPU", "snapshot": {"status": "stuck"}}


@pytest.mark.parametrize(
    "given", [{"gpus": []}, {"gpus": [" "]}, {"timeout_s": 0}, {"reset_timeout_s": 0}, {"lock_timeout_s": -1}]
)
def test_options_that_do_not_do(play, given):
    result, worked = play(framed.answer(), **given)
    assert result["failed"] is True and worked == []


def test_the_archive_stays_out_of_the_logs():
    assert options.INTERNAL_SPEC["binding_archive"]["no_log"] is True
