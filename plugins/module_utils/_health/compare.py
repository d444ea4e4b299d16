# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks of a GPU share: a finding, the comparison of a value with the baseline, and counters of errors."""

from __future__ import annotations

import collections

from . import model, nodefacts, policy, signals
from .model import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from .nodefacts import AGAIN, Checks

NUMBER = (int, float)

# What is wrong; None stands for nothing. A notice passes and wants to be seen.
Finding = collections.namedtuple("Finding", ["status", "action", "message", "notice"])


def make_failure(action, message):
    return Finding(FAIL, action, message, False)


def make_unknown(message, action="hold"):
    return Finding(UNKNOWN, action, message, False)


def make_notice(message):
    return Finding(PASS, "none", message, True)


def make_check(ident, gpu, finding, observed, expected, source) -> dict:
    """The check that FINDING gives."""
    who = model.entity(gpu)
    if finding is None:
        return model.check(ident, who, PASS, observed, expected, source)
    return model.check(
        ident, who, finding.status, observed, expected, source, finding.action, finding.message, notice=finding.notice
    )


def not_applicable(ident, gpu, observed, message, source="hardware") -> dict:
    return model.check(ident, model.entity(gpu), NOT_APPLICABLE, observed, None, source, message=message)


def is_a(value, kind) -> bool:
    """Tell if VALUE is of KIND; True and False do not count as numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def read_typed(gpu, key, kind):
    """The reading of KEY; one of another kind than KIND is not known."""
    found = model.reading(gpu, key)
    if found.known and not is_a(found.value, kind):
        return model.Reading(False, None, None, "%r, which is of the wrong kind" % (found.value,))
    return found


def part(value, key, kind=NUMBER) -> float | None:
    """VALUE[KEY] if it is of KIND, else None."""
    inner = model.item(value, key)
    return inner if is_a(inner, kind) else None


def read_count(value, key) -> float | None:
    """VALUE[KEY] if it is a number that something can be counted to, else None."""
    inner = part(value, key)
    return inner if inner is not None and inner >= 0 else None


def read_baseline(ctx, gpu, key, kind):
    """The reading of KEY in the baseline as read_typed() gives it; None where there is no such GPU to compare with."""
    old = signals.old_gpu(ctx, gpu)
    return None if old is None else read_typed(old, key, kind)


def absent_before(old) -> bool:
    """Tell if the GPU did not have the signal in the baseline."""
    return old.rc in model.ABSENT


def check_comparable(ctx, gpu, ident, key, kind, shown) -> dict | None:
    """The check that says why KEY cannot be compared with the baseline; None if it can. SHOWN is the value of now."""
    checks = Checks(ident, model.entity(gpu), source="baseline")
    old = read_baseline(ctx, gpu, key, kind)
    if old is None:
        return not_applicable(ident, gpu, shown, "There is no earlier value to compare with.", "baseline")
    if absent_before(old):
        return model.check(
            ident,
            model.entity(gpu),
            NOT_APPLICABLE,
            shown,
            model.format_reading(old),
            "baseline",
            message="Not supported in the baseline.",
        )
    if damaged_before(old):
        return checks.unknown(
            shown,
            model.format_reading(old),
            "The baseline has no %s of %s (%s); expected one to compare with what it is now: %s. %s"
            % (key, model.name_gpu(gpu), model.format_reading(old), shown, AGAIN),
        )
    return None


def compare_with_baseline(ctx, gpu, ident, key, kind, judge, action=None, show=None, alone=None) -> dict:
    """KEY now against KEY in the baseline.

    JUDGE(old, new) answers a finding or None; SHOW makes a value short enough for a report. ALONE(ctx, gpu, new)
    answers the check of a value that is odd by itself, or None, where there is nothing to compare with.
    """
    show = show or (lambda value: value)
    now = read_typed(gpu, key, kind)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now, action)
    odd = alone(ctx, gpu, now.value) if alone and signals.old_gpu(ctx, gpu) is None else None
    if odd is not None:
        return odd
    answer = check_comparable(ctx, gpu, ident, key, kind, show(now.value))
    if answer is not None:
        return answer
    old = read_baseline(ctx, gpu, key, kind)
    return make_check(ident, gpu, judge(old.value, now.value), show(now.value), show(old.value), "baseline")


def make_unchanged_judge(ident, key, what, step, kind=NUMBER, action=None, alone=None):
    """A judge for a value that has to be what it was. Without an ACTION a change is a notice.

    ALONE: as for compare_with_baseline().
    """

    def judge(ctx, gpu) -> dict:
        def differs(old, new):
            if old == new:
                return None
            text = "%s of %s is %s; expected %s as in the baseline. %s" % (what, model.name_gpu(gpu), new, old, step)
            return make_failure(action, text) if action else make_notice(text)

        return compare_with_baseline(ctx, gpu, ident, key, kind, differs, action, alone=alone)

    return judge


def make_unchanged_row(
    ident, key, what, step, action, title, source, kind=NUMBER, alone=None, other_reads=()
) -> model.Row:
    """Return the row of a check of make_unchanged_judge."""
    judge = make_unchanged_judge(ident, key, what, step, kind, action, alone)
    return model.gpu_row(ident, judge, title, ("gpu." + key,) + tuple(other_reads), source)


def find_branch(ctx) -> int | None:
    """The running driver's branch, 535 of 535.261.03; None if not known."""
    version = model.reading(model.item(ctx.snapshot, "system"), "driver_version").value
    head = str(version or "").partition(".")[0]
    return int(head) if head.isdigit() else None


