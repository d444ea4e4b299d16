# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of MIG devices, such as 3g.40gb, 1c.3g.40gb, 1g.10gb+me and 1g.24gb-me, and the profile of a GPU that each
means.

The grammar is that of go-nvlib (parseMigProfile), which nvidia-mig-parted uses. The size in a name is rounded by the
driver that makes it, so that drivers know some boards by two sizes. A name therefore means the profile of that exact
name, and where there is none the profile that another driver calls so on the same board.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional

ATTRIBUTE = r"[A-Za-z](?:[A-Za-z0-9.]*[A-Za-z0-9])?"
NAME = re.compile(r"(?:([0-9]+)c\.)?([0-9]+)g\.([0-9]+)gb([+-]%s(?:,%s)*)?" % (ATTRIBUTE, ATTRIBUTE))
# The sizes of the whole board and its parts, as different drivers round them. GB200: nvidia-mig-parted 227, 1590 and
# gpu-operator 1303.
ROUNDINGS = (((186, 93, 47, 23), (189, 95, 47, 24)),)


class Name(NamedTuple):
    """The parts of a name: compute slices, None for all of the instance; GPU slices; size in GB, 0 on an integrated
    GPU; attributes as they are written.
    """

    compute: Optional[int]
    slices: int
    size_gb: int
    attributes: str


class NameProblem(ValueError):
    """A name that cannot be read, or that no profile of the GPU has; the text says so, and which there are."""


def parse(text: Any) -> Name:
    """The parts of the name TEXT."""
    found = NAME.fullmatch(text) if isinstance(text, str) else None
    attributes = (found.group(4) or "")[1:].split(",") if found else []
    if not found or len(set(attributes)) != len(attributes):
        raise NameProblem(
            "%r is not the name of a MIG device; expected one like 1g.10gb, 1c.3g.40gb, 1g.10gb+me or 1g.24gb-me"
            % (text,)
        )
    compute, slices, size = (int(part) if part else None for part in found.groups()[:3])
    if compute is not None and not 0 < compute <= slices:
        raise NameProblem("%r has %d compute slices; expected 1 to %d, as its GPU instance" % (text, compute, slices))
    return Name(compute, slices, size, found.group(4) or "")


def find_profile(text: Any) -> str:
    """Return the profile at the end of a device's name, of a type of Slurm or of a resource of NVIDIA's device plugin,
    which have a dot in the place of the plus. Empty if there is none.
    """
    found = re.split(r"[ _]|\bmig-", str(text))[-1]
    try:
        parse(re.sub(r"(?<=gb)\.", "+", found, count=1))
    except NameProblem:
        return ""
    return found


def write(name: Name) -> str:
    """The text of NAME, as the driver writes it: without compute slices where the device has all of them."""
    compute = "" if name.compute in (None, name.slices) else "%dc." % (name.compute,)
    return "%s%dg.%dgb%s" % (compute, name.slices, name.size_gb, name.attributes)


def resolve(name: Name, profiles: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The profile of PROFILES (as read.py has them) that NAME means."""
    known = {profile["name"]: profile for profile in profiles}
    whole_gb = max([parse(text).size_gb for text in known if NAME.fullmatch(text)] or [0])
    sizes = [name.size_gb]
    for board in ROUNDINGS:
        for ours in board:
            if ours[0] == whole_gb:
                sizes += [ours[theirs.index(name.size_gb)] for theirs in board if name.size_gb in theirs]
    for size in sizes:
        found = known.get(write(name._replace(compute=None, size_gb=size)))
        if found:
            return found
    raise NameProblem(
        "the GPU has no profile %s; it has %s" % (write(name._replace(compute=None)), ", ".join(known) or "none")
    )


def device_name(profile: Dict[str, Any], compute: int) -> str:
    """The name of a device with COMPUTE slices in an instance of PROFILE."""
    return profile["name"] if compute == profile["slices"] else "%dc.%s" % (compute, profile["name"])
