# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signed flat apt repository with stand-ins for the packages of the NVIDIA Container Toolkit, under the real names.

NVIDIA's packages are not on the mirror. These bring the stand-in for nvidia-ctk (``nvidia_ctk_standin.py``), which asks
the simulator's NVML, and from 1.18 on units of the real names that run it. Every file says that it is a stand-in.

Usage: ``python3 -m tests.lab.toolkit DIRECTORY``, which writes DIRECTORY.tar too. In the directory are ``gpgkey`` and
``fingerprint``, for ``nvidia_container_toolkit_key_url`` and ``nvidia_container_toolkit_key_fingerprint``; the source
is ``nvidia_container_toolkit_uri: file:DIRECTORY``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import stubs

VERSIONS = ("1.17.8", "1.18.1")
PROGRAM = Path(__file__).with_name("nvidia_ctk_standin.py")
NOTE = "A stand-in of the gpufleet lab, not NVIDIA's.\n"
WRAPPER = "#!/bin/sh\n# %sexec /usr/bin/python3 -I -S /usr/lib/gpufleet-standin/nvidia-ctk.py \"$@\"\n" % NOTE
SERVICE = (
    """\
# %s[Unit]
Description=Make the CDI file (stand-in)
ConditionPathExists=/usr/bin/nvidia-ctk

[Service]
Type=oneshot
EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml

[Install]
WantedBy=multi-user.target
"""
    % NOTE
)
WATCH = (
    """\
# %s[Unit]
Description=Make the CDI file when another toolkit or driver is installed (stand-in)

[Path]
PathChanged=/lib/modules/%%v/modules.dep
PathChanged=/usr/bin/nvidia-ctk

[Install]
WantedBy=multi-user.target
"""
    % NOTE
)


def packages_of(version):
    """Name -> (dependencies, files {path: (text, mode)}) of one release."""
    same = "%s-1" % version
    base = {
        "/usr/bin/nvidia-ctk": (WRAPPER, 0o755),
        "/usr/bin/nvidia-container-runtime": (
            "#!/bin/sh\n# %secho 'nvidia-container-runtime is a stand-in and runs nothing' >&2\nexit 1\n" % NOTE,
            0o755,
        ),
        "/usr/lib/gpufleet-standin/nvidia-ctk.py": (
            PROGRAM.read_text().replace('VERSION = "0.0.0"', 'VERSION = "%s"' % version),
            0o644,
        ),
    }
    if tuple(int(part) for part in version.split(".")) >= (1, 18):
        base["/lib/systemd/system/nvidia-cdi-refresh.service"] = (SERVICE, 0o644)
        base["/lib/systemd/system/nvidia-cdi-refresh.path"] = (WATCH, 0o644)
    return {
        "libnvidia-container1": ("", {}),
        "libnvidia-container-tools": ("libnvidia-container1 (= %s)" % same, {}),
        "nvidia-container-toolkit-base": ("python3", base),
        "nvidia-container-toolkit": (
            "nvidia-container-toolkit-base (= %s), libnvidia-container-tools (= %s)" % (same, same),
            {},
        ),
    }


def build(name, version, depends, files, out):
    """One .deb by dpkg-deb; returns its path."""
    with tempfile.TemporaryDirectory() as tree:
        root = Path(tree, "root")
        (root / "DEBIAN").mkdir(parents=True)
        root.chmod(0o755)
        fields = [
            "Package: %s" % name,
            "Source: nvidia-container-toolkit",
            "Version: %s-1" % version,
            "Architecture: amd64",
            "Section: utils",
            "Maintainer: gpufleet contributors <gpufleet@example.invalid>",
            "Description: stand-in of the gpufleet lab, not NVIDIA's",
        ]
        (root / "DEBIAN/control").write_text("\n".join(fields + (["Depends: %s" % depends] if depends else [])) + "\n")
        for path, (text, mode) in {**files, "/usr/share/doc/%s/README.stub" % name: (NOTE, 0o644)}.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            target.chmod(mode)
        deb = Path(out, "%s_%s-1_amd64.deb" % (name, version))
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(root), str(deb)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return deb


def sign(directory):
    """A release file for the index, signed with a key made for it; writes the key and its fingerprint beside it."""
    release = subprocess.run(
        ["apt-ftparchive", "release", "."], cwd=str(directory), check=True, capture_output=True, text=True
    ).stdout
    (directory / "Release").write_text(release)
    home = tempfile.mkdtemp(prefix="gpufleet-gpg-")  # short: gpg has its socket in there
    gpg = ["gpg", "--homedir", home, "--batch", "--yes", "--no-tty", "--quiet"]
    try:
        subprocess.run(
            gpg
            + [
                "--passphrase",
                "",
                "--quick-generate-key",
                "stand-in <gpufleet@example.invalid>",
                "rsa2048",
                "sign",
                "never",
            ],
            check=True,
        )
        listed = subprocess.run(
            gpg + ["--with-colons", "--list-keys"], check=True, capture_output=True, text=True
        ).stdout
        fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
        subprocess.run(
            gpg + ["--clearsign", "--output", str(directory / "InRelease"), str(directory / "Release")], check=True
        )
        subprocess.run(gpg + ["--armor", "--output", str(directory / "gpgkey"), "--export", fingerprint], check=True)
    finally:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
        shutil.rmtree(home, ignore_errors=True)
    (directory / "fingerprint").write_text(fingerprint + "\n")


def repository(directory):
    """Builds the repository; it appears whole or not at all. Returns the number of packages."""
    directory = Path(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".toolkit-", dir=directory.parent))
    try:
        debs = [
            build(name, version, depends, files, fresh)
            for version in VERSIONS
            for name, (depends, files) in packages_of(version).items()
        ]
        (fresh / "Packages").write_text("\n".join(stubs.index_entry(deb) for deb in debs))
        sign(fresh)
        fresh.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        os.rename(fresh, directory)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return len(debs)


if __name__ == "__main__":
    print("%d stand-in packages in %s and %s.tar" % (repository(sys.argv[1]), sys.argv[1], sys.argv[1]))
    shutil.make_archive(sys.argv[1], "tar", sys.argv[1])
