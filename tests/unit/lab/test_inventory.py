# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import inventory
from tests.lab.common import LabError
from tests.lab.config import Lab
from tests.lab.inventory import Machine

LAB = Lab(checkout=Path("/checkout"), cache=Path("/cache"), number=0)


def groups(hostvars, gpu_nodes=True):
    entry = {"hosts": list(hostvars)}
    return {
        "_meta": {"hostvars": hostvars},
        "all": {"children": ["ungrouped", "gpu_nodes"]},
        "gpu_nodes" if gpu_nodes else "ungrouped": entry,
    }


def test_without_a_gpu_group_all_hosts_are_taken_but_the_local_one():
    found = inventory.gpu_hosts(groups({"n1": {}, "controller": {"ansible_connection": "local"}}, gpu_nodes=False))
    assert found == ["n1"]


def test_hosts_outside_the_gpu_group_get_no_machine():
    given = groups({"n1": {}})
    given["ungrouped"] = {"hosts": ["login"]}
    assert [machine.name for machine in inventory.machines(given)] == ["n1"]


def test_a_machine_that_the_inventory_has_not_is_refused():
    with pytest.raises(LabError, match="hosts.yml has no GPU host n9; it has: n1"):
        inventory.selected(inventory.machines(groups({"n1": {}})), Path("hosts.yml"), ["n1", "n9"])


def test_hosts_without_an_address_get_free_ones_that_running_machines_keep():
    given = groups({"n1": {}, "n2": {"lab_address": 101}, "n3": {}})
    assert {machine.name: machine.host_number for machine in inventory.machines(given)} == {
        "n1": 102,
        "n2": 101,
        "n3": 103,
    }
    again = inventory.machines(given, taken={"n3": 140, "other": 102})
    assert {machine.name: machine.host_number for machine in again} == {"n1": 103, "n2": 101, "n3": 140}


def test_two_hosts_on_one_address_are_refused():
    with pytest.raises(LabError, match="n1 and n2 both have lab_address 11"):
        inventory.machines(groups({"n1": {"lab_address": 11}, "n2": {"lab_address": 11}}))


def test_an_address_that_a_machine_of_another_inventory_has_is_refused():
    with pytest.raises(LabError, match="other and n1 both have lab_address 11"):
        inventory.machines(groups({"n1": {"lab_address": 11}}), taken={"other": 11})


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"lab_address": 1}, "lab_address is 1"),
        ({"lab_address": 255}, "lab_address is 255"),
        ({"lab_address": "{{ x }}"}, "lab_address is '{{ x }}'"),
        ({"lab_gpu_count": 17}, "lab_gpu_count is 17"),
        ({"lab_gpu_count": True}, "lab_gpu_count is True"),
        ({"lab_suite": "sid"}, "lab_suite is 'sid'; the lab has images of bookworm and trixie"),
        ({"lab_suite": ["trixie"]}, "lab_suite is ['trixie']"),
        ({"lab_gpu_model": "H100; rm"}, "lab_gpu_model is 'H100; rm'"),
    ],
)
def test_bad_variables_are_named_with_their_host(variables, complaint):
    with pytest.raises(LabError) as caught:
        inventory.machines(groups({"n1": variables}))
    assert str(caught.value).startswith("host n1: " + complaint)


@pytest.mark.parametrize("name", ["../n1", "n 1", "-n1", "n1;x", "a" * 70])
def test_names_that_cannot_be_a_host_are_refused(name):
    with pytest.raises(LabError, match="the lab takes names of"):
        inventory.machines(groups({name: {}}))


def test_an_empty_inventory_is_refused():
    with pytest.raises(LabError, match="no host in group gpu_nodes"):
        inventory.machines({"_meta": {"hostvars": {}}, "all": {"children": ["ungrouped"]}})


def test_more_hosts_than_addresses_are_refused():
    with pytest.raises(LabError, match="no free address left"):
        inventory.machines(groups({f"n{number}": {} for number in range(160)}))


def test_a_rehearsals_overlay_speaks_of_the_connection_alone():
    files = inventory.rehearsal_overlay(LAB, [Machine("n1", 101)])
    assert files["hosts.json"] == {"all": {"hosts": {"n1": {}}}}
    entry = files["host_vars/n1.json"]
    assert entry["ansible_host"] == "10.213.77.101"
    assert entry["ansible_user"] == "fleet"
    assert all(name.startswith("ansible_") for name in entry)
    assert "StrictHostKeyChecking=yes" in entry["ansible_ssh_common_args"]


def rehearsed(**changes):
    files = inventory.rehearsal_overlay(LAB, [Machine("n1", 101)])
    return inventory.astray(
        files, {"_meta": {"hostvars": {"n1": {**files["host_vars/n1.json"], "my_own": 1, **changes}}}}
    )


def test_a_rehearsal_that_reaches_the_lab_goes_nowhere_else():
    assert rehearsed() == []


def test_a_rehearsal_that_would_reach_a_real_host_is_caught():
    assert rehearsed(ansible_host="192.0.2.7") == ["n1: ansible_host is '192.0.2.7'"]
    assert rehearsed(ansible_connection="local") == ["n1: ansible_connection is 'local'"]
    assert rehearsed(ansible_ssh_host="192.0.2.7") == ["n1: ansible_ssh_host is '192.0.2.7'"]


def test_a_host_that_the_inventory_lost_is_caught():
    files = inventory.rehearsal_overlay(LAB, [Machine("n1", 101)])
    assert len(inventory.astray(files, {"_meta": {"hostvars": {}}})) == len(files["host_vars/n1.json"])
