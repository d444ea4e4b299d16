# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of two rocky9-like machines, in order: looked at; updated without kernel and driver; a kernel staged with
its module first; a rollout of which the canary boots that kernel with the other branch and the other node is put back;
the way back by hand; quarantine; a driver that does not compile. The cases build on each other.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.lab import scenario
from tests.lab.rocky import packages

OLD, NEW = packages.DRIVERS
BROKEN = packages.BROKEN_DRIVER
RELEASED, STAGED = (kernel + ".x86_64" for kernel in packages.KERNELS)
LOCKS = "/etc/dnf/plugins/versionlock.list"
UPDATED = packages.UPDATES[0]


def list_versions(host, *names):
    return host.check_output("rpm -q --qf '%{VERSION}-%{RELEASE}\\n' " + " ".join(names)).split()


def list_gpufleet_rpms(host):
    return host.check_output("ls /var/lib/gpufleet/packages").split()


def assert_runs(host, version, kernel=RELEASED):
    """One driver in packages, on disk and loaded, locked, of its own branch's module stream; and a kernel."""
    assert host.check_output("uname -r") == kernel
    assert host.check_output("grubby --default-kernel") == "/boot/vmlinuz-" + kernel
    found = set(host.check_output("rpm -qa --qf '%{VERSION}\\n' '*nvidia*'").splitlines())
    assert found == {version}
    assert f"nvidia/{version}, {kernel}, x86_64: installed" in host.check_output("dkms status").splitlines()
    assert host.check_output(f"modinfo -k {kernel} -F version nvidia") == version
    assert host.file("/sys/module/nvidia/version").content_string.strip() == version
    locks = host.check_output("cat " + LOCKS).splitlines()
    assert [line for line in locks if line.startswith("libnvidia-ml-")] == [f"libnvidia-ml-3:{version}-1.el9.*"]
    branch = version.split(".", 1)[0]
    assert f"stream={branch}-dkms" in host.check_output("cat /etc/dnf/modules.d/nvidia-driver.module")
    assert f"Driver Version: {version}" in host.check_output("nvidia-smi")


def read_nodes(artifacts, rollout):
    return json.loads((artifacts / "rollouts" / rollout / "report.json").read_text())["nodes"]


def test_holds_are_listed_with_what_they_keep_out(run):
    outcome = run("gpufleet.lifecycle.holds", holds_hosts="rocky")
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail()
    for name in ("el9-1", "el9-2"):
        for group in ("kernel", "driver"):
            assert re.search(rf"^{name} +{group} +0 ", outcome.output, re.M), outcome.tail()
    dummy, result = scenario.ask("el9-1", "hold_info")
    newer = {row["package"]: row["newer"] for rows in result["holds"].values() for row in rows}
    assert packages.KERNELS[1] in newer["kernel-core"] and f"3:{NEW}-1.el9" in newer["libnvidia-ml"]


def test_precheck_passes_and_changes_nothing(el9_1, el9_2, run, artifacts):
    outcome = run("gpufleet.lifecycle.precheck", precheck_hosts="rocky", precheck_expected_driver_version=OLD)
    assert (outcome.rc, outcome.failed, sum(outcome.changed.values())) == (0, {}, 0), outcome.tail(60)
    nodes = json.loads((artifacts / "precheck" / "report.json").read_text())["nodes"]
    assert {name: node["verdict"] for name, node in nodes.items()} == {"el9-1": "pass", "el9-2": "pass"}
    assert_runs(el9_1, OLD)


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ({"version": "590.48.01"}, "unknown_version"),
        ({"version": NEW, "kernel_module": "prebuilt"}, "no_prebuilt_module"),
        ({"version": NEW, "kernel_module": "prebuilt", "flavour": "open"}, "impossible_flavour"),
    ],
)
def test_driver_that_the_repository_lacks_is_refused(arguments, refusal):
    outcome, result = scenario.ask("el9-1", "driver_packages", arguments, check=True)
    assert outcome.rc != 0 and [item["id"] for item in result["refusals"]] == [refusal], result["msg"]


def test_kernel_that_the_repository_lacks_is_refused():
    arguments = {"state": "staged", "kernel": "5.14.0-999.1.1.el9_9.x86_64"}
    outcome, result = scenario.ask("el9-1", "kernel_packages", arguments, check=True)
    assert outcome.rc != 0 and "kernel-core" in result["msg"], result["msg"]


def test_locks_that_dnf_does_not_read_are_refused(el9_1):
    switch = "sed -i 's/^enabled = %d/enabled = %d/' /etc/dnf/plugins/versionlock.conf"
    el9_1.run_expect([0], switch % (1, 0))
    try:
        outcome, result = scenario.ask("el9-1", "driver_packages", {"version": OLD, "hold": True}, check=True)
        assert outcome.rc != 0 and [item["id"] for item in result["refusals"]] == ["no_hold"], result["msg"]
    finally:
        el9_1.run_expect([0], switch % (0, 1))


