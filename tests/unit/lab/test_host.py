# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines need of the host's kernel is given for as long as there are machines."""

from __future__ import annotations

import pytest

from tests.lab import host

FORWARD, INSTANCES = host.forwarding("eth0"), "fs/inotify/max_user_instances"


@pytest.fixture(name="proc")
def _proc(tmp_path):
    for name, value in ((FORWARD, 0), (INSTANCES, 128)):
        (tmp_path / "proc" / name).parent.mkdir(parents=True)
        (tmp_path / "proc" / name).write_text("%d\n" % value)
    (tmp_path / "registry").mkdir()
    return tmp_path / "proc"


def values(proc):
    return tuple(int((proc / name).read_text()) for name in (FORWARD, INSTANCES))


def test_raised_for_the_first_and_put_back_with_the_last(proc):
    registry = proc.parent / "registry"
    host.allow(registry, ["eth0"], proc)
    host.allow(registry, ["eth0"], proc)
    assert values(proc) == (1, 4096)
    host.restore(registry, proc)
    assert values(proc) == (0, 128) and not list(registry.iterdir())


def test_what_suffices_is_left_alone(proc):
    (proc / INSTANCES).write_text("8192\n")
    host.allow(proc.parent / "registry", ["eth0"], proc)
    assert values(proc) == (1, 8192)
    host.restore(proc.parent / "registry", proc)
    assert values(proc) == (0, 8192)


def test_what_somebody_changed_meanwhile_stays(proc):
    host.allow(proc.parent / "registry", ["eth0"], proc)
    (proc / INSTANCES).write_text("512\n")
    host.allow(proc.parent / "registry", ["eth0"], proc)
    (proc / INSTANCES).write_text("600\n")
    host.restore(proc.parent / "registry", proc)
    assert values(proc) == (0, 600)


def test_first_value_stays_recorded_when_a_killed_lab_starts_again(proc):
    registry = proc.parent / "registry"
    host.allow(registry, ["eth0"], proc)
    (proc / FORWARD).write_text("0\n")
    host.allow(registry, ["eth0"], proc)
    host.restore(registry, proc)
    assert values(proc) == (0, 128)


def test_value_is_recorded_before_it_is_changed(proc, monkeypatch):
    monkeypatch.setattr(host.Path, "write_text", lambda *_words, **_more: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        host.allow(proc.parent / "registry", ["eth0"], proc)
    assert host.read_json(proc.parent / "registry" / host.RECORD) == {INSTANCES: [128, 4096]}


def test_setting_of_a_device_that_is_gone_is_left_out(proc):
    host.allow(proc.parent / "registry", ["eth0"], proc)
    (proc / FORWARD).unlink()
    host.restore(proc.parent / "registry", proc)
    assert int((proc / INSTANCES).read_text()) == 128
