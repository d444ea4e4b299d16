# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tasks (threads) of a process as the kernel shows them, by files that need no lock of its memory: see
proc_pid_stat(5).
"""

from __future__ import annotations

import re

from . import files

STAT = re.compile(r"^(?P<pid>\d+) \((?P<comm>.*)\) (?P<state>\S) (?P<rest>.*)$", re.S)
# Index in the fields after the state: flags, threads.
FLAGS, THREADS = 5, 16
KTHREAD = 0x00200000


def waiting(proc, name):
    """``[{pid, comm, state, threads, kernel, path}]``: the tasks of process ``name`` that are in state D,
    uninterruptible.
    """
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
    return tasks


def parse(content):
    """pid, comm, state, threads and whether it is a kernel thread, out of a stat file; None of anything else."""
    found = STAT.match(content or "")
    if not found:
        return None
    rest = found.group("rest").split()
    if len(rest) <= THREADS or not rest[FLAGS].isdigit() or not rest[THREADS].lstrip("-").isdigit():
        return None
    return {
        "pid": int(found.group("pid")),
        "comm": found.group("comm"),
        "state": found.group("state"),
        "threads": int(rest[THREADS]),
        "kernel": bool(int(rest[FLAGS]) & KTHREAD),
    }
