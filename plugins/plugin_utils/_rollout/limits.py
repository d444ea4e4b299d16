# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of a rollout's policy: their valid values, and whether its budgets are spent. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options, windows

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
    windows.check_windows(policy["windows"])
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
