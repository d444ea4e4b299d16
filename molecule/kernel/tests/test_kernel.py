# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a held kernel, in order: reported; the driver loaded anew without a reboot; a build that fails; a kernel
with its module proven first; the upgrade that brings kernel, driver and security updates in one drain; and the ways
back to the kernel that ran, by the rollback playbook and after a failure.

The kernels are Debian's. The driver is the lab's stub (tests/lab/stubs.py), so that each module is built on the node,
in seconds.
"""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.lab.play import play
from tests.lab.scenario import INVENTORY, ask, boot_id

HOSTS = yaml.safe_load((INVENTORY / "hosts.yml").read_text(encoding="utf-8"))["gpu_nodes"]["children"]["kernel"][
    "hosts"
]
# What the kernels of each machine's release are compiled with.
COMPILERS = {"kern-1": "/usr/bin/x86_64-linux-gnu-gcc-12", "kern-2": "/usr/bin/x86_64-linux-gnu-gcc-14"}
# To which driver each is upgraded.
NEXT = {"kern-1": "535.261.03", "kern-2": "535.274.02"}
REVISION = "-0stub1"
VARIABLES = {"nvidia_driver_tree_dir": ""}  # of the rollouts: every module is built on the node
MODULES = ("nvidia-current", "nvidia-current-modeset", "nvidia-current-drm", "nvidia-current-uvm")


def name_of(host):
    return host.backend.get_hostname()


def released(host):
    """The kernel that the machine was put on."""
    return HOSTS[name_of(host)]["kernel_released"]


def driver(host):
    """The driver that the machine was brought up with."""
    return HOSTS[name_of(host)]["kernel_driver"]


def task(host, name, **arguments):
    return ask(name_of(host), name, arguments)


def staging(host, kernel):
    include = {"name": "gpufleet.lifecycle.kernel_hold", "tasks_from": "upgrade"}
    play_ = [
        {
            "hosts": name_of(host),
            "gather_facts": False,
            "become": True,
            "tasks": [{"ansible.builtin.include_role": include}],
        }
    ]
    return play(play_, INVENTORY, {"kernel_hold_kernel": kernel, "kernel_hold_tree_dir": ""})


@pytest.fixture(scope="module")
def offered(host):
    """The kernel of the security suite, which the release's keeps out, and the version of its metapackage."""
    series = re.match(r"[0-9]+\.[0-9]+\.", released(host))[0]
    text = host.check_output("apt-cache show linux-image-amd64")
    versions = {
        re.search(r"^Depends:.* linux-image-(\S+)", stanza, re.M)[1]: re.search(r"^Version: (.*)$", stanza, re.M)[1]
        for stanza in text.split("\n\n")
    }
    newer = {
        release: version
        for release, version in versions.items()
        if release.startswith(series) and release != released(host)
    }
    assert newer, "the security suite offers another kernel than the release"
    return max(newer.items(), key=lambda item: [int(part) for part in re.findall(r"\d+", item[0])])


@pytest.fixture(scope="module")
def staged(offered):
    return offered[0]


@pytest.fixture(scope="module")
def artifacts(host, tmp_path_factory):
    """What a rollout of the machine leaves for the rollback after it."""
    return tmp_path_factory.mktemp(name_of(host))


def default(host):
    return host.check_output("grub-editenv /boot/grub/grubenv list")


def version(host, package):
    return host.check_output("dpkg-query -W -f '${Version}' " + package)


def assert_modules(host, kernel, driver):
    for module in MODULES:
        assert host.check_output("modinfo -k %s -F version %s" % (kernel, module)) == driver
        assert host.check_output("modinfo -k %s -F vermagic %s" % (kernel, module)).split()[0] == kernel


