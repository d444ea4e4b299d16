# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a held kernel, in order: reported, the driver loaded anew without a reboot, a build that fails, and a kernel with its module proven first."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.lab.config import CHECKOUT
from tests.lab.play import play

INVENTORY = CHECKOUT / "molecule" / "inventory"
CACHE = Path(os.environ.get("GPUFLEET_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet")
RELEASED = (CHECKOUT / "molecule/kernel/kernel.txt").read_text().strip()
DRIVER, NODE, COMPILER = "535.216.03", "kern-1", "/usr/bin/x86_64-linux-gnu-gcc-12"


def task(name, **arguments):
    """One task on the node as an operator's: its outcome and its result."""
    results = []

    def on_event(data):
        if data["event"] in ("runner_on_ok", "runner_on_failed"):
            results.append(data["event_data"]["res"])

    play_ = [{"hosts": NODE, "gather_facts": False, "become": True, "tasks": [{"gpufleet.lifecycle." + name: arguments}]}]
    outcome = play(play_, INVENTORY, {}, on_event=on_event)
    assert len(results) == 1, outcome.tail()
    return outcome, results[0]


def role(part, **variables):
    include = {"name": "gpufleet.lifecycle.kernel_hold", "tasks_from": part}
    return play([{"hosts": NODE, "gather_facts": False, "become": True, "tasks": [{"ansible.builtin.include_role": include}]}], INVENTORY, variables)


@pytest.fixture(scope="module")
def staged(host):
    """The kernel of the security suite, which the release's keeps out."""
    offered = set(re.findall(r"^Depends: linux-image-(\S+)", host.check_output("apt-cache show linux-image-amd64"), re.MULTILINE)) - {RELEASED}
    assert offered, "the security suite offers another kernel than the release"
    return max(offered, key=lambda release: [int(part) for part in re.findall(r"\d+", release)])


def boots(host):
    return host.check_output("cat /proc/sys/kernel/random/boot_id")


def default(host):
    return host.check_output("grub-editenv /boot/grub/grubenv list")


def test_the_kernel_is_held_and_what_that_keeps_out_is_told(host):
    assert host.check_output("uname -r") == RELEASED
    outcome, result = task("kernel_packages")
    assert outcome.rc == 0 and result["changed"] is False
    assert result["security_kept_out"]["linux-image-amd64"].startswith("6.1.") and result["held_days"] == 0
    assert result["kernels"]["installed"] == [RELEASED]
    assert "linux-image" not in host.check_output("apt-get -s dist-upgrade --ignore-hold | grep ^Inst || true"), "the pin holds without the holds"


def test_the_driver_is_loaded_anew_without_a_reboot(host):
    before = boots(host)
    assert host.service("nvidia-persistenced").is_running
    outcome, result = task("driver_reload", policy="reload", force=True)
    assert outcome.rc == 0, outcome.tail()
    assert (result["action"], result["version"]) == ("reload", DRIVER)
    assert result["actions"][0] == "stop nvidia-persistenced.service" and result["actions"][-1] == "start nvidia-persistenced.service"
    assert [item["unit"] for item in result["holders"]] == ["nvidia-persistenced.service"]
    assert host.service("nvidia-persistenced").is_running and boots(host) == before
    assert host.run("nvidia-smi").rc == 0


def test_a_stranger_on_a_gpu_means_a_reboot_and_is_left_alone(host):
    assert host.run("gpusim inject stray-process --gpu 1").rc == 0
    try:
        outcome, result = task("driver_reload", policy="auto", force=True)
        assert outcome.rc == 0 and (result["action"], result["changed"], result["reboot_required"]) == ("reboot", False, True)
        assert "sleep (pid " in result["reboot_reason"] and "has /dev/nvidia1 open" in result["reboot_reason"]
        assert host.service("nvidia-persistenced").is_running
        outcome, result = task("driver_reload", policy="reload", force=True)
        assert outcome.rc != 0 and "Nothing was changed." in result["msg"]
    finally:
        host.run("gpusim clear stray-process")


def test_a_build_that_fails_leaves_the_old_kernel_the_default(host, staged):
    host.check_output("chmod a-x " + COMPILER)
    try:
        outcome = role("upgrade", kernel_hold_kernel=staged, kernel_hold_tree_dir="")
    finally:
        host.check_output("chmod a+x " + COMPILER)
    assert outcome.rc != 0
    assert "kernel %s was staged and is not the default" % staged in outcome.why(NODE) and "kernel_packages with state=removed" in outcome.why(NODE)
    assert "gnulinux-%s-advanced-lab" % RELEASED in default(host)
    outcome, result = task("boot_kernel", kernel=staged, driver_version=DRIVER)
    assert outcome.rc != 0 and "there is no NVIDIA module for kernel " + staged in result["msg"]
    outcome, result = task("kernel_packages", state="removed", kernel=staged)
    assert outcome.rc == 0 and result["kernels"]["installed"] == [RELEASED], outcome.tail()


def test_a_kernel_becomes_the_default_when_its_module_is_proven(host, staged):
    outcome = role("upgrade", kernel_hold_kernel=staged, kernel_hold_tree_dir=str(CACHE / "dkms"))
    assert outcome.rc == 0, outcome.tail()
    assert "gnulinux-%s-advanced-lab" % staged in default(host) and host.check_output("uname -r") == RELEASED
    assert host.check_output("modinfo -k %s -F version nvidia-current" % staged) == DRIVER
    holds = set(host.check_output("apt-mark showhold").split())
    assert {"linux-image-" + RELEASED, "linux-image-" + staged, "linux-headers-" + staged} <= holds
    again = role("upgrade", kernel_hold_kernel=staged, kernel_hold_tree_dir=str(CACHE / "dkms"))
    assert again.rc == 0 and not again.changed.get(NODE), again.tail()


def test_the_node_reboots_into_it_because_no_reload_brings_another_kernel(host, staged):
    outcome, result = task("driver_reload", policy="auto", reboot=True)
    assert outcome.rc == 0 and result["rebooted"], outcome.tail()
    assert "kernel %s runs and %s boots next" % (RELEASED, staged) in result["reboot_reason"]
    assert host.check_output("uname -r") == staged
    outcome, result = task("driver_audit", wanted_version=DRIVER, fail_on=["fail"])
    assert outcome.rc == 0, result.get("msg")
