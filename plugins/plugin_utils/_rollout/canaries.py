# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the canaries of a rollout. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import keys
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.errors import PlanError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe


def check(named: t.Sequence[str], per_stratum: int, by_name: t.Collection[str]) -> None:
    """Refuse canaries that are not among the nodes of the rollout."""
    strangers = sorted(set(named) - set(by_name))
    if strangers:
        raise PlanError("Canaries that are not among the nodes of this rollout: %s. Name others in rollout_canaries, or take these along (the inventory, "
                        "--limit). Nothing was changed." % limits.listed(strangers))
    twice = sorted(name for name in set(named) if list(named).count(name) > 1)
    if twice:
        raise PlanError("rollout_canaries names %s twice; expected every canary once. Nothing was changed." % twice[0])
    if per_stratum < 0:
        raise PlanError("rollout_canaries_per_stratum is %d; expected a number of at least 0. Nothing was changed." % per_stratum)
    if per_stratum > len(by_name):
        raise PlanError("rollout_canaries_per_stratum is %d, and the rollout has %d nodes; expected at most as many. Nothing was changed." % (
            per_stratum, len(by_name)))


def choose(named: t.Sequence[str], per_stratum: int, ready: t.Sequence[str], probes: t.Mapping[str, Probe], nodes: t.Mapping[str, t.Dict[str, t.Any]],
           previous: t.Any) -> t.List[str]:
    """Return those that were named, those that were canaries when their controller died, then so many more of each stratum until every one is spoken for.

    READY are the nodes that can go. One that was named and cannot is refused, unless it is where it should go: to leave it out without
    a word would let the others go unproven.
    """
    for name in named:
        entry = nodes[name]
        if name not in ready and not (entry["state"] == "done" or entry["from"] == entry["to"] and entry["state"] == "skipped" and not entry.get("order")):
            raise PlanError(
                "rollout_canaries names %s, which cannot go: %s, %s. Have it repaired, or name another one in rollout_canaries. Nothing was changed."
                % (name, entry["state"], (entry["reason"] or "no reason was recorded").rstrip(".")))
    chosen = [name for name in named if name in ready]
    left = [name for name in ready if nodes[name].get(keys.ORPHANED) and previous.nodes.get(name).canary]
    chosen += [name for name in left if name not in chosen]
    if per_stratum:
        spoken = {}
        for name in chosen:
            spoken[probes[name].stratum] = spoken.get(probes[name].stratum, 0) + 1
        for name in ready:
            stratum = probes[name].stratum
            if spoken.get(stratum, 0) < per_stratum and name not in chosen:
                spoken[stratum] = spoken.get(stratum, 0) + 1
                chosen.append(name)
    return chosen
