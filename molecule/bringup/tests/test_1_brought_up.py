# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bringup left on the machines: one driver, proven on disk and loaded, and nothing that could change it
unasked.
"""

from __future__ import annotations

import re

import pytest

VERSION = "535.216.03"
PACKAGE_VERSION = "535.216.03-2~bpo12+1"
SECURITY_VERSION = "535.309.01"
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
GPUS = {"up-1": 8, "up-2": 4}
# Lines of apt's simulation about them. What modules are compiled with, such as linux-kbuild-6.1, may be newer.
TOUCHED = r"(Inst|Remv|Conf) (\S*nvidia|libcuda|linux-(image|headers|modules))"


@pytest.fixture(scope="module")
def holds(host):
    return set(host.check_output("apt-mark showhold").splitlines())


def test_every_driver_package_is_at_exactly_the_version_and_held(host, holds):
    found = dict(
        line.split()
        for line in host.check_output("dpkg-query -W -f '${source:Package}/${Package} ${Version}\\n'").splitlines()
    )
    driver = {
        name.split("/")[1]: version for name, version in found.items() if name.startswith("nvidia-graphics-drivers/")
    }
    assert driver == dict.fromkeys(DRIVER_PACKAGES, PACKAGE_VERSION)
    assert holds >= DRIVER_PACKAGES
    assert host.check_output("dpkg --audit") == ""


def test_the_kernel_is_held(host, holds, kernel):
    assert holds >= {"linux-image-" + kernel, "linux-headers-" + kernel, "linux-image-amd64", "linux-headers-amd64"}


def test_the_pin_leaves_this_version_alone(host):
    policy = host.check_output("LC_ALL=C apt-cache policy libnvidia-ml1")
    assert SECURITY_VERSION in policy, "a newer version has to be on offer, or this proves nothing"
    assert re.search(r"^  Candidate: (.*)$", policy, re.M)[1] == PACKAGE_VERSION
    for package in ("nvidia-driver", "nvidia-tesla-470-kernel-dkms", "nvidia-open-kernel-dkms", "libnvidia-tesla-ml1"):
        candidate = re.search(r"^  Candidate: (.*)$", host.check_output("LC_ALL=C apt-cache policy " + package), re.M)[
            1
        ]
        assert candidate in ("(none)", PACKAGE_VERSION), package


def test_a_distribution_upgrade_would_touch_neither_driver_nor_kernel(host):
    simulated = host.check_output("LC_ALL=C apt-get --simulate dist-upgrade")
    assert re.search(r"^[0-9]+ upgraded, .* not upgraded\.$", simulated, re.M), (
        "apt has to have come to the end of its simulation"
    )
    assert [line for line in simulated.splitlines() if re.match(TOUCHED, line)] == []


def test_unattended_upgrades_leave_the_driver_alone_even_without_pin_and_hold(host):
    """The exclusion is a safety net of its own, so that it is looked at with the two others taken away."""
    assert host.package("unattended-upgrades").is_installed
    host.run_expect(
        [0],
        'printf \'Dir::Etc::Preferences "/dev/null";\\nDir::Etc::PreferencesParts "/nowhere";\\n\' > '
        '/run/without-pins.conf',
    )
    host.run_expect([0], "apt-mark unhold " + " ".join(DRIVER_PACKAGES))
    try:
        policy = host.check_output("APT_CONFIG=/run/without-pins.conf LC_ALL=C apt-cache policy firmware-nvidia-gsp")
        said = host.check_output("APT_CONFIG=/run/without-pins.conf LC_ALL=C unattended-upgrade --dry-run --debug 2>&1")
    finally:
        host.run_expect([0], "apt-mark hold " + " ".join(DRIVER_PACKAGES))
        host.run_expect([0], "rm /run/without-pins.conf")
    assert "Candidate: " + SECURITY_VERSION in policy, "there has to be something to keep away"
    kept_away = set(re.findall(r"PkgPin\(pkg='([^':]+)", said)) | set(
        re.findall(r"skipping blacklisted package (\S+)", said)
    )
    assert kept_away >= DRIVER_PACKAGES
    # Others are the mirror's: it moves on while the machine's image stays.
    (wanted,) = re.findall("pkgs that look like they should be upgraded: *(.*)", said)
    assert not DRIVER_PACKAGES & set(wanted.split())


def test_unattended_upgrades_leave_the_kernel_alone(host, kernel):
    excluded = re.findall(
        r'Unattended-Upgrade::Package-Blacklist:: "(.*)";',
        host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist"),
    )
    for package in ("linux-image-" + kernel, "linux-image-amd64", "linux-image-6.1.0-999-amd64", "linux-headers-amd64"):
        assert any(re.match(pattern, package) for pattern in excluded), package
    # These are released apart from the driver and keep getting their updates.
    for package in ("nvidia-persistenced", "nvidia-modprobe", "openssl"):
        assert not any(re.match(pattern, package) for pattern in excluded), package


def test_the_module_on_disk_is_for_this_kernel_and_of_this_version(host, kernel):
    files = host.check_output(
        "find /lib/modules -name 'nvidia-current*.ko*' -o -name nvidia.ko -o -path '*dkms*.ko*'"
    ).splitlines()
    assert {file.rsplit("/", 1)[1].split(".")[0] for file in files} >= {
        "nvidia-current",
        "nvidia-current-modeset",
        "nvidia-current-drm",
        "nvidia-current-uvm",
    }
    for file in files:
        assert file.startswith("/lib/modules/%s/updates/dkms/" % kernel)
        assert host.check_output("modinfo -F version " + file) == VERSION
        assert host.check_output("modinfo -F vermagic " + file).split()[0] == kernel
    assert host.check_output("dkms status") == "nvidia-current/%s, %s, x86_64: installed" % (VERSION, kernel)
    assert host.check_output("modinfo -k %s -F version nvidia-current" % kernel) == VERSION, "depmod has to know it"


def test_nouveau_is_kept_out_of_the_initramfs_too(host, kernel):
    image = "/boot/initrd.img-" + kernel
    host.run_expect([0], "rm -rf /run/initramfs-content && unmkinitramfs %s /run/initramfs-content" % image)
    try:
        content = host.check_output("find /run/initramfs-content -type f").splitlines()
        (blacklist,) = [file for file in content if file.endswith("/etc/modprobe.d/gpufleet-nouveau.conf")]
        assert "blacklist nouveau" in host.file(blacklist).content_string.splitlines()
        assert [file for file in content if re.search(r"/nouveau\.ko", file)] == []
        assert host.file(blacklist).content_string == host.file("/etc/modprobe.d/gpufleet-nouveau.conf").content_string
    finally:
        host.run_expect([0], "rm -r /run/initramfs-content")
    assert "nouveau" not in host.check_output("lsmod")


def test_the_driver_is_loaded_in_this_version(host):
    assert host.file("/sys/module/nvidia/version").content_string.strip() == VERSION
    assert VERSION in host.file("/proc/driver/nvidia/version").content_string


def test_persistence_mode_is_on_for_every_gpu(host, ask):
    name = host.backend.host.name
    assert (
        host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split()
        == ["Enabled"] * GPUS[name]
    )
    outcome, result = ask(name, "gpu_info")
    assert outcome.rc == 0
    assert (result["gpu_count"], result["snapshot"]["simulated"]) == (GPUS[name], True)
    assert [gpu["persistence_mode"]["value"] for gpu in result["snapshot"]["gpus"]] == [1] * GPUS[name]
    assert host.service("nvidia-persistenced").is_running
    assert host.service("nvidia-persistenced").is_enabled


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("/var/lib/gpufleet", 0o755),
        ("/etc/apt/apt.conf.d/52gpufleet-kernel-hold", 0o644),
        ("/etc/apt/preferences.d/gpufleet-kernel.pref", 0o644),
        ("/etc/apt/apt.conf.d/53gpufleet-nvidia-driver", 0o644),
        ("/etc/modprobe.d/gpufleet-nouveau.conf", 0o644),
        ("/run/gpufleet.lock", 0o600),
        ("/root/.ansible/tmp/gpufleet-0", 0o700),
    ],
)
def test_who_may_write_what_was_left(host, path, mode):
    file = host.file(path)
    assert (file.user, file.group, file.mode) == ("root", "root", mode)


def test_nothing_of_it_can_be_changed_by_others(host):
    places = (
        "/var/lib/gpufleet /etc/apt /etc/modprobe.d /usr/src/nvidia-current-%s /var/lib/dkms /root/.ansible" % VERSION
    )
    assert host.check_output("find %s ! -type l \\( -perm /022 -o ! -user root \\)" % places) == ""
    assert host.check_output("find /root/.ansible/tmp/gpufleet-0 -type f ! -perm 0600") == ""


def test_nothing_is_left_behind(host, kernel):
    assert (
        host.check_output("find /tmp /var/tmp -mindepth 1 -maxdepth 1 ! -name 'systemd-private-*' ! -name '.*-unix'")
        == ""
    )
    assert host.check_output("ls -A /var/lib/gpufleet").split() == [
        "dkms",
        "dkms-deferred",
        "holds.json",
        "kernel-holds.json",
        "packages",
    ]
    kept = host.check_output("ls /var/lib/gpufleet/dkms").split()
    assert [name for name in kept if name.endswith(".gz")] == kept[:1]
    assert kept[0].startswith("nvidia-current_%s_%s_" % (VERSION, kernel)) and len(kept) == 2
    assert host.check_output("ls -A /root/.ansible/tmp") == "gpufleet-0"
    assert host.run("find /home/fleet/.ansible -type f").stdout == ""
    elsewhere = (
        "find / -xdev -path /var/lib/gpufleet -prune -o \\( -name '*.dkms.tar.gz*' -o -path '/usr/share/*-dkms*' "
        "-prune \\) -print | xargs -r dpkg -S"
    )
    assert host.check_output(elsewhere + " 2>&1 >/dev/null") == ""
    assert host.check_output("ls -d /usr/src/nvidia-*") == "/usr/src/nvidia-current-" + VERSION
    assert (
        host.check_output("find /var/lib/dkms -mindepth 2 -maxdepth 2 ! -type l")
        == "/var/lib/dkms/nvidia-current/" + VERSION
    )
    assert host.run("grep -rl dkms-deferred /etc").stdout == ""
    assert host.run("flock --nonblock /run/gpufleet.lock true").rc == 0
