# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The likely cause of heat."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import cooling

THRESHOLDS = {name: row["value"] for name, row in catalog.thresholds().items()}
INLET, DEFAULT, MARGIN = (
    THRESHOLDS[name] for name in ("inlet_temperature_max", "temperature_limit_default", "temperature_margin_min")
)
UNREAD = {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}


def bmc(inlet=22, fans=("5000,RPM,ok", "4800,RPM,ok"), name="Inlet Temp"):
    lines = ["%s,%s,degrees C,ok" % (name, inlet)] if inlet is not None else []
    return {"rc": 0, "stdout": "\n".join(lines + ["FAN%d,%s" % (number, fan) for number, fan in enumerate(fans)])}


def gpu(reasons=0, **more):
    told = dict({"uuid": "GPU-%d" % reasons, "clocks_event_reasons": reasons, "temperature_gpu_c": 50}, **more)
    return {
        key: what if isinstance(what, dict) and "rc" in what else {"value": what, "rc": 0} for key, what in told.items()
    }


HOT, COLD, WARM = gpu(0x40), gpu(), gpu(temperature_gpu_c=DEFAULT)
UNTOLD = gpu(temperature_gpu_c=UNREAD)


@pytest.mark.parametrize(
    "gpus, told, cause",
    [
        ([COLD, COLD], bmc(), "none"),
        ([HOT, COLD], bmc(INLET + 1), "inlet"),
        ([HOT, COLD], bmc(INLET), "gpu"),
        ([HOT, COLD], bmc(INLET + 1, ("0,RPM,cr",)), "inlet"),
        ([HOT, COLD], bmc(fans=("5000,RPM,ok", "300,RPM,cr")), "fans"),
        ([HOT, COLD], bmc(fans=("5000,RPM,ok", "0,RPM,ok")), "fans"),
        ([HOT, COLD], bmc(None, ("0,percent,lcr",)), "fans"),
        ([HOT, COLD, COLD], bmc(), "gpu"),
        ([HOT, COLD, COLD, WARM], bmc(), "gpu"),
        ([HOT, COLD, WARM], bmc(), "node"),
        ([HOT, HOT], bmc(), "node"),
        ([HOT], bmc(), "unknown"),
        ([HOT, UNTOLD], bmc(), "unknown"),
        ([HOT, UNTOLD], bmc(INLET + 1), "inlet"),
        ([HOT, COLD], bmc(None), "unknown"),
        ([HOT, COLD], bmc(fans=()), "unknown"),
        ([HOT, COLD], bmc(fans=(",,ns",)), "unknown"),
        ([HOT, COLD], {}, "unknown"),
        ([HOT, COLD], {"rc": 124, "stdout": bmc(INLET + 1)["stdout"]}, "unknown"),
        ([HOT, COLD], {"rc": 127, "stderr": "timeout: failed to run command 'ipmitool'"}, "unknown"),
        ([HOT, COLD], {"rc": 0, "stdout": "Unable to send command"}, "unknown"),
    ],
)
def test_the_cause(gpus, told, cause):
    found = cooling.find_cause(cooling.read_gpus({"gpus": gpus}, THRESHOLDS), cooling.parse_sensors(told), THRESHOLDS)
    assert found["cause"] == cause and found["why"]


@pytest.mark.parametrize(
    "fields, hot",
    [
        ({"temperature_margin_c": MARGIN}, False),
        ({"temperature_margin_c": MARGIN - 1}, True),
        ({"temperature_gpu_c": DEFAULT - 1}, False),
        ({"temperature_gpu_c": DEFAULT}, True),
        ({"temperature_gpu_c": DEFAULT, "temperature_limits_c": {"gpu_max": DEFAULT + 5, "slowdown": 99}}, False),
        ({"temperature_gpu_c": DEFAULT + 5, "temperature_limits_c": {"gpu_max": DEFAULT + 5, "slowdown": 99}}, True),
        ({"temperature_gpu_c": DEFAULT + 5, "temperature_margin_c": 30}, False),
        ({"temperature_gpu_c": UNREAD}, None),
        ({"reasons": 0x20}, True),
    ],
)
def test_a_gpu_is_hot_by_its_margin_then_its_limit_then_the_default(fields, hot):
    assert cooling.read_gpus({"gpus": [gpu(**fields)]}, THRESHOLDS)[0]["hot"] is hot


def test_what_the_bmc_tells():
    text = "\n".join(
        (
            "CPU1 Temp,90,degrees C,ok",
            "Ambient Temp,24,degrees C,ok",
            "GPU Inlet,26.5,degrees C,nc",
            "Inlet 2 Temp,,,ns",
            "FAN1,5000,RPM,ok",
            "FAN2,,,ns",
            "FAN3,700,RPM,lnr",
            "Fan Redundancy,0x01,discrete,ok",
            "12V,12.4,Volts,ok",
        )
    )
    assert cooling.parse_sensors({"rc": 0, "stdout": text}) == {
        "inlet_c": 26.5,
        "fans": 2,
        "failed_fans": ["FAN3"],
        "problem": "",
    }


def test_a_power_brake_is_told_beside_the_cause():
    gpus = cooling.read_gpus({"gpus": [gpu(0xC8), COLD, gpu(0x88)]}, THRESHOLDS)
    found = cooling.find_cause(gpus, cooling.parse_sensors(bmc()), THRESHOLDS)
    assert found["power_brake"] == ["GPU-200", "GPU-136"] and found["cause"] == "gpu"
    assert gpus[2]["throttled"] is False and gpus[0]["reasons"] == ["hw_slowdown", "hw_thermal", "hw_power_brake"]
    assert cooling.read_gpus({"gpus": [dict(COLD, clocks_event_reasons=UNREAD)]}, THRESHOLDS)[0]["throttled"] is None
