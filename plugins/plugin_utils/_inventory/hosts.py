# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of an inventory as plain data: {name: {"groups": [...], "variables": {...}}}. Pure."""

from __future__ import annotations

import re
import typing as t

Hosts = t.Dict[str, t.Dict[str, t.Any]]
# A group variable that an inventory which could not be read leaves behind, so that no playbook goes on with what
# other sources gave.
FAILED = "gpufleet_inventory_failed"


class InventoryProblem(Exception):
    """The source gave no inventory: what was asked, what was found, what was expected, and the next step."""


def group(*words: str) -> str:
    """The name of a group: lower-case letters, digits and underscores."""
    return re.sub(r"_+", "_", re.sub(r"[^a-z0-9_]", "_", "_".join(words).lower())).strip("_")


def host(variables: t.Dict[str, t.Any], groups: t.Iterable[str]) -> t.Dict[str, t.Any]:
    """One host, without the same group twice."""
    return {"groups": sorted(set(groups)), "variables": variables}


class Names:
    """The groups that were made, and of what: two partitions that would share one group are found."""

    def __init__(self) -> None:
        self.made: t.Dict[str, t.Set[t.Tuple[str, ...]]] = {}

    def group(self, *words: str) -> str:
        """As group(), remembering the words."""
        name = group(*words)
        self.made.setdefault(name, set()).add(words)
        return name

    def clashes(self) -> t.List[str]:
        """Each group that stands for different things, in words."""
        return [
            "%s (%s)" % (name, ", ".join(sorted(repr(words[-1]) for words in found)))
            for name, found in sorted(self.made.items())
            if len(found) > 1
        ]


def enough(found: Hosts, least: int, asked: str) -> Hosts:
    """FOUND, if it has as many hosts as there have to be."""
    if len(found) < max(1, least):
        raise InventoryProblem(
            "%s named %d nodes; expected at least %d (min_nodes). An inventory that lacks nodes would leave them out "
            "of every run without a word. See what "
            "it answers, and correct the selection or min_nodes." % (asked, len(found), max(1, least))
        )
    return found


def checked(kept: t.Any) -> Hosts:
    """Return the cached hosts, if the cache still has the form of hosts."""
    if not isinstance(kept, dict) or not kept:
        raise InventoryProblem("the cache holds no hosts")
    for one in kept.values():
        if (
            not isinstance(one, dict)
            or not isinstance(one.get("groups"), list)
            or not isinstance(one.get("variables"), dict)
        ):
            raise InventoryProblem("the cache holds something else than hosts")
    return kept
