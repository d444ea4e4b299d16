# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the connections between GPUs: peer-to-peer access within the node, and the NVLink fabric."""

from __future__ import annotations

from .. import compare, model, policy, signals, tables
from ..model import UNKNOWN
from ..nodefacts import Checks
from . import hardware

P2P = {
    0: "ok",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "not supported by the topology",
    4: "disabled by a driver setting",
    5: "not supported",
    6: "unknown",
}
ABILITIES = ("read", "write", "nvlink", "atomics")
OK, DISABLED, STATE_UNKNOWN = 0, 4, 6

STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED = 0, 1, 2, 3
# Name, shift, mask, and the values that are healthy: "not supported", and that the condition is not there.
CONDITIONS = (
    ("degraded bandwidth", 0, 0x3, (0, 2)),
    ("route recovery", 2, 0x3, (0, 2)),
    ("route unhealthy", 4, 0x3, (0, 2)),
    ("access timeout recovery", 6, 0x3, (0, 2)),
    ("incorrect configuration", 8, 0xF, (0, 1)),
)
SUMMARIES = {0: "not supported", 1: "healthy", 2: "unhealthy", 3: "limited capacity"}


def status_of(matrix, other, ability) -> float | None:
    """P2P status ABILITY towards the GPU OTHER; None if there is none."""
    return compare.part(model.item(matrix, other), ability, int)


def find_unknown_states(matrix) -> tuple[list, list]:
    """Return what is unknown in a matrix, and what a setting of the driver disables."""
    odd, off = [], []
    for other in sorted(matrix, key=str):
        for ability in ABILITIES:
            status = status_of(matrix, other, ability)
            if status is None or status == STATE_UNKNOWN or status not in P2P:
                odd.append("%s to %s: %s" % (ability, other, status))
            elif status == DISABLED:
                off.append("%s to %s" % (ability, other))
    return odd, off


def find_lost_links(old, new) -> list[str]:
    """Return what worked in the matrix OLD and does not work in NEW."""
    lost = []
    for other in sorted(old, key=str):
        for ability in ABILITIES:
            status = status_of(new, other, ability)
            if status_of(old, other, ability) == OK and status != OK:
                lost.append(
                    "%s to %s: %s, expected ok"
                    % (ability, other, "not told" if status is None else P2P.get(status, status))
                )
    return lost


def find_unreached_peers(ctx, gpu, matrix) -> list:
    """GPUs that this one does not reach, where boards of its name connect all: not those in MIG mode, nor what a driver
    setting disables.
    """
    row = hardware.board_of(ctx, gpu)
    if row is None or not row["peers"] or _in_mig(gpu):
        return []
    here = model.by_uuid(ctx.snapshot)
    lost = []
    for other in sorted(matrix, key=str):
        if other in here and not _in_mig(here[other]):
            lost += [
                "%s to %s: %s" % (ability, other, P2P[status])
                for ability in ("read", "write")
                for status in [status_of(matrix, other, ability)]
                if status in P2P and status not in (OK, DISABLED, STATE_UNKNOWN)
            ]
    return lost


def _in_mig(gpu) -> bool:
    return model.number(gpu, "mig_mode_current").value == 1


