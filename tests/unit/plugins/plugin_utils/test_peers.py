# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with fewer GPUs than their peers."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _peers


def of(*numbers, model="L4"):
    return {"n%d" % place: {model: number} for place, number in enumerate(numbers) if number is not None}


@pytest.mark.parametrize("counts, told, found", [
    (of(8, 8, 8, 7), (), {"n3"}), (of(8, 8, 8, 7), ("n3",), set()), (of(8, 8, 8, 7), ("n0",), {"n3"}),
    (of(8, 8, 7), (), set()),  # two are no majority that means anything
    (of(8, 8, 8, 4, 4), (), set()), (of(8, 8, 8, 8, 4, 4), (), {"n4", "n5"}),  # three of five, four of six
    (of(8, 8, 8, 9), (), set()),  # more is not less
    (of(8, 8, 8, 8), (), set()), ({}, (), set()), (of(8), (), set()), (of(8, 8, 8, 0), (), {"n3"}),
    (dict(of(8, 8, 8), x={"T4": 1}), (), set()),
    # A node with two models is compared by each.
    (dict(of(8, 8, 8), x={"L4": 7, "T4": 1}), (), {"x"}),
])
def test_who_has_fewer(counts, told, found):
    lacks = _peers.fewer(counts, told)
    assert set(lacks) == found
    assert all("nodes with them have 8" in words and "gpu_health_expect" in words for words in lacks.values())


@pytest.mark.parametrize("expect, told", [
    ({"hardware": {"gpus": 7}}, True), ({"hardware": {"gpus": 0}}, True), ({"hardware": {"gpus": None}}, False), ({"hardware": {"ecc": True}}, False),
    ({"hardware": None}, False), ({}, False), (None, False), ("", False), ("x", False)])
def test_what_is_said_of_a_node_goes_before_its_peers(expect, told):
    assert _peers.is_told(expect) is told
