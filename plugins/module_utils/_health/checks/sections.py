# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that the node could be read: every section of the reading is there."""

from __future__ import annotations

from .. import model
from ..baseline import SCHEMAS, SECTIONS
from ..nodefacts import Checks

IDENT = "reading.complete"


def complete(ctx):
    checks = Checks(IDENT, source="hardware")
    missing = [name for name in SECTIONS if not isinstance(model.item(ctx.reading, name), dict)]
    foreign = [
        "%s (%r, expected %r)" % (name, model.item(ctx.reading, name, "schema"), SCHEMAS[name])
        for name in SECTIONS
        if name not in missing and model.item(ctx.reading, name, "schema") != SCHEMAS[name]
    ]
    if not isinstance(model.item(ctx.reading, "boot_id"), str):
        missing.append("boot_id")
    if foreign and not missing:
        return checks.unknown(
            foreign,
            [],
            "The reading is of another version of the collection; schemas: %s. Read the node again with this one."
            % (", ".join(foreign),),
        )
    if not missing:
        return checks.good([], [])
    why = ["%s (%s)" % (name, model.item(ctx.reading, "problems", name) or "no reason given") for name in missing]
    return checks.unknown(
        missing, [], "The node could not be read in full; missing: %s. Read the node again as root." % (", ".join(why),)
    )


ROWS = (
    model.Row(
        IDENT,
        "node",
        complete,
        "Every section of the reading is there",
        ("reading",) + tuple("reading." + name for name in SECTIONS),
        "this collection",
        (60,),
    ),
)
