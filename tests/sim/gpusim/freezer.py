# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that not even SIGKILL ends: what a call that hangs in the kernel is.

The freezer of cgroup version 1 holds a process where no signal reaches it, in state D, until the group is thawed. (The
freezer of version 2 lets SIGKILL through.) The simulated call that hangs so moves its own process into a group that is
frozen already.
"""

from __future__ import annotations

import contextlib
import os
import time

from . import state

NOTE = "/run/gpusim/freezer"
MOUNTS = "/proc/self/mountinfo"
PATIENCE_S = 300  # for a process that was thawed to leave


def hierarchy() -> str | None:
    """Where the freezer of cgroup version 1 is mounted and can be written to."""
    with open(MOUNTS, encoding="utf-8") as stream:
        for line in stream:
            fields = line.split()
            separator = fields.index("-")
            if (
                fields[separator + 1] == "cgroup"
                and "freezer" in fields[separator + 3].split(",")
                and os.access(fields[4], os.W_OK)
            ):
                return fields[4]
    return None


def group() -> str:
    return state.read_text(NOTE).strip()


def make() -> str:
    """A frozen group, made once; answers its directory."""
    if group():
        return group()
    base = hierarchy()
    if base is None:
        raise state.SimError(
            "no freezer of cgroup version 1 can be written to here: a call that SIGKILL does not end cannot be made "
            "(hang SYMBOL forever ends with SIGKILL only)"
        )
    path = "%s/gpusim-%d-%d" % (base, os.getpid(), time.time_ns() % 10**9)
    try:
        os.mkdir(path)
        with open(path + "/freezer.state", "w", encoding="ascii") as stream:
            stream.write("FROZEN")
    except OSError as error:
        raise state.SimError("no frozen group can be made in %s: %s" % (base, error)) from None
    state.write_text(NOTE, path + "\n")
    return path


def pids() -> list[int]:
    with contextlib.suppress(OSError), open(group() + "/cgroup.procs", encoding="ascii") as stream:
        return [int(line) for line in stream]
    return []


def end() -> bool:
    """Thaws the group and takes it away; what was killed meanwhile ends now. False where there is none."""
    path = group()
    if not path:
        return False
    if os.path.isdir(path):
        with open(path + "/freezer.state", "w", encoding="ascii") as stream:
            stream.write("THAWED")
        parent = os.path.dirname(path)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for pid in pids():
                with contextlib.suppress(OSError), open(parent + "/cgroup.procs", "w", encoding="ascii") as stream:
                    stream.write(str(pid))
            with contextlib.suppress(OSError):
                os.rmdir(path)
                break
            if time.monotonic() > deadline:
                raise state.SimError("the group %s does not empty: processes %s" % (path, pids()))
            time.sleep(0.05)
    os.unlink(state.path(NOTE))
    return True
