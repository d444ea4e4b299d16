# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole playbooks on nodes of other distributions, with the real package managers over stub repositories."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import systems
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories


@pytest.fixture(name="signer", scope="module")
def _signer():
    made = repositories.Signer("mirror <mirror@localhost>")
    yield made
    made.close()


def report(fleet, rollout_id):
    """What the rollout says of its one node."""
    found = json.loads((fleet.artifacts / "rollouts" / rollout_id / "report.json").read_text())
    return found["verdict"], found["nodes"]["a1"]


BY_NAME = {system.name: system for system in systems.SYSTEMS}
# Those whose upgrade fails as well.
FAILING = ("Debian 12", "RedHat 10", "Ubuntu 24.04")


def brought_up(fleet):
    """A node that was brought up to the older version."""
    old = fleet.system.old
    done = fleet.play("bringup", nvidia_driver_version=old, bringup_hosts="gpu_nodes")
    assert done.rc == 0, done.output
    serves(fleet, old)
    assert "enable nvidia-persistenced.service" in fleet.read("a1")["log"]


def serves(fleet, version):
    """The node has this version, on its disk and loaded, and no update of the system reaches it."""
    assert fleet.driver() == {version} and fleet.read("a1")["loaded"] == version
    assert fleet.held() >= set(fleet.packages())


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_node_is_brought_up_upgraded_and_rolled_back(tmp_path, signer, name):
    system = BY_NAME[name]
    fleet = systems.SystemFleet(tmp_path, system, signer)
    wanted = {"nvidia_driver_version": system.old, "bringup_hosts": "gpu_nodes"}
    bare = fleet.files()
    foreseen = fleet.play("bringup", "--check", **wanted)
    assert foreseen.rc == 0, foreseen.output
    assert fleet.files() == bare and fleet.driver() == set(), "check mode changes nothing"
    brought_up(fleet)
    kept = fleet.files()
    again = fleet.play("bringup", **wanted)
    assert again.rc == 0 and "changed: [a1]" not in again.output, again.output
    assert fleet.files() == kept

    foreseen = fleet.play("upgrade", "--check", rollout_version=system.new)
    assert foreseen.rc == 0 and "packages of 1 node: a1" in foreseen.output, foreseen.output
    assert "\n  upgrade: " in foreseen.output
    gone = [item for line in re.findall(r"^  remove: (.*)$", foreseen.output, re.M) for item in line.split(", ")]
    upstream = system.old.split(":")[-1].split("-")[0]
    assert all(item.split()[0].endswith(upstream) for item in gone), "of the flavour that is set, all but old firmware"
    assert fleet.files() == kept
    up = fleet.play("upgrade", rollout_version=system.new)
    assert up.rc == 0, up.output
    verdict, node = report(fleet, "upgrade-" + system.new)
    assert (verdict, node["state"], node["from"], node["to"]) == ("complete", "done", system.old, system.new)
    serves(fleet, system.new)

    # Without prestaging, which only looks ahead of the drain.
    back = fleet.play(
        "rollback",
        rollback_of="upgrade-" + system.new,
        rollback_hosts="gpu_nodes",
        rollout_version="",
        gpu_node_upgrade_prestage=False,
    )
    assert back.rc == 0, back.output
    verdict, node = report(fleet, "rollback-upgrade-" + system.new)
    assert (verdict, node["state"], node["to"]) == ("complete", "done", system.old)
    serves(fleet, system.old)


@pytest.mark.parametrize("name", FAILING)
def test_a_node_that_fails_with_the_new_driver_gets_the_old_one_back(tmp_path, signer, name):
    system = BY_NAME[name]
    fleet = systems.SystemFleet(tmp_path, system, signer)
    brought_up(fleet)
    fleet.change("a1", sick_with=[system.new])
    up = fleet.play("upgrade", rollout_version=system.new)
    assert up.rc == 2, up.output
    verdict, node = report(fleet, "upgrade-" + system.new)
    assert (verdict, node["state"]) == ("failed", "rolled_back")
    assert "installed " + system.new in fleet.read("a1")["log"]
    serves(fleet, system.old)
