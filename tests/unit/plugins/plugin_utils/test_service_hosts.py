# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that serve the nodes: what is taken from the variables of nodes, and what is refused."""

from __future__ import annotations

import pathlib

import pytest
import yaml

pytest.importorskip("ansible", reason="the variables of the playbooks are known to action plugins")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _service_hosts
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._variables import VariableError
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import test_variables

pytestmark = pytest.mark.cores

ROOT = pathlib.Path(__file__).resolve().parents[4]
LOGIN, STORE = {"ansible_host": "192.0.2.10"}, {"ansible_host": "192.0.2.11", "ansible_user": "gpufleet"}


@pytest.mark.parametrize(
    "by_node, hosts",
    [
        ({}, {}),
        ({"a": None, "b": "", "c": {}}, {}),
        ({"a": {"login": None}}, {"login": {}}),
        ({"a": {"login": LOGIN}, "b": {"login": dict(LOGIN)}}, {"login": LOGIN}),
        ({"a": {"login": LOGIN}, "b": {"store": STORE}, "c": {}}, {"login": LOGIN, "store": STORE}),
        ({"a": {"login": dict(LOGIN, ansible_user=None)}}, {"login": LOGIN}),
    ],
)
def test_the_hosts_of_all_nodes_are_taken(by_node, hosts):
    assert _service_hosts.merge_hosts(by_node) == hosts


@pytest.mark.parametrize(
    "by_node, words",
    [
        ({"a": ["login"]}, ("gpufleet_service_hosts of a", "login")),
        ({"a": "login"}, ("gpufleet_service_hosts of a",)),
        ({"a": {"": LOGIN}}, ("host named ''",)),
        ({"a": {"localhost": LOGIN}}, ("localhost",)),
        ({"a": {"log in": LOGIN}}, ("log in",)),
        ({"a": {"a[1:3]": LOGIN}}, ("a[1:3]",)),
        ({"a": {"login": "192.0.2.10"}}, ("login", "ansible_host")),
        ({"a": {"login": {"ansible_hots": "x"}}}, ("ansible_hots", "expected ansible_host")),
        ({"a": {"login": {"ansible_password": "secret"}}}, ("ansible_password", "credential")),
        ({"a": {"login": {"gpu_nodes": 1}}}, ("gpu_nodes", "ansible_become")),
        ({"a": {"login": LOGIN}, "b": {"login": STORE}}, ("login", "b than for a")),
        ({"a": {"x": LOGIN, "login": LOGIN}, "b": {"x": LOGIN}, "c": {"login": STORE}}, ("login", "c than for a")),
    ],
)
def test_what_is_no_host_with_its_connection_is_refused_and_no_secret_is_shown(by_node, words):
    with pytest.raises(VariableError) as caught:
        _service_hosts.merge_hosts(by_node)
    assert all(word in str(caught.value) for word in words) and str(caught.value).endswith("Nothing was changed.")
    assert "secret" not in str(caught.value)


def test_what_the_inventory_has_counts():
    hosts = {"store": STORE, "login": LOGIN}
    assert _service_hosts.list_missing_hosts(hosts, {"login", "a"}) == [dict(STORE, name="store")]
    assert [host["name"] for host in _service_hosts.list_missing_hosts(hosts, ())] == ["login", "store"]


@pytest.mark.parametrize(
    "variables, found",
    [
        ({}, {}),
        ({"gpu_scheduler_slurm_host": "login"}, {}),
        ({"gpu_scheduler_slurm_host": "login", "gpu_scheduler_backends": ["kubernetes"]}, {}),
        (
            {"gpu_scheduler_slurm_host": " login ", "gpu_scheduler_backends": ["slurm"]},
            {"gpu_scheduler_slurm_host": "login"},
        ),
        ({"gpufleet_artifact_host": "store"}, {"gpufleet_artifact_host": "store"}),
        (
            {"gpu_node_upgrade_artifact_host": "s", "gpufleet_artifact_host": ""},
            {"gpu_node_upgrade_artifact_host": "s"},
        ),
    ],
)
def test_the_hosts_that_tasks_of_a_node_are_delegated_to(variables, found):
    assert _service_hosts.find_delegates(variables) == found


def test_a_host_that_is_not_there_is_refused_with_the_nodes_that_need_it():
    wanted = {"n%d" % number: {"gpu_scheduler_slurm_host": "login"} for number in range(7)}
    with pytest.raises(VariableError) as caught:
        _service_hosts.refuse_missing(wanted, {"n1", "store"})
    for word in ("gpu_scheduler_slurm_host", "n0, n1, n2, n3, n4 and 2 more", "login", "gpufleet_service_hosts"):
        assert word in str(caught.value)
    _service_hosts.refuse_missing(wanted, {"login"})
    _service_hosts.refuse_missing({"n": {"gpufleet_artifact_host": "localhost"}}, ())


def test_every_variable_of_a_connection_is_passed_on_by_the_task():
    (task,) = yaml.safe_load((ROOT / "playbooks" / "tasks" / "service_hosts.yml").read_text(encoding="utf-8"))
    passed = {name: value for name, value in task["ansible.builtin.add_host"].items() if name.startswith("ansible_")}
    assert passed == {name: "{{ item.%s | default(omit) }}" % name for name in _service_hosts.CONNECTION}


def test_the_playbooks_are_given_what_to_add_and_a_rollout_is_refused_without_it():
    node = {"gpufleet_artifact_host": "store", "gpufleet_service_hosts": {"store": STORE, "login": LOGIN}}
    groups = {"all": ["a", "login"]}
    found = test_variables.act({"a": node}, groups=groups)
    assert found["service_hosts"] == [dict(STORE, name="store")]
    assert test_variables.act({"a": node}, groups=groups, values=False)["service_hosts"] == []
    refused = test_variables.act({"a": dict(node, gpufleet_service_hosts={})}, groups=groups)
    assert refused["failed"] and "gpufleet_artifact_host of a is store" in refused["msg"]
    assert not test_variables.act({"a": dict(node, gpufleet_service_hosts={})}, groups=groups, rollout=False).get(
        "failed"
    ), "what is not a rollout may go by a name that resolves"
