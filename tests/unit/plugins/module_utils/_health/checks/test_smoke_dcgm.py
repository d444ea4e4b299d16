# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on what NVIDIA's own diagnostic reports."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.smoke_documents import (
    document,
    judge,
    one,
)


def report(*words, **changes):
    return dict(
        {
            "status": "ok",
            "command": "dcgmi diag",
            "message": "",
            "tests": [
                {
                    "category": "c",
                    "name": "test-%s" % word,
                    "status": word,
                    "results": [{"entities": ["GPU 0"], "status": word, "warnings": ["why " + word]}],
                }
                for word in words
            ],
        },
        **changes,
    )


@pytest.mark.parametrize(
    "dcgm, status",
    [
        (report("pass"), "pass"),
        (report("pass", "skip"), "pass"),
        (report("pass", "warn"), "pass"),
        (report("pass", "fail"), "fail"),
        (report("fail", "unknown"), "fail"),
        (report("pass", "unknown"), "unknown"),
        (report("pass", "not_run"), "unknown"),
        (report("skip"), "not_applicable"),
        (report(), "unknown"),
        (report(status="timeout"), "unknown"),
        (report("pass", status="unreadable"), "unknown"),
        (report(status="not_run"), "unknown"),
        (report(status="missing"), "not_applicable"),
        (None, "unknown"),
        ("x", "unknown"),
        (report(tests="x"), "unknown"),
        (report(tests=[None]), "unknown"),
    ],
)
def test_nvidias_diagnostic(dcgm, status):
    check = one(judge(document(level="t3", dcgm=dcgm)), "smoke.dcgm")
    assert check["status"] == status
    if status == "fail":
        assert check["action"] == "field_diag" and "why fail" in check["message"]


def test_a_missing_diagnostic_is_unknown_where_it_is_required_and_a_warning_is_a_notice():
    assert (
        one(judge(document(level="t3", dcgm=report(status="missing")), smoke_required=1), "smoke.dcgm")["status"]
        == "unknown"
    )
    assert one(judge(document(level="t3", dcgm=report("pass", "warn"))), "smoke.dcgm")["notice"] is True
