# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A playbook that would do nothing is no success, whatever left nothing to do.

Ansible itself passes over a play without hosts and ends well.
"""

from __future__ import annotations

import json

import pytest

pytest.importorskip("ansible", reason="the variables of the playbooks are known to action plugins")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection, conftest

PLAYBOOKS = sorted(path.stem for path in (collection.ROOT / "playbooks").glob("*.yml"))
# Their work is the controller's: no variable of theirs names nodes to go to.
ON_CONTROLLER = {
    "capacity": "asks Prometheus",
    "report": "reads the ledger",
    "rollout_control": "writes to the ledger; its rollout_nodes are judged by what the ledger knows",
}
NAMED_BY = {"plan": "upgrade_hosts"}
# Of Ansible's own, as there are no stubs; it would reach no host of these names.
SSH = {"ansible_connection": "ansible.builtin.ssh"}
# Beside the nodes, what a playbook asks for before it looks at them.
MORE = {"quarantine": {"quarantine_reason": "XID 79"}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All of the checkout, and no stub: no node is gone to."""
    place = tmp_path_factory.mktemp("collections")
    collection.make(collection.place(place), ["playbooks", "roles", "plugins"], stubs=())
    return place


@pytest.fixture
def fleet(tmp_path, modules, whole):
    fleet = conftest.Fleet(tmp_path, modules, whole)
    fleet.environment["ANSIBLE_CALLBACKS_ENABLED"] = None  # a stub's
    fleet.add("a1")
    return fleet


def names_nodes(playbook):
    return NAMED_BY.get(playbook, playbook + "_hosts")


def refused(result, *words):
    assert result.rc not in (0, 4), "it ended as if it had done something"
    assert [word for word in words if word not in result.output] == []
    assert all(bad not in result.output for bad in ("Traceback", "MODULE FAILURE", "Unexpected failure"))
    assert result.fleet.touched() == [] and not result.fleet.artifacts.exists()


def test_every_playbook_names_its_nodes_by_a_variable_or_works_on_the_controller():
    assert {name for name in PLAYBOOKS if names_nodes(name) not in _variable_names.PLAYBOOKS} == set(ON_CONTROLLER)


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_limit_that_leaves_none_of_its_nodes_is_refused(fleet, playbook):
    beside = fleet.directory / "beside.json"
    beside.write_text(json.dumps({"all": {"hosts": {"web1": {}}}}))
    extra = {} if playbook in ON_CONTROLLER else {names_nodes(playbook): "a1"}
    result = fleet.run(playbook, "-i", str(beside), "--limit", "web1", **extra, **SSH, **MORE.get(playbook, {}))
    refused(result, "web1", *extra, *extra.values())


@pytest.mark.parametrize("playbook", [name for name in PLAYBOOKS if name not in ON_CONTROLLER])
def test_so_is_a_name_that_nobody_has(fleet, playbook):
    mine = names_nodes(playbook)
    refused(fleet.run(playbook, **{mine: "zz"}, **SSH, **MORE.get(playbook, {})), "zz", mine)
