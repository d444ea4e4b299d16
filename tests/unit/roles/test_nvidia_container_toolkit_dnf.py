# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia_container_toolkit with the real dnf and rpm, on places of their own, from a repository with a signed index."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import test_nvidia_container_toolkit_source as apt
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import test_nvidia_dcgm_packages_dnf as dcgm
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import test_nvidia_repository_course as course

pytestmark = pytest.mark.slow

base, signers = course._base, course._signers
SOURCE = "etc/yum.repos.d/gpufleet-nvidia-container-toolkit.repo"
KEY = "etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia-container-toolkit"


class Node(dcgm.Node):
    play = apt.Node.play


@pytest.fixture(name="mirror")
def _mirror(base, signers):
    """NVIDIA signs the index of this repository, and not its packages."""
    directory = base / "toolkit"
    found = [stubs.package(name, version + "-1") for name in apt.NAMES for version in ("1.17.8", "1.18.1")]
    repositories.build_rpms(found, directory)
    repositories.call(["createrepo_c", "--quiet", str(directory)])
    signers[0].sign_rpm(directory)
    (directory / "gpgkey").write_bytes(signers[0].key())
    (base / "mirror").mkdir()
    repositories.call(["createrepo_c", "--quiet", str(base / "mirror")])
    return directory


def test_toolkit_is_installed_and_locked_in_the_version_that_is_wanted(base, mirror, signers):
    node = Node(base)
    before = node.files()
    foreseen = node.play("--check", **apt.options(mirror, signers[0], nvidia_container_toolkit_version="1.17.8"))
    assert (foreseen.rc, foreseen.failed, node.files()) == (0, 0, before), foreseen.output
    for version in ("1.18.1", "1.17.8"):
        done = node.play(**apt.options(mirror, signers[0], nvidia_container_toolkit_version=version))
        assert done.rc == 0, done.output
        installed, locks = node.packages()
        assert installed == dict.fromkeys(apt.NAMES, version + "-1")
        assert locks == {"%s-0:%s-1.*" % (name, version) for name in apt.NAMES}
    assert set(node.files()) - set(before) == {SOURCE, KEY}
    again = node.play(**apt.options(mirror, signers[0], nvidia_container_toolkit_version="1.17.8"))
    assert (again.rc, again.changed) == (0, 0), again.output


def test_index_that_another_key_signed_is_refused_and_nothing_is_left(base, mirror, signers):
    node = Node(base)
    before = node.files()
    (mirror / "repodata/repomd.xml.asc").unlink()
    signers[1].sign_rpm(mirror)
    refused = node.play(**apt.options(mirror, signers[0]))
    assert refused.rc != 0 and node.files() == before, refused.output
    assert not set(apt.NAMES) & set(node.packages()[0])
