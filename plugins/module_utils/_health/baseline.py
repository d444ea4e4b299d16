# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reading of a healthy moment that later readings are compared with (schema gpufleet.baseline/1)."""

from __future__ import annotations

from . import diff, model, policy
from .nodefacts import Checks

SCHEMA = "gpufleet.baseline/1"
SECTIONS = ("snapshot", "audit", "system", "kernel_log")
SCHEMAS = {
    "snapshot": "gpufleet.snapshot/1",
    "audit": "gpufleet.audit/1",
    "system": "gpufleet.system/1",
    "kernel_log": "gpufleet.kernel-log/1",
}


class BaselineError(Exception):
    """The baseline must not be used; the text says why and what to do, path is the way to the place that is wrong."""

    def __init__(self, text, path=()) -> None:
        super().__init__(text)
        self.path = tuple(path)


def baseline_of(reading, node, now, smoke=None) -> dict:
    """The baseline document of a READING (gpufleet.reading/1) taken at NOW (text, UTC), with the result of gpu_smoke if
    there is one.
    """
    document = {"schema": SCHEMA, "node": node, "time": now}
    for key in ("boot_id",) + SECTIONS:
        document[key] = model.item(reading, key)
    if smoke is not None:
        document["smoke"] = smoke
    return document


# The clocks of two controllers may differ by as much.
CLOCKS_S = 600


def check_baseline(baseline, node, now="") -> None:
    """Refuse what is no baseline, that of another node, and one from after NOW, like 2026-01-31T12:00:00Z."""
    again = "take a new one with gpu_health (phase: baseline)"
    if not isinstance(baseline, dict):
        raise BaselineError("the baseline is a %s, not a dictionary; %s" % (type(baseline).__name__, again))
    if baseline.get("schema") != SCHEMA:
        raise BaselineError(
            "the baseline has schema %r, expected %r; %s" % (baseline.get("schema"), SCHEMA, again), ("schema",)
        )
    if not isinstance(baseline.get("node"), str) or not baseline["node"]:
        raise BaselineError("the baseline names no node; %s" % (again,), ("node",))
    if baseline["node"] != node:
        raise BaselineError(
            "the baseline is that of node %s, not of %s; pass the baseline of %s" % (baseline["node"], node, node),
            ("node",),
        )
    if now:
        _check_time(baseline.get("time"), node, now, again)
    _check_sections(baseline, node, again)


def _check_sections(baseline, node, again) -> None:
    snapshot = baseline.get("snapshot")
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("gpus"), list):
        raise BaselineError(
            "the baseline of %s holds no reading of its GPUs (snapshot.gpus); %s" % (node, again), ("snapshot", "gpus")
        )
    for number, gpu in enumerate(snapshot["gpus"]):
        if not isinstance(gpu, dict):
            raise BaselineError(
                "snapshot.gpus[%d] in the baseline of %s is of type %s, expected a dictionary; %s"
                % (number, node, type(gpu).__name__, again),
                ("snapshot", "gpus", number),
            )
    for key in SECTIONS + ("smoke",):
        if not isinstance(baseline.get(key), (dict, type(None))):
            raise BaselineError(
                "%s in the baseline of %s is of type %s, expected a dictionary; %s"
                % (key, node, type(baseline[key]).__name__, again),
                (key,),
            )
    for key, schema in SCHEMAS.items():
        found = model.item(baseline, key)
        if found is not None and found.get("schema") != schema:
            raise BaselineError(
                "%s in the baseline of %s has schema %r, expected %r: it is of another version of the collection; %s"
                % (key, node, found.get("schema"), schema, again),
                (key, "schema"),
            )


def _check_time(taken, node, now, again) -> None:
    try:
        moment = policy.parse_moment(taken, "the time of the baseline")
    except (policy.PolicyError, TypeError):
        raise BaselineError(
            "the baseline of %s was taken at %r, which is no time; %s" % (node, taken, again), ("time",)
        ) from None
    if (moment - policy.parse_moment(now, "the present time")).total_seconds() > CLOCKS_S:
        raise BaselineError(
            "the baseline of %s was taken at %s, and it is %s now: the clock of one of the controllers is "
            "wrong. Set it, or %s" % (node, taken, now, again),
            ("time",),
        )


def usable(ctx) -> dict:
    """Check that a baseline is available where one is required."""
    ident = "baseline.usable"
    checks = Checks(ident, source="baseline")
    if ctx.baseline is None:
        if ctx.phase in ("post", "soak"):
            return checks.unknown(
                None,
                SCHEMA,
                "Phase %s compares with a baseline and none was given. Pass baseline or baseline_file." % (ctx.phase,),
            )
        return checks.none("Nothing is compared with an earlier reading.")
    old = ctx.baseline["snapshot"]
    status = model.item(old, "status")
    if status != "ok" or not model.by_uuid(old):
        return checks.unknown(
            status,
            "ok",
            "NVML showed no GPU when the baseline was taken (%s), so nothing can be compared. Take a new "
            "one on a healthy node." % (status,),
        )
    nameless = [model.entity(gpu) for gpu in model.gpus(old) if model.uuid(gpu) is None or model.address(gpu) is None]
    if nameless:
        return checks.unknown(
            nameless,
            [],
            "GPUs were not readable when the baseline was taken: %s. Take a new one on a healthy node."
            % (", ".join(nameless),),
        )
    # A library that never answered did not say whether it is the simulator's.
    answered = model.item(ctx.snapshot, "nvml", "rc") is not None
    if answered and bool(model.item(old, "simulated")) != bool(model.item(ctx.snapshot, "simulated")):
        return checks.fail(
            bool(model.item(ctx.snapshot, "simulated")),
            bool(model.item(old, "simulated")),
            "One of baseline and reading is simulated and the other is not. Take a new baseline.",
        )
    return checks.good(status, "ok")


def list_changes(ctx) -> list[dict]:
    """Return the differences from the baseline; empty without one."""
    if ctx.baseline is None:
        return []
    accepted = model.item(ctx.expect, "changes")
    accepted = [pattern for pattern in accepted if isinstance(pattern, str)] if isinstance(accepted, list) else []
    return diff.list_changes(
        ctx.baseline, ctx.reading, accepted, policy.find_limit(ctx, "memory_total_tolerance_percent")
    )


def check_regressions(ctx) -> dict:
    """Check for unannounced changes for the worse. What makes a node unfit has a check of its own that fails."""
    ident = "baseline.changes"
    checks = Checks(ident, source="baseline")
    if ctx.baseline is None:
        return checks.none("Nothing is compared with an earlier reading.")
    found = [
        "%s %s" % (change["entity"], change["key"])
        for change in list_changes(ctx)
        if change["class"] == diff.REGRESSION
    ]
    if not found:
        return checks.good([], [])
    shown = ", ".join(found[:5]) + (" and %d more" % (len(found) - 5) if len(found) > 5 else "")
    return checks.notice(
        found,
        [],
        "%d values changed for the worse since the baseline: %s. Look at the verdict's changes; announce them "
        "(expect.changes) if they are meant, or take a new baseline." % (len(found), shown),
    )


ROWS = (
    model.node_row(
        "baseline.usable",
        usable,
        "There is a baseline to compare with where there must be, and it holds every GPU",
        ("baseline.snapshot",),
        "this collection",
    ),
    model.node_row(
        "baseline.changes",
        check_regressions,
        "Nothing changed for the worse since the baseline (a notice)",
        ("baseline", "reading"),
        "this collection",
    ),
)
