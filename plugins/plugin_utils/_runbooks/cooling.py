# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the GPUs of a node that throttle for heat, and the likely cause, from what NVML and the BMC report."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import compare, model

Answer = Mapping[str, Any]
# Bits of NVML's clock event reasons that have to do with heat or power from outside (nvml.h, nvmlClocksEventReason*).
REASONS = ((0x8, "hw_slowdown"), (0x20, "sw_thermal"), (0x40, "hw_thermal"), (0x80, "hw_power_brake"))
THERMAL = ("sw_thermal", "hw_thermal")
POWER_BRAKE = "hw_power_brake"
NONE, INLET, FANS, NODE, GPU, UNKNOWN = "none", "inlet", "fans", "node", "gpu", "unknown"
INLETS = re.compile(r"inlet|ambient|intake", re.IGNORECASE)
FAN = re.compile(r"fan", re.IGNORECASE)
# What a sensor has as its state in ipmitool's output: ns is no reading; cr, nr and their kin are out of range.
NO_READING = "ns"
FAILED = ("cr", "nr", "lcr", "lnr", "ucr", "unr")
SHOWN = 5


class Gpu(TypedDict):
    """The heat of a GPU; None is not known."""

    gpu: str
    uuid: str | None
    throttled: bool | None
    reasons: list[str]
    temperature_c: float | None
    hot: bool | None


class Sensors(TypedDict):
    """The readings of the BMC. A temperature of None, and fans of None, are not known."""

    inlet_c: float | None
    fans: int | None
    failed_fans: list[str]
    problem: str


class Cause(TypedDict):
    """The likely cause of the heat, why it is that one, and whether a power brake holds GPUs back too."""

    cause: str
    why: str
    power_brake: list[str]


def read_gpus(snapshot: Any, limits: Mapping[str, float]) -> list[Gpu]:
    """The GPUs of a snapshot; LIMITS are thresholds of the alerts."""
    return [_read_gpu(gpu, limits) for gpu in model.gpus(snapshot)]


def _read_gpu(gpu: Answer, limits: Mapping[str, float]) -> Gpu:
    bits = compare.read_typed(gpu, "clocks_event_reasons", int)
    reasons = [name for bit, name in REASONS if bits.known and bits.value & bit]
    throttled = any(name in THERMAL for name in reasons) if bits.known else None
    temperature = compare.read_typed(gpu, "temperature_gpu_c", compare.NUMBER)
    return {
        "gpu": model.entity(gpu),
        "uuid": model.uuid(gpu),
        "throttled": throttled,
        "reasons": reasons,
        "temperature_c": temperature.value if temperature.known else None,
        "hot": True if throttled else _is_hot(gpu, temperature, limits),
    }


def _is_hot(gpu: Answer, temperature: Any, limits: Mapping[str, float]) -> bool | None:
    """Tell if a GPU is about as hot as one that throttles, by its own margin or limit before the default."""
    margin = compare.read_typed(gpu, "temperature_margin_c", compare.NUMBER)
    if margin.known:
        return margin.value < limits["temperature_margin_min"]
    if not temperature.known:
        return None
    told = compare.read_typed(gpu, "temperature_limits_c", dict).value
    own = [number for number in (compare.part(told, name) for name in ("gpu_max", "slowdown")) if number is not None]
    return temperature.value >= min(own or [limits["temperature_limit_default"]])


def parse_sensors(result: Answer) -> Sensors:
    """Parse the output of `ipmitool -c sdr list full`: a line NAME,VALUE,UNIT,STATE for each sensor."""
    found: Sensors = {"inlet_c": None, "fans": None, "failed_fans": [], "problem": ""}
    if result.get("rc") != 0:
        found["problem"] = " ".join(
            str(result.get("stderr") or result.get("msg") or "ipmitool did not answer (%s)" % result.get("rc")).split()
        )[:200]
        return found
    inlets, fans = [], 0
    for row in csv.reader(str(result.get("stdout") or "").splitlines()):
        if len(row) < 4 or row[3] == NO_READING:
            continue
        value = _parse_number(row[1])
        if row[2] == "degrees C" and INLETS.search(row[0]) and value is not None:
            inlets.append(value)
        if row[2] in ("RPM", "percent") and FAN.search(row[0]):
            fans += 1
            if row[3] in FAILED or value == 0:
                found["failed_fans"].append(row[0])
    found["inlet_c"], found["fans"] = max(inlets, default=None), fans or None
    missing = [name for name, value in (("inlet temperature", inlets), ("fan", fans)) if not value]
    found["problem"] = "the BMC tells no %s" % " and no ".join(missing) if missing else ""
    return found


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def find_cause(found: Sequence[Gpu], air: Sensors, limits: Mapping[str, float]) -> Cause:
    """The likely cause of the heat. What was not read leaves it unknown, unless what was read is enough."""
    name, why = _find_cause(found, air, limits)
    return {"cause": name, "why": why, "power_brake": [gpu["gpu"] for gpu in found if POWER_BRAKE in gpu["reasons"]]}


def _find_cause(found: Sequence[Gpu], air: Sensors, limits: Mapping[str, float]) -> tuple[str, str]:
    throttled = [gpu for gpu in found if gpu["throttled"]]
    others = [gpu for gpu in found if not gpu["throttled"]]
    if not throttled:
        return NONE, "no GPU throttles for heat"
    if air["inlet_c"] is not None and air["inlet_c"] > limits["inlet_temperature_max"]:
        return INLET, "the air that enters the node has %g C, expected at most %g C%s" % (
            air["inlet_c"],
            limits["inlet_temperature_max"],
            "; failed fans: " + _join_names(air["failed_fans"]) if air["failed_fans"] else "",
        )
    if air["failed_fans"]:
        return FANS, "the BMC tells that fans failed or stand still: %s" % _join_names(air["failed_fans"])
    hot = [gpu for gpu in others if gpu["hot"]]
    neighbours = "%d of %d GPUs throttle, and %d of the others are hot" % (len(throttled), len(found), len(hot))
    if air["inlet_c"] is None or air["fans"] is None:
        return UNKNOWN, "%s; %s" % (air["problem"] or "inlet and fans were not read", neighbours)
    if any(gpu["hot"] is None for gpu in others):
        return UNKNOWN, "how hot the other GPUs are was not told; %s" % neighbours
    if len(found) == 1:
        return UNKNOWN, "the node has one GPU, so that its own cooling and the node's cannot be told apart"
    if 2 * len(hot) >= len(others):
        return NODE, "inlet and fans are in order, and %s: the airflow of the node" % neighbours
    return GPU, "inlet and fans are in order, and %s: heat sink, paste or fan of the GPU" % neighbours


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (" and %d more" % (len(names) - SHOWN) if len(names) > SHOWN else "")
