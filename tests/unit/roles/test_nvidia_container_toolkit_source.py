# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where nvidia_container_toolkit has its packages from: the real apt, on an /etc of its own, and a mirror in files.

Nothing is installed.
"""

from __future__ import annotations

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import test_nvidia_repository_course as course
from ansible_collections.gpufleet.lifecycle.tests.unit.roles.role_variables import Role

pytestmark = [pytest.mark.cores, pytest.mark.slow]

SOURCE, KEY = (
    "etc/apt/sources.list.d/gpufleet-nvidia-container-toolkit.sources",
    "etc/apt/keyrings/gpufleet-nvidia-container-toolkit.gpg",
)
NAMES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
base, signers = course._base, course._signers


class Node(course.Node):
    """The node of the course of nvidia_repository, on which the first half of the role runs."""

    def play(self, *options, tasks=("repository", "packages"), **variables):
        role = "nvidia_container_toolkit"
        includes = [{"name": "gpufleet.lifecycle." + role, "tasks_from": name} for name in tasks]
        # The module of apt needs the binding of the system's Python.
        return self.run_tasks(
            [{"ansible.builtin.include_role": include} for include in includes],
            *options,
            role=role,
            python="/usr/bin/python3",
            **variables,
        )


@pytest.fixture(name="mirror")
def _mirror(base, signers):
    """A mirror of NVIDIA's repository in files: flat, with two versions, and the key beside it."""
    directory = base / "mirror"
    repositories.build_debs(
        [
            stubs.package(name, version + "-1", source="nvidia-container-toolkit")
            for name in NAMES
            for version in ("1.17.8", "1.18.1")
        ],
        directory,
    )
    dummy, index, dummy = repositories.call(["apt-ftparchive", "packages", "."], cwd=str(directory))
    (directory / "Packages").write_text(index, encoding="utf-8")
    signers[0].sign_deb(directory)
    (directory / "gpgkey").write_bytes(signers[0].key())
    return directory


def options(mirror, signer, **more):
    return dict(
        nvidia_container_toolkit_uri="file:%s" % mirror,
        nvidia_container_toolkit_key_url="file:%s/gpgkey" % mirror,
        nvidia_container_toolkit_key_fingerprint=signer.fingerprint,
        **more,
    )


def test_the_source_and_its_proven_key(base, mirror, signers):
    """Set up once; the exact version is offered from then on, and another one named with those that there are."""
    node = Node(base, "debian")
    before = node.files()
    foreseen = node.play("--check", **options(mirror, signers[0], nvidia_container_toolkit_version="1.17.8"))
    assert (foreseen.rc, foreseen.failed) == (0, 0), foreseen.output
    assert node.files() == before
    done = node.play(tasks=["repository"], **options(mirror, signers[0]))
    assert (done.rc, done.changed) == (0, 2), done.output
    after = node.files()
    assert set(after) - set(before) == {SOURCE, KEY} and repositories.read_fingerprints(after[KEY]) == [
        signers[0].fingerprint
    ]
    refused = node.play("--check", **options(mirror, signers[0], nvidia_container_toolkit_version="1.19.0"))
    assert refused.rc != 0
    for words in ("1.19.0-1", "1.18.1-1", "1.17.8-1", "nvidia_container_toolkit_version"):
        assert words in refused.words
    known = node.play("--check", **options(mirror, signers[0], nvidia_container_toolkit_version="1.17.8"))
    assert (known.rc, known.changed) == (0, 3), known.output  # the pin, the packages, their holds
    assert node.files() == after


def test_another_key_than_the_expected_is_refused_and_nothing_is_left(base, mirror, signers):
    node = Node(base, "debian")
    before = node.files()
    result = node.play(tasks=["repository"], **options(mirror, signers[1]))
    assert result.rc != 0 and node.files() == before
    for words in ("is not the expected key", signers[0].fingerprint, signers[1].fingerprint):
        assert words in result.words


def test_other_files_for_the_same_packages(base, mirror, signers):
    """They are named and left alone; or renamed, and renamed back when the new source cannot be read."""
    node = Node(base, "debian")
    other = node.path("/etc/apt/sources.list.d") / "nvidia-container-toolkit.list"
    other.write_text("deb https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /\n", encoding="utf-8")
    before = node.files()
    refused = node.play(tasks=["repository"], **options(mirror, signers[0]))
    assert refused.rc != 0 and node.files() == before
    assert "/etc/apt/sources.list.d/nvidia-container-toolkit.list" in refused.words
    assert "nvidia_container_toolkit_disable_others" in refused.words
    (mirror / "InRelease").rename(mirror / "gone")
    failed = node.play(
        tasks=["repository"], **options(mirror, signers[0], nvidia_container_toolkit_disable_others=True)
    )
    assert failed.rc != 0 and node.files() == before and "was removed again" in failed.words, failed.output


APT = {"__nvidia_container_toolkit_manager": "apt"}  # a filter of a collection, which templates find in a play alone


@pytest.mark.parametrize("machine,architecture", [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_nvidias_own_source(machine, architecture):
    role = Role("nvidia_container_toolkit", ansible_facts={"architecture": machine}, **APT)
    text = role.render("toolkit.sources.j2")
    assert (
        "URIs: https://nvidia.github.io/libnvidia-container/stable/deb/%s/\nSuites: /\nSigned-By: /etc/apt/keyrings/"
        % architecture
        in text
    )
    assert role["__nvidia_container_toolkit_key"]["fingerprint"] == "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
    assert role["__nvidia_container_toolkit_key"]["url"] == "https://nvidia.github.io/libnvidia-container/gpgkey"


@pytest.mark.parametrize(
    "given,fingerprint",
    [({"nvidia_container_toolkit_key_sha256": "ab"}, ""), ({"nvidia_container_toolkit_key_fingerprint": "CD"}, "CD")],
)
def test_a_key_of_a_mirror(given, fingerprint):
    role = Role("nvidia_container_toolkit", **given, **APT)
    assert role["__nvidia_container_toolkit_key"]["fingerprint"] == fingerprint


@pytest.mark.parametrize("version,wanted", [("", ""), ("1.18.1", "1.18.1-1"), ("1.18.1-2", "1.18.1-2")])
def test_the_version_and_its_pin(version, wanted):
    role = Role("nvidia_container_toolkit", nvidia_container_toolkit_version=version)
    assert role["__nvidia_container_toolkit_wanted"] == wanted
    if version:
        pin = role.render("pin.j2")
        assert "Package: %s\nPin: version %s\nPin-Priority: 1001\n" % (" ".join(NAMES), wanted) in pin
        assert pin.count("Pin-Priority: -1") == 1