def test_the_kernel_is_held_and_what_that_keeps_out_is_told(host, offered):
    assert host.check_output("uname -r") == released(host)
    assert_modules(host, released(host), driver(host))
    outcome, result = task(host, "kernel_packages")
    assert outcome.rc == 0 and result["changed"] is False
    assert result["kernels"]["installed"] == [released(host)] and result["held_days"] == 0
    assert result["security_kept_out"] == {"linux-image-amd64": offered[1], "linux-headers-amd64": offered[1]}
    assert {row["package"] for row in result["holds"]} == {
        kind + name for kind in ("linux-image-", "linux-headers-") for name in ("amd64", released(host))
    } | {"linux-headers-" + released(host).replace("amd64", "common")}
    offers = host.check_output("apt-get --simulate dist-upgrade --ignore-hold").splitlines()
    assert [line for line in offers if line.startswith("Inst libexpat1 ")], "there is something to update"
    assert not [line for line in offers if re.match("Inst linux-(image|headers)", line)], (
        "the pin holds without the holds"
    )


def test_a_hold_is_as_old_as_it_is(host):
    """The same holds, noted forty days ago."""
    record = "/var/lib/gpufleet/kernel-holds.json"
    noted = json.loads(host.check_output("cat " + record))
    early = json.dumps({name: dict(item, since=item["since"] - 40 * 24 * 3600) for name, item in noted.items()})
    host.run_expect([0], "cp -p %s /root/record && echo '%s' > %s" % (record, early, record))
    try:
        outcome, result = task(host, "kernel_packages")
        assert outcome.rc == 0 and result["held_days"] == 40
        told = play(
            [
                {
                    "hosts": name_of(host),
                    "become": True,
                    "gather_facts": False,
                    "roles": ["gpufleet.lifecycle.kernel_hold"],
                }
            ],
            INVENTORY,
        )
        assert told.rc == 0
        assert "the kernel has been held for 40 days, which keeps out the security updates" in told.output
    finally:
        host.run_expect([0], "mv /root/record " + record)


def test_the_driver_is_loaded_anew_without_a_reboot(host):
    before = boot_id(host)
    assert host.service("nvidia-persistenced").is_running
    outcome, result = task(host, "driver_reload", policy="reload", force=True)
    assert outcome.rc == 0, outcome.tail()
    assert (result["action"], result["version"]) == ("reload", driver(host))
    assert result["actions"][0] == "stop nvidia-persistenced.service"
    assert result["actions"][-1] == "start nvidia-persistenced.service"
    assert [item["unit"] for item in result["holders"]] == ["nvidia-persistenced.service"]
    assert host.service("nvidia-persistenced").is_running and boot_id(host) == before
    assert host.run("nvidia-smi").rc == 0


def test_a_stranger_on_a_gpu_means_a_reboot_and_is_left_alone(host):
    assert host.run("gpusim inject stray-process graphics --gpu 1").rc == 0
    try:
        outcome, result = task(host, "driver_reload", policy="auto", force=True)
        assert outcome.rc == 0
        assert (result["action"], result["changed"], result["reboot_required"]) == ("reboot", False, True)
        assert "sleep (pid " in result["reboot_reason"] and "has /dev/nvidia1 open" in result["reboot_reason"]
        assert host.service("nvidia-persistenced").is_running
        outcome, result = task(host, "driver_reload", policy="reload", force=True)
        assert outcome.rc != 0 and "Nothing was changed." in result["msg"]
    finally:
        host.run("gpusim clear stray-process")


def test_work_on_a_gpu_is_ended_by_no_reboot(host):
    before = boot_id(host)
    worker = re.search(r"process (\d+)", host.check_output("gpusim inject stray-process compute --gpu 1"))[1]
    try:
        for policy in ("auto", "reload", "reboot"):
            outcome, result = task(host, "driver_reload", policy=policy, reboot=True, force=True)
            assert outcome.rc != 0
            assert result["msg"].startswith(
                "The GPUs are at work, so that the driver is not loaded anew and the node not rebooted: sleep "
                "(pid %s, " % worker
            ), result["msg"]
            assert "has /dev/nvidia-uvm, /dev/nvidia1 open" in result["msg"]
            assert "Next step: let it end" in result["msg"]
        assert boot_id(host) == before and host.check_output("cat /proc/%s/comm" % worker) == "sleep"
        assert host.service("nvidia-persistenced").is_running
    finally:
        host.run("gpusim clear stray-process")


