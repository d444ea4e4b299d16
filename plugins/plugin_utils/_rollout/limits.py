# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of a rollout's policy: their valid values, whether its budgets are spent, and maintenance windows. Pure.

A window is C({days: [sat, sun], from: "22:00", to: "04:00", timezone: Europe/Berlin}). It opens on each of these days;
if C(to) is earlier than C(from), it ends on the next day. C(date) instead of C(days) makes it a single window. Times
are local times, also when clocks change: a local time that is skipped opens and closes nothing, and one that comes
twice counts twice, so that such a window may have a break. A node never starts in a part in which it could not end.
"""

from __future__ import annotations

import datetime
import re
import typing as t
from collections.abc import Iterator

import zoneinfo

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options

# What the plan computes beside the limits that are variables.
COMPUTED: t.Dict[str, t.Any] = {
    "fleet": 1,
    "holds": {},  # queries by name that must return no series before a node starts
    "approved": None,  # None: no approval needed
}
# A rollout has waves only in the mode of that name.
DEFAULTS = {**{key: one.get("default") for key, one in options.LIMITS.items()}, **COMPUTED, "waves": []}


def count_nodes(amount: t.Union[int, str], fleet: int) -> int:
    """Return the nodes of an amount: a number, or a share of the fleet, rounded down and at least 1."""
    share = options.SHARE.fullmatch(amount) if isinstance(amount, str) else None
    return max(1, int(fleet * float(share[1]) / 100.0)) if share else int(amount)


def complete_policy(given: t.Mapping[str, t.Any], fleet: int) -> dict:
    """Return the policy of a rollout for the gate: all limits, with shares as nodes of the fleet.

    Raises:
        OptionError: A limit cannot be used, or is unknown.
        WindowError: A maintenance window cannot be used.
    """
    variables = {
        options.PREFIX + key: value for key, value in dict({"waves": []}, **given).items() if key not in COMPUTED
    }
    policy = options.read_variables(variables, options.LIMITS)
    for key, default in COMPUTED.items():
        policy[key] = default if given.get(key) is None else given[key]
    policy["fleet"] = max(fleet, 1)
    for key, one in options.LIMITS.items():
        if one["type"] == "amount" and policy[key] is not None:
            policy[key] = count_nodes(policy[key], fleet)
        elif one["type"] == "amounts":
            policy[key] = {name: count_nodes(value, fleet) for name, value in policy[key].items()}
    policy["max_draining"] = policy["max_draining"] or policy["max_down"]
    holds = policy["holds"]
    if not isinstance(holds, dict) or not all(
        isinstance(part, str) and part for item in holds.items() for part in item
    ):
        raise options.OptionError("rollout_limits.holds is %r; expected queries by name, or {} for none" % (holds,))
    check_windows(policy["windows"])
    return policy


def wave_sizes(given, total) -> list:
    """Return the sizes of the waves for TOTAL nodes. The last given size repeats, as with C(serial)."""
    sizes = []
    while given and sum(sizes) < total:
        size = count_nodes(given[min(len(sizes), len(given) - 1)], total)
        sizes.append(min(size, total - sum(sizes)))
    return sizes


def wave_of(sizes, position) -> tuple[int, int]:
    """Return (number of the wave from 1, position of its first node) for a position.

    Later ones are in the last wave.
    """
    first = 0
    for number, size in enumerate(sizes, start=1):
        if position < first + size or number == len(sizes):
            return number, first
        first += size
    return 1, 0


def filter_charged(nodes) -> list[state.Node]:
    """Return the failed nodes that count against the budgets: not those that were sick before any change."""
    return [node for node in nodes if node.failure != state.SICK]


def failure_weight(node) -> int:
    """Return the weight of a failed node in the failure budget: a lost one counts twice."""
    return 2 if node.failure == state.LOST else 1


def common_cause(policy, failed) -> list[state.Node]:
    """Return the nodes that failed in the same way, if there are enough to blame the change; otherwise none."""
    if not policy["common_cause"]:
        return []
    by_signature = {}
    for node in failed:
        if node.signature and node.failure in (state.HARD, state.LOST):
            by_signature.setdefault(node.signature, []).append(node)
    for nodes in by_signature.values():
        if len(nodes) >= policy["common_cause"]:
            return nodes
    return []


def list_names(names, most=5) -> str:
    """Return names in a list for a sentence; the rest after the first few as a number."""
    names = list(names)
    return ", ".join(names[:most]) + (" and %d more" % (len(names) - most) if len(names) > most else "")


def explain_spent_budget(policy, failed, went) -> str:
    """Return why no further node may start after these failures; empty while there is budget. WENT: nodes started."""
    mine = filter_charged(failed)
    if not mine:
        return ""
    names = list_names(node.name for node in mine)
    if sum(failure_weight(node) for node in mine) >= policy["failure_budget"]:
        return "the failure budget of %d is spent by %s" % (policy["failure_budget"], names)
    for failure, most in sorted(policy["failure_classes"].items()):
        of_class = [node for node in mine if node.failure == failure]
        if len(of_class) >= most:
            return "the failure budget of %d %s failure%s is spent by %s" % (
                most,
                failure,
                "" if most == 1 else "s",
                list_names(node.name for node in of_class),
            )
    share = policy["failure_percent"]
    # With few nodes one failure is a large share. Then only failure_budget counts, unless no failure is allowed.
    if share is not None and (share == 0 or went * share >= 100) and len(mine) * 100.0 > share * went:
        return "%d of %d nodes that started have failed, more than %g %%: %s" % (len(mine), went, share, names)
    if (
        policy["max_delta_unhealthy"] is not None
        and len(mine) * 100.0 > policy["max_delta_unhealthy"] * policy["fleet"]
    ):
        return "%d of %d nodes are unhealthy since the rollout began, more than %g %% of the fleet: %s" % (
            len(mine),
            policy["fleet"],
            policy["max_delta_unhealthy"],
            names,
        )
    alike = common_cause(policy, mine)
    if alike:
        return "%s failed in the same way (%s), so the cause is likely the change and not the nodes" % (
            list_names(node.name for node in alike),
            alike[0].signature,
        )
    return ""


SIGNATURE_LENGTH = 120
# What differs between nodes that fail alike: UUIDs, PCI addresses, versions of kernels, paths, numbers, quoted names.
PARTICULAR = (
    re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE),
    re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE),
    re.compile(r"\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE),
    re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE),
    re.compile(r"\d+"),
)


def sign_failure(step, reason, checks=(), node="") -> str:
    """Return a short text that is equal for equal failures. CHECKS: the ids of the health checks that failed."""
    if checks:
        return "%s: %s" % (step or "start", ", ".join(sorted(set(checks))))[:SIGNATURE_LENGTH]
    text = reason or ""
    if node:
        text = text.replace(node, "NODE")
    for pattern in PARTICULAR:
        text = pattern.sub("#", text)
    return "%s: %s" % (step or "start", " ".join(text.split()))[:SIGNATURE_LENGTH]


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
KEYS = ("days", "date", "from", "to", "timezone")
FIRST_YEAR, LAST_YEAR = 2000, 2199
DAY = datetime.timedelta(days=1)


class WindowError(Exception):
    """A window is not valid; the message names it and what is expected."""


class Opening(t.NamedTuple):
    open: bool
    reason: str


def check_windows(windows) -> list[dict]:
    """Refuse windows that are not valid."""
    if not isinstance(windows, list):
        raise WindowError("rollout_windows is %r; expected a list of windows." % (windows,))
    for number, window in enumerate(windows):
        where = "rollout_windows[%d]" % number
        if not isinstance(window, dict) or set(window) - set(KEYS) or not {"from", "to"} <= set(window):
            raise WindowError(
                "%s is %r; expected from and to such as '22:00', and optionally days or date, and "
                "timezone." % (where, window)
            )
        if "date" in window:
            if "days" in window:
                raise WindowError("%s has days and a date; expected one of them." % where)
            _parse_date(window["date"], where + ".date")
        for key in ("from", "to"):
            _parse_clock(window[key], "%s.%s" % (where, key))
        days = window.get("days", list(DAYS))
        if not isinstance(days, list) or not days or [day for day in days if day not in DAYS]:
            raise WindowError("%s.days is %r; expected some of %s." % (where, days, ", ".join(DAYS)))
        _load_zone(window, where)
        if window["from"] == window["to"]:
            raise WindowError("%s opens and closes at %s; expected two different times." % (where, window["from"]))
    return windows


def require_room(windows, now, needed_s) -> None:
    """Refuse windows in which no node could ever start: all are over, or too short for one node."""
    check_windows(windows)
    if not windows:
        return
    openings = [
        span
        for span in merge_openings(span for window in windows for span in list_openings(window, now))
        if span[1] > now
    ]
    if not openings:
        raise WindowError(
            "rollout_windows are over: the last one closed before %s. Give later ones."
            % now.strftime("%Y-%m-%d %H:%M UTC")
        )
    if not any(state_at(windows, max(start, now), needed_s).open for start, dummy in openings):
        raise WindowError(
            "No window of rollout_windows is long enough for one node, which takes %d min (rollout_node_s: %d); the "
            "next is from %s to %s."
            % (
                -(-needed_s // 60),
                needed_s,
                openings[0][0].strftime("%Y-%m-%d %H:%M"),
                openings[0][1].strftime("%Y-%m-%d %H:%M UTC"),
            )
        )


def _parse_date(text, where) -> datetime.date:
    try:
        date = datetime.datetime.strptime(text, "%Y-%m-%d").date()
    except (TypeError, ValueError):
        date = None
    if date is None or not FIRST_YEAR <= date.year <= LAST_YEAR:
        raise WindowError("%s is %r; expected a date in quotes such as '2026-01-31'." % (where, text))
    return date


def _parse_clock(text, where) -> datetime.time:
    match = re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", text) if isinstance(text, str) else None
    if not match:
        raise WindowError("%s is %r; expected a time in quotes such as '22:00'." % (where, text))
    return datetime.time(int(match.group(1)), int(match.group(2)))


def _load_zone(window, where="window") -> zoneinfo.ZoneInfo:
    name = window.get("timezone", "UTC")
    wrong = (
        "which is not a string"
        if not isinstance(name, str)
        else ("a path" if name.startswith(("/", ".")) or "/../" in name else "")
    )
    if isinstance(name, str) and not name.strip():
        raise WindowError("%s.timezone is empty; expected a name such as Europe/Berlin, or none for UTC." % where)
    if not wrong:
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            inside = any(known.startswith(name.rstrip("/") + "/") for known in zoneinfo.available_timezones())
            wrong = "a directory of time zones" if inside else "which this controller does not know"
    raise WindowError("%s.timezone is %r, %s; expected a name such as Europe/Berlin." % (where, name, wrong))


def list_openings(window, now) -> Iterator:
    """Yield (start, end) in UTC of the window's openings from yesterday to a week ahead, or of the single one."""
    zone = _load_zone(window)
    opens, closes = _parse_clock(window["from"], "from"), _parse_clock(window["to"], "to")
    today = now.astimezone(zone).date()
    days = (
        [_parse_date(window["date"], "date")]
        if "date" in window
        else [today + datetime.timedelta(days=offset) for offset in range(-1, 9)]
    )
    for day in days:
        if DAYS[day.weekday()] not in window.get("days", DAYS):
            continue
        last = day if closes > opens else day + DAY
        yield from _list_local_times(
            zone, datetime.datetime.combine(day, opens), datetime.datetime.combine(last, closes)
        )


