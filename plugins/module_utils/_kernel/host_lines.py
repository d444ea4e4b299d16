# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse lines of the kernel log about the network adapters and the disks of a GPU node: text in, events out.

The words are those of the kernel's own sources: drivers/net/ethernet/mellanox/mlx5/core (health.c, events.c,
en_main.c), block/blk-core.c, drivers/nvme/host, fs/ext4/super.c, fs/xfs/xfs_fsops.c, fs/btrfs/messages.c and
drivers/md.
"""

from __future__ import annotations

import re

# A record begins with its driver, and with more than the name of a process can hold (see kernel_lines).
MLX5 = r"mlx5_core (?P<device>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? "
# What happened, and the pattern with the device as its group "device".
NETWORK = (
    ("unhealthy", re.compile(MLX5 + r".*(?:device's health compromised|Fatal error \d+ detected)")),
    ("cable", re.compile(MLX5 + r".*Port module event\[error\]")),
    ("temperature", re.compile(MLX5 + r".*High temperature on sensors")),
    ("power", re.compile(MLX5 + r".*insufficient power on the PCIe slot")),
    ("firmware", re.compile(MLX5 + r".*\bACCESS_REG\(0x[0-9a-fA-F]+\).* failed")),
    ("link_down", re.compile(MLX5 + r"(?:\S+: )?Link down$")),
)
STORAGE = (
    # Drives without a medium in them answer so whenever they are looked at: fd0, sr0.
    (
        "io_error",
        re.compile(
            r"(?:\w{1,40}: )?(?:I/O|critical (?:medium|target|nexus)) error, dev (?!fd\d|sr\d)(?P<device>[\w!-]+), "
            r"sector \d+"
        ),
    ),
    (
        "controller",
        re.compile(
            r"nvme (?P<device>nvme\d+): (?:controller is down; will reset|I/O (?:tag )?\d+ "
            r".*timeout|Removing after probe failure)"
        ),
    ),
    ("read_only", re.compile(r"EXT[234]-fs \((?P<device>[\w.!-]{1,64})\): Remounting filesystem read-only")),
    (
        "read_only",
        re.compile(
            r"XFS \((?P<device>[\w.!-]{1,64})\): (?:Filesystem has been shut down|(?:(?:log |metadata )?I/O error"
            r"|corruption of |user initiated shutdown).*Shutting down filesystem)",
            re.IGNORECASE,
        ),
    ),
    (
        "read_only",
        re.compile(r"BTRFS:? (?:\w+ )?\(device (?P<device>[\w.!-]{1,64})(?:: state \w+)?\): forced readonly"),
    ),
    ("file_system", re.compile(r"EXT[234]-fs error \(device (?P<device>[\w.!-]{1,64})\)")),
    (
        "file_system",
        re.compile(
            r"XFS \((?P<device>[\w.!-]{1,64})\): (?:metadata )?corruption (?:detected|warning|of |in )", re.IGNORECASE
        ),
    ),
    ("raid", re.compile(r"md/raid\S*?:\S+?: Disk failure on (?P<device>[\w-]+)")),
)
KINDS = (("network", NETWORK), ("storage", STORAGE))
# Every one of the lines above has one of these; most lines of a log have none.
ANY = re.compile(r"mlx5_core|error, dev|\bnvme |-fs|XFS|BTRFS|md/raid")


def parse(line: str) -> dict[str, str] | None:
    """``{"kind": "network" or "storage", "what", "device"}`` of a line; None if it is about neither."""
    for kind, patterns in KINDS if ANY.search(line) else ():
        for what, pattern in patterns:
            found = pattern.match(line)
            if found:
                return {"kind": kind, "what": what, "device": found.group("device")}
    return None
