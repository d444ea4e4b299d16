# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's /proc, /sys and /dev by hand, in the formats of the kernel's documentation, to be changed by a test."""

from __future__ import annotations

import os

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import link, write

BOOT = "3a6f0e7c-52a0-4d0e-8d1b-6f6a3f1d2c11"
GPU = "0000:1b:00.0"
PORT = "0000:1a:01.0"
SWITCH = "0000:07:00.0"
DRIVER = "535.261.03"

# Documentation/ABI/testing/sysfs-bus-pci-devices-aer
CORRECTABLE = (
    "RxErr %d\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0\nCorrIntErr 0\nHeaderOF 0\nTOTAL_ERR_COR %d\n"
)
FATAL = (
    "Undefined 0\nDLP 0\nSDES 0\nTLP 0\nFCP 0\nCmpltTO 0\nMalfTLP 0\nECRC 0\nUnsupReq 0\nACSViol 0\n"
    "TOTAL_ERR_FATAL %d\n"
)
NONFATAL = "Undefined 0\nDLP 0\nTLP 0\nCmpltTO 0\nUnsupReq %d\nTOTAL_ERR_NONFATAL %d\n"

DEVICES = (
    "Character devices:\n  1 mem\n  5 /dev/tty\n195 nvidia-frontend\n195 nvidiactl\n234 nvidia-caps\n508 nvidia-uvm\n"
)
DEVICES += "\nBlock devices:\n  8 sd\n259 nvidia-blk\n"
PARAMS = (
    "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n"
    "RegistryDwords: \"\"\n"
)

# proc_pid_stat(5): pid (comm) state ppid pgrp session tty tpgid flags ... num_threads is the 20th field
STAT = (
    "%d (%s) %s 1 %d %d 0 -1 %d 0 0 0 0 0 0 0 0 20 0 %d 0 5000 0 0 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 "
    "0 17 3 0 0 0 0 0\n"
)
STATUS = "Name:\t%s\nState:\t%s\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t2\n"

CDI = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.%(version)s
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.%(version)s
    options:
    - ro
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    env:
    - ALL=1
  name: all
kind: nvidia.com/gpu
"""


def aer(root, path, correctable=0, nonfatal=0, fatal=0):
    write(root, path + "/aer_dev_correctable", CORRECTABLE % (correctable, correctable))
    write(root, path + "/aer_dev_nonfatal", NONFATAL % (nonfatal, nonfatal))
    write(root, path + "/aer_dev_fatal", FATAL % (fatal,))


def pci_device(root, address, vendor, kind, parent=""):
    real = "/sys/devices/pci0000:1a/%s%s" % (parent, address)
    write(root, real + "/vendor", vendor + "\n")
    write(root, real + "/class", kind + "\n")
    write(root, real + "/device", "0x2330\n")
    for name, value in (
        ("current_link_speed", "32.0 GT/s PCIe"),
        ("max_link_speed", "32.0 GT/s PCIe"),
        ("current_link_width", "16"),
        ("max_link_width", "16"),
    ):
        write(root, "%s/%s" % (real, name), value + "\n")
    link(root, "/sys/bus/pci/devices/" + address, "../../.." + real[4:])
    return real


def port(
    root,
    name="mlx5_0",
    number="1",
    state="4: ACTIVE",
    phys="5: LinkUp",
    rate="400 Gb/sec (4X NDR)",
    layer="InfiniBand",
    downed="0",
):
    base = "/sys/class/infiniband/%s/ports/%s" % (name, number)
    for key, value in (
        ("state", state),
        ("phys_state", phys),
        ("rate", rate),
        ("link_layer", layer),
        ("counters/link_downed", downed),
    ):
        write(root, "%s/%s" % (base, key), value + "\n")
    return base


def task(root, pid, comm, state="S", threads=1, flags=0x400000, switches=10, path=None):
    base = path or "/proc/%d" % pid
    write(root, base + "/stat", STAT % (pid, comm, state, pid, pid, flags, threads))
    write(root, base + "/status", STATUS % (comm, state, switches))
    write(root, base + "/comm", comm + "\n")
    write(root, base + "/stack", "")
    return base


def opens(root, pid, device):
    link(root, "/proc/%d/fd/7" % pid, device)


def node(root):
    """A healthy node with a GPU below a PCI port, an NVSwitch and an InfiniBand port."""
    write(root, "/proc/sys/kernel/random/boot_id", BOOT + "\n")
    write(root, "/proc/uptime", "4567.89 123456.78\n")
    write(root, "/proc/sys/kernel/tainted", "12289\n")
    write(root, "/proc/devices", DEVICES)
    write(root, "/proc/driver/nvidia/params", PARAMS)
    write(root, "/sys/module/nvidia/initstate", "live\n")
    write(root, "/sys/module/nvidia_peermem/initstate", "live\n")
    write(root, "/sys/module/kernel/parameters/panic", "0\n")
    parent = pci_device(root, PORT, "0x8086", "0x060400")
    aer(root, parent, correctable=3)
    aer(root, pci_device(root, GPU, "0x10de", "0x030200", PORT + "/"), correctable=7, nonfatal=1)
    pci_device(root, SWITCH, "0x10de", "0x068000")
    pci_device(root, "0000:1b:00.1", "0x10de", "0x040300")
    port(root)
    task(root, 1, "systemd")
    os.makedirs(str(root) + "/dev")
    write(root, "/usr/lib/x86_64-linux-gnu/libcuda.so." + DRIVER, "elf")
    link(root, "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so." + DRIVER)
    return str(root)
