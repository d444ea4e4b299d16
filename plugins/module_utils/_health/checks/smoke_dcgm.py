# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own diagnostic, where level t3 of gpu_smoke ran it (row 49)."""

from __future__ import annotations

from .. import model
from ..model import NODE
from ..nodefacts import Checks
from . import smoke_document


def dcgm(ctx):
    """Row 49: NVIDIA's own diagnostic, where level t3 ran it."""
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
            % (", ".join(found["fail"]), "; ".join(texts(tests)), model.item(report, "command")),
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
        return checks.notice(found["warn"], [], "NVIDIA's diagnostic warns: %s" % ("; ".join(texts(tests)),))
    if not found["pass"]:
        return checks.none("NVIDIA's diagnostic skipped all of its tests.", found["skip"])
    return checks.good("%d passed, %d skipped" % (len(found["pass"]), len(found["skip"])))


def texts(tests):
    """The warnings of the tests, each once."""
    result = []
    for test in tests:
        for entry in model.item(test, "results") or []:
            for text in model.item(entry, "warnings") or []:
                if text not in result:
                    result.append(str(text))
    return result[:8]
