# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A bare machine has no plugin versionlock: the first hold installs it, where a repository offers it."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import dnf, package_act
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.kernel_packages import KernelPackages
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_plan import Plan
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_state import State, Wish

PLUGIN = "python3-dnf-plugin-versionlock"
INSTALLS = "install " + PLUGIN


class Machine:
    """dnf's answers, and the plugin's files once it is installed."""

    def __init__(self, root, is_offered=True, brings_files=True):
        self.root, self.is_offered, self.brings_files, self.log = root, is_offered, brings_files, []

    def __call__(self, argv, timeout=300):
        self.log.append(list(argv))
        if "repoquery" in argv:
            return 0, PLUGIN + "\n" if self.is_offered else "", ""
        if argv[0] == "dnf" and argv[-1] == PLUGIN and self.brings_files:
            path = self.root / "etc/dnf/plugins/versionlock.conf"
            path.parent.mkdir(parents=True)
            path.write_text("[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n")
        return 0, "", ""

    def installs(self):
        return [argv for argv in self.log if argv[-1] == PLUGIN and "install" in argv]


def manager(machine):
    return dnf.Dnf(machine, root=str(machine.root))


def test_missing_plugin_is_no_problem_where_a_repository_offers_it(tmp_path):
    machine = Machine(tmp_path)
    assert manager(machine).hold_problem() is None
    assert machine.installs() == []


def test_missing_plugin_that_no_repository_offers_is_refused(tmp_path):
    assert PLUGIN in manager(Machine(tmp_path, is_offered=False)).hold_problem()[1]


def test_first_hold_installs_the_plugin_and_nothing_of_kernel_or_driver_with_it(tmp_path):
    machine = Machine(tmp_path)
    manager(machine).mark("hold", ["kernel-core"])
    (command,) = machine.installs()
    assert {"--exclude=kernel*", "--exclude=*nvidia*", "--setopt=install_weak_deps=False", "-y"} <= set(command)
    assert (tmp_path / "etc/dnf/plugins/versionlock.list").exists()


def test_second_hold_installs_nothing(tmp_path):
    machine = Machine(tmp_path)
    manager(machine).mark("hold", ["kernel-core"])
    manager(machine).mark("hold", ["kernel-core"])
    assert len(machine.installs()) == 1


def test_lifting_a_hold_installs_nothing(tmp_path):
    machine = Machine(tmp_path)
    manager(machine).mark("unhold", ["kernel-core"])
    assert machine.installs() == []


@pytest.mark.parametrize("is_acting", [False, True])
def test_first_hold_of_the_kernel_reports_that_it_installs_the_plugin(tmp_path, is_acting):
    machine = Machine(tmp_path)
    params = {"patterns": ["kernel-core"], "state": "held", "exclude_unattended": False}
    task = KernelPackages(params, manager(machine), machine, str(tmp_path))
    for expected in (
        [INSTALLS, "hold kernel-core"],
        ["hold kernel-core"] if is_acting else [INSTALLS, "hold kernel-core"],
    ):
        task.actions = []
        task.mark("hold", ["kernel-core"], is_acting)
        assert task.actions == expected
    assert len(machine.installs()) == int(is_acting)


def test_first_hold_of_the_driver_reports_that_it_installs_the_plugin(tmp_path):
    machine = Machine(tmp_path)
    state = State("dnf", lock_package=manager(machine).find_lock_package())
    foreseen = package_act.foresee_actions(Plan(state, Wish(state="present"), hold=("nvidia-modprobe",)))
    assert foreseen == [INSTALLS, "hold nvidia-modprobe"]
    assert package_act.foresee_actions(Plan(state, Wish(state="present"), lift=("nvidia-modprobe",))) == [
        "lift the hold of nvidia-modprobe"
    ]


@pytest.mark.parametrize(
    ("path", "text", "is_read"),
    [
        ("etc/dnf/plugins/versionlock.conf", "[main]\nenabled = 1\n", True),
        ("etc/dnf/plugins/versionlock.conf", "[main]\nenabled = 0\n", False),
        ("etc/dnf/plugins/versionlock.conf", "[main]\nenabled=Off\n", False),
        ("etc/dnf/dnf.conf", "[main]\nplugins=1\n", True),
        ("etc/dnf/dnf.conf", "[main]\nplugins=False\n", False),
    ],
)
def test_locks_that_dnf_does_not_read_are_a_problem(tmp_path, path, text, is_read):
    machine = Machine(tmp_path)
    manager(machine).install_lock_plugin()
    (tmp_path / path).write_text(text)
    (tmp_path / "etc/dnf/plugins/versionlock.list").write_text("kernel-core-0:5-1.*\n")
    problem = manager(machine).hold_problem()
    assert problem is None if is_read else str(path) in problem[1]
    assert manager(machine).locks() == (["kernel-core-0:5-1.*"] if is_read else [])


def test_plugin_that_did_not_come_is_an_error_and_no_lock_is_written(tmp_path):
    machine = Machine(tmp_path, brings_files=False)
    with pytest.raises(dnf.DnfError):
        manager(machine).mark("hold", ["kernel-core"])
    assert not (tmp_path / "etc/dnf/plugins/versionlock.list").exists()
