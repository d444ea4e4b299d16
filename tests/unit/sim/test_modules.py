# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""modprobe, rmmod and lsmod of a simulated node: outcome, words and exit status of the real ones."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

OLD, NEW, RELEASE = simnode.OLD, simnode.NEW, simnode.RELEASE


def outcome(done):
    return done.returncode, done.stdout, done.stderr


def loaded(node):
    """Module, use count and users, by lsmod."""
    lines = [line.split() for line in node.tool("lsmod").stdout.splitlines()]
    assert lines[0] == ["Module", "Size", "Used", "by"]
    return {
        fields[0]: (int(fields[2]), set(fields[3].split(",")) if len(fields) > 3 else set()) for fields in lines[1:]
    }


def start(node, **keywords):
    """Driver files on disk, nothing loaded."""
    node.kernel()
    node.sim("boot")
    node.module(**keywords)
    return node


def test_a_module_that_no_kernel_has(node):
    start(node, release="6.1.0-9-amd64")
    text = "modprobe: FATAL: Module nvidia not found in directory /lib/modules/%s\n" % RELEASE
    assert outcome(node.tool("modprobe", "nvidia", check=False)) == (1, "", text)
    assert outcome(node.tool("modprobe", "-q", "nvidia", check=False)) == (1, "", "")
    assert outcome(node.tool("modprobe", "-n", "nvidia", check=False)) == (1, "", text)
    assert loaded(node) == {}


@pytest.mark.parametrize("compress", [False, True])
def test_loading_brings_what_is_needed(node, compress):
    start(node, compress=compress)
    node.tool("modprobe", "nvidia-drm")
    assert loaded(node) == {
        "nvidia": (1, {"nvidia_modeset"}),
        "nvidia_modeset": (1, {"nvidia_drm"}),
        "nvidia_drm": (0, set()),
    }
    assert node.read("run/gpusim/sys/module/nvidia/version") == OLD + "\n"
    assert node.read("run/gpusim/sys/module/nvidia/refcnt") == "1\n"
    assert (node.root / "run/gpusim/sys/module/nvidia/holders/nvidia_modeset").is_symlink()
    assert OLD in node.read("run/gpusim/proc-driver/nvidia/version")
    assert len(list((node.root / "run/gpusim/proc-driver/nvidia/gpus").iterdir())) == 8


def test_modules_of_a_prebuilt_package_are_loaded_where_dkms_built_none(node):
    start(node, version=NEW, folder="kernel/nvidia-570srv-open")
    node.tool("modprobe", "nvidia")
    assert node.read("run/gpusim/sys/module/nvidia/version") == NEW + "\n"
    node.tool("rmmod", "nvidia")
    node.module(version=OLD)
    node.tool("modprobe", "nvidia")
    assert node.read("run/gpusim/sys/module/nvidia/version") == OLD + "\n", "the kernel searches updates first"


def test_device_files_come_and_go_with_the_modules(node):
    start(node)

    def names():
        return {path.name for path in (node.root / "dev").iterdir()} - {"kmsg"}

    node.tool("modprobe", "nvidia")
    assert names() == {"nvidiactl", "nvidia-caps"} | {"nvidia%d" % index for index in range(8)}, (
        "a board with MIG has the driver's capabilities"
    )
    node.tool("modprobe", "nvidia-uvm")
    assert names() >= {"nvidia-uvm", "nvidia-uvm-tools"}
    node.tool("modprobe", "-r", "nvidia-uvm")
    assert names() == set()


def test_removing(node):
    start(node)
    node.tool("modprobe", "-a", "nvidia-drm", "nvidia-uvm")
    assert outcome(node.tool("modprobe", "-r", "nvidia", check=False)) == (
        1,
        "",
        "modprobe: FATAL: Module nvidia is in use.\n",
    )
    assert outcome(node.tool("rmmod", "nvidia", check=False)) == (
        1,
        "",
        "rmmod: ERROR: Module nvidia is in use by: nvidia_modeset nvidia_uvm\n",
    )
    assert outcome(node.tool("rmmod", "nvidia_drm")) == (0, "", "")
    assert set(loaded(node)) == {"nvidia", "nvidia_modeset", "nvidia_uvm"}
    node.tool("modprobe", "-r", "nvidia_modeset")
    assert set(loaded(node)) == {"nvidia", "nvidia_uvm"}
    node.tool("modprobe", "-r", "nvidia_uvm")
    assert loaded(node) == {}
    assert not (node.root / "run/gpusim/proc-driver/nvidia").exists()
    assert not (node.root / "run/gpusim/sys/module/nvidia").exists()
    assert outcome(node.tool("rmmod", "nvidia", check=False)) == (
        1,
        "",
        "rmmod: ERROR: Module nvidia is not currently loaded\n",
    )
    assert outcome(node.tool("modprobe", "-r", "nvidia")) == (0, "", "")


