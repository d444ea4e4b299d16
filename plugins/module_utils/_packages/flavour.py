# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which kernel module drives the GPUs of a node: by their PCI device ids, never by their names."""

from __future__ import annotations

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
