# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An upgrade of a rocky9-like machine to another branch whose module does not compile, and the way back."""

from __future__ import annotations

from tests.lab.rocky import packages

NODE = "el9-1"
OLD = packages.DRIVERS[0]
BROKEN = packages.BROKEN_DRIVER


def assert_runs(host, version):
    """One driver in packages, on disk and loaded, locked, of its own branch's module stream."""
    kernel = host.check_output("uname -r")
    found = set(host.check_output("rpm -qa --qf '%{VERSION}\\n' '*nvidia*'").splitlines())
    assert found == {version}
    assert f"nvidia/{version}, {kernel}, x86_64: installed" in host.check_output("dkms status").splitlines()
    assert host.check_output(f"modinfo -k {kernel} -F version nvidia") == version
    assert host.file("/sys/module/nvidia/version").content_string.strip() == version
    assert f"libnvidia-ml-3:{version}-1.el9." in host.check_output("cat /etc/dnf/plugins/versionlock.list")
    branch = version.split(".", 1)[0]
    assert f"stream={branch}-dkms" in host.check_output("cat /etc/dnf/modules.d/nvidia-driver.module")


def test_a_driver_that_does_not_compile_is_rolled_back(node, run):
    assert_runs(node, OLD)
    outcome = run("gpufleet.lifecycle.upgrade", upgrade_hosts=NODE, rollout_version=BROKEN)
    assert outcome.rc != 0
    assert_runs(node, OLD)
    assert node.run("nvidia-smi").rc == 0
    kept = node.check_output("ls /var/lib/gpufleet/packages")
    assert f"libnvidia-ml-{BROKEN}-1.el9.x86_64.rpm" in kept, "it was refused before it began"
