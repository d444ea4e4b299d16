# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a stage came to, from its exit status and its output, and how that is shown. Nothing here runs anything."""

from __future__ import annotations

import dataclasses
import re
import typing as t

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
MARKS = {PASSED: "ok  ", FAILED: "FAIL", NOT_RUN: "----"}

# pytest closes with "==== 3 passed, 1 skipped in 0.12s ====", with -q with the same words alone.
CLOSING = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in \d+(?:\.\d+)?s(?: \([0-9:, a-z]+\))?\s*=*$")
COUNT = re.compile(r"(\d+) ([a-z]+)")
# pytest's short summary: "FAILED tests/unit/test_it.py::test_it - AssertionError".
RED = re.compile(r"^(?:FAILED|ERROR) \S+::.*$")
MAX_RED = 20  # of one stage
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass
class Outcome:
    """One stage, ended."""

    name: str
    verdict: str
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reason: str = ""
    # user and system time of the stage's processes; the lab's machines are nobody's children and not among them
    cpu_s: float = 0.0
    started_s: float = 0.0  # since the run began
    red: t.Tuple[str, ...] = ()  # the lines of pytest that name a failed test

    @property
    def mark(self) -> str:
        """The verdict in four letters."""
        return MARKS[self.verdict]

    @property
    def note(self) -> str:
        """The numbers or the reason, for one line of progress."""
        if self.reason:
            return self.reason
        counts = "{0} passed, {1} failed".format(self.passed, self.failed)
        return counts + (", {0} skipped".format(self.skipped) if self.skipped else "")


def pytest_counts(output: str) -> t.Optional[t.Dict[str, int]]:
    """The sum of what every pytest run in `output` closed with; None when none closed."""
    totals: t.Dict[str, int] = {}
    seen = False
    for line in output.splitlines():
        closing = CLOSING.match(COLOUR.sub("", line).strip())
        if closing is None:
            continue
        seen = True
        for number, word in COUNT.findall(closing.group(1)):
            totals[word] = totals.get(word, 0) + int(number)
    return totals if seen else None


def red_lines(output: str) -> t.Tuple[str, ...]:
    """The lines in which pytest named the tests that failed, MAX_RED of them at most, and how many more there are."""
    lines = [COLOUR.sub("", line).rstrip() for line in output.splitlines()]
    red = [line for line in lines if RED.match(line)]
    more = len(red) - MAX_RED
    return tuple(red[:MAX_RED]) + (("and {0} more".format(more),) if more > 0 else ())


def judge(name: str, returncode: int, output: str, seconds: float, overran: bool = False) -> Outcome:
    """Turn an exit status and an output into an outcome.

    The worse of the two counts. A stage that `overran` its limit has failed.
    """
    counts = pytest_counts(output) or {}
    passed = counts.get("passed", 0) + counts.get("xfailed", 0)
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0) + counts.get("xpassed", 0)
    skipped = counts.get("skipped", 0)
    if overran:
        reason = "ended after {0:.0f} s: it had not come to its end within its limit".format(seconds)
        return Outcome(name, FAILED, seconds, passed=passed, failed=max(failed, 1), skipped=skipped, reason=reason)
    if returncode == 0 and failed == 0:
        # A stage without pytest in it is one check, and so is the rest of one that has it.
        return Outcome(name, PASSED, seconds, passed=passed or 1, skipped=skipped)
    reason = ""
    if failed == 0:
        failed = 1
        reason = "ended by signal {0}".format(-returncode) if returncode < 0 else "exit status {0}".format(returncode)
    elif returncode == 0:
        reason = "{0} tests failed and the exit status was 0".format(failed)
    return Outcome(name, FAILED, seconds, passed=passed, failed=failed, skipped=skipped, reason=reason)


def table(outcomes: t.Sequence[Outcome], wall_s: float) -> str:
    """Every stage with its times, the whole with its own."""
    width = max([len(outcome.name) for outcome in outcomes] + [len("stage")])
    row = "{0:{1}}  {2:>7}  {3:>7}  {4}"
    rows = [row.format("stage", width, "wall s", "CPU s", "result")]
    rows.extend(
        row.format(one.name, width, round(one.seconds), round(one.cpu_s), one.mark + " " + one.note) for one in outcomes
    )
    rows.append(
        row.format(
            "all",
            width,
            round(wall_s),
            round(sum(one.cpu_s for one in outcomes)),
            "wall time, {0} min {1:02d} s".format(int(wall_s) // 60, int(wall_s) % 60),
        )
    )
    return "\n".join(rows)


def failures(outcomes: t.Iterable[Outcome]) -> t.List[str]:
    """What failed, stage by stage, for the very end of a long output, whose middle may be cut out by who shows it."""
    lines = []
    for one in outcomes:
        if one.verdict == FAILED:
            lines.append("FAILED {0}: {1}".format(one.name, one.note))
            lines.extend("    " + line for line in one.red)
    return lines


def total_line(outcomes: t.Iterable[Outcome]) -> str:
    """The plain line at the very end."""
    passed = failed = skipped = not_run = 0
    for one in outcomes:
        passed += one.passed
        failed += one.failed
        skipped += one.skipped
        not_run += one.verdict == NOT_RUN
    line = "{0} passed, {1} failed".format(passed, failed)
    if skipped:
        line += ", {0} skipped".format(skipped)
    if not_run:
        line += ", {0} stages not run".format(not_run)
    return line
