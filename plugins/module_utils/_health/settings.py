# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be as it was in the baseline: settings that a driver forgets, and hardware that must not shrink.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

from . import codes, model, signals
from .model import FAIL, NOT_APPLICABLE, PASS, UNKNOWN

# check, key, what it is, action
SETTINGS = (
    ("gpu.persistence", "persistence_mode", "persistence mode", "restart_service"),
    ("gpu.power_limit", "power_limit_mw", "power limit in mW", "restore_setting"),
    ("gpu.compute_mode", "compute_mode", "compute mode", "restore_setting"),
    ("gpu.ecc_mode", "ecc_mode_current", "ECC mode", "restore_setting"),
    ("gpu.mig_mode", "mig_mode_current", "MIG mode", "restore_setting"),
)
SIZES = (
    ("gpu.memory_total", "memory_total_bytes", "total memory in bytes", "field_diag"),
    ("gpu.bar1_total", "bar1_total_bytes", "BAR1 size in bytes", "hold"),
)


def checks(ctx):
    result = []
    for gpu in signals.ready(ctx):
        for ident, key, what, action in SETTINGS:
            result.append(compare(ctx, gpu, ident, key, action, lambda old, new: old == new,
                                  "%s of %%s is %%s; expected %%s as in the baseline. Set it again." % (what[0].upper() + what[1:],)))
        for ident, key, what, action in SIZES:
            result.append(compare(ctx, gpu, ident, key, action, lambda old, new: similar(ctx, old, new),
                                  "%s of %%s is %%s; expected %%s as in the baseline. Look for memory repair in the kernel log." % (
                                      what[0].upper() + what[1:],)))
        result.append(links(ctx, gpu))
    return result


def similar(ctx, old, new):
    return abs(new - old) * 100.0 <= old * ctx.policy["memory_total_tolerance_percent"]


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
