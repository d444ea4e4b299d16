# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bringup left on machines of Debian 13: one revision of one driver, proven on disk and loaded, and nothing that
could change it unasked.
"""

from __future__ import annotations

import re

DRIVER = "550.163.01"
VERSION = "550.163.01-2"
DRIVER_PACKAGES = {
    "firmware-nvidia-gsp",
    "libcuda1",
    "libnvidia-cfg1",
    "libnvidia-ml1",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler1",
    "nvidia-alternative",
    "nvidia-kernel-dkms",
    "nvidia-kernel-support",
    "nvidia-legacy-check",
    "nvidia-smi",
}
# Lines of apt's simulation about them. What modules are compiled with, such as linux-kbuild-6.1, may be newer.
TOUCHED = r"(Inst|Remv|Conf) (\S*nvidia|libcuda|linux-(image|headers|modules))"


def test_the_system_is_debian_13_with_its_own_dkms_and_python(host, kernel):
    assert host.check_output("cat /etc/debian_version").startswith("13")
    assert re.match(r"dkms-3\.[1-9]", host.check_output("dkms --version"))
    assert host.check_output("python3 --version").startswith("Python 3.13")
    assert re.fullmatch(r"6\.12\.[0-9]+\+deb13-amd64", kernel)


def test_every_driver_package_is_at_exactly_the_revision_and_held(host):
    found = dict(
        line.split()
        for line in host.check_output("dpkg-query -W -f '${source:Package}/${Package} ${Version}\\n'").splitlines()
    )
    driver = {
        name.split("/")[1]: version for name, version in found.items() if name.startswith("nvidia-graphics-drivers/")
    }
    assert driver == dict.fromkeys(DRIVER_PACKAGES, VERSION)
    assert set(host.check_output("apt-mark showhold").splitlines()) >= DRIVER_PACKAGES
    assert host.check_output("dpkg --audit") == ""


def test_the_kernel_is_held(host, kernel):
    held = set(host.check_output("apt-mark showhold").splitlines())
    assert held >= {"linux-image-" + kernel, "linux-headers-" + kernel, "linux-image-amd64", "linux-headers-amd64"}


def test_the_pin_leaves_this_revision_alone(host):
    policy = host.check_output("LC_ALL=C apt-cache policy libnvidia-ml1")
    assert "550.163.01-4~bpo13+1" in policy, "the other revision has to be on offer, or this proves nothing"
    assert re.search(r"^  Candidate: (.*)$", policy, re.M)[1] == VERSION
    simulated = host.check_output("LC_ALL=C apt-get --simulate dist-upgrade")
    assert [line for line in simulated.splitlines() if re.match(TOUCHED, line)] == []


def test_unattended_upgrades_leave_driver_and_kernel_alone(host, kernel):
    excluded = re.findall(
        r'Unattended-Upgrade::Package-Blacklist:: "(.*)";',
        host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist"),
    )
    for package in (*DRIVER_PACKAGES, "linux-image-" + kernel, "linux-image-amd64", "linux-headers-amd64"):
        assert any(re.match(pattern, package) for pattern in excluded), package
    for package in ("nvidia-persistenced", "nvidia-modprobe", "openssl"):
        assert not any(re.match(pattern, package) for pattern in excluded), package


def test_the_module_on_disk_is_compressed_for_this_kernel_and_of_this_version(host, kernel):
    files = host.check_output("find /lib/modules/ -name '*nvidia*.ko*' -path '*dkms*'").splitlines()
    assert {file.rsplit("/", 1)[1] for file in files} == {
        "nvidia-current%s.ko.xz" % part for part in ("", "-modeset", "-drm", "-uvm", "-peermem")
    }
    for file in files:
        assert file.startswith("/lib/modules/%s/updates/dkms/" % kernel)
        assert host.check_output("modinfo -F vermagic " + file).split()[0] == kernel
    assert host.check_output("modinfo -F version /lib/modules/%s/updates/dkms/nvidia-current.ko.xz" % kernel) == DRIVER
    assert host.check_output("modinfo -k %s -F version nvidia-current" % kernel) == DRIVER, "depmod has to know it"
    assert host.check_output("dkms status") == "nvidia-current/%s, %s, x86_64: installed" % (DRIVER, kernel)


def test_the_driver_is_loaded_and_will_be_after_the_next_boot(host, kernel):
    assert host.file("/sys/module/nvidia/version").content_string.strip() == DRIVER
    assert DRIVER in host.file("/proc/driver/nvidia/version").content_string
    newest = host.check_output("ls -v /boot/vmlinuz-* | tail -n 1")
    assert newest == "/boot/vmlinuz-" + kernel, "the kernel that boots next is the one that has the module"
    assert "Driver Version: " + DRIVER in host.check_output("nvidia-smi")


def test_persistence_mode_is_on(host):
    assert host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split() == ["Enabled"] * 4
    assert host.service("nvidia-persistenced").is_running
    assert host.service("nvidia-persistenced").is_enabled


def test_nouveau_is_kept_out_of_the_initramfs_too(host, kernel):
    content = host.check_output("lsinitramfs /boot/initrd.img-" + kernel).splitlines()
    assert "etc/modprobe.d/gpufleet-nouveau.conf" in content, "written by the role"
    assert [file for file in content if "/nouveau.ko" in file] == []


def test_sources_are_in_the_form_of_this_release(host):
    assert host.run("grep -rhE '^ *deb ' /etc/apt/sources.list /etc/apt/sources.list.d").stdout == ""
    assert "Types: deb" in host.check_output("cat /etc/apt/sources.list.d/*.sources")
    assert host.check_output("systemctl list-units --state=failed --plain --no-legend") == ""
