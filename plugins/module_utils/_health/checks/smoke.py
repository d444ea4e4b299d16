# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs at work: whether they compute right, and as fast as before and as their peers (rows 43 to 49).

What is judged is the document of gpu_smoke (gpufleet.smoke/1), with "peers", documents of other nodes, and "nccl",
rates that the caller measured. No number is absolute: a GPU is compared with itself and with GPUs of its model.
"""

from __future__ import annotations

from .. import model, policy, signals
from ..model import FAIL, NODE, NOT_APPLICABLE, PASS, UNKNOWN
from . import smoke_rates

SCHEMA = "gpufleet.smoke/1"
LEVELS = ("t0", "t1", "t2", "t3")
# What must be right; the product is part of the longer levels only.
RIGHT = ("memory_pattern", "vector_add", "matrix_product")
# Check id by the test whose rate it compares.
RATES = (
    ("smoke.matrix_product", "matrix_product", "Speed of a matrix product in single precision", 44),
    ("smoke.host_to_device", "host_to_device", "Rate of copies from page-locked memory of the node to the GPU", 45),
    ("smoke.device_to_host", "device_to_host", "Rate of copies from the GPU to page-locked memory of the node", 45),
    ("smoke.memory_bandwidth", "device_copy", "Rate of copies within the GPU's memory", 46),
)
# CUDA results that say the GPU or its driver is broken, and what to do. Any other error leaves open what the matter is.
BROKEN = {
    100: ("reboot", "CUDA finds no GPU where NVML finds one"),
    101: ("reboot", "CUDA finds no GPU where NVML finds one"),
    214: ("reset_gpu", "an uncorrectable memory error; look for Xid 48, 94 and 95 in the kernel log"),
    220: ("reset_gpu", "an uncorrectable NVLink error; look for Xid 74 in the kernel log"),
    802: ("restart_service", "the fabric is not ready; look at the fabric manager"),
    803: ("reboot", "the CUDA library and the loaded kernel module do not fit together; reload the driver or reboot"),
    804: ("hold", "a forward compatibility library is in use that does not fit; remove it"),
    999: ("reboot", "an unknown error; look for NVRM lines in the kernel log"),
}
# 700 to 719: a program known to be good failed on the GPU.
LAUNCH = range(700, 720)
OUT_OF_MEMORY, UNAVAILABLE = 2, 46
OPEN = {
    OUT_OF_MEMORY: "the GPU has no free memory; find out what holds it, and repeat the test",
    34: "the library is a stand-in for building programs; install the driver's own",
    UNAVAILABLE: (
        "the GPU is in use or closed to CUDA programs; drain the node, look at its compute mode, and repeat the test"
    ),
    221: "the library that compiles for the GPU is missing; install it (Debian: libnvidia-ptxjitcompiler1)",
}


class Judge:
    """One context with what every judge of this family asks of it."""

    def __init__(self, ctx):
        self.ctx, self.document = ctx, ctx.smoke

    def limit(self, key, gpu=None):
        return policy.limit(self.ctx, key, gpu)

    @property
    def required(self):
        return bool(self.limit("smoke_required"))

    def nothing(self, ident, entity, message):
        """Return the checks for what cannot be tested here: not applicable, unless the policy requires the test."""
        if self.required:
            return model.check(
                ident,
                entity,
                UNKNOWN,
                None,
                "a test at work",
                "policy",
                "hold",
                message
                + (
                    " The policy requires the test (smoke_required): run gpu_smoke, and repair what keeps "
                    "it from testing."
                ),
            )
        return model.check(ident, entity, NOT_APPLICABLE, None, None, "policy", message=message)

    def unusable(self, ident, entity):
        """The check for a document without any tests, or None."""
        if self.document is None:
            return self.nothing(ident, entity, "The GPUs were not tested at work (gpu_smoke).")
        status = model.item(self.document, "status")
        if (
            model.item(self.document, "schema") != SCHEMA
            or model.item(self.document, "level") not in LEVELS
            or not isinstance(self.document.get("gpus"), list)
        ):
            return model.check(
                ident,
                entity,
                UNKNOWN,
                model.item(self.document, "schema"),
                SCHEMA,
                "policy",
                "hold",
                "This is no result of gpu_smoke. Run it again.",
            )
        if status == "no_library":
            return self.nothing(ident, entity, "%s." % (self.document.get("message"),))
        if status != "ok":
            return model.check(
                ident,
                entity,
                UNKNOWN,
                status,
                "ok",
                "policy",
                "hold",
                "The GPUs were not tested at work: %s" % (self.document.get("message"),),
            )
        return None

    def entry(self, ident, gpu):
        """(what was found out about a GPU, None), or (None, the check that says why there is nothing)."""
        who = model.entity(gpu)
        check = self.unusable(ident, who)
        if check:
            return None, check
        mine = [
            entry
            for entry in self.document["gpus"]
            if isinstance(entry, dict) and entry.get("uuid") and entry["uuid"] == model.uuid(gpu)
        ]
        if len(mine) != 1:
            if not mine and self.document.get("asked"):
                return None, model.check(
                    ident, who, NOT_APPLICABLE, None, None, "policy", message="The test was asked of other GPUs only."
                )
            return None, model.check(
                ident,
                who,
                UNKNOWN,
                None,
                "one result",
                "policy",
                "hold",
                "The test says nothing about %s. Run it again." % (model.named(gpu),),
            )
        entry = mine[0]
        if entry.get("state") == "not_applicable":
            return None, self.nothing(ident, who, "%s was not tested: %s." % (model.named(gpu), entry.get("reason")))
        if entry.get("state") != "tested":
            return None, model.check(
                ident,
                who,
                UNKNOWN,
                entry.get("state"),
                "tested",
                "policy",
                "hold",
                "%s was not tested: %s" % (model.named(gpu), entry.get("reason")),
            )
        return entry, None


def ran(ctx):
    """Check that there is a result, with GPUs in it."""
    judge, ident = Judge(ctx), "smoke.ran"
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
        return model.check(
            ident,
            NODE,
            UNKNOWN,
            lost,
            [],
            "policy",
            "hold",
            "These GPUs were not tested: %s. Look at the GPUs' own checks." % ("; ".join(lost),),
        )
    if "tested" in states:
        return model.check(
            ident,
            NODE,
            PASS,
            "%d of %d GPUs, level %s" % (states.count("tested"), len(states), judge.document["level"]),
            None,
            "policy",
        )
    if states and set(states) == {"not_applicable"}:
        return judge.nothing(
            ident, NODE, "No GPU of this node can be tested: %s." % (model.item(entries[0], "reason"),)
        )
    return model.check(
        ident,
        NODE,
        UNKNOWN,
        len(states),
        "tested GPUs",
        "policy",
        "hold",
        "No GPU was tested. Look at the GPUs' own checks and run it again.",
    )


def compute(ctx, gpu):
    """Row 43: memory holds what was written, sums and products are exact, and no CUDA call fails."""
    judge, ident, who = Judge(ctx), "smoke.compute", model.entity(gpu)
    entry, check = judge.entry(ident, gpu)
    if entry is None:
        if check["observed"] == "hung":
            return dict(check, status=FAIL, action="reboot", source="hardware")
        return check
    problem = error_of(entry.get("error"))
    if problem:
        return failed(ident, gpu, "CUDA", problem)
    tests = entry.get("tests") if isinstance(entry.get("tests"), dict) else {}
    wanted = [name for name in RIGHT if name != "matrix_product" or judge.document["level"] != "t0"]
    open_questions = []
    for name in sorted(set(wanted) | set(tests)):
        test = tests.get(name)
        problem = error_of(model.item(test, "error"))
        if problem and problem["name"] != "NOT_RUN":
            found = failed(ident, gpu, name, problem)
            if found["status"] == FAIL:
                return found
            open_questions.append(found)
        elif wrong(test) or any(wrong(attempt) for attempt in model.item(test, "attempts") or []):
            return model.check(
                ident,
                who,
                FAIL,
                "%s: %s" % (name, test.get("detail") or "wrong"),
                "exact results",
                "hardware",
                "field_diag",
                "%s computes or remembers wrongly (%s). Take it out of service and run the field diagnostic."
                % (model.named(gpu), name),
            )
        elif name in wanted and len(smoke_rates.numbers(test)) < judge.limit("smoke_repetitions_min", gpu):
            open_questions.append(
                model.check(
                    ident,
                    who,
                    UNKNOWN,
                    "%s: %d" % (name, len(smoke_rates.numbers(test))),
                    judge.limit("smoke_repetitions_min", gpu),
                    "policy",
                    "hold",
                    "%s of %s was repeated too few times, or not done. Run the test again." % (name, model.named(gpu)),
                )
            )
        elif name in wanted and model.item(test, "ok") is not True:
            open_questions.append(
                model.check(
                    ident,
                    who,
                    UNKNOWN,
                    "%s: %s" % (name, model.item(test, "ok")),
                    True,
                    "policy",
                    "hold",
                    "Whether %s of %s was right is not known. Run the test again." % (name, model.named(gpu)),
                )
            )
    if open_questions:
        return open_questions[0]
    return model.check(ident, who, PASS, "exact", "exact", "hardware")


def wrong(test):
    """Check if results were wrong: reported as wrong, or counted."""
    if model.item(test, "error"):
        return False
    return model.item(test, "ok") is False or (
        model.item(test, "unit") == "errors" and any(value != 0 for value in smoke_rates.numbers(test))
    )


def error_of(error):
    """A CUDA error as data, or None. Anything else in its place is an error as well."""
    if error is None:
        return None
    rc = model.item(error, "rc")
    return {
        "rc": rc if isinstance(rc, int) and not isinstance(rc, bool) else None,
        "name": str(model.item(error, "name") or error),
        "call": str(model.item(error, "call") or ""),
    }


def failed(ident, gpu, what, problem):
    """The check for a CUDA error."""
    rc, who = problem["rc"], model.entity(gpu)
    shown = "%s: %s (%s) in %s" % (what, problem["name"], rc, problem["call"])
    if rc in BROKEN or rc in LAUNCH:
        action, text = BROKEN.get(rc) or (
            "reset_gpu",
            "a program known to be good failed; look for NVRM: Xid in the kernel log",
        )
        return model.check(
            ident,
            who,
            FAIL,
            shown,
            "no error",
            "hardware",
            action,
            "The test of %s failed: %s." % (model.named(gpu), text),
        )
    return model.check(
        ident,
        who,
        UNKNOWN,
        shown,
        "no error",
        "hardware",
        "hold",
        "The test of %s did not succeed: %s."
        % (model.named(gpu), OPEN.get(rc, "look this CUDA result up, and look at the kernel log")),
    )


def rate(ctx, gpu, ident, name):
    """Rows 44 to 46: the rate of a test against the same GPU in the baseline."""
    judge, who = Judge(ctx), model.entity(gpu)
    old = before(ctx, gpu, name)
    entry, check = judge.entry(ident, gpu)
    if entry is None:
        if (
            old is not None
            and judge.document is not None
            and check["status"] == NOT_APPLICABLE
            and not judge.document.get("asked")
        ):
            # It was measured before and cannot be measured any more.
            return dict(check, status=UNKNOWN, action="hold", source="baseline")
        return check
    test = model.item(entry, "tests", name)
    if (
        test is None
        and old is None
        and not entry.get("error")
        and (name == "matrix_product" and judge.document["level"] == "t0")
    ):
        return model.check(
            ident,
            who,
            NOT_APPLICABLE,
            None,
            None,
            "policy",
            message="%s is not part of level %s." % (name, judge.document["level"]),
        )
    if not smoke_rates.measured(test, judge.limit("smoke_repetitions_min", gpu)):
        problem = error_of(model.item(test, "error") or entry.get("error"))
        return model.check(
            ident,
            who,
            UNKNOWN,
            problem["name"] if problem else None,
            None if old is None else smoke_rates.middle(old),
            "baseline",
            "hold",
            "%s of %s was not measured%s. Run the test again, at the level of the baseline."
            % (name, model.named(gpu), ": %s in %s" % (problem["name"], problem["call"]) if problem else ""),
        )
    if old is None:
        return judge_without(judge, ident, gpu, test)
    if bool(model.item(ctx.baseline, "smoke", "simulated")) != bool(judge.document.get("simulated")):
        return model.check(
            ident,
            who,
            UNKNOWN,
            bool(judge.document.get("simulated")),
            not judge.document.get("simulated"),
            "baseline",
            "hold",
            "One of baseline and test is simulated and the other is not. Take a new baseline.",
        )
    return against(judge, ident, gpu, name, test, old)


def judge_without(judge, ident, gpu, test):
    who, seen = model.entity(gpu), "%g %s" % (smoke_rates.middle(test), test.get("unit"))
    if judge.ctx.baseline is not None and judge.required:
        return model.check(
            ident,
            who,
            UNKNOWN,
            seen,
            None,
            "baseline",
            "hold",
            "The baseline has no such measurement of %s. Take a new baseline with gpu_smoke." % (model.named(gpu),),
        )
    return model.check(
        ident, who, NOT_APPLICABLE, seen, None, "baseline", message="There is no earlier measurement to compare with."
    )


def against(judge, ident, gpu, name, test, old):
    who, unit = model.entity(gpu), test.get("unit")
    if old.get("parameters") != test.get("parameters") or old.get("unit") != unit:
        return model.check(
            ident,
            who,
            UNKNOWN,
            test.get("parameters"),
            old.get("parameters"),
            "baseline",
            "hold",
            "%s of %s was measured in another way than in the baseline. Take a new baseline on a healthy node."
            % (name, model.named(gpu)),
        )
    result = smoke_rates.compare(
        test,
        old,
        judge.limit("smoke_tolerance_percent", gpu),
        judge.limit("smoke_mad_factor", gpu),
        judge.limit("smoke_noise_max_percent", gpu),
    )
    seen, wanted = "%g %s" % (result["now"], unit), "at least %g %s" % (result["least"], unit)
    differences = smoke_rates.differences(
        test,
        old,
        judge.limit("smoke_temperature_difference_c", gpu),
        judge.limit("smoke_clock_difference_percent", gpu),
    )
    more = (" " + " ".join(differences)) if differences else ""
    times = len(model.item(test, "attempts") or []) + 1
    if result["verdict"] == "slower":
        return model.check(
            ident,
            who,
            FAIL,
            seen,
            wanted,
            "baseline",
            "hold",
            "%s of %s is %.1f %% lower than in the baseline (%g %s), measured %d time%s; "
            "%.1f %% are accepted.%s Compare clocks, power limit, PCIe link and NUMA node with the baseline."
            % (
                name,
                model.named(gpu),
                result["drop_percent"],
                result["before"],
                unit,
                times,
                "" if times == 1 else "s",
                result["allowed_percent"],
                more,
            ),
        )
    if result["verdict"] == "noisy":
        return model.check(
            ident,
            who,
            UNKNOWN,
            seen,
            wanted,
            "baseline",
            "hold",
            "%s of %s varies too much to be compared (spread %.1f %%, accepted %g %%).%s "
            "Look for other work on the node and run the test again."
            % (name, model.named(gpu), result["spread_percent"], judge.limit("smoke_noise_max_percent", gpu), more),
        )
    return model.check(ident, who, PASS, seen, wanted, "baseline", message=more.strip(), notice=bool(differences))


def before(ctx, gpu, name):
    """The test NAME of the same GPU in the baseline, if it was measured there."""
    entries = model.item(ctx.baseline, "smoke", "gpus")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("uuid") and entry["uuid"] == model.uuid(gpu):
            test = model.item(entry, "tests", name)
            return test if smoke_rates.measured(test, 1) else None
    return None


def peers(ctx, gpu):
    """Rows 44 to 46 again: every rate against the median of the GPUs of the same model, here and on the nodes in
    "peers".
    """
    judge, ident, who = Judge(ctx), "smoke.peers", model.entity(gpu)
    entry, check = judge.entry(ident, gpu)
    if entry is None:
        return check
    seen, low, noisy = {}, [], []
    for dummy, name, dummy_title, dummy_row in RATES:
        test = model.item(entry, "tests", name)
        others = smoke_rates.of_peers(judge.document, entry, name)
        if len(others) < judge.limit("smoke_peers_min", gpu) or not smoke_rates.measured(test, 1):
            continue
        result = smoke_rates.compare(
            test,
            {"samples": others},
            judge.limit("smoke_peers_tolerance_percent", gpu),
            judge.limit("smoke_mad_factor", gpu),
            judge.limit("smoke_peers_noise_max_percent", gpu),
        )
        seen[name] = result
        if result["verdict"] == "slower":
            low.append(name)
        elif result["verdict"] == "noisy":
            noisy.append(name)
    if not seen:
        return model.check(
            ident,
            who,
            NOT_APPLICABLE,
            None,
            None,
            "policy",
            message="Fewer than %d GPUs of the same model were measured in the same way."
            % (judge.limit("smoke_peers_min", gpu),),
        )
    observed = dict((name, result["now"]) for name, result in seen.items())
    expected = dict((name, result["least"]) for name, result in seen.items())
    if low:
        return model.check(
            ident,
            who,
            FAIL,
            observed,
            expected,
            "hardware",
            "hold",
            "%s of %s is lower than that of its peers: %s. Compare PCIe link, clocks, "
            "power limit and cooling with theirs."
            % (
                ", ".join(low),
                model.named(gpu),
                ", ".join("%s by %.1f %%" % (name, seen[name]["drop_percent"]) for name in low),
            ),
        )
    if noisy:
        return model.check(
            ident,
            who,
            UNKNOWN,
            observed,
            expected,
            "hardware",
            "hold",
            "The peers of %s differ too much among themselves to be compared with "
            "(%s). Run the test on a quiet node." % (model.named(gpu), ", ".join(noisy)),
        )
    return model.check(ident, who, PASS, observed, expected, "hardware")


def nccl(ctx, ident, key):
    """Rows 47 and 48: the bus bandwidth of a collective that the caller measured, against the baseline's."""
    judge = Judge(ctx)
    old = model.item(ctx.baseline, "smoke", "nccl", key)
    test = model.item(judge.document, "nccl", key)
    if test is None:
        if smoke_rates.measured(old, 1) and judge.document is not None:
            return model.check(
                ident,
                NODE,
                UNKNOWN,
                None,
                smoke_rates.middle(old),
                "baseline",
                "hold",
                "The baseline has a result of NCCL (%s) and there is none now. Measure it again, in the same way."
                % (key,),
            )
        return model.check(
            ident, NODE, NOT_APPLICABLE, None, None, "policy", message="No result of NCCL (%s) was given." % (key,)
        )
    least = judge.limit("smoke_repetitions_min")
    if not smoke_rates.measured(test, least):
        return model.check(
            ident,
            NODE,
            UNKNOWN,
            len(smoke_rates.numbers(test)),
            least,
            "policy",
            "hold",
            "The result of NCCL (%s) has too few numbers above 0. Measure it %d times." % (key, least),
        )
    if not smoke_rates.measured(old, 1):
        return model.check(
            ident,
            NODE,
            NOT_APPLICABLE,
            smoke_rates.middle(test),
            None,
            "baseline",
            message="There is no earlier measurement to compare with.",
        )
    result = smoke_rates.compare(
        test,
        old,
        judge.limit("smoke_tolerance_percent"),
        judge.limit("smoke_mad_factor"),
        judge.limit("smoke_noise_max_percent"),
    )
    status, text = {
        "slower": (
            FAIL,
            (
                "NCCL (%s) is %.1f %% slower than in the baseline. Look at NVLink, the fabric, nvidia_peermem and the "
                "InfiniBand ports." % (key, result["drop_percent"])
            ),
        ),
        "noisy": (
            UNKNOWN,
            "The results of NCCL (%s) vary too much to be compared (spread %.1f %%). Measure again on a quiet node."
            % (key, result["spread_percent"]),
        ),
    }.get(result["verdict"], (PASS, ""))
    return model.check(ident, NODE, status, result["now"], result["least"], "baseline", message=text)


