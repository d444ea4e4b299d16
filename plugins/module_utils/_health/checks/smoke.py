# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs at work: whether they compute right, and as fast as before and as their peers (rows 43 to 49).

What is judged is the document of gpu_smoke (gpufleet.smoke/1), with "peers", documents of other nodes, and "nccl",
rates that the caller measured.
"""

from __future__ import annotations

from .. import model
from . import smoke_results, smoke_speed


def _rate(ident, name):
    return lambda ctx, gpu: smoke_speed.rate(ctx, gpu, ident, name)


ROWS = (
    (
        model.Row(
            "smoke.ran",
            "node",
            smoke_results.ran,
            "The GPUs were tested at work",
            ("gpu_smoke: status, state of each GPU",),
            "this collection",
            (43,),
        ),
        model.Row(
            "smoke.compute",
            "gpu",
            smoke_results.compute,
            "Memory holds what was written, and sums and products are exact",
            ("gpu_smoke: memory_pattern, vector_add, matrix_product", "CUresult of every call"),
            "CUDA driver API: CUresult",
            (43,),
        ),
    )
    + tuple(
        model.Row(
            ident,
            "gpu",
            _rate(ident, name),
            title,
            ("gpu_smoke: %s" % (name,), "the same of the baseline"),
            "this collection",
            (row,),
        )
        for ident, name, title, row in smoke_speed.RATES
    )
    + (
        model.Row(
            "smoke.peers",
            "gpu",
            smoke_speed.peers,
            "No GPU is slower than the others of its model",
            ("gpu_smoke: rates of this node and of the peers given",),
            "this collection",
            (44, 45, 46),
        ),
        model.Row(
            "smoke.nccl_node",
            "node",
            lambda ctx: smoke_speed.nccl(ctx, "smoke.nccl_node", "node"),
            "Bus bandwidth of NCCL within the node",
            ("results of nccl-tests that the caller gives to gpu_smoke",),
            "this collection",
            (47,),
        ),
        model.Row(
            "smoke.nccl_fleet",
            "node",
            lambda ctx: smoke_speed.nccl(ctx, "smoke.nccl_fleet", "fleet"),
            "Bus bandwidth of NCCL between nodes",
            ("results of nccl-tests that the caller gives to gpu_smoke",),
            "this collection",
            (48,),
        ),
        model.Row(
            "smoke.dcgm",
            "node",
            smoke_results.dcgm,
            "NVIDIA's own diagnostic",
            ("gpu_smoke: dcgmi diag -j at level t3 (DCGM 3 and 4)",),
            "NVIDIA DCGM",
            (49,),
        ),
    )
)
