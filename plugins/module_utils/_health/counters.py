# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of errors: since when they count, how fast they grow, and from where on that is worth a notice.

Volatile counters start again when the driver is loaded, so they are only subtracted from each other within one load of
the driver. Counters of a GPU's whole life are subtracted whenever there is a baseline.
"""

from __future__ import annotations

from . import codes, compare, model, policy

# The shortest time from which a rate is told.
SHORTEST_S = 60.0
FINE, MANY, UNCLEAR = "fine", "many", "unclear"
# What tells since when a volatile counter counts.
SIGNALS = ("reading.boot_id", "reading.uptime_s", "snapshot.system.driver_version")


def same_boot(ctx):
    """Tell if reading and baseline are of the same boot; None if unknown."""
    if ctx.baseline is None:
        return False
    boots = [model.item(document, "boot_id") for document in (ctx.reading, ctx.baseline)]
    return boots[0] == boots[1] if all(isinstance(text, str) and text for text in boots) else None


def same_load(ctx):
    """Tell if the loaded driver is the one of the baseline: same boot, same version.

    None if unknown.
    """
    if ctx.baseline is None:
        return False
    boot = same_boot(ctx)
    drivers = [
        model.reading(model.item(snapshot, "system"), "driver_version").value
        for snapshot in (ctx.snapshot, model.item(ctx.baseline, "snapshot"))
    ]
    if boot is None or not all(isinstance(text, str) and text for text in drivers):
        return None
    return boot and drivers[0] == drivers[1]


def seconds_between(ctx):
    """Seconds of uptime between baseline and reading, both of one boot; None if not known."""
    now = compare.part(ctx.reading, "uptime_s")
    if now is None:
        now = compare.part(ctx.system, "uptime_s")
    then = compare.part(model.item(ctx.baseline, "system"), "uptime_s")
    return now - then if now is not None and then is not None and now >= then else None


def judged(ctx, gpu, now, old, rate_key, count_key, same=same_load, began="since the driver was loaded"):
    """FINE, MANY or UNCLEAR, and why, for a volatile counter that is NOW; OLD is its reading in the baseline or None.

    Within one load of the driver it is the rate since the baseline that counts, by the policy's RATE_KEY (per minute),
    otherwise the number since the driver was loaded, by COUNT_KEY. Counters that begin at another time say so with SAME
    and BEGAN.
    """
    if now == 0:
        return FINE, ""
    continued = same(ctx) if old is not None else False
    if continued is None:
        return (
            UNCLEAR,
            "%s, and whether they began before the baseline is not known: boot id or driver version is missing"
            % (now,),
        )
    if continued and not old.known and old.rc not in codes.ABSENT:
        return UNCLEAR, "%s, and the baseline has no number to compare with" % (now,)
    if continued and old.known and old.value <= now:
        grown, seconds = now - old.value, seconds_between(ctx)
        if grown == 0:
            return FINE, ""
        if seconds is None:
            return UNCLEAR, "%s more than in the baseline, and in what time is not known: the uptime is missing" % (
                grown,
            )
        if seconds >= SHORTEST_S:
            limit = policy.limit(ctx, rate_key, gpu)
            rate = round(grown * 60.0 / seconds, 2)
            return (
                MANY if rate > limit else FINE
            ), "%s more than in the baseline, %s a minute; up to %s a minute are expected" % (grown, rate, limit)
        since = "since the baseline"
    else:
        grown, since = now, began
    limit = policy.limit(ctx, count_key, gpu)
    return (MANY if grown > limit else FINE), "%s %s; up to %s are expected" % (grown, since, limit)


def finding(state, text, step):
    """A notice for MANY, unknown for UNCLEAR. TEXT says what and how many, STEP what to do."""
    if state == FINE:
        return None
    return (
        compare.notice("%s. %s" % (text, step))
        if state == MANY
        else compare.unknown("%s. Read the node again, and take a new baseline." % (text,))
    )
