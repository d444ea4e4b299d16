# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of a rollout's policy: their valid values, and whether its budgets are spent. Pure."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options, windows

POOL = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,99})?")
PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?) ?%")
DEFAULTS = {
    "max_down": 1,
    "max_draining": None,  # None: as many as may be down
    "failure_budget": 1,
    "failure_percent": None,  # of the nodes that started
    "failure_classes": {},
    "domain_caps": {},
    "growth_start": None,  # None: the whole window from the beginning
    "growth_step": 1,
    "common_cause": 2,  # 0: never
    "canary_failures": 0,
    "canary_soak_s": 0,  # how long a canary has to stay healthy in service before others start
    "max_delta_unhealthy": None,  # percent of the fleet
    "broken_elsewhere": 0,
    "pool": "",  # rollouts of the same one share down slots and failure domains
    "fleet": 1,
    "ticket_s": 4 * 3600,
    "windows": [],
    "waves": [],  # sizes of the waves; none: a window
    "node_s": 900,
    "other_ledger_s": 86400,  # how long a change by another ledger keeps a node from this one
    "on_failure": "rollback",  # used by the role; part of the policy so that an approval covers it
    "holds": {},  # queries by name that must return no series before a node starts
    "approved": None,  # None: no approval needed
}


ON_FAILURE = ("rollback", "quarantine", "stop")


class LimitError(Exception):
    """A limit cannot be used; the message names it, what was found, what is expected, and the next step."""

    def __init__(self, message):
        name = re.search(r"rollout_[a-z_]+", message)
        super().__init__(
            "%s Give %s (with -e, in the inventory, or in rollout_limits for set_budget) and run again. "
            "Nothing was changed." % (message, "%s another value" % name.group(0) if name else "known ones")
        )


def amount(key, value, fleet):
    """Return a number of nodes from C(3), C("3") or C("10%") of the fleet, rounded down and at least 1. 0% is 0."""
    if (
        not isinstance(value, (str, int, float))
        or isinstance(value, int)
        and abs(value) > options.MOST_NODES
        or len(str(value)) > options.SHOWN
    ):
        raise LimitError(
            "rollout_%s is %s; expected a number of at most %d nodes such as 2, or a share of the fleet such as 10%%."
            % (key, options.shown(value), options.MOST_NODES)
        )
    text = str(value).strip()
    match = PERCENT.fullmatch(text)
    if match:
        percent = float(match.group(1))
        if percent > 100:
            raise LimitError("rollout_%s is %s; expected at most 100%%." % (key, text))
        return 0 if percent == 0 else max(1, int(fleet * percent / 100.0))
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]+", text):
        raise LimitError(
            "rollout_%s is %r; expected a number of nodes such as 2, or a share of the fleet such as 10%%."
            % (key, value)
        )
    if int(text) > options.MOST_NODES:
        raise LimitError("rollout_%s is %s; expected at most %d nodes." % (key, text, options.MOST_NODES))
    return int(text)


def percent(key, value):
    """Return a share such as C(10) or C("10%") as a number; None stays None."""
    if value is None or value == "":
        return None
    match = (
        re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?) ?%?", str(value).strip())
        if isinstance(value, (str, float, int))
        else None
    )
    if isinstance(value, bool) or not match or float(match.group(1)) > 100:
        raise LimitError("rollout_%s is %r; expected percent from 0 to 100." % (key, value))
    return float(match.group(1))


def _amounts(key, given, fleet, known=None):
    """Return numbers of nodes by name, none of them 0."""
    if not isinstance(given, dict):
        raise LimitError("rollout_%s is %r; expected a dictionary." % (key, given))
    unknown = sorted(name for name in given if known and name not in known)
    if unknown:
        raise LimitError("rollout_%s names %s; expected one of: %s." % (key, unknown[0], ", ".join(known)))
    numbers = {name: amount("%s.%s" % (key, name), value, fleet) for name, value in given.items()}
    zero = sorted(name for name, value in numbers.items() if value < 1)
    if zero:
        raise LimitError("rollout_%s.%s is 0; expected 1 or more, otherwise no node could ever start." % (key, zero[0]))
    return numbers


def _check_holds(holds):
    if not isinstance(holds, dict) or not all(
        isinstance(part, str) and part for item in holds.items() for part in item
    ):
        raise LimitError("rollout_limits.holds is %r; expected queries by name, or {} for none." % (holds,))


def _check_pool(policy):
    pool = policy["pool"]
    if not isinstance(pool, str) or not POOL.fullmatch(pool):
        raise LimitError(
            "rollout_pool is %s; expected a name of up to 100 letters, digits and . _ -, such as site-a."
            % options.shown(pool)
        )


def _check_waves(waves, fleet):
    if not isinstance(waves, list):
        raise LimitError(
            "rollout_waves is %r; expected a list of numbers of nodes, or of shares, such as [1, 10%%, 100%%]."
            % (waves,)
        )
    for number, value in enumerate(waves):
        if amount("waves[%d]" % number, value, fleet) < 1:
            raise LimitError(
                "rollout_waves[%d] is %s; expected 1 or more, otherwise the wave would have no node." % (number, value)
            )


