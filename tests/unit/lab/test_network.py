# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has which lab number on a machine, and what machines need of the host's kernel for as long as there are any."""

import json

import pytest

from tests.lab import network
from tests.lab.common import LabError
from tests.lab.config import HIGHEST_LAB_ID, Lab


@pytest.fixture
def lab(tmp_path):
    return Lab(checkout=tmp_path / "mine", cache=tmp_path / "cache", number=3)


def test_a_run_takes_the_first_number_that_nobody_has(lab):
    taken = {50: "/somebody/else", 51: str(lab.checkout)}
    assert network.unused(lab, 50, owned=lambda one: taken.get(one.number, "")) == 52
    assert network.unused(lab, 53, owned=lambda one: taken.get(one.number, "")) == 53


def test_devices_that_lead_out_are_those_of_the_routes():
    routes = [
        {"dst": "default", "nexthops": [{"gateway": "192.0.2.1", "dev": "eth0"}, {"dev": "eth1"}]},
        {"dst": "192.0.2.0/24", "dev": "eth0"},
        {"dst": "10.213.78.0/24", "dev": "gflab1"},
        {"type": "blackhole", "dst": "198.51.100.0/24"},
    ]
    assert network.outward(routes) == ["eth0", "eth1"]


def test_no_free_number_is_said(lab):
    with pytest.raises(LabError, match="no lab number from %d to %d is free" % (HIGHEST_LAB_ID - 1, HIGHEST_LAB_ID)):
        network.unused(lab, HIGHEST_LAB_ID - 1, owned=lambda one: "/somebody")


@pytest.mark.parametrize(
    ("checkout_there", "bridge_there", "owned"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_a_number_is_owned_while_its_checkout_and_its_bridge_are_there(
    lab, tmp_path, monkeypatch, checkout_there, bridge_there, owned
):
    other = tmp_path / "other"
    if checkout_there:
        other.mkdir()
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry" / "3.json").write_text(json.dumps({"checkout": str(other)}))
    monkeypatch.setattr(network, "exists", lambda one: bridge_there)
    assert network.owner(lab, tmp_path / "registry") == (str(other) if owned else "")


# ---- kernel settings ----

FORWARD, INSTANCES = network.forwarding_setting("eth0"), "fs/inotify/max_user_instances"


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
    network.raise_settings(registry, ["eth0"], proc)
    network.raise_settings(registry, ["eth0"], proc)
    assert values(proc) == (1, 4096)
    network.restore_settings(registry, proc)
    assert values(proc) == (0, 128) and not list(registry.iterdir())


def test_what_suffices_is_left_alone(proc):
    (proc / INSTANCES).write_text("8192\n")
    network.raise_settings(proc.parent / "registry", ["eth0"], proc)
    assert values(proc) == (1, 8192)
    network.restore_settings(proc.parent / "registry", proc)
    assert values(proc) == (0, 8192)


def test_what_somebody_changed_meanwhile_stays(proc):
    network.raise_settings(proc.parent / "registry", ["eth0"], proc)
    (proc / INSTANCES).write_text("512\n")
    network.raise_settings(proc.parent / "registry", ["eth0"], proc)
    (proc / INSTANCES).write_text("600\n")
    network.restore_settings(proc.parent / "registry", proc)
    assert values(proc) == (0, 600)


def test_first_value_stays_recorded_when_a_killed_lab_starts_again(proc):
    registry = proc.parent / "registry"
    network.raise_settings(registry, ["eth0"], proc)
    (proc / FORWARD).write_text("0\n")
    network.raise_settings(registry, ["eth0"], proc)
    network.restore_settings(registry, proc)
    assert values(proc) == (0, 128)


def test_value_is_recorded_before_it_is_changed(proc, monkeypatch):
    monkeypatch.setattr(network.Path, "write_text", lambda *_words, **_more: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        network.raise_settings(proc.parent / "registry", ["eth0"], proc)
    assert network.read_json(proc.parent / "registry" / network.HOST_RECORD) == {INSTANCES: [128, 4096]}


def test_setting_of_a_device_that_is_gone_is_left_out(proc):
    network.raise_settings(proc.parent / "registry", ["eth0"], proc)
    (proc / FORWARD).unlink()
    network.restore_settings(proc.parent / "registry", proc)
    assert int((proc / INSTANCES).read_text()) == 128
