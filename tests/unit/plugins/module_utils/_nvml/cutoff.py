# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The deadline of a child that reads NVML or CUDA passes when the child hangs, and not before: what comes before the
call that hangs may take as long as it does on a busy machine.

The processes of tests that have no collection import this file by its directory.
"""

from __future__ import annotations

import select
import signal
import time

HELD_BACK = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def hangs(pid):
    """Whether a process is in a simulated call that never ends: only there it holds all signals back that it can."""
    with open("/proc/%d/status" % pid) as stream:
        status = dict(line.rstrip("\n").partition(":\t")[::2] for line in stream)
    held_back = int(status.get("SigBlk", "0"), 16)
    return all(held_back >> number - 1 & 1 for number in HELD_BACK)


def finish_when(finish, reached=hangs):
    """session.finish with a deadline that passes when REACHED(pid of the child) is so."""

    def finish_then(started):
        while not reached(started.child):
            # Its result, or its end.
            if select.select([started.pipe], [], [], 0.02)[0]:
                return finish(started)
        return finish(started._replace(until=time.monotonic()))

    return finish_then
