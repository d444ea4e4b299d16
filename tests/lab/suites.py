# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data: what differs between the releases that machines are of. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Download:
    """A package of a keyring, for a host that has not got that keyring; what it has to be."""

    url: str
    sha256: str


@dataclass(frozen=True)
class Suite:
    """One release. ``{branch}`` in the name of a package is the driver's branch, such as 535."""

    # The archive, and what of it a machine has from the start.
    archive: str
    security: str
    keyring: str
    components: tuple[str, ...]
    sources: str  # the file of a stock machine, below /etc/apt/sources.list.d
    packages: tuple[str, ...]  # that a machine starts with, beside those in node-packages.txt
    # What the driver's packages need beside that.
    driver_components: tuple[str, ...]
    driver_suites: tuple[str, ...]
    # One binary package of each kind that a compute node installs of the driver; apt adds what they depend on.
    driver_source: str
    driver_packages: tuple[str, ...]
    other_packages: tuple[str, ...]  # of their own sources, with versions of their own
    # The packages that hold the modules' source, the one that dkms is called for first, and its name there.
    module_packages: tuple[str, ...]
    module: str
    versions: tuple[str, ...]  # of the driver's packages that the image keeps: an upgrade can go between them
    keyring_package: Download | None = None


DEBIAN = {
    "archive": "http://deb.debian.org/debian",
    "security": "http://deb.debian.org/debian-security",
    "keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "components": ("main", "non-free-firmware"),
    "sources": "debian.sources",
    "packages": ("linux-headers-amd64", "linux-image-amd64"),
    "driver_components": ("contrib", "non-free"),
    "driver_suites": ("backports",),
    "driver_source": "nvidia-graphics-drivers",
    "driver_packages": (
        "nvidia-kernel-dkms",
        "nvidia-smi",
        "libnvidia-ml1",
        "libcuda1",
        "libnvidia-cfg1",
        "firmware-nvidia-gsp",
    ),
    "other_packages": ("nvidia-persistenced",),
    "module_packages": ("nvidia-kernel-dkms",),
    "module": "nvidia-current",
}
SUITES = {
    "bookworm": Suite(versions=("535.216.03-2~bpo12+1", "535.261.03-1"), **DEBIAN),
    "trixie": Suite(versions=("550.163.01-2", "550.163.01-4~bpo13+1"), **DEBIAN),
    # Ubuntu 24.04. Of 535-server only the release pocket has a driver; in the updates its names lead to 580-server.
    "noble": Suite(
        archive="http://archive.ubuntu.com/ubuntu",
        security="http://security.ubuntu.com/ubuntu",
        keyring="/usr/share/keyrings/ubuntu-archive-keyring.gpg",
        keyring_package=Download(
            "http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
            "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
        ),
        components=("main", "universe"),
        sources="ubuntu.sources",
        # There apt is no package that every system has. The kernel is the release's, as 535.161.08 does not compile for
        # those of the updates.
        packages=(
            "apt",
            "linux-headers-generic=6.8.0-31.31",
            "linux-headers-virtual=6.8.0-31.31",
            "linux-image-virtual=6.8.0-31.31",
        ),
        driver_components=("restricted", "multiverse"),
        driver_suites=(),
        driver_source="nvidia-graphics-drivers-{branch}-server",
        driver_packages=(
            "nvidia-dkms-{branch}-server",
            "nvidia-utils-{branch}-server",
            "nvidia-compute-utils-{branch}-server",
            "libnvidia-compute-{branch}-server",
            "libnvidia-cfg1-{branch}-server",
        ),
        other_packages=(),
        module_packages=("nvidia-dkms-{branch}-server", "nvidia-kernel-source-{branch}-server"),
        module="nvidia-srv",
        versions=("535.161.08-0ubuntu2", "580.178.04-0ubuntu0.24.04.1"),
    ),
}


def upstream(version: str) -> str:
    """The driver's own version in a package's version: 535.216.03 of 535.216.03-2~bpo12+1."""
    return version.split(":", 1)[-1].split("-", 1)[0]


def named(template: str, version: str) -> str:
    """A package's name for a version of the driver."""
    return template.replace("{branch}", upstream(version).split(".", 1)[0])


def pattern(template: str) -> str:
    """A regular expression for a package's name with any branch."""
    return re.escape(template).replace(r"\{branch\}", "[0-9]+")
