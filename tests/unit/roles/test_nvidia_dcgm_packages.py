# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of nvidia_dcgm and nvidia_dcgm_exporter: the real apt and dpkg, on places of their own.

NVIDIA's packages are not there: those of a mirror in files have their names and nothing in them.
"""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import test_nvidia_repository_course as course

pytestmark = pytest.mark.slow

base = course._base
P, OLD, NEW = "datacenter-gpu-manager-4-", "1:4.4.1-1", "1:4.5.3-1"
EXPORTER = "datacenter-gpu-manager-exporter"
PIN = "/etc/apt/preferences.d/gpufleet-nvidia-dcgm"


def gpus(driver, cuda):
    return {
        "nvml_available": True,
        "snapshot": {"system": {"driver_version": {"value": driver}, "cuda_driver_version": {"value": cuda}}},
    }


R580, R535 = gpus("580.95.05", "13.0"), gpus("535.216.03", "12.2")


class Node(course.Node):
    """A Debian without a package, beside a mirror in files."""

    def __init__(self, base):
        super().__init__(base, "debian")
        for name in ("info", "updates", "triggers"):
            self.path("/var/lib/dpkg/" + name).mkdir(parents=True)
        for name in ("status", "available"):
            self.path("/var/lib/dpkg/" + name).write_text("")
        (self.path("/etc/apt") / "preferences.d").mkdir()
        source = "deb [trusted=yes] file:%s ./\n" % (base / "mirror")
        (self.path("/etc/apt/sources.list.d") / "mirror.list").write_text(source)

    def play(self, tasks, *options):
        places, variables = [*course.PLACES, "/var/lib/dpkg"], {"__nvidia_dcgm_mark": str(self.base / "mark")}
        python = "/usr/bin/python3"
        return self.run_tasks(tasks, *options, role="nvidia_dcgm", places=places, python=python, **variables)

    def packages(self):
        """What is installed, with versions, and what is held."""
        text = self.path("/var/lib/dpkg/status").read_text()
        found = re.findall(r"Package: (\S+)\nStatus: (\S+) ok installed\n(?:.+\n)*?Version: (\S+)\n", text)
        return {name: version for name, dummy, version in found}, {
            name for name, want, dummy in found if want == "hold"
        }


def dcgm(known, **variables):
    return {
        "ansible.builtin.include_role": {"name": "gpufleet.lifecycle.nvidia_dcgm", "tasks_from": "packages"},
        "vars": dict(variables, __nvidia_dcgm_gpus=known),
    }


def exporter(**variables):
    return {
        "ansible.builtin.include_role": {"name": "gpufleet.lifecycle.nvidia_dcgm_exporter", "tasks_from": "package"},
        "vars": variables,
    }


def case(number, task):
    said = {"ansible.builtin.debug": {"msg": "CASE %d {{ ansible_failed_result.msg }} END" % number}}
    return {"block": [task, {"ansible.builtin.debug": {"msg": "CASE %d END" % number}}], "rescue": [said]}


@pytest.fixture(name="node")
def _node(base):
    """The mirror has DCGM for CUDA 12 and 13 in two versions. The parts for CUDA 12 drag a driver behind them."""
    directory = base / "mirror"
    names = [P + "core", P + "cuda13", P + "proprietary", P + "proprietary-cuda13"]
    found = [stubs.package(name, version) for name in names for version in (OLD, NEW)]
    found += [
        stubs.package(P + "cuda12", NEW, "libcuda1"),
        stubs.package("libcuda1", "590.44.01-1"),
        stubs.package(EXPORTER, "4.8.2-1"),
        stubs.package("datacenter-gpu-manager", "1:3.3.9"),
    ]
    repositories.build_debs(found, directory)
    dummy, index, dummy = repositories.call(["apt-ftparchive", "packages", "."], cwd=str(directory))
    (directory / "Packages").write_text(index, encoding="utf-8")
    return Node(base)


def test_dcgm_4_in_the_place_of_dcgm_3(node):
    """In the version that is wanted, pinned and held; the next run and what does not fit change nothing."""
    before = [
        {"ansible.builtin.command": "apt-get -q update"},
        {"ansible.builtin.command": "apt-get -q -y install datacenter-gpu-manager"},
    ]
    done = node.play([*before, dcgm(R580, nvidia_dcgm_version="4.4.1"), exporter()])
    assert done.rc == 0, done.output
    wanted = dict.fromkeys((P + "core", P + "cuda13", P + "proprietary", P + "proprietary-cuda13"), OLD)
    assert node.packages() == (dict(wanted, **{EXPORTER: "4.8.2-1"}), set(wanted))
    assert "Pin: version %s\nPin-Priority: 1001" % OLD in node.path(PIN).read_text() and (node.base / "mark").exists()

    cases = [
        dcgm(R580, nvidia_dcgm_version="4.4.1"),
        dcgm(R580, nvidia_dcgm_version="4.9.9"),
        dcgm(R580, nvidia_dcgm_version="3.3.9"),
        dcgm(R535, nvidia_dcgm_version="4.5.3"),
        exporter(nvidia_dcgm_exporter_version="4.9.9"),
        exporter(),
    ]
    again = node.play([case(number, task) for number, task in enumerate(cases)])
    assert (again.rc, again.changed) == (0, 0), again.output
    said = [again.words.partition("CASE %d " % number)[2].partition("END")[0].strip() for number in range(len(cases))]
    same, absent, three, drags, no_exporter, exporter_again = said
    assert same == exporter_again == ""
    assert "4.9.9" in absent and OLD in absent and NEW in absent and "Nothing was changed" in absent
    assert "DCGM 3.3.9" in three and "4.4.0" in three
    assert "Inst libcuda1" in drags and "Install and pin the driver first" in drags
    assert "4.9.9" in no_exporter and "4.8.2-1" in no_exporter


def test_in_check_mode_nothing_is_installed(node):
    update = {"ansible.builtin.command": "apt-get -q update", "check_mode": False, "changed_when": False}
    foreseen = node.play([update, dcgm(R580), exporter()], "--check")
    # the packages, their holds, and the exporter
    assert (foreseen.rc, foreseen.changed, node.packages()) == (0, 3, ({}, set())), foreseen.output
