# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Thresholds and waivers. The thresholds come from a data file; what is given here is the strictest.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import datetime

SCHEMA = "gpufleet.health-policy/1"
STRICTEST = {"ecc_volatile_uncorrected_max": 0, "memory_total_tolerance_percent": 0, "waivers": []}


class PolicyError(Exception):
    """The policy cannot be followed; the text says what is wrong in it."""


def complete(policy):
    """POLICY with the strictest value for what it does not say."""
    full = dict(STRICTEST)
    for key, value in (policy or {}).items():
        if key == "schema":
            if value != SCHEMA:
                raise PolicyError("the health policy has schema %r, expected %r" % (value, SCHEMA))
            continue
        if key not in STRICTEST:
            raise PolicyError("the health policy has the unknown entry %r; known: %s" % (key, ", ".join(sorted(STRICTEST))))
        if key == "waivers":
            value = [waiver(number, entry) for number, entry in enumerate(value)]
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise PolicyError("the health policy says %s = %r, expected a number of at least 0" % (key, value))
        full[key] = value
    return full


def waiver(number, entry):
    """A waiver names the check, a reason and an expiry; otherwise it is refused."""
    if not isinstance(entry, dict):
        raise PolicyError("waivers[%d] is no dictionary" % (number,))
    for key in ("check", "reason", "expires"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise PolicyError("waivers[%d] has no %s; a waiver names check, reason and expires" % (number, key))
    return {"check": entry["check"], "entity": entry.get("entity") or None, "reason": entry["reason"], "expires": entry["expires"],
            "until": moment(entry["expires"], "waivers[%d].expires" % (number,))}


def moment(text, where):
    """A time in UTC out of 2026-12-31 (the end of that day) or 2026-12-31T12:00:00Z."""
    for layout, days in (("%Y-%m-%dT%H:%M:%SZ", 0), ("%Y-%m-%d", 1)):
        try:
            return datetime.datetime.strptime(text, layout) + datetime.timedelta(days=days)
        except ValueError:
            continue
    raise PolicyError("%s is %r, expected a UTC date like 2026-12-31 or time like 2026-12-31T12:00:00Z" % (where, text))


def apply(checks, waivers, now):
    """The checks, those that a live waiver names marked as waived; an expired waiver only explains itself."""
    if not waivers:
        return checks
    present = moment(now, "the present time")
    result = []
    for check in checks:
        check = dict(check)
        if check["status"] in ("fail", "unknown"):
            for entry in waivers:
                if entry["check"] == check["id"] and entry["entity"] in (None, check["entity"]):
                    if present < entry["until"]:
                        check.update(message="Waived until %s (%s); it was %s: %s" % (entry["expires"], entry["reason"], check["status"], check["message"]),
                                     status="waived", action="none")
                        break
                    check["message"] += " (The waiver for it expired on %s.)" % (entry["expires"],)
        result.append(check)
    return result
