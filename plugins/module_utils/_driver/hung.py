# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to the collection: it may change at any time.

"""Tasks that wait in the NVIDIA driver and cannot be interrupted, not even killed.

Only files that need no lock of the task's memory are read: /proc/PID/maps or cmdline of such a task could hang the reader too.
"""

from __future__ import annotations

import os
import re
import time

from . import files, holders

STAT = re.compile(r"^(?P<pid>\d+) \((?P<comm>.*)\) (?P<state>\S) (?P<rest>.*)$", re.S)
# Threads of the driver in the kernel: its queues, its interrupt threads, UVM's and NVSwitch's.
KERNEL_THREAD = re.compile(r"^(nv|UVM |irq/\d+-nvidia|irq/\d+-nvswitch)")
NVIDIA_FRAME = re.compile(r"\[nvidia[\w-]*\]")
# Index in the fields after the state: flags, threads. See proc_pid_stat(5).
FLAGS, THREADS = 5, 16
KTHREAD = 0x00200000
WINDOW_S = 5.0
STEP_S = 0.5


def read(root, window_s=WINDOW_S, sleep=time.sleep, clock=time.monotonic):
    """``[{"pid", "comm", "state", "seconds", "where"}]``; None when /proc cannot be listed.

    A task counts that stayed in state D, without once being switched to, for the whole window; ``seconds`` is that window, so
    the task has waited at least so long. Nothing is waited for when no task of the driver's is in D at all.
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
    return [{"pid": task["pid"], "comm": task["comm"], "state": "D", "seconds": seconds, "where": task["where"]} for task in suspects]


def find(proc):
    """Tasks in D that touch the driver; None when /proc cannot be listed."""
    names = files.listing(proc)
    if names is None:
        return None
    found = []
    for name in names:
        if not name.isdigit():
            continue
        found += [dict(task, where=where) for task, where in ((task, touches(proc, name, task)) for task in waiting(proc, name)) if where]
    return found


def waiting(proc, name):
    """The tasks of a process that are in state D."""
    base = "%s/%s" % (proc, name)
    main = parse(files.read_text(base + "/stat"))
    if main is None:
        return []  # gone since it was listed
    tasks = []
    if main["threads"] > 1:
        for thread in files.listing(base + "/task") or []:
            parsed = parse(files.read_text("%s/task/%s/stat" % (base, thread)))
            if parsed and parsed["state"] == "D":
                tasks.append(dict(parsed, path="%s/task/%s" % (base, thread)))
    elif main["state"] == "D":
        tasks.append(dict(main, path=base))
    return [dict(task, switches=switches(task["path"])) for task in tasks]


def parse(content):
    """pid, comm, state, threads and whether it is a kernel thread, out of a stat file; None of anything else."""
    found = STAT.match(content or "")
    if not found:
        return None
    rest = found.group("rest").split()
    if len(rest) <= THREADS or not rest[FLAGS].isdigit() or not rest[THREADS].lstrip("-").isdigit():
        return None
    return {"pid": int(found.group("pid")), "comm": found.group("comm"), "state": found.group("state"),
            "threads": int(rest[THREADS]), "kernel": bool(int(rest[FLAGS]) & KTHREAD)}


def touches(proc, name, task):
    """Where a task meets the driver: its stack, an open device, its name; empty if it does not."""
    frame = NVIDIA_FRAME.search(files.read_text(task["path"] + "/stack") or "")
    if frame:
        return "stack %s" % frame.group(0)
    if task["kernel"]:
        return "kernel thread" if KERNEL_THREAD.match(task["comm"]) else ""
    devices = sorted(holders.opened(proc, int(name)))
    return "open %s" % devices[0] if devices else ""


def switches(path):
    """How often the task ran; None if that is not said."""
    found = re.findall(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)$", files.read_text(path + "/status") or "", re.M)
    return sum(int(value) for value in found) if found else None


def still(proc, task):
    """Whether a task is the same one, still in D, and did not run since."""
    now = parse(files.read_text(os.path.join(task["path"], "stat")))
    return now is not None and now["state"] == "D" and now["comm"] == task["comm"] and switches(task["path"]) == task["switches"]
