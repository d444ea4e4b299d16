# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver is loaded anew on a simulated node: real files below /sys and /proc, the simulator's modprobe and rmmod,
stand-in services.
"""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver.driver_reload import DriverReload
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons

OLD, NEW, RELEASE = simnode.OLD, simnode.NEW, simnode.RELEASE
FIRST, SECOND = "nvidia-dcgm.service", "nvidia-persistenced.service"
OPTIONS = {
    "policy": "auto",
    "services": [FIRST, SECOND],
    "version": None,
    "force": False,
    "nvswitch": True,
    "settle_s": 1.0,
    "stop_timeout_s": 10,
}


class System:
    """systemctl by hand, modprobe and rmmod of the simulator; every change in order."""

    def __init__(self, node):
        self.node = node
        self.running = {FIRST: 71, SECOND: 72}
        self.breaks = {}
        self.on = {}
        self.log = []
        for pid in self.running.values():
            self.process(pid)

    def process(self, pid, unit=None):
        unit = unit or {71: FIRST, 72: SECOND}[pid]
        base = self.node.root / "proc" / str(pid)
        (base / "fd").mkdir(parents=True)
        os.symlink("/dev/nvidia0", str(base / "fd/3"))
        for name, text in (
            ("comm", "p%d\n" % pid),
            ("cgroup", "0::/system.slice/%s\n" % unit),
            ("status", "Uid:\t0\t0\t0\t0\n"),
        ):
            (base / name).write_text(text)

    def ends(self, pid):
        base = self.node.root / "proc" / str(pid)
        os.unlink(str(base / "fd/3"))

    def __call__(self, argv, timeout=None):
        words = [word for word in argv if not word.startswith("-")]
        if words[:2] == ["systemctl", "show"]:
            return (
                0,
                "\n\n".join(
                    "Id=%s\nNames=%s\nActiveState=%s" % (name, name, "active" if name in self.running else "inactive")
                    for name in words[2:]
                ),
                "",
            )
        if words[0] in ("modinfo", "grubby"):
            return self.real(argv)
        key = " ".join(words[-2:]) if words[0] == "systemctl" else " ".join(words)
        self.log.append(key)
        if key in self.breaks:
            return 1, "", self.breaks[key]
        if words[0] == "systemctl":
            if words[1] == "stop":
                self.ends(self.running.pop(words[2]))
            else:
                self.running[words[2]] = pid = {FIRST: 71, SECOND: 72}[words[2]]
                if not (self.node.root / ("proc/%d/fd/3" % pid)).is_symlink():
                    os.symlink("/dev/nvidia0", str(self.node.root / ("proc/%d/fd/3" % pid)))
        else:
            done = self.node.tool(*words, check=False)
            if done.returncode:
                return done.returncode, done.stdout, done.stderr
        self.on.pop(key, lambda: None)()
        return 0, "", ""

    def real(self, argv):
        if argv[0] == "grubby":
            return 127, "", "grubby: command not found"
        from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner

        return Runner()(argv)

    def loaded(self):
        return sorted(path.name for path in (self.node.root / "run/gpusim/sys/module").glob("nvidia*"))


@pytest.fixture(scope="module")
def build():
    return simnode.built()


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    return pathlib.Path(str(tmp_path_factory.mktemp("gpusim-nodes")))


@pytest.fixture(name="system")
def running_the_old_driver_with_the_new_one_on_disk(tmp_path, build, templates):
    node = simnode.Node(tmp_path / "root", build, templates)
    node.booted(OLD)
    node.module(NEW)
    node.library(NEW)
    yield System(node)
    node.close()


def task(system, **options):
    uname = os.uname().__class__(("Linux", "n", RELEASE, "v", "x86_64"))
    return DriverReload(dict(OPTIONS, **options), system, str(system.node.root), lambda: uname, lambda seconds: None)


STOPPED = ["stop " + FIRST, "stop " + SECOND]
STARTED = ["start " + SECOND, "start " + FIRST]
UNLOADED = ["rmmod nvidia_uvm", "rmmod nvidia_drm", "rmmod nvidia_modeset", "rmmod nvidia"]
LOADED = ["modprobe nvidia", "modprobe nvidia_modeset", "modprobe nvidia_drm", "modprobe nvidia_uvm"]


def test_a_reload_in_order_and_nothing_the_second_time(system):
    foreseen = task(system).preview()
    assert system.log == [] and foreseen["changed"]
    result = task(system).run()
    assert system.log == STOPPED + UNLOADED + LOADED + STARTED
    assert (result["action"], result["changed"], result["problems"]) == ("reload", True, [])
    assert (result["version_before"], result["version"], result["reboot_required"]) == (OLD, NEW, False)
    assert foreseen["actions"] == result["actions"] and foreseen["version"] == OLD
    assert [item["unit"] for item in result["holders"]] == [FIRST, SECOND]
    system.log.clear()
    again = task(system).run()
    assert (again["action"], again["changed"], system.log) == ("none", False, [])


def test_a_foreign_holder_leaves_the_node_alone(system):
    system.process(99, "user@0.service")
    result = task(system).run()
    assert (result["action"], result["changed"], result["reboot_required"], system.log) == ("reboot", False, True, [])
    assert "p99 (pid 99, user root, unit user@0.service) has /dev/nvidia0 open" in result["reboot_reason"]
    assert task(system, policy="reload").run()["action"] == "refuse" and system.log == []


def test_a_holder_that_comes_while_the_services_stop(system):
    system.on["stop " + SECOND] = lambda: system.process(99, "user@0.service")
    result = task(system).run()
    assert system.log == STOPPED + STARTED, "nothing is unloaded, and the services run again"
    assert (result["action"], result["version"]) == ("reboot", OLD) and "pid 99" in result["reboot_reason"]


def test_a_reference_that_stays_after_the_services_stopped(system):
    count = system.node.root / "run/gpusim/sys/module/nvidia_drm/refcnt"
    count.write_text("1\n")
    result = task(system).run()
    assert system.log == STOPPED + STARTED
    assert result["action"] == "reboot" and "module nvidia_drm has 1 references" in result["reboot_reason"]
    for name in list(system.running):
        system.ends(system.running.pop(name))
    system.log.clear()
    result = task(system, policy="reload").run()
    assert result["action"] == "refuse" and system.log == [], (
        "seen before anything is stopped where no process holds a device"
    )


def test_a_reference_that_goes_in_a_moment_is_waited_for(system):
    count = system.node.root / "run/gpusim/sys/module/nvidia_drm/refcnt"
    count.write_text("1\n")
    waiting = task(system)
    waiting.sleep = lambda seconds: count.write_text("0\n")
    assert waiting.run()["action"] == "reload"


def test_a_reference_that_comes_between_two_unloads(system):
    count = system.node.root / "run/gpusim/sys/module/nvidia/refcnt"
    system.on["rmmod nvidia_modeset"] = lambda: count.write_text("1\n")
    result = task(system).run()
    assert "rmmod nvidia" not in system.log and system.log[-2:] == STARTED
    assert result["action"] == "reboot" and "module nvidia is in use again" in result["reboot_reason"]
    assert result["problems"], (
        "modules of the new driver do not go with the old one, which is said and left to the reboot"
    )


def test_a_module_that_does_not_go(system):
    system.breaks["rmmod nvidia_uvm"] = "rmmod: ERROR: Module nvidia_uvm is in use"
    result = task(system).run()
    assert system.log == STOPPED + ["rmmod nvidia_uvm"] + STARTED
    assert result["action"] == "reboot" and "Module nvidia_uvm is in use" in result["reboot_reason"]
    assert system.loaded() == ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]
    assert task(system, policy="reload").run()["action"] == "refuse"


def test_a_driver_that_does_not_load(system):
    system.breaks["modprobe nvidia"] = "modprobe: ERROR: could not insert 'nvidia': No such device"
    result = task(system).run()
    assert system.log[-2:] == STARTED and (result["action"], result["version"], result["reboot_required"]) == (
        "refuse",
        None,
        False,
    )
    assert result["problems"] == [
        (
            "could not load nvidia (modprobe nvidia answered rc 1: modprobe: ERROR: could not insert "
            "'nvidia': No such device)"
        )
    ]


def test_one_module_of_several_does_not_load(system):
    system.breaks["modprobe nvidia_drm"] = "broken"
    result = task(system).run()
    assert result["action"] == "refuse" and "could not load nvidia_drm" in result["problems"][0]
    assert system.loaded() == ["nvidia", "nvidia_modeset", "nvidia_uvm"] and system.log[-2:] == STARTED


def test_another_version_than_the_one_on_the_disk_is_loaded(system):
    version = system.node.root / "run/gpusim/sys/module/nvidia/version"
    system.on["modprobe nvidia_uvm"] = lambda: version.write_text(OLD + "\n")
    result = task(system).run()
    assert result["action"] == "refuse" and result["problems"] == [
        "after the reload driver %s is loaded, expected driver %s" % (OLD, NEW)
    ]


def test_a_service_that_does_not_stop_is_started_again(system):
    system.breaks["stop " + SECOND] = "Job timed out"
    result = task(system).run()
    assert system.log == STOPPED + STARTED
    assert result["action"] == "refuse" and "could not stop %s" % SECOND in result["problems"][0]


def test_a_service_that_does_not_start_again_fails(system):
    system.breaks["start " + FIRST] = "it exited"
    result = task(system).run()
    assert result["action"] == "refuse" and result["version"] == NEW
    assert result["problems"] == ["could not start %s (systemctl start answered rc 1: it exited)" % FIRST]


def test_services_are_started_whatever_is_raised(system):
    class Unforeseen(Exception):
        pass

    def broken():
        raise Unforeseen

    system.on["rmmod nvidia_uvm"] = broken
    with pytest.raises(Unforeseen):
        task(system).run()
    assert system.log[-2:] == STARTED


def test_nothing_is_loaded_yet(system):
    for name in ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"):
        system.node.tool("rmmod", name)
    for name in list(system.running):
        system.ends(system.running.pop(name))
    result = task(system).run()
    assert (
        system.log == ["modprobe nvidia", "modprobe nvidia_uvm"]
        and result["version"] == NEW
        and result["action"] == "reload"
    )


def test_another_kernel_boots_next(system):
    system.node.kernel("6.1.0-99-amd64")
    system.node.module(NEW, release="6.1.0-99-amd64")
    result = task(system).run()
    assert (result["action"], system.log) == ("reboot", []) and "6.1.0-99-amd64 boots next" in result["reboot_reason"]


def test_switches_of_this_model(system):
    result = task(system, nvswitch=False).run()
    assert (result["action"], system.log) == ("reboot", []) and "NVSwitches join the GPUs" in result["reboot_reason"]
