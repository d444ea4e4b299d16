# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's life after it was brought up: upgrades, what stands in their way, the way back, and reboots.

The cases build on each other.
"""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.lab import scenario
from tests.lab.scenario import no_mirror

OLD, NEW = "535.216.03", "535.261.03"
PACKAGE = {OLD: "535.216.03-2~bpo12+1", NEW: "535.261.03-1"}


def driver_packages(host):
    shown = host.check_output(
        "dpkg-query -W -f '${source:Package} ${Package} ${Version} ${db:Status-Want}\\n'"
    ).splitlines()
    rows = [line.split() for line in shown]
    return {row[1]: (row[2], row[3]) for row in rows if row[0] == "nvidia-graphics-drivers"}


def kernel_module(host):
    return "/lib/modules/%s/updates/dkms/nvidia-current.ko" % host.check_output("uname -r")


def assert_runs(host, version):
    packages = driver_packages(host)
    assert len(packages) > 5 and set(packages.values()) == {(PACKAGE[version], "hold")}
    assert host.file("/sys/module/nvidia/version").content_string.strip() == version
    assert host.check_output("modinfo -F version " + kernel_module(host)) == version
    assert host.check_output("dkms status") == "nvidia-current/%s, %s, x86_64: installed" % (
        version,
        host.check_output("uname -r"),
    )
    assert "Candidate: %s\n" % PACKAGE[version] in host.check_output("LC_ALL=C apt-cache policy libnvidia-ml1")
    assert set(host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split()) == {
        "Enabled"
    }
    assert host.check_output("dpkg --audit") == ""


def assert_has_evidence(directory, boot):
    """One bundle, of the moment before the change: whole, of the boot that was ended since, and of the old driver."""
    [bundle] = directory.iterdir()
    assert bundle.name.endswith("-before")
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert (manifest["schema"], manifest["node"], manifest["boot_id"], manifest["missing"]) == (
        "gpufleet.evidence/1",
        directory.name,
        boot,
        [],
    )
    for entry in manifest["files"]:
        assert hashlib.sha256((bundle / entry["name"]).read_bytes()).hexdigest() == entry["sha256"]
        assert entry["truncated"] is False
    assert sorted(path.name for path in bundle.iterdir()) == [
        "kernel.log",
        "manifest.json",
        "nvidia-smi.xml",
        "processes.json",
        "reading.json",
    ]
    assert json.loads((bundle / "reading.json").read_text())["audit"]["versions"]["loaded"] == OLD
    assert "<driver_version>%s</driver_version>" % OLD in (bundle / "nvidia-smi.xml").read_text()
    assert "persistenced" in (bundle / "processes.json").read_text(), "it was not stopped yet"


@pytest.fixture(scope="module")
def baselines(run, tmp_path_factory):
    """The nodes as they were right after bringup, by name."""
    directory = tmp_path_factory.mktemp("baselines")
    outcome = run(
        [{"hosts": "bringup", "gather_facts": False, "roles": ["gpufleet.lifecycle.gpu_health"]}],
        gpu_health_phase="baseline",
        gpu_health_expected_driver_version=OLD,
        gpu_health_save_file=str(directory) + "/{{ inventory_hostname }}.json",
    )
    assert outcome.rc == 0, outcome.tail()
    return {name: str(directory / (name + ".json")) for name in ("up-1", "up-2")}


@pytest.fixture(scope="module")
def before(machines, boot_id):
    return {name: boot_id(host) for name, host in machines.items()}


class TestLife:
    def test_a_node_whose_next_boot_has_no_module_is_left_alone_and_the_other_is_upgraded(
        self, up_1, up_2, run, ask, artifacts, baselines, before, boot_id
    ):
        module = kernel_module(up_1)
        packages = driver_packages(up_1)
        up_1.run_expect([0], "mv %s /root/away.ko && depmod" % module)
        dummy, audited = ask("up-1", "driver_audit")
        assert audited["audit"]["reboot_safe"] is False
        assert "no NVIDIA kernel module on disk" in audited["audit"]["reboot_safe_reason"]

        outcome = run(
            "gpufleet.lifecycle.upgrade", upgrade_hosts="bringup", rollout_version=NEW, rollout_failure_budget=2
        )
        assert outcome.rc == 2
        assert "nothing was changed" in outcome.why("up-1") and "kernel module" in outcome.why("up-1")
        assert boot_id(up_1) == before["up-1"], "a node that would come back without a driver must not be rebooted"
        assert driver_packages(up_1) == packages
        report = json.loads((artifacts / "rollouts" / ("upgrade-" + NEW) / "report.json").read_text())
        assert {name: node["state"] for name, node in report["nodes"].items()} == {"up-1": "failed", "up-2": "done"}
        assert report["verdict"] != "complete"

        assert boot_id(up_2) != before["up-2"]
        assert_runs(up_2, NEW)
        for name in ("up-1", "up-2"):
            assert_has_evidence(artifacts / "evidence" / ("upgrade-" + NEW) / name, before[name])

    def test_bringing_up_again_repairs_it_without_compiling_or_rebooting(self, up_1, run, before, boot_id):
        outcome = run("gpufleet.lifecycle.bringup", bringup_hosts="up-1", nvidia_driver_version=OLD)
        assert outcome.rc == 0, outcome.tail()
        assert outcome.changed["up-1"] > 0
        assert boot_id(up_1) == before["up-1"]
        assert_runs(up_1, OLD)
        assert up_1.check_output("sha256sum < /root/away.ko") == up_1.check_output(
            "sha256sum < " + kernel_module(up_1)
        ), "it is the same build"
        up_1.run_expect([0], "rm /root/away.ko")

    def test_all_that_could_be_done_was_done_before_the_node_was_drained(self, up_2, artifacts):
        node = json.loads((artifacts / "rollouts" / ("upgrade-" + NEW) / "report.json").read_text())["nodes"]["up-2"]
        assert [step["name"] for step in node["steps"]] == [
            "prestage",
            "evidence",
            "drain",
            "stop",
            "install",
            "prove",
            "reboot",
            "validate",
            "return",
        ]
        kept = up_2.check_output("ls /var/lib/gpufleet/dkms").split()
        assert sorted(name.split("_")[1] for name in kept if name.endswith(".gz")) == [OLD, NEW], (
            "of the driver that was replaced too"
        )
        stored = up_2.check_output(
            "cd /var/lib/gpufleet/packages && for i in *.deb; do dpkg-deb -f $i Package Version | paste -sd ' '; done"
        )
        for version in (OLD, NEW):
            assert "Package: nvidia-kernel-dkms Version: %s" % PACKAGE[version] in stored

    def test_rollback_takes_the_upgraded_node_back_without_a_mirror_or_an_archive_of_the_controller(
        self, up_1, up_2, run, ask, baselines, before, boot_id, artifacts, tmp_path
    ):
        upgraded = boot_id(up_2)
        with no_mirror(up_2, "nvidia-driver"):
            outcome = run("gpufleet.lifecycle.rollback", rollback_hosts="up-2", nvidia_driver_tree_dir=str(tmp_path))
        assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail()
        assert [path.name for path in tmp_path.iterdir()] in ([], [".claims"]), "nothing was compiled"
        assert boot_id(up_2) not in (before["up-2"], upgraded)
        assert_runs(up_2, OLD)
        outcome, result = ask(
            "up-2", "gpu_health", {"phase": "post", "baseline_file": baselines["up-2"], "expected_driver_version": OLD}
        )
        assert (outcome.rc, result["health"]["verdict"]) == (0, "pass"), result["msg"]
        report = json.loads((artifacts / "rollouts" / ("rollback-upgrade-" + NEW) / "report.json").read_text())
        assert (report["nodes"]["up-2"]["from"], report["nodes"]["up-2"]["to"], report["nodes"]["up-2"]["state"]) == (
            NEW,
            OLD,
            "done",
        )
        assert boot_id(up_1) == before["up-1"], "the other node had nothing to do with it"

    def test_new_packages_under_the_old_module_are_noticed(self, up_1, up_2, run, ask, before, boot_id, tmp_path):
        """The module comes from an artifact host, to which a controller that has it brought it."""
        empty, cache = tmp_path / "dkms", scenario.CACHE / "dkms"
        archives = sorted(path.name for path in cache.glob("nvidia*_%s_*.dkms.tar.gz" % NEW))
        outcome, brought = ask(
            "up-2", "dkms_archives", {"directory": str(cache), "path": str(empty), "versions": [NEW]}
        )
        assert (outcome.rc, brought["stored"], brought["fetched"]) == (0, archives, []), brought
        ledger = "sqlite:///%s/rollouts/ledger.sqlite" % scenario.CACHE  # where the lab records what it compiled
        outcome, brought = ask(
            "up-2", "dkms_archives", {"directory": str(empty), "versions": [PACKAGE[NEW]], "ledger": ledger}
        )
        assert (outcome.rc, brought["stored"], brought["fetched"]) == (0, [], archives), brought
        outcome = run(
            [{"hosts": "up-1", "become": True, "roles": ["gpufleet.lifecycle.nvidia_driver"]}],
            nvidia_driver_version=NEW,
            nvidia_driver_tree_dir=str(empty),
            rollout_ledger=ledger,
        )
        assert outcome.rc == 0, outcome.tail()
        for name in archives:
            here = hashlib.sha256((empty / name).read_bytes()).hexdigest()
            there = up_2.check_output("sha256sum < %s" % (empty / name)).split()[0]
            assert here == there == hashlib.sha256((cache / name).read_bytes()).hexdigest()
        assert boot_id(up_1) == before["up-1"]
        outcome, result = ask("up-1", "gpu_health")
        assert outcome.rc == 2
        assert result["health"]["verdict"] == "fail"
        assert "LIB_RM_VERSION_MISMATCH" in result["msg"] or "(18)" in result["msg"] or "rc 18" in result["msg"]
        assert "Reload the driver or reboot" in result["msg"]
        again = run("gpufleet.lifecycle.bringup", bringup_hosts="up-1", nvidia_driver_version=NEW)
        assert again.rc == 2
        assert "gpufleet.lifecycle.upgrade" in again.why("up-1"), "bringing up changes no running driver"
        assert boot_id(up_1) == before["up-1"]

    def test_a_reboot_loads_what_is_on_disk_and_keeps_the_rest(self, up_1, run, ask, baselines, before, boot_id):
        outcome = run(
            [{"hosts": "up-1", "become": True, "gather_facts": False, "tasks": [{"ansible.builtin.reboot": {}}]}]
        )
        assert outcome.rc == 0, outcome.tail()
        assert boot_id(up_1) != before["up-1"]
        assert_runs(up_1, NEW)
        assert up_1.service("nvidia-persistenced").is_running
        outcome, result = ask(
            "up-1", "gpu_health", {"phase": "post", "baseline_file": baselines["up-1"], "expected_driver_version": NEW}
        )
        assert (outcome.rc, result["health"]["verdict"]) == (0, "pass"), result["msg"]
