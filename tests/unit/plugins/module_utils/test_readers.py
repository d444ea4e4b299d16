# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readers of what lies outside NVML, each fed a small root directory or a recorded answer, in every direction."""

from __future__ import annotations

import os
import stat
import unittest.mock

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import driver_files, facts
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import loaded, modules, secureboot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import (
    dpkg,
    files,
    gpu_operator,
    holders,
    pci,
    versions,
)
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import systems
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import (
    KERNEL,
    Recorded,
    kernel,
    link,
    recorded,
    write,
)

pytestmark = pytest.mark.pythons

SYS, PROC = "/sys/module/nvidia/version", "/proc/driver/nvidia/version"
MODULE = "/lib/modules/%s/updates/dkms/nvidia-current.ko" % KERNEL
BANNER = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu May 22 12:00:00 UTC 2025\nGCC version:  gcc 12\n"
)
OPEN_BANNER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.261.03  Release Build  (x@y)\n"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("535.261.03-1", "535.261.03-1", 0),
        ("535.261.03-1", "535.216.03-2", 1),
        ("535.216.03-2~bpo12+1", "535.216.03-2", -1),
        ("1:1", "2", 1),
        ("6.1.0-9", "6.1.0-10", -1),
        ("1.0~rc1", "1.0", -1),
        ("1.0a", "1.0", 1),
        ("1.0+b", "1.0a", 1),
        ("1.0", "1.0-0", 0),
        ("01", "1", 0),
        ("6.1.0-50-amd64", "6.1.0-50-rt-amd64", -1),
    ],
)
def test_the_order_of_versions(left, right, expected):
    assert versions.compare(left, right) == expected
    assert versions.newest([left, right]) in ((left, right) if expected == 0 else (left,) if expected > 0 else (right,))


def test_upstream_versions():
    assert versions.upstream("1:535.216.03-2~bpo12+1") == "535.216.03"
    assert versions.newest(["535.9", "535.10"]) == "535.10" and versions.newest([]) is None
    assert versions.is_driver_version("535.261.03") and not versions.is_driver_version("20220217+3~deb12u1")


def test_links_are_followed_inside_the_root(tmp_path):
    write(tmp_path, "/opt/real")
    link(tmp_path, "/etc/alternatives/it", "/opt/real")
    link(tmp_path, "/usr/lib/it", "../../etc/alternatives/it")
    link(tmp_path, "/loop", "/loop")
    assert files.resolve(str(tmp_path), "/usr/lib/it") == "/opt/real"
    assert files.resolve(str(tmp_path), "/usr/lib/../lib/./it") == "/opt/real"
    assert files.resolve(str(tmp_path), "/gone") is None
    assert files.resolve(str(tmp_path), "/loop") is None
    assert files.read_text(str(tmp_path / "gone")) is None and files.listing(str(tmp_path / "gone")) is None


@pytest.mark.parametrize(
    ("name", "main"),
    [
        ("nvidia.ko", True),
        ("nvidia-current.ko", True),
        ("nvidia-current-open.ko.xz", True),
        ("nvidia-srv.ko.zst", True),
        ("nvidia_open.ko.gz", True),
        ("nvidia-tesla-535.ko", True),
        ("nvidia-legacy-390xx.ko", True),
        ("nvidia-current-uvm.ko", False),
        ("nvidia-current-drm.ko", False),
        ("nvidia-modeset.ko", False),
        ("nvidia-current-open-peermem.ko", False),
        ("nvidia-fs.ko", False),
        ("nvidia-wmi-ec-backlight.ko", False),
        ("nvidiafb.ko", False),
        ("nvidia.ko.bak", False),
    ],
)
def test_the_main_module_is_told_from_the_others(name, main):
    assert bool(modules.MAIN.match(name)) is main


