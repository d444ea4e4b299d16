# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check of the recovery action that the driver recommends for a GPU (field 230)."""

from __future__ import annotations

from .. import codes, compare, model, signals

# Name and action of each advice. A number that is not here is newer than this table; 5 changed its meaning between
# drivers.
ADVICE = {
    1: ("reset the GPU", "reset_gpu"),
    2: ("reboot the node", "reboot"),
    3: ("drain peer-to-peer traffic", "hold"),
    4: ("drain the GPU and reset it", "reset_gpu"),
    5: ("reset the bus, or with newer drivers recover the IMEX domain", "hold"),
    6: ("reset the bus", "reboot"),
    7: ("reboot the system", "reboot"),
}
SINCE_BRANCH = 570


def advice(ctx, gpu):
    ident, key = "gpu.recovery_action", "recovery_action"
    now = model.number(gpu, key)
    if not now.known:
        # Older drivers answer a field that they do not know with one of these two.
        if now.rc in (codes.NOT_SUPPORTED, codes.INVALID_ARGUMENT):
            old_driver = compare.too_old(ctx, ident, gpu, now, SINCE_BRANCH)
            if old_driver:
                return old_driver
        return signals.absent(ctx, ident, gpu, key, now)
    finding = None
    if now.value != 0:
        name, action = ADVICE.get(
            now.value,
            ("an action newer than this collection knows: look it up in NVML's documentation of the driver", "hold"),
        )
        finding = compare.fails(
            action,
            "The driver asks to recover %s: %s (found %s, expected 0). Drain the node and do that."
            % (model.named(gpu), name, now.value),
        )
    return compare.result(ident, gpu, finding, now.value, 0, "hardware")


ROWS = (
    model.Row(
        "gpu.recovery_action",
        "gpu",
        advice,
        "The driver advises no recovery action; one that is not known fails",
        ("gpu.recovery_action", "snapshot.system.driver_version"),
        "nvml.h, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
        (18,),
    ),
)
