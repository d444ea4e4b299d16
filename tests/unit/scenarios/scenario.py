# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scenario is: a fault of a node, and exactly the checks that it turns red."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world

# A sentence, or the part after a semicolon, that tells somebody to do something.
NEXT_STEP = re.compile(
    r"(?:^|[.;,:(?!\"] |\bthen |\bor |\band )(?:announce|blacklist|build|check|compare|create|do not|drain|enable|find "
    r"out|install|keep|load|look|"
    r"measure|pass|power-cycle|power it "
    r"off|read|reboot|reload|remove|repeat|replace|reset|restart|roll|run|save|see|set|start|stop|take|update|upgrade|wait|"
    r"watch)\b",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class Red:
    """A check that does not pass: what its message names, and what it is about."""

    word: str
    entities: t.Tuple[str, ...] = ()


def red(word, *entities):
    """ENTITIES: gpu0 and gpu1 stand for UUIDs, pci1 for an address.

    By default GPU 1 for the check of a GPU, and the node for any other.
    """
    return Red(word, entities)


Making = t.Union[str, t.Callable[[world.World], t.Any]]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One fault. The verdict has these checks as fail and unknown, and no others."""

    name: str
    make: t.Tuple[Making, ...]  # commands of gpusim, and functions of the world
    fails: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    unknown: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    model: str = "h100-sxm"
    # With a baseline of the same node in health, in phase post; the first look at a node has none, and is adhoc.
    first_look: bool = False
    phase: str = "post"
    rules: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    expect: t.Optional[t.Mapping[str, t.Any]] = None
    expected: t.Optional[str] = world.DRIVER
    # How gpu_smoke runs on the sick GPU; None: it does not, and its result is the healthy node's.
    work: t.Optional[t.Mapping[str, t.Any]] = None
    # What to do with the healthy reading before it becomes the baseline, for faults of the baseline; None takes it
    # away.
    baseline: t.Optional[t.Callable[[t.Any], t.Any]] = dict


def scenario(name, make, fails=(), unknown=(), **more):
    make = make if isinstance(make, (tuple, list)) else (make,)
    return Scenario(name, tuple(make), dict(fails), dict(unknown), **more)


def expectation(ident, wanted):
    """(word, entities) of what a scenario says about a check."""
    found = wanted if isinstance(wanted, Red) else Red(wanted)
    of_gpu = ident.startswith("gpu.") or ident in (
        "smoke.compute",
        "smoke.matrix_product",
        "smoke.host_to_device",
        "smoke.device_to_host",
        "smoke.memory_bandwidth",
        "smoke.peers",
    )
    return found.word, found.entities or (("gpu1",) if of_gpu and ident not in NODE_WIDE else ("node",))


# Checks of GPUs that are made for the node as a whole.
NODE_WIDE = ("gpu.count", "gpu.on_bus")