def test_modules_are_found_in_the_order_in_which_they_load(tmp_path):
    base = "/lib/modules/%s/" % KERNEL
    for path in (
        "weak-updates/nvidia.ko",
        "kernel/nvidia-535/nvidia.ko",
        "extra/nvidia/nvidia.ko.xz",
        "updates/dkms/nvidia-current.ko",
        "updates/dkms/nvidia-current-uvm.ko",
        "kernel/drivers/video/nvidia.ko.zst",
        "kernel/drivers/other/nvidia.ko",
    ):
        write(tmp_path, base + path)
    assert modules.find(str(tmp_path), KERNEL) == [
        base + path
        for path in (
            "updates/dkms/nvidia-current.ko",
            "extra/nvidia/nvidia.ko.xz",
            "kernel/nvidia-535/nvidia.ko",
            "kernel/drivers/video/nvidia.ko.zst",
            "weak-updates/nvidia.ko",
        )
    ]
    link(tmp_path, base + "weak-updates/open/nvidia.ko", "../../../gone/extra/nvidia.ko")
    link(tmp_path, base + "weak-updates/kept/nvidia.ko", "../../extra/nvidia/nvidia.ko.xz")
    assert modules.find(str(tmp_path), KERNEL)[4:] == [
        base + "weak-updates/" + path for path in ("kept/nvidia.ko", "nvidia.ko")
    ], "depmod passes over a link that leads nowhere"
    assert modules.find(str(tmp_path), "9.9") == [] and modules.read(str(tmp_path), "9.9", Recorded({})) is None


def test_modprobe_configuration_decides_between_two_flavours(tmp_path):
    other = MODULE.replace("nvidia-current", "nvidia-current-open")
    write(tmp_path, MODULE)
    write(tmp_path, other)
    assert modules.find(str(tmp_path), KERNEL) == [other, MODULE]
    write(
        tmp_path,
        "/etc/nvidia/current/nvidia-modprobe.conf",
        "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n",
    )
    link(tmp_path, "/etc/modprobe.d/nvidia.conf", "/etc/nvidia/current/nvidia-modprobe.conf")
    assert modules.find(str(tmp_path), KERNEL) == [MODULE, other]


def test_a_recorded_modinfo(tmp_path):
    write(tmp_path, MODULE)
    runner = Recorded({"modinfo": recorded("modinfo-nvidia-current.txt")})
    found = modules.read(str(tmp_path), KERNEL, runner)
    assert (found["path"], found["version"], found["license"], found["signer"]) == (
        MODULE,
        "535.261.03",
        "NVIDIA",
        "DKMS module signing key",
    )
    assert modules.made_for(KERNEL, found) and not modules.made_for("6.1.0-56", found)
    assert not modules.made_for(KERNEL, {"vermagic": None})
    assert runner.calls == [["modinfo", str(tmp_path) + MODULE]] and found["error"] is None and found["others"] == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # Without a list modprobe finds nothing.
        (None, False),
        ("", False),
        ("updates/dkms/nvidia-current.ko: kernel/drivers/x.ko\n", True),
        (MODULE + ":\n", True),
        # depmod ran before the module was there, or for another kernel.
        ("kernel/drivers/x.ko: updates/dkms/nvidia-current.ko\n", False),
    ],
)
def test_a_module_that_depmod_did_not_list(tmp_path, content, expected):
    write(tmp_path, MODULE)
    if content is not None:
        write(tmp_path, "/lib/modules/%s/modules.dep" % KERNEL, content)
    assert modules.read(str(tmp_path), KERNEL, Recorded({"modinfo": (0, "", "")}))["listed"] is expected


def test_a_list_of_modules_that_cannot_be_read_says_nothing(tmp_path):
    write(tmp_path, MODULE)
    (tmp_path / "lib/modules" / KERNEL / "modules.dep").mkdir()
    assert modules.read(str(tmp_path), KERNEL, Recorded({"modinfo": (0, "", "")}))["listed"] is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [((127, "", ""), "modinfo is not installed"), ((1, "", "modinfo: ERROR: not found"), "rc 1: modinfo: ERROR")],
)
def test_a_module_that_cannot_be_read_says_why(tmp_path, answer, words):
    write(tmp_path, MODULE)
    found = modules.read(str(tmp_path), KERNEL, Recorded({"modinfo": answer}))
    assert found["version"] is None and words in found["error"]


