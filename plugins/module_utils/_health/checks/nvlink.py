# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLinks of each GPU: which are active, what they lead to, and the errors that they counted."""

from __future__ import annotations

from .. import compare, model, policy, signals
from ..model import PASS

LOOK = "Look for NVRM: Xid 74 in the kernel log and at the fabric manager."


def check_active_links(ctx, gpu) -> dict:
    """Every link that was active is active; without a baseline as many as other GPUs of the model have."""
    ident, key = "gpu.nvlink", "nvlink_active"

    def compare_links(old, new):
        down = [
            number for number, up in enumerate(old) if up is True and not (number < len(new) and new[number] is True)
        ]
        if not down:
            return None
        up = new.count(True)
        return compare.make_failure(
            "reset_gpu",
            "%s of %s %s down: %s %s active; expected %s as in the baseline. %s"
            % (
                format_links(down),
                model.name_gpu(gpu),
                "is" if len(down) == 1 else "are",
                up,
                "is" if up == 1 else "are",
                old.count(True),
                LOOK,
            ),
        )

    now = compare.read_typed(gpu, key, list)
    if not now.known or signals.old_gpu(ctx, gpu) is not None:
        return compare.compare_with_baseline(ctx, gpu, ident, key, list, compare_links, "reset_gpu", format_count)
    found = now.value.count(True)
    most = max([found] + [links.count(True) for links in compare.list_peer_values(ctx, gpu, key, list)])
    down = [number for number, up in enumerate(now.value) if up is not True]
    # A list that is shorter than another GPU's does not say which are missing.
    which = (
        "%s %s down" % (format_links(down), "is" if len(down) == 1 else "are") if down else "the others are not there"
    )
    active_now = "%s active %s" % (found, "NVLink" if found == 1 else "NVLinks")
    finding = None
    if found < most:
        finding = compare.make_failure(
            "reset_gpu",
            "%s has %s; expected %s as other GPUs of its model here (%s). %s "
            "If the node is built so, compare with a baseline." % (model.name_gpu(gpu), active_now, most, which, LOOK),
        )
    elif found < len(now.value):
        finding = compare.make_notice(
            "%s has %s; expected %s, if all are connected (%s). Compare with other nodes."
            % (model.name_gpu(gpu), active_now, len(now.value), which)
        )
    return compare.make_check(ident, gpu, finding, format_count(now.value), "%s active" % (most,), "hardware")


def format_links(numbers) -> str:
    """C(NVLink 3), C(NVLinks 3, 5)."""
    return "%s %s" % ("NVLink" if len(numbers) == 1 else "NVLinks", ", ".join(str(number) for number in numbers))


def format_count(links) -> str:
    return "%s of %s active" % (links.count(True), len(links))


def map_links(links) -> dict:
    """The links by their number; those without one are left out."""
    return dict(
        (link["link"], link) for link in links if isinstance(link, dict) and compare.is_a(link.get("link"), int)
    )


def check_remote_ends(ctx, gpu) -> dict:
    """Each link leads where it led, at the version it had."""
    ident, key = "gpu.nvlink_remote", "nvlinks"

    def differs(old, new):
        slower, moved = [], []
        after = map_links(new)
        for number, link in sorted(map_links(old).items()):
            other = after.get(number)
            if other is None:
                slower.append("link %s: not there, expected" % (number,))
                continue
            before_version, now_version = compare.part(link, "version"), compare.part(other, "version")
            if before_version is not None and (now_version is None or now_version < before_version):
                slower.append("link %s: version %s, expected %s" % (number, now_version, before_version))
            for name in ("remote_type", "remote_pci"):
                if link.get(name) is not None and other.get(name) != link.get(name):
                    moved.append("link %s: %s %s, expected %s" % (number, name, other.get(name), link.get(name)))
        if slower:
            return compare.make_failure(
                "hold",
                "NVLinks of %s are not those of the baseline: %s. %s" % (model.name_gpu(gpu), "; ".join(slower), LOOK),
            )
        if moved:
            return compare.make_notice(
                "NVLinks of %s lead elsewhere than in the baseline: %s. Check whether hardware was moved, then "
                "take a new baseline." % (model.name_gpu(gpu), "; ".join(moved))
            )
        return None

    return compare.compare_with_baseline(
        ctx, gpu, ident, key, list, differs, show=lambda links: "%s links" % (len(links),)
    )


def errors_of(links, name) -> tuple[dict, list]:
    """Counter NAME of every link that is not down, by link: (numbers, links without one)."""
    numbers, without = {}, []
    for number, link in map_links(links).items():
        if link.get("active") is False:
            continue
        counted = compare.read_count(model.item(link, "errors"), name)
        if counted is None:
            without.append(number)
        else:
            numbers[number] = counted
    return numbers, without


def find_counter_problem(ctx, gpu, links, name) -> str | None:
    """Return why counter NAME cannot be judged: only some links have it, or it was in the baseline; None if it can be
    judged.
    """
    if len(map_links(links)) < len(links):
        return "NVLinks of %s were read without their numbers: %s of %s have one. Read the node again." % (
            model.name_gpu(gpu),
            len(map_links(links)),
            len(links),
        )
    numbers, without = errors_of(links, name)
    if not without:
        return None
    old = compare.read_baseline(ctx, gpu, "nvlinks", list)
    earlier = errors_of(old.value, name)[0] if old is not None and old.known else {}
    others = [links for links in compare.list_peer_values(ctx, gpu, "nvlinks", list) if errors_of(links, name)[0]]
    if not numbers and not earlier and not others and not compare.damaged_before(old):
        return None
    return (
        "The NVLink counter %s of %s cannot be read for link %s; expected a number as for other links. "
        "Read the node again." % (name, model.name_gpu(gpu), ", ".join(str(number) for number in sorted(without)))
    )


