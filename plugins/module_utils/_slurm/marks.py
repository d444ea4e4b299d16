# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identify the owner of a drain: the node's reason begins with our token.

Slurm itself appends to it, and from 23.02.7 on replaces it when a node registers with less than is configured. Who
drained the node is then known by what the caller recorded alone.
"""

from __future__ import annotations

import re

PREFIX = "gpufleet:"
TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}")
LONGEST = 200
OURS, OPERATOR, NONE, UNKNOWN = "ours", "operator", "none", "unknown"
# How the reasons begin that slurmctld gives a node which registers, drained or not (node_mgr.c, validate_node_specs).
REGISTRATION = re.compile(
    r"(?:, )?(?:gres/\S+ |Could not unpack gres data|Reported active features "
    r"|Low (?:socket|core|cpu|RealMemory|TmpDisk))",
    re.IGNORECASE,
)
LOST = ("Not responding", "Node unexpectedly rebooted")


def valid(token) -> bool:
    return bool(TOKEN.fullmatch(token or ""))


def reason(token, words) -> str:
    """The reason to set. Quotes would be taken away by scontrol, and a line break ends it."""
    return re.sub(r"[\s\"'\\\\]+", " ", "%s%s %s" % (PREFIX, token, words)).strip()[:LONGEST]


def token_of(text) -> str | None:
    """The token of a reason that this collection wrote; None of another."""
    match = re.match(re.escape(PREFIX) + r"(\S+)", text or "")
    return match.group(1) if match else None


def by_slurm(record) -> bool:
    """Tell if Slurm itself set the node DOWN because it did not respond."""
    return record["reason_user"] == "slurm" or record["reason"].startswith(LOST)


def mark(record, token, recorded=UNKNOWN) -> dict:
    """Return {owner, token, previous}: the owner of the drain, and the reason given by others.

    RECORDED: the owner as the caller knows it from before, for a reason that Slurm replaced.
    """
    flags, text = record["state"].flags, record["reason"]
    held = bool(flags & {"DRAIN", "FAIL"})
    found = token_of(text)
    replaced = held and bool(REGISTRATION.match(text) or text.startswith(LOST))
    if (held or record["state"].base == "DOWN") and found is not None and found == token:
        return {"owner": OURS, "token": found, "previous": None}
    if replaced and recorded in (OURS, UNKNOWN):
        return {"owner": recorded, "token": token if recorded == OURS else None, "previous": text}
    if held or (record["state"].base == "DOWN" and text and not by_slurm(record)):
        return {"owner": OPERATOR, "token": found, "previous": text}
    return {"owner": NONE, "token": None, "previous": text or None}
