# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of a GPU: its size, its errors, and what was or must be repaired."""

from __future__ import annotations

import ctypes

from . import codes, fields
from .calls import combine_answers, convert_answer

MEMORY_KEYS = (
    "memory_total_bytes",
    "memory_used_bytes",
    "memory_free_bytes",
    "memory_reserved_bytes",
    "bar1_total_bytes",
    "bar1_used_bytes",
)
ECC_KEYS = (
    "ecc_mode_current",
    "ecc_mode_pending",
    "ecc_volatile_corrected",
    "ecc_volatile_uncorrected",
    "ecc_aggregate_corrected",
    "ecc_aggregate_uncorrected",
    "ecc_counters",
    "sram_ecc",
)
REPAIR_KEYS = (
    "remapped_rows",
    "remap_histogram",
    "retired_pages",
    "retired_pages_pending",
    "repair_status",
    "recovery_action",
)

ERRORS = (("corrected", 0), ("uncorrected", 1))
PERIODS = (("volatile", 0), ("aggregate", 1))
LOCATIONS = (("sram", 7), ("dram", 2))
RETIRED_CAUSES = (("sbe", fields.FI_RETIRED_SBE, 0), ("dbe", fields.FI_RETIRED_DBE, 1))


def read_memory(reader, handle, gpu) -> None:
    answer = reader.first(
        lambda: reader.struct("nvmlDeviceGetMemoryInfo_v2", handle, fields.MemoryV2, fields.MEMORY_V2),
        lambda: reader.struct("nvmlDeviceGetMemoryInfo", handle, fields.Memory),
    )
    for name in ("total", "used", "free"):
        gpu["memory_%s_bytes" % (name,)] = convert_answer(answer, lambda info, name=name: int(getattr(info, name)))
    if answer["rc"] == codes.SUCCESS and not hasattr(answer["value"], "reserved"):
        # The older call counts the reserved bytes as used.
        gpu["memory_reserved_bytes"] = codes.missing(codes.FUNCTION_NOT_FOUND)
    else:
        gpu["memory_reserved_bytes"] = convert_answer(answer, lambda info: int(info.reserved))
    bar1 = reader.struct("nvmlDeviceGetBAR1MemoryInfo", handle, fields.Bar1Memory)
    gpu["bar1_total_bytes"] = convert_answer(bar1, lambda info: int(info.total))
    gpu["bar1_used_bytes"] = convert_answer(bar1, lambda info: int(info.used))


def read_ecc(reader, handle, gpu) -> None:
    gpu["ecc_mode_current"], gpu["ecc_mode_pending"] = reader.pair("nvmlDeviceGetEccMode", handle)
    parts = {}
    for period, period_number in PERIODS:
        for error, error_number in ERRORS:
            gpu["ecc_%s_%s" % (period, error)] = reader.number(
                "nvmlDeviceGetTotalEccErrors",
                handle,
                ctypes.c_uint(error_number),
                ctypes.c_uint(period_number),
                kind=ctypes.c_ulonglong,
            )
            for location, location_number in LOCATIONS:
                parts[period, location, error] = reader.number(
                    "nvmlDeviceGetMemoryErrorCounter",
                    handle,
                    ctypes.c_uint(error_number),
                    ctypes.c_uint(period_number),
                    ctypes.c_uint(location_number),
                    kind=ctypes.c_ulonglong,
                )
    gpu["ecc_counters"] = convert_answer(combine_answers(parts), _by_period)
    gpu["sram_ecc"] = convert_answer(
        reader.struct("nvmlDeviceGetSramEccErrorStatus", handle, fields.SramErrors, fields.SRAM_ERRORS_V1),
        _convert_sram,
    )


