# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell if a check that does not pass was so at the baseline, or has changed since."""

from __future__ import annotations

from .model import FAIL, UNKNOWN

BEFORE, DURING = "before", "during"
# What these say belongs to the comparison, and there was none when the baseline was taken.
OF_THE_COMPARISON = ("baseline.",)


def attribute(checks, earlier):
    """CHECKS with since filled in for those that fail or are unknown.

    EARLIER are the checks of the baseline's own reading; None without one.
    """
    if earlier is None:
        return checks
    was = {}
    for check in earlier:
        was.setdefault((check["id"], check["entity"]), set()).add(check["status"])
    return [dict(check, since=_since(check, was.get((check["id"], check["entity"]), set()))) for check in checks]


def _since(check, before):
    if check["status"] not in (FAIL, UNKNOWN) or check["id"].startswith(OF_THE_COMPARISON):
        return None
    if check["since"] is not None:
        # The judge looked closer than by entity: another XID of a GPU that had one before is another fault.
        return check["since"]
    if FAIL in before:
        return BEFORE
    if UNKNOWN in before:
        # What was not known before may have been broken then.
        return BEFORE if check["status"] == UNKNOWN else None
    return DURING


def summed(checks):
    """Return the checks that did not pass before, and those that changed since: {"sick_before": [id], "broke_during":
    [id]}."""
    return {
        "sick_before": sorted(set(check["id"] for check in checks if check["since"] == BEFORE)),
        "broke_during": sorted(set(check["id"] for check in checks if check["since"] == DURING)),
    }
