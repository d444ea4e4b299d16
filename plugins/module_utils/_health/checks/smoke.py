# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs at work: whether they compute right, and as fast as before and as their peers.

What is judged is the document of gpu_smoke (gpufleet.smoke/1), with "peers", documents of other nodes, and "nccl",
rates that the caller measured.
"""

from __future__ import annotations

from .. import model, signals
from ..model import FAIL, NODE
from ..nodefacts import Checks
from . import smoke_document, smoke_rates, smoke_speed

# What must be right; the product is part of the longer levels only.
RIGHT = ("memory_pattern", "vector_add", "matrix_product")


def check_result(ctx) -> dict:
    """Check that there is a result, with GPUs in it."""
    judge, ident = smoke_document.Judge(ctx), "smoke.ran"
    checks = Checks(ident)
    check = judge.unusable(ident, NODE)
    if check:
        return check
    entries = judge.document["gpus"]
    states = [model.item(entry, "state") for entry in entries]
    # GPUs with a handle have checks of their own; the others would be lost here.
    open_now = set(model.uuid(gpu) for gpu in signals.list_ready_gpus(ctx))
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


def check_compute(ctx, gpu) -> dict | None:
    """Check that memory holds what was written, that sums and products are exact, and that no CUDA call fails."""
    judge, ident, who = smoke_document.Judge(ctx), "smoke.compute", model.entity(gpu)
    checks = Checks(ident, who, source="hardware")
    entry, check = judge.entry(ident, gpu)
    if entry is None:
        if check["observed"] == "hung":
            return dict(check, status=FAIL, action="reboot", source="hardware")
        return check
    problem = smoke_document.error_of(entry.get("error"))
    if problem:
        return smoke_document.judge_cuda_error(ident, gpu, "CUDA", problem)
    tests = entry.get("tests") if isinstance(entry.get("tests"), dict) else {}
    wanted = [name for name in RIGHT if name != "matrix_product" or judge.document["level"] != "t0"]
    open_questions = []
    for name in sorted(set(wanted) | set(tests)):
        test = tests.get(name)
        problem = smoke_document.error_of(model.item(test, "error"))
        if problem and problem["name"] != "NOT_RUN":
            found = smoke_document.judge_cuda_error(ident, gpu, name, problem)
            if found["status"] == FAIL:
                return found
            open_questions.append(found)
        elif has_wrong_results(test) or any(
            has_wrong_results(attempt) for attempt in model.item(test, "attempts") or []
        ):
            return checks.fail(
                "%s: %s" % (name, test.get("detail") or "wrong"),
                "exact results",
                "%s computes or remembers wrongly (%s). Take it out of service and run the field diagnostic."
                % (model.name_gpu(gpu), name),
                "field_diag",
            )
        elif name in wanted and len(smoke_rates.list_numbers(test)) < judge.limit("smoke_repetitions_min", gpu):
            open_questions.append(
                checks.unknown(
                    "%s: %d" % (name, len(smoke_rates.list_numbers(test))),
                    judge.limit("smoke_repetitions_min", gpu),
                    "%s of %s was repeated too few times, or not done. Run the test again."
                    % (name, model.name_gpu(gpu)),
                    source="policy",
                )
            )
        elif name in wanted and model.item(test, "ok") is not True:
            open_questions.append(
                checks.unknown(
                    "%s: %s" % (name, model.item(test, "ok")),
                    True,
                    "Whether %s of %s was right is not known. Run the test again." % (name, model.name_gpu(gpu)),
                    source="policy",
                )
            )
    if open_questions:
        return open_questions[0]
    return checks.good("exact", "exact")


def has_wrong_results(test) -> bool:
    """Check if results were wrong: reported as wrong, or counted."""
    if model.item(test, "error"):
        return False
    return model.item(test, "ok") is False or (
        model.item(test, "unit") == "errors" and any(value != 0 for value in smoke_rates.list_numbers(test))
    )


def check_dcgm(ctx) -> dict:
    """Check NVIDIA's own diagnostic, where level t3 ran it."""
    judge, ident = smoke_document.Judge(ctx), "smoke.dcgm"
    checks = Checks(ident, source="hardware")
    check = judge.unusable(ident, NODE)
    if check:
        return check
    report = judge.document.get("dcgm")
    if report is None and judge.document["level"] != "t3":
        return checks.none("Level %s does not run NVIDIA's diagnostic." % (judge.document["level"],), source="policy")
    status, tests = model.item(report, "status"), model.item(report, "tests")
    if status == "missing":
        return judge.nothing(ident, NODE, "NVIDIA's diagnostic cannot run: %s." % (model.item(report, "message"),))
    if status != "ok" or not isinstance(tests, list) or not tests:
        return checks.unknown(
            status,
            "ok",
            "NVIDIA's diagnostic gave no result: %s. Run it again (%s)."
            % (model.item(report, "message"), model.item(report, "command")),
            source="policy",
        )
    found = dict(
        (word, [str(model.item(test, "name")) for test in tests if model.item(test, "status") == word])
        for word in ("fail", "warn", "pass", "skip")
    )
    others = [str(model.item(test, "name")) for test in tests if model.item(test, "status") not in found]
    if found["fail"]:
        return checks.fail(
            found["fail"],
            [],
            "NVIDIA's diagnostic failed: %s (%s). Drain the node and read "
            "what it says about each test: %s."
            % (", ".join(found["fail"]), "; ".join(list_warnings(tests)), model.item(report, "command")),
            "field_diag",
        )
    if others:
        return checks.unknown(
            others,
            [],
            "NVIDIA's diagnostic did not finish these tests: %s. Run it again (%s)."
            % (", ".join(others), model.item(report, "command")),
        )
    if found["warn"]:
        return checks.notice(found["warn"], [], "NVIDIA's diagnostic warns: %s" % ("; ".join(list_warnings(tests)),))
    if not found["pass"]:
        return checks.none("NVIDIA's diagnostic skipped all of its tests.", found["skip"])
    return checks.good("%d passed, %d skipped" % (len(found["pass"]), len(found["skip"])))


