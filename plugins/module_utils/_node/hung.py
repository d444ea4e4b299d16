# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tasks that wait in the NVIDIA driver and cannot be interrupted, not even killed.

Only files that need no lock of the task's memory are read: /proc/PID/maps or cmdline of such a task could hang the
reader too.
"""

from __future__ import annotations

import os
import re
import time

from . import files, holders, proc_tasks

# Threads of the driver in the kernel: its queues, its interrupt threads, UVM's and NVSwitch's.
KERNEL_THREAD = re.compile(r"^(nv|UVM |irq/\d+-nvidia|irq/\d+-nvswitch)")
NVIDIA_FRAME = re.compile(r"\[nvidia[\w-]*\]")
# How "where" begins for a task that is in the driver by its stack, and not only of a process that has a device open:
# that one may wait for a disk.
IN_DRIVER = "stack "
WINDOW_S = 5.0
STEP_S = 0.5


def read_hung_tasks(root, window_s=WINDOW_S, sleep=time.sleep, clock=time.monotonic) -> list[dict] | None:
    """``[{"pid", "process", "comm", "state", "seconds", "where"}]``, the task and the process it is of; None when /proc
    cannot be listed.

    A task counts that stayed in state D, without once being switched to, for the whole window; ``seconds`` is that
    window, so the task has waited at least so long. Nothing is waited for when no task of the driver's is in D at all.
    """
    proc = files.under(root, "/proc")
    suspects = find(proc)
    if not suspects:
        return suspects
    start = clock()
    while suspects and clock() - start < window_s:
        sleep(STEP_S)
        suspects = [task for task in suspects if still(proc, task)]
    seconds = round(clock() - start, 1)
    return [
        dict(((key, task[key]) for key in ("pid", "process", "comm", "state", "where")), seconds=seconds)
        for task in suspects
    ]


def find(proc) -> list[dict] | None:
    """Tasks in D that touch the driver; None when /proc cannot be listed."""
    names = files.listing(proc)
    if names is None:
        return None
    found = []
    for name in names:
        if not name.isdigit():
            continue
        tasks = [
            dict(task, process=int(name), switches=switches(task["path"])) for task in proc_tasks.waiting(proc, name)
        ]
        found += [
            dict(task, where=where) for task, where in ((task, touches(proc, name, task)) for task in tasks) if where
        ]
    return found


def touches(proc, name, task) -> str:
    """Return where a task is in the driver: its stack, an open device, its name; empty if it is not."""
    stack = files.read_text(task["path"] + "/stack") or ""
    frame = NVIDIA_FRAME.search(stack)
    if frame:
        return IN_DRIVER + frame.group(0)
    if task["kernel"]:
        return "kernel thread" if KERNEL_THREAD.match(task["comm"]) else ""
    if stack.strip():
        return ""  # it waits elsewhere, as any user can have a process do
    devices = sorted(holders.find_open_devices(proc, int(name)))
    return "open %s" % devices[0] if devices else ""


def switches(path) -> int | None:
    """Return how often the task was scheduled; None if that is not reported."""
    found = re.findall(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)$", files.read_text(path + "/status") or "", re.M)
    return sum(int(value) for value in found) if found else None


def still(proc, task) -> bool:
    """Tell if a task is the same one, still in state D, and has not run since."""
    now = proc_tasks.parse(files.read_text(os.path.join(task["path"], "stat")))
    return (
        now is not None
        and now["state"] == "D"
        and now["comm"] == task["comm"]
        and switches(task["path"]) == task["switches"]
    )