def check_peers(ctx, gpu) -> dict | None:
    """Check that everything that worked between two GPUs still works; without a baseline, that they have all that GPUs
    on such boards support."""
    ident, key = "gpu.p2p", "p2p"
    now = compare.read_typed(gpu, key, dict)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    try:
        apart = find_unreached_peers(ctx, gpu, now.value) if ctx.baseline is None else []
    except tables.TableError:
        apart = []  # node.hardware and gpu.hardware say so
    odd, off = find_unknown_states(now.value)
    old = compare.read_baseline(ctx, gpu, key, dict)
    compared = old is not None and old.known
    here = model.by_uuid(ctx.snapshot)
    # That a GPU is gone is said by gpus.py, once.
    lost = (
        find_lost_links(dict((other, abilities) for other, abilities in old.value.items() if other in here), now.value)
        if compared
        else []
    )
    step = "Compare nvidia-smi topo -p2p r with the baseline; look at NVLinks, fabric manager, IOMMU and ACS settings."
    finding = None
    if lost:
        finding = compare.make_failure(
            "hold",
            "%s lost peer-to-peer access since the baseline: %s. %s" % (model.name_gpu(gpu), "; ".join(lost), step),
        )
    elif apart:
        finding = compare.make_failure(
            "hold",
            "%s has no peer-to-peer access to others on its board: %s. Look at NVLinks and fabric manager (nvidia-smi "
            "topo -p2p r). If the node is built so, compare with a baseline." % (model.name_gpu(gpu), "; ".join(apart)),
        )
    elif odd:
        finding = compare.make_unknown(
            "Peer-to-peer access of %s is not known: %s; expected a known status. %s"
            % (model.name_gpu(gpu), "; ".join(odd), step)
        )
    elif compare.damaged_before(old):
        return compare.check_comparable(ctx, gpu, ident, key, dict, summarize_matrix(now.value))
    elif off:
        finding = compare.make_notice(
            "Peer-to-peer access of %s is disabled by a driver setting: %s; expected ok. Look at the options "
            "of the kernel module." % (model.name_gpu(gpu), "; ".join(off))
        )
    return compare.make_check(
        ident,
        gpu,
        finding,
        summarize_matrix(now.value),
        summarize_matrix(old.value) if compared else None,
        "baseline" if compared else "hardware",
    )


def summarize_matrix(matrix) -> str:
    """With how many GPUs each ability works."""
    return ", ".join(
        "%s with %s of %s"
        % (ability, len([other for other in matrix if status_of(matrix, other, ability) == OK]), len(matrix))
        for ability in ABILITIES
    )


def check_fabric(ctx, gpu) -> dict | None:
    """The GPU joined its fabric, and the fabric says that it is well."""
    ident, key = "gpu.fabric", "fabric"
    now = compare.read_typed(gpu, key, dict)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now, "restart_service")
    state = compare.part(now.value, "state", int)
    shown = STATES.get(state, state)
    old = compare.read_baseline(ctx, gpu, key, dict)
    completed_before = old is not None and old.known and compare.part(old.value, "state", int) == COMPLETED
    expected = STATES[COMPLETED]
    if state == NOT_SUPPORTED and compare.damaged_before(old):
        return compare.check_comparable(ctx, gpu, ident, key, dict, shown)
    if state == NOT_SUPPORTED:
        if completed_before:
            return Checks(ident, model.entity(gpu), "baseline").fail(
                shown,
                expected,
                ("The fabric of %s is %s; expected %s as in the baseline. Look at the fabric manager and its version.")
                % (model.name_gpu(gpu), shown, expected),
                "restart_service",
            )
        return compare.not_applicable(ident, gpu, shown, "This GPU has no NVLink fabric.")
    return compare.make_check(ident, gpu, find_fabric_problem(ctx, gpu, now.value, state), shown, expected, "hardware")


