# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role hands to the filter, and what it gets back."""

from __future__ import annotations

import pathlib
import re

import pytest

pytest.importorskip("ansible", reason="a filter lives in Ansible; nodes have none")

from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.filter import upgrade_state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _upgrade_state

pytestmark = pytest.mark.cores

ROLE = pathlib.Path(__file__).resolve().parents[4] / "roles" / "gpu_node_upgrade"
GIVEN = re.compile(r"'(\w+)': ")
REGISTERED = re.compile(r"\b__gpu_node_upgrade_(\w+)")
BEFORE = {
    "baseline": {"snapshot": {"gpus": []}, "audit": {"versions": {"loaded": "1.0.1"}}},
    "health": {"verdict": "pass", "checks": []},
}


@pytest.fixture(scope="module")
def expressions():
    """The variables of the role that ask the filter."""
    found = DataLoader().load_from_file(str(ROLE / "vars" / "main.yml"))
    return {name: str(text) for name, text in found.items() if "upgrade_state" in str(text)}


def test_state_is_decided_from_every_fact(expressions):
    facts = set(_upgrade_state.Facts.__annotations__)
    assert set(GIVEN.findall(expressions["__gpu_node_upgrade_state"])) == facts | {"peers"}
    for name, text in expressions.items():
        assert set(GIVEN.findall(text)) <= facts | {"peers"}, name


def test_every_result_that_is_handed_over_is_known_from_the_beginning(expressions):
    (task,) = DataLoader().load_from_file(str(ROLE / "tasks" / "begin.yml"))
    begun = {name for name in task["ansible.builtin.set_fact"] if name.startswith("__gpu_node_upgrade_")}
    named = {"__gpu_node_upgrade_" + name for text in expressions.values() for name in REGISTERED.findall(text)}
    assert named <= begun


def test_documents_are_those_that_the_state_is_decided_with(expressions):
    """Each is asked for with all facts that it needs."""
    asked = {
        match.group(2): set(GIVEN.findall(match.group(1)))
        for text in expressions.values()
        for match in re.finditer(r"(\{'[^{}]*\}) *\| gpufleet\.lifecycle\.upgrade_state\('(\w+)'\)", text)
    }
    assert set(asked) == set(_upgrade_state.Documents.__annotations__) - {"mig_free"}
    whole = {
        "gate": {"resume": "", "documents": {}},
        "before": BEFORE,
        "drained": {},
        "after": {"health": {"verdict": "pass"}, "baseline": {"snapshot": {"gpus": [1]}}},
        "layout": {"name": "x"},
        "layout_read": {"snapshot": {"gpus": []}},
        "layout_made": {"gpus": [{"gpu": 0, "status": "changed"}]},
        "layout_again": {},
    }
    for name, names in asked.items():
        some = {key: value for key, value in whole.items() if key in names}
        assert upgrade_state.upgrade_state(some, name) == upgrade_state.upgrade_state(whole, name), name


def test_without_results_the_state_says_nothing_good():
    state = upgrade_state.upgrade_state({})
    assert state["unfit"] and state["in_use"] and state["not_returned"] and "previous" not in state


@pytest.mark.parametrize("document", ["proof", "basline"])
def test_document_that_is_not_known_is_an_error(document):
    assert upgrade_state.upgrade_state({"before": BEFORE}, "baseline") == BEFORE["baseline"]
    with pytest.raises(AnsibleFilterError, match=document):
        upgrade_state.upgrade_state({"before": BEFORE}, document)
