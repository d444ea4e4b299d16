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
    case,
    same_load,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import failed

ROWS = {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False}
BANKS = {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0}
MIG = {"mig_mode_current": 1, "mig_mode_pending": 1}
NEWER = {"driver": "580.95.05"}


CASES = [
    case("gpu.recovery_action", {"recovery_action": 0}, {}, PASS),
    case("gpu.recovery_action", {"recovery_action": 0}, NO_BASELINE, PASS),
    case("gpu.recovery_action", {"recovery_action": 1}, NO_BASELINE, FAIL, "reset_gpu", "found 1, expected 0"),
    case("gpu.recovery_action", {"recovery_action": 2}, {}, FAIL, "reboot"),
    case("gpu.recovery_action", {"recovery_action": 3}, {}, FAIL, "hold"),
    case("gpu.recovery_action", {"recovery_action": 4}, {}, FAIL, "reset_gpu"),
    case("gpu.recovery_action", {"recovery_action": 5}, {}, FAIL, "hold", "IMEX"),
    case("gpu.recovery_action", {"recovery_action": 6}, {}, FAIL, "reboot"),
    case("gpu.recovery_action", {"recovery_action": 8}, {}, FAIL, "hold", "newer than this collection knows"),
    case("gpu.recovery_action", {"recovery_action": -1}, {}, UNKNOWN, "hold"),
    case("gpu.recovery_action", {"recovery_action": True}, {}, UNKNOWN, "hold"),
    case("gpu.recovery_action", {"recovery_action": ABSENT}, {"recovery_action": 0}, SKIP, "none", "before 570"),
    case("gpu.recovery_action", {"recovery_action": ABSENT}, {"recovery_action": 0}, FAIL, "hold", **NEWER),
    case("gpu.recovery_action", {"recovery_action": failed(13)}, NO_BASELINE, UNKNOWN, "hold"),

    case("gpu.ecc_volatile", {}, {}, PASS),
    case("gpu.ecc_volatile", {}, NO_BASELINE, PASS),
    case("gpu.ecc_volatile", {"ecc_volatile_uncorrected": 1}, NO_BASELINE, FAIL, "reset_gpu", "at most 0"),
    case("gpu.ecc_volatile", {"ecc_volatile_uncorrected": 1}, {"ecc_volatile_uncorrected": 1}, FAIL, "reset_gpu"),
    case("gpu.ecc_volatile", {"ecc_volatile_uncorrected": 1}, {}, PASS, policy_change={"models": {"*h100*": {"ecc_volatile_uncorrected_max": 1}}}),
    case("gpu.ecc_volatile", dict(MIG, ecc_volatile_uncorrected=ABSENT), NO_BASELINE, UNKNOWN, "hold", "MIG mode"),
    case("gpu.ecc_volatile", dict(MIG, ecc_volatile_uncorrected=ABSENT), {}, UNKNOWN, "hold", "MIG mode"),
    case("gpu.ecc_volatile", dict(MIG, ecc_volatile_uncorrected=ABSENT), dict(MIG, ecc_volatile_uncorrected=ABSENT), SKIP),
    *absences("gpu.ecc_volatile", "ecc_volatile_uncorrected"),

    case("gpu.ecc_volatile_corrected", {}, {}, PASS),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 20000000}, NO_BASELINE, PASS),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 20000001}, NO_BASELINE, NOTICE, "none", "since the driver was loaded"),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 20000001}, {"ecc_volatile_corrected": 20000000}, NOTICE),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 20000001}, {"ecc_volatile_corrected": 20000000}, PASS, **same_load()),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 10000}, {}, PASS, **same_load()),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 10001}, {}, NOTICE, "none", "1000.1 a minute", **same_load()),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 10001}, {}, PASS, **same_load(3590.0)),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 10001}, {"ecc_volatile_corrected": 20000}, PASS, **same_load()),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 5}, {}, UNKNOWN, "hold", "uptime is missing", **same_load(None)),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 5}, {}, UNKNOWN, "hold", "boot id", baseline={"boot_id": None}),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 5}, {"ecc_volatile_corrected": GONE}, UNKNOWN, "hold", "no number", **same_load()),
    case("gpu.ecc_volatile_corrected", {"ecc_volatile_corrected": 5}, {"ecc_volatile_corrected": ABSENT}, PASS, **same_load()),
    *absences("gpu.ecc_volatile_corrected", "ecc_volatile_corrected"),

    case("gpu.ecc_aggregate", {"ecc_aggregate_uncorrected": 3}, {"ecc_aggregate_uncorrected": 3}, PASS),
    case("gpu.ecc_aggregate", {"ecc_aggregate_uncorrected": 4}, {"ecc_aggregate_uncorrected": 3}, FAIL, "field_diag", "had 4"),
    case("gpu.ecc_aggregate", {"ecc_aggregate_uncorrected": 1}, {"ecc_aggregate_uncorrected": 3}, NOTICE, "none", "InfoROM"),
    case("gpu.ecc_aggregate", {"ecc_aggregate_uncorrected": 4}, NO_BASELINE, SKIP),
    case("gpu.ecc_aggregate", {}, {"ecc_aggregate_uncorrected": GONE}, UNKNOWN, "hold"),
    *absences("gpu.ecc_aggregate", "ecc_aggregate_uncorrected"),

    case("gpu.sram_threshold", {}, {}, PASS),
    case("gpu.sram_threshold", {}, NO_BASELINE, PASS),
    case("gpu.sram_threshold", {"sram_ecc": {"threshold_exceeded": True}}, NO_BASELINE, FAIL, "field_diag", "expected false"),
    case("gpu.sram_threshold", {"sram_ecc": {}}, NO_BASELINE, UNKNOWN, "hold"),
    case("gpu.sram_threshold", {"sram_ecc": {"threshold_exceeded": 1}}, {}, UNKNOWN, "hold"),
    case("gpu.sram_threshold", {"sram_ecc": failed(13)}, NO_BASELINE, UNKNOWN, "hold"),
    case("gpu.sram_threshold", {"sram_ecc": failed(13)}, NO_BASELINE, SKIP, "none", "before 535", driver="525.60.13"),
    *absences("gpu.sram_threshold", "sram_ecc", "field_diag"),

    case("gpu.ecc_pending", {}, {}, PASS),
    case("gpu.ecc_pending", {"ecc_mode_pending": 0}, NO_BASELINE, FAIL, "reboot", "becomes 0"),
    *absences("gpu.ecc_pending", "ecc_mode_pending"),
    *absences("gpu.ecc_pending", "ecc_mode_current"),

    case("gpu.ecc_mode", {}, {}, PASS),
    case("gpu.ecc_mode", {"ecc_mode_current": 0}, {}, FAIL, "restore_setting", "is 0; expected 1"),
    case("gpu.ecc_mode", {"ecc_mode_current": 0}, NO_BASELINE, SKIP),
    case("gpu.ecc_mode", {}, {"ecc_mode_current": failed(999)}, UNKNOWN, "hold"),
    *absences("gpu.ecc_mode", "ecc_mode_current", "restore_setting"),

    case("gpu.remap_failure", {}, NO_BASELINE, PASS),
    case("gpu.remap_failure", {"remapped_rows": dict(ROWS, failure=True)}, NO_BASELINE, FAIL, "field_diag"),
    case("gpu.remap_failure", {"remapped_rows": dict(ROWS, failure=None)}, {}, UNKNOWN, "hold"),
    case("gpu.remap_failure", dict(MIG, remapped_rows=ABSENT), {}, UNKNOWN, "hold", "MIG instances exist"),
    *absences("gpu.remap_failure", "remapped_rows"),
    case("gpu.remap_pending", {}, {}, PASS),
    case("gpu.remap_pending", {"remapped_rows": dict(ROWS, pending=True)}, {"remapped_rows": dict(ROWS, pending=True)}, FAIL, "reset_gpu"),
    case("gpu.remap_pending", {"remapped_rows": {"failure": False}}, {}, UNKNOWN, "hold"),
    case("gpu.remap_pending", dict(MIG, remapped_rows=ABSENT), dict(MIG, remapped_rows=ABSENT), UNKNOWN, "hold", "MIG instances exist"),
    *absences("gpu.remap_pending", "remapped_rows"),

    case("gpu.remap_uncorrectable", {}, {}, PASS),
    case("gpu.remap_uncorrectable", {"remapped_rows": dict(ROWS, uncorrectable=511)}, NO_BASELINE, PASS),
    case("gpu.remap_uncorrectable", {"remapped_rows": dict(ROWS, uncorrectable=512)}, NO_BASELINE, NOTICE, "none", "fewer than 512"),
    case("gpu.remap_uncorrectable", {"remapped_rows": dict(ROWS, uncorrectable=513)}, {"remapped_rows": dict(ROWS, uncorrectable=513)}, NOTICE),
    case("gpu.remap_uncorrectable", {"remapped_rows": dict(ROWS, uncorrectable=1)}, {}, FAIL, "reset_gpu", "expected 0 as in the baseline"),
    case("gpu.remap_uncorrectable", {"remapped_rows": dict(ROWS, uncorrectable="1")}, {}, UNKNOWN, "hold"),
    case("gpu.remap_uncorrectable", {}, {"remapped_rows": {"pending": False}}, UNKNOWN, "hold"),
    case("gpu.remap_uncorrectable", {}, {"remapped_rows": ABSENT}, PASS),
    case("gpu.remap_uncorrectable", dict(MIG, remapped_rows=ABSENT), {}, UNKNOWN, "hold", "MIG instances exist"),
    *absences("gpu.remap_uncorrectable", "remapped_rows"),

    case("gpu.bank_availability", {}, NO_BASELINE, PASS),
    case("gpu.bank_availability", {"remap_histogram": dict(BANKS, none=1)}, {}, FAIL, "field_diag", "1 banks with no spare rows"),
    case("gpu.bank_availability", {"remap_histogram": dict(BANKS, low=2)}, {}, NOTICE, "none", "2 banks with few spare rows"),
    case("gpu.bank_availability", {"remap_histogram": dict(BANKS, partial=3)}, NO_BASELINE, NOTICE, "none", "some of the spare rows"),
    case("gpu.bank_availability", {"remap_histogram": dict(BANKS, high=3)}, NO_BASELINE, PASS),
    case("gpu.bank_availability", {"remap_histogram": dict(BANKS, none=None)}, {}, UNKNOWN, "hold", "at none"),
    case("gpu.bank_availability", dict(MIG, remap_histogram=ABSENT), {}, UNKNOWN, "hold", "MIG instances exist"),
    *absences("gpu.bank_availability", "remap_histogram"),

    case("gpu.repair_pending", {"repair_status": {"channel_pending": False, "tpc_pending": False}}, NO_BASELINE, PASS, **NEWER),
    case("gpu.repair_pending", {"repair_status": {"channel_pending": True, "tpc_pending": False}}, NO_BASELINE, FAIL, "reset_gpu", "channel_pending", **NEWER),
    case("gpu.repair_pending", {"repair_status": {"channel_pending": False, "tpc_pending": True}}, {}, FAIL, "reset_gpu", "tpc_pending", **NEWER),
    case("gpu.repair_pending", {"repair_status": {"channel_pending": False}}, {}, UNKNOWN, "hold", **NEWER),
    case("gpu.repair_pending", {"repair_status": failed(13)}, NO_BASELINE, SKIP, "none", "before 580"),
    case("gpu.repair_pending", {"repair_status": failed(13)}, NO_BASELINE, UNKNOWN, "hold", **NEWER),
    case("gpu.repair_pending", {"repair_status": ABSENT}, NO_BASELINE, SKIP, **NEWER),

    case("gpu.retired_pages_pending", {"retired_pages_pending": 0}, NO_BASELINE, PASS),
    case("gpu.retired_pages_pending", {"retired_pages_pending": 1}, {}, FAIL, "reset_gpu", "found 1"),
    case("gpu.retired_pages_pending", {}, {}, SKIP),
    case("gpu.retired_pages_pending", {"retired_pages_pending": GONE}, {}, UNKNOWN, "hold"),
    case("gpu.retired_pages_pending", {}, {"retired_pages_pending": 0}, FAIL, "hold"),

    case("gpu.retired_pages", {"retired_pages": {"sbe": 7, "dbe": 8}}, NO_BASELINE, PASS),
    case("gpu.retired_pages", {"retired_pages": {"sbe": 8, "dbe": 8}}, NO_BASELINE, NOTICE, "none", "at most 15"),
    case("gpu.retired_pages", {"retired_pages": {"sbe": 1, "dbe": 1}}, {"retired_pages": {"sbe": 1, "dbe": 0}},
         NOTICE, "none", "expected 1 as in the baseline"),
    case("gpu.retired_pages", {"retired_pages": {"sbe": 1, "dbe": 1}}, {"retired_pages": {"sbe": 1, "dbe": 1}}, PASS),
    case("gpu.retired_pages", {"retired_pages": {"sbe": 1}}, {}, UNKNOWN, "hold"),
    case("gpu.retired_pages", {"retired_pages": {"sbe": 1, "dbe": 1}}, {"retired_pages": {"sbe": 1}}, UNKNOWN, "hold"),
    case("gpu.retired_pages", {}, {}, SKIP),
    case("gpu.retired_pages", {}, {"retired_pages": {"sbe": 1, "dbe": 1}}, FAIL, "hold"),

    case("gpu.memory_total", {}, {}, PASS),
    case("gpu.memory_total", {"memory_total_bytes": 85520809984 - 400000000}, {}, PASS),
    case("gpu.memory_total", {"memory_total_bytes": 85520809984 - 500000000}, {}, FAIL, "field_diag", "0.5 %"),
    case("gpu.memory_total", {"memory_total_bytes": 85520809984 + 500000000}, {}, FAIL, "field_diag"),
    case("gpu.memory_total", {}, NO_BASELINE, SKIP),
    case("gpu.memory_total", {}, {"memory_total_bytes": GONE}, UNKNOWN, "hold", "new baseline"),
    *absences("gpu.memory_total", "memory_total_bytes", "field_diag"),

    case("gpu.memory_reserved", {}, {}, PASS),
    case("gpu.memory_reserved", {"memory_reserved_bytes": 551550976 + (512 << 20)}, {}, PASS),
    case("gpu.memory_reserved", {"memory_reserved_bytes": 551550977 + (512 << 20)}, {}, NOTICE, "none", "512 MiB"),
    case("gpu.memory_reserved", {}, NO_BASELINE, SKIP),
    case("gpu.memory_reserved", {"memory_reserved_bytes": failed(13)}, NO_BASELINE, UNKNOWN, "hold"),
    case("gpu.memory_reserved", {"memory_reserved_bytes": failed(13)}, {}, SKIP, "none", "before 510", driver="470.57.02"),
    *absences("gpu.memory_reserved", "memory_reserved_bytes"),

    case("gpu.bar1_total", {}, {}, PASS),
    case("gpu.bar1_total", {"bar1_total_bytes": 268435456}, {}, FAIL, "hold", "expected 137438953472"),
    case("gpu.bar1_total", {}, NO_BASELINE, SKIP),
    case("gpu.bar1_total", {}, {"bar1_total_bytes": "large"}, UNKNOWN, "hold"),
    *absences("gpu.bar1_total", "bar1_total_bytes"),
]


@pytest.mark.parametrize("one", CASES, ids=cases.name)
def test_the_truth_table(one):
    cases.holds(one)
