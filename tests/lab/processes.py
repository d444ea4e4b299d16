# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the lab's own processes by the mark in their environment, and what runs inside a machine by its process
namespace.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from .common import LabError

MARK = "GPUFLEET_LAB_TAG"


def environment_of(pid: int) -> list[bytes]:
    """Return a process's environment, empty for one that has none or has ended.

    While a process executes another program it has a program file and, for a moment, no environment: environ_read() in
    the kernel's fs/proc/base.c returns nothing until the new one is set up, which takes long on a busy machine.
    """
    for _attempt in range(25):
        try:
            variables = Path("/proc", str(pid), "environ").read_bytes()
            if variables:
                return variables.split(b"\0")
            os.readlink(f"/proc/{pid}/exe")
        except OSError:  # it ended, or is one of the kernel's
            return []
        time.sleep(0.01)
    return []


def tagged(tag: str, whole: bool) -> list[int]:
    """Processes whose mark is the tag (or begins with it)."""
    wanted = f"{MARK}={tag}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        variables = environment_of(int(entry))
        if any(variable == wanted if whole else variable.startswith(wanted) for variable in variables):
            found.append(int(entry))
    return found


def parents() -> dict[int, int]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found[int(entry)] = int(
                    Path("/proc", entry, "stat")
                    .read_text(encoding="utf-8", errors="replace")
                    .rsplit(")", 1)[1]
                    .split()[1]
                )
            except OSError:
                continue
    return found


def descendants(roots: list[int], table: dict[int, int]) -> set[int]:
    """All processes below some, from a table of parents."""
    found: set[int] = set()
    fresh = set(roots)
    while fresh:
        fresh = {pid for pid, parent in table.items() if parent in fresh and pid not in found}
        found |= fresh
    return found


def inner_pid(status: str) -> int | None:
    """The process id in its innermost namespace, from /proc/PID/status, when that is not the outermost too."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            numbers = line.split()[1:]
            return int(numbers[-1]) if len(numbers) > 1 else None
    return None


def leader(tag: str) -> int | None:
    """The host's number for a machine's process 1, or None when the machine is not running."""
    for pid in sorted(descendants(tagged(tag, whole=True), parents())):
        try:
            if inner_pid(Path("/proc", str(pid), "status").read_text(encoding="utf-8")) == 1:
                return pid
        except OSError:
            continue
    return None


def alive(pid: int) -> bool:
    try:
        return (
            Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()[0]
            != "Z"
        )
    except OSError:
        return False


def kill(tag: str, whole: bool, patience: float = 20) -> int:
    """End all processes with the mark and all they started, at once. Returns how many there were."""
    ended: set[int] = set()
    deadline = time.monotonic() + patience
    while True:
        roots = tagged(tag, whole)
        doomed = set(roots) | descendants(roots, parents())
        doomed.discard(os.getpid())
        for pid in doomed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        ended |= doomed
        left = [pid for pid in ended if alive(pid)]
        if not doomed and not left:
            return len(ended)
        if time.monotonic() > deadline:
            raise LabError(f"processes {', '.join(map(str, sorted(left)))} do not end although they were killed")
        time.sleep(0.1)
