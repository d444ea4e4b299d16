# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bringup left on a rocky9-like machine: one driver, proven on disk and loaded, and locks that dnf obeys."""

from __future__ import annotations

import re

from tests.lab.rocky import packages

DRIVER = packages.DRIVERS[0]
VERSION = f"3:{DRIVER}-1.el9"
DRIVER_PACKAGES = {
    "kmod-nvidia-latest-dkms",
    "libnvidia-cfg",
    "libnvidia-gpucomp",
    "libnvidia-ml",
    "nvidia-driver-cuda",
    "nvidia-driver-cuda-libs",
    "nvidia-kmod-common",
    "nvidia-modprobe",
    "nvidia-persistenced",
}
KERNEL_PACKAGES = {"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-devel"}
# What a transaction of dnf would touch, in its table.
TOUCHED = r"^ (kernel|kmod-nvidia|nvidia|libnvidia|cuda-drivers)\S* +\S+ +\S+"


def test_every_driver_package_is_at_exactly_the_version_and_locked(host):
    found = host.check_output("rpm -qa --qf '%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n' '*nvidia*'").splitlines()
    assert dict(line.split() for line in found) == dict.fromkeys(DRIVER_PACKAGES, VERSION)
    locks = host.check_output("cat /etc/dnf/plugins/versionlock.list")
    for name in DRIVER_PACKAGES:
        assert f"{name}-{VERSION}." in locks


def test_the_module_stream_is_that_of_the_branch(host):
    assert "stream=570-dkms" in host.check_output("cat /etc/dnf/modules.d/nvidia-driver.module")


def test_the_kernel_is_locked(host, kernel):
    locks = host.check_output("cat /etc/dnf/plugins/versionlock.list")
    for name in KERNEL_PACKAGES:
        assert re.search(rf"^{name}-0:{re.escape(kernel[: -len('.x86_64')])}\.", locks, re.M), name


def test_the_module_on_disk_is_for_this_kernel_and_of_this_version(host, kernel):
    files = host.check_output(f"find /lib/modules/{kernel}/extra -name 'nvidia*.ko*'").splitlines()
    assert {re.sub(r"\.ko.*", "", path.rsplit("/", 1)[1]) for path in files} == {
        "nvidia" + part for part in packages.PARTS
    }
    for path in files:
        assert host.check_output("modinfo -F vermagic " + path).split()[0] == kernel
        assert host.check_output("modinfo -F version " + path) == DRIVER
    assert host.check_output("dkms status") == f"nvidia/{DRIVER}, {kernel}, x86_64: installed"


def test_the_driver_is_loaded_and_will_be_after_the_next_boot(host, kernel):
    assert host.file("/sys/module/nvidia/version").content_string.strip() == DRIVER
    assert host.check_output("grubby --default-kernel") == "/boot/vmlinuz-" + kernel
    assert "Driver Version: " + DRIVER in host.check_output("nvidia-smi")


def test_persistence_mode_is_on(host):
    assert host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split() == ["Enabled"] * 4
    assert host.service("nvidia-persistenced").is_running
    assert host.service("nvidia-persistenced").is_enabled


def test_an_update_of_everything_touches_neither_kernel_nor_driver(host):
    offered = host.check_output("dnf -q --disableplugin=versionlock repoquery --showduplicates kernel-core")
    assert packages.KERNELS[1] in offered, "the other kernel has to be on offer, or this proves nothing"
    done = host.run("LC_ALL=C dnf --assumeno update")
    assert [line for line in done.stdout.splitlines() if re.match(TOUCHED, line)] == []


def test_no_unit_failed(host):
    assert host.check_output("systemctl list-units --state=failed --plain --no-legend") == ""
