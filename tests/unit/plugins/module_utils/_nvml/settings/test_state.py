# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's own file of settings, the mark of a load, and the daemon."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import state as settings_state
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings.settings_gpu import (
    LOAD,
    LOCK,
    UUID,
)


@pytest.mark.pythons
def test_what_is_kept_comes_back(tmp_path):
    place = str(tmp_path / "state")
    assert settings_state.read(place) == {}
    kept = {UUID: {"locked_graphics_clocks_mhz": {"value": LOCK, "load": LOAD}}}
    settings_state.write(kept, place)
    assert settings_state.read(place) == kept and os.listdir(place) == ["settings.json"]
    settings_state.write({}, place)
    assert settings_state.read(place) == {}


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
        settings_state.read(str(tmp_path))


@pytest.mark.pythons
def test_a_file_that_others_can_change_or_that_is_a_link_is_not_used(tmp_path):
    settings_state.write({}, str(tmp_path))
    os.chmod(str(tmp_path / "settings.json"), 0o666)
    with pytest.raises(settings_state.StateError, match="others than root can change it"):
        settings_state.read(str(tmp_path))
    os.rename(str(tmp_path / "settings.json"), str(tmp_path / "other"))
    os.symlink("other", str(tmp_path / "settings.json"))
    with pytest.raises(settings_state.StateError, match="cannot be read"):
        settings_state.read(str(tmp_path))


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
    (boot / "boot_id").write_text("one\n")
    assert settings_state.load_mark(str(tmp_path)) is None
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    first = settings_state.load_mark(str(tmp_path))
    assert first.startswith("one/") and settings_state.load_mark(str(tmp_path)) == first
    (boot / "boot_id").write_text("two\n")
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
