# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tasks (threads) of a process and its users as the kernel shows them, by files that need no lock of its memory:
see proc_pid_stat(5) and proc_pid_status(5).

Its memory (cmdline, environ) is its user's to write, and can make a reader wait for ever: userfaultfd(2), FUSE.
"""

from __future__ import annotations

import os
import re
import stat

from . import files

STAT = re.compile(r"^(?P<pid>\d+) \((?P<comm>.*)\) (?P<state>\S) (?P<rest>.*)$", re.S)
# Index in the fields after the state: flags, threads, start time.
FLAGS, THREADS, START = 5, 16, 18
KTHREAD = 0x00200000


def users(proc, pid) -> set[int]:
    """The real, effective and saved user of a process; none when it cannot be read."""
    found = re.search(r"^Uid:\s+(\d+)\s+(\d+)\s+(\d+)", files.read_text("%s/%s/status" % (proc, pid)) or "", re.M)
    return set(int(number) for number in found.groups()) if found else set()


def inner_pid(proc, pid) -> int | None:
    """The number of a process in the namespace below the reader's, as of a container; None if it is in the reader's."""
    found = re.search(r"^NSpid:(.*)$", files.read_text("%s/%s/status" % (proc, pid)) or "", re.M)
    numbers = found.group(1).split() if found else []
    return int(numbers[1]) if len(numbers) > 1 else None


def is_of_root(proc, pid) -> bool:
    """Return whether root of this machine started a process, and no container and no user through a setuid program,
    which has the name and the arguments that its user chose.
    """
    if users(proc, pid) != {0} or inner_pid(proc, pid) is not None:
        return False
    try:
        return not os.stat("%s/%s/exe" % (proc, pid)).st_mode & stat.S_ISUID
    except OSError:
        return True


def waiting(proc, name) -> list[dict]:
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


def read_start(pid: int, proc: str = "/proc") -> int | None:
    """Return when a process started, in ticks since boot; None if there is none, or it is a zombie."""
    found = parse(files.read_text("%s/%s/stat" % (proc, pid)))
    return None if found is None or found["state"] in ("Z", "X") else found["started"]


def parse(content) -> dict | None:
    """Parse a stat file (proc_pid_stat(5)): pid, comm, state, threads, whether it is a kernel thread, and the ticks
    since boot at its start; None of anything else.
    """
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
        "started": int(rest[START]) if len(rest) > START and rest[START].isdigit() else None,
    }
