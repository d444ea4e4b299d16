# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode on machines that have nothing yet: it says what would be done, and does nothing."""

from __future__ import annotations

from tests.lab.ubuntu_archive import OLD, OTHER, RELEASE_KERNEL, UPDATED_KERNEL

# The index that apt makes of its lists whenever it is asked something, and the directory that Ansible itself makes for
# the user who logs in.
ALLOWED = [r"/var/cache/apt/(src)?pkgcache\.bin", r"/home/fleet/\.ansible(/tmp)?"]


def test_bare_machines_are_like_ubuntu_and_would_be_upgraded_by_themselves(machines):
    """What the collection has to keep off later: by themselves the machines take the kernel of the security pocket."""
    for host in machines.values():
        assert host.check_output("lsb_release --id --release --short").split() == ["Ubuntu", "24.04"]
        assert host.check_output("uname -r") == RELEASE_KERNEL
        assert "debian.org" not in host.check_output("apt-cache policy")
        planned = host.check_output("unattended-upgrade --dry-run --debug 2>&1")
        assert "linux-image-" + UPDATED_KERNEL in planned and OTHER in planned


def test_check_mode_promises_changes_and_makes_none(machines, run, unchanged, boot_id):
    for host in machines.values():
        assert host.run("dpkg-query -W 'libnvidia-compute-*'").rc != 0, (
            "this needs bare machines: python3 -m tests.lab reset ubu-1 ubu-2 ubu-3"
        )
    boots = {name: boot_id(host) for name, host in machines.items()}
    with unchanged(*machines.values(), allowed=ALLOWED):
        outcome = run("gpufleet.lifecycle.bringup", check=True, bringup_hosts="ubuntu", nvidia_driver_version=OLD)
    assert (outcome.rc, outcome.failed, outcome.unreachable) == (0, {}, {}), outcome.tail()
    for name, host in machines.items():
        assert outcome.changed[name] > 0, "a bare machine needs changes, and check mode has to say so"
        assert boot_id(host) == boots[name]
        assert host.check_output("apt-mark showhold") == ""