def find_fabric_problem(ctx, gpu, content, state):
    """Return the problem of a GPU whose fabric is in STATE."""
    grace = policy.find_limit(ctx, "fabric_grace_s", gpu)
    uptime = compare.part(ctx.reading, "uptime_s")
    if state == IN_PROGRESS or state == NOT_STARTED and uptime is not None and uptime < grace:
        return compare.make_unknown(
            "%s is joining its NVLink fabric (%s, expected completed). Read again for up to %s s; "
            "if it stays so, look at the fabric manager." % (model.name_gpu(gpu), STATES[state], grace)
        )
    if state != COMPLETED:
        text = (
            "%s has not joined its NVLink fabric (%s, expected completed). Start the fabric manager, in the "
            "version of the driver." % (model.name_gpu(gpu), STATES.get(state, state))
        )
        return compare.make_failure("restart_service", text) if state == NOT_STARTED else compare.make_unknown(text)
    status = compare.part(content, "status", int)
    if status is None:
        return compare.make_unknown(
            "The fabric of %s was read without its status (expected 0). Read the node again." % (model.name_gpu(gpu),)
        )
    if status != 0:
        return compare.make_failure(
            "restart_service",
            "%s failed to join its NVLink fabric: NVML status %s, expected 0. Look at the log of the fabric manager."
            % (model.name_gpu(gpu), status),
        )
    mask, summary = compare.part(content, "health_mask", int), compare.part(content, "health_summary", int)
    fields = (
        [] if mask is None else [(name, mask >> shift & width, healthy) for name, shift, width, healthy in CONDITIONS]
    )
    ill = ["%s (%s)" % (name, found) for name, found, healthy in fields if found not in healthy]
    if summary is not None and summary not in (0, 1):
        ill.append("summary %s" % (SUMMARIES.get(summary, summary),))
    if ill:
        return compare.make_failure(
            "hold",
            "The NVLink fabric of %s is not healthy: %s; expected none of these. "
            "Look at NVLinks, switches and the log of the fabric manager." % (model.name_gpu(gpu), ", ".join(ill)),
        )
    return None


def check_clique(ctx, gpu) -> dict:
    """The GPU is in the same NVLink domain and clique as before."""
    ident, key = "gpu.fabric_clique", "fabric"
    now = compare.read_typed(gpu, key, dict)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now, "restart_service")
    place = format_clique(now.value)
    answer = compare.check_comparable(ctx, gpu, ident, key, dict, place)
    if answer is not None:
        return answer
    old = compare.read_baseline(ctx, gpu, key, dict).value
    if compare.part(old, "state", int) != COMPLETED:
        return compare.not_applicable(ident, gpu, place, "The GPU was in no fabric in the baseline.", "baseline")
    if compare.part(now.value, "state", int) != COMPLETED or None in (
        now.value.get("cluster_uuid"),
        now.value.get("clique_id"),
    ):
        return Checks(ident, model.entity(gpu), "baseline").make(
            UNKNOWN,
            place,
            format_clique(old),
            "restart_service",
            "In which NVLink domain %s is, is not known (expected %s as in the baseline). See gpu.fabric."
            % (model.name_gpu(gpu), format_clique(old)),
        )
    finding = None
    if place != format_clique(old):
        finding = compare.make_failure(
            "hold",
            "%s is in the NVLink domain %s; expected %s as in the baseline. Check the partitions of the fabric."
            % (model.name_gpu(gpu), place, format_clique(old)),
        )
    return compare.make_check(ident, gpu, finding, place, format_clique(old), "baseline")


def format_clique(content) -> str:
    return "cluster %s, clique %s" % (content.get("cluster_uuid"), content.get("clique_id"))


ROWS = (
    model.gpu_row(
        "gpu.p2p",
        check_peers,
        "Peer-to-peer access that worked in the baseline works; without one, that of boards that connect all GPUs "
        "(a notice if a driver setting disables it)",
        ("gpu.p2p", "gpu.name", "gpu.mig_mode_current"),
        "nvml.h, nvmlDeviceGetP2PStatus",
    ),
    model.gpu_row(
        "gpu.fabric",
        check_fabric,
        "The GPU has joined its NVLink fabric, and the fabric is healthy; while it joins, that is unknown: read again",
        ("gpu.fabric", "reading.uptime_s"),
        "nvml.h, nvmlGpuFabricInfoV_t",
    ),
    model.gpu_row(
        "gpu.fabric_clique",
        check_clique,
        "The GPU is in the NVLink domain and clique of the baseline",
        ("gpu.fabric",),
        "nvml.h, nvmlGpuFabricInfoV_t",
    ),
)
