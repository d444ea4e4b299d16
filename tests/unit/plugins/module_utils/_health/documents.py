# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel logs and documents of gpu_smoke as judges get them."""

from __future__ import annotations

import copy
import json
import pathlib

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import policy, registry, verdict
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import smoke, smoke_speed
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import kernel_lines
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

DATA = pathlib.Path(policy.__file__).resolve().parents[2] / "plugin_utils" / "_data"
POLICY = json.loads((DATA / "health_policy.json").read_text(encoding="utf-8"))
TABLES = dict(
    (name, json.loads((DATA / (name + ".json")).read_text(encoding="utf-8"))) for name in ("boards", "xid", "sxid")
)
# Addresses of the two GPUs of a healthy reading, and one that NVML does not show.
GPU0, GPU1, STRANGER = "0000:1a:00", "0000:1b:00", "0000:99:00"


def xid(code, gpu=GPU0, text="pid=7, name=python3, text"):
    return "NVRM: Xid (PCI:%s): %s, %s" % (gpu, code, text)


def log(*lines, **change):
    """The kernel log with LINES, a second apart, or (second, line); CHANGE changes the document."""
    boot_id = change.pop("boot_id", "x")
    document = readings.kernel_log(boot_id)
    scanner = kernel_lines.Scanner()
    scanner.driver = change.pop("driver", None)
    for number, line in enumerate(lines):
        second, text = line if isinstance(line, tuple) else (number, line)
        for event in scanner.feed(text, int(second * 1e6)):
            document["events"].append(dict(event, seq=1001 + number, monotonic_us=int(second * 1e6)))
    document["gpus"] = scanner.uuids
    document["counted"]["events"] = len(document["events"])
    document.update(change)
    document["counted"]["suppressed"] = len(document["suppressed"])
    return document


def ask(ident, kernel_log, phase="adhoc", old=None, tables=None, change=None, **sections):
    """The checks of IDENT about a reading with KERNEL_LOG; OLD is the kernel log of the baseline; CHANGE changes the
    policy.
    """
    document = readings.reading(kernel_log=copy.deepcopy(kernel_log), **copy.deepcopy(sections))
    baseline = None if old is None else readings.baseline(kernel_log=old)
    rules = policy.complete(dict(POLICY, **(change or {})), registry.IDENTS)
    ctx = verdict.context(
        document, baseline, rules, TABLES if tables is None else tables, readings.DRIVER, phase, {}, None
    )
    (row,) = [row for row in registry.TABLE if row.ident == ident]
    before = copy.deepcopy((document, baseline))
    answer = row.judge(ctx)
    assert (document, baseline) == before, "a judge changed what it was given"
    checks = [answer] if isinstance(answer, dict) else list(answer)
    assert checks and set(check["id"] for check in checks) == {ident}
    for check in checks:
        if check["status"] in ("fail", "unknown") or check["notice"]:
            assert check["message"]
    return checks


def said(checks):
    """What is not simply right, as {(entity, code): word}; notice for a notice."""
    result = {}
    for check in checks:
        word = "notice" if check["notice"] else check["status"]
        if word != "pass":
            observed = check["observed"] if isinstance(check["observed"], dict) else {}
            result[check["entity"], observed.get("xid", observed.get("sxid", observed.get("event")))] = word + (
                ":" + check["action"] if word != "notice" else ""
            )
    return result


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


RATE_IDENTS = [ident for ident, dummy, dummy_title in smoke_speed.RATES]
NOISY = (0.90, 0.95, 1.0, 1.05, 1.10)
