# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking at nodes changes nothing on them, and does not overlook a sick one."""

from __future__ import annotations

import json
import stat

import pytest

OLD, NEW = "535.216.03", "535.261.03"
CACHE = "/root/.ansible/tmp/gpufleet-0"
# The binding in a directory named by its digest, its bytecode, and the directories on the way to them.
CACHED = r"/root/\.ansible(/tmp(/gpufleet-0(/[0-9a-f]{64}(/pynvml\.(py|[\w.-]+\.pyc))?)?)?)?"
# apt keeps an index of its lists in a file and renews it when it likes.
APT_CACHE = r"/var/cache/apt/(src)?pkgcache\.bin"


def test_precheck_passes_and_leaves_nothing_but_the_cached_binding(machines, run, unchanged, artifacts):
    for host in machines.values():
        host.run_expect([0], "rm -r /root/.ansible")
    with unchanged(*machines.values(), allowed=[CACHED]) as changes:
        outcome = run("gpufleet.lifecycle.precheck", precheck_hosts="bringup", precheck_expected_driver_version=OLD)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail()
    assert outcome.changed.get("up-1", 0) == outcome.changed.get("up-2", 0) == 0
    for paths in changes.values():
        assert CACHE in paths and any(path.endswith("/pynvml.py") for path in paths), (
            "the cache was to be made anew, and to be seen by the comparison"
        )
    report = artifacts / "precheck" / "report.json"
    content = json.loads(report.read_text())
    assert content["schema"] == "gpufleet.precheck/1"
    assert {name: node["verdict"] for name, node in content["nodes"].items()} == {"up-1": "pass", "up-2": "pass"}
    assert {name: len(node["gpus"]) for name, node in content["nodes"].items()} == {"up-1": 8, "up-2": 4}
    assert stat.S_IMODE(report.stat().st_mode) == 0o600


def test_precheck_names_the_node_and_the_gpu_that_is_lost(up_1, run, artifacts):
    address = (
        up_1.check_output("nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader").splitlines()[1].strip().lower()
    )
    up_1.run_expect([0], "gpusim inject gpu-lost --gpu 1")
    try:
        outcome = run("gpufleet.lifecycle.precheck", precheck_hosts="bringup")
    finally:
        up_1.run_expect([0], "gpusim clear")
    assert outcome.rc == 2
    assert list(outcome.failed) == ["up-1"], "the other node is as healthy as before"
    assert "up-1: fail" in outcome.why("up-1")
    assert "gpu index 1" in outcome.why("up-1") and address[4:] in outcome.why("up-1"), (
        "where it sits is what a technician needs"
    )
    nodes = json.loads((artifacts / "precheck" / "report.json").read_text())["nodes"]
    assert {name: node["verdict"] for name, node in nodes.items()} == {"up-1": "fail", "up-2": "pass"}
    # What has happened stands in the kernel's log until the node boots.
    back = run([{"hosts": "up-1", "gather_facts": False, "become": True, "tasks": [{"ansible.builtin.reboot": {}}]}])
    assert back.rc == 0, back.tail()
    after = run("gpufleet.lifecycle.precheck", precheck_hosts="bringup")
    assert (after.rc, after.failed) == (0, {}), after.tail()


