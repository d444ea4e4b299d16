# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configured modes that the driver forgets when it deinitialises: persistence and compute mode."""

from __future__ import annotations

from .. import compare, model

FORGOTTEN = "NVIDIA driver persistence guide: lost when the driver deinitialises"

ROWS = (
    model.Row(
        "gpu.persistence",
        "gpu",
        compare.unchanged(
            "gpu.persistence",
            "persistence_mode",
            "Persistence mode",
            "Start nvidia-persistenced.",
            action="restart_service",
        ),
        "The persistence mode is that of the baseline",
        ("gpu.persistence_mode",),
        FORGOTTEN,
        (35,),
    ),
    model.Row(
        "gpu.compute_mode",
        "gpu",
        compare.unchanged(
            "gpu.compute_mode", "compute_mode", "Compute mode", "Set it again.", action="restore_setting"
        ),
        "The compute mode is that of the baseline",
        ("gpu.compute_mode",),
        FORGOTTEN,
        (36,),
    ),
)
