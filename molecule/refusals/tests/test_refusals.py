# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input gets a clear error and changes nothing: each case run as an operator would run it, then the machine looked
at.

The driver packages are the lab's stubs (tests/lab/stubs.py); everything else on the machine is real.
"""

from __future__ import annotations

import contextlib

import pytest

from tests.lab.play import play
from tests.lab.scenario import INVENTORY, machine

NODE, BARE, CPU_ONLY = "ref-1", "ref-2", "ref-3"
GOOD = "535.216.03"


@pytest.fixture(scope="module")
def host():
    return machine(NODE)


def what_is_there(host):
    """Everything that an installation would change: packages, holds, pins, modules, DKMS, boot files."""
    return {
        "packages": host.check_output("dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'"),
        "holds": host.check_output("apt-mark showhold"),
        "apt": host.check_output("find /etc/apt /etc/modprobe.d /etc/dkms -type f -exec sha256sum {} + | sort -k2"),
        "modules": host.check_output("find /lib/modules -path '*dkms*' -exec sha256sum {} + 2>/dev/null | sort -k2"),
        "boot": host.check_output("find /boot -type f -exec sha256sum {} + | sort -k2"),
        "dkms": host.check_output("dkms status"),
    }


@contextlib.contextmanager
def untouched(host):
    before = what_is_there(host)
    yield
    after = what_is_there(host)
    assert {name: value for name, value in after.items() if value != before[name]} == {}


def driver_role(node, version, artifacts, **more):
    extra = {"gpufleet_artifact_dir": str(artifacts), "nvidia_driver_tree_dir": "", **more}
    if version is not None:
        extra["nvidia_driver_version"] = version
    return play([{"hosts": node, "become": True, "roles": ["gpufleet.lifecycle.nvidia_driver"]}], INVENTORY, extra)


@pytest.mark.parametrize(
    ("version", "says"),
    [
        pytest.param("535.1.1", ["535.1.1", "535.261.03", GOOD], id="unknown version: the available ones are named"),
        pytest.param("535.666.01", ["535.666.01", "nvidia-smi"], id="published in part: the missing package is named"),
        pytest.param("535.888.01", ["535.888.01", "550.54.14"], id="transitional package: the other branch is named"),
        pytest.param("not-a-version", ["not-a-version"], id="no version at all"),
    ],
)
def test_a_version_that_cannot_be_had_is_refused(host, artifacts, version, says):
    with untouched(host):
        outcome = driver_role(NODE, version, artifacts)
    assert outcome.rc == 2
    for text in says:
        assert text in outcome.why(NODE)


def test_an_unset_version_is_refused(host, artifacts):
    with untouched(host):
        outcome = driver_role(NODE, None, artifacts)
    assert outcome.rc == 2
    assert "nvidia_driver_version" in outcome.why(NODE)


@pytest.mark.parametrize("directory", ["/boot", "/var/cache/apt/archives"])
def test_a_file_system_without_room_is_refused(host, artifacts, directory):
    """The directory's content on a small file system of its own, so that too little is free on it and nowhere else."""
    small, used = "/run/small", int(host.check_output("du -sm %s" % directory).split()[0])
    host.run_expect([0], "mkdir -p %s && mount -t tmpfs -o size=%dm small %s" % (small, used + 20, small))
    host.run_expect(
        [0], "cp -a %s/. %s && mount --bind %s %s && umount %s" % (directory, small, small, directory, small)
    )
    try:
        with untouched(host):
            outcome = driver_role(NODE, "535.261.03", artifacts)
    finally:
        host.run_expect([0], "umount " + directory)
    assert outcome.rc == 2
    assert directory in outcome.why(NODE) and "MiB" in outcome.why(NODE)


def test_missing_kernel_headers_are_refused(host, artifacts):
    kernel = host.check_output("uname -r")
    build = "/lib/modules/%s/build" % kernel
    host.run_expect([0], "mv %s %s.away" % (build, build))
    try:
        with untouched(host):
            outcome = driver_role(NODE, "535.261.03", artifacts)
    finally:
        host.run_expect([0], "mv %s.away %s" % (build, build))
    assert outcome.rc == 2
    assert "linux-headers-" + kernel in outcome.why(NODE)


def test_an_unsupported_system_is_refused(host, artifacts):
    host.run_expect([0], "cp --remove-destination /usr/lib/os-release /etc/os-release")
    host.run_expect([0], "sed -i -e s/^ID=.*/ID=alpine/ -e s/Debian/Alpine/ /etc/os-release")
    try:
        with untouched(host):
            outcome = driver_role(NODE, "535.261.03", artifacts)
    finally:
        host.run_expect([0], "ln -sf ../usr/lib/os-release /etc/os-release")
    assert outcome.rc == 2
    assert "Alpine" in outcome.why(NODE)


