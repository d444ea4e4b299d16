# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG: the mode, a change of it that waits, and the layout of the instances."""

from __future__ import annotations

from .. import compare, model, signals
from . import ecc

STEP = "Create the instances of the baseline again."


def check_pending_mode(ctx, gpu) -> dict:
    return ecc.mode_pending(
        ctx, gpu, "gpu.mig_pending", "mig_mode_current", "mig_mode_pending", "MIG mode", "reset_gpu"
    )


def list_profiles(instances) -> list[str] | None:
    """The instances as a sorted list of what they are, whichever numbers they got; None if one of them is damaged."""
    found = []
    for instance in instances:
        name, slices, size = (
            model.item(instance, "name"),
            compare.part(instance, "slices"),
            compare.part(instance, "memory_bytes"),
        )
        if not isinstance(name, str) or slices is None:
            return None
        # The name of an instance begins with that of the GPU; its profile is the last word.
        found.append(
            "%s (%s slices, %s)"
            % (
                name.split()[-1] if name.split() else name,
                slices,
                "size not told" if size is None else "%s bytes" % (size,),
            )
        )
    return sorted(found)


def list_uuids(instances) -> list[str]:
    return sorted(str(model.item(instance, "uuid")) for instance in instances)


def check_layout(ctx, gpu) -> dict:
    ident, key = "gpu.mig_layout", "mig_instances"
    now = compare.read_typed(gpu, key, list)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now, "restore_setting")
    found = list_profiles(now.value)
    if found is None:
        finding = compare.make_unknown(
            "MIG instances of %s were read in part (expected a name and slices for each). Read the node again."
            % (model.name_gpu(gpu),)
        )
        return compare.make_check(ident, gpu, finding, now.value, None, "hardware")
    answer = check_empty(ctx, gpu) if not found and signals.old_gpu(ctx, gpu) is None else None
    answer = answer or compare.check_comparable(ctx, gpu, ident, key, list, found)
    if answer is not None:
        return answer
    old = compare.read_baseline(ctx, gpu, key, list).value
    before = list_profiles(old)
    finding = None
    if before is None:
        finding = compare.make_unknown(
            "The baseline has MIG instances of %s without name or slices; expected both, to compare with what "
            "there is now: %s. %s" % (model.name_gpu(gpu), format_instances(found), compare.AGAIN)
        )
    elif found != before:
        finding = compare.make_failure(
            "restore_setting",
            "MIG instances of %s are %s; expected %s as in the baseline. %s"
            % (model.name_gpu(gpu), format_instances(found), format_instances(before), STEP),
        )
    elif list_uuids(now.value) != list_uuids(old):
        finding = compare.make_notice(
            "MIG instances of %s have other UUIDs than in the baseline (found %s; expected %s). Update what "
            "addresses them by UUID."
            % (model.name_gpu(gpu), ", ".join(list_uuids(now.value)), ", ".join(list_uuids(old)))
        )
    return compare.make_check(ident, gpu, finding, found, before, "baseline")


def check_empty(ctx, gpu) -> dict | None:
    """Check that a GPU in MIG mode has instances where there is no baseline, since no program runs on it without."""
    ident, key = "gpu.mig_layout", "mig_mode_current"
    mode = model.number(gpu, key)
    if not mode.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, mode)
    if mode.value != 1:
        return None
    finding = compare.make_notice(
        "%s is in MIG mode and has no instances, so no CUDA program starts on it; expected some, unless something "
        "makes them on demand. Make them (role nvidia_mig), or switch MIG off." % (model.name_gpu(gpu),)
    )
    return compare.make_check(ident, gpu, finding, [], None, "hardware")


def format_instances(listed) -> str:
    return ", ".join(listed) or "none"


ROWS = (
    model.gpu_row(
        "gpu.mig_pending",
        check_pending_mode,
        "The MIG mode does not change at the next reset",
        ("gpu.mig_mode_current", "gpu.mig_mode_pending"),
        "nvml.h, nvmlDeviceGetMigMode",
    ),
    compare.make_unchanged_row(
        "gpu.mig_mode",
        "mig_mode_current",
        "MIG mode",
        "Set it again.",
        "restore_setting",
        "The MIG mode is that of the baseline",
        "nvml.h, nvmlDeviceGetMigMode",
    ),
    model.gpu_row(
        "gpu.mig_layout",
        check_layout,
        "There are the MIG instances of the baseline (a notice if only their UUIDs changed); without one, some in MIG "
        "mode (a notice)",
        ("gpu.mig_instances", "gpu.mig_mode_current"),
        "NVIDIA MIG user guide: instances are not kept over a reset or reboot",
    ),
)
