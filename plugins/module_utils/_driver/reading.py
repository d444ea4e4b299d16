# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything that a verdict about a node is made of, in one document (schema gpufleet.reading/1)."""

from __future__ import annotations

import datetime
import os

from .._kernel import kernel_log, loaded
from .._node import files, identity, notes
from .._node.runner import Runner
from . import audit, system

SCHEMA = "gpufleet.reading/1"


def gather_reading(snapshot, root="/", runner=None, watermark=None) -> dict:
    """The reading of this node: SNAPSHOT (of NVML, taken before) and what the system says, its kernel log since
    WATERMARK.

    A section whose reader breaks is None, and problems says why: the others are worth having, and the judges call what
    is missing unknown.
    """
    runner = runner or Runner()
    document = {
        "schema": SCHEMA,
        "boot_id": identity.read_boot_id(root),
        "uptime_s": loaded.read_uptime(root),
        "time": read_time(),
        "snapshot": snapshot,
        "problems": {},
    }
    for name, read in list_readers(root, runner, watermark):
        try:
            document[name] = read()
        except Exception as exc:  # noqa: BLE001 (whatever it is, it costs that section alone)
            document[name] = None
            document["problems"][name] = "%s: %s" % (type(exc).__name__, exc)
    return document


def list_readers(root, runner, watermark) -> tuple:
    """Section and function that reads it."""
    return (
        ("audit", lambda: audit.decide(audit.read(root, runner))),
        ("system", lambda: system.read(root, runner)),
        ("kernel_log", lambda: kernel_log.read(root, runner, watermark)),
        ("thermal_relief", lambda: read_note(root, "thermal_relief")),
    )


def read_note(root, name) -> dict:
    """Return {"note", "problem"} of a note of the node about itself; its note is None where there is none."""
    found, problem = notes.read_note(os.path.join(root, files.OWN.lstrip("/")), name)
    return {"note": found, "problem": problem}


def read_time() -> str:
    """Return the time in UTC by the node's clock, like 2026-01-31T12:00:00Z."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
