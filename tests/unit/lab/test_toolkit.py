# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in packages of the toolkit: a source that apt trusts by its key alone, and a program that says what it
is.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import keyring
from ansible_collections.gpufleet.lifecycle.tests.lab import toolkit


@pytest.fixture(name="repository", scope="module")
def _repository(tmp_path_factory):
    place = tmp_path_factory.mktemp("toolkit") / "repository"
    assert toolkit.repository(place) == 4 * len(toolkit.VERSIONS)
    return place


def test_the_index_is_signed_by_the_key_beside_it(repository):
    fingerprint = (repository / "fingerprint").read_text().strip()
    assert keyring.fingerprints((repository / "gpgkey").read_bytes()) == [fingerprint]
    ring = repository.parent / "ring.gpg"
    ring.write_bytes(keyring.rendered((repository / "gpgkey").read_bytes(), "binary"))
    checked = subprocess.run(
        ["gpgv", "--keyring", str(ring), str(repository / "InRelease")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert (repository / "InRelease").read_text().count("Packages") > 0


@pytest.mark.parametrize("version,units", [("1.17.8", False), ("1.18.1", True)])
def test_what_a_package_brings(repository, tmp_path, version, units):
    deb = repository / ("nvidia-container-toolkit-base_%s-1_amd64.deb" % version)
    subprocess.run(["dpkg-deb", "--extract", str(deb), str(tmp_path)], check=True)
    assert (tmp_path / "lib/systemd/system/nvidia-cdi-refresh.path").exists() is units
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        assert "stand" in path.read_text().lower(), path
    program = tmp_path / "usr/lib/gpufleet-standin/nvidia-ctk.py"
    said = subprocess.run(
        [sys.executable, "-I", "-S", str(program), "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines()[0] == "NVIDIA Container Toolkit CLI version " + version and "stand-in" in said
    unknown = subprocess.run(
        [sys.executable, "-I", "-S", str(program), "system"], capture_output=True, text=True, check=False
    )
    assert unknown.returncode == 1 and "stand-in" in unknown.stderr


def test_the_whole_set_is_of_one_version(repository):
    index = (repository / "Packages").read_text()
    for version in toolkit.VERSIONS:
        assert (
            "Depends: nvidia-container-toolkit-base (= %s-1), libnvidia-container-tools (= %s-1)" % (version, version)
            in index
        )
