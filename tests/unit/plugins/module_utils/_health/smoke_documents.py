# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of gpu_smoke for the tests, and what the family says about them."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import smoke, smoke_speed
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

DATA = pathlib.Path(smoke.__file__).resolve().parents[3] / "plugin_utils" / "_data" / "health_policy.json"
POLICY = json.loads(DATA.read_text())
NAME = "NVIDIA H100 80GB HBM3"
RATES = {"device_copy": 2900.0, "host_to_device": 55.0, "device_to_host": 53.0, "matrix_product": 6200.0}
UNITS = {"matrix_product": "GFLOP/s"}
WOBBLE = (0.999, 1.0, 1.001, 1.0005, 0.9995)


def rate(name, factor=1.0, wobble=WOBBLE, **changes):
    test = {
        "unit": UNITS.get(name, "GB/s"),
        "samples": [RATES[name] * factor * one for one in wobble],
        "ok": True,
        "error": None,
        "detail": "",
        "parameters": {"bytes": 1},
        "temperature_c": [40] * 5,
        "clock_sm_mhz": [1980] * 5,
    }
    return dict(test, **changes)


def right(**changes):
    return dict(
        {"unit": "errors", "samples": [0] * 5, "ok": True, "error": None, "detail": "", "parameters": {}}, **changes
    )


def entry(index, factor=1.0):
    tests = dict((name, rate(name, factor)) for name in RATES)
    tests.update(memory_pattern=right(), vector_add=right())
    return {
        "uuid": readings.uuid(index),
        "name": NAME,
        "index": index,
        "state": "tested",
        "reason": "",
        "error": None,
        "tests": tests,
    }


def document(count=2, factor=1.0, **changes):
    return dict(
        {
            "schema": "gpufleet.smoke/1",
            "level": "t1",
            "simulated": True,
            "status": "ok",
            "message": "",
            "asked": [],
            "gpus": [entry(index, factor) for index in range(count)],
            "dcgm": None,
        },
        **changes,
    )


def judge(now, before=None, **policy):
    """{id: {entity: check}} of the family; BEFORE is the baseline's document."""
    baseline = None if before is None else dict(readings.baseline(), smoke=before)
    health = _health.evaluate(
        readings.reading(),
        baseline=baseline,
        policy=dict(POLICY, **policy),
        node=readings.NODE,
        now=readings.NOW,
        smoke=now,
        table=smoke.ROWS,
    )
    checks = {}
    for check in health["checks"]:
        checks.setdefault(check["id"], {})[check["entity"]] = check
    return checks


def statuses(checks, ident):
    return [check["status"] for dummy, check in sorted(checks[ident].items())]


def one(checks, ident, index=0):
    return checks[ident].get("node") or checks[ident][readings.uuid(index)]


RATE_IDENTS = [ident for ident, dummy, dummy_title, dummy_row in smoke_speed.RATES]
NOISY = (0.90, 0.95, 1.0, 1.05, 1.10)
