# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each GPU says about itself: recovery action, memory repair, and modes that wait for a reset.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

from . import codes, model, signals
from .model import FAIL, NOT_APPLICABLE, PASS, UNKNOWN

# The driver's own advice (field 230): name and action. A number that is not here is newer than this table.
RECOVERY = {
    1: ("reset the GPU", "reset_gpu"),
    2: ("reboot the node", "reboot"),
    3: ("drain peer-to-peer traffic", "hold"),
    4: ("drain the GPU and reset it", "reset_gpu"),
    5: ("recover the IMEX domain", "hold"),
    6: ("reset the bus", "reboot"),
    7: ("reboot the system", "reboot"),
}
RECOVERY_SINCE_BRANCH = 570


def checks(ctx):
    result = []
    for gpu in signals.ready(ctx):
        result += [recovery(ctx, gpu)] + remapping(ctx, gpu) + [retired_pages(ctx, gpu), volatile_ecc(ctx, gpu), aggregate_ecc(ctx, gpu)]
        result.append(pending(ctx, gpu, "gpu.ecc_pending", "ecc_mode_current", "ecc_mode_pending", "ECC mode", "reboot"))
        result.append(pending(ctx, gpu, "gpu.mig_pending", "mig_mode_current", "mig_mode_pending", "MIG mode", "reset_gpu"))
    return result


def branch(ctx):
    """The running driver's branch, 535 of 535.261.03; None if not known."""
    version = model.reading(model.item(ctx.snapshot, "system"), "driver_version").value
    head = str(version or "").partition(".")[0]
    return int(head) if head.isdigit() else None


def recovery(ctx, gpu):
    ident = "gpu.recovery_action"
    now = model.number(gpu, "recovery_action")
    if not now.known:
        running = branch(ctx)
        if now.rc in (codes.NOT_SUPPORTED, codes.INVALID_ARGUMENT) and running is not None and running < RECOVERY_SINCE_BRANCH:
            return model.check(ident, model.entity(gpu), NOT_APPLICABLE, model.shown(now), None, "hardware",
                               message="Drivers before %d do not have this signal." % (RECOVERY_SINCE_BRANCH,))
        return signals.absent(ctx, ident, gpu, "recovery_action", now)
    if now.value == 0:
        return model.check(ident, model.entity(gpu), PASS, 0, 0, "hardware")
    name, action = RECOVERY.get(now.value, ("an action newer than this collection knows", "hold"))
    return model.check(ident, model.entity(gpu), FAIL, now.value, 0, "hardware", action,
                       "The driver asks to recover %s: %s (%s). Drain the node and do that." % (model.named(gpu), name, now.value))


def remapping(ctx, gpu):
    now = model.reading(gpu, "remapped_rows")
    idents = (("gpu.remap_failure", "failure", "field_diag", "Row remapping failed on %s: its memory has no spare rows left. Run the field diagnostics."),
              ("gpu.remap_pending", "pending", "reset_gpu", "Row remapping is pending on %s. Reset the GPU with nothing running on it, then read again."))
    if not now.known:
        if now.rc == codes.NOT_SUPPORTED and model.reading(gpu, "mig_mode_current").value == 1:
            message = ("Remapped rows of %s cannot be read while MIG instances exist. Read them while the instances are destroyed."
                       % (model.named(gpu),))
            return [model.check(ident, model.entity(gpu), UNKNOWN, model.shown(now), False, "hardware", "hold", message) for ident, key, action, text in idents]
        return [signals.absent(ctx, ident, gpu, "remapped_rows", now) for ident, key, action, text in idents]
    result = []
    for ident, key, action, text in idents:
        flag = model.item(now.value, key)
        if flag is False:
            result.append(model.check(ident, model.entity(gpu), PASS, False, False, "hardware"))
        elif flag is True:
            result.append(model.check(ident, model.entity(gpu), FAIL, True, False, "hardware", action, text % (model.named(gpu),)))
        else:
            result.append(model.check(ident, model.entity(gpu), UNKNOWN, flag, False, "hardware", "hold",
                                      "Remapped rows of %s were read without %s. Read the node again." % (model.named(gpu), key)))
    return result


def retired_pages(ctx, gpu):
    ident = "gpu.retired_pages_pending"
    now = model.number(gpu, "retired_pages_pending")
    if not now.known:
        return signals.absent(ctx, ident, gpu, "retired_pages_pending", now)
    if now.value == 0:
        return model.check(ident, model.entity(gpu), PASS, 0, 0, "hardware")
    return model.check(ident, model.entity(gpu), FAIL, now.value, 0, "hardware", "reset_gpu",
                       "Page retirement is pending on %s. Reset the GPU with nothing running on it, then read again." % (model.named(gpu),))


def volatile_ecc(ctx, gpu):
    ident = "gpu.ecc_volatile"
    now = model.number(gpu, "ecc_volatile_uncorrected")
    limit = ctx.policy["ecc_volatile_uncorrected_max"]
    if not now.known:
        return signals.absent(ctx, ident, gpu, "ecc_volatile_uncorrected", now)
    if now.value <= limit:
        return model.check(ident, model.entity(gpu), PASS, now.value, limit, "policy")
    return model.check(ident, model.entity(gpu), FAIL, now.value, limit, "policy", "reset_gpu",
                       "%s counted %s uncorrectable memory errors since the driver was loaded; at most %s are accepted. "
                       "Look for NVRM: Xid 48, 63, 64, 94 and 95 in the kernel log." % (model.named(gpu), now.value, limit))


def aggregate_ecc(ctx, gpu):
    ident = "gpu.ecc_aggregate"
    now = model.number(gpu, "ecc_aggregate_uncorrected")
    before = signals.before_of(ctx, gpu, "ecc_aggregate_uncorrected")
    if not now.known:
        return signals.absent(ctx, ident, gpu, "ecc_aggregate_uncorrected", now)
    if before is None or before.rc in codes.ABSENT:
        return model.check(ident, model.entity(gpu), NOT_APPLICABLE, now.value, None, "baseline", message="There is no earlier count to compare with.")
    if not before.known or not isinstance(before.value, (int, float)):
        return model.check(ident, model.entity(gpu), UNKNOWN, now.value, model.shown(before), "baseline", "hold",
                           "The baseline has no count of uncorrectable memory errors of %s. Take a new baseline." % (model.named(gpu),))
    if now.value > before.value:
        return model.check(ident, model.entity(gpu), FAIL, now.value, before.value, "baseline", "field_diag",
                           "%s had %s uncorrectable memory errors in its life and now %s. Run the field diagnostics." % (
                               model.named(gpu), before.value, now.value))
    return model.check(ident, model.entity(gpu), PASS, now.value, before.value, "baseline")


def pending(ctx, gpu, ident, current_key, pending_key, what, action):
    current, wanted = model.number(gpu, current_key), model.number(gpu, pending_key)
    if not current.known or not wanted.known:
        key, now = (current_key, current) if not current.known else (pending_key, wanted)
        return signals.absent(ctx, ident, gpu, key, now)
    if current.value == wanted.value:
        return model.check(ident, model.entity(gpu), PASS, current.value, wanted.value, "hardware")
    return model.check(ident, model.entity(gpu), FAIL, current.value, wanted.value, "hardware", action,
                       "%s of %s is %s and becomes %s at the next reset. Reset or reboot, then read again." % (
                           what, model.named(gpu), current.value, wanted.value))
