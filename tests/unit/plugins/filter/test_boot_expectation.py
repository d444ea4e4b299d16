# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot expectation of a node, and inputs that are refused."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("ansible", reason="a filter lives in Ansible; nodes have none")

from ansible.errors import AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.filter import boot_expectation as filter_plugin
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._program import boot_check
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging

pytestmark = pytest.mark.cores
GIVEN = {
    "driver_version": "580.95.05",
    "hardware": {"gpus": 8},
    "mig_file": "",
    "policy": {},
    "policy_file": "",
    "waivers": [],
}
WAIVER = {"check": "gpu.power_limit", "reason": "capped", "expires": "2999-12-31"}


def make(**change):
    return filter_plugin.make_boot_expectation(dict(GIVEN, **change), "gpu-1")


def test_node_reads_the_document_with_the_whole_policy(tmp_path):
    found = make(mig_file="/etc/gpufleet/mig.json", policy={"processes_max": 3}, waivers=[WAIVER])
    assert found["policy"] == _judging.policy(None, {"processes_max": 3}, [WAIVER])
    path = tmp_path / "boot-check.json"
    path.write_text(boot_expectation.render_document(dict(found, mig_file=None)))
    assert boot_check.read_expected(str(path)) == (dict(found, mig_file=None), None)
    assert make()["mig_file"] is None
    assert boot_expectation.render_document(found) == json.dumps(found, indent=4, sort_keys=True) + "\n"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"driver_version": ""}, "driver_version"),
        ({"driver_version": " "}, "driver_version"),
        ({"hardware": {}}, "hardware"),
        ({"hardware": {"model": "NVIDIA H100*"}}, "hardware"),
        ({"hardware": {"gpus": 0}}, "hardware"),
        ({"mig_file": "mig.json"}, "mig_file"),
        ({"policy": {"no_such_threshold": 1}}, "no_such_threshold"),
        ({"policy_file": "/no/such/policy.yml"}, "/no/such/policy.yml"),
        ({"waivers": [{"check": "gpu.no_such_check", "reason": "x", "expires": "2999-12-31"}]}, "gpu.no_such_check"),
    ],
)
def test_incomplete_expectation_is_refused(change, word):
    with pytest.raises(AnsibleError) as refused:
        make(**change)
    assert "gpu-1" in str(refused.value) and word in str(refused.value)