# Counter, its limit, what the link did. A recovery that failed is counted by NVLink 5 only.
RECOVERIES = (
    ("recovery", "nvlink_recoveries_max", "had to recover"),
    ("recovery_failed", "nvlink_failed_recoveries_max", "failed to recover"),
)


def check_recoveries(ctx, gpu) -> dict:
    """A link that had to recover is a link that failed for a moment; one that could not is down or about to be."""
    ident, key = "gpu.nvlink_recovery", "nvlinks"
    now = compare.read_typed(gpu, key, list)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    old = compare.read_baseline(ctx, gpu, key, list)
    same = compare.is_same_load(ctx) is True and old is not None and old.known
    found, limits, told, problems = {}, {}, [], []
    for name, limit_key, did in RECOVERIES:
        problems.append(find_counter_problem(ctx, gpu, now.value, name))
        numbers = errors_of(now.value, name)[0]
        if not numbers:
            continue
        limit = limits[name] = policy.find_limit(ctx, limit_key, gpu)
        earlier = errors_of(old.value, name)[0] if same else {}
        grown = dict(
            (number, counted - earlier.get(number, 0) if earlier.get(number, 0) <= counted else counted)
            for number, counted in numbers.items()
        )
        found[name] = max(grown.values())
        over = ["link %s: %s" % (number, grown[number]) for number in sorted(grown) if grown[number] > limit]
        if over:
            since = "since the baseline" if same else "since the driver was loaded"
            told.append("%s %s (%s); expected at most %s for each" % (did, since, ", ".join(over), limit))
    finding = None
    problem = next((text for text in problems if text), None)
    if told:
        finding = compare.make_failure(
            "reset_gpu", "NVLinks of %s %s. %s" % (model.name_gpu(gpu), ", and ".join(told), LOOK)
        )
    elif problem:
        finding = compare.make_unknown(problem)
    elif not found:
        return compare.not_applicable(ident, gpu, None, "These links do not count recoveries.")
    return compare.make_check(ident, gpu, finding, found or None, limits or None, "policy")


# Counters, what they count, the limits of their rate and number. NVLink 5 counts symbols: those that its error
# correction could not mend are what CRC errors were, and those that it mended are many on a good link.
ERROR_KINDS = (
    (("crc_flit", "crc_data"), "CRC errors", "nvlink_crc_per_minute", "nvlink_crc_since_load"),
    (("effective",), "errors after correction", "nvlink_crc_per_minute", "nvlink_crc_since_load"),
    (("symbol",), "symbol errors", "nvlink_symbols_per_minute", "nvlink_symbols_since_load"),
    (("replay",), "replays", "nvlink_replays_per_minute", "nvlink_replays_since_load"),
)


def check_errors(ctx, gpu) -> dict:
    """Packets that came damaged or were sent again."""
    ident, key = "gpu.nvlink_errors", "nvlinks"
    now = compare.read_typed(gpu, key, list)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    old = compare.read_baseline(ctx, gpu, key, list)
    shown, worst = {}, None
    for names, what, rate_key, count_key in ERROR_KINDS:
        for name in names:
            problem = find_counter_problem(ctx, gpu, now.value, name)
            if problem:
                worst = compare.make_unknown(problem)
            numbers = errors_of(now.value, name)[0]
            if not numbers:
                continue
            shown[name] = sum(numbers.values())
            before = old
            if old is not None and old.known:
                earlier = errors_of(old.value, name)[0]
                before = model.Reading(True, sum(earlier.values()), 0, None) if earlier else model.NOTHING
            state, text = compare.judge_counter(ctx, gpu, shown[name], before, rate_key, count_key)
            finding = compare.counter_finding(
                state, "NVLink %s (%s) of %s: %s" % (what, name, model.name_gpu(gpu), text), LOOK
            )
            if finding is not None and (worst is None or worst.status == PASS):
                worst = finding
    if not shown and worst is None:
        return compare.not_applicable(ident, gpu, None, "These links do not count errors.")
    return compare.make_check(ident, gpu, worst, shown, None, "policy")


COUNTER_SIGNALS = ("gpu.nvlinks",) + compare.COUNTER_SIGNALS
ROWS = (
    model.gpu_row(
        "gpu.nvlink",
        check_active_links,
        "Every NVLink that was active is active; without a baseline, as many as other GPUs of the model have (a notice "
        "if some are down)",
        ("gpu.nvlink_active",),
        "nvml.h, nvmlDeviceGetNvLinkState",
    ),
    model.gpu_row(
        "gpu.nvlink_remote",
        check_remote_ends,
        "NVLinks have the version of the baseline and lead where they led (a notice if elsewhere)",
        ("gpu.nvlinks",),
        "nvml.h, nvmlDeviceGetNvLinkVersion, nvmlDeviceGetNvLinkRemotePciInfo_v2",
    ),
    model.gpu_row(
        "gpu.nvlink_recovery",
        check_recoveries,
        "No NVLink had to recover, or could not",
        COUNTER_SIGNALS,
        "DCGM: a recovery is a failure; nvml.h, NVML_NVLINK_ERROR_DL_RECOVERY, "
        "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    ),
    model.gpu_row(
        "gpu.nvlink_errors",
        check_errors,
        "NVLinks count few CRC or symbol errors and replays (a notice if many)",
        COUNTER_SIGNALS,
        "DCGM: CRC errors matter from 100 a second on; nvml.h, nvmlNvLinkErrorCounter_t",
    ),
)
