# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a rocky9-like machine, in order: precheck, an upgrade whose module does not compile, an upgrade to the
other branch, the way back by hand, updates of dnf that would break it, another kernel with its module first.
"""

from __future__ import annotations

import json

from tests.lab.play import play
from tests.lab.rocky import packages
from tests.lab.scenario import INVENTORY

NODE = "el9-1"
OLD, NEW = packages.DRIVERS
BROKEN = packages.BROKEN_DRIVER
STAGED = packages.KERNELS[1] + ".x86_64"


def assert_runs(host, version):
    """One driver in packages, on disk and loaded, locked, of its own branch's module stream."""
    kernel = host.check_output("uname -r")
    found = set(host.check_output("rpm -qa --qf '%{VERSION}\\n' '*nvidia*'").splitlines())
    assert found == {version}
    assert f"nvidia/{version}, {kernel}, x86_64: installed" in host.check_output("dkms status").splitlines()
    assert host.check_output(f"modinfo -k {kernel} -F version nvidia") == version
    assert host.file("/sys/module/nvidia/version").content_string.strip() == version
    assert f"libnvidia-ml-3:{version}-1.el9." in host.check_output("cat /etc/dnf/plugins/versionlock.list")
    branch = version.split(".", 1)[0]
    assert f"stream={branch}-dkms" in host.check_output("cat /etc/dnf/modules.d/nvidia-driver.module")


def read_report(artifacts, rollout):
    return json.loads((artifacts / "rollouts" / rollout / "report.json").read_text())["nodes"][NODE]


def test_precheck_passes(node, run):
    outcome = run("gpufleet.lifecycle.precheck", precheck_hosts=NODE, nvidia_driver_version=OLD)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(60)


def test_a_driver_that_does_not_compile_is_rolled_back(node, run, artifacts):
    assert_runs(node, OLD)
    outcome = run("gpufleet.lifecycle.upgrade", upgrade_hosts=NODE, rollout_version=BROKEN)
    assert outcome.rc != 0
    assert_runs(node, OLD)
    assert node.run("nvidia-smi").rc == 0


def test_upgrade_to_the_other_branch(node, run, artifacts, boot_id):
    boot = boot_id(node)
    outcome = run("gpufleet.lifecycle.upgrade", upgrade_hosts=NODE, rollout_version=NEW)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    assert_runs(node, NEW)
    told = read_report(artifacts, "upgrade-" + NEW)
    assert (told["from"], told["to"], told["state"]) == (f"3:{OLD}-1.el9", NEW, "done")
    assert boot_id(node) != boot or "reload" in [step["name"] for step in told["steps"]]


def test_rollback_by_hand_goes_back_to_the_branch_before(node, run):
    outcome = run("gpufleet.lifecycle.rollback", rollback_hosts=NODE)
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    assert_runs(node, OLD)


def test_an_update_of_everything_leaves_kernel_and_driver(node):
    node.run_expect([0], "dnf -y -q update")
    assert_runs(node, OLD)
    assert node.check_output("ls /lib/modules") == packages.KERNELS[0] + ".x86_64"


def test_dnf_automatic_leaves_kernel_and_driver(node):
    node.run_expect([0], "dnf -y -q install dnf-automatic")
    done = node.run("systemctl start dnf-automatic.service")
    assert done.rc == 0, node.run("journalctl -u dnf-automatic --no-pager").stdout
    assert_runs(node, OLD)
    assert node.check_output("ls /lib/modules") == packages.KERNELS[0] + ".x86_64"


def test_another_kernel_is_the_default_once_its_module_is_proven(node, boot_id):
    boot = boot_id(node)
    include = {"name": "gpufleet.lifecycle.kernel_hold", "tasks_from": "upgrade"}
    tasks = [{"ansible.builtin.include_role": include}]
    plays = [{"hosts": NODE, "gather_facts": False, "become": True, "tasks": tasks}]
    outcome = play(plays, INVENTORY, {"kernel_hold_kernel": STAGED, "kernel_hold_tree_dir": ""})
    assert outcome.rc == 0, outcome.tail()
    assert node.check_output("grubby --default-kernel") == "/boot/vmlinuz-" + STAGED
    assert node.check_output(f"modinfo -k {STAGED} -F version nvidia") == OLD
    assert boot_id(node) == boot
    assert f"kernel-core-0:{packages.KERNELS[1]}." in node.check_output("cat /etc/dnf/plugins/versionlock.list")


def test_quarantine_and_return_to_service(node, run):
    outcome = run("gpufleet.lifecycle.quarantine", quarantine_hosts=NODE, quarantine_reason="fan")
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail()
    assert "fan" in node.check_output("cat /var/lib/gpufleet/quarantine.json")
