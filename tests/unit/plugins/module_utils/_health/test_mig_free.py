# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remapped rows of GPUs with MIG instances: taken from a reading without any, unknown otherwise, and the ways out."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import failed, value

LIMIT = {"mig_free_reading_age_max_h": 4}
UPTIME_S = 5 * 3600.0  # of the node when it is judged
HIDDEN = ("gpu.remap_failure", "gpu.remap_pending")


def with_mig(document):
    for gpu in document["snapshot"]["gpus"]:
        gpu.update(
            mig_mode_current=value(1), mig_mode_pending=value(1), remapped_rows=failed(3), remap_histogram=failed(3)
        )
    return document


def torn_down(uptime_s=UPTIME_S - 3600, boot_id="x", **change):
    system = dict(readings.system(), uptime_s=uptime_s)
    document = readings.baseline(boot_id=boot_id, **dict({"system": system}, **change))
    for gpu in document["snapshot"]["gpus"]:
        gpu.update(mig_mode_current=value(1), mig_mode_pending=value(1))
    return document


def judge(found, policy=None, baseline=None, **options):
    return _health.evaluate(
        with_mig(readings.reading(uptime_s=UPTIME_S)),
        baseline or with_mig(readings.baseline()),
        dict(LIMIT, **(policy or {})),
        phase="post",
        node=readings.NODE,
        now=readings.NOW,
        expect={"mig_free": found},
        **options,
    )


def statuses(health, idents=HIDDEN):
    return set(check["status"] for check in health["checks"] if check["id"] in idents)


def test_without_such_a_reading_they_are_unknown():
    assert statuses(judge(None)) == {"unknown"}


@pytest.mark.parametrize("time", [readings.NOW, "2026-03-01T13:00:00Z", "2026-02-28T12:00:00Z", None])
def test_a_reading_of_this_boot_without_instances_counts_whatever_the_clock_of_its_controller(time):
    health = judge(torn_down(time=time))
    assert statuses(health) == {"pass"} and statuses(health, ["baseline.mig_free"]) == {"pass"}


def test_what_it_says_counts_too():
    found = torn_down()
    found["snapshot"]["gpus"][1]["remapped_rows"] = value(
        {"correctable": 0, "uncorrectable": 1, "pending": True, "failure": False}
    )
    failing = [
        (check["id"], check["entity"])
        for check in judge(found)["checks"]
        if check["status"] == "fail" and check["id"] in HIDDEN
    ]
    assert failing == [("gpu.remap_pending", readings.uuid(1))]


@pytest.mark.parametrize(
    "found, said",
    [
        (torn_down(boot_id="y"), "it is of boot y, and this is boot x"),
        (torn_down(boot_id=None), "it is of boot None"),
        (torn_down(uptime_s=UPTIME_S - 4 * 3600 - 60), "it was taken 4.0 hours ago, at most 4 are accepted"),
        (torn_down(uptime_s=UPTIME_S + 60), "how old it is is not known"),
        (torn_down(uptime_s=None), "how old it is is not known"),
        (torn_down(system=None), "how old it is is not known"),
    ],
)
def test_one_that_cannot_be_used_is_told_and_changes_nothing(found, said):
    health = judge(found)
    assert statuses(health) == {"unknown"}
    (check,) = [check for check in health["checks"] if check["id"] == "baseline.mig_free"]
    assert check["status"] == "unknown" and said in check["message"]


def test_by_the_strictest_policy_none_counts():
    assert statuses(judge(torn_down(), policy={"mig_free_reading_age_max_h": 0})) == {"unknown"}


def test_one_of_another_node_is_refused():
    with pytest.raises(_health.BaselineError, match="that of node gpu-2"):
        judge(torn_down(node="gpu-2"))


def test_it_never_hides_what_can_be_read_now_and_stands_for_nothing_else():
    reading = readings.reading()
    reading["snapshot"]["gpus"][0]["remapped_rows"] = value(
        {"correctable": 0, "uncorrectable": 0, "pending": True, "failure": False}
    )
    reading["snapshot"]["gpus"][1]["remapped_rows"] = failed(999)
    before = copy.deepcopy(reading)
    health = _health.evaluate(
        reading,
        readings.baseline(),
        LIMIT,
        phase="post",
        node=readings.NODE,
        now=readings.NOW,
        expect={"mig_free": torn_down()},
    )
    assert reading == before
    assert sorted(
        (check["entity"], check["status"]) for check in health["checks"] if check["id"] == "gpu.remap_pending"
    ) == [(readings.uuid(0), "fail"), (readings.uuid(1), "fail")]


