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
from pathlib import Path

from . import config, image, repository, stubs
from .common import LabError, run, write_whole

COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")


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
    fields = {"Origin": "gpufleet-lab", "Label": "gpufleet-lab", "Suite": suite, "Codename": suite}
    release = repository.write_release(dist, {**fields, "Components": " ".join(COMPONENTS)})
    repository.sign([release], directory / "key.asc")
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
