# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's machines are what the other scenarios take them for."""

import re


def test_system_is_up_with_no_failed_unit(host):
    assert host.check_output("systemctl list-units --state=failed --plain --no-legend") == ""
    assert host.file("/proc/1/comm").content_string.strip() == "systemd"


def test_login_is_unprivileged_and_may_become_root(host):
    assert host.user().name == "fleet"
    with host.sudo():
        assert host.user().name == "root"


def test_running_kernel_is_one_of_the_machine_and_has_headers(host):
    release = host.check_output("uname -r")
    assert host.file(f"/boot/vmlinuz-{release}").is_file
    assert host.file(f"/lib/modules/{release}/build/include").is_directory


def test_hardware_is_simulated_and_says_so(host):
    with host.sudo():
        description = host.file("/etc/gpusim/node.ini").content_string
    assert re.search(r"^simulated\s*=\s*1$", description, re.M)
    assert re.search(r"^gpus\s*=\s*[1-9]", description, re.M)


def test_no_driver_and_no_source_of_one_is_there_yet(host):
    installed = host.check_output("dpkg-query -W -f '${Package}\\n'").split()
    assert not [name for name in installed if "nvidia" in name or name.startswith("libcuda")]
    components = host.check_output("grep -rhE '^Components:|^Suites:' /etc/apt/sources.list.d")
    assert "non-free-firmware" in components
    assert not re.search(r"contrib|backports|non-free(?!-firmware)", components)


def test_driver_packages_of_both_versions_lie_ready(host):
    stored = host.check_output("ls /var/cache/apt/archives")
    for version in ("535.216.03-2~bpo12+1", "535.261.03-1"):
        for package in ("nvidia-kernel-dkms", "nvidia-smi", "libnvidia-ml1", "firmware-nvidia-gsp"):
            assert f"{package}_{version}_amd64.deb" in stored


def test_machines_differ_where_they_must(host):
    assert host.check_output("hostname") == host.backend.hostname
    assert re.fullmatch(r"[0-9a-f]{32}", host.file("/etc/machine-id").content_string.strip())


def test_no_password_and_no_root_login(host):
    with host.sudo():
        settings = host.check_output("sshd -T")
    assert "passwordauthentication no" in settings
    assert "permitrootlogin no" in settings
