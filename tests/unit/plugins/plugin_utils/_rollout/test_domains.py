# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The failure domains of nodes: each that a node is in counts, and what names none is refused."""

from __future__ import annotations

import datetime
import re

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_gate, rollout_plan
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits, order, plan, plan_text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import view_of

pytestmark = pytest.mark.cores

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


@pytest.fixture
def act(tmp_path):
    """act(names, groups, option=...) plans, or asks the gate; act.ledger is the ledger."""

    def run(names="ab", groups=None, plugin=rollout_plan, **more):
        arguments = dict({"artifact_dir": str(tmp_path), "rollout_id": "r1"}, **more)
        if plugin is rollout_plan:
            found = {name: {"audit": {"versions": {"loaded": "1.0"}}} for name in names}
            arguments = dict(
                {"target": "2.0", "audits": found, "markers": {name: {"stat": {}} for name in names}}, **arguments
            )
        known = {"ansible_forks": 50, "inventory_hostname": names[0], "groups": groups or {}}
        return actions.run_rollout(plugin, arguments, **known)

    run.ledger = Ledger(str(tmp_path), "r1", "")
    return run


BAD = [
    ({"rack": None}, "gpufleet_domains of a: rack is null"),
    ({"rack": ""}, "gpufleet_domains of a: rack is ''"),
    ({"rack": " , "}, "gpufleet_domains of a: rack is ' , '"),
    ({"rack": {}}, "gpufleet_domains of a: rack is {}"),
    ({"rack": []}, "gpufleet_domains of a: rack is []"),
    ({"rack": ["r1", None]}, "gpufleet_domains of a: rack is ['r1', null]"),
    ({"rack": ["r1", ["r2"]]}, "gpufleet_domains of a: rack is ['r1', ['r2']]"),
    ({"rack": ["r1", ""]}, "gpufleet_domains of a: rack is ['r1', '']"),
    ({"rack": True}, "gpufleet_domains of a: rack is true"),
    ({"rack": 1.1}, "gpufleet_domains of a: rack is 1.1"),
    ({None: "r1"}, "gpufleet_domains of a has the key null"),
    ({" ": "r1"}, "gpufleet_domains of a has the key ' '"),
    ("r1", "gpufleet_domains of a is 'r1'"),
    (["r1"], "gpufleet_domains of a is ['r1']"),
    (7, "gpufleet_domains of a is 7"),
    (True, "gpufleet_domains of a is true"),
]


@pytest.mark.parametrize("caps", [{}, {"rack": 1}])
@pytest.mark.parametrize("found, words", BAD)
def test_what_names_no_domain_is_refused_with_the_node_and_the_variable(act, found, words, caps):
    result = act(domains={"a": found, "b": {"rack": "r1"}}, domain_caps=caps)
    assert result.get("failed") and result["msg"].startswith(words) and "Nothing was changed" in result["msg"], (
        result.get("msg")
    )
    assert "\n" not in result["msg"] and act.ledger.events() == []


@pytest.mark.parametrize("found", [None, "", {}])
def test_no_domains_at_all_are_refused_under_a_cap_alone(act, found):
    refused = act(domains={"a": found, "b": {"rack": "r1"}}, domain_caps={"rack": 1})
    assert re.search("rollout_domain_caps limits the nodes of one rack, .*: a", refused["msg"])
    assert not act(domains={"a": found, "b": {"rack": "r1"}}).get("failed")


@pytest.mark.parametrize(
    "groups, given, expected",
    [
        ({"racks-1": ["a"], "racks-2": ["b"]}, {}, "no failure domains: "),
        ({"rack_1": ["a"], "racks-2": ["b"]}, {}, "in no failure domain, "),
        ({"rack_1": ["a"], "rack_2": ["b"]}, {}, None),
        ({"rack_1": ["a"]}, {"b": {"rack": "2"}}, None),
    ],
)
def test_plan_names_the_nodes_that_are_in_no_failure_domain(act, groups, given, expected):
    lines = [line.strip() for line in act("ab", groups, domains=given)["lines"] if "no failure domain" in line]
    assert len(lines) == bool(expected) and all(line.startswith(expected) for line in lines)
    assert expected != "in no failure domain, " or lines[0].endswith(": b")


def test_plan_of_one_node_says_nothing_of_failure_domains(act):
    assert "no failure domain" not in str(act("a")["lines"])


