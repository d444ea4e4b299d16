# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of groups, how many hosts there have to be, and what a cache kept."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory import hosts


@pytest.mark.parametrize(
    "words, name",
    [
        (("slurm_partition", "GPU-long"), "slurm_partition_gpu_long"),
        (("slurm_gres", "h100:80gb"), "slurm_gres_h100_80gb"),
        (("kubernetes_taint", "nvidia.com/gpu:NoSchedule"), "kubernetes_taint_nvidia_com_gpu_noschedule"),
        (("a", "--"), "a"),
    ],
)
def test_a_group_has_a_name_that_ansible_takes(words, name):
    assert hosts.make_group(*words) == name


def test_two_things_in_one_group_are_found_and_one_thing_twice_is_not():
    names = hosts.Names()
    for word in ("gpu-a", "gpu_a", "gpu-a", "other", "other"):
        names.group("slurm_partition", word)
    assert names.clashes() == ["slurm_partition_gpu_a ('gpu-a', 'gpu_a')"]


@pytest.mark.parametrize(
    "count, least, well", [(0, 1, False), (0, 0, False), (1, 1, True), (3, 4, False), (4, 4, True)]
)
def test_fewer_hosts_than_there_have_to_be_are_refused(count, least, well):
    found = {str(number): hosts.make_host({}, []) for number in range(count)}
    if well:
        assert hosts.require_enough(found, least, "it") is found
    else:
        with pytest.raises(
            hosts.InventoryProblem, match="^it named %d nodes; expected at least %d" % (count, max(1, least))
        ):
            hosts.require_enough(found, least, "it")


@pytest.mark.parametrize(
    "kept",
    [
        None,
        [],
        {},
        "x",
        {"n1": None},
        {"n1": {}},
        {"n1": {"groups": [], "variables": []}},
        {"n1": {"groups": "x", "variables": {}}},
    ],
)
def test_a_cache_that_holds_something_else_is_not_used(kept):
    with pytest.raises(hosts.InventoryProblem):
        hosts.check_cache(kept)


def test_a_cache_that_holds_hosts_is_used():
    kept = {"n1": hosts.make_host({"a": 1}, ["g", "g"])}
    assert hosts.check_cache(kept) == {"n1": {"groups": ["g"], "variables": {"a": 1}}}


HOSTILE = [
    "all",
    "ungrouped",
    "localhost",
    "LOCALHOST",
    "localhost.localdomain",
    "gpufleet_rollout",
    "127.0.0.1",
    "127.1",
    "0",
    "0x7f000001",
    "2130706433",
    "169.254.169.254",
    "../../etc/cron.d/x",
    "-oProxyCommand=id",
    "a:b",
    "a,b",
    "!a",
    "~a",
    "a[0]",
    "a b",
    "a\n",
    "a/b",
    "..",
    "a.",
    "gpu01.yml",
    "gpu01.YAML",
    "gpu01.json",
    "{{ lookup('pipe','id') }}",
    "a" * 254,
    "é",
    "",
    None,
    5,
]


@pytest.mark.parametrize("name", HOSTILE, ids=repr)
def test_name_that_no_node_has_is_no_host(name):
    assert not hosts.is_host_name(name)


@pytest.mark.parametrize(
    "name", ["n1", "gpu-a01-03", "gpu_a.example.com", "0gpu", "192.0.2.1", "10.0.0.7", "cafe", "N1"]
)
def test_name_of_node_is_a_host(name):
    assert hosts.is_host_name(name)


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "169.254.1.1", "fe80::1", "fe80::1%x;id", "224.0.0.1"]
    + ["localhost", "192.0.2.1 -oProxyCommand=id", "192.0.2", "{{ 1 }}", "", None, 5],
    ids=repr,
)
def test_text_that_is_no_address_of_a_node_is_dropped(text):
    assert hosts.parse_address(text) == ""


@pytest.mark.parametrize("text", ["192.0.2.1", "10.1.2.3", "2001:db8::1", "fd00::1"])
def test_address_of_node_is_kept(text):
    assert hosts.parse_address(text) == text


def test_nodes_that_are_no_hosts_are_left_out_and_named():
    names = hosts.Names()
    assert hosts.select_usable(
        {name: hosts.make_host({}, []) for name in ("n1", "all", "n2", "slurm")}, names, {"slurm"}
    ) == {"n1": hosts.make_host({}, []), "n2": hosts.make_host({}, [])}
    assert names.left_out == ["all", "slurm"]


def test_cache_with_name_of_no_host_is_not_used():
    with pytest.raises(hosts.InventoryProblem):
        hosts.check_cache({"n1": hosts.make_host({}, []), "../x": hosts.make_host({}, [])})


@pytest.mark.parametrize(
    "name, safe",
    [
        ("rack_r1-2", "rack_r1-2"),
        ("r_{{ 1 }}", "r____1___"),
        ("a:b,c", "a_b_c"),
        ("r1.2", "r1.2"),
        # Files and directories of variables to Ansible.
        (".", "_"),
        ("..", "__"),
        ("secrets.yml", "secrets_yml"),
        ("secrets.yaml", "secrets_yaml"),
        ("secrets.JSON", "secrets_JSON"),
    ],
)
def test_group_of_what_nodes_say_has_no_pattern_or_template(name, safe):
    assert hosts.make_safe_group(name) == safe


@pytest.mark.parametrize(
    "name, made",
    [
        ("gpufleet_builders", "_gpufleet_builders"),
        ("GPUFleet_x", "_GPUFleet_x"),
        ("all", "_all"),
        ("localhost", "_localhost"),
        ("n1", "_n1"),
        ("rack_1", "rack_1"),
    ],
)
def test_keyed_group_is_none_of_the_playbooks_and_no_host(name, made):
    assert hosts.keyed_group(name, {"n1": None}) == made
