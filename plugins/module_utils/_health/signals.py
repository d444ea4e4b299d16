# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signal that is not there: when that is a failure, when it is unknown, and when there is nothing to check."""

from __future__ import annotations

from . import model
from .model import FAIL, NOT_APPLICABLE
from .nodefacts import Checks

NO_PERMISSION = 4


def check_absent_signal(ctx, ident, gpu, key, now, action=None) -> dict:
    """The check for signal KEY of GPU, which is not known NOW.

    Supported in the baseline and not afterwards is a failure, whatever the reason. Without a baseline, "not supported"
    is believed only if no GPU of the same model on this node answers.
    """
    who = model.entity(gpu)
    checks = Checks(ident, who, source="hardware")
    before = before_of(ctx, gpu, key)
    status, code_action, step = model.code_meaning(now.rc)
    seen = model.format_reading(now)
    if before is not None and before.known:
        if status != FAIL:
            status, code_action = FAIL, action or "hold"
            # Who reads may have changed, and not the driver.
            step = (
                step
                if now.rc == NO_PERMISSION
                else (
                    "Compare the driver with the one of the baseline; the reading must come back before "
                    "the node serves."
                )
            )
        return model.check(
            ident,
            who,
            status,
            seen,
            before.value,
            "baseline",
            code_action,
            "%s of %s answered in the baseline and does not now: %s. %s" % (key, model.name_gpu(gpu), seen, step),
        )
    if status == FAIL:
        return checks.fail(
            seen, None, "%s of %s cannot be read: %s. %s" % (key, model.name_gpu(gpu), seen, step), code_action
        )
    if (
        before is not None
        and before.rc in model.ABSENT
        and now.rc in (model.NOT_SUPPORTED, model.INVALID_ARGUMENT, before.rc)
    ):
        return model.check(
            ident,
            who,
            NOT_APPLICABLE,
            seen,
            seen,
            "baseline",
            message="%s is not supported, as in the baseline." % (key,),
        )
    if now.rc in (model.NOT_SUPPORTED, model.INVALID_ARGUMENT) and before is None:
        if not peers_answer(ctx, gpu, key):
            return checks.none("%s is not supported by this GPU." % (key,), seen)
        return checks.unknown(
            seen,
            None,
            "%s of %s: %s, but other GPUs of the same model on this node answer. Compare the GPUs (nvidia-smi -q)."
            % (key, model.name_gpu(gpu), seen),
        )
    return checks.unknown(seen, None, "%s of %s is not known: %s. %s" % (key, model.name_gpu(gpu), seen, step))


def old_gpu(ctx, gpu) -> dict | None:
    """The same GPU, by UUID, in the baseline; None without a baseline, or if it is not in it."""
    return model.by_uuid(model.item(ctx.baseline, "snapshot")).get(model.uuid(gpu))


def before_of(ctx, gpu, key):
    """The reading of KEY in the baseline; None where there is no such GPU to compare with."""
    old = old_gpu(ctx, gpu)
    return None if old is None else model.reading(old, key)


def peers_answer(ctx, gpu, key) -> bool:
    """Tell if another GPU that is of the same model, or may be, has a value."""
    name = model.reading(gpu, "name").value
    for other in model.gpus(ctx.snapshot):
        other_name = model.reading(other, "name").value
        if other is not gpu and (name is None or other_name in (None, name)) and model.reading(other, key).known:
            return True
    return False


def list_ready_gpus(ctx) -> list[dict]:
    """The GPUs that can be asked; what is wrong with the others is said by gpus.py."""
    return [gpu for gpu in model.gpus(ctx.snapshot) if model.is_opened(gpu)]
