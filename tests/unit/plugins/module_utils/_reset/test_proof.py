# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a reset did what it is for: each thing that may be left, and each piece of evidence."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._reset import proof
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._reset.resetnode import GPU, MIG, gpu, rc

pytestmark = pytest.mark.pythons

ROWS = {"correctable": 0, "uncorrectable": 1, "pending": True, "failure": False}
PLAN = {"targets": [0], "added": []}


def ids(problems):
    return [item["id"] for item in problems]


@pytest.mark.parametrize(
    "before, after, found",
    [
        ({}, {}, []),
        ({"ecc_mode_pending": 0}, {"ecc_mode_current": 0, "ecc_mode_pending": 0}, []),
        ({"ecc_mode_pending": 0}, {"ecc_mode_pending": 0}, ["mode_pending"]),  # said to be reset, and still waits
        ({"ecc_mode_pending": 0}, {}, ["mode_not_applied"]),  # the wish is gone, not granted
        ({"mig_mode_pending": 1}, {"mig_mode_current": 1, "mig_mode_pending": 1}, []),
        ({"mig_mode_pending": 1}, {"mig_mode_pending": 1}, ["mode_pending"]),
        ({}, {"recovery_action": 1}, ["recovery_action"]),
        ({"recovery_action": 1}, {"recovery_action": 2}, ["recovery_action"]),
        ({"recovery_action": 1}, {"recovery_action": rc(3)}, []),
        ({"recovery_action": 1}, {"recovery_action": rc(999)}, ["unread"]),
        ({"remapped_rows": ROWS}, {"remapped_rows": ROWS}, ["repair_pending"]),
        ({"remapped_rows": ROWS}, {"remapped_rows": dict(ROWS, pending=False)}, []),
        ({"remapped_rows": ROWS}, {"remapped_rows": dict(ROWS, pending=False, failure=True)}, ["remap_failed"]),
        (
            {"remapped_rows": dict(ROWS, failure=True)},
            {"remapped_rows": dict(ROWS, pending=False, failure=True)},
            [],
        ),  # known before
        ({"mig_instances": [MIG]}, {"mig_instances": [MIG]}, ["instances_left"]),
        ({"mig_instances": [MIG]}, {"mig_instances": []}, []),
        ({}, {"ecc_mode_current": rc(999)}, ["unread"]),
        ({"uuid": rc(16)}, {"uuid": rc(16)}, ["unread"]),
        ({}, {"remapped_rows": rc(17)}, ["unread"]),
    ],
)
def test_what_remains_on_a_gpu(before, after, found):
    problems = proof.check_remains(gpu(**before), gpu(**after))
    assert ids(problems) == found and all(item["gpu"] and item["message"] and item["next_step"] for item in problems)


@pytest.mark.parametrize(
    "after, found",
    [
        ([gpu(0), gpu(1)], []),
        ([gpu(1), gpu(0)], []),
        ([gpu(0)], ["gpu_missing"]),
        ([], ["gpu_missing", "gpu_missing"]),
        ([gpu(0), gpu(2)], ["gpu_missing"]),
        ([gpu(0), gpu(1, handle=rc(15))], ["gpu_lost"]),
        ([gpu(0), gpu(1), gpu(2)], ["gpu_unexpected"]),
    ],
)
def test_all_gpus_have_to_be_there_by_uuid(after, found):
    for index, item in enumerate(after):
        item["index"] = index
    assert ids(proof.missing([gpu(0), gpu(1)], after)) == found


def test_a_gpu_without_a_uuid_is_found_by_its_index():
    assert proof.missing([gpu(0, uuid=rc(16))], [gpu(0)]) == []


@pytest.mark.parametrize(
    "before, after, seen",
    [
        ({}, {}, []),
        ({"ecc_mode_pending": 0}, {"ecc_mode_current": 0, "ecc_mode_pending": 0}, ["ecc_mode"]),
        ({"ecc_mode_pending": 0}, {"ecc_mode_pending": 0}, []),
        ({"mig_mode_pending": 1}, {"mig_mode_current": 1, "mig_mode_pending": 1}, ["mig_mode"]),
        ({"mig_instances": [MIG]}, {"mig_instances": []}, ["mig_instances"]),
        ({"mig_instances": [MIG]}, {"mig_instances": rc(999)}, []),
        ({"remapped_rows": ROWS}, {}, ["repairs_pending"]),
        ({"recovery_action": 4}, {"recovery_action": 0}, ["recovery_action"]),
        ({"recovery_action": 4}, {"recovery_action": rc(3)}, []),
        ({"ecc_volatile_corrected": 5}, {}, ["volatile_ecc_errors"]),
        ({"ecc_volatile_corrected": 5}, {"ecc_volatile_corrected": rc(3)}, []),
        ({"uuid": rc(16), "ecc_mode_current": rc(16)}, {}, ["reset_required"]),
    ],
)
def test_evidence(before, after, seen):
    (row,) = proof.make_rows([gpu(**before)], PLAN, [gpu(**after)], [])
    assert (row["evidence"], row["status"]) == (seen, "reset" if seen else "unproven")