def complete(given, fleet):
    """Return the complete policy for the gate; refuse limits with which no node could ever start."""
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        raise LimitError(
            "The policy has the unknown limit %s; expected some of: %s."
            % (", ".join(unknown), ", ".join(sorted(DEFAULTS)))
        )
    policy = dict(DEFAULTS, **{key: value for key, value in given.items() if value is not None})
    policy["fleet"] = max(fleet, 1)
    policy["max_down"] = amount("max_down", policy["max_down"], fleet)
    policy["max_draining"] = (
        policy["max_down"]
        if policy["max_draining"] in (None, "")
        else amount("max_draining", policy["max_draining"], fleet)
    )
    policy["failure_budget"] = amount("failure_budget", policy["failure_budget"], fleet)
    for key in ("max_down", "max_draining", "failure_budget"):
        if policy[key] < 1:
            raise LimitError(
                "rollout_%s is %s; expected 1 or more, such as rollout_%s=1, otherwise no node could ever start."
                % (key, given.get(key), key)
            )
    for key in ("failure_percent", "max_delta_unhealthy"):
        policy[key] = percent(key, policy[key])
    policy["failure_classes"] = _amounts("failure_classes", policy["failure_classes"], fleet, state.CLASSES)
    policy["domain_caps"] = _amounts("domain_caps", policy["domain_caps"], fleet)
    for key in (
        "growth_start",
        "growth_step",
        "common_cause",
        "canary_failures",
        "canary_soak_s",
        "broken_elsewhere",
        "ticket_s",
        "node_s",
        "other_ledger_s",
    ):
        value = policy[key]
        if value is not None and (isinstance(value, bool) or not re.fullmatch(r"[0-9]+", str(value))):
            raise LimitError("rollout_%s is %r; expected a number of at least 0." % (key, value))
        policy[key] = None if value is None else int(value)
    _check_pool(policy)
    if policy["on_failure"] not in ON_FAILURE:
        raise LimitError("rollout_on_failure is %r; expected rollback, quarantine or stop." % (policy["on_failure"],))
    _check_holds(policy["holds"])
    _check_waves(policy["waves"], fleet)
    windows.check(policy["windows"])
    if policy["node_s"] < 1:
        raise LimitError("rollout_node_s is 0; expected 1 or more seconds.")
    if policy["growth_start"] == 0:
        raise LimitError("rollout_growth_start is 0; expected 1 or more, otherwise no node could ever start.")
    if policy["ticket_s"] < 60:
        raise LimitError("rollout_ticket_s is %d; expected at least 60 seconds." % policy["ticket_s"])
    return policy


def wave_sizes(given, total):
    """Return the sizes of the waves for TOTAL nodes. The last given size repeats, as with C(serial)."""
    sizes = []
    while given and sum(sizes) < total:
        size = amount("waves", given[min(len(sizes), len(given) - 1)], total)
        sizes.append(min(size, total - sum(sizes)))
    return sizes


def wave_of(sizes, position):
    """Return (number of the wave from 1, position of its first node) for a position.

    Later ones are in the last wave.
    """
    first = 0
    for number, size in enumerate(sizes, start=1):
        if position < first + size or number == len(sizes):
            return number, first
        first += size
    return 1, 0


def charged(nodes):
    """Return the failed nodes that count against the budgets: not those that were sick before any change."""
    return [node for node in nodes if node.failure != state.SICK]


def weight(node):
    """Return the weight of a failed node in the failure budget: a lost one counts twice."""
    return 2 if node.failure == state.LOST else 1


def common_cause(policy, failed):
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


def listed(names, most=5):
    """Return names in a list for a sentence; the rest after the first few as a number."""
    names = list(names)
    return ", ".join(names[:most]) + (" and %d more" % (len(names) - most) if len(names) > most else "")


def spent(policy, failed, went):
    """Return why no further node may start after these failures; empty while there is budget. WENT: nodes started."""
    mine = charged(failed)
    if not mine:
        return ""
    names = listed(node.name for node in mine)
    if sum(weight(node) for node in mine) >= policy["failure_budget"]:
        return "the failure budget of %d is spent by %s" % (policy["failure_budget"], names)
    for failure, most in sorted(policy["failure_classes"].items()):
        of_class = [node for node in mine if node.failure == failure]
        if len(of_class) >= most:
            return "the failure budget of %d %s failure%s is spent by %s" % (
                most,
                failure,
                "" if most == 1 else "s",
                listed(node.name for node in of_class),
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
            listed(node.name for node in alike),
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


def sign_failure(step, reason, checks=(), node=""):
    """Return a short text that is equal for equal failures. CHECKS: the ids of the health checks that failed."""
    if checks:
        return "%s: %s" % (step or "start", ", ".join(sorted(set(checks))))[:SIGNATURE_LENGTH]
    text = reason or ""
    if node:
        text = text.replace(node, "NODE")
    for pattern in PARTICULAR:
        text = pattern.sub("#", text)
    return "%s: %s" % (step or "start", " ".join(text.split()))[:SIGNATURE_LENGTH]
