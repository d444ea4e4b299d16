# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be as it was in the baseline: settings that a driver forgets, and hardware that must not shrink.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import functools

from . import codes, model, policy, signals
from .model import FAIL, NOT_APPLICABLE, PASS, UNKNOWN

# check: (key, what it is, action, numbers of the check)
SETTINGS = {
    "gpu.persistence": ("persistence_mode", "persistence mode", "restart_service", (35,)),
    "gpu.power_limit": ("power_limit_mw", "power limit in mW", "restore_setting", (22,)),
    "gpu.compute_mode": ("compute_mode", "compute mode", "restore_setting", (36,)),
    "gpu.ecc_mode": ("ecc_mode_current", "ECC mode", "restore_setting", (37,)),
    "gpu.mig_mode": ("mig_mode_current", "MIG mode", "restore_setting", (34,)),
}
SIZES = {
    "gpu.memory_total": ("memory_total_bytes", "total memory in bytes", "field_diag", (41,)),
    "gpu.bar1_total": ("bar1_total_bytes", "BAR1 size in bytes", "hold", (42,)),
}


def setting(ctx, gpu, ident):
    key, what, action, numbers = SETTINGS[ident]
    return compare(ctx, gpu, ident, key, action, lambda old, new: old == new,
                   "%s of %%s is %%s; expected %%s as in the baseline. Set it again." % (what[0].upper() + what[1:],))


def size(ctx, gpu, ident):
    key, what, action, numbers = SIZES[ident]
    return compare(ctx, gpu, ident, key, action, lambda old, new: similar(ctx, gpu, old, new),
                   "%s of %%s is %%s; expected %%s as in the baseline. Look for memory repair in the kernel log." % (what[0].upper() + what[1:],))


def similar(ctx, gpu, old, new):
    return abs(new - old) * 100.0 <= old * policy.limit(ctx, "memory_total_tolerance_percent", gpu)


def compare(ctx, gpu, ident, key, action, same, text):
    now = model.number(gpu, key)
    return against(ctx, gpu, ident, key, now, action, same, text)


def links(ctx, gpu):
    """Every NVLink that was active is active."""
    now = model.reading(gpu, "nvlink_active")
    if now.known and not isinstance(now.value, list):
        now = model.NOTHING

    def same(old, new):
        return all(number < len(new) and new[number] is True for number, active in enumerate(old) if active is True)

    return against(ctx, gpu, "gpu.nvlink", "nvlink_active", now, "reset_gpu", same,
                   "NVLinks of %s are %s; expected at least %s as in the baseline. Look for NVRM: Xid 74 and at the fabric manager.", list)


def against(ctx, gpu, ident, key, now, action, same, text, kind=(int, float)):
    if not now.known:
        return signals.absent(ctx, ident, gpu, key, now, action)
    before = signals.before_of(ctx, gpu, key)
    who = model.entity(gpu)
    if before is None:
        return model.check(ident, who, NOT_APPLICABLE, now.value, None, "baseline", message="There is no earlier value to compare with.")
    if before.rc in codes.ABSENT:
        return model.check(ident, who, NOT_APPLICABLE, now.value, model.shown(before), "baseline", message="Not supported in the baseline.")
    if not before.known or not isinstance(before.value, kind) or isinstance(before.value, bool):
        return model.check(ident, who, UNKNOWN, now.value, model.shown(before), "baseline", "hold",
                           "The baseline has no %s of %s. Take a new baseline." % (key, model.named(gpu)))
    if same(before.value, now.value):
        return model.check(ident, who, PASS, now.value, before.value, "baseline")
    return model.check(ident, who, FAIL, now.value, before.value, "baseline", action, text % (model.named(gpu), now.value, before.value))


ROWS = tuple(
    model.Row(ident, "gpu", functools.partial(judge, ident=ident), "The %s is as in the baseline" % (what,), ("gpu." + key, "baseline gpu." + key),
              "this collection", numbers)
    for judge, table in ((setting, SETTINGS), (size, SIZES)) for ident, (key, what, action, numbers) in table.items()
) + (
    model.Row("gpu.nvlink", "gpu", links, "Every NVLink that was active in the baseline is active", ("gpu.nvlink_active", "baseline gpu.nvlink_active"),
              "NVML nvmlDeviceGetNvLinkState", (26,)),
)