def test_a_machine_without_a_gpu_is_refused(artifacts):
    with untouched(machine(CPU_ONLY)):
        outcome = driver_role(CPU_ONLY, GOOD, artifacts)
    assert outcome.rc == 2
    assert "NVIDIA" in outcome.why(CPU_ONLY) and "PCI" in outcome.why(CPU_ONLY)


def test_check_mode_on_a_machine_that_has_nothing_yet(artifacts):
    with untouched(machine(BARE)):
        extra = {"gpufleet_artifact_dir": str(artifacts), "nvidia_driver_version": GOOD}
        outcome = play("gpufleet.lifecycle.bringup", INVENTORY, extra, limit=BARE + ",localhost", check=True)
    assert (outcome.rc, outcome.failed) == (0, {})
    assert outcome.changed[BARE] > 0, "a bare machine needs changes, and check mode has to say so"


@pytest.mark.parametrize("playbook", ["bringup", "upgrade", "precheck"])
def test_an_empty_list_of_nodes_is_refused(artifacts, playbook):
    outcome = play(
        "gpufleet.lifecycle." + playbook,
        INVENTORY,
        {
            "gpufleet_artifact_dir": str(artifacts),
            "bringup_hosts": "nobody",
            "upgrade_hosts": "nobody",
            "precheck_hosts": "nobody",
            "nvidia_driver_version": GOOD,
            "rollout_version": GOOD,
        },
    )
    assert outcome.rc == 2
    assert "nobody" in outcome.why("localhost")


def test_a_node_that_cannot_be_reached_is_counted_and_reported(host, artifacts, tmp_path):
    inventory = tmp_path / "hosts.yml"
    # An address of the lab's own network that no machine has.
    inventory.write_text("gpu_nodes: {hosts: {gone-1: {lab_address: 250, ansible_ssh_timeout: 3}}}\n")
    with untouched(host):
        outcome = play(
            "gpufleet.lifecycle.upgrade",
            [INVENTORY, inventory],
            {
                "gpufleet_artifact_dir": str(artifacts),
                "rollout_version": "535.261.03",
                "upgrade_hosts": "gone-1",
                "rollout_id": "unreachable",
            },
        )
    assert outcome.rc != 0
    assert "gone-1" in outcome.output and "unreachable" in outcome.output


class TestAfterTheTransaction:
    """The package manager said yes; what counts is what is on the machine."""

    def test_a_failing_dkms_build_is_reported_with_the_end_of_its_log(self, host, artifacts):
        outcome = driver_role(NODE, "535.999.01", artifacts)
        assert outcome.rc == 2
        assert "this release does not compile" in outcome.why(NODE)

    def test_a_node_whose_next_kernel_has_no_module_is_refused_a_reboot(self, host):
        boot = host.check_output("cat /proc/sys/kernel/random/boot_id")
        audit = play(
            [
                {
                    "hosts": NODE,
                    "become": True,
                    "gather_facts": False,
                    "tasks": [
                        {
                            "gpufleet.lifecycle.driver_audit": {
                                "wanted_version": "535.999.01",
                                "require_reboot_safe": True,
                                "fail_on": [],
                            }
                        }
                    ],
                }
            ],
            INVENTORY,
        )
        assert audit.rc == 2
        assert "not safe to reboot" in audit.why(NODE)
        assert "Kernel %s has no NVIDIA kernel module on disk" % host.check_output("uname -r") in audit.why(NODE)
        assert host.check_output("cat /proc/sys/kernel/random/boot_id") == boot

    def test_the_driver_before_can_be_put_back(self, host, artifacts):
        outcome = driver_role(NODE, GOOD, artifacts)
        assert outcome.rc == 0, outcome.tail()
        assert GOOD in host.check_output("dkms status") and "535.999.01" not in host.check_output("dkms status")

    def test_packages_that_came_without_a_module_are_noticed(self, host, artifacts):
        outcome = driver_role(NODE, "535.777.01", artifacts)
        assert outcome.rc == 2
        assert "535.777.01" in outcome.why(NODE)
        assert host.package("nvidia-kernel-dkms").version.startswith("535.777.01"), "apt itself had to succeed here"
        back = driver_role(NODE, GOOD, artifacts)
        assert back.rc == 0, back.tail()