def test_flavour_by_license():
    assert [modules.flavour(value) for value in ("NVIDIA", "Dual MIT/GPL", None)] == ["proprietary", "open", None]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({SYS: "535.261.03\n", PROC: BANNER}, ("loaded", "535.261.03", "proprietary", False, False)),
        ({SYS: "535.261.03\n", PROC: OPEN_BANNER}, ("loaded", "535.261.03", "open", False, False)),
        ({"/sys/module/x/y": "", PROC: BANNER}, ("loaded", "535.261.03", "proprietary", False, False)),
        ({SYS: "535.216.03\n", PROC: BANNER}, ("loaded", "535.216.03", "proprietary", True, False)),
        ({SYS: "535.216.03\n"}, ("loaded", "535.216.03", None, False, False)),
        ({"/sys/module/x/y": ""}, ("not_loaded", None, None, False, False)),
        ({"/sys/module/nouveau/y": ""}, ("not_loaded", None, None, False, True)),
        ({"/proc/driver/rtc": ""}, ("not_loaded", None, None, False, None)),
        (
            {"/proc/driver/rtc": "", "/proc/modules": "nouveau 1 0 - Live 0x0\n"},
            ("not_loaded", None, None, False, True),
        ),
        ({"/proc/driver/rtc": "", "/proc/modules": "x 1 0 - Live 0x0\n"}, ("not_loaded", None, None, False, False)),
        ({"/sys/module/nvidia/refcnt": "0"}, ("unknown", None, None, False, False)),
        ({"/sys/module/x/y": "", PROC: "something else"}, ("unknown", None, None, False, False)),
        ({}, ("unknown", None, None, False, None)),
    ],
)
def test_what_is_loaded(tmp_path, tree, expected):
    for path, content in tree.items():
        write(tmp_path, path, content)
    found = loaded.read_driver(str(tmp_path))
    assert (found["state"], found["version"], found["flavour"], found["disagree"], found["nouveau"]) == expected


@pytest.mark.parametrize(
    "tree, expected",
    [
        ({}, None),
        ({"nvidia/version": "550.163.01"}, 0),  # nobody ever asked for CUDA
        ({"nvidia_uvm/refcnt": "0"}, 0),
        ({"nvidia_uvm/refcnt": "4"}, 4),
        ({"nvidia_uvm/refcnt": "3", "nvidia_uvm/holders/gdrdrv/refcnt": "0"}, 2),
        ({"nvidia_uvm/srcversion": "AAA"}, None),
        ({"nvidia_uvm/refcnt": "-1"}, None),  # it is being unloaded
    ],
)
def test_how_often_processes_have_the_way_to_cuda_open(tmp_path, tree, expected):
    for path, content in tree.items():
        write(tmp_path, "/sys/module/" + path, content + "\n")
    assert loaded.read_driver(str(tmp_path))["compute_users"] == expected


def test_the_source_of_loaded_modules_and_of_those_on_disk(tmp_path):
    write(tmp_path, "/sys/module/nvidia/version", "550.163.01\n")
    write(tmp_path, "/sys/module/nvidia/srcversion", "AAA\n")
    write(tmp_path, "/sys/module/nvidia_uvm/srcversion", "BBB\n")
    write(tmp_path, "/sys/module/nvidia_drm/refcnt", "0\n")
    write(tmp_path, "/sys/module/nvidia_fs/srcversion", "CCC\n")
    assert loaded.read_driver(str(tmp_path))["sources"] == {"nvidia": "AAA", "nvidia_uvm": "BBB"}
    for name in (
        "nvidia-current.ko.xz",
        "nvidia-current-uvm.ko.xz",
        "nvidia-current-drm.ko",
        "nvidia-current-fs.ko.xz",
    ):
        write(tmp_path, "/lib/modules/%s/updates/dkms/%s" % (KERNEL, name))
    runner = Recorded({"modinfo": recorded("modinfo-nvidia-current.txt")})
    item = modules.read(str(tmp_path), KERNEL, runner)
    assert modules.sources(str(tmp_path), item, runner) == dict.fromkeys(
        ("nvidia", "nvidia_uvm"), "AC415F9243EB439A4D6B17F"
    )
    assert [call[-1].rsplit("/", 1)[1] for call in runner.calls] == ["nvidia-current.ko.xz", "nvidia-current-uvm.ko.xz"]


