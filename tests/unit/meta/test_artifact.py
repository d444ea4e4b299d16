# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tarball that users install: it holds what runs, all of it, and nothing else."""

from __future__ import annotations

import tarfile

import pytest

RUNS = ("plugins/", "roles/", "playbooks/", "extensions/", "meta/", "docs/")
TOP = {
    "MANIFEST.json",
    "FILES.json",
    "README.md",
    "LICENSE",
    "CHANGELOG.rst",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "changelogs/changelog.yaml",
    "changelogs/config.yaml",
}


@pytest.fixture(scope="module")
def members(artifact):
    with tarfile.open(str(artifact)) as tarball:
        return {member.name for member in tarball.getmembers() if not member.isdir()}


def test_holds_nothing_but_what_runs(members):
    assert sorted(name for name in members if not name.startswith(RUNS) and name not in TOP) == []


def test_holds_everything_that_runs(members, tracked):
    assert sorted(name for name in tracked if name.startswith(RUNS) and name not in members) == []


def test_has_the_top_files(members):
    assert TOP - members == set()


def test_no_link_leads_out_of_the_collection(artifact):
    with tarfile.open(str(artifact)) as tarball:
        assert [member.name for member in tarball.getmembers() if member.issym() or member.islnk()] == []


def test_installs_offline_and_is_whole(installed, members):
    root = installed / "ansible_collections" / "gpufleet" / "lifecycle"
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert found == members


def test_is_small_enough_to_be_read(artifact):
    assert artifact.stat().st_size < 2 * 1024 * 1024
