# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that are compared with others: fewer GPUs than their peers, or one machine under two names."""

from __future__ import annotations

import itertools

import hypothesis
import pytest
from hypothesis import strategies

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _peers, _twins
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._report import samples


def of(*numbers, model="L4"):
    return {"n%d" % place: {model: number} for place, number in enumerate(numbers) if number is not None}


@pytest.mark.parametrize(
    "counts, told, found",
    [
        (of(8, 8, 8, 7), (), {"n3"}),
        (of(8, 8, 8, 7), ("n3",), set()),
        (of(8, 8, 8, 7), ("n0",), {"n3"}),
        (of(8, 8, 7), (), set()),  # two are no majority that means anything
        (of(8, 8, 8, 4, 4), (), set()),
        (of(8, 8, 8, 8, 4, 4), (), {"n4", "n5"}),  # three of five, four of six
        (of(8, 8, 8, 9), (), set()),  # more is not less
        (of(8, 8, 8, 8), (), set()),
        ({}, (), set()),
        (of(8), (), set()),
        (of(8, 8, 8, 0), (), {"n3"}),
        (dict(of(8, 8, 8), x={"T4": 1}), (), set()),
        # A node with two models is compared by each.
        (dict(of(8, 8, 8), x={"L4": 7, "T4": 1}), (), {"x"}),
    ],
)
def test_who_has_fewer(counts, told, found):
    lacks = _peers.fewer(counts, told)
    assert set(lacks) == found
    assert all("nodes with them have 8" in words and "gpu_health_expect" in words for words in lacks.values())


@pytest.mark.parametrize(
    "expect, told",
    [
        ({"hardware": {"gpus": 7}}, True),
        ({"hardware": {"gpus": 0}}, True),
        ({"hardware": {"gpus": None}}, False),
        ({"hardware": {"ecc": True}}, False),
        ({"hardware": None}, False),
        ({}, False),
        (None, False),
        ("", False),
        ("x", False),
    ],
)
def test_what_is_said_of_a_node_goes_before_its_peers(expect, told):
    assert _peers.is_told(expect) is told


@pytest.mark.parametrize(
    "counts, gpus",
    [
        (of(4, 4, 4), {"L4": 4}),
        (of(4, 4, 4, 3), {"L4": 4}),
        (of(4, 4), {}),
        (of(4, 4, 4, 3, 3), {}),
        ({}, {}),
        (dict(of(4, 4, 4), x={"T4": 1}), {"L4": 4}),
        (dict(of(4, 4, 4), **{"t%d" % place: {"T4": 2} for place in range(3)}), {"L4": 4, "T4": 2}),
    ],
)
def test_what_most_nodes_have(counts, gpus):
    assert _peers.expectation(counts) == {"gpus": gpus}


def test_nodes_that_were_not_read_are_not_counted():
    nameless = samples.uncounted("d", 2)
    nameless["baseline"]["snapshot"]["gpus"][0]["name"] = {"value": None, "rc": 999}
    results = {
        "a": samples.uncounted("a", 2),
        "b": samples.unreachable(),
        "c": {},
        "d": nameless,
        "e": samples.uncounted("e", 0),
        "f": None,
    }
    assert _peers.of_results(results) == {"a": {samples.L4: 2}}


PCI = [{"address": "0000:0%d:00.0" % number, "device": "0x27b8"} for number in range(4)]


@pytest.mark.parametrize(
    "gpus, pci, verdict",
    [
        ({samples.L4: 4}, [], "pass"),
        ({samples.L4: 5}, [], "fail"),
        ({samples.L4: 3}, [], "pass"),
        ({}, [], "unknown"),
        (None, [], "unknown"),
        ({samples.L40S: 4}, [], "unknown"),
        ({"0x27b8": 4}, PCI, "pass"),
        ({"0x27b8": 5}, PCI, "fail"),
        ({"0x27b8": 4}, PCI[:3], "unknown"),
        ({"0x27b8": 4}, PCI + [dict(PCI[0], device="0x26b9")], "unknown"),
        ({"0x27b8": 4}, [], "unknown"),
    ],
)
def test_what_a_verdict_is_once_the_peers_are_known(gpus, pci, verdict):
    result = samples.uncounted("a", 4)
    result["baseline"]["audit"]["pci"] = pci
    health = _peers.health_of(result, {"gpus": gpus})
    (check,) = [one for one in health["checks"] if one["id"] == "node.hardware"]
    assert (health["verdict"], check["status"]) == (verdict, verdict)
    assert health["action"] == ("hold" if verdict == "fail" else "none") and (check["source"] == "peers") == (
        verdict != "unknown"
    )