def too_old(ctx, ident, gpu, now, since) -> dict | None:
    """The check that says that the running driver is older than the branch SINCE, which brought the signal; None if
    that is not the reason.
    """
    running = find_branch(ctx)
    if now.known or running is None or running >= since or now.rc not in model.ABSENT:
        return None
    return not_applicable(
        ident, gpu, model.format_reading(now), "Drivers before %d do not have this signal." % (since,)
    )


def under_mig(gpu, now) -> bool:
    """Tell if NOW is not supported because the GPU is, or may be, in MIG mode."""
    mode = model.reading(gpu, "mig_mode_current")
    return now.rc == model.NOT_SUPPORTED and (
        mode.value == 1 if mode.known else mode.rc not in (model.NOT_SUPPORTED, model.INVALID_ARGUMENT)
    )


def damaged_before(old) -> bool:
    """Tell if the baseline has neither a value for a signal nor the information that there is none."""
    return old is not None and not old.known and not absent_before(old)


def list_peer_values(ctx, gpu, key, kind) -> list:
    """The values of KEY of the other GPUs of this node that are of the same model, or may be."""
    name = model.reading(gpu, "name").value
    values = []
    for other in model.gpus(ctx.snapshot):
        found = read_typed(other, key, kind)
        if other is not gpu and found.known and (name is None or model.reading(other, "name").value in (None, name)):
            values.append(found.value)
    return values


# The shortest time from which a rate is told.
SHORTEST_S = 60.0
FINE, MANY, UNCLEAR = "fine", "many", "unclear"
# What tells since when a volatile counter counts.
COUNTER_SIGNALS = ("reading.boot_id", "reading.uptime_s", "snapshot.system.driver_version")


def is_same_boot(ctx) -> bool | None:
    """Tell if reading and baseline are of the same boot; False without a baseline, None if unknown."""
    return False if ctx.baseline is None else nodefacts.same_boot(ctx)


def is_same_load(ctx) -> bool | None:
    """Tell if the loaded driver is the one of the baseline: same boot, same version.

    None if unknown.
    """
    if ctx.baseline is None:
        return False
    boot = is_same_boot(ctx)
    drivers = [
        model.reading(model.item(snapshot, "system"), "driver_version").value
        for snapshot in (ctx.snapshot, model.item(ctx.baseline, "snapshot"))
    ]
    if boot is None or not all(isinstance(text, str) and text for text in drivers):
        return None
    return boot and drivers[0] == drivers[1]


def uptime_between(reading, earlier) -> float | None:
    """Seconds of uptime between EARLIER, a baseline document, and READING, both of one boot; None if not known."""
    now = part(reading, "uptime_s")
    if now is None:
        now = part(model.item(reading, "system"), "uptime_s")
    then = part(model.item(earlier, "system"), "uptime_s")
    return now - then if now is not None and then is not None and now >= then else None


def judge_counter(
    ctx, gpu, now, old, rate_key, count_key, same=is_same_load, began="since the driver was loaded"
) -> tuple[str, str]:
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
    if continued and not old.known and old.rc not in model.ABSENT:
        return UNCLEAR, "%s, and the baseline has no number to compare with" % (now,)
    if continued and old.known and old.value <= now:
        grown, seconds = now - old.value, uptime_between(ctx.reading, ctx.baseline)
        if grown == 0:
            return FINE, ""
        if seconds is None:
            return UNCLEAR, "%s more than in the baseline, and in what time is not known: the uptime is missing" % (
                grown,
            )
        if seconds >= SHORTEST_S:
            limit = policy.find_limit(ctx, rate_key, gpu)
            rate = round(grown * 60.0 / seconds, 2)
            return (
                MANY if rate > limit else FINE
            ), "%s more than in the baseline, %s a minute; up to %s a minute are expected" % (grown, rate, limit)
        since = "since the baseline"
    else:
        grown, since = now, began
    limit = policy.find_limit(ctx, count_key, gpu)
    return (MANY if grown > limit else FINE), "%s %s; up to %s are expected" % (grown, since, limit)


def counter_finding(state, text, step):
    """A notice for MANY, unknown for UNCLEAR. TEXT says what and how many, STEP what to do."""
    if state == FINE:
        return None
    return (
        make_notice("%s. %s" % (text, step))
        if state == MANY
        else make_unknown("%s. Read the node again, and take a new baseline." % (text,))
    )
