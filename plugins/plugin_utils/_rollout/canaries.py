# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the canaries of a rollout. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.errors import PlanError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe


def check(named: t.Sequence[str], per_stratum: int, by_name: t.Collection[str]) -> None:
    """Refuse canaries that are not among the nodes of the rollout."""
    unknown = sorted(set(named) - set(by_name))
    if unknown:
        raise PlanError(
            "rollout_canaries names nodes that are not in this rollout: %s. Name other nodes, or add these to the "
            "rollout (inventory, --limit). Nothing was changed." % limits.listed(unknown)
        )
    repeated = sorted(name for name in set(named) if list(named).count(name) > 1)
    if repeated:
        raise PlanError(
            "rollout_canaries names %s twice; expected every canary once. Nothing was changed." % repeated[0]
        )
    if per_stratum < 0:
        raise PlanError(
            "rollout_canaries_per_stratum is %d; expected a number of at least 0. Nothing was changed." % per_stratum
        )
    if per_stratum > len(by_name):
        raise PlanError(
            "rollout_canaries_per_stratum is %d, and the rollout has %d nodes; expected at most this number. Nothing "
            "was changed." % (per_stratum, len(by_name))
        )


def choose(
    named: t.Sequence[str],
    per_stratum: int,
    ready: t.Sequence[str],
    probes: t.Mapping[str, Probe],
    nodes: t.Mapping[str, t.Dict[str, t.Any]],
    previous: t.Any,
) -> t.List[str]:
    """Return the canaries: those that are named, orphaned ones, then nodes of each stratum up to PER_STRATUM.

    READY are the nodes that can start. A named node that cannot start is refused, unless it is at the target already.
    Leaving it out silently would let other nodes start without a canary.
    """
    for name in named:
        entry = nodes[name]
        if name not in ready and not (
            entry["state"] == "done"
            or entry["from"] == entry["to"]
            and entry["state"] == "skipped"
            and not entry.get("order")
        ):
            raise PlanError(
                "rollout_canaries names %s, which cannot start: %s, %s. Repair it, or name another node in "
                "rollout_canaries. Nothing was changed."
                % (name, entry["state"], (entry["reason"] or "no reason was recorded").rstrip("."))
            )
    chosen = [name for name in named if name in ready]
    left = [name for name in ready if nodes[name].get("orphaned") and previous.nodes.get(name).canary]
    chosen += [name for name in left if name not in chosen]
    if per_stratum:
        counts: t.Dict[str, int] = {}
        for name in chosen:
            counts[probes[name].stratum] = counts.get(probes[name].stratum, 0) + 1
        for name in ready:
            stratum = probes[name].stratum
            if counts.get(stratum, 0) < per_stratum and name not in chosen:
                counts[stratum] = counts.get(stratum, 0) + 1
                chosen.append(name)
    return chosen
