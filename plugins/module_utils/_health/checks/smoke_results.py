# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of GPUs at work: that they were tested, and compute right (row 43)."""

from __future__ import annotations

from .. import model, signals
from ..model import FAIL, NODE
from ..nodefacts import Checks
from . import smoke_document, smoke_errors, smoke_rates

# What must be right; the product is part of the longer levels only.
RIGHT = ("memory_pattern", "vector_add", "matrix_product")


def ran(ctx):
    """Check that there is a result, with GPUs in it."""
    judge, ident = smoke_document.Judge(ctx), "smoke.ran"
    checks = Checks(ident)
    check = judge.unusable(ident, NODE)
    if check:
        return check
    entries = judge.document["gpus"]
    states = [model.item(entry, "state") for entry in entries]
    # GPUs with a handle have checks of their own; the others would be lost here.
    open_now = set(model.uuid(gpu) for gpu in signals.ready(ctx))
    lost = [
        "%s: %s"
        % (model.item(entry, "uuid") or "GPU index %s" % model.item(entry, "index"), model.item(entry, "reason"))
        for entry in entries
        if model.item(entry, "uuid") not in open_now and model.item(entry, "state") != "not_applicable"
    ]
    if not judge.document.get("asked"):
        there = set(model.item(entry, "uuid") for entry in entries)
        earlier = model.item(ctx.baseline, "smoke", "gpus")
        lost += [
            "%s: tested in the baseline, and not there now" % (model.item(entry, "uuid"),)
            for entry in (earlier if isinstance(earlier, list) else [])
            if model.item(entry, "state") == "tested" and model.item(entry, "uuid") not in there
        ]
    if lost:
        return checks.unknown(
            lost, [], "These GPUs were not tested: %s. Look at the GPUs' own checks." % ("; ".join(lost),)
        )
    if "tested" in states:
        return checks.good("%d of %d GPUs, level %s" % (states.count("tested"), len(states), judge.document["level"]))
    if states and set(states) == {"not_applicable"}:
        return judge.nothing(
            ident, NODE, "No GPU of this node can be tested: %s." % (model.item(entries[0], "reason"),)
        )
    return checks.unknown(
        len(states), "tested GPUs", "No GPU was tested. Look at the GPUs' own checks and run it again."
    )


def compute(ctx, gpu):
    """Row 43: memory holds what was written, sums and products are exact, and no CUDA call fails."""
    judge, ident, who = smoke_document.Judge(ctx), "smoke.compute", model.entity(gpu)
    checks = Checks(ident, who, source="hardware")
    entry, check = judge.entry(ident, gpu)
    if entry is None:
        if check["observed"] == "hung":
            return dict(check, status=FAIL, action="reboot", source="hardware")
        return check
    problem = smoke_errors.error_of(entry.get("error"))
    if problem:
        return smoke_errors.judged(ident, gpu, "CUDA", problem)
    tests = entry.get("tests") if isinstance(entry.get("tests"), dict) else {}
    wanted = [name for name in RIGHT if name != "matrix_product" or judge.document["level"] != "t0"]
    open_questions = []
    for name in sorted(set(wanted) | set(tests)):
        test = tests.get(name)
        problem = smoke_errors.error_of(model.item(test, "error"))
        if problem and problem["name"] != "NOT_RUN":
            found = smoke_errors.judged(ident, gpu, name, problem)
            if found["status"] == FAIL:
                return found
            open_questions.append(found)
        elif wrong(test) or any(wrong(attempt) for attempt in model.item(test, "attempts") or []):
            return checks.fail(
                "%s: %s" % (name, test.get("detail") or "wrong"),
                "exact results",
                "%s computes or remembers wrongly (%s). Take it out of service and run the field diagnostic."
                % (model.named(gpu), name),
                "field_diag",
            )
        elif name in wanted and len(smoke_rates.numbers(test)) < judge.limit("smoke_repetitions_min", gpu):
            open_questions.append(
                checks.unknown(
                    "%s: %d" % (name, len(smoke_rates.numbers(test))),
                    judge.limit("smoke_repetitions_min", gpu),
                    "%s of %s was repeated too few times, or not done. Run the test again." % (name, model.named(gpu)),
                    source="policy",
                )
            )
        elif name in wanted and model.item(test, "ok") is not True:
            open_questions.append(
                checks.unknown(
                    "%s: %s" % (name, model.item(test, "ok")),
                    True,
                    "Whether %s of %s was right is not known. Run the test again." % (name, model.named(gpu)),
                    source="policy",
                )
            )
    if open_questions:
        return open_questions[0]
    return checks.good("exact", "exact")


def wrong(test):
    """Check if results were wrong: reported as wrong, or counted."""
    if model.item(test, "error"):
        return False
    return model.item(test, "ok") is False or (
        model.item(test, "unit") == "errors" and any(value != 0 for value in smoke_rates.numbers(test))
    )
