# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what is asked of the node before a reset, apart from NVML."""

from __future__ import annotations

import os

from .._kernel import kernel_log, kernel_state, references
from .._node import files, holders, hung, runner, units

FABRIC_MANAGER = "nvidia-fabricmanager.service"
DRM = "nvidia_drm"


def obstacles(root, command):
    """Return what can change while the module runs; asked a second time right before the reset."""
    return {
        "holders": holders.read(root),
        "references": references.read(root),
        "drm_modeset": drm_modeset(root),
        "hung": hung.read(root),
        "command": installed(root, command),
    }


def drm_modeset(root):
    """Return Y or N of the module that gives GPUs to displays; None if it is not loaded, unknown if it does not say."""
    base = files.under(root, "/sys/module", DRM)
    if not os.path.isdir(base):
        return None
    return files.read_line(os.path.join(base, "parameters", "modeset")) or "unknown"


def installed(root, command):
    """Return whether a command lies in the search path that commands get."""
    return any(os.access(files.under(root, place, command), os.X_OK) for place in runner.SEARCH_PATH.split(":"))


def fabric_manager(run):
    """Return whether the fabric manager runs; None when systemd does not say."""
    found = units.show(run, [FABRIC_MANAGER])
    return None if found is None else found[FABRIC_MANAGER]["active"] == "active"


def boot_id(root):
    return kernel_state.boot_id(root)


def log(root, run, watermark=None):
    """Return the kernel log since WATERMARK, with the position up to which it was read."""
    return kernel_log.read(root, run, watermark)
