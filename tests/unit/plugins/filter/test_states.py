# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles give to the filters that decide for them."""

from __future__ import annotations

import re

import pytest
import yaml

pytest.importorskip("ansible", reason="a filter lives in Ansible; nodes have none")

from ansible.errors import AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.filter import dcgm_state, quarantine_state, scheduler_state
from ansible_collections.gpufleet.lifecycle.plugins.filter import thermal_relief_state as relief_state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _scheduler_state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import quarantining, relief

pytestmark = pytest.mark.cores
ADDED = {"user", "controller"}


@pytest.mark.parametrize(
    ("role", "variable", "facts"),
    [
        ("gpu_scheduler", "__gpu_scheduler_state", set(_scheduler_state.Facts.__annotations__)),
        ("gpu_quarantine", "__gpu_quarantine_state", set(quarantining.Facts.__annotations__) - {"controller"}),
        (
            "gpu_quarantine",
            "__gpu_quarantine_relief_state",
            set(relief.Facts.__annotations__) - {"controller", "limits"} | {"thresholds"},
        ),
    ],
)
def test_role_gives_every_fact_from_a_variable_that_it_has(collection_root, role, variable, facts):
    place = collection_root / "roles" / role
    expression = yaml.safe_load((place / "vars/main.yml").read_text(encoding="utf-8"))[variable]
    assert set(re.findall(r"'(\w+)':", expression)) == facts
    texts = [path.read_text(encoding="utf-8") for path in place.glob("*/**/*.yml")]
    for name in set(re.findall(r"\b__gpu_\w+", expression)):
        assert any(re.search(r"\b%s: |register: %s\n" % (name, name), text) for text in texts), name


@pytest.mark.parametrize("backends", [["slurm"], "slurm"])
def test_scheduler_without_results_has_not_drained_the_node(backends):
    state = scheduler_state.decide_scheduler_state({"backends": backends, "services": []})
    assert not state["drained"] and state["in_use"] and list(state["ownership"]) == ["slurm"]


def test_quarantine_without_results_refuses_and_names_the_user():
    state = quarantine_state.decide_quarantine_state({"actions": "reboot", "user": "ann", "reason": "x"})
    assert state["refusal"] and not state["answers"] and state["about"]["user"] == "ann"
    assert quarantine_state.decide_quarantine_state({"actions": []})["about"]["user"]


def test_relief_of_a_node_that_was_not_read_is_refused_and_unknown_thresholds_are_an_error():
    assert relief_state.decide_thermal_relief({"node": "n1", "thresholds": {}})["refusal"]
    with pytest.raises(AnsibleError, match="n1.*no_such"):
        relief_state.decide_thermal_relief({"node": "n1", "thresholds": {"no_such": 1}})


def test_dcgm_question_that_is_not_known_is_an_error():
    assert "datacenter-gpu-manager-4-core" in dcgm_state.answer_dcgm_question({}, "package_names")
    with pytest.raises(AnsibleError, match="pakages"):
        dcgm_state.answer_dcgm_question({}, "pakages")
