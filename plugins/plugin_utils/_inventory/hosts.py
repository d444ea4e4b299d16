# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of an inventory as plain data: {name: {"groups": [...], "variables": {...}}}. Pure."""

from __future__ import annotations

import ipaddress
import re
import typing as t

Hosts = t.Dict[str, t.Dict[str, t.Any]]
# A group variable that an inventory which could not be read leaves behind, so that no playbook goes on with what
# other sources gave.
FAILED = "gpufleet_inventory_failed"


# Names that mean all hosts or the controller to Ansible, and the beginning of the groups that the playbooks make.
RESERVED = ("all", "ungrouped", "localhost")
OWN_GROUPS = "gpufleet_"
NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?")
# What Ansible takes for a file or a directory of variables, of others as well, where a host or group has that name.
FILE = re.compile(r"\.+|.*\.(?:ya?ml|json)", re.IGNORECASE | re.DOTALL)
# What a resolver takes for an address, such as 127.1 and 0x7f000001.
NUMERIC = re.compile(r"[0-9.]+|0[xX][0-9a-fA-FxX.]*")


class InventoryProblem(Exception):
    """The source gave no inventory: what was asked, what was found, what was expected, and the next step."""


def make_group(*words: str) -> str:
    """The name of a group: lower-case letters, digits and underscores."""
    return re.sub(r"_+", "_", re.sub(r"[^a-z0-9_]", "_", "_".join(words).lower())).strip("_")


def make_safe_group(name: str) -> str:
    """Return the name of a group without what is a template, a pattern of hosts, or a file of variables."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return safe.replace(".", "_") if FILE.fullmatch(safe) else safe


def keyed_group(name: str, taken: t.Container[str]) -> str:
    """Return make_safe_group() of a name that a node may choose: no group of the playbooks, and none of TAKEN."""
    safe = make_safe_group(name)
    lower = safe.lower()
    return "_" + safe if lower in RESERVED or lower.startswith(OWN_GROUPS) or safe in taken else safe


def is_host_name(name: t.Any) -> bool:
    """Return whether a node that others named can be a host: no pattern, option, path, template or the controller, and
    no file of variables.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name) or ".." in name or FILE.fullmatch(name):
        return False
    if NUMERIC.fullmatch(name):
        return bool(parse_address(name))
    lower = name.lower()
    return lower.split(".")[0] not in RESERVED and not lower.startswith(OWN_GROUPS)


def parse_address(text: t.Any) -> str:
    """Return the IP address of another machine that TEXT is; empty if it is none."""
    try:
        found = ipaddress.ip_address(text if isinstance(text, str) and "%" not in text else "")
    except ValueError:
        return ""
    found = getattr(found, "ipv4_mapped", None) or found
    here = found.is_loopback or found.is_unspecified or found.is_link_local or found.is_multicast
    return "" if here else str(text)


def parse_place(text: t.Any) -> str:
    """Return the address or host name of another machine that TEXT is; empty if it is neither."""
    return parse_address(text) or (text if is_host_name(text) else "")


def select_usable(found: Hosts, names: Names, groups: t.Container[str] = ()) -> Hosts:
    """Return the hosts without those whose names no node has, or that are called as a group; NAMES remembers them."""
    bad = sorted(name for name in found if not is_host_name(name) or name in groups)
    names.left_out.extend(bad)
    return {name: one for name, one in found.items() if name not in bad}


def make_host(variables: t.Dict[str, t.Any], groups: t.Iterable[str]) -> t.Dict[str, t.Any]:
    """One host, without the same group twice."""
    return {"groups": sorted(set(groups)), "variables": variables}


class Names:
    """The groups that were made, and of what: two partitions that would share one group are found."""

    def __init__(self) -> None:
        self.made: t.Dict[str, t.Set[t.Tuple[str, ...]]] = {}
        self.left_out: t.List[str] = []  # names that no node has

    def group(self, *words: str) -> str:
        """As make_group(), remembering the words."""
        name = make_group(*words)
        self.made.setdefault(name, set()).add(words)
        return name

    def clashes(self) -> t.List[str]:
        """Each group that stands for different things, in words."""
        return [
            "%s (%s)" % (name, ", ".join(sorted(repr(words[-1]) for words in found)))
            for name, found in sorted(self.made.items())
            if len(found) > 1
        ]


def require_enough(found: Hosts, least: int, asked: str) -> Hosts:
    """FOUND, if it has as many hosts as there have to be."""
    if len(found) < max(1, least):
        raise InventoryProblem(
            "%s named %d nodes; expected at least %d (min_nodes). An inventory that lacks nodes would leave them out "
            "of every run without a word. See what "
            "it answers, and correct the selection or min_nodes." % (asked, len(found), max(1, least))
        )
    return found


def check_cache(kept: t.Any) -> Hosts:
    """Return the cached hosts, if the cache still has the form of hosts."""
    if not isinstance(kept, dict) or not kept:
        raise InventoryProblem("the cache holds no hosts")
    for name, one in kept.items():
        if (
            not is_host_name(name)
            or not isinstance(one, dict)
            or not isinstance(one.get("groups"), list)
            or not isinstance(one.get("variables"), dict)
        ):
            raise InventoryProblem("the cache holds something else than hosts")
    return kept
