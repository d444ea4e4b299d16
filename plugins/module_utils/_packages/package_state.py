# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The data of a change of driver packages: the wish, the node's state, what a plan asks to be read, and its refusals.

``package_read`` reads it, ``package_plan`` decides by it. Nothing here reads a machine.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, Optional, Tuple

Versions = Dict[str, str]  # {package: version}
Index = Dict[str, List[Dict[str, Any]]]  # {package: [record]}, as Manager.index answers
Installed = Dict[str, Dict[str, Any]]  # {package: facts}, as Manager.installed answers


@dataclasses.dataclass(frozen=True)
class Wish:
    """The options of driver_packages that decide what is done. :meth:`of` takes them from the module's parameters."""

    state: str = "present"  # resolved, unlocked, downloaded, present, absent
    version: Optional[str] = None
    flavour: str = "proprietary"
    kernel_module: str = "dkms"
    kernel: Optional[str] = None
    source: Optional[str] = None
    components: Tuple[str, ...] = ()
    floors: Tuple[Dict[str, Any], ...] = ()
    running_floors: bool = False
    extra_packages: Tuple[str, ...] = ()
    hold: Optional[bool] = None
    pin: Optional[bool] = None
    pin_file: str = "/etc/apt/preferences.d/gpufleet-nvidia-driver.pref"
    exclude_unattended: Optional[bool] = None
    dkms_build: str = "postinst"
    allow_removal: Tuple[str, ...] = ()
    keep: bool = False
    repair: bool = False
    min_free_mib: int = 512
    min_free_boot_mib: int = 32
    min_free_var_mib: Optional[int] = None  # None: min_free_mib
    require: Tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Wish:
        given = dict((field.name, options[field.name]) for field in dataclasses.fields(cls))
        return cls(**dict((name, tuple(value) if isinstance(value, list) else value) for name, value in given.items()))


@dataclasses.dataclass(frozen=True)
class State:
    """A node as read before anything is decided. Without a table its system is not supported, and nothing was read."""

    manager: str  # apt, dnf
    table: Optional[Dict[str, Any]] = None  # the system's own, see driver_tables
    installed: Installed = dataclasses.field(default_factory=dict)
    index: Index = dataclasses.field(default_factory=dict)
    journal: Tuple[str, ...] = ()  # of an interrupted run of the package manager
    broken: Tuple[str, ...] = ()  # packages that such a run left half done
    kernels: Tuple[str, ...] = ()  # that can boot
    next_kernel: Optional[str] = None  # that boots next, read for prebuilt modules; None if that cannot be told
    compilers: Dict[str, Optional[str]] = dataclasses.field(default_factory=dict)  # by kernel
    headers: Dict[str, bool] = dataclasses.field(default_factory=dict)  # by kernel; read where they are required
    architecture: str = ""
    initrd_bytes: int = 0
    gpus: Optional[List[Dict[str, Any]]] = None  # None: the PCI bus cannot be read
    operator: Dict[str, Any] = dataclasses.field(default_factory=dict)  # as gpu_operator.read_operator answers
    # containers that run, read where their floors count; None when they cannot be listed
    workloads: Optional[Tuple[Dict[str, Any], ...]] = ()
    streams: Tuple[str, ...] = ()  # of the table's dnf module
    enabled_stream: Optional[str] = None
    lock_package: Optional[str] = None  # what the first hold installs
    hold_problem: Optional[Tuple[str, str]] = None  # (why a hold would hold nothing, next step)
    unattended_file: Optional[str] = None
    texts: Dict[str, Optional[str]] = dataclasses.field(default_factory=dict)  # by path: the pin file and such
    expected_driver: Optional[str] = None  # by the node's own check at boot

    @property
    def interrupted(self) -> bool:
        return bool(self.journal or self.broken)


@dataclasses.dataclass(frozen=True)
class Problem:
    """The words of a package manager that found no transaction."""

    why: str
    output: str
    packages: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """The words that ask for a plan's packages, and the transaction that they would be; None where nothing is due."""

    arguments: Tuple[str, ...]
    transaction: Optional[Dict[str, Any]] = None
    problem: Optional[Problem] = None
    dkms_names: Tuple[str, ...] = ()  # of the wanted driver on the node; read where nothing is due


@dataclasses.dataclass(frozen=True)
class Room:
    """The room that a transaction takes, and the room that there is."""

    downloads: Dict[str, int]  # {what: bytes} that is not on the node yet
    sizes: Index  # of packages that the state's index does not have
    filesystems: Dict[str, Dict[str, Any]]  # as Manager.filesystems answers


@dataclasses.dataclass(frozen=True)
class Archives:
    """The packages that the node's store does not have, and those of them that lie in the package manager's cache."""

    before: Versions
    after: Versions
    cached: Dict[Tuple[str, str], str]  # {(name, version): path}


def make_refusal(ident, packages, found, expected, message, next_step) -> dict:
    return {
        "id": ident,
        "packages": sorted(packages),
        "found": found,
        "expected": expected,
        "message": message,
        "next_step": next_step,
    }
