# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the lab keeps things, and which network is its own."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from .common import LabError

CHECKOUT = Path(__file__).resolve().parents[2]
REGISTRY = Path("/run/gpufleet-lab")  # one file per lab on this machine: who has the network
SUITE = "bookworm"  # what a machine is unless its inventory says otherwise
# What a suite's image keeps packages of: versions of the driver that an upgrade can go between.
DRIVER_VERSIONS = {
    "bookworm": ("535.216.03-2~bpo12+1", "535.261.03-1"),
    "trixie": ("550.163.01-2", "550.163.01-4~bpo13+1"),
}
# Machines of another system's identity and packages, and the release that their userland is.
LIKE = {"ubuntu24-like": "bookworm", "rocky9-like": "bookworm"}
SUITES = (*DRIVER_VERSIONS, *LIKE)
BRIDGES = "gflab"  # what the names of the labs' bridges begin with
USER = "fleet"
HIGHEST_LAB_ID = 99
FIRST_FREE_HOST = 101  # machines whose inventory names no lab_address get theirs from here up


@dataclass(frozen=True)
class Lab:
    """One lab: a checkout, a number, and all names that follow from them."""

    checkout: Path
    cache: Path
    number: int

    @property
    def state(self) -> Path:
        base = self.checkout / ".lab"
        return base / f"lab{self.number}" if self.number else base

    @property
    def state_link(self) -> Path:
        """The same by a name that every number has, for inventories: .lab/lab0 is .lab itself."""
        return self.checkout / ".lab" / f"lab{self.number}"

    @property
    def nodes(self) -> Path:
        return self.state / "nodes"

    @property
    def ssh(self) -> Path:
        return self.state / "ssh"

    @property
    def key(self) -> Path:
        return self.ssh / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.ssh / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.ssh / "config"

    @property
    def temporary(self) -> Path:
        """Exists while the machines are those of a run that removes them at its end."""
        return self.state / "temporary"

    @property
    def images(self) -> Path:
        return self.cache / "images"

    @property
    def trees(self) -> Path:
        return self.cache / "dkms"

    @property
    def bridge(self) -> str:
        return f"{BRIDGES}{self.number}"

    @property
    def table(self) -> str:
        return f"gpufleet_lab{self.number}"

    @property
    def network(self) -> str:
        return f"10.213.{77 + self.number}"

    @property
    def subnet(self) -> str:
        return f"{self.network}.0/24"

    @property
    def gateway(self) -> str:
        return f"{self.network}.1"

    def address(self, host_number: int) -> str:
        return f"{self.network}.{host_number}"

    def node_dir(self, name: str) -> Path:
        return self.nodes / name

    def tag(self, name: str = "") -> str:
        """What a process of this lab carries in its environment (GPUFLEET_LAB_TAG)."""
        return f"{self.number}:{self.checkout}:{name}"


def lab_number(text: str | None) -> int:
    """The lab's number from GPUFLEET_LAB_ID: 0 unless told otherwise."""
    if not text:
        return 0
    if not re.fullmatch(r"[0-9]{1,2}", text) or int(text) > HIGHEST_LAB_ID:
        raise LabError(f"GPUFLEET_LAB_ID is '{text}': expected a whole number from 0 to {HIGHEST_LAB_ID}")
    return int(text)


def cache_dir(environ) -> Path:
    """$GPUFLEET_CACHE, or gpufleet below the user's cache directory."""
    if environ.get("GPUFLEET_CACHE"):
        return Path(environ["GPUFLEET_CACHE"]).resolve()
    base = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "/root", ".cache")
    return (Path(base) / "gpufleet").resolve()


def current(environ=None, checkout: Path = CHECKOUT) -> Lab:
    environ = os.environ if environ is None else environ
    lab = Lab(checkout=checkout, cache=cache_dir(environ), number=lab_number(environ.get("GPUFLEET_LAB_ID")))
    for what, path in (("checkout", lab.checkout), ("cache directory", lab.cache)):
        if re.search(r"[:,\\\s]", str(path)):
            raise LabError(
                f"the {what} {path} has a space, comma, colon or backslash in its path, which overlay mounts "
                f"cannot take: move it"
            )
    return lab