def debian_library(root, version):
    write(root, "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.%s" % version)
    link(root, "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1", "libnvidia-ml.so.%s" % version)
    link(
        root,
        "/etc/alternatives/nvidia--libnvidia-ml.so.1-x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1",
    )
    link(
        root,
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "/etc/alternatives/nvidia--libnvidia-ml.so.1-x86_64-linux-gnu",
    )


def test_the_library_is_the_file_that_the_package_installed(tmp_path):
    debian_library(tmp_path, "535.261.03")
    write(tmp_path, "/usr/local/lib/libnvidia-ml.so.1")
    found = driver_files.read_libraries(str(tmp_path))
    assert (found["version"], found["path"]) == (
        "535.261.03",
        "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.261.03",
    )


def test_a_library_without_a_version_in_its_name_says_nothing(tmp_path):
    write(tmp_path, "/usr/local/lib/libnvidia-ml.so.1")
    assert driver_files.read_libraries(str(tmp_path)) == {"version": None, "path": None, "candidates": []}


def test_several_libraries_are_decided_by_the_link_or_not_at_all(tmp_path):
    debian_library(tmp_path, "535.261.03")
    write(tmp_path, "/usr/lib64/libnvidia-ml.so.470.57.02")
    assert driver_files.read_libraries(str(tmp_path))["version"] == "535.261.03"
    link(tmp_path, "/usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.470.57.02")
    found = driver_files.read_libraries(str(tmp_path))
    assert found["version"] is None and len(found["candidates"]) == 2


def test_the_loader_configuration_is_followed(tmp_path):
    write(tmp_path, "/etc/ld.so.conf.d/x.conf", "# x\n/opt/nv/lib\n")
    write(tmp_path, "/opt/nv/lib/libnvidia-ml.so.535.261.03")
    assert driver_files.read_libraries(str(tmp_path))["version"] == "535.261.03"


def test_firmware_by_version(tmp_path):
    write(tmp_path, "/lib/firmware/nvidia/535.261.03/gsp_ga10x.bin")
    write(tmp_path, "/lib/firmware/nvidia/535.216.03/other.bin")
    write(tmp_path, "/lib/firmware/nvidia/ga100/gsp.bin")
    assert (
        driver_files.read_firmware(str(tmp_path)) == ["535.261.03"]
        and driver_files.read_firmware(str(tmp_path / "x")) == []
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("options nvidia NVreg_EnableGpuFirmware=0\n", True),
        ("options nvidia-current NVreg_X=1 NVreg_EnableGpuFirmware=0\n", True),
        ("#options nvidia NVreg_EnableGpuFirmware=0\n", False),
        ("options nvidia NVreg_EnableGpuFirmware=1\n", False),
    ],
)
def test_firmware_switched_off(tmp_path, content, expected):
    write(tmp_path, "/etc/modprobe.d/nvidia.conf", content)
    assert driver_files.is_firmware_disabled(str(tmp_path)) is expected


ENABLED = {"mokutil --sb-state": "SecureBoot enabled\n"}


@pytest.mark.parametrize(
    ("variable", "efi", "answers", "expected"),
    [
        (b"\x06\x00\x00\x00\x01", True, {}, "enabled"),
        (b"\x06\x00\x00\x00\x00", True, {}, "disabled"),
        (b"\x06", True, {}, "unknown"),
        (None, True, {}, "unknown"),
        (None, True, ENABLED, "enabled"),
        (None, True, {"mokutil --sb-state": "SecureBoot disabled\n"}, "disabled"),
        (None, True, {"mokutil --sb-state": "This system doesn't support Secure Boot\n"}, "unknown"),
        (None, True, {"mokutil --sb-state": (1, "", "no")}, "unknown"),
        (None, False, {}, "disabled"),
    ],
)
def test_secure_boot(tmp_path, variable, efi, answers, expected):
    write(tmp_path, "/sys/kernel/x")
    if efi:
        write(tmp_path, "/sys/firmware/efi/x")
    if variable is not None:
        write(tmp_path, secureboot.VARIABLE, variable)
    assert secureboot.read(str(tmp_path), Recorded(answers))["state"] == expected


