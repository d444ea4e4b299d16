# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of machines with Ubuntu's packages: a rollout with a canary and a node that fails, and a kernel that is
staged with its module first. The cases build on each other.
"""

from __future__ import annotations

import json

from tests.lab import scenario
from tests.lab.ubuntu_archive import NEW, OLD, RELEASE_KERNEL, UPDATED_KERNEL, kernel_version

REVISION = "-0ubuntu0.24.04.1"


def report_of(artifacts, rollout):
    return json.loads((artifacts / "rollouts" / rollout / "report.json").read_text())


def assert_runs(host, version):
    """The machine runs one version of the driver, of one branch, and it is held and alone on offer."""
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
    assert len(driver) == 8 and set(driver.values()) == {(version + REVISION, "hi")}
    branch = version.split(".")[0]
    assert all("-%s-server" % branch in name for name in driver)
    assert host.file("/sys/module/nvidia/version").content_string.strip() == version
    module = "/lib/modules/%s/updates/dkms/nvidia.ko" % host.check_output("uname -r")
    assert host.check_output("modinfo -F version " + module) == version
    policy = host.check_output("LC_ALL=C apt-cache policy libnvidia-compute-%s-server" % branch)
    assert "  Candidate: %s%s\n" % (version, REVISION) in policy
    assert set(host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split()) == {
        "Enabled"
    }
    assert host.check_output("dpkg --audit") == ""


def test_a_node_that_the_new_driver_does_not_bring_up_is_put_back_after_the_canary(ubu_1, ubu_2, run, artifacts):
    ubu_2.run_expect([0], "gpusim inject gpu-not-brought-up --gpu 1 --driver " + NEW)
    try:
        outcome = run(
            "gpufleet.lifecycle.upgrade",
            upgrade_hosts="ubu-1,ubu-2",
            rollout_version=NEW,
            rollout_canaries=["ubu-1"],
            rollout_canary_soak_s=1,
        )
    finally:
        ubu_2.run_expect([0], "gpusim clear")
    assert outcome.rc == 2, outcome.tail(80)
    nodes = report_of(artifacts, "upgrade-" + NEW)["nodes"]
    assert {name: node["state"] for name, node in nodes.items()} == {"ubu-1": "done", "ubu-2": "rolled_back"}
    assert_runs(ubu_1, NEW)
    assert_runs(ubu_2, OLD)


def test_a_kernel_becomes_the_default_when_its_module_is_proven(ubu_2, run):
    include = {"name": "gpufleet.lifecycle.kernel_hold", "tasks_from": "upgrade"}
    task = {"name": "Stage the kernel", "ansible.builtin.include_role": include}
    outcome = run(
        [{"hosts": "ubu-2", "become": True, "gather_facts": False, "tasks": [task]}],
        kernel_hold_kernel=UPDATED_KERNEL,
        kernel_hold_tree_dir="",
    )
    assert outcome.rc == 0, outcome.tail(80)
    module = "/lib/modules/%s/updates/dkms/nvidia.ko" % UPDATED_KERNEL
    assert ubu_2.check_output("modinfo -F version " + module) == OLD
    assert ubu_2.check_output("uname -r") == RELEASE_KERNEL
    held = set(ubu_2.check_output("apt-mark showhold").splitlines())
    assert {"linux-image-" + UPDATED_KERNEL, "linux-headers-" + UPDATED_KERNEL, "linux-generic"} <= held
    assert ubu_2.check_output("dpkg-query -W -f '${Version}' linux-generic") == kernel_version(UPDATED_KERNEL)


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
