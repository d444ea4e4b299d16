# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each signed apt repository of the lab consists of: the Release file of a distribution and its signature."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .common import run, write_whole

OWNER = "gpufleet lab (made for one repository)"


def write_release(dist: Path, fields: dict[str, str]) -> Path:
    """Write the Release file of the indexes below DIST and return its path."""
    options = {"Architectures": "amd64", **fields}
    words = [word for key, value in options.items() for word in ("-o", f"APT::FTPArchive::Release::{key}={value}")]
    write_whole(dist / "Release", run("apt-ftparchive", *words, "release", dist).stdout)
    return dist / "Release"


def sign(releases: list[Path], key: Path, valid: str = "1d", binary: bool = False) -> None:
    """Write InRelease beside each Release, by a key that is made now; its public half goes to the file KEY."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-key-") as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
        try:
            run(*gpg, "--quick-generate-key", OWNER, "ed25519", "sign", valid)
            for release in releases:
                signed = release.with_name("InRelease")
                run(*gpg, "--clearsign", "--digest-algo", "SHA512", "--output", signed, release)
            key.parent.mkdir(parents=True, exist_ok=True)
            run(*gpg, *([] if binary else ["--armor"]), "--output", key, "--export")
            key.chmod(0o644)
        finally:
            run("gpgconf", "--homedir", home, "--kill", "all", check=False)