@pytest.mark.parametrize(
    "enforce,lockdown,expected",
    [
        ("Y", None, "enabled"),
        ("N", "none [integrity] confidentiality", "enabled"),
        ("N", "none integrity [confidentiality]", "enabled"),
        (None, "none [integrity] confidentiality", "enabled"),
        ("N", "[none] integrity confidentiality", "disabled"),  # a shim whose validation is off
        ("N", None, "enabled"),
        (None, "[none] integrity confidentiality", "enabled"),
        (None, None, "enabled"),
    ],
)
def test_what_the_kernel_enforces_goes_before_the_firmware(tmp_path, enforce, lockdown, expected):
    write(tmp_path, secureboot.VARIABLE, b"\x06\x00\x00\x00\x01")
    for path, text in (("module/module/parameters/sig_enforce", enforce), ("kernel/security/lockdown", lockdown)):
        if text:
            write(tmp_path, "/sys/" + path, text + "\n")
    assert secureboot.read_state(str(tmp_path), Recorded({})) == expected


@pytest.mark.parametrize(
    "state,keys,signer,is_running,expected",
    [
        ("disabled", None, None, False, "trusted"),
        ("unknown", ["a"], "a", False, "unknown"),
        ("enabled", ["a"], None, True, "unsigned"),
        ("enabled", ["a"], "a", False, "trusted"),
        ("enabled", None, "Canonical", False, "trusted"),
        ("enabled", [], "Build time autogenerated kernel key", True, "trusted"),
        ("enabled", [], "Build time autogenerated kernel key", False, "untrusted"),
        ("enabled", [], "b", True, "untrusted"),
        ("enabled", None, "b", True, "unknown"),
    ],
)
def test_one_answer_about_a_signer(state, keys, signer, is_running, expected):
    found = {"state": state, "keys": keys, "built_in": ["Canonical", "Build time autogenerated kernel key"]}
    assert secureboot.judge(found, signer, is_running) == expected


def test_secure_boot_without_sys_is_unknown(tmp_path):
    assert secureboot.read_state(str(tmp_path), Recorded({})) == "unknown"


def test_enrolled_keys():
    listing = (
        "[key 1]\n        Issuer: CN=A\n        Subject: O=Debian, CN=Debian Secure Boot CA\n[key 2]\n"
        "        Subject: CN=DKMS module signing key\n"
    )
    assert secureboot.read_keys(Recorded({"mokutil --list-enrolled": listing})) == [
        "DKMS module signing key",
        "Debian Secure Boot CA",
    ]
    assert secureboot.read_keys(Recorded({})) is None
    assert secureboot.read_keys(Recorded({"mokutil": (1, "", "")})) is None


KERNEL_KEYS = """\
02c3fc38 I------     2 perm 1f0b0000     0     0 keyring   .builtin_trusted_keys: 2
0a1b2c3d I------     1 perm 1f030000     0     0 asymmetri Canonical Ltd. Kernel Module Signing: \
88f752e560a1e0737e31163a466ad7b70a850c19: X509.rsa 0a850c19 []
0a1b2c3e I------     1 perm 1f010000     0     0 asymmetri Build time autogenerated kernel key: 1a2b: X509.rsa \
9ba3c6a1 []
1c2d3e4f I--Q---     4 perm 3f030000     0     0 user      asymmetric: X509. 16
"""


