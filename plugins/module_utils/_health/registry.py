# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All families of checks, in the order of the report, and the table of all their rows.

A new family is a module of this package that ends with ROWS = (model.node_row(...), ...), and its name here.
"""

from __future__ import annotations

from . import baseline, mig_free
from .checks import (
    clocks,
    containers,
    devices,
    driver_files,
    ecc,
    fabric,
    fabric_services,
    gpus,
    hardware,
    identity,
    mig,
    network,
    node,
    nvlink,
    nvlink_switches,
    nvml,
    pcie,
    power,
    processes,
    remap,
    services,
    smoke,
    sxid,
    thermal,
    versions,
    xid,
)

FAMILIES = (
    nvml,
    baseline,
    mig_free,
    gpus,
    hardware,
    versions,
    driver_files,
    devices,
    identity,
    ecc,
    remap,
    clocks,
    thermal,
    power,
    pcie,
    nvlink,
    fabric,
    mig,
    processes,
    xid,
    sxid,
    fabric_services,
    nvlink_switches,
    network,
    services,
    containers,
    node,
    smoke,
)
TABLE = tuple(row for family in FAMILIES for row in family.ROWS)
IDENTS = frozenset(row.ident for row in TABLE)
