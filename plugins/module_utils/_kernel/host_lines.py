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

# What happened, and the pattern with the device as its group "device".
NETWORK = (
    (
        "unhealthy",
        re.compile(
            r"\bmlx5_core (?P<device>[0-9a-fA-F:.]+?):? .*(?:device's health compromised|Fatal error \d+ detected)"
        ),
    ),
    ("cable", re.compile(r"\bmlx5_core (?P<device>[0-9a-fA-F:.]+?):? .*Port module event\[error\]")),
    ("temperature", re.compile(r"\bmlx5_core (?P<device>[0-9a-fA-F:.]+?):? .*High temperature on sensors")),
    ("power", re.compile(r"\bmlx5_core (?P<device>[0-9a-fA-F:.]+?):? .*insufficient power on the PCIe slot")),
    ("firmware", re.compile(r"\bmlx5_core (?P<device>[0-9a-fA-F:.]+?):? .*\bACCESS_REG\(0x[0-9a-fA-F]+\).* failed")),
    ("link_down", re.compile(r"\bmlx5_core (?P<device>[0-9a-fA-F:.]+?):? (?:\S+: )?Link down$")),
)
STORAGE = (
    # Drives without a medium in them answer so whenever they are looked at: fd0, sr0.
    (
        "io_error",
        re.compile(
            r"\b(?:I/O|critical (?:medium|target|nexus)) error, dev (?!fd\d|sr\d)(?P<device>[\w!-]+), sector \d+"
        ),
    ),
    (
        "controller",
        re.compile(
            r"\bnvme (?P<device>nvme\d+): (?:controller is down; will reset|I/O (?:tag )?\d+ "
            r".*timeout|Removing after probe failure)"
        ),
    ),
    ("read_only", re.compile(r"\bEXT[234]-fs \((?P<device>[^()]{1,64})\): Remounting filesystem read-only")),
    (
        "read_only",
        re.compile(
            r"\bXFS \((?P<device>[^()]{1,64})\): .*(?:Shutting down filesystem|Filesystem has been shut down)",
            re.IGNORECASE,
        ),
    ),
    ("read_only", re.compile(r"\bBTRFS\b.*\(device (?P<device>[^():\s]{1,64})[^()]*\).*\bforced readonly")),
    ("file_system", re.compile(r"\bEXT[234]-fs error \(device (?P<device>[^()\s]{1,64})\)")),
    ("file_system", re.compile(r"\bXFS \((?P<device>[^()]{1,64})\): .*\bcorruption\b", re.IGNORECASE)),
    ("raid", re.compile(r"\bmd/raid\S*?:\S+?: Disk failure on (?P<device>[\w-]+)")),
)
KINDS = (("network", NETWORK), ("storage", STORAGE))
# Every one of the lines above has one of these; most lines of a log have none.
ANY = re.compile(r"mlx5_core|error, dev|\bnvme |-fs|XFS|BTRFS|md/raid")


def parse(line: str) -> dict[str, str] | None:
    """``{"kind": "network" or "storage", "what", "device"}`` of a line; None if it is about neither."""
    for kind, patterns in KINDS if ANY.search(line) else ():
        for what, pattern in patterns:
            found = pattern.search(line)
            if found:
                return {"kind": kind, "what": what, "device": found.group("device")}
    return None
