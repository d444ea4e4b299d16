# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel says of network adapters and disks."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import host_lines, kernel_lines

pytestmark = pytest.mark.pythons

SAID = [
    (
        "mlx5_core 0000:5e:00.0: poll_health:789:(pid 0): device's health compromised - reached miss count",
        "network",
        "unhealthy",
        "0000:5e:00.0",
    ),
    ("mlx5_core 0000:5e:00.0: poll_health:756:(pid 0): Fatal error 1 detected", "network", "unhealthy", "0000:5e:00.0"),
    (
        "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, Bus stuck(I2C or data shorted)",
        "network",
        "cable",
        "0000:5e:00.0",
    ),
    (
        "mlx5_core 0000:5e:00.0: temp_warn:185:(pid 0): High temperature on sensors with bit set 0x0 0x1",
        "network",
        "temperature",
        "0000:5e:00.0",
    ),
    (
        "mlx5_core 0000:5e:00.0: mlx5_pcie_event:301:(pid 7): Detected insufficient power on the PCIe slot (27W).",
        "network",
        "power",
        "0000:5e:00.0",
    ),
    (
        (
            "mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:807:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, "
            "status bad resource(0x5)"
        ),
        "network",
        "firmware",
        "0000:5e:00.0",
    ),
    ("mlx5_core 0000:5e:00.0 ens1np0: Link down", "network", "link_down", "0000:5e:00.0"),
    (
        "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
        "storage",
        "io_error",
        "nvme0n1",
    ),
    ("blk_update_request: I/O error, dev sda, sector 0 op 0x1:(WRITE) flags 0x800", "storage", "io_error", "sda"),
    ("blk_update_request: critical medium error, dev sdb, sector 7", "storage", "io_error", "sdb"),
    ("nvme nvme3: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "storage", "controller", "nvme3"),
    ("nvme nvme3: I/O 23 QID 4 timeout, aborting", "storage", "controller", "nvme3"),
    (
        "nvme nvme3: I/O tag 23 (1017) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting req_op:READ(0) size:4096",
        "storage",
        "controller",
        "nvme3",
    ),
    ("nvme nvme3: Removing after probe failure status: -19", "storage", "controller", "nvme3"),
    ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "storage", "read_only", "nvme0n1p2"),
    ("XFS (dm-0): Filesystem has been shut down due to log error (0x2).", "storage", "read_only", "dm-0"),
    ("BTRFS info (device sda2: state EA): forced readonly", "storage", "read_only", "sda2"),
    (
        "EXT4-fs error (device nvme0n1p2): ext4_lookup:1855: inode #2: comm ls: deleted inode referenced: 7",
        "storage",
        "file_system",
        "nvme0n1p2",
    ),
    ("XFS (dm-0): Metadata corruption detected at xfs_agf_verify+0x1/0x2 [xfs]", "storage", "file_system", "dm-0"),
    ("md/raid1:md0: Disk failure on sdb1, disabling device.", "storage", "raid", "sdb1"),
]


@pytest.mark.parametrize(("line", "kind", "what", "device"), SAID)
def test_what_a_line_says(line, kind, what, device):
    assert host_lines.parse(line) == {"kind": kind, "what": what, "device": device}
    assert kernel_lines.parse(line) == {"kind": kind, "what": what, "device": device, "pci": None, "text": line}


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:5e:00.0: firmware version: 28.39.1002",
        "mlx5_core 0000:5e:00.0 ens1np0: Link up",
        "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable plugged",
        "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        "blk_update_request: I/O error, dev sr0, sector 0 op 0x0:(READ)",
        "nvme nvme0: 16/0/0 default/read/poll queues",
        "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
        "EXT4-fs (nvme0n1p2): re-mounted. Opts: (null)",
        "XFS (dm-0): Mounting V5 Filesystem",
        "BTRFS info (device sda2): using crc32c",
        "md/raid1:md0: active with 2 out of 2 mirrors",
        "",
    ],
)
def test_what_is_nothing_to_tell(line):
    assert host_lines.parse(line) is None


def test_the_quick_look_misses_none():
    assert [line for line, *dummy in SAID if not host_lines.ANY.search(line)] == []
