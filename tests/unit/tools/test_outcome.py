# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a stage came to: the worse of its exit status and what its tests said."""

from __future__ import annotations

import pytest

from tests.tools.outcome import (
    FAILED,
    MAX_RED,
    NOT_RUN,
    PASSED,
    Outcome,
    failures,
    judge,
    pytest_counts,
    red_lines,
    table,
    total_line,
)

QUIET = "....\n4 passed in 0.03s\n"
LOUD = "=================== 2 failed, 5 passed, 1 skipped, 3 warnings in 12.40s ===================\n"
LONG = "======= 1 passed in 75.01s (0:01:15) =======\n"
COLOURED = "\x1b[32m\x1b[1m3 passed\x1b[0m\x1b[32m in 0.10s\x1b[0m\n"


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        (QUIET, {"passed": 4}),
        (LOUD, {"failed": 2, "passed": 5, "skipped": 1, "warnings": 3}),
        (LONG, {"passed": 1}),
        (COLOURED, {"passed": 3}),
        (QUIET + LOUD, {"failed": 2, "passed": 9, "skipped": 1, "warnings": 3}),
        ("All checks passed!\n", None),
        ("it said '3 passed in 2s' somewhere\n", None),
        ("", None),
    ],
)
def test_counts_are_read_from_the_closing_line_alone(output, counts):
    assert pytest_counts(output) == counts


@pytest.mark.parametrize(
    ("returncode", "output", "verdict", "passed", "failed"),
    [
        (0, QUIET, PASSED, 4, 0),
        (0, "", PASSED, 1, 0),
        (1, "", FAILED, 0, 1),
        (1, LOUD, FAILED, 5, 2),
        (1, QUIET, FAILED, 4, 1),  # the tests passed and something after them did not
        (0, LOUD, FAILED, 5, 2),  # an exit status that does not tell
        (5, "no tests ran in 0.01s\n", FAILED, 0, 1),
        (-15, "", FAILED, 0, 1),
        (1, "1 error in 0.20s\n", FAILED, 0, 1),
        (0, "1 passed, 1 xpassed in 0.20s\n", FAILED, 1, 1),
    ],
)
def test_the_worse_of_exit_status_and_output_counts(returncode, output, verdict, passed, failed):
    outcome = judge("unit", returncode, output, 1.0)
    assert (outcome.verdict, outcome.passed, outcome.failed) == (verdict, passed, failed)


def test_a_failure_without_a_failed_test_says_why():
    assert judge("lint", 2, "", 1.0).reason == "exit status 2"
    assert judge("lint", -9, "", 1.0).reason == "ended by signal 9"


def test_total_is_one_plain_line():
    outcomes = [Outcome("a", PASSED, 1.0, passed=4), Outcome("b", FAILED, 1.0, passed=2, failed=3)]
    assert total_line(outcomes) == "6 passed, 3 failed"


def test_total_names_what_was_skipped_and_what_did_not_run():
    outcomes = [Outcome("a", PASSED, 1.0, passed=4, skipped=2), Outcome("b", NOT_RUN, 0.0, reason="no Python 3.8")]
    assert total_line(outcomes) == "4 passed, 0 failed, 2 skipped, 1 stages not run"


def test_table_has_a_row_for_every_stage_and_the_wall_time():
    outcomes = [
        Outcome("unit-main", PASSED, 61.4, passed=4, cpu_s=50.2),
        Outcome("lint", FAILED, 2.0, failed=1, reason="exit status 2", cpu_s=1.0),
    ]
    rows = table(outcomes, 125.0).splitlines()
    assert [row.split()[:3] for row in rows[1:]] == [
        ["unit-main", "61", "50"],
        ["lint", "2", "1"],
        ["all", "125", "51"],
    ]
    assert "2 min 05 s" in rows[-1]
    assert "exit status 2" in rows[2]


def test_the_tests_that_failed_are_named_and_not_too_many_of_them():
    red = ["FAILED tests/unit/test_it.py::test_it[a b] - assert 1 == 2", "ERROR tests/unit/test_it.py::test_that"]
    output = "\x1b[31mFAILED\x1b[0m%s\nFAILED without a name\n%s\n1 failed in 0.1s\n" % (red[0][6:], red[1])
    assert red_lines(output) == tuple(red)
    many = red_lines("FAILED a.py::b\n" * (MAX_RED + 3))
    assert len(many) == MAX_RED + 1 and "3" in many[-1]
    outcomes = [
        Outcome("a", PASSED, 1.0, passed=4),
        Outcome("b", FAILED, 1.0, failed=2, red=tuple(red)),
        Outcome("c", FAILED, 1.0, failed=1, reason="exit status 2"),
    ]
    told = failures(outcomes)
    assert [line.split()[:2] for line in told] == [
        ["FAILED", "b:"],
        ["FAILED", red[0].split()[1]],
        ["ERROR", red[1].split()[1]],
        ["FAILED", "c:"],
    ]
    assert "exit status 2" in told[-1]
