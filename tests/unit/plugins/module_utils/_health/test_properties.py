# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every reading: nothing gets better by not being seen, and the order of GPUs means nothing."""

from __future__ import annotations

import copy
import random

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

hypothesis = pytest.importorskip("hypothesis", reason="ansible-test's environment has no hypothesis; plain pytest runs these")
st = hypothesis.strategies

# How bad a verdict is; fail and unknown both keep a node out of service.
BLOCKS = {"pass": False, "unknown": True, "fail": True}

CHANGES = st.lists(st.tuples(
    st.integers(0, 2),
    st.sampled_from(sorted(set(readings.gpu(0)) - {"index"})),
    st.sampled_from([{"value": 1, "rc": 0}, {"value": 0, "rc": 0}, {"value": [True], "rc": 0}, {"value": "x", "rc": 0}, readings.failed(15),
                     readings.failed(3), readings.failed(13), readings.failed(999), None, "damaged",
                     {"value": {"pending": True, "failure": False}, "rc": 0}]),
), max_size=3)
# Ways to take a signal away. "Not supported" is an answer of the hardware about itself, and only the baseline can contradict it.
GONE = st.sampled_from(["delete", None, {}, {"value": None, "rc": 0}, readings.failed(13), readings.failed(4), readings.failed(999), readings.failed(-1)])
GONE_WITH_BASELINE = st.sampled_from([readings.failed(3), readings.failed(2)]) | GONE


def judge(snapshot, audit, baseline, phase="adhoc"):
    return _health.evaluate(snapshot, audit, baseline=baseline, phase=phase, node=readings.NODE, now=readings.NOW)


def reading(changes):
    snapshot = readings.snapshot(3)
    for index, key, content in changes:
        snapshot["gpus"][index][key] = copy.deepcopy(content)
    return snapshot


def places(document, path=()):
    """Every path into a document."""
    if isinstance(document, dict):
        children = document.items()
    elif isinstance(document, list):
        children = enumerate(document)
    else:
        return
    for key, child in children:
        yield path + (key,)
        yield from places(child, path + (key,))


def without(document, path, how):
    document = copy.deepcopy(document)
    target = document
    for key in path[:-1]:
        target = target[key]
    if how == "delete":
        del target[path[-1]]
    else:
        target[path[-1]] = copy.deepcopy(how)
    return document


def baseline():
    return readings.baseline(snapshot=readings.snapshot(3), audit=readings.audit(3))


@hypothesis.given(CHANGES, st.data())
def test_taking_a_signal_away_never_opens_the_way(changes, data):
    compare = data.draw(st.booleans())
    old = baseline() if compare else None
    snapshot, audit = reading(changes), readings.audit(3)
    before = judge(snapshot, audit, old)["verdict"]
    index = data.draw(st.integers(0, 2))
    key = data.draw(st.sampled_from(sorted(set(snapshot["gpus"][index]) - {"index"})))
    contradicted = compare and readings.gpu(index)[key]["rc"] == 0
    how = data.draw(GONE_WITH_BASELINE if contradicted else GONE)
    after = judge(without(snapshot, ("gpus", index, key), how), audit, old)["verdict"]
    assert BLOCKS[after] or not BLOCKS[before]


@hypothesis.given(CHANGES, st.data())
def test_taking_anything_else_away_never_opens_the_way_either(changes, data):
    old = data.draw(st.sampled_from([None, "baseline"])) and baseline()
    parts = {"snapshot": reading(changes), "audit": readings.audit(3)}
    before = judge(parts["snapshot"], parts["audit"], old)["verdict"]
    path = data.draw(st.sampled_from(sorted(places(parts), key=repr)))
    damaged = without(parts, path, data.draw(st.sampled_from(["delete", None])))
    after = judge(damaged.get("snapshot"), damaged.get("audit"), old)["verdict"]
    assert BLOCKS[after] or not BLOCKS[before]


@hypothesis.given(CHANGES, st.data())
def test_damage_to_the_baseline_never_opens_the_way(changes, data):
    old = baseline()
    snapshot, audit = reading(changes), readings.audit(3)
    before = judge(snapshot, audit, old, "post")["verdict"]
    path = data.draw(st.sampled_from(sorted(places(old["snapshot"]), key=repr)))
    old["snapshot"] = without(old["snapshot"], path, data.draw(st.sampled_from(["delete", None])))
    try:
        after = judge(snapshot, audit, old, "post")["verdict"]
    except _health.BaselineError:
        after = "unknown"
    assert BLOCKS[after] or not BLOCKS[before]


@hypothesis.given(CHANGES, st.randoms(use_true_random=False))
def test_the_order_of_gpus_changes_nothing(changes, chance):
    snapshot = reading(changes)
    other, old = copy.deepcopy(snapshot), baseline()
    for listed in (other["gpus"], old["snapshot"]["gpus"]):
        chance.shuffle(listed)
    assert judge(snapshot, readings.audit(3), baseline()) == judge(other, readings.audit(3), old)


def test_a_new_numbering_of_healthy_gpus_changes_nothing():
    snapshot = readings.snapshot(3)
    random.Random(1).shuffle(snapshot["gpus"])
    for index, gpu in enumerate(snapshot["gpus"]):
        gpu["index"] = index
    assert judge(snapshot, readings.audit(3), baseline()) == judge(readings.snapshot(3), readings.audit(3), baseline())


@hypothesis.given(CHANGES)
def test_unknown_never_passes_and_a_blocked_node_is_told_what_to_do(changes):
    health = judge(reading(changes), readings.audit(3), baseline())
    statuses = set(check["status"] for check in health["checks"])
    if statuses & {"fail", "unknown"}:
        assert health["verdict"] == ("fail" if "fail" in statuses else "unknown")
        assert health["action"] != "none"
    else:
        assert (health["verdict"], health["action"]) == ("pass", "none")


@hypothesis.given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(["status", "nvml", "rc", "gpus", "count", "value", "system", "driver_version", "handle", "uuid", "pci", "versions", "modules", "kernel"]),
    inner, max_size=4), max_leaves=20), st.data())
def test_rubbish_is_never_healthy(rubbish, data):
    snapshot, audit = (rubbish, readings.audit(3)) if data.draw(st.booleans()) else (readings.snapshot(3), rubbish)
    assert BLOCKS[judge(snapshot, audit, None)["verdict"]]
