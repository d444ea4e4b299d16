# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode on a machine that has nothing yet: it says what would be done, and does nothing."""

from __future__ import annotations

from tests.lab.rocky import packages

# What dnf and rpm write whenever they are asked, and the directory that Ansible makes for the user who logs in.
ALLOWED = [
    r"/var/cache/dnf(/.*)?",
    r"/var/lib/dnf/.*",
    r"/var/lib/rpm/.*",
    r"/var/tmp/dnf.*",
    r"/root/\.gnupg(/.*)?",
    r"/home/fleet/\.ansible(/tmp)?",
]


def test_machine_has_no_package_world_but_rpm(node):
    for program in ("apt", "apt-get", "apt-cache", "apt-mark", "dpkg", "dpkg-query", "update-initramfs"):
        assert node.run("command -v " + program).rc != 0, program
    assert node.run("python3 -c 'import apt'").rc != 0
    assert not node.file("/var/lib/dpkg").exists
    assert node.check_output("rpm -q --qf '%{VERSION}' rocky-release") == "9.5"
    assert node.check_output("uname -r") == packages.KERNELS[0] + ".x86_64"


def test_check_mode_promises_changes_and_makes_none(node, run, unchanged, boot_id):
    assert node.run("rpm -q libnvidia-ml").rc != 0, "this needs a bare machine: python3 -m tests.lab reset el9-1"
    boot = boot_id(node)
    with unchanged(node, allowed=ALLOWED):
        outcome = run(
            "gpufleet.lifecycle.bringup", check=True, bringup_hosts="rocky", nvidia_driver_version=packages.DRIVERS[0]
        )
    assert (outcome.rc, outcome.failed, outcome.unreachable) == (0, {}, {}), outcome.tail()
    assert outcome.changed["el9-1"] > 0, "a bare machine needs changes, and check mode has to say so"
    assert boot_id(node) == boot
    assert node.run("rpm -q python3-dnf-plugin-versionlock").rc != 0
