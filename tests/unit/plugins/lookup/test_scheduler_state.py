# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables of a node the lookup hands to the decider."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible", reason="a lookup lives in Ansible; nodes have none")

from ansible_collections.gpufleet.lifecycle.plugins.lookup import scheduler_state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _scheduler_state

pytestmark = pytest.mark.cores


def test_the_results_of_the_tasks_are_read_as_they_were_registered(ask):
    variables = {
        "__gpu_scheduler_slurm": {"drained": True, "mark": {"owner": "ours"}},
        "__gpu_scheduler_kubernetes": {"drained": False},
        "__gpu_scheduler_users": {"holders": []},
        "__gpu_scheduler_reason": "it waits.",
        "__gpu_scheduler_failures": {"kubernetes": "away"},
        "ansible_failed_result": {"msg": "away"},
        "ansible_failed_task": {"name": "Ask", "action": "gpufleet.lifecycle.kube_node"},
    }
    given = {
        "backends": ["slurm", "kubernetes"],
        "services": ["nvidia-dcgm.service"],
        "drain_timeout": 60,
        "on_timeout": "lift",
    }
    (state,) = ask(scheduler_state, variables=variables, **given)
    assert not state["drained"] and state["ownership"]["slurm"] == {"owner": "ours"} and state["in_use"] == ""
    assert state["failed"] == {"kubernetes": "away"} and state["lift"] == ["slurm", "kubernetes"]
    assert state["drain_failed"].startswith("it waits. Not lifted in kubernetes: away.")


def test_every_result_is_a_fact_of_the_decider_and_a_variable_of_the_role(collection_root):
    others = {"backends", "services", "drain_timeout", "on_timeout", "failed_result", "failed_task"}
    assert set(scheduler_state.RESULTS) | others == set(_scheduler_state.Facts.__annotations__)
    text = "".join(
        path.read_text(encoding="utf-8") for path in (collection_root / "roles/gpu_scheduler/tasks").glob("**/*.yml")
    )
    ways = ("    __gpu_scheduler_%s: ", "register: __gpu_scheduler_%s\n")
    assert [name for name in scheduler_state.RESULTS if not any(way % name in text for way in ways)] == []


def test_without_results_nothing_is_drained(ask):
    (state,) = ask(scheduler_state, variables=None, backends=["slurm"])
    assert not state["drained"] and state["in_use"]