def dcgm(ctx):
    """Row 49: NVIDIA's own diagnostic, where level t3 ran it."""
    judge, ident = Judge(ctx), "smoke.dcgm"
    check = judge.unusable(ident, NODE)
    if check:
        return check
    report = judge.document.get("dcgm")
    if report is None and judge.document["level"] != "t3":
        return model.check(
            ident,
            NODE,
            NOT_APPLICABLE,
            None,
            None,
            "policy",
            message="Level %s does not run NVIDIA's diagnostic." % (judge.document["level"],),
        )
    status, tests = model.item(report, "status"), model.item(report, "tests")
    if status == "missing":
        return judge.nothing(ident, NODE, "NVIDIA's diagnostic cannot run: %s." % (model.item(report, "message"),))
    if status != "ok" or not isinstance(tests, list) or not tests:
        return model.check(
            ident,
            NODE,
            UNKNOWN,
            status,
            "ok",
            "policy",
            "hold",
            "NVIDIA's diagnostic gave no result: %s. Run it again (%s)."
            % (model.item(report, "message"), model.item(report, "command")),
        )
    found = dict(
        (word, [str(model.item(test, "name")) for test in tests if model.item(test, "status") == word])
        for word in ("fail", "warn", "pass", "skip")
    )
    others = [str(model.item(test, "name")) for test in tests if model.item(test, "status") not in found]
    if found["fail"]:
        return model.check(
            ident,
            NODE,
            FAIL,
            found["fail"],
            [],
            "hardware",
            "field_diag",
            "NVIDIA's diagnostic failed: %s (%s). Drain the node and read "
            "what it says about each test: %s."
            % (", ".join(found["fail"]), "; ".join(texts(tests)), model.item(report, "command")),
        )
    if others:
        return model.check(
            ident,
            NODE,
            UNKNOWN,
            others,
            [],
            "hardware",
            "hold",
            "NVIDIA's diagnostic did not finish these tests: %s. Run it again (%s)."
            % (", ".join(others), model.item(report, "command")),
        )
    if found["warn"]:
        return model.check(
            ident,
            NODE,
            PASS,
            found["warn"],
            [],
            "hardware",
            notice=True,
            message="NVIDIA's diagnostic warns: %s" % ("; ".join(texts(tests)),),
        )
    if not found["pass"]:
        return model.check(
            ident,
            NODE,
            NOT_APPLICABLE,
            found["skip"],
            None,
            "hardware",
            message="NVIDIA's diagnostic skipped all of its tests.",
        )
    return model.check(
        ident, NODE, PASS, "%d passed, %d skipped" % (len(found["pass"]), len(found["skip"])), None, "hardware"
    )


