# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's kernel: taint, oops, its boot, hanging tasks, and what it logged of network adapters and disks."""

from __future__ import annotations

from .. import kernel_events, model, nodefacts, policy
from ..nodefacts import Checks

# Documentation/admin-guide/tainted-kernels.rst: bit, letter, meaning, what it asks for if the bit is bad by itself.
TAINT = (
    (0, "P", "a proprietary module was loaded", None),
    (1, "F", "a module was loaded by force", None),
    (2, "S", "the kernel runs on an out of specification system", None),
    (3, "R", "a module was unloaded by force", None),
    (4, "M", "a processor reported a machine check", "field_diag"),
    (5, "B", "a bad page was found, or page flags were unexpected", "reboot"),
    (6, "U", "userspace asked for the taint", None),
    (7, "D", "the kernel died before: an oops or a bug", "reboot"),
    (8, "A", "an ACPI table was overridden", None),
    (9, "W", "the kernel warned", None),
    (10, "C", "a staging driver was loaded", None),
    (11, "I", "a firmware bug was worked around", None),
    (12, "O", "a module from outside the kernel was loaded", None),
    (13, "E", "an unsigned module was loaded", None),
    (14, "L", "a soft lockup happened", "reboot"),
    (15, "K", "the kernel was live patched", None),
    (16, "X", "the distribution's own flag", None),
    (17, "T", "the kernel was built with randomised structures", None),
    (18, "N", "an in-kernel test was run", None),
    (19, "J", "a mutating firmware debug operation was used", None),
)
# What NVIDIA's driver brings by itself.
DRIVERS_OWN = 1 << 0 | 1 << 12 | 1 << 13


def check_taint(ctx) -> dict:
    """No sign of a kernel that died; other new bits are worth a look."""
    checks = Checks("node.kernel_taint", source="hardware")
    now = nodefacts.of_kind(model.item(ctx.system, "taint"), int)
    old = nodefacts.read_baseline(ctx, "system", "taint", kind=int)
    if now is None:
        return checks.unknown(
            None, None, "The kernel's taint cannot be read. Look at /proc/sys/kernel/tainted on the node."
        )
    bad = [(bit, action) for bit, letter, meaning, action in TAINT if action and now >> bit & 1]
    if bad:
        return checks.fail(
            now,
            0,
            "The kernel is tainted: %s. Look for the trace in the kernel log."
            % (format_taint(sum(1 << bit for bit, action in bad)),),
            "field_diag" if "field_diag" in [action for bit, action in bad] else "reboot",
        )
    if old.given and not old.known:
        return checks.unknown(
            now, None, "The baseline does not have the kernel's taint. %s" % (nodefacts.AGAIN,), "baseline"
        )
    accepted = DRIVERS_OWN | (old.value or 0)
    new = now & ~accepted
    if new:
        return checks.notice(
            now,
            accepted,
            "The kernel is tainted %s: %s. Look for the cause in the kernel log."
            % ("as it was not in the baseline" if old.given else "not only by the driver", format_taint(new)),
            "baseline" if old.given else "hardware",
        )
    return checks.good(now, accepted)


def format_taint(bits) -> str:
    """The bits for people: W (the kernel warned)"""
    known = ["%s (%s)" % (letter, meaning) for bit, letter, meaning, action in TAINT if bits >> bit & 1]
    rest = bits & ~sum(1 << bit for bit, letter, meaning, action in TAINT)
    return ", ".join(known + (["bits %#x that this collection does not know" % (rest,)] if rest else []))


# Kinds of events by their weight, with what is told of the heaviest.
WORTH_A_LOOK = (
    ("oops_elsewhere", "The kernel broke {count} times, not in the NVIDIA driver: {line}. Look at journalctl -k."),
    (
        "driver_dump",
        "The NVIDIA driver dumped its stack {count} times. What it met is in the lines before: journalctl -k.",
    ),
    ("ubsan", "The kernel's sanitizer complained {count} times and went on: {line}. Newer drivers may be without it."),
    (
        "warning",
        "The kernel warned {count} times and went on: {line}. Look at journalctl -k; newer kernels or drivers may be "
        "without it.",
    ),
    (
        "peermem_invalid",
        "nvidia-peermem met memory that was not its own {count} times: GPUDirect RDMA of that process fails. If it "
        "comes again, reload nvidia-peermem or reboot.",
    ),
)


