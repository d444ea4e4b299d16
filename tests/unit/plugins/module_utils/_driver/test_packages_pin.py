# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pin, as the real apt reads it, over an index of recorded packages."""

from __future__ import annotations

import re
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import packages
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver._sets import DEBIAN
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._driver.fake_apt import fixture


@pytest.fixture(name="policy")
def _policy(tmp_path):
    """``policy(version or None, name)`` -> the candidate apt chooses under a pin for that version."""
    for path in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d", "repo"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "status").write_text("", encoding="utf-8")
    (tmp_path / "repo/Packages").write_text(fixture("show_bookworm.txt"), encoding="utf-8")
    (tmp_path / "etc/sources.list").write_text("deb [trusted=yes] file:%s/repo ./\n" % tmp_path, encoding="utf-8")
    options = []
    for key, value in (
        ("Dir::State", "state"), ("Dir::State::status", "status"), ("Dir::Cache", "cache"), ("Dir::Etc", "etc"), ("Dir::Etc::sourcelist", "etc/sources.list"),
        ("Dir::Etc::sourceparts", "none"), ("Dir::Etc::preferencesparts", "etc/preferences.d"), ("Dir::Etc::parts", "none"), ("Dir::Etc::main", "none"),
    ):
        options += ["-o", "%s=%s/%s" % (key, tmp_path, value)]
    options += ["-o", "APT::Architecture=amd64", "-o", "APT::Architectures::=amd64", "-o", "APT::Sandbox::User=root"]

    def run(*argv):
        command = list(argv[:1]) + options + list(argv[1:])
        environment = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    run("apt-get", "update")

    def candidate(version, name):
        pin = tmp_path / "etc/preferences.d/driver.pref"
        pin.write_text(packages.render_pin(DEBIAN, version) if version else "", encoding="utf-8")
        found = re.search(r"Candidate: (\S+)", run("apt-cache", "policy", name))
        return found.group(1)

    return candidate


CASES = [
    ("nvidia-smi", "own"), ("libcuda1", "own"), ("libnvcuvid1", "own"), ("firmware-nvidia-gsp", "own"), ("nvidia-legacy-check", "own"),
    ("firmware-nvidia-tesla-535-gsp", "none"), ("libnvidia-tesla-470-cfg1", "none"), ("nvidia-tesla-535-smi", "none"),
    ("nvidia-persistenced", "free"), ("nvidia-modprobe", "free"), ("nvidia-settings", "free"), ("nvidia-support", "free"),
    ("libnvidia-egl-gbm1", "free"), ("nvidia-cuda-toolkit", "free"),
]


@pytest.mark.parametrize("name,rule", CASES)
def test_candidates_under_the_pin(policy, name, rule):
    unpinned = policy(None, name)
    assert unpinned != "(none)"
    expected = {"own": "535.216.03-2~bpo12+1", "none": "(none)", "free": unpinned}[rule]
    assert policy("535.216.03-2~bpo12+1", name) == expected


def test_the_open_module_at_a_version_that_does_not_exist_has_no_candidate(policy):
    assert policy("535.261.03-1", "nvidia-open-kernel-dkms") == "535.261.03-1"
    assert policy("535.216.03-2~bpo12+1", "nvidia-open-kernel-dkms") == "(none)"


def test_a_version_that_is_gone_fails_closed(policy):
    assert policy("535.999.99-1", "nvidia-smi") == "(none)"
