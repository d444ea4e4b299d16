# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables of a node the lookup hands to the decider."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible", reason="a lookup lives in Ansible; nodes have none")

from ansible.errors import AnsibleLookupError

from ansible_collections.gpufleet.lifecycle.plugins.lookup import upgrade_state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _upgrade_state

pytestmark = pytest.mark.cores

BEFORE = {
    "baseline": {"snapshot": {"gpus": []}, "audit": {"versions": {"loaded": "1.0.1"}}},
    "health": {"verdict": "pass", "checks": []},
}


def test_the_results_of_the_tasks_are_read_as_they_were_registered(ask):
    variables = {
        "__gpu_node_upgrade_before": BEFORE,
        "__gpu_node_upgrade_units": {"stdout": "Id=a.service\nActiveState=active"},
        "__gpu_node_upgrade_ran": ["b.service"],
        "__gpu_node_upgrade_install": {"progress": "1/9"},
        "__gpu_node_upgrade_booted": "yes",
        "__gpu_node_upgrade_returned": {"soak_s": 60},
        "gpu_scheduler_mark": {"slurm": {"owner": "ours"}},
        "ansible_failed_result": {},
        "ansible_failed_task": {"name": "Install the driver"},
    }
    (state,) = ask(
        upgrade_state,
        variables=variables,
        version="2.0.1",
        services=["b.service", "a.service"],
        backends=["slurm"],
        expected={"hardware": {"gpus": 8}, "reboot": True},
        soak_interval=20,
    )
    assert state["previous"] == "1.0.1" and state["unfit"] == ""
    assert state["running"] == ["b.service", "a.service"] and state["active"] == ["a.service"]
    assert (
        state["touched"] and state["booted"] == "yes" and state["expect"] == {"reboot": True, "hardware": {"gpus": 8}}
    )
    assert state["scheduled"] and state["drained_by_us"] and state["soak_looks"] == [0, 1, 2]
    assert state["failure"] == "task failed: Install the driver"


def test_every_result_is_a_fact_of_the_decider():
    others = {
        "version",
        "layout",
        "installs",
        "services",
        "backends",
        "hardware",
        "soak_interval",
        "gate",
        "ownership",
        "failed_result",
        "failed_task",
    }
    assert set(upgrade_state.RESULTS) | others == set(_upgrade_state.Facts.__annotations__)


def test_every_result_is_a_variable_of_the_role(collection_root):
    text = "".join(
        path.read_text(encoding="utf-8") for path in (collection_root / "roles/gpu_node_upgrade/tasks").glob("*.yml")
    )
    ways = ("    __gpu_node_upgrade_%s: ", "register: __gpu_node_upgrade_%s\n")
    assert [name for name in upgrade_state.RESULTS if not any(way % name in text for way in ways)] == []


def test_without_results_the_state_says_nothing_good(ask):
    (state,) = ask(upgrade_state, variables=None)
    assert state["unfit"] and state["in_use"] and state["not_returned"] and "previous" not in state


def test_a_document_is_returned_alone_and_one_that_is_not_known_is_an_error(ask):
    variables = {"__gpu_node_upgrade_before": BEFORE}
    assert ask(upgrade_state, "baseline", "health_before", variables=variables) == [
        BEFORE["baseline"],
        BEFORE["health"],
    ]
    for term in ("proof", "basline"):
        with pytest.raises(AnsibleLookupError, match=term):
            ask(upgrade_state, "baseline", term, variables=variables)