@pytest.mark.parametrize(
    "given, groups",
    [
        ({"a": {"rack": ["r1", "r2"]}, "b": {"rack": "r2"}, "c": {"rack": "r3"}}, {}),
        ({"a": {"rack": "r1, r2"}, "b": {"rack": "r2"}, "c": {"rack": "r3"}}, {}),
        ({"a": {"rack": ["r1", 2]}, "b": {"rack": 2}, "c": {"rack": 3}}, {}),
        ({}, {"rack_1": ["a"], "rack_2": ["a", "b"], "rack_3": ["c"]}),
        ({"a": None, "b": {"psu": 1}}, {"rack_1": ["a"], "rack_2": ["a", "b"], "rack_3": ["c"]}),
    ],
)
def test_a_node_counts_in_every_domain_that_it_is_in(act, given, groups):
    """While a is out, b of its second rack is kept, and c goes; while b is out, a is kept."""
    made = act("abc", groups, domains=given, domain_caps={"rack": 1}, max_down=3, canaries=[])
    assert not made.get("failed"), made.get("msg")
    asked = {name: act(name, plugin=rollout_gate, phase="drain", patience_s=0)["answer"] for name in ("a", "c", "b")}
    assert asked == {"a": "go", "c": "go", "b": "wait"}


def test_what_is_given_goes_before_groups(act):
    groups = {"rack_1": ["a", "b"], "rack_all": ["a", "b"], "other": ["a"]}
    made = act("ab", groups, domains={"a": {"rack": "r9", "psu": 1}})
    assert {name: node["domains"] for name, node in made["nodes"].items()} == {
        "a": {"rack": "r9", "psu": "1"},
        "b": {"rack": "1, all"},
    }


@pytest.mark.parametrize(
    "groups, prefix, given",
    [
        ({"rack_r1": ["a"]}, "rack_", {"rack": "r1"}),
        ({"rack_r1": ["a"]}, "rack_", {"rack": "R1"}),
        ({"rack_r1": ["a"]}, "rack_", {"rack": "rack_r1"}),
        ({"rack_r1": ["a"]}, "rack_", {"rack": "Rack-R1"}),
        ({"rack_r1": ["a"]}, "rack_", {"rack": ["rack r1", "r1"]}),
        ({"rack_7": ["a"]}, "rack_", {"rack": 7}),
        ({"rack_row_2_r1": ["a"]}, "rack_", {"rack": "row-2.r1"}),
        ({"rack_r1": ["a"], "rack_R1": ["a"]}, "rack_", {"rack": "r1"}),
        ({"psu-2": ["a"]}, "psu-", {"psu": "2"}),
        ({"rack_": ["a"]}, "rack_", {"rack": "rack_"}),
    ],
)
def test_group_and_variable_name_one_domain(groups, prefix, given):
    by_group, by_variable = order.of_hosts(groups, prefix, {}), order.of_hosts({}, prefix, {"a": given})
    assert by_group == by_variable and order.parse_names(by_group["a"][prefix[:-1]])


@pytest.mark.parametrize("one, other", [("r1", "r11"), ("r1", "1"), ("row1-r1", "r1"), ("racks_1", "1")])
def test_different_domains_stay_apart(one, other):
    assert order.canonical_name("rack", one) != order.canonical_name("rack", other)


@pytest.mark.parametrize(
    "mine, others, answer",
    [
        ("r1", {"b": "r1, r2"}, "wait"),
        ("r1, r2", {"b": "r2"}, "wait"),
        ("r1, r2", {"b": "r3"}, "go"),
        ("r1, r2", {"b": "r2, r3"}, "wait"),
        ("r1", {"b": "r11, r12"}, "go"),
    ],
)
def test_the_gate_compares_names_and_not_lists(mine, others, answer):
    racks = {name: {"rack": value} for name, value in dict(others, a=mine).items()}
    view = view_of({"a": "pending", "b": "down"}, domains=racks, max_down=5, failure_budget=5, domain_caps={"rack": 1})
    assert gate.decide(view, "drain", "a", None, NOW).answer == answer


def test_the_estimate_counts_every_domain():
    found = [
        Probe(name, version="1.0", domains={"rack": racks})
        for name, racks in (("a", "r1, r2"), ("b", "r1"), ("c", "r2"))
    ]
    made = plan.build_plan("2.0", found, limits.complete_policy({"max_down": 3, "domain_caps": {"rack": 1}}, 3))
    assert plan_text.estimate_plan(made, 100) == (100, 200)
