# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signed apt mirror of the driver packages that a suite's image keeps: what a site without a way to the internet has.

Usage: ``python3 -m tests.lab.mirror SUITE DIRECTORY``, which writes DIRECTORY with ``dists/``, ``pool/`` (links to the
image's archives) and ``key.asc``, and DIRECTORY.tar with the files themselves. The key is made for it and not kept.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from . import config, image, stubs
from .common import LabError, run, write_whole

COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")
OWNER = "gpufleet lab mirror (made for one test)"


def component(section: str) -> str:
    """The archive's part that a package is in, from its section: non-free of non-free/kernel, main of net."""
    part = section.partition("/")[0] if "/" in section else "main"
    if part not in COMPONENTS:
        raise LabError(f"a package has the section {section!r}; expected one of the components {', '.join(COMPONENTS)}")
    return part


def packages(archives: list[Path]) -> dict[str, str]:
    """The text of each component's Packages file; the packages themselves lie in pool/."""
    entries: dict[str, list[str]] = {name: [] for name in COMPONENTS}
    for deb in sorted(archives):
        section = run("dpkg-deb", "--field", deb, "Section").stdout.strip()
        entries[component(section)].append(stubs.index_entry(deb).replace("\nFilename: ./", "\nFilename: pool/"))
    return {name: "\n".join(found) for name, found in entries.items()}


def sign(release: Path, key: Path) -> None:
    """InRelease beside Release, by a key that is made now; its public half goes to the file KEY."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-key-") as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
        try:
            run(*gpg, "--quick-generate-key", OWNER, "ed25519", "sign", "1d")
            run(*gpg, "--clearsign", "--digest-algo", "SHA512", "--output", release.with_name("InRelease"), release)
            write_whole(key, run(*gpg, "--armor", "--export").stdout)
        finally:
            run("gpgconf", "--homedir", home, "--kill", "all", check=False)


def make(archives: list[Path], suite: str, directory: Path) -> int:
    """Write the mirror and its tar file anew. Returns the number of packages."""
    if not archives:
        raise LabError(
            f"there are no packages to make a mirror of {suite} of: run 'python3 -m tests.lab image --suite {suite}'"
        )
    shutil.rmtree(directory, ignore_errors=True)
    dist = directory / "dists" / suite
    for name, text in packages(archives).items():
        write_whole(dist / name / "binary-amd64" / "Packages", text)
    options = {"Origin": "gpufleet-lab", "Label": "gpufleet-lab", "Suite": suite, "Codename": suite}
    options |= {"Architectures": "amd64", "Components": " ".join(COMPONENTS)}
    words = [word for key, value in options.items() for word in ("-o", f"APT::FTPArchive::Release::{key}={value}")]
    write_whole(dist / "Release", run("apt-ftparchive", *words, "release", dist).stdout)
    sign(dist / "Release", directory / "key.asc")
    (directory / "pool").mkdir()
    for deb in archives:
        (directory / "pool" / deb.name).symlink_to(deb)
    with tarfile.open(f"{directory}.tar", "w", dereference=True) as archive:
        archive.add(directory, arcname=".")
    return len(archives)


def main(suite: str, directory: str) -> None:
    lab = config.current()
    image.ensure(lab, suite, image.packages_layer(suite))
    found = sorted((image.packages_layer(suite).root(lab.images) / image.ARCHIVES).glob("*.deb"))
    print(f"{make(found, suite, Path(directory).resolve())} packages in {directory} and {directory}.tar")


if __name__ == "__main__":
    main(*sys.argv[1:])
