# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory errors that ECC counted: since the driver was loaded, in the life of the GPU, in its SRAM; and the ECC mode
itself.
"""

from __future__ import annotations

from .. import compare, model, policy, signals
from ..compare import NUMBER
from ..nodefacts import Checks

SRAM_SINCE_BRANCH = 535
LOOK = "Look for NVRM: Xid 48, 63, 64, 94 and 95 in the kernel log."


def volatile_uncorrected(ctx, gpu) -> dict:
    ident, key = "gpu.ecc_volatile", "ecc_volatile_uncorrected"
    now = model.number(gpu, key)
    if not now.known:
        return report_unreadable_counter(ctx, ident, gpu, key, now)
    limit = policy.find_limit(ctx, "ecc_volatile_uncorrected_max", gpu)
    finding = None
    if now.value > limit:
        finding = compare.make_failure(
            "reset_gpu",
            "%s counted %s uncorrectable memory errors since the driver was loaded; expected at most %s. %s"
            % (model.name_gpu(gpu), now.value, limit, LOOK),
        )
    return compare.make_check(ident, gpu, finding, now.value, limit, "policy")


def volatile_corrected(ctx, gpu) -> dict:
    ident, key = "gpu.ecc_volatile_corrected", "ecc_volatile_corrected"
    now = model.number(gpu, key)
    if not now.known:
        return report_unreadable_counter(ctx, ident, gpu, key, now)
    state, text = compare.judge_counter(
        ctx,
        gpu,
        now.value,
        compare.read_baseline(ctx, gpu, key, NUMBER),
        "ecc_corrected_per_minute",
        "ecc_corrected_since_load",
    )
    finding = compare.counter_finding(
        state,
        "%s corrected memory errors: %s" % (model.name_gpu(gpu), text),
        "Read it again after some hours of work; if it goes on like that, run the field diagnostics.",
    )
    return compare.make_check(
        ident, gpu, finding, now.value, policy.find_limit(ctx, "ecc_corrected_since_load", gpu), "policy"
    )


def report_unreadable_counter(ctx, ident, gpu, key, now) -> dict:
    """A volatile counter that is not known. A GPU in MIG mode does not have it, which says nothing about its memory."""
    old = signals.before_of(ctx, gpu, key)
    if compare.under_mig(gpu, now) and (old is None or old.rc != model.NOT_SUPPORTED):
        return Checks(ident, model.entity(gpu), source="hardware").unknown(
            model.format_reading(now),
            None,
            "%s of %s cannot be read in MIG mode. Read it while MIG is off, or waive it until then."
            % (key, model.name_gpu(gpu)),
        )
    return signals.check_absent_signal(ctx, ident, gpu, key, now)


def aggregate_uncorrected(ctx, gpu) -> dict:
    ident, key = "gpu.ecc_aggregate", "ecc_aggregate_uncorrected"
    now = model.number(gpu, key)
    old = signals.before_of(ctx, gpu, key)
    who = model.entity(gpu)
    checks = Checks(ident, who, source="baseline")
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    if old is None or old.rc in model.ABSENT:
        return checks.none("There is no earlier count to compare with.", now.value)
    if not old.known or not compare.is_a(old.value, NUMBER):
        return checks.unknown(
            now.value,
            model.format_reading(old),
            "The baseline has no count of uncorrectable memory errors of %s (%s); expected one. %s"
            % (model.name_gpu(gpu), model.format_reading(old), compare.AGAIN),
        )
    if now.value > old.value:
        return checks.fail(
            now.value,
            old.value,
            "%s had %s uncorrectable memory errors in its life; expected %s as in the baseline. Run the "
            "field diagnostics." % (model.name_gpu(gpu), now.value, old.value),
            "field_diag",
        )
    if now.value < old.value:
        return checks.notice(
            now.value,
            old.value,
            "%s had %s uncorrectable memory errors in its life; expected %s as in the baseline. Fewer means that "
            "its InfoROM was written again: find out by whom, and take a new baseline."
            % (model.name_gpu(gpu), now.value, old.value),
        )
    return checks.good(now.value, old.value)


def sram_threshold(ctx, gpu) -> dict:
    ident, key = "gpu.sram_threshold", "sram_ecc"
    now = compare.read_typed(gpu, key, dict)
    if not now.known:
        return compare.too_old(ctx, ident, gpu, now, SRAM_SINCE_BRANCH) or signals.check_absent_signal(
            ctx, ident, gpu, key, now, "field_diag"
        )
    exceeded = model.item(now.value, "threshold_exceeded")
    if exceeded is False:
        finding = None
    elif exceeded is True:
        finding = compare.make_failure(
            "field_diag",
            "The SRAM of %s has more uncorrectable errors than NVIDIA accepts (threshold_exceeded is true, expected "
            "false). Take it out of service and run the field diagnostics." % (model.name_gpu(gpu),),
        )
    else:
        finding = compare.make_unknown(
            "The SRAM errors of %s were read without their threshold (found %r, expected false). Read the node again."
            % (model.name_gpu(gpu), exceeded)
        )
    return compare.make_check(ident, gpu, finding, exceeded, False, "hardware")


def check_pending_mode(ctx, gpu) -> dict:
    return mode_pending(ctx, gpu, "gpu.ecc_pending", "ecc_mode_current", "ecc_mode_pending", "ECC mode", "reboot")


def mode_pending(ctx, gpu, ident, current_key, pending_key, what, action) -> dict:
    """A mode that becomes another one at the next reset is not the mode that the node will work in."""
    current, wanted = model.number(gpu, current_key), model.number(gpu, pending_key)
    if not current.known or not wanted.known:
        key, now = (current_key, current) if not current.known else (pending_key, wanted)
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    finding = None
    if current.value != wanted.value:
        finding = compare.make_failure(
            action,
            "%s of %s is %s and becomes %s at the next reset; expected both to be the same. Reset or reboot, "
            "then read again." % (what, model.name_gpu(gpu), current.value, wanted.value),
        )
    return compare.make_check(ident, gpu, finding, current.value, wanted.value, "hardware")


ROWS = (
    model.gpu_row(
        "gpu.ecc_volatile",
        volatile_uncorrected,
        "No uncorrectable memory errors since the driver was loaded",
        ("gpu.ecc_volatile_uncorrected", "gpu.mig_mode_current"),
        "nvml.h, nvmlDeviceGetTotalEccErrors; XIDs 48, 94, 95 of the NVIDIA XID catalogue",
    ),
    model.gpu_row(
        "gpu.ecc_volatile_corrected",
        volatile_corrected,
        "Corrected memory errors do not pile up (a notice if they do)",
        ("gpu.ecc_volatile_corrected", "gpu.mig_mode_current") + compare.COUNTER_SIGNALS,
        "nvml.h, nvmlDeviceGetTotalEccErrors",
    ),
    model.gpu_row(
        "gpu.ecc_aggregate",
        aggregate_uncorrected,
        "No new uncorrectable memory errors in the GPU's life since the baseline",
        ("gpu.ecc_aggregate_uncorrected",),
        "nvml.h, nvmlDeviceGetTotalEccErrors",
    ),
    model.gpu_row(
        "gpu.sram_threshold",
        sram_threshold,
        "The SRAM has fewer uncorrectable errors than NVIDIA's threshold for an exchange",
        ("gpu.sram_ecc", "snapshot.system.driver_version"),
        "NVIDIA GPU Memory Error Management, RMA policy; nvml.h, nvmlDeviceGetSramEccErrorStatus",
    ),
    model.gpu_row(
        "gpu.ecc_pending",
        check_pending_mode,
        "The ECC mode does not change at the next reset",
        ("gpu.ecc_mode_current", "gpu.ecc_mode_pending"),
        "nvml.h, nvmlDeviceGetEccMode",
    ),
    compare.make_unchanged_row(
        "gpu.ecc_mode",
        "ecc_mode_current",
        "ECC mode",
        "Set it again and reboot.",
        "restore_setting",
        "The ECC mode is that of the baseline",
        "nvml.h, nvmlDeviceGetEccMode",
    ),
)
