# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell if two names of the inventory are one machine. Pure.

A GPU is in one machine: nodes that share one are the same, and nodes that are both known to have different GPUs are
not, whatever else is equal, so that copied machine ids are recognized. If the GPUs of one are unknown, the id of its
system decides, unless the serial numbers of the boards differ; if that is unknown as well, the serial number of the
board. An unknown value never matches.
"""

from __future__ import annotations

import typing as t


class Twins(t.NamedTuple):
    one: str
    other: str
    shared: str


def same(one, other) -> str:
    """Return what makes two identities (machine_id, board_serial, gpus) one machine, in words; empty if they are two
    machines, or if it is unknown.
    """
    mine, theirs = (set(identity.get("gpus") or ()) for identity in (one, other))
    if mine & theirs:
        return "GPU %s" % min(mine & theirs)
    if mine and theirs:
        return ""
    ids, serials = ([identity.get(key) for identity in (one, other)] for key in ("machine_id", "board_serial"))
    if all(serials) and serials[0] != serials[1]:
        return ""
    if all(ids):
        return "machine id %s" % ids[0] if ids[0] == ids[1] else ""
    return "board serial number %s" % serials[0] if all(serials) else ""


def find(identities) -> Twins | None:
    """The first two names of IDENTITIES that are one machine; None where there are none."""
    for key in ("gpus", "machine_id", "board_serial"):
        alike: t.Dict[str, t.List[str]] = {}
        for name, identity in identities.items():
            for value in (
                set(identity.get("gpus") or ()) if key == "gpus" else [identity[key]] if identity.get(key) else []
            ):
                alike.setdefault(value, []).append(name)
        for names in alike.values():
            found = _among(names[:2] if key == "gpus" else names, identities, key == "gpus")
            if found:
                return found
    return None


def _among(names, identities, all_of_them) -> Twins | None:
    """The first two of NAMES, which are alike in something, that are one machine.

    Of many with a copied id each is held only against one with the same board, one without a known board, and one more
    of both kinds with known GPUs, or without: who else is alike is alike with those. ALL_OF_THEM: boards make no
    difference, as with a GPU that two have.
    """
    kept: t.Dict[t.Any, t.Dict[t.Any, str]] = {}  # by board, then by what else is known of a node, the first one
    for name in names:
        identity = identities[name]
        serial, known = identity.get("board_serial"), (bool(identity.get("gpus")), bool(identity.get("machine_id")))
        boards = kept.keys() if all_of_them or not serial else [board for board in (serial, None) if board in kept]
        for other in [other for board in boards for other in kept[board].values()]:
            shared = same(identity, identities[other])
            if shared:
                return Twins(other, name, shared)
        kept.setdefault(serial or None, {}).setdefault(known, name)
    return None


def complaint(identities) -> str:
    """Describe two names that are one machine; empty if there are none."""
    return words(find(identities))


def words(found) -> str:
    if not found:
        return ""
    copied = (
        " If they are two machines with a copied machine id, give one its own (systemd-machine-id-setup)."
        if found.shared.startswith("machine")
        else ""
    )
    return (
        "%s and %s are one machine under two names of the inventory: both have %s. Correct the address of the wrong "
        "one, or take it out.%s" % (found.one, found.other, found.shared, copied)
    )
