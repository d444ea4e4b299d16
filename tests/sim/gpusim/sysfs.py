# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files the driver and the PCI bus would show: /proc/driver, /sys/module, /sys/bus/pci/devices, /dev/nvidia*."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import struct

from . import state

# What the VPD of an adapter says that manages NVLink switches, and the kernel modules that this takes.
SWITCH_MANAGER = "SW_MNG"
ADAPTER_MODULES = ("mlx5_core", "ib_umad")


def write_file(name: str, text: str) -> None:
    target = state.path(name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as stream:
        stream.write(text)


def _link(name: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(state.path(name))
    os.makedirs(os.path.dirname(state.path(name)), exist_ok=True)
    os.symlink(target, state.path(name))


def _remove(name: str) -> None:
    shutil.rmtree(state.path(name), ignore_errors=True)


# ---- the PCI bus ----


def _generation_text(generation: str) -> str:
    speed = {"1": "2.5", "2": "5.0", "3": "8.0", "4": "16.0", "5": "32.0", "6": "64.0"}.get(generation, "Unknown")
    return speed + (" GT/s PCIe" if speed != "Unknown" else "")


def pci_devices() -> list[dict]:
    node = state.described()
    devices = []
    for index in range(node.getint("node", "gpus", fallback=0)):
        devices.append(
            {
                "address": state.sysfs_address(state.gpu_value(index, "pci")),
                "gpu": index,
                "id": int(state.gpu_value(index, "pci_device_id"), 0),
                "subsystem": int(state.gpu_value(index, "pci_subsystem_id"), 0),
                "class": 0x030200,
                "numa": state.gpu_value(index, "numa_node", "0"),
            }
        )
    for index in range(node.getint("node", "nvswitches", fallback=0)):
        section = node["nvswitch %d" % index]
        devices.append(
            {
                "address": state.sysfs_address(section["pci"]),
                "gpu": None,
                "id": int(section["pci_device_id"], 0),
                "subsystem": int(section["pci_device_id"], 0),
                "class": 0x068000,
                "numa": "-1",
            }
        )
    for index in range(node.getint("node", "nvlink_managers", fallback=0)):
        section = node["nvlink_manager %d" % index]
        devices.append(
            {
                "address": state.sysfs_address(section["pci"]),
                "gpu": None,
                "id": int(section["pci_device_id"], 0),
                "subsystem": int(section["pci_device_id"], 0),
                "class": 0x020700,
                "numa": "-1",
                "vpd": SWITCH_MANAGER,
            }
        )
    return devices


def vital_product_data(text: str) -> bytes:
    """What an adapter says of itself: an identifier string, one vendor's keyword, the end (PCI Local Bus Specification,
    appendix I).
    """
    name, keyword = b"gpusim adapter", b"V0" + bytes([len(text)]) + text.encode("ascii")
    return b"\x82" + struct.pack("<H", len(name)) + name + b"\x90" + struct.pack("<H", len(keyword)) + keyword + b"\x78"


def write_pci(sys_root: str = state.SYS) -> None:
    """One directory for each NVIDIA device of the node and each adapter of its NVLink switches, with what lspci and the
    kernel's tools read.
    """
    absent = absent_gpus()
    for device in pci_devices():
        base = "%s/bus/pci/devices/%s" % (sys_root, device["address"])
        _remove(base)
        if device["gpu"] in absent:
            continue
        vendor, ident = device["id"] & 0xFFFF, device["id"] >> 16
        subvendor, subident = device["subsystem"] & 0xFFFF, device["subsystem"] >> 16
        modalias = "pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X" % (
            vendor,
            ident,
            subvendor,
            subident,
            device["class"] >> 16,
            device["class"] >> 8 & 0xFF,
            device["class"] & 0xFF,
        )
        files = {
            "vendor": "0x%04x" % vendor,
            "device": "0x%04x" % ident,
            "subsystem_vendor": "0x%04x" % subvendor,
            "subsystem_device": "0x%04x" % subident,
            "class": "0x%06x" % device["class"],
            "revision": "0xa1",
            "irq": "0",
            "numa_node": device["numa"],
            "enable": "1",
            "modalias": modalias,
            "uevent": "PCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\nMODALIAS=%s"
            % (device["class"], vendor, ident, subvendor, subident, device["address"], modalias),
            "resource": "\n".join(["0x%016x 0x%016x 0x%016x" % (0, 0, 0)] * 13),
            "gpusim": "simulated device, no hardware",
        }
        if device["gpu"] is not None:
            for kind in ("current", "max"):
                files["%s_link_speed" % kind] = _generation_text(state.gpu_now(device["gpu"], "pcie_gen_%s" % kind))
                files["%s_link_width" % kind] = state.gpu_now(device["gpu"], "pcie_width_%s" % kind)
            for kind, total, key in (
                ("correctable", "COR", "correctable"),
                ("nonfatal", "NONFATAL", "non_fatal"),
                ("fatal", "FATAL", "fatal"),
            ):
                count = state.gpu_now(device["gpu"], "pcie_" + key, "0")
                files["aer_dev_" + kind] = "%s %s\nTOTAL_ERR_%s %s" % (
                    "RxErr" if kind == "correctable" else "DLP",
                    count,
                    total,
                    count,
                )
        for name, text in files.items():
            write_file("%s/%s" % (base, name), text + "\n")
        config = bytearray(256)
        struct.pack_into(
            "<HHHHBBBB",
            config,
            0,
            vendor,
            ident,
            0x0006,
            0x0010,
            0xA1,
            device["class"] & 0xFF,
            device["class"] >> 8 & 0xFF,
            device["class"] >> 16,
        )
        struct.pack_into("<HH", config, 0x2C, subvendor, subident)
        with open(state.path(base + "/config"), "wb") as stream:
            stream.write(config)
        if "vpd" in device:
            with open(state.path(base + "/vpd"), "wb") as stream:
                stream.write(vital_product_data(device["vpd"]))
    bind_driver(sys_root)


def write_adapter_modules() -> None:
    """The kernel modules through which NVLink switches are managed.

    They are not the GPU driver's, and are there from the boot on.
    """
    if not any("vpd" in device for device in pci_devices()):
        return
    for name in ADAPTER_MODULES:
        if not os.path.lexists(state.path("%s/module/%s" % (state.SYS, name))):
            write_file("%s/module/%s/initstate" % (state.SYS, name), "live\n")
            write_file("%s/module/%s/gpusim" % (state.SYS, name), "simulated module, nothing runs in the kernel\n")


def bind_driver(sys_root: str = state.SYS) -> None:
    """The driver link of each GPU, as long as a driver holds it."""
    loaded = state.read(state.LOADED)
    driver = "nvidia" if loaded.has_section("nvidia") else "nouveau" if loaded.has_section("nouveau") else None
    if driver:
        os.makedirs(state.path("%s/bus/pci/drivers/%s" % (sys_root, driver)), exist_ok=True)
    for device in pci_devices():
        link = "%s/bus/pci/devices/%s/driver" % (sys_root, device["address"])
        if device["gpu"] is None or not os.path.isdir(state.path(os.path.dirname(link))):
            continue
        with contextlib.suppress(FileNotFoundError):
            os.unlink(state.path(link))
        if driver:
            _link(link, "../../drivers/%s" % driver)


def absent_gpus() -> set[int]:
    """GPUs that left the bus, whatever the driver."""
    found = set()
    faults = state.read(state.FAULTS)
    for name in faults.sections():
        section = faults[name]
        if section.get("set.absent") == "1" and not section.get("driver") and section.get("gpu", "").isdigit():
            found.add(int(section["gpu"]))
    return found


# ---- the driver ----


def write_module(name: str) -> None:
    section = state.read(state.LOADED)[name]
    base = "%s/module/%s" % (state.SYS, name)
    _remove(base)
    if section.get("version"):
        write_file(base + "/version", section["version"] + "\n")
    if section.get("srcversion"):
        write_file(base + "/srcversion", section["srcversion"] + "\n")
    write_file(base + "/initstate", "live\n")
    write_file(base + "/taint", section.get("taint", "") + "\n")
    write_file(base + "/coresize", section.get("size", "0") + "\n")
    write_file(base + "/gpusim", "simulated module, nothing runs in the kernel\n")
    write_file(base + "/refcnt", "0\n")
    if name == "nvidia_drm":
        write_file(base + "/parameters/modeset", "N\n")
    os.makedirs(state.path(base + "/holders"), exist_ok=True)


def remove_module(name: str) -> None:
    _remove("%s/module/%s" % (state.SYS, name))


def write_holders(users: dict[str, list[str]], counts: dict[str, int]) -> None:
    for name, count in counts.items():
        base = "%s/module/%s" % (state.SYS, name)
        if not os.path.isdir(state.path(base)):
            continue
        write_file(base + "/refcnt", "%d\n" % count)
        _remove(base + "/holders")
        os.makedirs(state.path(base + "/holders"), exist_ok=True)
        for user in users[name]:
            _link("%s/holders/%s" % (base, user), "../../%s" % user)


def write_proc_driver() -> None:
    section = state.read(state.LOADED)["nvidia"]
    kind = "UNIX Open Kernel Module for x86_64" if section.get("flavour") == "open" else "UNIX x86_64 Kernel Module"
    write_file(
        state.PROC_DRIVER + "/nvidia/version",
        "NVRM version: NVIDIA %s  %s  (simulated by gpusim)\nGCC version:  gcc version 12.2.0 (Debian)\n"
        % (kind, section["version"]),
    )
    write_file(
        state.PROC_DRIVER + "/nvidia/params",
        "Mobile: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",
    )
    absent = absent_gpus()
    for index in range(state.gpu_count()):
        if index in absent:
            continue
        address = state.sysfs_address(state.gpu_value(index, "pci"))
        write_file(
            "%s/nvidia/gpus/%s/information" % (state.PROC_DRIVER, address),
            (
                "Model: \t\t %s\nIRQ:   \t\t %s\nGPU UUID: \t %s\nVideo BIOS: \t %s\nBus Type: \t PCIe\n"
                "DMA Size: \t 52 bits\n"
                "DMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %s\nGPU Firmware: \t %s\n"
                "GPU Excluded:\t No\n"
            )
            % (
                state.gpu_value(index, "name"),
                state.gpu_value(index, "irq"),
                state.gpu_value(index, "uuid"),
                state.gpu_value(index, "vbios"),
                address,
                state.gpu_value(index, "minor"),
                section["version"] if section.get("gsp") == "loaded" else "N/A",
            ),
        )

    write_capabilities()


# MIG capabilities by their minor numbers: the right to change layouts, the right to watch, then 135 for each of 32
# GPUs, the number that the driver has room for: 15 GPU instances with 8 compute instances each.
CAPABILITIES = {"config": 1, "monitor": 2}


def write_capabilities() -> None:
    """The capability files that are there without any instance; those of instances come and go with them in the library
    (src/mig_layout.c).
    """
    lines = ["%s %d" % item for item in CAPABILITIES.items()]
    minor = 3
    for gpu in range(32):
        for instance in range(15):
            names = ["access"] + ["ci%d/access" % compute for compute in range(8)]
            lines += ["gpu%d/gi%d/%s %d" % (gpu, instance, name, minor + offset) for offset, name in enumerate(names)]
            minor += len(names)
    write_file(state.PROC_DRIVER + "/nvidia-caps/mig-minors", "\n".join(lines) + "\n")
    for name, number in CAPABILITIES.items():
        write_file(
            "%s/nvidia/capabilities/mig/%s" % (state.PROC_DRIVER, name),
            "DeviceFileMinor: %d\nDeviceFileMode: 256\nDeviceFileModify: 1\n" % number,
        )
        _device("/dev/nvidia-caps/nvidia-cap%d" % number)


def remove_capabilities(gpu: int) -> None:
    """The capability files of a GPU's instances, when a reset has taken those."""
    folder = "%s/nvidia/capabilities/gpu%s" % (state.PROC_DRIVER, state.gpu_value(gpu, "minor"))
    for base, _folders, files in os.walk(state.path(folder)):
        for name in files:
            with contextlib.suppress(FileNotFoundError), open(os.path.join(base, name), encoding="ascii") as stream:
                os.unlink(state.path("/dev/nvidia-caps/nvidia-cap%s" % stream.readline().split()[1]))
    _remove(folder)


def remove_proc_driver() -> None:
    for name in ("/nvidia", "/nvidia-caps"):
        _remove(state.PROC_DRIVER + name)
    _remove("/dev/nvidia-caps")


def _device(name: str) -> None:
    """A device file that can be opened and held.

    It is the null device: on a host with real GPUs it reaches none of them.
    """
    target = state.path(name)
    if os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.mknod(target, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.chmod(target, 0o666)
    except PermissionError:
        with open(target, "w", encoding="ascii"):
            os.chmod(target, 0o666)


def device_names() -> list[str]:
    absent = absent_gpus()
    return [
        "/dev/nvidia%s" % state.gpu_value(index, "minor") for index in range(state.gpu_count()) if index not in absent
    ]


def write_devices(module: str) -> None:
    names = {
        "nvidia": ["/dev/nvidiactl"] + device_names(),
        "nvidia_uvm": ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"],
        "nvidia_modeset": ["/dev/nvidia-modeset"],
    }
    for name in names.get(module, []):
        _device(name)


def remove_devices(module: str) -> None:
    base = state.path("/dev")
    patterns = {"nvidia": r"nvidia(\d+|ctl)", "nvidia_uvm": r"nvidia-uvm(-tools)?", "nvidia_modeset": r"nvidia-modeset"}
    if not os.path.isdir(base) or module not in patterns:
        return
    for name in os.listdir(base):
        if re.fullmatch(patterns[module], name):
            os.unlink(os.path.join(base, name))


def reset() -> None:
    """Nothing of an earlier boot stays."""
    base = state.path(state.SYS + "/module")
    for name in os.listdir(base) if os.path.isdir(base) else []:
        if re.match("nvidia|nouveau", name):
            remove_module(name)
    remove_proc_driver()
    for module in ("nvidia", "nvidia_uvm", "nvidia_modeset"):
        remove_devices(module)