class TestTheCachedBinding:
    @pytest.fixture
    def binding(self, up_1, ask):
        ask("up-1", "gpu_info")
        return up_1.check_output("ls %s/*/pynvml.py" % CACHE)

    def is_whole(self, up_1, binding):
        file = up_1.file(binding)
        assert file.is_file and not file.is_symlink
        assert (file.user, file.mode) == ("root", 0o600)
        assert file.sha256sum == binding.split("/")[-2]

    def test_it_is_used_without_a_word(self, up_1, ask, binding):
        self.is_whole(up_1, binding)
        inode = up_1.check_output("stat -c '%i %Z' " + binding)
        dummy, result = ask("up-1", "gpu_info")
        assert (result["snapshot"]["status"], result["snapshot"]["binding"]["source"], result.get("warnings", [])) == (
            "ok",
            "shipped",
            [],
        )
        assert up_1.check_output("stat -c '%i %Z' " + binding) == inode

    def test_one_that_was_tampered_with_is_replaced_and_reported(self, up_1, ask, binding):
        up_1.run_expect([0], "printf x >> " + binding)
        outcome, result = ask("up-1", "gpu_info")
        assert (outcome.rc, result["snapshot"]["status"]) == (0, "ok")
        assert "does not match its digest" in " ".join(result["warnings"])
        self.is_whole(up_1, binding)

    def test_a_link_in_its_place_is_replaced_and_never_followed(self, up_1, ask, binding):
        up_1.run_expect(
            [0],
            "mv %s /run/elsewhere.py && printf x >> /run/elsewhere.py && ln -s /run/elsewhere.py %s"
            % (binding, binding),
        )
        target = up_1.file("/run/elsewhere.py").sha256sum
        outcome, result = ask("up-1", "gpu_info")
        assert (outcome.rc, result["snapshot"]["status"]) == (0, "ok")
        assert "it is a link" in " ".join(result["warnings"])
        self.is_whole(up_1, binding)
        assert up_1.file("/run/elsewhere.py").sha256sum == target
        up_1.run_expect([0], "rm /run/elsewhere.py")

    def test_a_link_in_the_place_of_its_directory_is_refused(self, up_1, ask, binding):
        up_1.run_expect(
            [0], "mkdir -m 0700 /run/elsewhere && mv %s /run/own-cache && ln -s /run/elsewhere %s" % (CACHE, CACHE)
        )
        try:
            outcome, result = ask("up-1", "gpu_info")
            assert (outcome.rc, result["snapshot"]["status"], len(result["snapshot"]["gpus"])) == (0, "ok", 8)
            assert CACHE in " ".join(result["warnings"])
            assert up_1.check_output("ls -A /run/elsewhere") == ""
        finally:
            up_1.run_expect([0], "rm -f %s; rm -rf /run/elsewhere; mv /run/own-cache %s" % (CACHE, CACHE))

    def test_an_unprivileged_user_has_one_of_its_own(self, up_1, ask):
        up_1.run_expect([0], "useradd --create-home watcher")
        try:
            outcome, result = ask("up-1", "gpu_info", become_user="watcher")
            assert outcome.rc == 0, outcome.tail()
            assert (result["snapshot"]["status"], result["gpu_count"], result.get("warnings", [])) == ("ok", 8, [])
            own = "/home/watcher/.ansible/tmp/gpufleet-" + up_1.check_output("id -u watcher")
            assert (up_1.file(own).user, up_1.file(own).mode) == ("watcher", 0o700)
            assert up_1.check_output("ls %s/*" % own).splitlines()[-1] == "pynvml.py"
        finally:
            up_1.run_expect([0], "userdel --remove watcher 2>/dev/null")


def test_upgrade_in_check_mode_says_what_it_would_do_and_does_nothing(machines, run, unchanged, artifacts, boot_id):
    boots = {name: boot_id(host) for name, host in machines.items()}
    with unchanged(*machines.values(), allowed=[APT_CACHE]):
        outcome = run("gpufleet.lifecycle.upgrade", check=True, upgrade_hosts="bringup", rollout_version=NEW)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail()
    assert outcome.changed["up-1"] > 0 and outcome.changed["up-2"] > 0, "check mode says that there is something to do"
    assert {name: boot_id(host) for name, host in machines.items()} == boots
    for host in machines.values():
        driver = host.check_output(
            "dpkg-query -W -f '${source:Package} ${Package}\\n' | sed -n 's/^nvidia-graphics-drivers //p'"
        ).splitlines()
        assert len(driver) > 5
        for package in driver:
            assert package in outcome.output
    for text in ("up-1", "up-2", OLD, NEW, "535.261.03-1"):
        assert text in outcome.output
    assert not (artifacts / "rollouts").exists(), "no ledger of a rollout that never was"