def read_repair(reader, handle, gpu) -> None:
    gpu["remapped_rows"] = _remapped_rows(reader, handle)
    gpu["remap_histogram"] = convert_answer(
        reader.struct("nvmlDeviceGetRowRemapperHistogram", handle, fields.RemapHistogram),
        lambda banks: dict((name, int(getattr(banks, name))) for name, dummy in fields.RemapHistogram._fields_),
    )
    gpu["retired_pages"] = combine_answers(
        dict((name, _count_retired_pages(reader, handle, field, cause)) for name, field, cause in RETIRED_CAUSES)
    )
    gpu["retired_pages_pending"] = reader.number("nvmlDeviceGetRetiredPagesPendingStatus", handle)
    gpu["repair_status"] = convert_answer(
        reader.struct("nvmlDeviceGetRepairStatus", handle, fields.RepairStatus, fields.REPAIR_STATUS_V1),
        lambda status: {
            "channel_pending": bool(status.bChannelRepairPending),
            "tpc_pending": bool(status.bTpcRepairPending),
        },
    )
    gpu["recovery_action"] = reader.field(handle, fields.FI_RECOVERY_ACTION)


def _by_period(parts) -> dict[str, dict]:
    counters = {}
    for (period, location, error), count in parts.items():
        counters.setdefault(period, {}).setdefault(location, {})[error] = count
    return counters


def _convert_sram(errors) -> dict:
    return {
        "threshold_exceeded": bool(errors.bThresholdExceeded),
        "volatile_corrected": int(errors.volatileCor),
        "volatile_uncorrected": int(errors.volatileUncParity + errors.volatileUncSecDed),
        "aggregate_corrected": int(errors.aggregateCor),
        "aggregate_uncorrected": int(errors.aggregateUncParity + errors.aggregateUncSecDed),
        "aggregate_uncorrected_parity": int(errors.aggregateUncParity),
        "aggregate_uncorrected_secded": int(errors.aggregateUncSecDed),
        "aggregate_uncorrected_by_unit": {
            "l2": int(errors.aggregateUncBucketL2),
            "sm": int(errors.aggregateUncBucketSm),
            "pcie": int(errors.aggregateUncBucketPcie),
            "mcu": int(errors.aggregateUncBucketMcu),
            "other": int(errors.aggregateUncBucketOther),
        },
    }


def _remapped_rows(reader, handle) -> dict:
    parts = [ctypes.c_uint() for dummy in range(4)]
    answer = reader.guard(
        "nvmlDeviceGetRemappedRows",
        lambda: reader.raw("nvmlDeviceGetRemappedRows", handle, *[ctypes.byref(part) for part in parts]),
    )
    if answer["rc"] == codes.SUCCESS:
        return codes.value(_make_remapped_rows(*[part.value for part in parts]))
    if answer["rc"] not in (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND):
        return answer
    # The call is not supported while MIG instances exist; the fields may still answer.
    answers = [
        reader.field(handle, number)
        for number in (
            fields.FI_REMAPPED_CORRECTABLE,
            fields.FI_REMAPPED_UNCORRECTABLE,
            fields.FI_REMAPPED_PENDING,
            fields.FI_REMAPPED_FAILURE,
        )
    ]
    if all(part["rc"] == codes.SUCCESS for part in answers):
        return codes.value(_make_remapped_rows(*[part["value"] for part in answers]))
    return answer


def _make_remapped_rows(correctable, uncorrectable, pending, failure) -> dict:
    return {
        "correctable": int(correctable),
        "uncorrectable": int(uncorrectable),
        "pending": bool(pending),
        "failure": bool(failure),
    }


def _count_retired_pages(reader, handle, field, cause) -> dict:
    """Count the pages retired for CAUSE: the field, or the length of the list if the driver has no such field."""
    answer = reader.field(handle, field)
    if answer["rc"] == codes.SUCCESS:
        return convert_answer(answer, int)
    if answer["rc"] not in (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND):
        return answer

    def read_value() -> int:
        count = ctypes.c_uint(0)
        rc = reader.ask("nvmlDeviceGetRetiredPages", handle, ctypes.c_uint(cause), ctypes.byref(count), None)
        if rc not in (codes.SUCCESS, codes.INSUFFICIENT_SIZE):
            raise reader.binding.NVMLError(rc)
        return int(count.value)

    return reader.guard("nvmlDeviceGetRetiredPages", read_value)
