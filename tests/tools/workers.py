# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's workers, as the kernel sees them: children of the playbook's process that are copies of it."""

from __future__ import annotations

import contextlib
import pathlib


def command_line(pid: int) -> bytes:
    """What a process was started with; empty of one that has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path("/proc/%d/cmdline" % pid).read_bytes()
    return b""


def copies(pids: list[int]) -> list[int]:
    """The first process and those that are copies of it: what else they start has a command line of its own, and what
    has ended has none.
    """
    return [pid for pid in pids if command_line(pid) == command_line(pids[0]) != b""]


def of(pid: int) -> list[int]:
    """The workers of a playbook's process now."""
    try:
        children = pathlib.Path("/proc/%d/task/%d/children" % (pid, pid)).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return copies([pid, *map(int, children.split())])[1:]