def test_a_build_that_fails_leaves_the_old_kernel_the_default(host, staged):
    host.check_output("chmod a-x " + COMPILERS[name_of(host)])
    try:
        outcome = staging(host, staged)
    finally:
        host.check_output("chmod a+x " + COMPILERS[name_of(host)])
    assert outcome.rc != 0
    why = outcome.why(name_of(host))
    assert "kernel %s was staged and is not the default" % staged in why and "kernel_packages with state=removed" in why
    assert "gnulinux-%s-advanced-lab" % released(host) in default(host)
    outcome, result = task(host, "boot_kernel", kernel=staged, driver_version=driver(host))
    assert outcome.rc != 0 and "there is no NVIDIA module for kernel " + staged in result["msg"]


def test_a_kernel_becomes_the_default_when_its_module_is_proven(host, staged, offered):
    before = boot_id(host)
    outcome = staging(host, staged)
    assert outcome.rc == 0, outcome.tail()
    assert "gnulinux-%s-advanced-lab" % staged in default(host)
    assert (host.check_output("uname -r"), boot_id(host)) == (released(host), before)
    assert_modules(host, staged, driver(host))
    holds = set(host.check_output("apt-mark showhold").split())
    assert {
        "linux-image-" + released(host),
        "linux-image-" + staged,
        "linux-headers-" + staged,
        "linux-image-amd64",
        "linux-headers-amd64",
    } <= holds
    assert version(host, "linux-image-amd64") == version(host, "linux-headers-amd64") == offered[1]
    assert task(host, "kernel_packages")[1]["security_kept_out"] == {}, "nothing is kept out any more"
    again = staging(host, staged)
    assert again.rc == 0 and not again.changed.get(name_of(host)), again.tail()


def test_one_drain_brings_the_kernel_the_driver_and_the_security_updates(host, staged, artifacts):
    boot, library, meta = boot_id(host), version(host, "libexpat1"), version(host, "linux-image-amd64")
    wanted = NEXT[name_of(host)]
    outcome = play(
        "gpufleet.lifecycle.upgrade",
        INVENTORY,
        dict(
            VARIABLES,
            upgrade_hosts=name_of(host),
            rollout_version=wanted + REVISION,
            gpufleet_artifact_dir=str(artifacts),
            gpu_node_upgrade_security_updates=True,
            gpu_node_upgrade_reload="auto",
        ),
    )
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    assert boot_id(host) != boot and host.check_output("uname -r") == staged, "no reload brings another kernel"
    for kernel in (released(host), staged):
        assert_modules(host, kernel, wanted)
    fixed = host.check_output("apt-cache policy libexpat1 | sed -n 's/^  Candidate: //p'")
    assert version(host, "libexpat1") == fixed != library
    assert version(host, "linux-image-amd64") == meta, "what is held is no part of it"
    told = json.loads((artifacts / "rollouts" / ("upgrade-" + wanted + REVISION) / "report.json").read_text())["nodes"][
        name_of(host)
    ]
    steps = {step["name"]: step for step in told["steps"]}
    assert told["state"] == "done" and list(steps).index("install") < list(steps).index("reload")
    assert "reboot" not in steps
    logged, end = (
        host.check_output("cat /var/log/dpkg.log").splitlines(),
        " upgrade libexpat1:amd64 %s %s" % (library, fixed),
    )
    row = [line.split() for line in logged if line.endswith(end)]
    assert len(row) == 1
    at = host.check_output("date -u -d '%s' +%%FT%%TZ" % " ".join(row[0][:2]))
    assert steps["install"]["started"][:19] <= at[:19] <= steps["install"]["finished"][:19], (
        "while the node was down for its driver"
    )
    outcome, result = task(host, "driver_audit", wanted_version=wanted, fail_on=["fail"])
    assert outcome.rc == 0, result.get("msg")


def state_of(host, directory, rollout):
    told = json.loads((directory / "rollouts" / rollout / "report.json").read_text())["nodes"][name_of(host)]
    return told["state"], told["reason"], [step["name"] for step in told["steps"]]


