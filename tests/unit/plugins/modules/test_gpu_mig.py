# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_mig: what its work is given, when it needs the lock, and which options go together."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _mig_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import task as mig_task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import holders
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_mig
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.modules import framed

pytestmark = pytest.mark.cores

CONFIG = {"config": {"version": "v1"}, "config_name": "wanted"}


@pytest.fixture
def play(monkeypatch, tmp_path):
    """play(result): (result of the module, the calls of its work)."""
    frame = framed.Frame(monkeypatch, str(tmp_path / "gpufleet.lock"))

    def run(result, **given):
        runtime = framed.Runtime(
            frame,
            "_mig.task",
            result,
            TaskError=mig_task.TaskError,
            Tools=lambda timeout_s, load, stuck_file: (timeout_s, bool(stuck_file)),
        )
        return frame.run(gpu_mig.main, options, runtime, **dict(CONFIG, **given)), runtime.seen

    run.frame = frame
    return run


def test_what_its_work_is_given(play):
    result, (((params, check_mode, tools, name_processes), holder),) = play(framed.answer(gpus=[]))
    assert (result["gpus"], params["config_name"], check_mode, tools) == (
        [],
        "wanted",
        False,
        (120, True),
    ) and name_processes == holders.named
    assert (holder["module"], holder["step"]) == ("gpu_mig", "MIG present")


@pytest.mark.parametrize(
    ("check_mode", "given"),
    [
        (True, {}),
        (False, {"state": "exported", "config": None}),
        (False, {"state": "generated", "config": None, "config_name": None}),
    ],
)
def test_who_changes_nothing_needs_no_lock(play, check_mode, given):
    with play.frame.taken(module="dkms_module"):
        result, seen = play(framed.answer(), check_mode=check_mode, **given)
    assert result["lock_waited_s"] is None and len(seen) == 1


def test_a_node_that_cannot_be_judged_fails(play):
    result, dummy = play(mig_task.TaskError("no such GPU", {"status": "stuck"}))
    assert result == {"failed": True, "msg": "no such GPU", "snapshot": {"status": "stuck"}}


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ({}, True),
        ({"binding_digest": None}, False),
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
def test_options_that_go_together(play, given, right):
    result, seen = play(framed.answer(), **given)
    assert (result.get("failed") is None, len(seen)) == (right, int(right))
