# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of kernel messages about the node's network adapters and disks. Each is a notice: jobs are affected, but the
GPUs are not.
"""

from __future__ import annotations

from .. import kernel_events, model, policy
from ..nodefacts import Checks

NETWORK = {
    "unhealthy": "the adapter reports a fatal error of its own",
    "cable": "a port's module or cable reports an error",
    "temperature": "the adapter is too hot",
    "power": "the slot gives the adapter too little power",
    "firmware": "the adapter's firmware refuses to tell its state",
}
STORAGE = {
    "io_error": "I/O errors",
    "controller": "the NVMe controller timed out or was reset",
    "read_only": "the file system became read-only",
    "file_system": "the file system is damaged",
    "raid": "the RAID lost a disk",
}
DAY_US = 24 * 3600 * 1000 * 1000
# One failure of a link prints several lines.
BURST_S = 10


def network(ctx):
    """No network adapter reports an error, and no link of one goes down again and again."""
    checks = Checks("node.network_log", source="hardware")
    log = kernel_events.log(ctx)
    if log.problem:
        return checks.unknown(None, [], "Whether network adapters reported errors is not known. %s" % (log.problem,))
    found = of_kernel(log, "network", NETWORK)
    most = policy.limit(ctx, "network_link_downs_max")
    flapping = [
        "%s: link down %d times in 24 h, at most %d are accepted" % (device, count, most)
        for device, count in sorted(link_downs(ctx, log).items())
        if count > most
    ]
    if found or flapping:
        return checks.notice(
            found + flapping,
            [],
            "Network adapters of the node are in trouble: %s. Look at the cable and at journalctl -k; then run "
            "a test of the network before the node serves." % ("; ".join((found + flapping)[:5]),),
        )
    return checks.good([], [])


def storage(ctx):
    """No disk or file system of the node reports an error."""
    checks = Checks("node.storage_log", source="hardware")
    log = kernel_events.log(ctx)
    if log.problem:
        return checks.unknown(None, [], "Whether disks reported errors is not known. %s" % (log.problem,))
    found = of_kernel(log, "storage", STORAGE)
    if found:
        return checks.notice(
            found,
            [],
            "Disks or file systems of the node are in trouble: %s. Look at journalctl -k and at the disk (smartctl, "
            "nvme smart-log)." % ("; ".join(found[:5]),),
        )
    return checks.good([], [])


def of_kernel(log, kind, meanings):
    """``["nvme0n1: I/O errors", ...]``: what the kernel itself logged, once for each device."""
    events = kernel_events.of_kind(log, kind)
    return sorted(
        {"%s: %s" % (event.get("device"), meanings[event["what"]]) for event in events if event.get("what") in meanings}
    )


def link_downs(ctx, log):
    """Count, for each device, how often its link went down in the 24 hours before the reading."""
    now = model.item(ctx.kernel_log, "read_at_us")
    events = [event for event in kernel_events.of_kind(log, "network") if event.get("what") == "link_down"]
    recent = [event for event in events if not isinstance(now, (int, float)) or now - event["monotonic_us"] <= DAY_US]
    devices = {event.get("device") for event in recent}
    return {
        device: len(kernel_events.bursts([event for event in recent if event.get("device") == device], BURST_S))
        for device in devices
    }


ROWS = (
    model.Row(
        "node.network_log",
        "node",
        network,
        "The kernel logged no error of a network adapter since the watermark (a notice)",
        ("kernel_log.events", "kernel_log.complete"),
        "Linux, drivers/net/ethernet/mellanox/mlx5/core",
        (32,),
    ),
    model.Row(
        "node.storage_log",
        "node",
        storage,
        "The kernel logged no error of a disk or file system since the watermark (a notice)",
        ("kernel_log.events", "kernel_log.complete"),
        "Linux, block/blk-core.c",
        (51,),
    ),
)
