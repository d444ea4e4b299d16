# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The failure domains of nodes, such as their racks, and the order in which nodes start, by domains. Pure.

A node is in one or more domains of each key, and counts in each of them. They are recorded as text by key, with commas
between several. Each name has one form, so that the group rack_r1 and the variable {rack: R1} are one rack.
"""

from __future__ import annotations

import json
import re
import typing as t

VARIABLE = "gpufleet_domains"


class DomainError(Exception):
    """A value does not name a failure domain; the message names the node, what was found, and what is expected."""


def parse_names(text) -> list[str]:
    """Return the domains in a recorded text, each once."""
    return list(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))


def list_places(domains) -> list[tuple]:
    """Return (key, domain) of every failure domain that a node with these DOMAINS is in."""
    return [(key, name) for key in sorted(domains) for name in parse_names(domains[key])]


def of_hosts(groups, prefix, given) -> dict[str, dict]:
    """Return the failure domains of each host by key: those given, and for the prefix's key the groups with the
    prefix.
    """
    domains = {name: _of_host(name, found) for name, found in (given or {}).items()}
    key = prefix.rstrip("_-")
    found = {}
    for group in sorted(name for name in groups if key and name.startswith(prefix)):
        for host in groups[group]:
            found.setdefault(host, []).append(canonical_name(key, group))
    for host, racks in found.items():
        domains.setdefault(host, {}).setdefault(key, ", ".join(dict.fromkeys(racks)))
    return domains


def canonical_name(key, name) -> str:
    """Return the name of a domain in the form that groups of Ansible allow, in lower case and without its KEY before
    it.
    """
    plain = re.sub(r"\W+", "_", name.casefold())
    return re.sub(r"^%s_+(?=.)" % re.escape(re.sub(r"\W+", "_", key.casefold())), "", plain)


def _of_host(host, given) -> dict[str, str]:
    if given is None or given == "":
        return {}
    if not isinstance(given, dict):
        raise DomainError(
            "%s of %s is %s; expected a dictionary such as {rack: r1}. Correct it for that node. Nothing was "
            "changed." % (VARIABLE, host, _quote_value(given))
        )
    return {_check_key(host, key): _check_text(host, key, value) for key, value in given.items()}


def _check_key(host, key) -> str:
    if not isinstance(key, str) or not key.strip():
        raise DomainError(
            "%s of %s has the key %s; expected the kind of a failure domain, such as rack. Correct it for that node. "
            "Nothing was changed." % (VARIABLE, host, _quote_value(key))
        )
    return key.strip()


def _check_text(host, key, value) -> str:
    found = [
        _read_name(key, part)
        for part in (
            value if isinstance(value, (list, tuple)) else parse_names(value) if isinstance(value, str) else [value]
        )
    ]
    if not found or not all(found):
        raise DomainError(
            "%s of %s: %s is %s; expected the name of its %s, or a list of names if it is in several. Name it, or "
            "remove %s. Nothing was changed." % (VARIABLE, host, key, _quote_value(value), key, key)
        )
    return ", ".join(dict.fromkeys(found))


def _read_name(key, value) -> str:
    """Return the name in a string or an integer; empty for any other value."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return ", ".join(canonical_name(key, name) for name in parse_names(str(value)))


def _quote_value(value) -> str:
    """Return a value as YAML and JSON write it, with strings in quotes."""
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(_quote_value(item) for item in value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return repr(str(value)) if isinstance(value, str) else str(value)


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