def check_oops(ctx) -> dict:
    """The kernel did not break in the driver since the watermark; that it broke elsewhere is worth a look."""
    checks = Checks("node.kernel_oops", source="hardware")
    log = kernel_events.log(ctx)
    ours, others = (kernel_events.of_kind(log, kind) for kind in ("oops", "oops_elsewhere"))
    if ours:
        return checks.fail(
            list_lines(ours),
            [],
            "The kernel broke in or below the NVIDIA driver %d times: %s. Save the kernel log "
            "(journalctl -k) and reboot." % (len(ours), list_lines(ours)[0]),
            "reboot",
        )
    if log.problem:
        return checks.unknown(list_lines(others), [], "Whether the kernel broke is not known. %s" % (log.problem,))
    for kind, text in WORTH_A_LOOK:
        events = kernel_events.of_kind(log, kind)
        if events:
            return checks.notice(list_lines(events), [], text.format(count=len(events), line=list_lines(events)[0]))
    if log.note:
        return checks.notice([], [], log.note)
    return checks.good([], [])


def list_lines(events) -> list[str]:
    return [event["text"][:200] for event in events[:5]]


def check_boot(ctx) -> dict:
    """The node was rebooted when it was meant to be, and only then."""
    checks = Checks("node.boot", source="baseline")
    meant = model.item(ctx.expect, "reboot")
    now, old = model.item(ctx.reading, "boot_id"), model.item(ctx.baseline, "boot_id")
    same = nodefacts.same_boot(ctx)
    if ctx.baseline is None:
        if meant is None:
            return checks.none("There is no baseline to compare the boot with.", now)
        return checks.unknown(
            now, None, "Whether the node was rebooted is not known without a baseline. Pass baseline or baseline_file."
        )
    if same is None:
        return checks.unknown(
            now, old, "The boot of the node or of the baseline is not known. Look at /proc/sys/kernel/random/boot_id."
        )
    if meant is True and same:
        return checks.fail(
            now,
            "another boot than %s" % (old,),
            "A reboot was expected and the node is still in the boot of the baseline. Look at "
            "last -x reboot and at whatever holds the shutdown.",
            "reboot",
        )
    if meant is False and not same:
        return checks.fail(
            now,
            old,
            "The node was rebooted and should not have been. Look at the end of the previous boot: "
            "journalctl -b -1 -e.",
        )
    if meant is None and not same and ctx.phase == "soak":
        return checks.notice(
            now,
            old,
            "The node was rebooted while it was watched, and it was not said that this was meant (expect.reboot). "
            "Look at the end of the previous boot: journalctl -b -1 -e.",
        )
    return checks.good(now, old if meant is not None else None)


def hung_tasks(ctx) -> dict:
    """No task waits in the driver and cannot be interrupted."""
    checks = Checks("node.hung_tasks", source="hardware")
    tasks = nodefacts.of_kind(model.item(ctx.system, "hung_tasks"), list)
    step = "It cannot be killed; reboot the node, by the power switch if it does not go down."
    if tasks:
        names = ["%s (pid %s)" % (model.item(task, "comm"), model.item(task, "pid")) for task in tasks]
        return checks.fail(
            names,
            [],
            "%d tasks hang in the driver and cannot be interrupted: %s. %s" % (len(tasks), ", ".join(names[:5]), step),
            "reboot",
        )
    if tasks is None:
        return checks.unknown(
            None, [], "Whether tasks hang in the driver cannot be read. Run ps -eo pid,state,comm,wchan on the node."
        )
    return checks.good([], [])


DOCUMENTED = "Linux, Documentation/admin-guide/tainted-kernels.rst"


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


def check_network(ctx) -> dict:
    """No network adapter reports an error, and no link of one goes down again and again."""
    checks = Checks("node.network_log", source="hardware")
    log = kernel_events.log(ctx)
    if log.problem:
        return checks.unknown(None, [], "Whether network adapters reported errors is not known. %s" % (log.problem,))
    found = of_kernel(log, "network", NETWORK)
    most = policy.find_limit(ctx, "network_link_downs_max")
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


def check_storage(ctx) -> dict:
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


# The thresholds of what an installation and a DKMS build write to, by the beginning of the path.
ROOM = (
    ("/var", "room_var_min_mib"),
    ("/usr", "room_usr_min_mib"),
    ("/lib", "room_usr_min_mib"),
    ("/boot", "room_boot_min_mib"),
)
MIB = 1024 * 1024