def test_a_waiver_is_the_other_way_out():
    waivers = [
        {"check": ident, "reason": "read by hand while the instances were destroyed", "expires": "2026-03-02"}
        for ident in HIDDEN
    ]
    assert statuses(judge(None, policy={"waivers": waivers})) == {"waived"}


ALL_HIDDEN = (
    "gpu.ecc_volatile",
    "gpu.ecc_volatile_corrected",
    "gpu.remap_failure",
    "gpu.remap_pending",
    "gpu.remap_uncorrectable",
    "gpu.bank_availability",
)


def serving(reading, accepted="all", **options):
    return _health.evaluate(
        reading,
        None,
        dict(LIMIT),
        phase="baseline",
        node=readings.NODE,
        now=readings.NOW,
        expect={"mig_hidden": accepted},
        **options,
    )


def hidden_reading():
    found = with_mig(readings.reading())
    for gpu in found["snapshot"]["gpus"]:
        gpu.update(ecc_volatile_corrected=failed(3), ecc_volatile_uncorrected=failed(3))
    return found


def test_what_mig_hides_can_be_accepted_of_a_node_that_serves():
    assert statuses(serving(hidden_reading(), accepted="none"), ALL_HIDDEN) == {"unknown"}
    assert statuses(serving(hidden_reading()), ALL_HIDDEN) == {"not_applicable"}


def test_without_instances_the_rows_have_to_be_told():
    told = [
        (check["id"], check["status"])
        for check in serving(hidden_reading(), accepted="volatile_ecc")["checks"]
        if check["id"] in ALL_HIDDEN
    ]
    assert {status for ident, status in told if "ecc" in ident} == {"not_applicable"}
    assert {status for ident, status in told if "ecc" not in ident} == {"unknown"}


@pytest.mark.parametrize("key", ["remapped_rows", "remap_histogram", "ecc_volatile_uncorrected"])
@pytest.mark.parametrize(
    "change",
    [
        {"mig_mode_current": value(0)},
        {"mig_mode_current": failed(15)},
        {"mig_mode_current": failed(3)},
        {"rc": 15},
        {"rc": 999},
        {"rc": 4},
    ],
)
def test_nothing_else_is_accepted(key, change):
    """Neither of a GPU that is not known to be in MIG mode, nor another answer than that it is not supported."""
    found = hidden_reading()
    gpu = found["snapshot"]["gpus"][0]
    gpu.update(
        {"mig_mode_current": change["mig_mode_current"]}
        if "mig_mode_current" in change
        else {key: failed(change["rc"])}
    )
    # A GPU whose peers answer, so that no board lacks the value.
    found["snapshot"]["gpus"][1].update(
        {key: readings.reading()["snapshot"]["gpus"][1][key], "mig_mode_current": value(0)}
    )
    with_it, without = serving(found), serving(found, accepted="none")
    entity = readings.uuid(0)
    of = [
        [
            (check["id"], check["status"])
            for check in health["checks"]
            if check["entity"] == entity and check["id"] in ALL_HIDDEN and check["status"] in ("fail", "unknown")
        ]
        for health in (with_it, without)
    ]
    concerned = {ident for ident, status in of[1]} & {
        ident for ident in ALL_HIDDEN if _health.mig_free.HIDES[ident] == key
    }
    assert concerned and {ident for ident, status in of[0]} >= concerned


def test_a_value_that_is_told_is_judged_as_always():
    found = with_mig(readings.reading())
    found["snapshot"]["gpus"][0]["remapped_rows"] = value(
        {"correctable": 0, "uncorrectable": 1, "pending": True, "failure": False}
    )
    assert ("gpu.remap_pending", "fail") in [(check["id"], check["status"]) for check in serving(found)["checks"]]
