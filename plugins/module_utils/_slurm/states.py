# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a node in Slurm, in every spelling that Slurm has for it: a base and flags."""

from __future__ import annotations

import collections
import re

State = collections.namedtuple("State", ["base", "flags"])

BASES = ("UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE")
# What sinfo puts behind a state, and scontrol behind its base.
SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
# Other spellings of a base or a flag, of other versions of Slurm and of sinfo. Words that hide the base leave it
# unknown.
SPELLINGS = {
    "ALLOC": ("ALLOCATED",),
    "MIX": ("MIXED",),
    "UNK": ("UNKNOWN",),
    "FUTR": ("FUTURE",),
    "ERR": ("ERROR",),
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "DRNG": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "FAILG": ("ALLOCATED", "FAIL"),
    "COMP": ("COMPLETING",),
    "INVAL": ("INVALID_REG",),
    "INVALID": ("INVALID_REG",),
    "MAINT": ("MAINTENANCE",),
    "RESV": ("RESERVED",),
    "PLND": ("PLANNED",),
    "NO_RESPOND": ("NOT_RESPONDING",),
    "NPC": ("PERFCTRS",),
    "REBOOT": ("REBOOT_REQUESTED",),
    "BOOT": ("REBOOT_REQUESTED",),
    "REBOOT_CANCEL": ("REBOOT_CANCELED",),
    "POW_DN": ("POWERING_DOWN",),
    "POW_UP": ("POWERING_UP",),
}
BUSY = ("ALLOCATED", "MIXED")
REBOOTING = ("REBOOT_REQUESTED", "REBOOT_ISSUED")


def parse(*words):
    """The State of words such as C(MIXED+DRAIN), C(IDLE*), C(drained@), or a list of a base and flags."""
    base, flags = "", set()
    for part in "+".join(words).upper().split("+"):
        match = re.match(r"([A-Z_]*)([^A-Z_]*)$", part.strip())
        if not match:
            continue
        flags.update(SUFFIXES[sign] for sign in match.group(2) if sign in SUFFIXES)
        # sinfo says reboot^ of a reboot that was issued.
        word = "" if match.group(1) in ("REBOOT", "BOOT") and "^" in match.group(2) else match.group(1)
        for name in SPELLINGS.get(word, (word,)):
            if name in BASES:
                base = base or name
            elif name:
                flags.add(name)
    # A lone DRAIN or FAIL is what sinfo calls a node without jobs; a planned one is idle.
    alone = flags & {"DRAIN", "FAIL", "PLANNED"} and not flags & {
        "COMPLETING",
        "REBOOT_REQUESTED",
        "REBOOT_ISSUED",
        "INVALID_REG",
    }
    return State(base or ("IDLE" if alone else "UNKNOWN"), frozenset(flags))


def text(state) -> str:
    """As scontrol spells it."""
    return "+".join([state.base] + sorted(state.flags))


def is_closed(state) -> bool:
    """Tell if Slurm starts no new job on the node because it was told not to.

    A node that is DOWN may come back by itself.
    """
    return bool(state.flags & {"DRAIN", "FAIL"})


def work(state, alloc_cpus=0) -> str:
    """C(busy), C(idle), or C(unknown)."""
    if state.base in BUSY or "COMPLETING" in state.flags or alloc_cpus:
        return "busy"
    return "idle" if state.base in ("IDLE", "DOWN") else "unknown"


def rebooting(state) -> bool:
    """Tell if a reboot by Slurm is pending or in progress."""
    return bool(state.flags & set(REBOOTING))
