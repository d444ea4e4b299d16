# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of machines with Ubuntu's packages, ubu-1 and ubu-2 with modules by DKMS, ubu-3 with prebuilt ones: kernels
that are staged, a rollout of driver and kernel with a canary and a node that fails, the way back by hand, quarantine,
another branch. The cases build on each other.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.lab import scenario
from tests.lab.ubuntu_archive import NEW, NEXT, OLD, RELEASE_KERNEL, UPDATED_KERNEL, kernel_version

REVISION = "-0ubuntu0.24.04.1"
# What a look leaves on a machine: the index that apt makes of its lists, and the cached binding of NVML.
LOOKED = [r"/var/cache/apt/(src)?pkgcache\.bin", r"/home/fleet/\.ansible(/tmp)?", r"/root/\.ansible(/.*)?"]
# The driver's packages of a machine with modules by DKMS, and with prebuilt ones: those of one kernel.
COUNT = {"ubu-1": 8, "ubu-2": 8, "ubu-3": 9}


def report_of(artifacts, rollout):
    return json.loads((artifacts / "rollouts" / rollout / "report.json").read_text())


def states_of(artifacts, rollout):
    return {name: node["state"] for name, node in report_of(artifacts, rollout)["nodes"].items()}


def assert_runs(host, version, kernel):
    """The machine runs one version of the driver, of one branch, and it is held and alone on offer."""
    name, branch = host.backend.host.name, version.split(".")[0]
    assert host.check_output("uname -r") == kernel
    rows = [
        line.split()
        for line in host.check_output(
            "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n' '*nvidia*'"
        ).splitlines()
    ]
    # The firmware of another version is made to lie beside, and nothing takes it away.
    driver = {
        row[0]: (row[1], row[2])
        for row in rows
        if row[-1][1] == "i" and not (row[0].startswith("nvidia-firmware-") and not row[0].endswith(version))
    }
    modules = {package for package in driver if package.startswith("linux-")}
    expected = dict.fromkeys(set(driver) - modules, (version + REVISION, "hi"))
    expected.update(dict.fromkeys(modules, (kernel_version(kernel), "hi")))
    assert driver == expected and len(driver) == COUNT[name], (driver, expected)
    assert all("-%s-server" % branch in package for package in driver if "signatures" not in package)
    assert all(package.endswith(kernel) for package in modules)
    assert host.file("/sys/module/nvidia/version").content_string.strip() == version
    place = "kernel/nvidia-%ssrv-open" % branch if modules else "updates/dkms"
    assert host.check_output("modinfo -F filename nvidia") == "/lib/modules/%s/%s/nvidia.ko" % (kernel, place)
    assert host.check_output("modinfo -F version nvidia") == version
    policy = host.check_output("LC_ALL=C apt-cache policy libnvidia-compute-%s-server" % branch)
    assert "  Candidate: %s%s\n" % (version, REVISION) in policy
    assert set(host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split()) == {
        "Enabled"
    }
    assert host.check_output("dpkg --audit") == ""


def find_next_kernel(host):
    return re.search(r"^saved_entry=.*?(6\.8\.0-[0-9]+-generic)", host.check_output("grub-editenv list"), re.M)[1]


@pytest.fixture(scope="session")
def stage(run):
    """stage(hosts, driver): the kernel of the security pocket, for the driver that runs or for one that is to come."""

    def staging(hosts, driver=""):
        include = {"name": "gpufleet.lifecycle.kernel_hold", "tasks_from": "upgrade"}
        task = {"name": "Stage the kernel", "ansible.builtin.include_role": include}
        return run(
            [{"hosts": hosts, "become": True, "gather_facts": False, "tasks": [task]}],
            kernel_hold_kernel=UPDATED_KERNEL,
            kernel_hold_tree_dir="",
            kernel_hold_driver_version=driver,
        )

    return staging


def test_precheck_passes_and_changes_nothing(machines, run, artifacts, unchanged):
    with unchanged(*machines.values(), allowed=LOOKED):
        outcome = run("gpufleet.lifecycle.precheck", precheck_hosts="ubuntu", precheck_expected_driver_version=OLD)
    assert outcome.rc == 0, outcome.tail(80)
    report = json.loads((artifacts / "precheck" / "report.json").read_text())
    assert {name: node["verdict"] for name, node in report["nodes"].items()} == dict.fromkeys(machines, "pass")


def test_a_kernel_alone_becomes_the_default_where_a_module_of_the_driver_is_there_for_it(ubu_1, ubu_3, stage):
    """DKMS builds one. The archive has a prebuilt one of newer drivers alone."""
    outcome = stage("ubu-1,ubu-3")
    assert outcome.rc == 2 and set(outcome.failed) == {"ubu-3"}, outcome.tail(80)
    why = outcome.why("ubu-3")
    for words in (
        "linux-modules-nvidia-570-server-open-" + UPDATED_KERNEL,
        "there are modules for: " + RELEASE_KERNEL,
        "modules of driver " + NEW,
        "rollout_kernel",
    ):
        assert words in why, why
    assert {host.check_output("uname -r") for host in (ubu_1, ubu_3)} == {RELEASE_KERNEL}
    assert [find_next_kernel(host) for host in (ubu_1, ubu_3)] == [UPDATED_KERNEL, RELEASE_KERNEL]
    module = "/lib/modules/%s/updates/dkms/nvidia.ko" % UPDATED_KERNEL
    assert ubu_1.check_output("modinfo -F version " + module) == OLD
    held = set(ubu_1.check_output("apt-mark showhold").splitlines())
    assert {"linux-image-" + UPDATED_KERNEL, "linux-headers-" + UPDATED_KERNEL, "linux-generic"} <= held
    assert ubu_1.check_output("dpkg-query -W -f '${Version}' linux-generic") == kernel_version(UPDATED_KERNEL)
    assert_runs(ubu_3, OLD, RELEASE_KERNEL)


