# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide if a MIG layout fits on a GPU, where its instances go, and which existing ones can stay.

Pure functions.

A profile is a dictionary as read.py makes it: "id", "name", "slices", "count" (the most instances of it), "memory_mib",
"engines" ({name: number}) and "placements" ([start, size] in memory slices; None where MIG is off and the driver tells
none). NVIDIA's MIG user guide says what an instance takes: its memory slices from a start that the profile
allows, and its share of the engines.
"""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

Profile = Dict[str, Any]


class Place(NamedTuple):
    """An instance at a place: the profile's id, and the memory slices that it takes."""

    profile: int
    start: int
    size: int


class Fit(NamedTuple):
    """A layout that fits: positions of the existing instances that stay, and the places of the new ones, in the order
    of their creation.
    """

    keep: Tuple[int, ...]
    create: Tuple[Place, ...]


def placements(profile: Profile, profiles: Sequence[Profile]) -> List[Tuple[int, int]]:
    """Return where instances of PROFILE may start: as the driver reports it, or, where it does not while MIG is off, as
    computed from the sizes of all PROFILES.

    A board has as many memory slices as the power of two from its compute slices on (7: 8, 4: 4, 2: 2). An instance
    takes the share of them that its memory has of the whole, or its compute slices where the GPU has no memory of its
    own, as a power of two; it starts at a multiple of that, and has to leave room for its compute slices.
    """
    if profile["placements"] is not None:
        return [tuple(place) for place in profile["placements"]]
    whole = max(profiles, key=lambda item: (item["slices"], item["memory_mib"]))
    units = 1 << (whole["slices"] - 1).bit_length()
    share = 1 << (profile["slices"] - 1).bit_length()
    if whole["memory_mib"]:
        share = profile["memory_mib"] * units / float(whole["memory_mib"])
    size = min((1, 2, 4, 8), key=lambda power: abs(power - max(1.0, share)))
    return [(start, size) for start in range(0, units, size) if start + profile["slices"] <= whole["slices"]]


def capacity(profiles: Sequence[Profile]) -> Dict[str, int]:
    """The engines of the whole GPU, by name: at least those of as many instances of a profile as there can be."""
    most: Dict[str, int] = {}
    for profile in profiles:
        for name, number in profile["engines"].items():
            most[name] = max(most.get(name, 0), number * profile["count"])
    return most


def overlap(one: Place, other: Place) -> bool:
    """Return whether two instances would take the same memory slice."""
    return one.start < other.start + other.size and other.start < one.start + one.size


def fits_beside(places: Sequence[Place], profiles: Sequence[Profile]) -> bool:
    """Return whether all PLACES can exist at once."""
    by_id = dict((profile["id"], profile) for profile in profiles)
    if any(overlap(one, other) for one, other in itertools.combinations(places, 2)):
        return False
    if any(
        sum(place.profile == ident for place in places) > by_id[ident]["count"]
        for ident in set(place.profile for place in places)
    ):
        return False
    whole = max(profile["slices"] for profile in profiles)
    if sum(by_id[place.profile]["slices"] for place in places) > whole:
        return False
    return all(
        sum(by_id[place.profile]["engines"].get(engine, 0) for place in places) <= limit
        for engine, limit in capacity(profiles).items()
    )


def find(
    wanted: Dict[int, int], existing: Sequence[Place], profiles: Sequence[Profile], fixed: Sequence[int] = ()
) -> Optional[Fit]:
    """Find placements for WANTED ({profile id: number}) that keep as many EXISTING instances as possible; None if it
    does not fit.

    The positions FIXED are kept if their profile is wanted at all, since they are in use. If several solutions keep
    equally many, the result is the same every time.
    """
    usable = _keepable(wanted, existing)
    for number in range(len(usable), -1, -1):
        for keep in itertools.combinations(usable, number):
            left = dict(wanted)
            for position in keep:
                left[existing[position].profile] -= 1
            if any(count < 0 for count in left.values()):
                continue
            if any(position in usable and position not in keep for position in fixed):
                continue
            created = _place([existing[position] for position in keep], left, profiles)
            if created is not None:
                return Fit(keep, tuple(created))
    if fixed:
        return find(wanted, existing, profiles)
    return None


