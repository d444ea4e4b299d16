# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's answers as hosts: whole ones, and each way in which one is not whole."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory import hosts, slurm
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm import answers

TEXT = answers.DRAINING + answers.REBOOTING
NODES = json.loads(answers.JSON_23)["nodes"]


def made(text, **more):
    return slurm.hosts(slurm.parse(text, "it"), "it", hosts.Names(), **more)


def test_the_text_of_scontrol_makes_hosts_in_groups():
    found = made(TEXT)
    assert found["n1"]["groups"] == [
        "slurm",
        "slurm_gpu",
        "slurm_gres_a100",
        "slurm_partition_batch",
        "slurm_partition_debug",
        "slurm_state_drain",
        "slurm_state_mixed",
    ]
    assert found["n2"]["groups"] == [
        "slurm",
        "slurm_partition_batch",
        "slurm_state_down",
        "slurm_state_drain",
        "slurm_state_reboot_issued",
    ]
    first = found["n1"]["variables"]
    assert (first["slurm_gpus"], first["slurm_gpu_types"], first["slurm_drain"], first["slurm_work"]) == (
        4,
        {"a100": 4},
        True,
        "busy",
    )
    assert first["slurm_partitions"] == ["batch", "debug"] and first["slurm_state"] == "MIXED+DRAIN"
    assert all(name.startswith("slurm_") for name in first), "variables keep to their prefix"


@pytest.mark.parametrize("text, gpus, state", [(answers.JSON_22, 4, "UNKNOWN"), (answers.JSON_23, 4, "MIXED")])
def test_the_json_of_both_formats_makes_the_same(text, gpus, state):
    variables = made(text)["n1"]["variables"]
    assert (variables["slurm_gpus"], variables["slurm_state_base"], variables["slurm_drain"]) == (gpus, state, True)


def test_a_node_in_maintenance_is_in_that_group_and_its_base():
    text = answers.DRAINING.replace("State=MIXED+DRAIN", "State=IDLE+MAINTENANCE+RESERVED")
    assert [group for group in made(text)["n1"]["groups"] if "state" in group] == [
        "slurm_state_idle",
        "slurm_state_maintenance",
        "slurm_state_reserved",
    ]


@pytest.mark.parametrize(
    "more, names",
    [
        ({}, ["n1", "n2"]),
        ({"gpus_only": True}, ["n1"]),
        ({"partitions": ["debug"]}, ["n1"]),
        ({"partitions": ["batch"]}, ["n1", "n2"]),
    ],
)
def test_nodes_are_chosen(more, names):
    assert sorted(made(TEXT, **more)) == names


NOT_WHOLE = {
    "nothing": "",
    "blank": " \n\n",
    "no nodes": "No nodes in the system\n",
    "a page": "<html>504 Gateway Time-out</html>",
    "an error of scontrol": answers.AWAY[2],
    "a line in front": "Last login: today\n" + TEXT,
    "cut in a node": TEXT[: len(answers.DRAINING) + 200],
    "cut before the last empty line": TEXT.rstrip("\n") + "\n",
    "no state": answers.DRAINING.replace("State=MIXED+DRAIN", ""),
    "no name": answers.DRAINING.replace("NodeName=n1", "NodeName="),
    "one line for a node, cut": " ".join(answers.DRAINING.split()),
    "cut JSON": answers.JSON_23[:-30],
    "an empty object": "{}",
    "a list": "[]",
    "nodes is a text": json.dumps({"nodes": "n1"}),
    "nodes is null": json.dumps({"nodes": None}),
    "a node is null": json.dumps({"nodes": NODES + [None]}),
    "a node without a name": json.dumps({"nodes": [dict(NODES[0], name="")]}),
    "a node without a state": json.dumps({"nodes": [dict(NODES[0], state=[])]}),
    "a state that is a number": json.dumps({"nodes": [dict(NODES[0], state=7)]}),
    "an error beside the nodes": json.dumps(
        {"nodes": NODES, "errors": [{"description": "Unable to contact slurm controller"}]}
    ),
    "a word as the error": json.dumps({"nodes": NODES, "errors": ["no"]}),
}


@pytest.mark.parametrize("text", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_what_is_not_whole_is_refused_and_says_who_was_asked(text):
    with pytest.raises(hosts.InventoryProblem, match="^it "):
        slurm.parse(text, "it")


def test_one_line_for_a_node_is_whole():
    lines = "".join(" ".join(text.split()) + " \n" for text in (answers.DRAINING, answers.REBOOTING))
    assert made(lines) == made(answers.DRAINING + answers.REBOOTING)


def test_an_answer_with_an_empty_list_has_no_host_to_give():
    with pytest.raises(hosts.InventoryProblem):
        hosts.require_enough(made(json.dumps({"nodes": []})), 1, "it")


def test_a_node_that_is_named_twice_is_refused():
    with pytest.raises(hosts.InventoryProblem, match="n1 twice"):
        made(answers.DRAINING * 2)


def test_a_partition_that_slurm_does_not_know_is_refused():
    with pytest.raises(hosts.InventoryProblem, match="no partition gpu; it has batch, debug"):
        made(TEXT, partitions=["batch", "gpu"])


@pytest.mark.parametrize(
    "members, missing", [({"n1"}, False), ({"n1", "n2"}, False), ({"n1", "n3"}, True), (set(), False)]
)
def test_nodes_that_sinfo_alone_knows_make_it_half_an_answer(members, missing):
    found = slurm.parse(TEXT, "it")
    if missing:
        with pytest.raises(hosts.InventoryProblem, match="n3"):
            slurm.require_whole(found, members, "it")
    else:
        slurm.require_whole(found, members, "it")
        assert len(found) == 2


NODE = "NodeName=%s Arch=x86_64\n   NodeHostName=%s\n   State=IDLE\n   Partitions=gpu\n\n"


@pytest.mark.parametrize("name", ["all", "localhost", "../x", "-oProxyCommand=id", "{{lookup('pipe','id')}}"])
def test_node_with_name_of_no_host_is_left_out(name):
    text = "".join(NODE % (each, "h1") for each in ("n1", name))
    names = hosts.Names()
    assert list(slurm.hosts(slurm.parse(text, "test"), "test", names)) == ["n1"]
    assert names.left_out == [name]


@pytest.mark.parametrize(
    "said, kept", [("h1", "h1"), ("192.0.2.1", "192.0.2.1"), ("127.0.0.1", ""), ("-oX=y", ""), ("localhost", "")]
)
def test_host_name_that_a_node_reports_is_one_or_nothing(said, kept):
    found = slurm.hosts(slurm.parse(NODE % ("n1", said), "test"), "test", hosts.Names())
    assert found["n1"]["variables"]["slurm_hostname"] == kept