def test_a_kernel_is_staged_for_the_driver_that_is_to_come(ubu_2, ubu_3, stage):
    outcome = stage("ubu-2,ubu-3", NEW)
    assert outcome.rc == 0, outcome.tail(80)
    for host in (ubu_2, ubu_3):
        assert host.file("/boot/vmlinuz-" + UPDATED_KERNEL).exists and find_next_kernel(host) == RELEASE_KERNEL
        assert_runs(host, OLD, RELEASE_KERNEL)


def test_driver_and_kernel_change_together_and_a_node_that_fails_gets_both_back(
    ubu_1, ubu_2, ubu_3, run, artifacts, boot_id
):
    boots = {host: boot_id(host) for host in (ubu_1, ubu_2, ubu_3)}
    ubu_2.run_expect([0], "gpusim inject gpu-not-brought-up --gpu 1 --driver " + NEW)
    try:
        outcome = run(
            "gpufleet.lifecycle.upgrade",
            upgrade_hosts="ubuntu",
            rollout_version=NEW,
            rollout_kernel=UPDATED_KERNEL,
            rollout_canaries=["ubu-1"],
            rollout_canary_soak_s=1,
            rollout_max_down=2,
            rollout_failure_budget=2,
        )
    finally:
        ubu_2.run_expect([0], "gpusim clear")
    assert outcome.rc == 2, outcome.tail(80)
    assert states_of(artifacts, "upgrade-" + NEW) == {"ubu-1": "done", "ubu-2": "rolled_back", "ubu-3": "done"}
    assert_runs(ubu_1, NEW, UPDATED_KERNEL)
    assert_runs(ubu_2, OLD, RELEASE_KERNEL)
    assert_runs(ubu_3, NEW, UPDATED_KERNEL)
    assert find_next_kernel(ubu_2) == RELEASE_KERNEL
    assert [host for host, boot in boots.items() if boot_id(host) == boot] == []


def test_rollback_by_hand_brings_driver_and_kernel_back(ubu_1, ubu_3, run, artifacts):
    outcome = run("gpufleet.lifecycle.rollback", rollback_hosts="ubu-1,ubu-3", rollout_max_down=2)
    assert outcome.rc == 0, outcome.tail(80)
    assert states_of(artifacts, "rollback-upgrade-" + NEW) == {"ubu-1": "done", "ubu-3": "done"}
    for host in (ubu_1, ubu_3):
        assert_runs(host, OLD, RELEASE_KERNEL)


def test_playbook_holds_tells_what_is_held_and_what_that_keeps_out(machines, run):
    outcome = run("gpufleet.lifecycle.holds", holds_hosts="ubuntu", holds_max_days=1)
    assert outcome.rc == 0, outcome.tail(80)
    rows = {tuple(line.split()[:2]): line for line in outcome.output.splitlines()}
    for name in machines:
        assert NEW + REVISION in rows[name, "driver"], rows
    # The metapackages of ubu-1 have followed the kernel that was staged there.
    for name in ("ubu-2", "ubu-3"):
        assert kernel_version(UPDATED_KERNEL) in rows[name, "kernel"], rows


def test_quarantined_node_is_left_out_of_a_change_of_branch_and_kernel(ubu_1, ubu_2, ubu_3, run, artifacts):
    marker = "/var/lib/gpufleet/quarantine.json"
    outcome = run("gpufleet.lifecycle.quarantine", quarantine_hosts="ubu-1", quarantine_reason="fans are loud")
    assert outcome.rc == 0, outcome.tail(80)
    assert json.loads(ubu_1.file(marker).content_string)["reason"] == "fans are loud"
    outcome = run(
        "gpufleet.lifecycle.upgrade",
        upgrade_hosts="ubuntu",
        rollout_version=NEXT,
        rollout_kernel=UPDATED_KERNEL,
        rollout_max_down=2,
    )
    assert outcome.rc == 2, outcome.tail(80)
    assert states_of(artifacts, "upgrade-" + NEXT) == {"ubu-1": "quarantined", "ubu-2": "done", "ubu-3": "done"}
    assert_runs(ubu_1, OLD, RELEASE_KERNEL)
    for host in (ubu_2, ubu_3):
        assert_runs(host, NEXT, UPDATED_KERNEL)
    outcome = run("gpufleet.lifecycle.return_to_service", return_to_service_hosts="ubu-1")
    assert outcome.rc == 0 and not ubu_1.file(marker).exists, outcome.tail(80)


def test_metapackages_have_followed_the_kernel_and_a_second_bringup_changes_nothing(ubu_2, ubu_3, run):
    for host in (ubu_2, ubu_3):
        assert host.check_output("dpkg-query -W -f '${Version}' linux-generic") == kernel_version(UPDATED_KERNEL)
    outcome = run("gpufleet.lifecycle.bringup", bringup_hosts="ubu-2,ubu-3", nvidia_driver_version=NEXT)
    assert outcome.rc == 0 and not any(outcome.changed.values()), outcome.tail(80)


def test_what_cannot_be_had_is_refused_by_name(ubu_1):
    """A branch that has ended, and prebuilt modules that the archive has for another kernel alone."""
    for version, kind, words in (
        ("590.48.01", "dkms", "libnvidia-compute-595-server"),
        ("580.178.04", "prebuilt", "linux-modules-nvidia-580-server-" + RELEASE_KERNEL),
    ):
        outcome, result = scenario.ask(
            "ubu-1", "driver_packages", {"version": version, "kernel_module": kind}, check=True
        )
        assert outcome.rc != 0 and words in result["msg"], result["msg"]
