# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes that a repair of memory, a mode or a firmware setting can change: the GPU's memory and its BAR1 window."""

from __future__ import annotations

from .. import compare, model, policy
from ..compare import NUMBER

MIB = 1024 * 1024
RESERVED_SINCE_BRANCH = 510


def total(ctx, gpu):
    def differs(old, new):
        tolerance = policy.limit(ctx, "memory_total_tolerance_percent", gpu)
        if abs(new - old) * 100.0 <= old * tolerance:
            return None
        return compare.fails(
            "field_diag",
            "Total memory in bytes of %s is %s; expected %s as in the baseline, give or take %s %%. "
            "Look for memory repair (NVRM: Xid 168) in the kernel log and at the ECC mode."
            % (model.named(gpu), new, old, tolerance),
        )

    return compare.against(ctx, gpu, "gpu.memory_total", "memory_total_bytes", NUMBER, differs, "field_diag")


def reserved(ctx, gpu):
    ident, key = "gpu.memory_reserved", "memory_reserved_bytes"

    def differs(old, new):
        tolerance = policy.limit(ctx, "memory_reserved_rise_mib", gpu)
        if new - old <= tolerance * MIB:
            return None
        return compare.notice(
            "The driver reserves %s bytes of the memory of %s; expected %s as in the baseline, and up to %s MiB more. "
            "Compare the release notes of the driver." % (new, model.named(gpu), old, tolerance)
        )

    now = compare.typed(gpu, key, NUMBER)
    return compare.too_old(ctx, ident, gpu, now, RESERVED_SINCE_BRANCH) or compare.against(
        ctx, gpu, ident, key, NUMBER, differs
    )


ROWS = (
    model.Row(
        "gpu.memory_total",
        "gpu",
        total,
        "The GPU has as much memory as in the baseline",
        ("gpu.memory_total_bytes",),
        "nvml.h, nvmlDeviceGetMemoryInfo; XID 168 of the NVIDIA XID catalogue",
        (41,),
    ),
    model.Row(
        "gpu.memory_reserved",
        "gpu",
        reserved,
        "The driver reserves about as much memory as in the baseline (a notice if more)",
        ("gpu.memory_reserved_bytes", "snapshot.system.driver_version"),
        "nvml.h, nvmlMemory_v2_t",
        (41,),
    ),
    model.Row(
        "gpu.bar1_total",
        "gpu",
        compare.unchanged(
            "gpu.bar1_total",
            "bar1_total_bytes",
            "BAR1 size in bytes",
            "Look at the firmware settings of the node (resizable BAR, above 4G decoding).",
            action="hold",
        ),
        "The BAR1 window is as large as in the baseline",
        ("gpu.bar1_total_bytes",),
        "nvml.h, nvmlBAR1Memory_t",
        (42,),
    ),
)
