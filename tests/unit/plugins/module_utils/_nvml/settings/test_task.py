# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a task: read, decide, set, read again, remember."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes, session, snapshot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import task as settings_task
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings import settingsnode
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings.settings_gpu import (
    LOCK,
    OK,
    gpu,
)


def taken(*gpus, **more):
    found = snapshot.blank("ok", "", 0)
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
        tmp_path, [taken(gpu()), snapshot.blank("timeout", "it hangs")], child=lambda *args: outcome, power_limit_w=500
    )
    assert (
        result["failed"] is True
        and "it cannot be read back" in result["msg"]
        and "what was set could not be read back: it hangs" in result["warnings"][0]
    )


def test_clocks_that_cannot_be_remembered_are_a_failure(tmp_path):
    (tmp_path / "state").write_text("")
    outcome = session.Outcome("ok", [OK], "")
    result = run(tmp_path, [taken(gpu()), taken(gpu())], child=lambda *args: outcome, locked_graphics_clocks_mhz=LOCK)
    assert result["failed"] is True and "cannot be remembered for the next reload" in result["msg"]


@pytest.mark.parametrize("status", ["no_binding", "nvml_error", "timeout", "stuck"])
def test_a_node_that_cannot_be_read_is_left_alone(tmp_path, status):
    with pytest.raises(settings_task.TaskError, match="NVML cannot be read .%s., and nothing was set: why" % (status,)):
        run(tmp_path, [snapshot.blank(status, "why")], power_limit_w=500)