def texts(tests):
    """The warnings of the tests, each once."""
    result = []
    for test in tests:
        for entry in model.item(test, "results") or []:
            for text in model.item(entry, "warnings") or []:
                if text not in result:
                    result.append(str(text))
    return result[:8]


def _rate(ident, name):
    return lambda ctx, gpu: rate(ctx, gpu, ident, name)


ROWS = (
    (
        model.Row(
            "smoke.ran",
            "node",
            ran,
            "The GPUs were tested at work",
            ("gpu_smoke: status, state of each GPU",),
            "this collection",
            (43,),
        ),
        model.Row(
            "smoke.compute",
            "gpu",
            compute,
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
        for ident, name, title, row in RATES
    )
    + (
        model.Row(
            "smoke.peers",
            "gpu",
            peers,
            "No GPU is slower than the others of its model",
            ("gpu_smoke: rates of this node and of the peers given",),
            "this collection",
            (44, 45, 46),
        ),
        model.Row(
            "smoke.nccl_node",
            "node",
            lambda ctx: nccl(ctx, "smoke.nccl_node", "node"),
            "Bus bandwidth of NCCL within the node",
            ("results of nccl-tests that the caller gives to gpu_smoke",),
            "this collection",
            (47,),
        ),
        model.Row(
            "smoke.nccl_fleet",
            "node",
            lambda ctx: nccl(ctx, "smoke.nccl_fleet", "fleet"),
            "Bus bandwidth of NCCL between nodes",
            ("results of nccl-tests that the caller gives to gpu_smoke",),
            "this collection",
            (48,),
        ),
        model.Row(
            "smoke.dcgm",
            "node",
            dcgm,
            "NVIDIA's own diagnostic",
            ("gpu_smoke: dcgmi diag -j at level t3 (DCGM 3 and 4)",),
            "NVIDIA DCGM",
            (49,),
        ),
    )
)