def _keepable(wanted: Dict[int, int], existing: Sequence[Place]) -> List[int]:
    return [position for position, place in enumerate(existing) if wanted.get(place.profile)]


def _place(taken: List[Place], left: Dict[int, int], profiles: Sequence[Profile]) -> Optional[List[Place]]:
    """Places for all that is LEFT beside what is TAKEN, the largest first; None if there are none."""
    by_id = dict((profile["id"], profile) for profile in profiles)
    order = sorted(
        (ident for ident, count in left.items() if count),
        key=lambda ident: (-_size(by_id[ident], profiles), -by_id[ident]["slices"], ident),
    )
    todo = [ident for ident in order for dummy in range(left[ident])]

    def search(places: List[Place], number: int, below: Optional[int]) -> Optional[List[Place]]:
        if number == len(todo):
            return []
        for place in _candidates(by_id[todo[number]], profiles, below):
            if fits_beside(places + [place], profiles):
                again = number + 1 < len(todo) and todo[number + 1] == todo[number]
                rest = search(places + [place], number + 1, place.start if again else None)
                if rest is not None:
                    return [place] + rest
        return None

    return search(list(taken), 0, None)


def _size(profile: Profile, profiles: Sequence[Profile]) -> int:
    return max([size for dummy, size in placements(profile, profiles)] or [0])


def _candidates(profile: Profile, profiles: Sequence[Profile], below: Optional[int]) -> Iterator[Place]:
    """Starts from the highest to the lowest; of equal instances each starts below the one before it, so that no order
    is tried twice.
    """
    for start, size in sorted(placements(profile, profiles), reverse=True):
        if below is None or start < below:
            yield Place(profile["id"], start, size)


def suggestions(wanted: Dict[int, int], profiles: Sequence[Profile], limit: int = 2) -> List[Dict[int, int]]:
    """Layouts that fit and are close to WANTED: every instance of one profile made smaller, as few profiles and steps
    as possible; or fewer of them.
    """
    found: List[Dict[int, int]] = []
    seen = set()
    queue = [dict((ident, count) for ident, count in wanted.items() if count)]
    while queue and len(found) < limit:
        layout = queue.pop(0)
        for ident in sorted(layout, key=lambda ident: -_slices(ident, profiles)):
            for other in (_smaller(layout, ident, profiles), _fewer(layout, ident)):
                key = tuple(sorted(other.items())) if other else None
                if key is None or key in seen:
                    continue
                seen.add(key)
                if find(other, (), profiles) is not None:
                    found.append(other)
                elif len(seen) < 200:
                    queue.append(other)
                if len(found) == limit:
                    return found
    return found


def _slices(ident: int, profiles: Sequence[Profile]) -> int:
    return next(profile["slices"] for profile in profiles if profile["id"] == ident)


def _smaller(layout: Dict[int, int], ident: int, profiles: Sequence[Profile]) -> Optional[Dict[int, int]]:
    """LAYOUT with the next smaller plain profile in place of IDENT."""
    plain = [profile for profile in profiles if "+" not in profile["name"] and "-" not in profile["name"]]
    below = [profile for profile in plain if profile["slices"] < _slices(ident, profiles)]
    if not below:
        return None
    chosen = max(below, key=lambda profile: (profile["slices"], profile["count"]))["id"]
    changed = dict(layout)
    number = changed.pop(ident)
    changed[chosen] = changed.get(chosen, 0) + number
    return changed


def _fewer(layout: Dict[int, int], ident: int) -> Optional[Dict[int, int]]:
    changed = dict(layout)
    changed[ident] -= 1
    if not changed[ident]:
        del changed[ident]
    return changed or None
