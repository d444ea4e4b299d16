# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of MIG devices, such as 3g.40gb, 1c.3g.40gb and 1g.10gb+me, and the profile of a GPU that each means.

The size in a name is rounded by the driver that makes it, so that one profile is 3g.93gb with one driver and 3g.95gb
with another. A name therefore means the profile of that exact name, and where there is none the only profile with the
same slices and attributes whose size differs by the driver's rounding alone.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional

NAME = re.compile(r"^(?:([1-9][0-9]*)c\.)?([0-9]+)g\.([0-9]+)gb([+-][a-z]+(?:[.,][a-z]+)*)?$")
# Two spellings of one profile that drivers are known to use: 93 and 95, 186 and 189 GB. Neighboring sizes of other
# boards differ by more.
ROUNDING = 0.023


class Name(NamedTuple):
    """The parts of a name: compute slices, None for all of the instance; GPU slices; size in GB; attributes as they are
    written.
    """

    compute: Optional[int]
    slices: int
    size_gb: int
    attributes: str


class NameProblem(ValueError):
    """A name that cannot be read, or that no profile of the GPU has; the text says so, and which there are."""


def parse(text: Any) -> Name:
    """The parts of the name TEXT."""
    found = NAME.match(text) if isinstance(text, str) else None
    if not found:
        raise NameProblem(
            "%r is not the name of a MIG device; expected one like 1g.10gb, 1c.3g.40gb or 1g.10gb+me" % (text,)
        )
    compute, slices, size, attributes = found.groups()
    name = Name(int(compute) if compute else None, int(slices), int(size), attributes or "")
    if name.compute and name.compute > name.slices:
        raise NameProblem(
            "%r has more compute slices (%d) than its GPU instance (%d)" % (text, name.compute, name.slices)
        )
    return name


def write(name: Name) -> str:
    """The text of NAME, as the driver writes it: without compute slices where the device has all of them."""
    compute = "" if name.compute in (None, name.slices) else "%dc." % (name.compute,)
    return "%s%dg.%dgb%s" % (compute, name.slices, name.size_gb, name.attributes)


def resolve(name: Name, profiles: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The profile of PROFILES (as read.py has them) that NAME means."""
    whole = write(name._replace(compute=None))
    for profile in profiles:
        if profile["name"] == whole:
            return profile
    near = []
    for profile in profiles:
        try:
            other = parse(profile["name"])
        except NameProblem:
            continue
        same = (other.slices, other.attributes) == (name.slices, name.attributes)
        if same and abs(other.size_gb - name.size_gb) <= ROUNDING * other.size_gb:
            near.append(profile)
    if len(near) != 1:
        raise NameProblem(
            "the GPU has no profile %s; it has %s"
            % (whole, ", ".join(profile["name"] for profile in profiles) or "none")
        )
    return near[0]


def device_name(profile: Dict[str, Any], compute: int) -> str:
    """The name of a device with COMPUTE slices in an instance of PROFILE."""
    return profile["name"] if compute == profile["slices"] else "%dc.%s" % (compute, profile["name"])
