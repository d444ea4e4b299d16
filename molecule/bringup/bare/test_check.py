# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode on machines that have nothing yet: it says what would be done, and does nothing."""

from __future__ import annotations

# The index that apt makes of its lists whenever it is asked something, and the directory that Ansible itself makes for
# the user who logs in.
ALLOWED = [r"/var/cache/apt/(src)?pkgcache\.bin", r"/home/fleet/\.ansible(/tmp)?"]


def test_check_mode_promises_changes_and_makes_none(machines, run, unchanged, boot_id):
    for host in machines.values():
        assert host.run("dpkg-query -W libnvidia-ml1").rc != 0, (
            "this needs a bare machine: python3 -m tests.lab reset up-1 up-2"
        )
    boots = {name: boot_id(host) for name, host in machines.items()}
    with unchanged(*machines.values(), allowed=ALLOWED):
        outcome = run(
            "gpufleet.lifecycle.bringup", check=True, bringup_hosts="bringup", nvidia_driver_version="535.216.03"
        )
    assert (outcome.rc, outcome.failed, outcome.unreachable) == (0, {}, {}), outcome.tail()
    for name, host in machines.items():
        assert outcome.changed[name] > 0, "a bare machine needs changes, and check mode has to say so"
        assert boot_id(host) == boots[name]
        assert host.check_output("apt-mark showhold") == ""
