# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The waivers of power limits that the playbook thermal_relief lowered, of the note that it leaves on the node."""

from __future__ import annotations

from . import compare, model, policy
from .compare import NUMBER

SCHEMA = "gpufleet.thermal-relief/1"
# The checks that a lowered limit fails, and the value that they look at.
CHECKS = (("gpu.power_limit", "power_limit_mw"), ("gpu.power_limit_enforced", "power_limit_enforced_mw"))
REASON = "thermal_relief lowered the power limit"


def list_waivers(reading, snapshot) -> list[dict]:
    """Waivers as a policy has them.

    Only the very limit that was set is waived: no one asked for any other, and a note that cannot be used waives
    nothing.
    """
    note = model.item(reading, "thermal_relief", "note")
    if model.item(note, "schema") != SCHEMA or not isinstance(model.item(note, "gpus"), list):
        return []
    lowered = dict((model.item(entry, "uuid"), model.item(entry, "lowered_mw")) for entry in note["gpus"])
    found = []
    for gpu in model.gpus(snapshot):
        wanted = lowered.get(model.uuid(gpu))
        for check, key in CHECKS:
            now = compare.read_typed(gpu, key, NUMBER)
            if wanted is not None and now.known and now.value == wanted:
                entry = {"check": check, "entity": model.entity(gpu), "reason": REASON}
                found.append(dict(entry, expires=model.item(note, "expires")))
    try:
        return [
            policy.parse_waiver(number, entry, [name for name, dummy in CHECKS]) for number, entry in enumerate(found)
        ]
    except policy.PolicyError:
        return []  # it does not say until when
