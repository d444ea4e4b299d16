# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which nodes start, its digest, and the error of a plan. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t


class PlanError(Exception):
    """There is nothing to plan, or it contradicts itself; the message says what to do."""


def natural_key(name: str) -> t.List[t.Tuple[int, str]]:
    """Return a sort key that orders gpu-2 before gpu-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def round_robin(names: t.Iterable[str], domain_of: t.Callable[[str], str]) -> t.List[str]:
    """Return the names in round-robin order of their failure domains, so that neighbours are not in one rack."""
    queues: t.Dict[str, t.List[str]] = {}
    for name in sorted(names, key=natural_key):
        queues.setdefault(domain_of(name), []).append(name)
    lanes = [queues[domain] for domain in sorted(queues, key=natural_key)]
    order = []
    for index in range(max((len(lane) for lane in lanes), default=0)):
        order.extend(lane[index] for lane in lanes if index < len(lane))
    return order


def idle_first(
    order: t.Sequence[str],
    free: t.Container[str],
    group_of: t.Callable[[int, str], t.Hashable],
    at_work: t.Callable[[str], t.Optional[bool]],
) -> t.List[str]:
    """Return the order with the FREE nodes of each group sorted: idle nodes first, nodes in use last.

    Draining an idle node costs nothing, and jobs may end before their node starts. Groups keep their positions, so that
    neighbours still are in different failure domains.
    """
    groups: t.Dict[t.Any, t.List[int]] = {}
    for place, name in enumerate(order):
        if name in free:
            groups.setdefault(group_of(place, name), []).append(place)
    order = list(order)
    for places in groups.values():
        names = sorted((order[place] for place in places), key=lambda name: {False: 0, None: 1, True: 2}[at_work(name)])
        for place, name in zip(places, names):
            order[place] = name
    return order


def digest_plan(
    target: str, order: t.Sequence[str], nodes: t.Mapping[str, t.Mapping[str, t.Any]], policy: t.Mapping[str, t.Any]
) -> str:
    """Return the digest that an approval is bound to: nodes, order, versions, MIG layouts, failure domains, canaries
    and limits.

    ORDER does not take into account which nodes are in use. This changes every minute, so that a plan made again would
    never be the approved one.
    """
    rules = {key: value for key, value in policy.items() if key != "approved"}
    going = {
        name: [nodes[name]["from"], nodes[name]["to"], nodes[name]["domains"], bool(nodes[name].get("canary"))]
        for name in order
    }
    kernels = {name: nodes[name]["to_kernel"] for name in order if nodes[name].get("to_kernel")}
    layouts = {
        name: [nodes[name]["layout"], nodes[name].get("install", True)] for name in order if nodes[name].get("layout")
    }
    document = {
        "target": target,
        "order": order,
        "nodes": going,
        "policy": rules,
        "kernels": kernels,
        "layouts": layouts,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode("utf-8")).hexdigest()
