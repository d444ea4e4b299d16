# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power limits, and the modes that the driver forgets when it deinitialises: persistence and compute mode."""

from __future__ import annotations

from .. import compare, model, signals
from ..compare import NUMBER


def check_enforced_limit(ctx, gpu) -> dict | None:
    """Check the enforced power limit, which is the lowest of all limits; one below the configured limit comes from
    outside."""
    ident, key = "gpu.power_limit_enforced", "power_limit_enforced_mw"
    now, wanted = compare.read_typed(gpu, key, NUMBER), compare.read_typed(gpu, "power_limit_mw", NUMBER)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now, "restore_setting")
    old = compare.read_baseline(ctx, gpu, key, NUMBER)
    step = "Set the power limit again, and look at power capping of the node (BMC)."
    if compare.damaged_before(old):
        return compare.check_comparable(ctx, gpu, ident, key, NUMBER, now.value)
    if old is not None and old.known and now.value < old.value:
        finding = compare.make_failure(
            "restore_setting",
            "The power limit in mW that holds for %s is %s; expected %s as in the baseline. %s"
            % (model.name_gpu(gpu), now.value, old.value, step),
        )
        return compare.make_check(ident, gpu, finding, now.value, old.value, "baseline")
    if not wanted.known:
        return signals.check_absent_signal(ctx, ident, gpu, "power_limit_mw", wanted, "restore_setting")
    finding = None
    if now.value < wanted.value:
        finding = compare.make_notice(
            "The power limit in mW that holds for %s is %s; expected %s, which is set. Look at power capping "
            "of the node (BMC)." % (model.name_gpu(gpu), now.value, wanted.value)
        )
    return compare.make_check(ident, gpu, finding, now.value, wanted.value, "hardware")


PROHIBITED = 2  # nvml.h, NVML_COMPUTEMODE_PROHIBITED
BY_HAND = "If that is meant, take a baseline; if not, set it back with gpu_settings."


def check_limit_alone(ctx, gpu, limit) -> dict | None:
    """Check the power limit against the board's default where there is no baseline; a lower one is a notice."""
    ident, key = "gpu.power_limit", "power_limit_default_mw"
    default = compare.read_typed(gpu, key, NUMBER)
    if not default.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, default)
    if limit >= default.value:
        return None
    finding = compare.make_notice(
        "Power limit in mW of %s is %s; expected %s, the default of the board. %s"
        % (model.name_gpu(gpu), limit, default.value, BY_HAND)
    )
    return compare.make_check(ident, gpu, finding, limit, default.value, "hardware")


def check_mode_alone(ctx, gpu, mode) -> dict | None:
    """Check that programs may compute on the GPU where there is no baseline."""
    if mode != PROHIBITED:
        return None
    finding = compare.make_failure(
        "restore_setting",
        "Compute mode of %s is %s (prohibited), so no CUDA program starts on it; expected another one. %s"
        % (model.name_gpu(gpu), mode, BY_HAND),
    )
    return compare.make_check("gpu.compute_mode", gpu, finding, mode, None, "hardware")


FORGOTTEN = "NVIDIA driver persistence guide: lost when the driver deinitialises"


ROWS = (
    compare.make_unchanged_row(
        "gpu.power_limit",
        "power_limit_mw",
        "Power limit in mW",
        "Set it again.",
        "restore_setting",
        "The power limit is that of the baseline; without one, not below the default (a notice)",
        "NVIDIA driver persistence guide: lost when the driver deinitialises",
        alone=check_limit_alone,
        other_reads=("gpu.power_limit_default_mw",),
    ),
    model.gpu_row(
        "gpu.power_limit_enforced",
        check_enforced_limit,
        "The power limit that holds is not lower than in the baseline, nor than the one that is set",
        ("gpu.power_limit_enforced_mw", "gpu.power_limit_mw"),
        "nvml.h, nvmlDeviceGetEnforcedPowerLimit",
    ),
    compare.make_unchanged_row(
        "gpu.power_limit_default",
        "power_limit_default_mw",
        "Default power limit in mW",
        "Look at the VBIOS and at the release notes of the driver.",
        None,
        "The default power limit is that of the baseline (a notice if not)",
        "nvml.h, nvmlDeviceGetPowerManagementDefaultLimit",
    ),
    compare.make_unchanged_row(
        "gpu.persistence",
        "persistence_mode",
        "Persistence mode",
        "Start nvidia-persistenced.",
        "restart_service",
        "The persistence mode is that of the baseline",
        FORGOTTEN,
    ),
    compare.make_unchanged_row(
        "gpu.compute_mode",
        "compute_mode",
        "Compute mode",
        "Set it again.",
        "restore_setting",
        "The compute mode is that of the baseline; without one, not prohibited",
        FORGOTTEN,
        alone=check_mode_alone,
    ),
)
