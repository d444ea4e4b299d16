# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows as the task returns them, with the causes of failure and the warnings."""

from __future__ import annotations

from ..selection import value
from . import table as settings
from .rows import CHANGED, NOT_SUPPORTED, UNPROVEN
from .values import shown, text


def warnings(rows, gpus):
    """Return warnings about what did not fail; GPUS in their present state."""
    result = []
    for row in rows:
        if row["status"] == NOT_SUPPORTED and row["wanted"] is not None and not row["was_default"]:
            result.append(
                "%s of %s was %s in the baseline, and this driver no longer has the setting: it was not restored; use "
                "locked clocks instead" % (row["setting"], row["gpu"], text(shown(row["setting"], row["wanted"])))
            )
    loose = [value(gpu, "uuid") for gpu in gpus if value(gpu, "persistence_mode") == 0]
    fleeting = sorted(
        set(
            row["gpu"]
            for row in rows
            if row["gpu"] in loose
            and row["status"] in (CHANGED, UNPROVEN)
            and settings.BY_NAME[row["setting"]].lost_at == settings.LOAD
        )
    )
    if fleeting:
        result.append(
            "persistence mode is off on %s: the driver forgets what was set when the last program closes the GPU; "
            "start nvidia-persistenced" % (", ".join(fleeting),)
        )
    return result


def present(row):
    """A row as the task returns it."""
    name = row["setting"]
    setting = settings.BY_NAME.get(name)
    return {
        "gpu": row["gpu"],
        "setting": name,
        "before": shown(name, row["before"]),
        "wanted": shown(name, row["wanted"]),
        "after": shown(name, row["after"]),
        "status": row["status"],
        "changed": row["changed"],
        "lost_at": setting.lost_at if setting else None,
        "pending_until": setting.pending_until if setting else None,
    }


def failures(rows):
    """The causes of failure in a result, each with what was found and expected."""
    return [
        {
            "gpu": row["gpu"],
            "setting": row["setting"],
            "found": shown(row["setting"], row["after"] if row["changed"] else row["before"]),
            "expected": shown(row["setting"], row["wanted"]),
            "code": row["failure"]["code"],
            "error": row["failure"]["error"],
            "message": row["failure"]["message"],
        }
        for row in rows
        if row["failure"]
    ]
