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
    assert hosts.group(*words) == name


def test_two_things_in_one_group_are_found_and_one_thing_twice_is_not():
    names = hosts.Names()
    for word in ("gpu-a", "gpu_a", "gpu-a", "other", "other"):
        names.group("slurm_partition", word)
    assert names.clashes() == ["slurm_partition_gpu_a ('gpu-a', 'gpu_a')"]


@pytest.mark.parametrize(
    "count, least, well", [(0, 1, False), (0, 0, False), (1, 1, True), (3, 4, False), (4, 4, True)]
)
def test_fewer_hosts_than_there_have_to_be_are_refused(count, least, well):
    found = {str(number): hosts.host({}, []) for number in range(count)}
    if well:
        assert hosts.enough(found, least, "it") is found
    else:
        with pytest.raises(
            hosts.InventoryProblem, match="^it named %d nodes; expected at least %d" % (count, max(1, least))
        ):
            hosts.enough(found, least, "it")


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
        hosts.checked(kept)


def test_a_cache_that_holds_hosts_is_used():
    kept = {"n1": hosts.host({"a": 1}, ["g", "g"])}
    assert hosts.checked(kept) == {"n1": {"groups": ["g"], "variables": {"a": 1}}}
