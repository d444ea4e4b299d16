# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_settings: what its work is given, and its options."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible; what they call is tested without it")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import table as settings
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import task as settings_task
from ansible_collections.gpufleet.lifecycle.plugins.modules import gpu_settings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.modules import framed

pytestmark = pytest.mark.cores


@pytest.fixture
def play(monkeypatch, tmp_path):
    """play(result): (result of the module, the calls of its work)."""
    frame = framed.Frame(monkeypatch, str(tmp_path / "gpufleet.lock"))

    def run(result, **given):
        runtime = framed.Runtime(frame, "_nvml.settings.task", result, TaskError=settings_task.TaskError)
        found = frame.run(gpu_settings.main, options, runtime, **dict({"power_limit_w": "500"}, **given))
        return found, runtime.seen, runtime

    return run


def test_what_its_work_is_given(play):
    result, (((params, check_mode, load, stuck_file), holder),), runtime = play(framed.answer(settings=[]))
    assert (result["settings"], params["power_limit_w"], check_mode, load) == (
        [],
        "500",
        False,
        runtime.load_binding,
    ) and stuck_file
    assert (holder["module"], holder["step"]) == ("gpu_settings", "settings present")


def test_a_node_that_cannot_be_set_fails(play):
    result = play(settings_task.TaskError("no such GPU", {"status": "stuck"}))[0]
    assert result == {"failed": True, "msg": "no such GPU", "snapshot": {"status": "stuck"}}


def test_options_that_do_not_do(play):
    result, seen, dummy = play(framed.answer(), power_limit_w=None)
    assert result["failed"] is True and "no setting is named" in result["msg"] and seen == []


def test_every_setting_is_documented():
    choices = re.search(r"\n  settings:.*?choices: \[(.*?)\]", gpu_settings.DOCUMENTATION, re.DOTALL).group(1)
    assert re.split(r",\s+", choices) == sorted(settings.NAMES)


def test_the_archive_stays_out_of_the_logs():
    assert options.INTERNAL_SPEC["binding_archive"]["no_log"] is True
