# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the packages that a node holds, since when, and what that keeps out: the kernel's, the driver's, and all
others.
"""

from __future__ import annotations

import re

from .._node import files
from . import holds, kernel_set
from ._sets import APART_NAME_PATTERN, DRIVER_NAME_PATTERN, DRIVER_SOURCE_PATTERN
from .manager import NO_NAMES

KERNEL_RECORD = "/var/lib/gpufleet/kernel-holds.json"
RECORDS = {"kernel": KERNEL_RECORD, "driver": holds.RECORD, "other": None}


def group_of(name, source, patterns):
    """Return the kind of a package: kernel, driver or other. Pure. ``patterns`` are those of the kernel, which are
    tried first."""
    if kernel_set.is_kernel(name, patterns):
        return "kernel"
    if (
        re.search(DRIVER_SOURCE_PATTERN, source or "")
        or re.search(DRIVER_NAME_PATTERN, name)
        or re.search(APART_NAME_PATTERN, name)
    ):
        return "driver"
    return "other"


def read(manager, now):
    """``{"kernel": rows, "driver": rows, "other": rows}``, as :func:`holds.report` makes them. Only reads."""
    patterns = list(kernel_set.PATTERNS[manager.name])
    installed = manager.installed()
    found = dict((group, {}) for group in RECORDS)
    for name, item in sorted(installed.items()):
        if item["installed"] and item["hold"]:
            found[group_of(name, item.get("source"), patterns)][name] = item["version"]
    names = sorted(name for held in found.values() for name in held)
    index, security = (manager.index(NO_NAMES, names), manager.security(names)) if names else ({}, {})
    texts = dict((group, files.read_text(manager.path(path)) if path else None) for group, path in RECORDS.items())
    return dict(
        (group, holds.report(holds.parse(texts[group]), held, index, security, manager.name, now))
        for group, held in found.items()
    )
