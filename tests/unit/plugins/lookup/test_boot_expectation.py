# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node is held against at boot, as the controller says it, and what it refuses to say."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("ansible", reason="a lookup lives in Ansible; nodes have none")

from ansible.errors import AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.lookup import boot_expectation as lookup
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._program import boot_check
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging

pytestmark = pytest.mark.cores
VARIABLES = {"inventory_hostname": "gpu-1"}
GIVEN = {"driver_version": "580.95.05", "hardware": {"gpus": 8}}
WAIVER = {"check": "gpu.power_limit", "reason": "capped", "expires": "2999-12-31"}


def test_the_node_can_read_what_is_said(ask, tmp_path):
    (found,) = ask(
        lookup,
        variables=VARIABLES,
        mig_file="/etc/gpufleet/mig.json",
        policy={"processes_max": 3},
        waivers=[WAIVER],
        **GIVEN,
    )
    assert found["policy"] == _judging.policy(None, {"processes_max": 3}, [WAIVER])
    path = tmp_path / "boot-check.json"
    path.write_text(boot_expectation.render_document(dict(found, mig_file=None)))
    assert boot_check.expected(str(path)) == (dict(found, mig_file=None), None)
    assert ask(lookup, variables=VARIABLES, **GIVEN)[0]["mig_file"] is None
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
        ({"waivers": [{"check": "gpu.no_such_check", "reason": "x", "expires": "2999-12-31"}]}, "gpu.no_such_check"),
    ],
)
def test_an_expectation_that_is_not_whole_is_refused(ask, change, word):
    with pytest.raises(AnsibleError) as refused:
        ask(lookup, variables=VARIABLES, **dict(GIVEN, **change))
    assert "gpu-1" in str(refused.value) and word in str(refused.value)
