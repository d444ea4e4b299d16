# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode on machines that have nothing yet: it says what would be done, and does nothing."""

from __future__ import annotations

# The index that apt makes of its lists whenever it is asked something, and the directory that Ansible itself makes for
# the user who logs in.
ALLOWED = [r"/var/cache/apt/(src)?pkgcache\.bin", r"/home/fleet/\.ansible(/tmp)?"]
VERSION = "550.163.01-2"


def test_check_mode_promises_changes_and_makes_none(machines, run, unchanged, boot_id):
    for host in machines.values():
        assert host.run("dpkg-query -W libnvidia-ml1").rc != 0, (
            "this needs bare machines: python3 -m tests.lab reset deb13-1 deb13-2"
        )
        assert host.check_output("cat /etc/debian_version").startswith("13")
    boots = {name: boot_id(host) for name, host in machines.items()}
    with unchanged(*machines.values(), allowed=ALLOWED):
        outcome = run(
            "gpufleet.lifecycle.bringup", VERSION, check=True, bringup_hosts="trixie", nvidia_driver_version=VERSION
        )
    assert (outcome.rc, outcome.failed, outcome.unreachable) == (0, {}, {}), outcome.tail()
    for name, host in machines.items():
        assert outcome.changed[name] > 0, "a bare machine needs changes, and check mode has to say so"
        assert boot_id(host) == boots[name]
        assert host.check_output("apt-mark showhold") == ""