def test_a_problem_of_a_gpu_or_of_the_node_outweighs_evidence():
    before, after = [gpu(0, ecc_mode_pending=0), gpu(1)], [gpu(0, ecc_mode_current=0, ecc_mode_pending=0), gpu(1)]
    plan = {"targets": [0, 1], "added": [1]}
    mine, node = proof.make_problem("kernel_log", "x", GPU % 0), proof.make_problem("command_failed", "x")
    assert [row["status"] for row in proof.make_rows(before, plan, after, [mine])] == ["failed", "unproven"]
    assert [row["status"] for row in proof.make_rows(before, plan, after, [node])] == ["failed", "failed"]
    assert [row["added"] for row in proof.make_rows(before, plan, after, [])] == [False, True]
    assert [row["after"] for row in proof.make_rows(before, plan, [], [node])] == [None, None]


def event(kind="xid", **more):
    return dict({"kind": kind, "pci": "0000:10:00.0", "text": "a line"}, **more)


@pytest.mark.parametrize(
    "events, found",
    [
        ([], []),
        ([event(xid=119)], [GPU % 0]),
        ([event(xid=119, pci=None)], [None]),
        ([event(xid=119, pci="0000:99:00.0")], []),  # another GPU
        ([event(xid=154, recovery={"from": 1, "to": 0})], []),
        ([event(xid=154, recovery={"from": 0, "to": 2})], [GPU % 0]),
        ([event(xid=154)], [GPU % 0]),
        ([event(xid=None)], [GPU % 0]),  # a line that cannot be taken apart
        ([event("rm_init_failed")], [GPU % 0]),
        ([event("fallen_off", pci=None)], [None]),
        ([event("needs_reset")], [GPU % 0]),
        ([event("driver_loaded")], []),
    ],
)
def test_the_kernel_log(events, found):
    problems, warnings = proof.check_kernel_log(
        {"watermark": {"seq": 1}, "complete": True, "problem": "", "events": events}, [gpu(0)]
    )
    assert [item["gpu"] for item in problems] == found and warnings == []


def test_a_gpu_whose_address_is_not_known_is_answerable_for_every_event():
    log = {"watermark": {"seq": 1}, "complete": True, "problem": "", "events": [event(xid=119, pci="0000:99:00.0")]}
    assert ids(proof.check_kernel_log(log, [gpu(0, pci_bus_id=rc(16))])[0]) == ["kernel_log"]


@pytest.mark.parametrize(
    "log",
    [
        None,
        {"watermark": None, "complete": True, "events": [], "problem": ""},
        {"watermark": {"seq": 1}, "complete": False, "events": [], "problem": "overwritten"},
        {"watermark": {"seq": 1}, "complete": None, "events": [], "problem": ""},
    ],
)
def test_a_log_that_may_lack_something_is_told(log):
    problems, warnings = proof.check_kernel_log(log, [gpu(0)])
    assert problems == [] and len(warnings) == 1


def test_persistence_mode_has_to_be_on_again():
    before, after = [gpu(0), gpu(1)], [gpu(0, persistence_mode=0), gpu(1, persistence_mode=1)]
    assert [item["gpu"] for item in proof.not_persistent(before, after, [GPU % 0, GPU % 1])] == [GPU % 0]
    assert proof.not_persistent(before, after, []) == []


@pytest.mark.parametrize(
    "before, after",
    [
        (
            {"ecc_mode_pending": 0, "ecc_volatile_corrected": 3},
            {"ecc_mode_current": 0, "ecc_mode_pending": 0, "ecc_volatile_corrected": rc(3)},
        ),
        ({"ecc_mode_current": 0, "ecc_volatile_corrected": rc(3)}, {}),
        ({"mig_instances": [MIG], "remapped_rows": ROWS, "recovery_action": 1, "ecc_volatile_corrected": 3}, {}),
        (
            {"mig_mode_pending": 1, "recovery_action": rc(3)},
            {"mig_mode_current": 1, "mig_mode_pending": 1, "recovery_action": rc(3)},
        ),
        (
            {"ecc_mode_current": rc(3), "ecc_mode_pending": rc(3), "ecc_volatile_corrected": rc(3)},
            {"ecc_mode_current": rc(3), "ecc_mode_pending": rc(3), "ecc_volatile_corrected": rc(3)},
        ),
    ],
)
def test_what_is_foreseen_is_what_comes(before, after):
    before, after = gpu(**before), gpu(**after)
    (row,) = proof.make_planned_rows([before], PLAN, proof.PLANNED)
    assert row["after"] == proof.read_state(after) and row["status"] == "planned"
    (row,) = proof.make_planned_rows([before], PLAN, proof.UNCHANGED)
    assert row["after"] == row["before"] == proof.read_state(before) and row["status"] == "not_reset"
