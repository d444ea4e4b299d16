# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of nvidia_dcgm and nvidia_dcgm_exporter with the real dnf and rpm, on places of their own.

NVIDIA's packages are not there: those of a repository in files have their names and nothing in them.
"""

from __future__ import annotations

import subprocess

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import test_nvidia_dcgm_packages as packages_apt
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import test_nvidia_repository_course as course

pytestmark = pytest.mark.slow

base = course._base
dcgm, exporter, case = packages_apt.dcgm, packages_apt.exporter, packages_apt.case
P, OLD, NEW, EXPORTER = packages_apt.P, packages_apt.OLD, packages_apt.NEW, packages_apt.EXPORTER
R580, R535 = packages_apt.R580, packages_apt.R535
LOCKS = "/etc/dnf/locks"  # not where the plugin has them by default
PLUGIN = "/etc/dnf/plugins/versionlock.conf"


class Node(course.Node):
    """A Rocky Linux with DCGM 3 alone, beside a repository in files."""

    def __init__(self, base):
        super().__init__(base, "rocky")
        (self.path("/etc/os-release")).unlink()
        (self.path("/etc/os-release")).write_text("ID=rocky\nVERSION_ID=9.6\n")
        (self.path("/etc/rpm")).mkdir(exist_ok=True)
        (self.path("/etc/rpm") / "macros").write_text("%_dbpath /var/lib/rpm\n")
        (self.path("/etc/dnf") / "plugins").mkdir()
        self.path(PLUGIN).write_text("[main]\nenabled = 1\nlocklist = %s\n" % LOCKS)
        self.path(LOCKS).write_text("")
        (self.path("/etc/dnf") / "dnf.conf").write_text("[main]\ngpgcheck=0\nmodule_platform_id=platform:el9\n")
        (self.path("/etc/yum.repos.d") / "lab.repo").write_text(
            "[cuda]\nname=cuda\nbaseurl=file://%s\nenabled=1\ngpgcheck=0\n" % (base / "mirror")
        )

    def play(self, tasks, *options):
        places, variables = [*course.PLACES], {"__nvidia_dcgm_mark": str(self.base / "mark")}
        return self.run_tasks(
            tasks, *options, role="nvidia_dcgm", places=places, python="/usr/bin/python3", **variables
        )

    def packages(self):
        """What is installed, with versions, and the list of locks."""
        words = ["rpm", "--dbpath", self.path("/var/lib/rpm"), "-qa", "--qf", "%{NAME} %{EVR}\n"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        locks = self.path(LOCKS).read_text().split()
        return dict(line.split() for line in done.stdout.splitlines()), set(locks)


@pytest.fixture(name="node")
def _node(base):
    """DCGM for CUDA 12 and 13 in two versions. The parts for CUDA 12 drag a driver behind them."""
    directory = base / "mirror"
    names = [P + "core", P + "cuda13", P + "proprietary", P + "proprietary-cuda13"]
    found = [stubs.package(name, version) for name in names for version in (OLD, NEW)]
    found += [
        stubs.package(P + "cuda12", NEW, "nvidia-driver-cuda-libs"),
        stubs.package("nvidia-driver-cuda-libs", "3:590.44.01-1"),
        stubs.package(EXPORTER, "4.8.2-1"),
        stubs.package("datacenter-gpu-manager", "1:3.3.9-1"),
    ]
    repositories.build_rpms(found, directory)
    repositories.call(["createrepo_c", "--quiet", str(directory)])
    return Node(base)


def test_dcgm_4_in_the_place_of_dcgm_3_with_dnf(node):
    """In the version that is wanted, and locked; the next run and what does not fit change nothing."""
    before = [{"ansible.builtin.command": "dnf -q -y install datacenter-gpu-manager"}]
    done = node.play([*before, dcgm(R580, nvidia_dcgm_version="4.4.1"), exporter()])
    assert done.rc == 0, done.output
    wanted = dict.fromkeys((P + "core", P + "cuda13", P + "proprietary", P + "proprietary-cuda13"), OLD)
    assert node.packages() == (dict(wanted, **{EXPORTER: "4.8.2-1"}), {"%s-%s.*" % (name, OLD) for name in wanted})
    assert (node.base / "mark").exists()

    cases = [
        dcgm(R580, nvidia_dcgm_version="4.4.1"),
        dcgm(R580, nvidia_dcgm_version="4.9.9"),
        dcgm(R535, nvidia_dcgm_version="4.5.3"),
        exporter(nvidia_dcgm_exporter_version="4.9.9"),
        exporter(),
    ]
    again = node.play([case(number, task) for number, task in enumerate(cases)])
    assert again.rc == 0, again.output
    said = [again.words.partition("CASE %d " % number)[2].partition("END")[0].strip() for number in range(len(cases))]
    same, absent, drags, no_exporter, exporter_again = said
    assert same == exporter_again == ""
    assert "4.9.9" in absent and OLD in absent and NEW in absent
    assert drags != "" and "4.9.9" in no_exporter
    assert "nvidia-driver-cuda-libs" not in node.packages()[0]

    newer = node.play([dcgm(R580, nvidia_dcgm_version="4.5.3")])
    assert newer.rc == 0, newer.output
    assert {name: node.packages()[0][name] for name in wanted} == dict.fromkeys(wanted, NEW)
    assert node.packages()[1] == {"%s-%s.*" % (name, NEW) for name in wanted}


def test_locks_that_dnf_does_not_read_are_refused_before_anything_is_installed(node):
    node.path(PLUGIN).write_text("[main]\nenabled = 0\nlocklist = %s\n" % LOCKS)
    refused = node.play([dcgm(R580, nvidia_dcgm_version="4.4.1")])
    assert refused.rc != 0 and PLUGIN in refused.words
    assert node.packages() == ({}, set())
    free = node.play([dcgm(R580, nvidia_dcgm_version="4.4.1", nvidia_dcgm_hold=False)])
    assert free.rc == 0, free.output
    assert P + "core" in node.packages()[0] and node.packages()[1] == set()
