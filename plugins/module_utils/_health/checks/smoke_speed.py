# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed of GPUs at work, compared with before and with their peers.

No number is absolute: a GPU is compared with itself and with GPUs of its model.
"""

from __future__ import annotations

from .. import model
from ..model import FAIL, NODE, NOT_APPLICABLE, PASS, UNKNOWN
from ..nodefacts import Checks
from . import smoke_document, smoke_rates

# Check id by the test whose rate it compares.
RATES = (
    ("smoke.matrix_product", "matrix_product", "Speed of a matrix product in single precision"),
    ("smoke.host_to_device", "host_to_device", "Rate of copies from page-locked memory of the node to the GPU"),
    ("smoke.device_to_host", "device_to_host", "Rate of copies from the GPU to page-locked memory of the node"),
    ("smoke.memory_bandwidth", "device_copy", "Rate of copies within the GPU's memory"),
)


def check_rate(ctx, gpu, ident, name) -> dict | None:
    """Compare the rate of a test with the same GPU in the baseline."""
    judge, who = smoke_document.Judge(ctx), model.entity(gpu)
    checks = Checks(ident, who, source="baseline")
    old = find_baseline_test(ctx, gpu, name)
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
        return checks.none("%s is not part of level %s." % (name, judge.document["level"]), source="policy")
    if not smoke_rates.is_measured(test, judge.limit("smoke_repetitions_min", gpu)):
        problem = smoke_document.error_of(model.item(test, "error") or entry.get("error"))
        return checks.unknown(
            problem["name"] if problem else None,
            None if old is None else smoke_rates.find_median(old),
            "%s of %s was not measured%s. Run the test again, at the level of the baseline."
            % (name, model.name_gpu(gpu), ": %s in %s" % (problem["name"], problem["call"]) if problem else ""),
        )
    if old is None:
        return judge_without(judge, ident, gpu, test)
    if bool(model.item(ctx.baseline, "smoke", "simulated")) != bool(judge.document.get("simulated")):
        return checks.unknown(
            bool(judge.document.get("simulated")),
            not judge.document.get("simulated"),
            "One of baseline and test is simulated and the other is not. Take a new baseline.",
        )
    return judge_against(judge, ident, gpu, name, test, old)


def judge_without(judge, ident, gpu, test) -> dict:
    who, seen = model.entity(gpu), "%g %s" % (smoke_rates.find_median(test), test.get("unit"))
    checks = Checks(ident, who, source="baseline")
    if judge.ctx.baseline is not None and judge.is_required:
        return checks.unknown(
            seen,
            None,
            "The baseline has no such measurement of %s. Take a new baseline with gpu_smoke." % (model.name_gpu(gpu),),
        )
    return checks.none("There is no earlier measurement to compare with.", seen)


def judge_against(judge, ident, gpu, name, test, old) -> dict:
    who, unit = model.entity(gpu), test.get("unit")
    checks = Checks(ident, who, source="baseline")
    if old.get("parameters") != test.get("parameters") or old.get("unit") != unit:
        return checks.unknown(
            test.get("parameters"),
            old.get("parameters"),
            "%s of %s was measured in another way than in the baseline. Take a new baseline on a healthy node."
            % (name, model.name_gpu(gpu)),
        )
    result = smoke_rates.compare_rates(
        test,
        old,
        judge.limit("smoke_tolerance_percent", gpu),
        judge.limit("smoke_mad_factor", gpu),
        judge.limit("smoke_noise_max_percent", gpu),
    )
    seen, wanted = "%g %s" % (result["now"], unit), "at least %g %s" % (result["least"], unit)
    differences = smoke_rates.list_differences(
        test,
        old,
        judge.limit("smoke_temperature_difference_c", gpu),
        judge.limit("smoke_clock_difference_percent", gpu),
    )
    more = (" " + " ".join(differences)) if differences else ""
    times = len(model.item(test, "attempts") or []) + 1
    if result["verdict"] == "slower":
        return checks.fail(
            seen,
            wanted,
            "%s of %s is %.1f %% lower than in the baseline (%g %s), measured %d time%s; "
            "%.1f %% are accepted.%s Compare clocks, power limit, PCIe link and NUMA node with the baseline."
            % (
                name,
                model.name_gpu(gpu),
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
        return checks.unknown(
            seen,
            wanted,
            "%s of %s varies too much to be compared (spread %.1f %%, accepted %g %%).%s "
            "Look for other work on the node and run the test again."
            % (name, model.name_gpu(gpu), result["spread_percent"], judge.limit("smoke_noise_max_percent", gpu), more),
        )
    return checks.make(PASS, seen, wanted, None, more.strip(), notice=bool(differences))


def find_baseline_test(ctx, gpu, name) -> dict | None:
    """The test NAME of the same GPU in the baseline, if it was measured there."""
    entries = model.item(ctx.baseline, "smoke", "gpus")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("uuid") and entry["uuid"] == model.uuid(gpu):
            test = model.item(entry, "tests", name)
            return test if smoke_rates.is_measured(test, 1) else None
    return None


def check_peers(ctx, gpu) -> dict | None:
    """Compare every rate with the median of the GPUs of the same model, here and on the nodes in
    "peers".
    """
    judge, ident, who = smoke_document.Judge(ctx), "smoke.peers", model.entity(gpu)
    checks = Checks(ident, who, source="hardware")
    entry, check = judge.entry(ident, gpu)
    if entry is None:
        return check
    seen, low, noisy = {}, [], []
    for dummy, name, dummy_title in RATES:
        test = model.item(entry, "tests", name)
        others = smoke_rates.of_peers(judge.document, entry, name)
        if len(others) < judge.limit("smoke_peers_min", gpu) or not smoke_rates.is_measured(test, 1):
            continue
        result = smoke_rates.compare_rates(
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
        return checks.none(
            "Fewer than %d GPUs of the same model were measured in the same way."
            % (judge.limit("smoke_peers_min", gpu),),
            source="policy",
        )
    observed = dict((name, result["now"]) for name, result in seen.items())
    expected = dict((name, result["least"]) for name, result in seen.items())
    if low:
        return checks.fail(
            observed,
            expected,
            "%s of %s is lower than that of its peers: %s. Compare PCIe link, clocks, "
            "power limit and cooling with theirs."
            % (
                ", ".join(low),
                model.name_gpu(gpu),
                ", ".join("%s by %.1f %%" % (name, seen[name]["drop_percent"]) for name in low),
            ),
        )
    if noisy:
        return checks.unknown(
            observed,
            expected,
            "The peers of %s differ too much among themselves to be compared with "
            "(%s). Run the test on a quiet node." % (model.name_gpu(gpu), ", ".join(noisy)),
        )
    return checks.good(observed, expected)


def check_nccl(ctx, ident, key) -> dict:
    """Compare the bus bandwidth of a collective that the caller measured with the baseline's."""
    checks = Checks(ident, source="baseline")
    judge = smoke_document.Judge(ctx)
    old = model.item(ctx.baseline, "smoke", "nccl", key)
    test = model.item(judge.document, "nccl", key)
    if test is None:
        if smoke_rates.is_measured(old, 1) and judge.document is not None:
            return checks.unknown(
                None,
                smoke_rates.find_median(old),
                "The baseline has a result of NCCL (%s) and there is none now. Measure it again, in the same way."
                % (key,),
            )
        return checks.none("No result of NCCL (%s) was given." % (key,), source="policy")
    least = judge.limit("smoke_repetitions_min")
    if not smoke_rates.is_measured(test, least):
        return checks.unknown(
            len(smoke_rates.list_numbers(test)),
            least,
            "The result of NCCL (%s) has too few numbers above 0. Measure it %d times." % (key, least),
            source="policy",
        )
    if not smoke_rates.is_measured(old, 1):
        return checks.none("There is no earlier measurement to compare with.", smoke_rates.find_median(test))
    result = smoke_rates.compare_rates(
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
