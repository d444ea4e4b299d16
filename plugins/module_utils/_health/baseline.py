# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reading of a healthy moment that later readings are compared with (schema gpufleet.baseline/1).

Private to the collection: it may change at any time.
"""

from __future__ import annotations

from . import model
from .model import FAIL, NODE, NOT_APPLICABLE, PASS, UNKNOWN

SCHEMA = "gpufleet.baseline/1"


class BaselineError(Exception):
    """The baseline must not be used; the text says why and what to do."""


def baseline_of(snapshot, audit, node, boot_id, now):
    """The baseline document of a reading taken at NOW (text, UTC)."""
    return {"schema": SCHEMA, "node": node, "boot_id": boot_id, "time": now, "snapshot": snapshot, "audit": audit}


def check_baseline(baseline, node):
    """Refuse what is no baseline, or that of another node."""
    again = "take a new one with gpu_health (phase: baseline)"
    if not isinstance(baseline, dict):
        raise BaselineError("the baseline is a %s, not a dictionary; %s" % (type(baseline).__name__, again))
    if baseline.get("schema") != SCHEMA:
        raise BaselineError("the baseline has schema %r, expected %r; %s" % (baseline.get("schema"), SCHEMA, again))
    if not isinstance(baseline.get("node"), str) or not baseline["node"]:
        raise BaselineError("the baseline names no node; %s" % (again,))
    if baseline["node"] != node:
        raise BaselineError("the baseline is that of node %s, not of %s; pass the baseline of %s" % (baseline["node"], node, node))
    snapshot = baseline.get("snapshot")
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("gpus"), list):
        raise BaselineError("the baseline of %s holds no reading of its GPUs; %s" % (node, again))


def checks(ctx):
    """Whether there is something to compare with where there must be."""
    ident = "baseline.usable"
    if ctx.baseline is None:
        if ctx.phase in ("post", "soak"):
            return [model.check(ident, NODE, UNKNOWN, None, SCHEMA, "baseline", "hold",
                                "Phase %s compares with a baseline and none was given. Pass baseline or baseline_file." % (ctx.phase,))]
        return [model.check(ident, NODE, NOT_APPLICABLE, None, None, "baseline", message="Nothing is compared with an earlier reading.")]
    old = ctx.baseline["snapshot"]
    status = model.item(old, "status")
    if status != "ok" or not model.by_uuid(old):
        return [model.check(ident, NODE, UNKNOWN, status, "ok", "baseline", "hold",
                            "NVML showed no GPU when the baseline was taken (%s), so nothing can be compared. Take a new one on a healthy node." % (status,))]
    nameless = [model.entity(gpu) for gpu in model.gpus(old) if model.uuid(gpu) is None or model.address(gpu) is None]
    if nameless:
        return [model.check(ident, NODE, UNKNOWN, nameless, [], "baseline", "hold",
                            "GPUs were not readable when the baseline was taken: %s. Take a new one on a healthy node." % (", ".join(nameless),))]
    if bool(model.item(old, "simulated")) != bool(model.item(ctx.snapshot, "simulated")):
        return [model.check(ident, NODE, FAIL, bool(model.item(ctx.snapshot, "simulated")), bool(model.item(old, "simulated")), "baseline", "hold",
                            "One of baseline and reading is simulated and the other is not. Take a new baseline.")]
    return [model.check(ident, NODE, PASS, status, "ok", "baseline")]
