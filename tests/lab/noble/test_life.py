# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a node of Ubuntu 24.04: brought up with 535-server, taken to 580-server and back. In this order."""

from __future__ import annotations

import json
import re

from tests.lab import scenario
from tests.lab.config import DRIVER_VERSIONS
from tests.lab.disk import unchanged_but
from tests.lab.suites import named, upstream

NAME = "ubuntu24-1"
OLD, NEW = DRIVER_VERSIONS["noble"]
SETS = {
    "libnvidia-cfg1-{branch}-server",
    "libnvidia-compute-{branch}-server",
    "nvidia-compute-utils-{branch}-server",
    "nvidia-dkms-{branch}-server",
    "nvidia-kernel-common-{branch}-server",
    "nvidia-kernel-source-{branch}-server",
    "nvidia-utils-{branch}-server",
}
# What reading leaves behind: apt's index of its lists, Ansible's own directories.
READING = [r"/var/cache/apt/(src)?pkgcache\.bin", r"/(home/fleet|root)/\.ansible(/tmp)?"]


def package_set(version):
    return {named(name, version) for name in SETS} | {
        "nvidia-firmware-%s-server-%s" % (named("{branch}", version), upstream(version))
    }


def assert_runs(host, version):
    """The machine itself says that it has this driver, whole, and keeps it."""
    driver, kernel = upstream(version), host.check_output("uname -r")
    shown = host.check_output(
        "dpkg-query -W -f '${source:Package} ${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n'"
    ).splitlines()
    rows = [row.split() for row in shown if row.startswith("nvidia-graphics-drivers-")]
    assert {row[1]: tuple(row[2:]) for row in rows if row[4] == "installed"} == dict.fromkeys(
        package_set(version), (version, "hold", "installed")
    )
    held = set(host.check_output("apt-mark showhold").splitlines())
    assert held >= {"linux-%s-%s" % (what, which) for what in ("image", "headers") for which in (kernel, "virtual")}
    assert host.check_output("dpkg --audit") == ""
    # Nothing that apt or unattended-upgrades would do by itself touches driver or kernel.
    simulated = host.check_output("LC_ALL=C apt-get --simulate dist-upgrade")
    assert [
        row
        for row in simulated.splitlines()
        if re.match("(Inst|Remv|Conf) .*(nvidia|linux-(image|headers|modules))", row)
    ] == []
    policy = host.check_output("LC_ALL=C apt-cache policy " + named("libnvidia-compute-{branch}-server", version))
    assert re.search(r"^  Candidate: (.*)$", policy, re.M)[1] == version
    excluded = re.findall(
        r'Unattended-Upgrade::Package-Blacklist:: "(.*)";',
        host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist"),
    )
    for package in (*package_set(version), "linux-image-" + kernel, "linux-image-virtual", "linux-headers-virtual"):
        assert any(re.match(pattern, package) for pattern in excluded), package
    # Built for every kernel that can boot, compressed as Ubuntu's own modules are, and known to depmod.
    for each in host.check_output("ls /boot | sed -n 's/^vmlinuz-//p'").split():
        assert "nvidia-srv/%s, %s, x86_64: installed" % (driver, each) in host.check_output("dkms status").splitlines()
        directory = "/lib/modules/%s/updates/dkms/" % each
        assert set(host.check_output("ls " + directory).split()) == {
            "nvidia%s.ko.zst" % part for part in ("", "-modeset", "-drm", "-uvm", "-peermem")
        }
        assert host.check_output("modinfo -k %s -F version nvidia" % each) == driver
    assert len(host.check_output("dkms status").splitlines()) == len(
        host.check_output("ls /boot | sed -n 's/^vmlinuz-//p'").split()
    )
    # Loaded, and at work.
    assert host.file("/sys/module/nvidia/version").content_string.strip() == driver
    assert driver in host.file("/proc/driver/nvidia/version").content_string
    assert "Driver Version: " + driver in host.check_output("nvidia-smi")
    modes = host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split()
    assert modes == ["Enabled"] * 2
    assert host.service("nvidia-persistenced").is_running
    assert "--no-persistence-mode" not in host.check_output("systemctl show -P ExecStart nvidia-persistenced")
    assert host.check_output("systemctl list-units --state=failed --plain --no-legend") == ""


def assert_told(artifacts, rollout, before, after):
    report = json.loads((artifacts / "rollouts" / rollout / "report.json").read_text())
    told = report["nodes"][NAME]
    assert (told["from"], told["to"], told["state"]) == (before, after, "done")
    assert report["verdict"] == "complete" and "reboot" in " ".join(step["name"] for step in told["steps"])
    assert all(step["status"] == "ok" for step in told["steps"])


def test_check_mode_promises_changes_and_makes_none(node, run):
    assert node.run("dpkg-query -W nvidia-dkms-535-server").rc != 0, "this needs a bare machine"
    assert 'VERSION_ID="24.04"' in node.check_output("cat /etc/os-release")
    boot = scenario.boot_id(node)
    with unchanged_but(node, allowed=READING):
        outcome = run("bringup", check=True, nvidia_driver_version=OLD)
    assert (outcome.rc, outcome.failed, outcome.unreachable) == (0, {}, {}), outcome.tail()
    assert outcome.changed[NAME] > 0 and scenario.boot_id(node) == boot


def test_bringup(node, run):
    outcome = run("bringup", nvidia_driver_version=OLD)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    assert_runs(node, OLD)


def test_a_second_run_changes_nothing(node, run):
    boot = scenario.boot_id(node)
    outcome = run("bringup", nvidia_driver_version=OLD)
    assert (outcome.rc, outcome.changed.get(NAME, 0)) == (0, 0), outcome.tail(80)
    assert scenario.boot_id(node) == boot


def test_a_driver_that_exists_in_name_only_is_refused(node, run):
    """What the archive has of 535-server since: packages without content that depend on those of 580-server."""
    boot = scenario.boot_id(node)
    offered = node.check_output("apt-cache madison nvidia-dkms-535-server").splitlines()
    (version,) = {row.split("|")[1].strip() for row in offered} - {OLD}
    outcome = run("upgrade", rollout_version=version)
    assert outcome.rc == 2 and "exists in name only" in outcome.why(NAME), outcome.tail(80)
    assert scenario.boot_id(node) == boot
    assert_runs(node, OLD)


def test_upgrade_to_another_branch_reboots_into_it(node, run, artifacts):
    boot = scenario.boot_id(node)
    outcome = run("upgrade", rollout_version=NEW)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    assert scenario.boot_id(node) != boot
    assert_runs(node, NEW)
    assert_told(artifacts, "upgrade-" + NEW, OLD, NEW)


def test_rollback(node, run, artifacts):
    boot = scenario.boot_id(node)
    outcome = run("rollback", rollback_hosts=NAME)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    assert scenario.boot_id(node) != boot
    assert_runs(node, OLD)
    assert_told(artifacts, "rollback-upgrade-" + NEW, NEW, OLD)
