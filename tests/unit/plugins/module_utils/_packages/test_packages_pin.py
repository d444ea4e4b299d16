# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pin, as the real apt reads it, over an index of recorded packages."""

from __future__ import annotations

import re
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import holds
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.driver_tables import DEBIAN
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages.fake_apt import fixture, index

MAIN, OPEN = DEBIAN["sources"]


@pytest.fixture(name="policy", scope="module")
def _policy(tmp_path_factory):
    """``policy(versions or None)`` -> the candidate apt chooses for every package under a pin for these versions."""
    root = tmp_path_factory.mktemp("apt")
    for path in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d", "repo"):
        (root / path).mkdir(parents=True)
    (root / "status").write_text("", encoding="utf-8")
    (root / "repo/Packages").write_text(fixture("show_bookworm.txt"), encoding="utf-8")
    (root / "etc/sources.list").write_text("deb [trusted=yes] file:%s/repo ./\n" % root, encoding="utf-8")
    options = []
    for key, value in (
        ("Dir::State", "state"),
        ("Dir::State::status", "status"),
        ("Dir::Cache", "cache"),
        ("Dir::Etc", "etc"),
        ("Dir::Etc::sourcelist", "etc/sources.list"),
        ("Dir::Etc::sourceparts", "none"),
        ("Dir::Etc::preferencesparts", "etc/preferences.d"),
        ("Dir::Etc::parts", "none"),
        ("Dir::Etc::main", "none"),
    ):
        options += ["-o", "%s=%s/%s" % (key, root, value)]
    options += ["-o", "APT::Architecture=amd64", "-o", "APT::Architectures::=amd64", "-o", "APT::Sandbox::User=root"]

    def run(*argv):
        command = list(argv[:1]) + options + list(argv[1:])
        environment = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    run("apt-get", "update")

    def candidates(versions):
        pin = root / "etc/preferences.d/driver.pref"
        pin.write_text(holds.render_pin(DEBIAN, versions) if versions else "", encoding="utf-8")
        return dict(
            re.findall(
                r"^(\S+):\n  Installed: .*\n  Candidate: (\S+)",
                run("apt-cache", "policy", *sorted(index())),
                re.MULTILINE,
            )
        )

    return candidates


def test_only_the_wanted_version_is_a_candidate(policy):
    """Of every package in the index, by source: the driver's own, the other families', and what is released apart."""
    unpinned, pinned = policy(None), policy({MAIN: "535.216.03-2~bpo12+1"})
    rules = {}
    for name, records in index().items():
        source = records[0]["source"]
        if source == MAIN:
            rules[name] = "535.216.03-2~bpo12+1"
        elif source == OPEN or source.startswith("nvidia-graphics-drivers-"):
            rules[name] = "(none)"
        else:
            rules[name] = unpinned[name]
            assert unpinned[name] != "(none)"
    assert pinned == rules
    for expected, names in (
        (
            "535.216.03-2~bpo12+1",
            ["nvidia-smi", "libcuda1", "libnvcuvid1", "firmware-nvidia-gsp", "nvidia-legacy-check"],
        ),
        (
            "(none)",
            [
                "firmware-nvidia-tesla-535-gsp",
                "libnvidia-tesla-470-cfg1",
                "nvidia-tesla-535-smi",
                "nvidia-open-kernel-dkms",
            ],
        ),
        ("535.309.01-0+deb12u1", ["nvidia-modprobe", "nvidia-settings"]),
    ):
        assert dict((name, pinned[name]) for name in names) == dict.fromkeys(names, expected)


def test_the_open_module_has_a_version_of_its_own(policy):
    pinned = policy({MAIN: "535.261.03-1", OPEN: "535.261.03-1"})
    assert (pinned["nvidia-open-kernel-dkms"], pinned["nvidia-smi"]) == ("535.261.03-1", "535.261.03-1")
    assert policy({MAIN: "535.261.03-1", OPEN: "535.261.03-9"})["nvidia-open-kernel-dkms"] == "(none)"


def test_a_version_that_is_gone_fails_closed(policy):
    assert policy({MAIN: "535.999.99-1"})["nvidia-smi"] == "(none)"
