# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with Ubuntu's prebuilt modules: they are signed, they match the running kernel, and DKMS built none."""

from __future__ import annotations

from tests.lab.ubuntu_archive import OLD, RELEASE_KERNEL, UPDATED_KERNEL, kernel_version


def test_modules_are_the_packages_own_and_signed(ubu_3):
    assert ubu_3.check_output("modinfo -F filename nvidia") == (
        "/lib/modules/%s/kernel/nvidia-570srv-open/nvidia.ko" % RELEASE_KERNEL
    )
    assert "stands in for Canonical" in ubu_3.check_output("modinfo -F signer nvidia")
    assert ubu_3.file("/sys/module/nvidia/version").content_string.strip() == OLD
    assert ubu_3.check_output("dkms status") == ""


def test_modules_of_the_kernel_are_held_and_no_others_come(ubu_3):
    names = ["linux-%s-nvidia-570-server-open-%s" % (part, RELEASE_KERNEL) for part in ("modules", "objects")]
    held = set(ubu_3.check_output("apt-mark showhold").splitlines())
    assert {*names, "linux-signatures-nvidia-" + RELEASE_KERNEL} <= held
    for name in names:
        assert ubu_3.check_output("dpkg-query -W -f '${Version}' " + name) == kernel_version(RELEASE_KERNEL)
    for name in ("linux-modules-nvidia-570-server-open-generic", "linux-image-" + UPDATED_KERNEL):
        assert "  Candidate: (none)\n" in ubu_3.check_output("LC_ALL=C apt-cache policy " + name)
    assert "nvidia" not in ubu_3.check_output("LC_ALL=C apt-get --simulate dist-upgrade --ignore-hold")
