# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes on the GPUs, and memory that is used without one.

Right after a change of the driver, and before the node serves again (phase post), nothing may run on a GPU: whatever
does was not drained, or came back too early. In all other phases a node may be at work, and processes are only told.
The caller can say it otherwise: expect has "empty": True or False.
"""

from __future__ import annotations

from ..._node import holders
from .. import compare, model, policy, signals
from ..compare import NUMBER
from ..model import PASS

MIB = 1024 * 1024
EMPTY_PHASES = ("post",)


def must_be_empty(ctx) -> bool:
    wanted = model.item(ctx.expect, "empty")
    return wanted if isinstance(wanted, bool) else ctx.phase in EMPTY_PHASES


def check_strays(ctx, gpu, ident, key, what) -> dict:
    now = compare.read_typed(gpu, key, list)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    shown = sorted(holders.name_process(process if isinstance(process, dict) else {}) for process in now.value)
    limit = policy.find_limit(ctx, "processes_max", gpu)
    text = "%s %s processes on %s (%s)" % (len(shown), what, model.name_gpu(gpu), ", ".join(shown))
    if not must_be_empty(ctx):
        return model.check(
            ident,
            model.entity(gpu),
            PASS,
            shown,
            None,
            "policy",
            message=text + "; the node may be at work." if shown else "",
        )
    finding = None
    if len(shown) > limit:
        finding = compare.make_failure(
            "hold", "%s; expected at most %s in this phase. Drain the node, or stop them." % (text, limit)
        )
    return compare.make_check(ident, gpu, finding, shown, limit, "policy")


def check_compute(ctx, gpu) -> dict:
    return check_strays(ctx, gpu, "gpu.compute_processes", "compute_processes", "compute")


def check_graphics(ctx, gpu) -> dict:
    return check_strays(ctx, gpu, "gpu.graphics_processes", "graphics_processes", "graphics")


def check_leftover_memory(ctx, gpu) -> dict:
    """Memory that is used though no process runs, compared with the same state in the baseline."""
    ident, key = "gpu.memory_used", "memory_used_bytes"
    now = compare.read_typed(gpu, key, NUMBER)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    running = {}
    for kind in ("compute_processes", "graphics_processes"):
        found = compare.read_typed(gpu, kind, list)
        if not found.known:
            return signals.check_absent_signal(ctx, ident, gpu, kind, found)
        running[kind] = found.value
    if any(running.values()):
        return compare.not_applicable(ident, gpu, now.value, "Processes use the GPU.")

    rise = policy.find_limit(ctx, "memory_used_rise_mib", gpu)
    hunt = "Look for who holds /dev/nvidia*, then reset the GPU."

    def alone(ctx, gpu, used):
        text = "%s bytes of memory are used on %s, though no process runs there; expected at most %s MiB. %s"
        finding = compare.make_notice(text % (used, model.name_gpu(gpu), rise, hunt))
        return compare.make_check(ident, gpu, finding, used, None, "policy") if used > rise * MIB else None

    def differs(old, new):
        if new - old <= rise * MIB:
            return None
        return compare.make_failure(
            "reset_gpu",
            "%s bytes of memory are used on %s, though no process runs there; expected at most %s MiB more than the %s "
            "of the baseline. %s" % (new, model.name_gpu(gpu), rise, old, hunt),
        )

    return compare.compare_with_baseline(ctx, gpu, ident, key, NUMBER, differs, alone=alone)


PHASE = "; in phase post, or if the caller expects an empty node"
ROWS = (
    model.gpu_row(
        "gpu.compute_processes",
        check_compute,
        "No compute process runs on the GPU" + PHASE,
        ("gpu.compute_processes",),
        "nvml.h, nvmlDeviceGetComputeRunningProcesses_v3",
    ),
    model.gpu_row(
        "gpu.graphics_processes",
        check_graphics,
        "No graphics process runs on the GPU" + PHASE,
        ("gpu.graphics_processes",),
        "nvml.h, nvmlDeviceGetGraphicsRunningProcesses_v3",
    ),
    model.gpu_row(
        "gpu.memory_used",
        check_leftover_memory,
        "No memory is used without a process, beyond what the baseline had (a notice without one)",
        ("gpu.memory_used_bytes", "gpu.compute_processes", "gpu.graphics_processes"),
        "nvml.h, nvmlDeviceGetMemoryInfo",
    ),
)