def test_peers_mend_nothing_else():
    peers = {"gpus": {samples.L4: 4}}
    sick = samples.broken(samples.uncounted("a", 4), "gpu.pcie_width")
    assert _peers.health_of(sick, peers)["verdict"] == "fail"
    # A number that is known to be wrong, or a reading that failed, is not open.
    for status, action in (("fail", "hold"), ("unknown", "hold"), ("pass", "none"), ("waived", "none")):
        result = samples.broken(samples.healthy("a", 4, samples.L4), "node.hardware", status, "node", action=action)
        assert _peers.health_of(result, peers) == result["health"]
    assert _peers.health_of(samples.failed(), peers) is None


def ident(machine=None, serial=None, gpus=None):
    return {"machine_id": machine, "board_serial": serial, "gpus": gpus}


@pytest.mark.parametrize(
    "one, other, shared",
    [
        (ident("m1", "s1", ["G1", "G2"]), ident("m1", "s1", ["G1", "G2"]), "GPU G1"),
        # no other node has this GPU, whatever the ids say
        (ident("m1", "s1", ["G1", "G2"]), ident("m2", "s2", ["G2"]), "GPU G2"),
        (ident("m1", "s1", ["G1"]), ident("m1", "s1", ["G2"]), ""),  # one image, one chassis, and other GPUs
        (ident("m1", None, ["G1"]), ident("m1", None, ["G2"]), ""),  # copied machine ids
        (ident("m1", "s1", None), ident("m1", "s2", ["G2"]), ""),  # the same, on another board
        (ident("m1", "s1"), ident("m1", "s1"), "machine id m1"),
        (ident("m1"), ident("m1"), "machine id m1"),
        (ident("m1", "s1"), ident("m1"), "machine id m1"),
        (ident("m1", None, ["G1"]), ident("m1", None, None), "machine id m1"),
        (ident("m1", None, ["G1"]), ident("m1", None, []), "machine id m1"),
        (ident("m1", "s1"), ident("m2", "s1"), ""),  # two systems on one board
        (ident(None, "s1"), ident("m2", "s1"), "board serial number s1"),
        (ident(None, "s1", ["G1"]), ident(None, "s1", ["G2"]), ""),
        (ident(None, "s1"), ident(None, "s2"), ""),
        (ident("m1"), ident(None, "s1"), ""),
        (ident("m1"), ident("m2"), ""),
        (ident(), ident(), ""),
        ({}, {}, ""),
        (ident("m1", "s1", ["G1"]), {}, ""),
    ],
)
def test_when_two_are_one(one, other, shared):
    assert [_twins.same(*pair) for pair in ((one, other), (other, one))] == [shared] * 2
    found = _twins.find({"a": one, "b": other})
    assert found == (_twins.Twins("a", "b", shared) if shared else None)


@hypothesis.given(
    strategies.lists(
        strategies.builds(
            ident,
            strategies.sampled_from([None, "m1", "m2"]),
            strategies.sampled_from([None, "s1", "s2"]),
            strategies.sampled_from([None, ["G1"], ["G2"], ["G3"], ["G1", "G4"], ["G5"]]),
        ),
        max_size=6,
    )
)
def test_two_that_are_one_are_found_among_many(identities):
    named = {"n%d" % number: identity for number, identity in enumerate(identities)}
    expected = any(_twins.same(one, other) for one, other in itertools.combinations(identities, 2))
    found = _twins.find(named)
    assert bool(found) == expected and (not found or found.shared == _twins.same(named[found.one], named[found.other]))


@pytest.mark.parametrize(
    "identity",
    [
        lambda number: ident("m1", "s%d" % number),
        lambda number: ident("m1", None, ["G%d" % number]),
        lambda number: ident("m1", "s1", ["G%d" % number]),
    ],
)
def test_a_fleet_with_a_copied_id_is_not_compared_node_with_node(identity, monkeypatch):
    fleet = {"n%d" % number: identity(number) for number in range(2000)}
    compared = []
    compare = _twins.same
    monkeypatch.setattr(_twins, "same", lambda one, other: compared.append(1) or compare(one, other))
    assert _twins.find(fleet) is None
    assert len(compared) < 4 * len(fleet)


def test_what_is_said():
    words = _twins.complaint({"a": ident("m1"), "b": ident("m1")})
    assert (
        words.startswith("a and b are one machine under two names of the inventory: both have machine id m1.")
        and "systemd-machine-id-setup" in words
    )
    assert "systemd" not in _twins.complaint({"a": ident(gpus=["G1"]), "b": ident(gpus=["G1"])})
    assert _twins.complaint({"a": ident("m1"), "b": ident("m2")}) == ""
