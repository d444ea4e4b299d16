# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From one revision of the driver's packages to the other and back.

Both are driver 550.163.01; their patches differ, and so do the modules.
"""

from __future__ import annotations

import json

from tests.lab import scenario
from tests.lab.config import CHECKOUT, DRIVER_VERSIONS

OLD, NEW = DRIVER_VERSIONS["trixie"]
DRIVER = "550.163.01"


def modules(host):
    """The source of the driver's modules: what is loaded, and what is on disk for the kernel that runs."""
    loaded = dict(
        line.split(":")
        for line in host.check_output("cd /sys/module && grep -H . nvidia*/srcversion")
        .replace("/srcversion", "")
        .splitlines()
    )
    directory = "/lib/modules/%s/updates/dkms/" % host.check_output("uname -r")
    names = {name: "nvidia-current" + name[len("nvidia") :].replace("_", "-") + ".ko.xz" for name in loaded}
    return loaded, {
        name: host.check_output("modinfo -F srcversion " + directory + file) for name, file in names.items()
    }


def assert_runs(host, version):
    shown = host.check_output(
        "dpkg-query -W -f '${source:Package} ${Package} ${Version} ${db:Status-Want}\\n'"
    ).splitlines()
    driver = {tuple(row.split()[2:]) for row in shown if row.startswith("nvidia-graphics-drivers ")}
    assert driver == {(version, "hold")}
    assert "Candidate: %s\n" % version in host.check_output("LC_ALL=C apt-cache policy libnvidia-ml1")
    assert host.check_output("dkms status") == "nvidia-current/%s, %s, x86_64: installed" % (
        DRIVER,
        host.check_output("uname -r"),
    )
    assert set(host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split()) == {
        "Enabled"
    }
    assert host.check_output("dpkg --audit") == ""
    loaded, on_disk = modules(host)
    assert len(loaded) >= 4 and loaded == on_disk
    return loaded


def test_the_driver_is_loaded_anew_without_a_reboot(node, boot_id):
    before, boot = assert_runs(node, OLD), boot_id(node)
    outcome, result = scenario.ask("deb13-1", "driver_reload", {"policy": "reload", "force": True})
    assert outcome.rc == 0, outcome.tail()
    assert (result["action"], result["version"]) == ("reload", DRIVER)
    assert result["actions"][0] == "stop nvidia-persistenced.service"
    assert result["actions"][-1] == "start nvidia-persistenced.service"
    assert {"unload " + name for name in before} <= set(result["actions"]) and boot_id(node) == boot
    assert assert_runs(node, OLD) == before


def test_the_hold_of_the_kernel_is_as_old_as_it_is(node):
    """The same holds, noted forty days ago."""
    kernel = node.check_output("uname -r")
    record = "/var/lib/gpufleet/kernel-holds.json"
    noted = json.loads(node.check_output("cat " + record))
    early = json.dumps({name: dict(item, since=item["since"] - 40 * 24 * 3600) for name, item in noted.items()})
    node.run_expect([0], "cp -p %s /root/record && echo '%s' > %s" % (record, early, record))
    try:
        outcome, result = scenario.ask("deb13-1", "kernel_packages")
    finally:
        node.run_expect([0], "mv /root/record " + record)
    assert outcome.rc == 0 and result["changed"] is False and result["held_days"] == 40
    assert result["kernels"]["running"] == kernel and result["kernels"]["next_boot"] == kernel
    assert {"linux-image-" + kernel, "linux-headers-" + kernel, "linux-image-amd64", "linux-headers-amd64"} <= {
        row["package"] for row in result["holds"]
    }


def test_a_driver_that_exists_in_name_only_is_refused(node, run, unchanged):
    """A release whose packages are transitional: its userland is that of another branch (the lab's stub packages)."""
    stubs = str(CHECKOUT / "molecule" / "resources" / "stubs.yml")
    before = assert_runs(node, OLD)
    outcome = run(stubs, OLD, stubs_hosts="deb13-1")
    assert outcome.rc == 0, outcome.tail()
    try:
        with unchanged(
            node, allowed=[r"/var/cache/apt/(src)?pkgcache\.bin", r"/root/\.ansible/tmp", r"/var/lib/gpufleet/.*"]
        ):
            play = [
                {
                    "hosts": "deb13-1",
                    "become": True,
                    "gather_facts": True,
                    "roles": ["gpufleet.lifecycle.nvidia_driver"],
                }
            ]
            refused = run(play, OLD, nvidia_driver_version="535.888.01")
        assert refused.rc == 2
        why = refused.why("deb13-1")
        assert "Nothing was changed" in why and "535.888.01" in why
        assert "transitional" in why or "550.54.14" in why
    finally:
        node.run_expect(
            [0], "rm -r /etc/apt/sources.list.d/gpufleet-stubs.list /srv/gpufleet-stubs && apt-get -qq update"
        )
    assert assert_runs(node, OLD) == before


def test_upgrade_to_the_other_revision_reboots_into_it(node, run, artifacts, boot_id):
    before, boot = assert_runs(node, OLD), boot_id(node)
    outcome = run("gpufleet.lifecycle.upgrade", NEW, upgrade_hosts="deb13-1", rollout_version=NEW)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    after = assert_runs(node, NEW)
    assert boot_id(node) != boot, "the modules on disk were others than those that were loaded"
    assert {name for name in before if before[name] != after[name]} >= {"nvidia_drm", "nvidia_uvm"}, (
        "the modules are those of the new packages"
    )
    report = json.loads((artifacts / "rollouts" / ("upgrade-" + NEW) / "report.json").read_text())
    told = report["nodes"]["deb13-1"]
    assert (told["from"], told["to"], told["state"]) == (OLD, NEW, "done")
    assert "reboot" in [step["name"] for step in told["steps"]]


def test_a_second_upgrade_does_nothing(node, run, boot_id):
    boot = boot_id(node)
    outcome = run("gpufleet.lifecycle.upgrade", NEW, upgrade_hosts="deb13-1", rollout_version=NEW)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail()
    assert boot_id(node) == boot


def test_bringing_up_does_not_go_back_by_itself(node, run, boot_id):
    boot = boot_id(node)
    outcome = run("gpufleet.lifecycle.bringup", OLD, bringup_hosts="deb13-1", nvidia_driver_version=OLD)
    assert outcome.rc == 2
    assert "runs driver %s, and %s is wanted" % (NEW, OLD) in outcome.why("deb13-1")
    assert boot_id(node) == boot


def test_rollback_goes_back_to_the_very_packages_without_a_mirror(node, run, artifacts, boot_id):
    """The module comes from the controller: the archives of two revisions of one version have one name, so that the
    node keeps the newer alone.
    """
    boot = boot_id(node)
    with scenario.no_mirror(node, "nvidia-driver"):
        outcome = run("gpufleet.lifecycle.rollback", OLD, rollback_hosts="deb13-1")
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    assert boot_id(node) != boot
    assert_runs(node, OLD)
    report = json.loads((artifacts / "rollouts" / ("rollback-upgrade-" + NEW) / "report.json").read_text())
    assert (report["nodes"]["deb13-1"]["from"], report["nodes"]["deb13-1"]["to"]) == (NEW, OLD)
