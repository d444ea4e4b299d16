# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether a driver is new enough for the workloads of a node: the same for an upgrade and for a way back."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator

from .._node.versions import is_driver_version, upstream
from .package_state import make_refusal

# (driver branch, CUDA version); a branch that is not here supports what the one before it does.
BRANCHES = (
    (450, "11.0"),
    (455, "11.1"),
    (460, "11.2"),
    (465, "11.3"),
    (470, "11.4"),
    (495, "11.5"),
    (510, "11.6"),
    (515, "11.7"),
    (520, "11.8"),
    (525, "12.0"),
    (530, "12.1"),
    (535, "12.2"),
    (545, "12.3"),
    (550, "12.4"),
    (555, "12.5"),
    (560, "12.6"),
    (565, "12.7"),
    (570, "12.8"),
    (575, "12.9"),
    (580, "13.0"),
    (590, "13.1"),
)


COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
CONDITION = re.compile(r"^(cuda|driver|brand|arch)(>=|<=|!=|=|<|>)([A-Za-z0-9.]+)$")


def parse_numbers(version: str) -> tuple[int, ...] | None:
    """Return (535, 54, 3) for 535.54.03: 12.0 is 12, and 535.54.03 is above 535. None for what is no version."""
    found = re.match(r"^[0-9]+(\.[0-9]+)*$", version)
    return tuple(int(part) for part in re.sub(r"(\.0+)+$", "", version).split(".")) if found else None


def find_cuda(version) -> tuple[str | None, bool]:
    """``(CUDA version, exact)`` that a driver supports: of a branch newer than all that are known at least the
    newest.
    """
    branch = int(version.split(".", 1)[0])
    known = [(number, cuda) for number, cuda in BRANCHES if number <= branch]
    if not known:
        return None, False
    return known[-1][1], branch < BRANCHES[-1][0] + 5


def at_least(have: str, exact: bool, wanted: str) -> bool | None:
    """Return whether a CUDA version is reached: True, False or None when it cannot be told."""
    if parse_numbers(have) >= parse_numbers(wanted):
        return True
    return False if exact else None


# --- NVIDIA_REQUIRE_* -----------------------------------------------------------------------------------------------


def meets_condition(condition: str, version: str, brands: list[str] | None = None) -> bool | None:
    """One condition such as ``driver>=535``: True, False or None when it cannot be told here."""
    found = CONDITION.match(condition)
    if not found:
        return None
    what, sign, value = found.groups()
    if what == "brand":
        if not brands or sign not in ("=", "!="):
            return None
        return (value.lower() in [brand.lower() for brand in brands]) == (sign == "=")
    wanted = parse_numbers(value)
    if what == "arch" or wanted is None:
        return None
    have, exact = (version, True) if what == "driver" else find_cuda(version)
    if have is None:
        return None
    if what == "cuda" and not exact and parse_numbers(have) < wanted:
        return None  # a newer branch than all that are known: what it supports may be more
    return COMPARE[sign](parse_numbers(have), wanted)


def combine_all(values) -> bool | None:
    values = list(values)
    return False if False in values else None if None in values else True


def combine_any(values) -> bool | None:
    values = list(values)
    return True if True in values else None if None in values else False


def meets_requirement(requirement: str, version: str, brands: list[str] | None = None) -> bool | None:
    """A requirement as containers have it: alternatives apart by blanks, the conditions of each by commas."""
    alternatives = requirement.split()
    if not alternatives:
        return True
    return combine_any(
        combine_all(meets_condition(condition, version, brands) for condition in alternative.split(",") if condition)
        for alternative in alternatives
    )


# --- the floors -----------------------------------------------------------------------------------------------------


def decide_floors(wanted: str, floors: list[dict]) -> list[dict]:
    """Refusals of a driver version for ``[{"workload", "driver", "cuda", "require", "brands"}]``; every floor is
    judged.
    """
    version = upstream(wanted)
    if not is_driver_version(version):
        return []
    refusals = []
    for floor in floors:
        for expected, verdict, found in judge_floor(version, floor):
            if verdict is not True:
                refusals.append(refuse_below(version, floor["workload"], expected, verdict, found))
    return refusals


def judge_floor(version, floor) -> Iterator:
    """``(what is expected, whether it is so, what there is)`` for each part of a floor."""
    cuda, exact = find_cuda(version)
    supports = "CUDA %s%s" % (cuda, "" if exact else " or newer") if cuda else "a CUDA version that is not known"
    if floor.get("driver"):
        least = parse_numbers(floor["driver"])
        yield (
            "driver %s or newer" % floor["driver"],
            None if least is None else parse_numbers(version) >= least,
            "driver %s" % version,
        )
    if floor.get("cuda"):
        least = parse_numbers(floor["cuda"])
        yield (
            "CUDA %s or newer" % floor["cuda"],
            None if least is None or cuda is None else at_least(cuda, exact, floor["cuda"]),
            supports,
        )
    for requirement in floor.get("require") or []:
        yield (
            requirement,
            meets_requirement(requirement, version, floor.get("brands")),
            "driver %s, %s" % (version, supports),
        )


def refuse_unread(version: str) -> dict:
    """The refusal of a node whose containers cannot be listed, while their floors count."""
    return make_refusal(
        "floor_unknown",
        [],
        "/proc cannot be listed",
        "the containers that run, with what they require",
        "Whether driver %s is new enough for the containers that run on the node cannot be told." % (version,),
        "look at /proc on the node as root, or leave running_floors out and state the floors in floors",
    )


def refuse_below(version, workload, expected, verdict, found) -> dict:
    if verdict is None:
        return make_refusal(
            "floor_unknown",
            [],
            found,
            expected,
            "Whether driver %s is new enough for %s cannot be told: it requires %s." % (version, workload, expected),
            "state the floor of %s as a driver version, or take the workload off the node" % workload,
        )
    return make_refusal(
        "below_floor",
        [],
        found,
        expected,
        "Driver %s is too old for %s: it requires %s, found: %s." % (version, workload, expected, found),
        "ask for a driver that satisfies it, or move %s to other nodes and take its floor away" % workload,
    )