@pytest.mark.parametrize(
    ("machine", "command"), [("el9_1", "dnf -y -q update"), ("el9_2", "systemctl start dnf-automatic.service")]
)
def test_updates_leave_kernel_and_driver_and_bring_the_rest(machine, command, request):
    """The other kernel has no module of this driver, and the other branch's driver is none of this stream."""
    host = request.getfixturevalue(machine)
    before = list_versions(host, "kernel-core", "kernel-headers", "libnvidia-ml")
    assert list_versions(host, UPDATED.name) != [f"{UPDATED.version}-{UPDATED.release}"]
    done = host.run(command)
    assert done.rc == 0, done.stdout + done.stderr + host.run("journalctl -u dnf-automatic --no-pager").stdout
    assert list_versions(host, UPDATED.name) == [f"{UPDATED.version}-{UPDATED.release}"]
    assert list_versions(host, "kernel-core", "kernel-headers", "libnvidia-ml") == before
    assert host.check_output("ls /lib/modules") == RELEASED
    assert_runs(host, OLD)


def test_another_kernel_is_the_default_once_its_module_is_proven(el9_1, run, boot_id):
    boot = boot_id(el9_1)
    include = {"name": "gpufleet.lifecycle.kernel_hold", "tasks_from": "upgrade"}
    task = {"name": "Stage the kernel", "ansible.builtin.include_role": include}
    outcome = run(
        [{"hosts": "el9-1", "become": True, "gather_facts": False, "tasks": [task]}],
        kernel_hold_kernel=STAGED,
        kernel_hold_tree_dir="",
    )
    assert outcome.rc == 0, outcome.tail(60)
    assert el9_1.check_output("grubby --default-kernel") == "/boot/vmlinuz-" + STAGED
    assert el9_1.check_output(f"modinfo -k {STAGED} -F version nvidia") == OLD
    assert (boot_id(el9_1), el9_1.check_output("uname -r")) == (boot, RELEASED)
    locks = el9_1.check_output("cat " + LOCKS)
    for name in ("kernel-core", "kernel-modules", "kernel-modules-core", "kernel-devel"):
        assert set(list_versions(el9_1, name)) == set(packages.KERNELS), "it is installed beside the one that runs"
        assert f"{name}-0:{packages.KERNELS[1]}." in locks


def test_rollout_boots_the_canary_with_both_and_puts_a_failing_node_back(el9_1, el9_2, run, artifacts):
    el9_2.run_expect([0], "gpusim inject gpu-not-brought-up --gpu 1 --driver " + NEW)
    try:
        outcome = run(
            "gpufleet.lifecycle.upgrade",
            upgrade_hosts="el9-1,el9-2",
            rollout_version=NEW,
            rollout_canaries=["el9-1"],
            rollout_canary_soak_s=1,
        )
    finally:
        el9_2.run_expect([0], "gpusim clear")
    assert outcome.rc == 2, outcome.tail(80)
    nodes = read_nodes(artifacts, "upgrade-" + NEW)
    assert {name: node["state"] for name, node in nodes.items()} == {"el9-1": "done", "el9-2": "rolled_back"}
    assert_runs(el9_1, NEW, STAGED)
    assert_runs(el9_2, OLD)


def test_rollback_by_hand_brings_driver_stream_and_kernel_back(el9_1, run, artifacts):
    outcome = run("gpufleet.lifecycle.rollback", rollback_hosts="el9-1")
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    assert read_nodes(artifacts, "rollback-upgrade-" + NEW)["el9-1"]["state"] == "done"
    assert_runs(el9_1, OLD)


def test_quarantined_node_returns_when_it_is_proven(el9_2, run):
    outcome = run("gpufleet.lifecycle.quarantine", quarantine_hosts="el9-2", quarantine_reason="fan")
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail()
    assert json.loads(el9_2.check_output("cat /var/lib/gpufleet/quarantine.json"))["reason"] == "fan"
    outcome = run("gpufleet.lifecycle.return_to_service", return_to_service_hosts="el9-2")
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(60)
    assert not el9_2.file("/var/lib/gpufleet/quarantine.json").exists


def test_a_driver_that_does_not_compile_is_rolled_back(el9_2, run, artifacts):
    outcome = run("gpufleet.lifecycle.upgrade", upgrade_hosts="el9-2", rollout_version=BROKEN)
    assert outcome.rc == 2, outcome.tail(80)
    assert read_nodes(artifacts, "upgrade-" + BROKEN)["el9-2"]["state"] == "rolled_back"
    assert f"libnvidia-ml-{BROKEN}-1.el9.x86_64.rpm" in list_gpufleet_rpms(el9_2), "it was refused before it began"
    assert_runs(el9_2, OLD)
