# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables of the rows about memory: ECC, remapped rows, retired pages, sizes; and of the driver's own advice."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import cases
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.cases import (
    ABSENT,
    FAIL,
    GONE,
    NO_BASELINE,
    NOTICE,
    PASS,
    SKIP,
    UNKNOWN,
    absences,
    same_load,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import failed

ROWS = {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False}
BANKS = {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0}
MIG = {"mig_mode_current": 1, "mig_mode_pending": 1}
NEWER = {"driver": "580.95.05"}


def rows(**change):
    return {"remapped_rows": dict(ROWS, **change)}


def repair(channel, tpc):
    return {"repair_status": {"channel_pending": channel, "tpc_pending": tpc}}


def pages(single, double):
    return {"retired_pages": {"sbe": single, "dbe": double}}


def corrected(count):
    return {"ecc_volatile_corrected": count}


CASES = cases.table(
    {
        "gpu.recovery_action": [
            ({"recovery_action": 0}, {}, PASS),
            ({"recovery_action": 0}, NO_BASELINE, PASS),
            ({"recovery_action": 1}, NO_BASELINE, FAIL, "reset_gpu", "found 1, expected 0"),
            ({"recovery_action": 2}, {}, FAIL, "reboot"),
            ({"recovery_action": 3}, {}, FAIL, "hold"),
            ({"recovery_action": 4}, {}, FAIL, "reset_gpu"),
            ({"recovery_action": 5}, {}, FAIL, "hold", "IMEX"),
            ({"recovery_action": 6}, {}, FAIL, "reboot"),
            ({"recovery_action": 8}, {}, FAIL, "hold", "newer than this collection knows"),
            ({"recovery_action": -1}, {}, UNKNOWN, "hold"),
            ({"recovery_action": True}, {}, UNKNOWN, "hold"),
            ({"recovery_action": ABSENT}, {"recovery_action": 0}, SKIP, "none", "before 570"),
            ({"recovery_action": ABSENT}, {"recovery_action": 0}, FAIL, "hold", NEWER),
            ({"recovery_action": failed(13)}, NO_BASELINE, UNKNOWN, "hold"),
        ],
        "gpu.ecc_volatile": [
            ({}, {}, PASS),
            ({}, NO_BASELINE, PASS),
            ({"ecc_volatile_uncorrected": 1}, NO_BASELINE, FAIL, "reset_gpu", "at most 0"),
            ({"ecc_volatile_uncorrected": 1}, {"ecc_volatile_uncorrected": 1}, FAIL, "reset_gpu"),
            (
                {"ecc_volatile_uncorrected": 1},
                {},
                PASS,
                dict(policy_change={"models": {"*h100*": {"ecc_volatile_uncorrected_max": 1}}}),
            ),
            (dict(MIG, ecc_volatile_uncorrected=ABSENT), NO_BASELINE, UNKNOWN, "hold", "MIG mode"),
            (dict(MIG, ecc_volatile_uncorrected=ABSENT), {}, UNKNOWN, "hold", "MIG mode"),
            (dict(MIG, ecc_volatile_uncorrected=ABSENT), dict(MIG, ecc_volatile_uncorrected=ABSENT), SKIP),
            *absences("ecc_volatile_uncorrected"),
        ],
        "gpu.ecc_volatile_corrected": [
            ({}, {}, PASS),
            (corrected(20000000), NO_BASELINE, PASS),
            (corrected(20000001), NO_BASELINE, NOTICE, "none", "since the driver was loaded"),
            (corrected(20000001), corrected(20000000), NOTICE),
            (corrected(20000001), corrected(20000000), PASS, same_load()),
            (corrected(10000), {}, PASS, same_load()),
            (corrected(10001), {}, NOTICE, "none", "1000.1 a minute", same_load()),
            (corrected(10001), {}, PASS, same_load(3590.0)),
            (corrected(10001), corrected(20000), PASS, same_load()),
            (corrected(5), {}, UNKNOWN, "hold", "uptime is missing", same_load(None)),
            (corrected(5), {}, UNKNOWN, "hold", "boot id", dict(baseline={"boot_id": None})),
            (corrected(5), {"ecc_volatile_corrected": GONE}, UNKNOWN, "hold", "no number", same_load()),
            (corrected(5), {"ecc_volatile_corrected": ABSENT}, PASS, same_load()),
            *absences("ecc_volatile_corrected"),
        ],
        "gpu.ecc_aggregate": [
            ({"ecc_aggregate_uncorrected": 3}, {"ecc_aggregate_uncorrected": 3}, PASS),
            ({"ecc_aggregate_uncorrected": 4}, {"ecc_aggregate_uncorrected": 3}, FAIL, "field_diag", "had 4"),
            ({"ecc_aggregate_uncorrected": 1}, {"ecc_aggregate_uncorrected": 3}, NOTICE, "none", "InfoROM"),
            ({"ecc_aggregate_uncorrected": 4}, NO_BASELINE, SKIP),
            ({}, {"ecc_aggregate_uncorrected": GONE}, UNKNOWN, "hold"),
            *absences("ecc_aggregate_uncorrected"),
        ],
        "gpu.sram_threshold": [
            ({}, {}, PASS),
            ({}, NO_BASELINE, PASS),
            ({"sram_ecc": {"threshold_exceeded": True}}, NO_BASELINE, FAIL, "field_diag", "expected false"),
            ({"sram_ecc": {}}, NO_BASELINE, UNKNOWN, "hold"),
            ({"sram_ecc": {"threshold_exceeded": 1}}, {}, UNKNOWN, "hold"),
            ({"sram_ecc": failed(13)}, NO_BASELINE, UNKNOWN, "hold"),
            ({"sram_ecc": failed(13)}, NO_BASELINE, SKIP, "none", "before 535", dict(driver="525.60.13")),
            *absences("sram_ecc", "field_diag"),
        ],
        "gpu.ecc_pending": [
            ({}, {}, PASS),
            ({"ecc_mode_pending": 0}, NO_BASELINE, FAIL, "reboot", "becomes 0"),
            *absences("ecc_mode_pending"),
            *absences("ecc_mode_current"),
        ],
        "gpu.ecc_mode": [
            ({}, {}, PASS),
            ({"ecc_mode_current": 0}, {}, FAIL, "restore_setting", "is 0; expected 1"),
            ({"ecc_mode_current": 0}, NO_BASELINE, SKIP),
            ({}, {"ecc_mode_current": failed(999)}, UNKNOWN, "hold"),
            *absences("ecc_mode_current", "restore_setting"),
        ],
        "gpu.remap_failure": [
            ({}, NO_BASELINE, PASS),
            (rows(failure=True), NO_BASELINE, FAIL, "field_diag"),
            (rows(failure=None), {}, UNKNOWN, "hold"),
            (dict(MIG, remapped_rows=ABSENT), {}, UNKNOWN, "hold", "MIG instances exist"),
            *absences("remapped_rows"),
        ],
        "gpu.remap_pending": [
            ({}, {}, PASS),
            (rows(pending=True), rows(pending=True), FAIL, "reset_gpu"),
            ({"remapped_rows": {"failure": False}}, {}, UNKNOWN, "hold"),
            (dict(MIG, remapped_rows=ABSENT), dict(MIG, remapped_rows=ABSENT), UNKNOWN, "hold", "MIG instances exist"),
            *absences("remapped_rows"),
        ],
        "gpu.remap_uncorrectable": [
            ({}, {}, PASS),
            (rows(uncorrectable=511), NO_BASELINE, PASS),
            (rows(uncorrectable=512), NO_BASELINE, NOTICE, "none", "fewer than 512"),
            (rows(uncorrectable=513), rows(uncorrectable=513), NOTICE),
            (rows(uncorrectable=1), {}, FAIL, "reset_gpu", "expected 0 as in the baseline"),
            (rows(uncorrectable="1"), {}, UNKNOWN, "hold"),
            ({}, {"remapped_rows": {"pending": False}}, UNKNOWN, "hold"),
            ({}, {"remapped_rows": ABSENT}, PASS),
            (dict(MIG, remapped_rows=ABSENT), {}, UNKNOWN, "hold", "MIG instances exist"),
            *absences("remapped_rows"),
        ],
        "gpu.bank_availability": [
            ({}, NO_BASELINE, PASS),
            ({"remap_histogram": dict(BANKS, none=1)}, {}, FAIL, "field_diag", "1 banks with no spare rows"),
            ({"remap_histogram": dict(BANKS, low=2)}, {}, NOTICE, "none", "2 banks with few spare rows"),
            ({"remap_histogram": dict(BANKS, partial=3)}, NO_BASELINE, NOTICE, "none", "some of the spare rows"),
            ({"remap_histogram": dict(BANKS, high=3)}, NO_BASELINE, PASS),
            ({"remap_histogram": dict(BANKS, none=None)}, {}, UNKNOWN, "hold", "at none"),
            (dict(MIG, remap_histogram=ABSENT), {}, UNKNOWN, "hold", "MIG instances exist"),
            *absences("remap_histogram"),
        ],
        "gpu.repair_pending": [
            (repair(False, False), NO_BASELINE, PASS, NEWER),
            (repair(True, False), NO_BASELINE, FAIL, "reset_gpu", "channel_pending", NEWER),
            (repair(False, True), {}, FAIL, "reset_gpu", "tpc_pending", NEWER),
            ({"repair_status": {"channel_pending": False}}, {}, UNKNOWN, "hold", NEWER),
            ({"repair_status": failed(13)}, NO_BASELINE, SKIP, "none", "before 580"),
            ({"repair_status": failed(13)}, NO_BASELINE, UNKNOWN, "hold", NEWER),
            ({"repair_status": ABSENT}, NO_BASELINE, SKIP, NEWER),
        ],
        "gpu.retired_pages_pending": [
            ({"retired_pages_pending": 0}, NO_BASELINE, PASS),
            ({"retired_pages_pending": 1}, {}, FAIL, "reset_gpu", "found 1"),
            ({}, {}, SKIP),
            ({"retired_pages_pending": GONE}, {}, UNKNOWN, "hold"),
            ({}, {"retired_pages_pending": 0}, FAIL, "hold"),
        ],
        "gpu.retired_pages": [
            (pages(7, 8), NO_BASELINE, PASS),
            (pages(8, 8), NO_BASELINE, NOTICE, "none", "at most 15"),
            (pages(1, 1), pages(1, 0), NOTICE, "none", "expected 1 as in the baseline"),
            (pages(1, 1), pages(1, 1), PASS),
            ({"retired_pages": {"sbe": 1}}, {}, UNKNOWN, "hold"),
            (pages(1, 1), {"retired_pages": {"sbe": 1}}, UNKNOWN, "hold"),
            ({}, {}, SKIP),
            ({}, pages(1, 1), FAIL, "hold"),
        ],
        "gpu.memory_total": [
            ({}, {}, PASS),
            ({"memory_total_bytes": 85520809984 - 400000000}, {}, PASS),
            ({"memory_total_bytes": 85520809984 - 500000000}, {}, FAIL, "field_diag", "0.5 %"),
            ({"memory_total_bytes": 85520809984 + 500000000}, {}, FAIL, "field_diag"),
            ({}, NO_BASELINE, SKIP),
            ({}, {"memory_total_bytes": GONE}, UNKNOWN, "hold", "new baseline"),
            *absences("memory_total_bytes", "field_diag"),
        ],
        "gpu.memory_reserved": [
            ({}, {}, PASS),
            ({"memory_reserved_bytes": 551550976 + (512 << 20)}, {}, PASS),
            ({"memory_reserved_bytes": 551550977 + (512 << 20)}, {}, NOTICE, "none", "512 MiB"),
            ({}, NO_BASELINE, SKIP),
            ({"memory_reserved_bytes": failed(13)}, NO_BASELINE, UNKNOWN, "hold"),
            ({"memory_reserved_bytes": failed(13)}, {}, SKIP, "none", "before 510", dict(driver="470.57.02")),
            *absences("memory_reserved_bytes"),
        ],
        "gpu.bar1_total": [
            ({}, {}, PASS),
            ({"bar1_total_bytes": 268435456}, {}, FAIL, "hold", "expected 137438953472"),
            ({}, NO_BASELINE, SKIP),
            ({}, {"bar1_total_bytes": "large"}, UNKNOWN, "hold"),
            *absences("bar1_total_bytes"),
        ],
    }
)


@pytest.mark.parametrize("one", CASES, ids=cases.name)
def test_the_truth_table(one):
    cases.holds(one)
