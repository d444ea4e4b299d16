# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the time of a test run went: pure functions over what the stages said."""

from __future__ import annotations

import pytest

from tests.tools import times
from tests.tools.outcome import FAILED, PASSED, Outcome

LOG = """
======= slowest 60 durations =======
67.22s call     tests/unit/test_a.py::test_one[a b]
0.60s setup    tests/unit/test_a.py::test_two

(6 durations < 0.5s hidden.  Use -vv to show these durations.)
9 passed in 134.63s (0:02:14)
"""


@pytest.mark.parametrize(
    ("seconds", "after", "path", "total"),
    [
        ({}, {}, [], 0.0),
        ({"a": 2.0, "b": 3.0}, {}, ["b"], 3.0),
        ({"a": 2.0, "b": 3.0, "c": 1.0}, {"c": ("a",)}, ["b"], 3.0),
        ({"a": 2.0, "b": 3.0, "c": 2.0}, {"c": ("a",)}, ["a", "c"], 4.0),
        ({"a": 2.0, "b": 3.0, "c": 2.0}, {"c": ("a", "b")}, ["b", "c"], 5.0),
        ({"c": 2.0}, {"c": ("not part of this run",)}, ["c"], 2.0),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, {"b": ("a",), "c": ("b",)}, ["a", "b", "c"], 3.0),
    ],
)
def test_the_longest_path(seconds, after, path, total):
    assert times.longest_path(seconds, after) == (path, total)


def test_the_slowest_tests_are_read_from_all_logs():
    found = times.slowest({"one": LOG, "other": "1.00s teardown tests/x.py::y\n"})
    assert [(row["seconds"], row["phase"], row["stage"], row["test"]) for row in found] == [
        (67.22, "call", "one", "tests/unit/test_a.py::test_one[a b]"),
        (1.0, "teardown", "other", "tests/x.py::y"),
        (0.6, "setup", "one", "tests/unit/test_a.py::test_two"),
    ]


@pytest.mark.parametrize(
    ("stat", "found"),
    [
        ("cpu  100 20 300 4000 50 6 7 80 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n", {"busy_s": 4.33, "stolen_s": 0.8}),
        ("cpu  0 0 0 4000 50 0 0 0 0 0\n", {"busy_s": 0.0, "stolen_s": 0.0}),
    ],
)
def test_what_the_machine_did(stat, found):
    assert times.machine(stat, 100) == found


def test_the_end_says_how_much_of_the_machine_was_at_work():
    kept = dict(times.document([], {}, 100.0, {}, {"busy_s": 150.04, "stolen_s": 10.0}), cores=2)
    assert kept["machine"] == {"busy_s": 150.0, "stolen_s": 10.0}
    assert "2 processors: 75% of the time at work, 5% taken away" in times.summary(None, kept)


IDLE = {"busy_s": 0.0, "stolen_s": 0.0}


def made(**walls):
    outcomes = [Outcome(name, PASSED, wall, cpu_s=wall / 2) for name, wall in walls.items()]
    return times.document(outcomes, {}, sum(walls.values()), {}, IDLE)


def test_a_stage_that_failed_is_no_measure():
    found = times.document([Outcome("a", FAILED, 5.0), Outcome("b", PASSED, 3.0, cpu_s=1.0)], {}, 6.0, {}, IDLE)
    assert set(found["stages"]) == {"b"} and found["sum_s"] == 8.0 and found["cpu_s"] == 1.0


@pytest.mark.parametrize(
    ("before", "now", "grew"),
    [
        (None, made(a=100.0), None),
        (made(a=100.0, b=100.0), made(a=130.0, b=190.0), ("b", 100.0, 190.0)),
        (made(a=100.0), made(a=100.0 + times.GREW_S), None),
        (made(a=100.0), made(a=101.0 + times.GREW_S), ("a", 100.0, 101.0 + times.GREW_S)),
        (made(a=100.0), made(a=50.0), None),
        (made(a=100.0), made(b=500.0), None),
    ],
)
def test_what_grew_most(before, now, grew):
    assert times.grew_most(before, now) == grew
    assert ("grew most since the kept times" in times.summary(before, now)) == (grew is not None)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": "other"}'])
def test_times_that_cannot_be_read_are_none(tmp_path, text):
    (tmp_path / "times.json").write_text(text)
    assert times.load([tmp_path / "times.json", tmp_path / "not there"]) is None
    times.keep(tmp_path / "second" / "times.json", made(a=1.0), None)
    assert times.load([tmp_path / "times.json", tmp_path / "second" / "times.json"]) == made(a=1.0)
