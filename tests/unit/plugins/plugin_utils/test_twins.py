# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two names of the inventory for one machine."""

from __future__ import annotations

import itertools

import hypothesis
import pytest
from hypothesis import strategies

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _twins


def ident(machine=None, serial=None, gpus=None):
    return {"machine_id": machine, "board_serial": serial, "gpus": gpus}


@pytest.mark.parametrize(
    "one, other, shared",
    [
        (ident("m1", "s1", ["G1", "G2"]), ident("m1", "s1", ["G1", "G2"]), "GPU G1"),
        # nobody else has this GPU, whatever the ids say
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