def test_keys_that_the_kernel_has_built_in(tmp_path):
    assert secureboot.parse_kernel_keys(KERNEL_KEYS) == [
        "Build time autogenerated kernel key",
        "Canonical Ltd. Kernel Module Signing",
    ]
    assert secureboot.parse_kernel_keys("") == []
    write(tmp_path, "/proc/keys", KERNEL_KEYS)
    write(tmp_path, "/sys/firmware/efi/x")
    write(tmp_path, secureboot.VARIABLE, b"\x06\x00\x00\x00\x01")
    assert len(secureboot.read(str(tmp_path), Recorded({}))["built_in"]) == 2


@pytest.mark.parametrize(
    "ready,container,program,owner",
    [
        (None, False, False, False),
        ("IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\n", False, False, False),
        # the validator's word is the newest: what is mounted may be the host's own root
        ("IS_HOST_DRIVER=true\n", False, True, False),
        ("IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n", False, False, True),
        (None, True, False, True),
        (None, False, True, True),
        ("", True, True, True),
        ("something else\n", False, False, False),
    ],
)
def test_who_brings_the_driver(tmp_path, ready, container, program, owner):
    for path, content in (
        (gpu_operator.READY, ready),
        (gpu_operator.CONTAINER, "" if container else None),
        (gpu_operator.PROGRAM, "" if program else None),
    ):
        if content is not None:
            write(tmp_path, path, content)
    found = gpu_operator.read_operator(str(tmp_path))
    assert found["owner"] is owner and bool(found["signs"]) is (owner or "true" in (ready or ""))
    refusals = systems.decide_owner(found)
    assert [item["id"] for item in refusals] == (["operator_owned"] if owner else [])
    assert all(item["message"] and "ClusterPolicy" in item["next_step"] for item in refusals)


def test_what_the_operator_left_cannot_be_read(tmp_path):
    (tmp_path / "run/nvidia/validations/driver-ready").mkdir(parents=True)
    found = gpu_operator.read_operator(str(tmp_path))
    assert found["owner"] is None and [item["id"] for item in systems.decide_owner(found)] == ["operator_unknown"]


def test_pci_devices(tmp_path):
    for address, vendor, kind in (
        ("0000:1b:00.0", "0x10de", "0x030200"),
        ("0000:1b:00.1", "0x10de", "0x040300"),
        ("0000:00:02.0", "0x8086", "0x030000"),
    ):
        for name, value in (("vendor", vendor), ("class", kind), ("device", "0x2330")):
            write(tmp_path, "/sys/bus/pci/devices/%s/%s" % (address, name), value + "\n")
    assert pci.read_devices(str(tmp_path)) == [{"address": "0000:1b:00.0", "device": "0x2330", "class": "0x030200"}]
    assert pci.read_devices(str(tmp_path / "empty")) is None


def test_a_recorded_list_of_packages(tmp_path):
    runner = Recorded({"dpkg-query": recorded("dpkg-query.txt")})
    found = dpkg.read_packages(str(tmp_path), runner)
    assert "bash" not in found["packages"] and "nvidia-modprobe" in found["packages"]
    bound = sorted(name for name, item in found["packages"].items() if dpkg.is_driver_package(name, item))
    assert bound == [
        "firmware-nvidia-gsp",
        "libnvidia-ml1",
        "nvidia-alternative",
        "nvidia-kernel-dkms",
        "nvidia-kernel-support",
        "nvidia-legacy-check",
        "nvidia-smi",
    ]
    assert found["interrupted"] == []


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("ii ", None),
        ("rc ", None),
        ("un ", None),
        ("iH ", "half-installed"),
        ("iU ", "unpacked"),
        ("iF ", "half-configured"),
        ("iiR", "reinstallation required"),
        ("iW ", "waits for triggers"),
        ("it ", "triggers have not run"),
    ],
)
def test_states_of_an_interrupted_dpkg(tmp_path, status, state):
    found = dpkg.read_packages(
        str(tmp_path),
        Recorded({"dpkg-query": "nvidia-kernel-dkms\tamd64\t535.261.03-1\t%s\tnvidia-graphics-drivers\n" % status}),
    )
    assert found["interrupted"] == ([{"package": "nvidia-kernel-dkms", "state": state}] if state else [])
    assert found["available"] is True


