# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which driver fits a node: the kernel module that drives its GPUs, by their PCI device ids and never by their
names, and whether the driver is new enough for its workloads, the same for an upgrade and for a way back.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator

from .._node.versions import is_driver_version, upstream
from .package_state import make_refusal
from .systems import branch_of

DEVICES = (
    (0x0FC0, 0x103F, "kepler"),
    (0x1180, 0x12BF, "kepler"),
    (0x1340, 0x14FF, "maxwell"),
    (0x15F0, 0x15FF, "pascal"),
    (0x1600, 0x17FF, "maxwell"),
    (0x1B00, 0x1D7F, "pascal"),
    (0x1D80, 0x1DFF, "volta"),
    (0x1E00, 0x1FFF, "turing"),
    (0x2080, 0x20FF, "ampere"),
    (0x2180, 0x21FF, "turing"),
    (0x2200, 0x228F, "ampere"),
    (0x2300, 0x233F, "hopper"),
    (0x2340, 0x237F, "grace-hopper"),
    (0x2400, 0x25FF, "ampere"),
    (0x2680, 0x28FF, "ada"),
    (0x2900, 0x29FF, "blackwell"),
    (0x2B80, 0x2DFF, "blackwell"),
    (0x2E00, 0x2E7F, "blackwell"),
    (0x2F00, 0x2F7F, "blackwell"),
    (0x3180, 0x31FF, "blackwell"),
)

# ``flavour: (first branch, last branch)``; None as last: no end is known. A flavour that is not there does not drive
# it.
ARCHITECTURES = {
    "kepler": {"proprietary": (390, 470)},
    "maxwell": {"proprietary": (390, 580)},
    "pascal": {"proprietary": (390, 580)},
    "volta": {"proprietary": (390, 580)},
    "turing": {"proprietary": (410, 615), "open": (515, None)},
    "ampere": {"proprietary": (450, 615), "open": (515, None)},
    "ada": {"proprietary": (520, 615), "open": (520, None)},
    "hopper": {"proprietary": (520, 615), "open": (520, None)},
    "grace-hopper": {"open": (535, None)},
    "blackwell": {"open": (570, None)},
}

# From this branch on the open module is the one that NVIDIA recommends where both work.
OPEN_SINCE = 560


FLAVOURS = ("open", "proprietary")


def architecture_of(device) -> str | None:
    """The architecture of a PCI device id such as 0x2330; None when it is not known."""
    try:
        number = int(device, 16)
    except (TypeError, ValueError):
        return None
    return next((name for first, last, name in DEVICES if first <= number <= last), None)


def decide_flavour(pci: list[dict] | None, wanted: str, flavour: str = "auto") -> dict:
    """The flavour for these GPUs and this driver: ``{"flavour", "reason", "gpus", "refusals"}``.

    ``pci`` are devices as ``_node.pci`` reads them, or None when the bus cannot be read. ``flavour`` is auto, open or
    proprietary; what was asked for is refused when a GPU cannot be driven by it, and auto when no flavour drives all.
    """
    gpus = [dict(item, architecture=architecture_of(item["device"])) for item in pci or []]
    result = {"flavour": None if flavour == "auto" else flavour, "reason": "", "gpus": gpus, "refusals": []}
    branch = branch_of(wanted)
    if not branch.isdigit():
        if flavour == "auto":
            result["refusals"].append(refuse_unreadable(wanted, gpus))
        return result
    if flavour == "auto":
        result.update(choose_flavour(gpus, pci is None, int(branch)))
    else:
        result["refusals"] += refuse_architectures(gpus, int(branch), flavour)
        result["reason"] = "asked for"
    return result