def list_warnings(tests) -> list[str]:
    """The warnings of the tests, each once."""
    result = []
    for test in tests:
        for entry in model.item(test, "results") or []:
            for text in model.item(entry, "warnings") or []:
                if text not in result:
                    result.append(str(text))
    return result[:8]


def _make_rate_judge(ident, name):
    return lambda ctx, gpu: smoke_speed.check_rate(ctx, gpu, ident, name)


ROWS = (
    (
        model.node_row(
            "smoke.ran",
            check_result,
            "The GPUs were tested at work",
            ("gpu_smoke: status, state of each GPU",),
            "this collection",
        ),
        model.gpu_row(
            "smoke.compute",
            check_compute,
            "Memory holds what was written, and sums and products are exact",
            ("gpu_smoke: memory_pattern, vector_add, matrix_product", "CUresult of every call"),
            "CUDA driver API: CUresult",
        ),
    )
    + tuple(
        model.gpu_row(
            ident,
            _make_rate_judge(ident, name),
            title,
            ("gpu_smoke: %s" % (name,), "the same of the baseline"),
            "this collection",
        )
        for ident, name, title in smoke_speed.RATES
    )
    + (
        model.gpu_row(
            "smoke.peers",
            smoke_speed.check_peers,
            "No GPU is slower than the others of its model",
            ("gpu_smoke: rates of this node and of the peers given",),
            "this collection",
        ),
        model.node_row(
            "smoke.nccl_node",
            lambda ctx: smoke_speed.check_nccl(ctx, "smoke.nccl_node", "node"),
            "Bus bandwidth of NCCL within the node",
            ("results of nccl-tests that the caller gives to gpu_smoke",),
            "this collection",
        ),
        model.node_row(
            "smoke.nccl_fleet",
            lambda ctx: smoke_speed.check_nccl(ctx, "smoke.nccl_fleet", "fleet"),
            "Bus bandwidth of NCCL between nodes",
            ("results of nccl-tests that the caller gives to gpu_smoke",),
            "this collection",
        ),
        model.node_row(
            "smoke.dcgm",
            check_dcgm,
            "NVIDIA's own diagnostic",
            ("gpu_smoke: dcgmi diag -j at level t3 (DCGM 3 and 4)",),
            "NVIDIA DCGM",
        ),
    )
)