def test_the_journal_of_dpkg_and_a_missing_dpkg(tmp_path):
    write(tmp_path, "/var/lib/dpkg/updates/0001")
    runner = Recorded({})
    found = dpkg.read_packages(str(tmp_path), runner)
    assert (found["journal"], found["available"]) == (1, False) and "not on this machine" in found["error"]
    assert runner.calls[0][1].startswith("--admindir=%s" % tmp_path)
    assert "rc 2: no" in dpkg.read_packages(str(tmp_path), Recorded({"dpkg-query": (2, "", "no")}))["error"]


@pytest.mark.parametrize(
    ("name", "version", "source", "bound"),
    [
        ("libcuda1", "535.261.03-1", "nvidia-graphics-drivers", True),
        ("nvidia-persistenced", "535.171.04-1~deb12u1", "nvidia-persistenced", False),
        ("nvidia-open-kernel-dkms", "535.261.03-1", "nvidia-open-gpu-kernel-modules", True),
        ("nvidia-settings", "535.171.04-1", "nvidia-settings", False),
        ("libnvidia-compute-570", "570.1.2-0ubuntu1", "nvidia-graphics-drivers-570", True),
        ("nvidia-container-toolkit", "1.17.0-1", "nvidia-container-toolkit", False),
        ("nvidia-fabricmanager-535", "535.261.03-1", "fabricmanager", True),
        ("libnvidia-egl-wayland1", "1:1.1.10-1", "egl-wayland", False),
    ],
)
def test_packages_that_must_be_of_the_driver_version(name, version, source, bound):
    assert dpkg.is_driver_package(name, {"version": version, "source": source}) is bound


def test_holders(tmp_path):
    for pid, target, cgroup in (
        (10, "/dev/nvidia0", "0::/system.slice/dcgm.service\n"),
        (11, "/dev/null", "0::/\n"),
        (12, "/dev/nvidia-uvm", "1:x:/user.slice/user-1000.slice/session-1.scope\n"),
        (14, "/dev/nvidia-caps/nvidia-cap1", "0::/\n"),
        (15, "/dev/nvidiaXother.txt/x y", ""),
    ):
        link(tmp_path, "/proc/%d/fd/3" % pid, target)
        write(tmp_path, "/proc/%d/comm" % pid, "job%d\n" % pid)
        write(tmp_path, "/proc/%d/status" % pid, "Name: x\nUid:\t4294900000\t0\t0\t0\n")
        write(tmp_path, "/proc/%d/cgroup" % pid, cgroup)
    write(tmp_path, "/proc/13/maps", "7f00-7f01 rw-s 0000 00:06 12 /dev/nvidia1\n7f02-7f03 r-xp 0000 00:06 12\n")
    found = dict((item["pid"], item) for item in holders.read_holders(str(tmp_path)))
    assert sorted(found) == [10, 12, 13, 14]
    assert found[10] == {
        "pid": 10,
        "user": "4294900000",
        "comm": "job10",
        "unit": "dcgm.service",
        "pod": None,
        "job": None,
        "devices": ["/dev/nvidia0"],
    }
    assert (found[12]["unit"], found[14]["unit"], found[13]["devices"], found[13]["user"]) == (
        "session-1.scope",
        None,
        ["/dev/nvidia1"],
        None,
    )
    assert holders.read_holders(str(tmp_path / "empty")) is None