def choose_flavour(gpus, unread, branch) -> dict:
    """The part of the answer that auto decides."""
    unknown = [gpu for gpu in gpus if gpu["architecture"] is None]
    if unread or not gpus or unknown:
        return {"refusals": [refuse_undecidable(unread, unknown)]}
    reasons = dict((flavour, refuse_architectures(gpus, branch, flavour)) for flavour in FLAVOURS)
    possible = [flavour for flavour in FLAVOURS if not reasons[flavour]]
    names = ", ".join(list_architectures(gpus))
    if not possible:
        return {"refusals": [refuse_both(gpus, branch, reasons)]}
    if len(possible) == 1:
        other = "proprietary" if possible[0] == "open" else "open"
        return {"flavour": possible[0], "reason": "%s: %s" % (names, reasons[other][0]["message"])}
    flavour = "open" if branch >= OPEN_SINCE else "proprietary"
    return {
        "flavour": flavour,
        "reason": "%s: both flavours drive it; the open one is recommended from branch %d on" % (names, OPEN_SINCE),
    }


def list_architectures(gpus) -> list[str]:
    return sorted(set(gpu["architecture"] for gpu in gpus if gpu["architecture"]))


def refuse_architectures(gpus, branch, flavour) -> list[dict]:
    """Refusals of a flavour for these GPUs; of an architecture that is not known nothing is said."""
    refusals = []
    for architecture in list_architectures(gpus):
        why = find_problem(architecture, branch, flavour)
        if why:
            found = ["%s (%s)" % (gpu["address"], gpu["device"]) for gpu in gpus if gpu["architecture"] == architecture]
            refusals.append(
                make_refusal(
                    "impossible_flavour",
                    [],
                    "%s: %s" % (architecture, ", ".join(found)),
                    why[1],
                    "The %s kernel module of branch %d does not drive %s GPUs (%s): %s."
                    % (flavour, branch, architecture, ", ".join(found), why[0]),
                    why[2],
                )
            )
    return refusals


def find_problem(architecture, branch, flavour) -> tuple[str, str, str] | None:
    """``(reason, expected, next step)`` why a flavour of a branch does not drive an architecture; None when it does."""
    known = ARCHITECTURES[architecture]
    if flavour not in known:
        other = next(iter(known))
        return "it needs the %s one" % other, "flavour %s" % other, "use flavour %s or auto" % other
    first, last = known[flavour]
    if branch < first:
        return (
            "its first branch is %d" % first,
            "branch %d or later" % first,
            "ask for a driver of branch %d or later" % first,
        )
    if last is not None and branch > last:
        others = [name for name in known if name != flavour]
        step = "use flavour %s" % others[0] if others else "stay on a driver of branch %d or earlier" % last
        return "branch %d is the last one that does" % last, "branch %d or earlier" % last, step
    return None


def refuse_undecidable(unread, unknown) -> dict:
    if unread:
        found = "the PCI bus cannot be read"
    elif unknown:
        found = "PCI device ids that are not known here: %s" % ", ".join(
            sorted(set(str(gpu["device"]) for gpu in unknown))
        )
    else:
        found = "no NVIDIA GPU on the PCI bus"
    return make_refusal(
        "unknown_gpu",
        [],
        found,
        "GPUs of a known architecture",
        "The flavour cannot be chosen by the GPUs: %s." % found,
        "set the flavour to open or proprietary",
    )


def refuse_unreadable(wanted, gpus) -> dict:
    return make_refusal(
        "unknown_version",
        [],
        str(wanted),
        "a driver version such as 580.95.05",
        "%s is no driver version." % wanted,
        "ask for a driver version such as 580.95.05",
    )


def refuse_both(gpus, branch, reasons) -> dict:
    why = " ".join(item["message"] for flavour in FLAVOURS for item in reasons[flavour])
    listing = ", ".join(list_architectures(gpus))
    return make_refusal(
        "impossible_flavour",
        [],
        listing,
        "one flavour that drives every GPU",
        "No kernel module of branch %d drives all GPUs of this node: %s" % (branch, why.rstrip(".")) + ".",
        "ask for a driver branch that drives all of %s, or part them between nodes" % listing,
    )


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
