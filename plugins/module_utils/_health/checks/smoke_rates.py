# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers of repeated measurements: middle, spread, and when one is really lower than another.

The median and the median absolute deviation (MAD) are used, as one repetition that was disturbed must not decide.
"""

from __future__ import annotations

import math
import statistics

from .. import model


def list_numbers(test) -> list[float]:
    """The samples of a test that are numbers; an empty list for what is no test."""
    samples = model.item(test, "samples")
    if not isinstance(samples, list):
        return []
    return [
        value
        for value in samples
        if not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
    ]


def is_measured(test, least) -> bool:
    """Tell if TEST has at least LEAST samples, all of them rates above 0, and no error."""
    found = list_numbers(test)
    return (
        bool(found)
        and len(found) >= least
        and len(found) == len(test["samples"])
        and min(found) > 0
        and not test.get("error")
    )


def find_median(test) -> float:
    return statistics.median(list_numbers(test))


def find_deviation(test) -> float:
    center = find_median(test)
    return statistics.median([abs(value - center) for value in list_numbers(test)])


def compare_rates(test, old, tolerance_percent, factor, noise_percent) -> dict:
    """Check if TEST is slower than OLD by more than tolerance and noise.

    A drop counts if it is larger than tolerance and FACTOR times the larger MAD. If that noise is larger than accepted,
    and the drop does not exceed it, the result is unknown.
    """
    now, before = find_median(test), find_median(old)
    spread = 100.0 * factor * max(find_deviation(test), find_deviation(old)) / before
    allowed = max(float(tolerance_percent), spread)
    drop = 100.0 * (before - now) / before
    verdict = "slower" if drop > allowed else "noisy" if spread > noise_percent else "same"
    return {
        "verdict": verdict,
        "now": now,
        "before": before,
        "least": round(before * (1 - min(allowed, 100.0) / 100.0), 4),
        "drop_percent": drop,
        "allowed_percent": allowed,
        "spread_percent": spread,
    }


def list_differences(test, old, temperature_c, clock_percent) -> list[str]:
    """Return the differences in the conditions of two measurements, as sentences."""
    found = []
    warm, cool = _find_series_median(test, "temperature_c"), _find_series_median(old, "temperature_c")
    if warm is not None and cool is not None and abs(warm - cool) > temperature_c:
        found.append("The GPU was at {0:g} degrees Celsius, in the baseline at {1:g}.".format(warm, cool))
    fast, slow = _find_series_median(test, "clock_sm_mhz"), _find_series_median(old, "clock_sm_mhz")
    if fast is not None and slow and abs(fast - slow) * 100.0 > slow * clock_percent:
        found.append("Its SM clock was {0:g} MHz, in the baseline {1:g} MHz.".format(fast, slow))
    return found


def _find_series_median(test, key) -> float | None:
    values = list_numbers({"samples": model.item(test, key)})
    return statistics.median(values) if values else None


def of_peers(document, mine, name) -> list[float]:
    """The medians of test NAME of other GPUs of the model of entry MINE, measured in the same way, in DOCUMENT and in
    its peers.
    """
    reference = model.item(mine, "tests", name)
    found = []
    others = model.item(document, "peers")
    for number, other in enumerate([document] + (others if isinstance(others, list) else [])):
        entries = model.item(other, "gpus")
        if not isinstance(entries, list) or bool(model.item(other, "simulated")) != bool(
            model.item(document, "simulated")
        ):
            continue
        for entry in entries:
            test = model.item(entry, "tests", name)
            if (
                entry is mine
                or model.item(entry, "state") != "tested"
                or (number and model.item(entry, "uuid") == mine.get("uuid"))
            ):
                continue
            if (
                model.item(entry, "name") == mine.get("name")
                and is_measured(test, 1)
                and test.get("parameters") == model.item(reference, "parameters")
            ):
                found.append(find_median(test))
    return found


def find_unsettled_tests(document, baseline, limits) -> dict[str, list]:
    """{uuid: [test]} of what is to be measured once more: rates lower than in the BASELINE's document or than the
    peers', or too noisy to say.

    LIMITS(gpu name) answers {"baseline": (tolerance percent, MAD factor, accepted noise percent), "peers": the same,
    "peers_min": number}.
    """
    earlier = dict(
        (entry.get("uuid"), entry) for entry in model.item(baseline, "gpus") or [] if isinstance(entry, dict)
    )
    again = {}
    for entry in model.item(document, "gpus") or []:
        if model.item(entry, "state") != "tested":
            continue
        tests = model.item(entry, "tests")
        rules = limits(entry.get("name"))
        for name, test in sorted(tests.items() if isinstance(tests, dict) else []):
            if model.item(test, "unit") == "errors" or not is_measured(test, 1):
                continue
            old = model.item(earlier.get(entry.get("uuid")), "tests", name)
            others = of_peers(document, entry, name)
            same = True
            if is_measured(old, 1) and old.get("parameters") == test.get("parameters"):
                same = compare_rates(test, old, *rules["baseline"])["verdict"] == "same"
            if same and len(others) >= rules["peers_min"]:
                same = compare_rates(test, {"samples": others}, *rules["peers"])["verdict"] == "same"
            if not same:
                again.setdefault(entry["uuid"], []).append(name)
    return again


def merge_repeats(first, again) -> dict:
    """FIRST with the repeated measurements of AGAIN in place of its own, which are kept in "attempts".

    What was wrong once stays wrong.
    """
    repeated = dict((entry.get("uuid"), entry) for entry in model.item(again, "gpus") or [] if isinstance(entry, dict))
    gpus = []
    for entry in first["gpus"]:
        other = repeated.get(entry.get("uuid"))
        if other is None:
            gpus.append(entry)
            continue
        if other.get("state") != "tested" or other.get("error"):
            # It could be tested and cannot any more: that is what counts now.
            gpus.append(dict(entry, state=other.get("state"), reason=other.get("reason"), error=other.get("error")))
            continue
        tests = dict(entry["tests"])
        for name, test in other["tests"].items():
            old = tests.get(name)
            if old is not None:
                test = dict(
                    test,
                    attempts=list(old.get("attempts") or [])
                    + [dict((key, value) for key, value in old.items() if key != "attempts")],
                )
            tests[name] = test
        gpus.append(dict(entry, tests=tests))
    return dict(first, gpus=gpus)
