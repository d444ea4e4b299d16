# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode on machines that have nothing yet: it says what would be done, and does nothing."""

from __future__ import annotations

import re

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


def test_machine_has_no_package_world_but_rpm(host):
    for program in ("apt", "apt-get", "apt-cache", "apt-mark", "dpkg", "dpkg-query", "update-initramfs"):
        assert host.run("command -v " + program).rc != 0, program
    assert host.run("python3 -c 'import apt'").rc != 0
    assert not host.file("/var/lib/dpkg").exists
    assert host.check_output("rpm -q --qf '%{VERSION}' rocky-release") == "9.5"
    assert host.check_output("uname -r") == packages.KERNELS[0] + ".x86_64"


def test_bare_machine_would_take_another_kernel_by_itself(host):
    """What the collection has to keep off later."""
    planned = host.run("LC_ALL=C dnf --assumeno update").stdout
    assert re.search(rf"^ kernel-core +x86_64 +{re.escape(packages.KERNELS[1])}", planned, re.M), planned


def test_check_mode_promises_changes_and_makes_none(el9_1, el9_2, run, unchanged, boot_id):
    machines = {"el9-1": el9_1, "el9-2": el9_2}
    for host in machines.values():
        assert host.run("rpm -q libnvidia-ml").rc != 0, (
            "this needs bare machines: python3 -m tests.lab reset el9-1 el9-2"
        )
    boots = {name: boot_id(host) for name, host in machines.items()}
    with unchanged(*machines.values(), allowed=ALLOWED):
        outcome = run(
            "gpufleet.lifecycle.bringup", check=True, bringup_hosts="rocky", nvidia_driver_version=packages.DRIVERS[0]
        )
    assert (outcome.rc, outcome.failed, outcome.unreachable) == (0, {}, {}), outcome.tail()
    for name, host in machines.items():
        assert outcome.changed[name] > 0, "a bare machine needs changes, and check mode has to say so"
        assert boot_id(host) == boots[name]
        assert host.run("rpm -q python3-dnf-plugin-versionlock").rc != 0