def test_an_open_device_file_holds_the_module(booted):
    booted.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    booted.tool("modprobe", "nvidia")
    booted.sim("inject", "stray-process", "--gpu", "4")
    assert loaded(booted) == {"nvidia": (1, set())}
    assert outcome(booted.tool("rmmod", "nvidia", check=False)) == (1, "", "rmmod: ERROR: Module nvidia is in use\n")
    booted.sim("clear", "stray-process")
    booted.tool("rmmod", "nvidia")
    assert loaded(booted) == {}


def test_modules_of_two_versions_do_not_go_together(node):
    start(node)
    node.tool("modprobe", "nvidia")
    node.module(NEW)
    assert outcome(node.tool("modprobe", "nvidia-uvm", check=False)) == (
        1,
        "",
        "modprobe: ERROR: could not insert 'nvidia-uvm': Invalid argument\n",
    )


def test_a_node_without_gpus(make_node):
    node = start(make_node(gpus=0))
    assert outcome(node.tool("modprobe", "nvidia", check=False)) == (
        1,
        "",
        "modprobe: ERROR: could not insert 'nvidia': No such device\n",
    )
    assert "No NVIDIA GPU found" in node.sim("kmsg").stdout


@pytest.mark.parametrize(
    "reason, text",
    [
        ([], "No such device"),
        (["key-rejected"], "Key was rejected by service"),
        (["invalid"], "Invalid argument"),
        (["format"], "Exec format error"),
    ],
)
def test_a_driver_that_does_not_load(node, reason, text):
    start(node)
    node.sim("inject", "module-load-fails", *(reason + ["--driver", OLD]))
    assert outcome(node.tool("modprobe", "nvidia", check=False)) == (
        1,
        "",
        "modprobe: ERROR: could not insert 'nvidia': %s\n" % text,
    )
    node.module(NEW)
    node.tool("modprobe", "nvidia")
    assert node.read("run/gpusim/sys/module/nvidia/version") == NEW + "\n"


@pytest.mark.parametrize(
    "licence, kind, taint",
    [("NVIDIA", "UNIX x86_64 Kernel Module", "POE"), ("Dual MIT/GPL", "UNIX Open Kernel Module for x86_64", "OE")],
)
def test_both_flavours(node, licence, kind, taint):
    start(node, licence=licence)
    node.tool("modprobe", "nvidia")
    assert node.read("run/gpusim/proc-driver/nvidia/version").startswith("NVRM version: NVIDIA %s  %s  " % (kind, OLD))
    assert node.read("run/gpusim/sys/module/nvidia/taint") == taint + "\n"


def test_a_parameter_is_not_a_module(node):
    start(node)
    node.tool("modprobe", "nvidia", "NVreg_OpenRmEnableUnsupportedGpus=1")
    assert set(loaded(node)) == {"nvidia"}


def test_the_kernel_lists_what_is_loaded(booted):
    """/proc/modules: name, size, uses, users, state and taint of each, the one loaded last at the top."""

    def listed():
        return [
            (words[0], words[2], words[3], words[4], words[6:])
            for words in (line.split() for line in booted.read("proc/modules").splitlines())
        ]

    taint = ["(POE)"]
    assert listed() == [
        ("nvidia_uvm", "0", "-", "Live", taint),
        ("nvidia_drm", "0", "-", "Live", taint),
        ("nvidia_modeset", "1", "nvidia_drm,", "Live", taint),
        ("nvidia", "2", "nvidia_modeset,nvidia_uvm,", "Live", taint),
    ]
    assert {line.split()[0]: line.split()[1] for line in booted.read("proc/modules").splitlines()} == {
        line.split()[0]: line.split()[1] for line in booted.tool("lsmod").stdout.splitlines()[1:]
    }
    booted.sim("inject", "stray-process", "--gpu", "0")
    assert dict((name, uses) for name, uses, *_rest in listed()) == {
        "nvidia_uvm": "1",
        "nvidia_drm": "0",
        "nvidia_modeset": "1",
        "nvidia": "3",
    }
    booted.sim("clear")
    simnode.wait_for(lambda: loaded(booted)["nvidia"][0] == 2)
    booted.tool("modprobe", "-r", "nvidia_drm", "nvidia_uvm")
    assert listed() == []