def assert_back(host):
    """The machine runs the kernel and the driver that it was brought up with, and boots that kernel again."""
    assert host.check_output("uname -r") == released(host)
    assert "gnulinux-%s-advanced-lab" % released(host) in default(host)
    outcome, result = task(host, "driver_audit", wanted_version=driver(host), fail_on=["fail"])
    assert outcome.rc == 0, result.get("msg")
    assert (result["audit"]["versions"]["loaded"], result["audit"]["kernel"]["next_boot"]) == (
        driver(host),
        released(host),
    )


def test_the_rollback_playbook_brings_the_kernel_back_that_ran_before(host, staged, artifacts):
    """What was undone is the rollout of the test before, which brought the staged kernel."""
    upgraded = "upgrade-" + NEXT[name_of(host)] + REVISION
    foreseen = play(
        "gpufleet.lifecycle.rollback",
        INVENTORY,
        dict(VARIABLES, rollback_hosts=name_of(host), gpufleet_artifact_dir=str(artifacts)),
        check=True,
    )
    assert foreseen.rc == 0
    assert (
        "driver %s%s -> %s%s, kernel %s" % (NEXT[name_of(host)], REVISION, driver(host), REVISION, released(host))
        in foreseen.output
    )
    outcome = play(
        "gpufleet.lifecycle.rollback",
        INVENTORY,
        dict(VARIABLES, rollback_hosts=name_of(host), gpufleet_artifact_dir=str(artifacts)),
    )
    assert (outcome.rc, outcome.failed) == (0, {}), outcome.tail(80)
    assert state_of(host, artifacts, "rollback-" + upgraded)[0] == "done"
    assert_back(host)
    assert_modules(host, staged, driver(host))


def test_a_node_that_fails_on_a_new_kernel_is_put_back_to_the_one_that_ran(host, staged, tmp_path):
    """The new driver does not bring up a GPU: seen after the boot into the staged kernel."""
    name, wanted = name_of(host), NEXT[name_of(host)]
    outcome, result = task(host, "boot_kernel", kernel=staged, driver_version=driver(host))
    assert outcome.rc == 0 and result["kernels"]["next_boot"] == staged, outcome.tail()
    host.check_output("gpusim inject gpu-not-brought-up --gpu 1 --driver " + wanted)
    try:
        outcome = play(
            "gpufleet.lifecycle.upgrade",
            INVENTORY,
            dict(
                VARIABLES,
                upgrade_hosts=name,
                rollout_version=wanted + REVISION,
                gpufleet_artifact_dir=str(tmp_path),
                rollout_other_ledger_s=0,
            ),
        )
    finally:
        host.check_output("gpusim clear gpu-not-brought-up")
    assert outcome.rc == 2, outcome.tail(80)
    state, reason, steps = state_of(host, tmp_path, "upgrade-" + wanted + REVISION)
    assert state == "rolled_back"
    assert "is back on driver %s%s and kernel %s, which passed" % (driver(host), REVISION, released(host)) in reason, (
        reason
    )
    assert [step for step in steps if step in ("reboot", "rollback_reboot")] == ["reboot", "rollback_reboot"], (
        "it ran the staged kernel meanwhile"
    )
    assert_back(host)


def test_the_kernel_that_was_left_can_be_taken_away_and_the_one_that_runs_cannot(host, staged):
    outcome, result = task(host, "boot_kernel", kernel=staged, driver_version=driver(host))
    assert outcome.rc == 0, outcome.tail()
    outcome, result = task(host, "driver_reload", policy="reboot", reboot=True)
    assert outcome.rc == 0 and host.check_output("uname -r") == staged, outcome.tail()
    outcome, result = task(host, "kernel_packages", state="removed", kernel=staged)
    assert outcome.rc != 0
    assert "kernel %s is not removed: %s runs and %s boots next" % (staged, staged, staged) in result["msg"]
    outcome, result = task(host, "kernel_packages", state="removed", kernel=released(host))
    assert outcome.rc == 0 and result["kernels"]["installed"] == [staged], outcome.tail()
    assert (
        host.check_output("test ! -e /lib/modules/{0} || find /lib/modules/{0} -name '*.ko*'".format(released(host)))
        == ""
    )
    assert host.check_output("dkms status") == "nvidia-current/%s, %s, x86_64: installed" % (driver(host), staged)
