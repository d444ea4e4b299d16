# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has which lab number on a machine."""

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
