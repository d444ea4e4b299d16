# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a snapshot that can be read separately."""

from __future__ import annotations

import collections

from . import identity, links, memory, running

Subset = collections.namedtuple("Subset", ["name", "keys", "read"])

# In the order of reading. "min" is always read; p2p is read when all GPUs are open.
TABLE = (
    Subset("min", identity.MIN_KEYS, identity.read_min),
    Subset("identity", identity.IDENTITY_KEYS, identity.read_identity),
    Subset("inforom", identity.INFOROM_KEYS, identity.read_inforom),
    Subset("memory", memory.MEMORY_KEYS, memory.read_memory),
    Subset("ecc", memory.ECC_KEYS, memory.read_ecc),
    Subset("repair", memory.REPAIR_KEYS, memory.read_repair),
    Subset("modes", identity.MODES_KEYS, identity.read_modes),
    Subset("clocks", running.CLOCKS_KEYS, running.read_clocks),
    Subset("temperatures", running.TEMPERATURES_KEYS, running.read_temperatures),
    Subset("power", running.POWER_KEYS, running.read_power),
    Subset("pcie", links.PCIE_KEYS, links.read_pcie),
    Subset("nvlink", links.NVLINK_KEYS, links.read_nvlink),
    Subset("fabric", links.FABRIC_KEYS, links.read_fabric),
    Subset("mig", identity.MIG_KEYS, identity.read_mig),
    Subset("processes", running.PROCESSES_KEYS, running.read_processes),
    Subset("p2p", links.P2P_KEYS, None),
)
NAMES = tuple(subset.name for subset in TABLE)
KEYS = tuple(key for subset in TABLE for key in subset.keys)


class SubsetError(ValueError):
    """A subset that does not exist; the text names it and those that do."""


def choose(wanted=None) -> list[str]:
    """The names of the subsets to gather for WANTED, a list as gather_subset takes it. None and an empty list are all.

    "all" is every subset, "!" before a name takes it out again, and what only takes out starts with all.
    """
    wanted = [str(name).strip() for name in wanted or ["all"]]
    for name in wanted:
        bare = name[1:] if name.startswith("!") else name
        if bare not in NAMES and bare != "all":
            raise SubsetError(
                "gather_subset has %r; expected one of all, %s, or one of them with ! before it"
                % (name, ", ".join(NAMES))
            )
    put_in = set(name for name in wanted if not name.startswith("!"))
    take_out = set(name[1:] for name in wanted if name.startswith("!"))
    if "all" in put_in or not put_in and "all" not in take_out:
        put_in = set(NAMES)
    if "all" in take_out:
        take_out = set(NAMES) - put_in
    return [name for name in NAMES if name == "min" or name in put_in - take_out]