def test_what_a_user_named_like_a_device_is_none(tmp_path):
    """In a mount namespace of their own, users give any file the name of a device."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make device nodes")
    own, other, plain = (str(tmp_path / name) for name in ("own", "other", "plain"))
    for path, device in ((own, os.makedev(1, 7)), (other, os.makedev(4, 0))):
        os.mknod(path, stat.S_IFCHR | 0o600, device)
    write(tmp_path, "/plain", "x")
    (tmp_path / "dev").mkdir()
    os.mknod(str(tmp_path / "dev/nvidia0"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
    real = os.readlink
    names = {}
    for pid, target in ((10, own), (11, other), (12, plain)):
        link(tmp_path, "/proc/%d/fd/3" % pid, target)
        names[str(tmp_path / ("proc/%d/fd/3" % pid))] = "/dev/nvidia0"
        write(tmp_path, "/proc/%d/maps" % (pid + 10), "00400000-00401000 rw-s 0000 00:06 12 /dev/nvidia0\n")
        link(tmp_path, "/proc/%d/map_files/400000-401000" % (pid + 10), target)
    with unittest.mock.patch.object(holders.os, "readlink", lambda path: names.get(path) or real(path)):
        assert [item["pid"] for item in holders.read_holders(str(tmp_path))] == [10, 20]


UID = "0f5d8c3e-6a7b-4c1d-9e2f-3a4b5c6d7e8f"
MINE = "/user.slice/user-1000.slice/user@1000.service"


@pytest.mark.parametrize(
    "path, unit, pod, job",
    [
        ("/system.slice/nvidia-dcgm.service", "nvidia-dcgm.service", None, None),
        ("/system.slice/system-x.slice/x@1.service", "x@1.service", None, None),
        ("/init.scope", "init.scope", None, None),
        ("/system.slice/slurmstepd.scope/job_77/step_0/user/task_0", "slurmstepd.scope", None, "77"),
        ("/slurm/uid_1000/job_77/step_0", None, None, "77"),
        ("/kubepods.slice/kubepods-pod%s.slice/cri-containerd-%s.scope" % (UID.replace("-", "_"), "a" * 64),
         "cri-containerd-%s.scope" % ("a" * 64), UID, None),
        ("/kubepods/burstable/pod%s/%s" % (UID, "a" * 64), None, UID, None),
        # What users name: below their own manager, and below a unit whose groups they may make.
        (MINE + "/app.slice/nvidia-dcgm.service", "user@1000.service", None, None),
        (MINE + "/nvidia-dcgm.service/slurm/job_1", "user@1000.service", None, None),
        (MINE + "/kubepods/pod%s/x" % UID, "user@1000.service", None, None),
        ("/system.slice/docker-%s.scope/nvidia-dcgm.service" % ("a" * 64), "docker-%s.scope" % ("a" * 64), None, None),
        ("/docker/%s/system.slice/nvidia-dcgm.service" % ("a" * 64), None, None, None),
        ("/", None, None, None),
    ],
)  # fmt: skip
def test_units_pods_and_jobs_are_those_of_the_system(path, unit, pod, job):
    assert holders.owner([path]) == {"unit": unit, "pod": pod, "job": job}


def test_units_are_those_of_the_manager_that_runs_as_process_1(tmp_path):
    write(tmp_path, "/proc/1/cgroup", "0::/box/lab0/init.scope\n")
    write(tmp_path, "/proc/10/cgroup", "0::/box/lab0/system.slice/nvidia-dcgm.service\n")
    assert holders.unit(str(tmp_path / "proc"), 10) == "nvidia-dcgm.service"


def test_facts_of_an_empty_machine_are_complete_and_nothing_crashes(tmp_path):
    found = facts.read(str(tmp_path), Recorded({}))
    assert found["dkms"]["available"] is False and found["dpkg"]["available"] is False and found["pci"] is None
    assert found["kernel"]["next_boot"] is None and found["modules"] == {found["kernel"]["running"]: None}


def test_facts_of_a_node_with_a_driver(tmp_path):
    kernel(tmp_path, KERNEL)
    write(tmp_path, MODULE)
    write(tmp_path, "/var/log/nvidia-installer.log")
    found = facts.read(
        str(tmp_path),
        Recorded(
            {
                "modinfo": recorded("modinfo-nvidia-current.txt"),
                "dkms status": recorded("dkms-status-installed.txt"),
                "dpkg-query": recorded("dpkg-query.txt"),
            }
        ),
    )
    assert found["modules"][KERNEL]["version"] == "535.261.03" and found["headers"][KERNEL] is True
    assert found["dkms"]["entries"][0]["state"] == "installed" and found["runfile"] == ["/var/log/nvidia-installer.log"]
