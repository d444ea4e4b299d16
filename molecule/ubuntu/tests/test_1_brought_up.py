# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bringup left on machines that are like Ubuntu 24.04: one driver of Ubuntu's server branch, built and loaded, and
nothing that could change it or the kernel unasked.
"""

from __future__ import annotations

import re

from tests.lab.ubuntu_archive import NEW, OLD, OTHER, OTHER_NEW, RELEASE_KERNEL, UPDATED_KERNEL

REVISION = "-0ubuntu0.24.04.1"
DRIVER_PACKAGES = {
    "libnvidia-cfg1-570-server",
    "libnvidia-compute-570-server",
    "nvidia-compute-utils-570-server",
    "nvidia-dkms-570-server",
    "nvidia-firmware-570-server-" + OLD,
    "nvidia-kernel-common-570-server",
    "nvidia-kernel-source-570-server",
    "nvidia-utils-570-server",
}
KERNEL_PACKAGES = {
    *(name + RELEASE_KERNEL for name in ("linux-image-", "linux-headers-", "linux-modules-")),
    *("linux-generic", "linux-image-generic", "linux-headers-generic"),
}
TOUCHED = r"(Inst|Remv|Conf) (\S*nvidia|linux-(image|headers|modules|generic))"


def test_every_driver_package_is_of_one_version_and_held(host):
    found = dict(line.split() for line in host.check_output("dpkg-query -W -f '${Package} ${Version}\\n'").splitlines())
    driver = {name: version for name, version in found.items() if "nvidia" in name}
    assert driver == dict.fromkeys(DRIVER_PACKAGES, OLD + REVISION)
    assert DRIVER_PACKAGES | KERNEL_PACKAGES <= set(host.check_output("apt-mark showhold").splitlines())
    assert host.check_output("dpkg --audit") == ""


def test_the_module_was_built_for_the_kernel_that_runs_and_is_loaded(host, kernel):
    assert kernel == RELEASE_KERNEL
    assert host.check_output("dkms status") == "nvidia-srv/%s, %s, x86_64: installed" % (OLD, RELEASE_KERNEL)
    module = "/lib/modules/%s/updates/dkms/nvidia.ko" % RELEASE_KERNEL
    assert host.check_output("modinfo -F license " + module) == "NVIDIA"
    assert host.file("/sys/module/nvidia/version").content_string.strip() == OLD
    link = host.check_output("readlink -f /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    assert link == "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so." + OLD


def test_persistence_mode_is_on_although_ubuntus_unit_leaves_it_off(host):
    assert host.service("nvidia-persistenced").is_running and host.service("nvidia-persistenced").is_enabled
    assert set(host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split()) == {
        "Enabled"
    }


def test_no_other_branch_version_or_kernel_comes_by_apt(host):
    for package, version in (
        ("libnvidia-compute-570-server", OLD + REVISION),
        ("libnvidia-compute-580-server", "(none)"),
        ("nvidia-driver-595-server-open", "(none)"),
        ("nvidia-headless-590-server", "(none)"),
        ("linux-image-" + UPDATED_KERNEL, "(none)"),
        ("linux-modules-nvidia-580-server-open-generic", "(none)"),
    ):
        policy = host.check_output("LC_ALL=C apt-cache policy " + package)
        assert re.search(r"^  Candidate: (.*)$", policy, re.M)[1] == version, package
        assert "noble-security" in policy or package.endswith(("590-server", "595-server-open"))
    for options in ("", "--ignore-hold"):
        simulated = host.check_output("LC_ALL=C apt-get --simulate %s dist-upgrade" % options)
        assert [line for line in simulated.splitlines() if re.match(TOUCHED, line)] == []


def test_unattended_upgrades_bring_what_is_no_driver_or_kernel(host):
    """Before bringup they would have brought the kernel of the security pocket, for which there is no module
    (bare/test_check.py).
    """

    def read_packages():
        text = host.check_output("dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'")
        return {line.split()[0]: line.split()[1:] for line in text.splitlines()}

    before = read_packages()
    host.run_expect([0], "unattended-upgrade --debug")
    after = read_packages()
    assert {name: state[0] for name, state in after.items() if before.get(name) != state} == {OTHER: OTHER_NEW}
    assert set(before) == set(after)


def test_unattended_upgrades_exclude_driver_and_kernel_by_name(host):
    told = host.check_output("unattended-upgrade --dry-run --debug 2>&1")
    [planned] = re.findall(
        r"^(?:pkgs that look like they should be upgraded|Packages that will be upgraded): ?(.*)$", told, re.M
    )
    assert not re.search("nvidia|linux-", planned)
    assert NEW in host.check_output("apt-cache madison nvidia-utils-570-server"), "the newer version has to be on offer"
    excluded = re.findall(
        r'Unattended-Upgrade::Package-Blacklist:: "(.*)";',
        host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist"),
    )
    for package in DRIVER_PACKAGES | KERNEL_PACKAGES:
        assert any(re.match(pattern, package) for pattern in excluded), package
