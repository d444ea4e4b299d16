# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signed mirror of the lab: apt believes nothing in it that was changed."""

from __future__ import annotations

import subprocess

import pytest

from tests.lab import mirror
from tests.lab.common import LabError

SECTIONS = {
    "libsmall1": "libs",
    "nvidia-helper": "contrib/misc",
    "nvidia-thing": "non-free/kernel",
    "firmware-thing": "non-free-firmware/kernel",
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """One small package of each component, as apt keeps them."""
    directory = tmp_path_factory.mktemp("archives")
    for name, section in SECTIONS.items():
        root = directory / ("root-" + name)
        (root / "DEBIAN").mkdir(parents=True)
        root.chmod(0o755)
        (root / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: 1.0-2~bpo13+1\nArchitecture: amd64\nSection: {section}\n"
            "Maintainer: gpufleet contributors <gpufleet@example.invalid>\nDescription: a test\n"
        )
        subprocess.run(
            [
                "dpkg-deb",
                "--root-owner-group",
                "-Znone",
                "--build",
                root,
                directory / f"{name}_1.0-2~bpo13+1_amd64.deb",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return sorted(directory.glob("*.deb"))


@pytest.fixture
def made(packages, tmp_path):
    assert mirror.make(packages, "trixie", tmp_path / "mirror") == 4
    return tmp_path / "mirror"


def update(tmp_path, made):
    """apt-get update and what apt then offers, with nothing of this machine's own apt."""
    for name in ("etc/apt.conf.d", "etc/preferences.d", "lists/partial", "cache/archives/partial"):
        (tmp_path / "apt" / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / "apt/status").touch()
    (tmp_path / "apt/etc/sources.list").write_text(
        f"deb [signed-by={made}/key.asc arch=amd64] file:{made} trixie main contrib non-free non-free-firmware\n"
    )
    (tmp_path / "apt/apt.conf").write_text(
        f'Dir::Etc "{tmp_path}/apt/etc"; Dir::Etc::sourceparts "-"; Dir::State::lists "{tmp_path}/apt/lists"; '
        f'Dir::State::status "{tmp_path}/apt/status";\n'
        f'Dir::Cache "{tmp_path}/apt/cache"; Dir::Etc::trusted "/dev/null"; Dir::Etc::trustedparts "/dev/null"; '
        f'APT::Sandbox::User "root";\n'
        'APT::Architecture "amd64"; Acquire::Languages "none";\n'
    )
    settings = {"APT_CONFIG": str(tmp_path / "apt/apt.conf"), "LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    done = subprocess.run(
        ["apt-get", "update", "-o", "APT::Update::Error-Mode=any"],
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )
    names = subprocess.run(
        ["apt-cache", "pkgnames"], env=settings, capture_output=True, text=True, check=True
    ).stdout.split()
    return done, sorted(names)


def test_apt_believes_the_mirror_by_its_signature(made, tmp_path):
    done, names = update(tmp_path, made)
    assert done.returncode == 0, done.stderr
    assert names == sorted(SECTIONS)
    for name, section in SECTIONS.items():
        component = section.partition("/")[0] if "/" in section else "main"
        text = (made / "dists/trixie" / component / "binary-amd64/Packages").read_text()
        assert f"Package: {name}\n" in text and text.count("\nFilename: pool/") == 1


@pytest.mark.parametrize("path", ["dists/trixie/InRelease", "dists/trixie/non-free/binary-amd64/Packages"])
def test_apt_takes_nothing_from_a_mirror_that_was_changed(made, tmp_path, path):
    (made / path).write_text((made / path).read_text().replace("gpufleet", "somebody"))
    done, names = update(tmp_path, made)
    assert done.returncode != 0
    assert "nvidia-thing" not in names


def test_no_secret_key_is_left(made):
    assert "PUBLIC KEY" in (made / "key.asc").read_text()
    assert not [
        path
        for path in made.rglob("*")
        if path.is_file() and not path.is_symlink() and b"PRIVATE KEY" in path.read_bytes()
    ]


def test_a_mirror_of_nothing_is_refused(tmp_path):
    with pytest.raises(LabError, match="image --suite trixie"):
        mirror.make([], "trixie", tmp_path / "mirror")


def test_a_package_of_an_unknown_component_is_refused():
    assert [mirror.component(section) for section in SECTIONS.values()] == [
        "main",
        "contrib",
        "non-free",
        "non-free-firmware",
    ]
    with pytest.raises(LabError, match="restricted/misc"):
        mirror.component("restricted/misc")
