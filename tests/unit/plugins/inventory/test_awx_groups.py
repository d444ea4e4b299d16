# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The groups that the constructed inventory of awx/ makes of what the inventory plugins find."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("ansible", reason="an inventory plugin lives in Ansible; nodes have none")
pytest.importorskip("kubernetes", reason="ansible-test's environment has none; the plain pytest run has it")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import labels
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import order
from ansible_collections.gpufleet.lifecycle.tests.unit.awx import data
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.inventory import test_kubernetes, test_slurm

pytestmark = pytest.mark.cores

cluster = test_kubernetes.cluster
KINDS = ("rack_", "model_", "driver_", "mig_")
# What an inventory says of the nodes itself. n1 (four A100) and n2 are Slurm's, k1 and k2 are those of Kubernetes.
SAID = {
    "n1": {"gpufleet_domains": {"rack": ["r1", "r2"]}, "nvidia_driver_version": "535.261.03"},
    "n2": {"gpufleet_domains": {"rack": 7, "power": "p1"}, "nvidia_driver_version": "580.95.05-1"},
    "k1": {"gpufleet_domains": None, "nvidia_driver_version": ""},
    "k2": {},
}


@pytest.fixture
def sources(ansible, cluster):
    (ansible.directory / "nodes.txt").write_text(test_slurm.TEXT)
    one = test_kubernetes.node("k1")
    key = labels.PREFIX + "mig-layout"
    one["metadata"]["labels"] = dict(one["metadata"]["labels"], **{key: "all-1g.10gb"})
    cluster.answers(test_kubernetes.listing(one, test_kubernetes.node("k2")))
    constructed = data.named("controller_inventory_sources")["Auto-created source for: gpufleet"]["source_vars"]
    return [
        ansible.file("a.slurm.yml", plugin=test_slurm.PLUGIN, file="nodes.txt"),
        cluster.file("b.kubernetes.yml"),
        ansible.file("nodes.json", all={"hosts": SAID}),
        ansible.file("z.yml", **constructed),
    ]


def test_nodes_are_in_groups_by_rack_model_driver_and_layout(ansible, sources):
    words = [word for path in sources for word in ("-i", path)]
    out, err = ansible.inventory(*words, "--list", ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true")
    groups = {name: sorted(group.get("hosts", [])) for name, group in json.loads(out).items()}
    assert {name: hosts for name, hosts in groups.items() if name.startswith(KINDS)} == {
        "rack_r1": ["n1"],
        "rack_r2": ["n1"],
        "rack_7": ["n2"],
        "model_a100": ["n1"],
        "driver_535_261_03": ["n1"],
        "driver_580_95_05_1": ["n2"],
        "driver_unknown": ["k1", "k2"],
        "mig_all_1g_10gb": ["k1"],
        "mig_unknown": ["k2", "n1", "n2"],
    }, err
    # A node whose rack is not known is in none: a cap on racks refuses it, and counts it in no rack.
    assert set(order.of_hosts(groups, "rack_", {})) == {"n1", "n2"}