def check_room(ctx) -> dict:
    """The file systems that a change of the driver writes to have the room for it."""
    checks = Checks("node.room")
    found = nodefacts.of_kind(model.item(ctx.system, "filesystems"), dict) or {}
    unread = [path for path, dummy in ROOM if not any(name.startswith(path) for name in found)]
    unread += sorted(path for path, about in found.items() if not is_filesystem(about))
    problems = find_room_problems(ctx, [(path, about) for path, about in sorted(found.items()) if is_filesystem(about)])
    message = (
        "There is no room for a change of the driver: %s. Remove old kernels, logs or archives (apt-get clean, "
        "dnf clean packages), or mount it writable." % ("; ".join(problems),)
    )
    if problems and model.item(ctx.expect, "room") is True:
        return checks.fail(problems, [], message)
    if unread:
        return checks.unknown(
            unread, [], "The free space of %s cannot be read. Run df on the node." % (", ".join(unread),)
        )
    if problems:
        return checks.notice(problems, [], message)
    return checks.good([], [])


def is_filesystem(about) -> bool:
    """Return whether a file system was read, with numbers for what is counted."""
    counts = [model.item(about, "free"), model.item(about, "files")]
    return nodefacts.of_kind(counts[0], int) is not None and (
        counts[1] is None or nodefacts.of_kind(counts[1], int) is not None
    )


def find_room_problems(ctx, filesystems) -> list[str]:
    """Return a line for each file system that is read-only, full, or out of inodes; paths on one of them add up."""
    grouped = {}
    for path, about in filesystems:
        grouped.setdefault(about.get("device"), []).append((path, about))
    problems = []
    for rows in grouped.values():
        paths = ", ".join(path for path, dummy in rows)
        if any(about.get("read_only") for dummy, about in rows):
            problems.append("%s is mounted read-only" % (paths,))
            continue
        needed = sum(
            policy.find_limit(ctx, key)
            for key in {key for path, dummy in rows for start, key in ROOM if path.startswith(start)}
        )
        free = min(about["free"] for dummy, about in rows) // MIB
        if free < needed:
            problems.append("%s has %d MiB free, needed are %d MiB" % (paths, free, needed))
        inodes = min((about["files"] for dummy, about in rows if about.get("files") is not None), default=None)
        least = policy.find_limit(ctx, "room_inodes_min")
        if inodes is not None and inodes < least and any(not path.startswith("/boot") for path, dummy in rows):
            problems.append("%s has room for %d more files, needed are %d" % (paths, inodes, least))
    return problems


def of_kernel(log, kind, meanings) -> list:
    """``["nvme0n1: I/O errors", ...]``: what the kernel itself logged, once for each device."""
    events = kernel_events.of_kind(log, kind)
    return sorted(
        {"%s: %s" % (event.get("device"), meanings[event["what"]]) for event in events if event.get("what") in meanings}
    )


def link_downs(ctx, log) -> dict[str, int]:
    """Count, for each device, how often its link went down in the 24 hours before the reading."""
    now = model.item(ctx.kernel_log, "read_at_us")
    events = [event for event in kernel_events.of_kind(log, "network") if event.get("what") == "link_down"]
    recent = [event for event in events if not isinstance(now, (int, float)) or now - event["monotonic_us"] <= DAY_US]
    devices = {event.get("device") for event in recent}
    return {
        device: len(kernel_events.group_bursts([event for event in recent if event.get("device") == device], BURST_S))
        for device in devices
    }


ROWS = (
    model.node_row(
        "node.kernel_taint",
        check_taint,
        "The kernel did not die or lock up, and has no new taint (a notice)",
        ("system.taint",),
        DOCUMENTED,
    ),
    model.node_row(
        "node.kernel_oops",
        check_oops,
        "The kernel did not break in the driver since the watermark (a notice if elsewhere)",
        ("kernel_log.events", "kernel_log.complete"),
        "Linux, Documentation/admin-guide/bug-hunting.rst",
    ),
    model.node_row(
        "node.boot",
        check_boot,
        "The node was rebooted when it was meant to be, and only then",
        ("reading.boot_id", "expect.reboot"),
        "this collection",
    ),
    model.node_row(
        "node.hung_tasks", hung_tasks, "No task hangs in the driver", ("system.hung_tasks",), "Linux, proc_pid_stat(5)"
    ),
    model.node_row(
        "node.room",
        check_room,
        "The file systems have the room for an installation of the driver (a notice unless expect.room is set)",
        ("system.filesystems", "expect.room"),
        "this collection",
    ),
    model.node_row(
        "node.network_log",
        check_network,
        "The kernel logged no error of a network adapter since the watermark (a notice)",
        ("kernel_log.events", "kernel_log.complete"),
        "Linux, drivers/net/ethernet/mellanox/mlx5/core",
    ),
    model.node_row(
        "node.storage_log",
        check_storage,
        "The kernel logged no error of a disk or file system since the watermark (a notice)",
        ("kernel_log.events", "kernel_log.complete"),
        "Linux, block/blk-core.c",
    ),
)
