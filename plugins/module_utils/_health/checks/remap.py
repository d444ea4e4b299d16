# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repair of memory: remapped rows and the spare rows that are left, repairs that wait for a reset, retired pages of
older GPUs.
"""

from __future__ import annotations

import functools

from .. import compare, model, policy, signals
from ..nodefacts import Checks

REPAIR_SINCE_BRANCH = 580
RESET = "Reset the GPU with nothing running on it, then read again."
LEFT = {"none": "no", "low": "few", "partial": "some of the"}
MEMERR = "NVIDIA GPU Memory Error Management"


def rows_of(ctx, gpu, ident) -> tuple[dict | None, dict | None]:
    """The remapped rows, or the check that says why there are none."""
    now = compare.read_typed(gpu, "remapped_rows", dict)
    if now.known:
        return now.value, None
    if compare.under_mig(gpu, now):
        return None, Checks(ident, model.entity(gpu), source="hardware").unknown(
            model.format_reading(now),
            None,
            "Remapped rows of %s cannot be read while MIG instances exist. Read them while the instances are destroyed."
            % (model.name_gpu(gpu),),
        )
    return None, signals.check_absent_signal(ctx, ident, gpu, "remapped_rows", now)


def check_flag(ctx, gpu, ident, key, action, text) -> dict:
    rows, problem = rows_of(ctx, gpu, ident)
    if problem:
        return problem
    found = model.item(rows, key)
    if found is False:
        finding = None
    elif found is True:
        finding = compare.make_failure(action, text % (model.name_gpu(gpu),))
    else:
        finding = compare.make_unknown(
            "Remapped rows of %s were read without %s (found %r, expected false). Read the node again."
            % (model.name_gpu(gpu), key, found)
        )
    return compare.make_check(ident, gpu, finding, found, False, "hardware")


def check_uncorrectable(ctx, gpu) -> dict:
    """Check how many rows were remapped after uncorrectable errors: a total at which the GPU is near its end, and none
    since the baseline.
    """
    ident = "gpu.remap_uncorrectable"
    rows, problem = rows_of(ctx, gpu, ident)
    if problem:
        return problem
    now, limit = compare.read_count(rows, "uncorrectable"), policy.find_limit(ctx, "remap_uncorrectable_max", gpu)
    if now is None:
        text = "Remapped rows of %s were read without their number (expected fewer than %s). Read the node again." % (
            model.name_gpu(gpu),
            limit,
        )
        return compare.make_check(ident, gpu, compare.make_unknown(text), None, limit, "policy")
    old = compare.read_baseline(ctx, gpu, "remapped_rows", dict)
    then = compare.read_count(old.value, "uncorrectable") if old is not None and old.known else None
    if then is not None and now > then:
        return Checks(ident, model.entity(gpu), "baseline").fail(
            now,
            then,
            (
                "%s has %s rows remapped after uncorrectable errors; expected %s as in the baseline. Look for "
                "NVRM: Xid 63 and 94 in the kernel log, reset the GPU and read again; a number that goes on "
                "growing is a case for the field diagnostics."
            )
            % (model.name_gpu(gpu), now, then),
            "reset_gpu",
        )
    if then is None and old is not None and not compare.absent_before(old):
        finding = compare.make_unknown(
            "%s has %s rows remapped after uncorrectable errors and the baseline has no number of them (%s). %s"
            % (model.name_gpu(gpu), now, model.format_reading(old), compare.AGAIN)
        )
        return compare.make_check(ident, gpu, finding, now, None, "baseline")
    finding = None
    if now >= limit:
        finding = compare.make_notice(
            "%s has %s rows remapped after uncorrectable errors; expected fewer than %s, from where on remapping "
            "fails. Plan the exchange of the GPU and run the field diagnostics." % (model.name_gpu(gpu), now, limit)
        )
    return compare.make_check(ident, gpu, finding, now, "fewer than %s" % (limit,), "policy")


def check_spare_rows(ctx, gpu) -> dict:
    """Check how many memory banks have few spare rows left, or none."""
    ident, key = "gpu.bank_availability", "remap_histogram"
    now = compare.read_typed(gpu, key, dict)
    if not now.known:
        if compare.under_mig(gpu, now):
            return Checks(ident, model.entity(gpu), source="hardware").unknown(
                model.format_reading(now),
                None,
                "Spare rows of %s cannot be read while MIG instances exist. Read them while the "
                "instances are destroyed." % (model.name_gpu(gpu),),
            )
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    shown = dict((name, compare.read_count(now.value, name)) for name in ("max", "high", "partial", "low", "none"))
    missing = sorted(name for name, number in shown.items() if number is None)
    if missing:
        return Checks(ident, model.entity(gpu), "hardware").unknown(
            shown,
            None,
            "Spare rows of %s were read without the number of banks at %s; expected one. Read the node again."
            % (model.name_gpu(gpu), ", ".join(missing)),
        )
    limits = dict((name, policy.find_limit(ctx, "bank_%s_max" % (name,), gpu)) for name in ("partial", "low", "none"))
    finding = None
    over = [name for name in ("none", "low", "partial") if shown[name] > limits[name]]
    if over:
        text = "%s has %s; expected at most %s. " % (
            model.name_gpu(gpu),
            ", ".join("%s banks with %s spare rows" % (shown[name], LEFT[name]) for name in over),
            ", ".join(str(limits[name]) for name in over),
        )
        finding = (
            compare.make_failure(
                "field_diag", text + "The next bad row there cannot be remapped: run the field diagnostics."
            )
            if "none" in over
            else compare.make_notice(text + "Watch it; run the field diagnostics when a bank has none left.")
        )
    return compare.make_check(ident, gpu, finding, shown, limits, "policy")


def repair_pending(ctx, gpu) -> dict:
    """Channels and processing clusters that wait for a reset to be repaired."""
    ident, key = "gpu.repair_pending", "repair_status"
    now = compare.read_typed(gpu, key, dict)
    if not now.known:
        return compare.too_old(ctx, ident, gpu, now, REPAIR_SINCE_BRANCH) or signals.check_absent_signal(
            ctx, ident, gpu, key, now
        )
    shown = dict((name, model.item(now.value, name)) for name in ("channel_pending", "tpc_pending"))
    finding = None
    if any(content is True for content in shown.values()):
        finding = compare.make_failure(
            "reset_gpu",
            "A repair of %s waits for a reset (found %s; expected none). %s"
            % (model.name_gpu(gpu), ", ".join(name for name in sorted(shown) if shown[name] is True), RESET),
        )
    elif any(content is not False for content in shown.values()):
        finding = compare.make_unknown(
            "The repairs of %s were read in part (%s; expected false for both). Read the node again."
            % (model.name_gpu(gpu), ", ".join("%s %r" % pair for pair in sorted(shown.items())))
        )
    return compare.make_check(ident, gpu, finding, shown, {"channel_pending": False, "tpc_pending": False}, "hardware")


def retired_pending(ctx, gpu) -> dict:
    ident, key = "gpu.retired_pages_pending", "retired_pages_pending"
    now = model.number(gpu, key)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    finding = None
    if now.value != 0:
        finding = compare.make_failure(
            "reset_gpu",
            "Page retirement is pending on %s (found %s, expected 0). %s" % (model.name_gpu(gpu), now.value, RESET),
        )
    return compare.make_check(ident, gpu, finding, now.value, 0, "hardware")


def check_retired_pages(ctx, gpu) -> dict:
    """The number of retired pages: from where on the board nears its end and where that is, and whether there are new
    ones.
    """
    ident, key = "gpu.retired_pages", "retired_pages"
    now = compare.read_typed(gpu, key, dict)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    count = sum_pages(now.value)
    limit, end = (policy.find_limit(ctx, name, gpu) for name in ("retired_pages_max", "retired_pages_fail_max"))
    if count is None:
        text = "Retired pages of %s were read in part (%r); expected sbe and dbe. Read the node again." % (
            model.name_gpu(gpu),
            now.value,
        )
        return compare.make_check(ident, gpu, compare.make_unknown(text), now.value, limit, "policy")
    old = compare.read_baseline(ctx, gpu, key, dict)
    then = sum_pages(old.value) if old is not None and old.known else None
    finding = None
    if count > end:
        finding = compare.make_failure(
            "field_diag",
            "%s has %s retired pages; expected at most %s, as NVIDIA's table holds 64. Run the field diagnostics and "
            "have the GPU replaced." % (model.name_gpu(gpu), count, end),
        )
    elif then is not None and count > then:
        finding = compare.make_notice(
            "%s has %s retired pages; expected %s as in the baseline. Look for NVRM: Xid 48 and 63 in the kernel log."
            % (model.name_gpu(gpu), count, then)
        )
    elif then is None and old is not None and not compare.absent_before(old):
        finding = compare.make_unknown(
            "%s has %s retired pages and the baseline has no number of them (%s). %s"
            % (model.name_gpu(gpu), count, model.format_reading(old), compare.AGAIN)
        )
    elif count > limit:
        finding = compare.make_notice(
            "%s has %s retired pages; expected at most %s. Plan the exchange of the GPU: NVIDIA's table holds 64."
            % (model.name_gpu(gpu), count, limit)
        )
    return compare.make_check(ident, gpu, finding, count, limit, "policy")


def sum_pages(pages) -> int | None:
    single, double = compare.read_count(pages, "sbe"), compare.read_count(pages, "dbe")
    return None if single is None or double is None else single + double


ROWS = (
    model.gpu_row(
        "gpu.remap_failure",
        functools.partial(
            check_flag,
            ident="gpu.remap_failure",
            key="failure",
            action="field_diag",
            text=(
                "Row remapping failed on %s (failure is true, expected false): its memory has no spare rows left. Run "
                "the field diagnostics."
            ),
        ),
        "No row remapping failed",
        ("gpu.remapped_rows", "gpu.mig_mode_current"),
        MEMERR + ", RMA policy",
    ),
    model.gpu_row(
        "gpu.remap_pending",
        functools.partial(
            check_flag,
            ident="gpu.remap_pending",
            key="pending",
            action="reset_gpu",
            text="Row remapping is pending on %s (pending is true, expected false). " + RESET,
        ),
        "No row remapping waits for a reset",
        ("gpu.remapped_rows", "gpu.mig_mode_current"),
        MEMERR + ", row remapping",
    ),
    model.gpu_row(
        "gpu.remap_uncorrectable",
        check_uncorrectable,
        "No row was remapped after an uncorrectable error since the baseline, and few ever (a notice if many)",
        ("gpu.remapped_rows", "gpu.mig_mode_current"),
        MEMERR + ": remapping fails from 512 on",
    ),
    model.gpu_row(
        "gpu.bank_availability",
        check_spare_rows,
        "Every bank of memory has spare rows left (a notice if few)",
        ("gpu.remap_histogram", "gpu.mig_mode_current"),
        "nvml.h, nvmlRowRemapperHistogramValues_t",
    ),
    model.gpu_row(
        "gpu.repair_pending",
        repair_pending,
        "No repair of a memory channel or a processing cluster waits for a reset",
        ("gpu.repair_status", "snapshot.system.driver_version"),
        "nvml.h, nvmlDeviceGetRepairStatus",
    ),
    model.gpu_row(
        "gpu.retired_pages_pending",
        retired_pending,
        "No page retirement waits for a reset (GPUs before Ampere)",
        ("gpu.retired_pages_pending",),
        "NVIDIA Dynamic Page Retirement",
    ),
    model.gpu_row(
        "gpu.retired_pages",
        check_retired_pages,
        "Few pages are retired, and none since the baseline (a notice, up to the end of the table; before Ampere)",
        ("gpu.retired_pages",),
        "NVIDIA Dynamic Page Retirement; DCGM's limit of 63",
    ),
)
