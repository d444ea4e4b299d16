# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel logs out of lines, and asking the judges of the kernel log about them."""

from __future__ import annotations

import copy
import json
import pathlib

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import policy, registry, verdict
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