def _list_local_times(zone, start, end) -> Iterator:
    """Yield (start, end) in UTC of the times at which local time is between START and END, both without a zone."""
    for begin, until, offset in _list_offsets(
        zone, start.replace(tzinfo=datetime.timezone.utc) - DAY, end.replace(tzinfo=datetime.timezone.utc) + DAY
    ):
        first = max(begin, start.replace(tzinfo=datetime.timezone.utc) - offset)
        last = min(until, end.replace(tzinfo=datetime.timezone.utc) - offset)
        if first < last:
            yield first, last


def _list_offsets(zone, start, end) -> list[tuple]:
    """Return (start, end, offset to UTC) of the parts of a few days between which the zone's clocks change."""
    if (start.astimezone(zone).utcoffset() == end.astimezone(zone).utcoffset()) or end - start <= datetime.timedelta(
        seconds=1
    ):
        return [(start, end, start.astimezone(zone).utcoffset())]
    middle = start + datetime.timedelta(seconds=(end - start).total_seconds() // 2)
    before, after = _list_offsets(zone, start, middle), _list_offsets(zone, middle, end)
    if before[-1][2] == after[0][2]:
        before[-1], after = (before[-1][0], after[0][1], after[0][2]), after[1:]
    return before + after


def merge_openings(openings) -> list[tuple]:
    """Return openings without overlaps: those that touch become one."""
    found: t.List[t.Tuple[datetime.datetime, datetime.datetime]] = []
    for start, end in sorted(openings):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def state_at(windows, now, needed_s) -> Opening:
    """Return whether a node that needs so many seconds may start now, as an Opening."""
    openings = merge_openings(span for window in windows for span in list_openings(window, now))
    inside = [(start, end) for start, end in openings if start <= now < end]
    needed = datetime.timedelta(seconds=needed_s)
    if any(now + needed <= end for start, end in inside):
        return Opening(True, "")
    later = [start for start, end in openings if start > now]
    following = (
        "the next one opens at %s" % later[0].strftime("%Y-%m-%d %H:%M UTC") if later else "there is no later one"
    )
    if inside:
        return Opening(
            False,
            "the maintenance window closes at %s, and a node needs %d min; %s"
            % (max(end for start, end in inside).strftime("%H:%M UTC"), -(-needed_s // 60), following),
        )
    return Opening(False, "outside of the maintenance window; %s" % following)
