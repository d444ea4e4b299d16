# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every reading: nothing gets better by not being seen, the order of GPUs means nothing, and no reading
is an accident.
"""

from __future__ import annotations

import copy
import json
import random

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import registry
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.documents import TABLES

hypothesis = pytest.importorskip(
    "hypothesis", reason="ansible-test's environment has no hypothesis; plain pytest runs these"
)
st = hypothesis.strategies

# How bad a verdict is; fail and unknown both keep a node out of service.
BLOCKS = {"pass": False, "unknown": True, "fail": True}

CHANGES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(sorted(set(readings.gpu(0)) - {"index"})),
        st.sampled_from(
            [
                {"value": 1, "rc": 0},
                {"value": 0, "rc": 0},
                {"value": [True], "rc": 0},
                {"value": "x", "rc": 0},
                readings.failed(15),
                readings.failed(3),
                readings.failed(13),
                readings.failed(999),
                None,
                "damaged",
                {"value": {"pending": True, "failure": False}, "rc": 0},
            ]
        ),
    ),
    max_size=3,
)
# Ways to take a signal away. "Not supported" is an answer of the hardware about itself, and only the baseline can
# contradict it.
GONE = st.sampled_from(
    [
        "delete",
        None,
        {},
        {"value": None, "rc": 0},
        readings.failed(13),
        readings.failed(4),
        readings.failed(999),
        readings.failed(-1),
    ]
)
GONE_WITH_BASELINE = st.sampled_from([readings.failed(3), readings.failed(2)]) | GONE


def judge(snapshot, audit, baseline, phase="adhoc"):
    return _health.evaluate(
        dict(readings.reading(), snapshot=snapshot, audit=audit),
        baseline=baseline,
        phase=phase,
        node=readings.NODE,
        now=readings.NOW,
        tables=TABLES,
    )


def reading(changes):
    snapshot = readings.snapshot(4)
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
    return readings.baseline(snapshot=readings.snapshot(4), audit=readings.audit(4))


@hypothesis.given(CHANGES, st.data())
def test_taking_a_signal_away_never_opens_the_way(changes, data):
    compare = data.draw(st.booleans())
    old = baseline() if compare else None
    snapshot, audit = reading(changes), readings.audit(4)
    before = judge(snapshot, audit, old)["verdict"]
    index = data.draw(st.integers(0, 2))
    key = data.draw(st.sampled_from(sorted(set(snapshot["gpus"][index]) - {"index"})))
    contradicted = compare and readings.snapshot(4)["gpus"][index][key]["rc"] == 0
    how = data.draw(GONE_WITH_BASELINE if contradicted else GONE)
    after = judge(without(snapshot, ("gpus", index, key), how), audit, old)["verdict"]
    assert BLOCKS[after] or not BLOCKS[before]


@hypothesis.given(CHANGES, st.data())
def test_taking_anything_else_away_never_opens_the_way_either(changes, data):
    old = data.draw(st.sampled_from([None, "baseline"])) and baseline()
    parts = {"snapshot": reading(changes), "audit": readings.audit(4)}
    before = judge(parts["snapshot"], parts["audit"], old)["verdict"]
    path = data.draw(st.sampled_from(sorted(places(parts), key=repr)))
    damaged = without(parts, path, data.draw(st.sampled_from(["delete", None])))
    after = judge(damaged.get("snapshot"), damaged.get("audit"), old)["verdict"]
    assert BLOCKS[after] or not BLOCKS[before]


@hypothesis.given(CHANGES, st.data())
def test_damage_to_the_baseline_never_opens_the_way(changes, data):
    old = baseline()
    snapshot, audit = reading(changes), readings.audit(4)
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
    assert judge(snapshot, readings.audit(4), baseline()) == judge(other, readings.audit(4), old)


def test_a_new_numbering_of_healthy_gpus_changes_nothing():
    snapshot = readings.snapshot(4)
    random.Random(1).shuffle(snapshot["gpus"])
    for index, gpu in enumerate(snapshot["gpus"]):
        gpu["index"] = index
    assert judge(snapshot, readings.audit(4), baseline()) == judge(readings.snapshot(4), readings.audit(4), baseline())


@hypothesis.given(CHANGES)
def test_unknown_never_passes_and_a_blocked_node_is_told_what_to_do(changes):
    health = judge(reading(changes), readings.audit(4), baseline())
    statuses = set(check["status"] for check in health["checks"])
    if statuses & {"fail", "unknown"}:
        assert health["verdict"] == ("fail" if "fail" in statuses else "unknown")
        assert health["action"] != "none"
    else:
        assert (health["verdict"], health["action"]) == ("pass", "none")


KEYS = "status nvml rc gpus count value system driver_version handle uuid pci versions modules kernel".split()


@hypothesis.given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        max_leaves=20,
    ),
    st.data(),
)
def test_rubbish_is_never_healthy(rubbish, data):
    snapshot, audit = (rubbish, readings.audit(4)) if data.draw(st.booleans()) else (readings.snapshot(4), rubbish)
    assert BLOCKS[judge(snapshot, audit, None)["verdict"]]


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**64)
    | st.floats()
    | st.sampled_from(["", "x", "0", "NVIDIA", "0000:1a:00.0", "2026-01-01T00:00:00Z"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["value", "rc", "error", "kind", "xid", "pci", "state", "active", "aer", "errors", "link"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
OTHER = st.sampled_from([True, False, 0, 1, 3, 999, -1, "x", "", "failed", 1e9])


def whole(log=()):
    """A healthy reading as the node sends it, with the events LOG in the kernel log."""
    document = readings.reading()
    document["kernel_log"]["events"] = copy.deepcopy(list(log))
    document["kernel_log"]["counted"]["events"] = len(log)
    return document


EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["xid", "sxid", "fallen_off", "api_mismatch", "rm_init_failed", "oops", "new"]),
            "seq": st.just(1001),
            "monotonic_us": st.just(61000000),
            "pci": st.sampled_from(["0000:1a:00.0", "0000:99:00.0", None]),
            "xid": st.sampled_from([13, 48, 79, 94, 999]),
            "sxid": st.sampled_from([11001, 20034]),
            "text": st.just("NVRM: x"),
        }
    ),
    max_size=2,
)


def keys(document, path=()):
    """Every path that ends in a key of a dictionary."""
    return [place for place in places(document, path) if isinstance(place[-1], str)]


def at(document, path):
    for key in path:
        document = document[key]
    return document


def evaluate(document, old=None, **options):
    options.setdefault("expect", None if old else readings.EXPECT)
    return _health.evaluate(
        document, old, phase="post" if old else "adhoc", node=readings.NODE, now=readings.NOW, tables=TABLES, **options
    )


@pytest.mark.parametrize("old", [None, readings.baseline()], ids=["alone", "compared"])
def test_the_reading_that_is_broken_below_is_healthy(old):
    health = evaluate(whole(), old)
    assert [check for check in health["checks"] if check["status"] in ("fail", "unknown")] == []
    assert health["verdict"] == "pass"


# Limits that the hardware tells are no signal: one that is gone is taken from the baseline or the policy.
LIMITS = ("temperature_limits_c", "temperature_margin_limits_c")
# What may as well not be there: without a baseline nobody knows that it ever was.
INVENTORIES = (("system", "infiniband"), ("audit", "versions", "driver_packages"))


def honest(document, leaf):
    """Whether LEAF is a signal that a healthy node has: taking it away is then no statement of the hardware about
    itself.
    """
    return at(document, leaf) is not None and not set(LIMITS) & set(leaf)


def accounted_for(path, old):
    """Whether anything says that PATH has to be there."""
    if path[-1] == "upstream":
        return False  # a GPU of a virtual machine has no port above it
    return old is not None or path[:-1] not in INVENTORIES


@hypothesis.given(EVENTS, st.data())
def test_a_fault_cannot_be_hidden_by_taking_it_away(log, data):
    document = whole(log)
    old = data.draw(st.sampled_from([None, "baseline"])) and readings.baseline()
    if not log or data.draw(st.booleans()):
        leaves = [
            path
            for path in keys(document)
            if not isinstance(at(document, path), (dict, list)) and honest(document, path)
        ]
        leaf = data.draw(st.sampled_from(leaves))
        document = without(document, leaf, data.draw(OTHER))
    else:
        leaf = ("kernel_log", "events", 0, data.draw(st.sampled_from(sorted(log[0]))))
    before = evaluate(document, old)["verdict"]
    hypothesis.assume(BLOCKS[before])
    # The value itself, what it is part of, or anything else.
    around = [leaf[:length] for length in range(1, len(leaf) + 1) if isinstance(leaf[length - 1], str)]
    path = data.draw(st.sampled_from(around) | st.sampled_from(keys(document)))
    hypothesis.assume(accounted_for(path, old))
    damaged = without(document, path, data.draw(st.sampled_from(["delete", None])))
    assert BLOCKS[evaluate(damaged, old)["verdict"]], (leaf, path)


@hypothesis.given(EVENTS, st.lists(ANYTHING, min_size=1, max_size=3), st.data())
def test_no_reading_is_an_accident(log, damage, data):
    document, old = whole(log), readings.baseline()
    for content in damage:
        if data.draw(st.integers(0, 3)):
            document = without(document, data.draw(st.sampled_from(list(places(document)))), content)
        else:
            old["snapshot" if data.draw(st.booleans()) else "system"] = data.draw(
                st.sampled_from([{}, {"gpus": []}, {"gpus": [{}]}])
            )
    try:
        health = evaluate(document, old)
    except _health.BaselineError:
        return
    assert [check["message"] for check in health["checks"] if "could not judge" in check["message"]] == []
    for ident in registry.IDENTS - set(check["id"] for check in health["checks"]):
        # A check of GPUs has nothing to say where there is none.
        assert ident.startswith("gpu.") or ident.startswith("smoke."), ident
    assert json.loads(json.dumps(health)) == health or "nan" in repr(health)


@hypothesis.given(CHANGES, st.data())
def test_a_waiver_waives_what_it_names_and_nothing_else(changes, data):
    document = dict(whole(), snapshot=reading(changes), audit=readings.audit(4))
    old = baseline()
    before = evaluate(document, old)
    blocking = [check for check in before["checks"] if check["status"] in ("fail", "unknown")]
    hypothesis.assume(blocking)
    target = data.draw(st.sampled_from(blocking))
    ident = data.draw(st.sampled_from([target["id"]] + sorted(registry.IDENTS)[:3]))
    entity = data.draw(st.sampled_from([None, target["entity"], "node", "GPU-other"]))
    waiver = {"check": ident, "entity": entity, "reason": "on purpose", "expires": "2026-12-31"}
    after = evaluate(document, old, policy={"waivers": [waiver]})

    def named(check):
        return check["id"] == ident and entity in (None, check["entity"])

    def state(health, wanted):
        return sorted(
            (check["id"], check["entity"], check["status"]) for check in health["checks"] if named(check) is wanted
        )

    assert state(before, False) == state(after, False)
    assert all(status not in ("fail", "unknown") for ident, entity, status in state(after, True))
    assert [(ident, entity) for ident, entity, status in state(before, True)] == [
        (ident, entity) for ident, entity, status in state(after, True)
    ]


@hypothesis.given(EVENTS, CHANGES)
def test_a_notice_never_turns_a_verdict_and_strict_never_makes_it_better(log, changes):
    document, old = dict(whole(log), snapshot=reading(changes), audit=readings.audit(4)), baseline()
    plain, strict = evaluate(document, old), evaluate(document, old, policy={"strict": ["*"]})
    assert BLOCKS[strict["verdict"]] or not BLOCKS[plain["verdict"]]
    assert strict["notices"] == 0 and (plain["notices"] == 0 or strict["verdict"] == "fail")
