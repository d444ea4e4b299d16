# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of some tests in a copy of the checkout, with or without a mistake in it, and what its end means."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import time
import typing as t

from tests.tools.mutants.catalogue import Mutant, applied
from tests.tools.outcome import pytest_counts

CAUGHT, SURVIVED, ERROR = "caught", "survived", "error"
# pytest's own: all passed, some failed. Every other one says that tests could not be collected or run, or that there
# were none.
ALL_PASSED, SOME_FAILED = 0, 1
FAILED_TEST = re.compile(r"^FAILED (\S.*?)(?: - .*)?$", re.MULTILINE)
LIMIT_S = 900.0


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a run of tests ended. No status: it took too long and was killed."""

    status: t.Optional[int]
    output: str
    seconds: float

    @property
    def last_line(self) -> str:
        lines = [line for line in self.output.splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it said nothing"

    @property
    def passed(self) -> int:
        return (pytest_counts(self.output) or {}).get("passed", 0)

    @property
    def first_failed(self) -> str:
        found = FAILED_TEST.search(self.output)
        return found.group(1) if found else ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    result: str
    by: str  # the test that failed, or why there is none
    seconds: float


def usable(ended: Ended) -> str:
    """Why tests say nothing of any mutant: they have to pass without one. Empty when they do."""
    if ended.status is None:
        return "the tests took too long without it"
    if ended.status != ALL_PASSED:
        return "the tests do not pass without it: {0}".format(ended.first_failed or ended.last_line)
    return "" if ended.passed else "no test ran without it: {0}".format(ended.last_line)


def judge(mutant: Mutant, ended: Ended) -> Verdict:
    """Whether a test noticed the mistake. A run that broke in another way than by a failed test proves nothing."""
    result, by = ERROR, "the tests could not be run with it: {0}".format(ended.last_line)
    if ended.status is None:
        by = "the tests did not end with it, so none of them says what is wrong"
    elif ended.status == SOME_FAILED and ended.first_failed:
        result, by = CAUGHT, ended.first_failed
    elif ended.status == ALL_PASSED and ended.passed:
        result, by = SURVIVED, "none of the {0} tests that should notice it failed".format(ended.passed)
    return Verdict(mutant, result, by, ended.seconds)


def environment(python: pathlib.Path) -> t.Dict[str, str]:
    """What tests are run with: nothing that would steer pytest or Python from outside."""
    found = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON"))}
    found["PATH"] = "{0}{1}{2}".format(python.parent, os.pathsep, found.get("PATH", os.defpath))
    # Two versions of a file may have one size and one time, which is all that compiled ones are told apart by.
    return dict(found, PYTHONDONTWRITEBYTECODE="1", NO_COLOR="1")


class Copy:
    """A copy of the checkout that one mutant at a time is put into."""

    def __init__(self, root: pathlib.Path, limit_s: float = LIMIT_S) -> None:
        self.root = root
        self.limit_s = limit_s
        self.process: t.Optional[subprocess.Popen] = None
        link = root / "tests" / "tools" / "collections.sh"
        if link.exists():
            subprocess.run([str(link)], stdout=subprocess.DEVNULL, check=True, timeout=60)

    def run(self, python: pathlib.Path, tests: t.Sequence[str]) -> Ended:
        """The tests, up to the first that fails, in a session of their own."""
        command = [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-x",
            "-rf",
            "--tb=short",
            "--color=no",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow",  # what `make test` would notice
            *tests,
        ]
        started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=str(self.root),
            env=environment(python),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            output, dummy = self.process.communicate(timeout=self.limit_s)
            status: t.Optional[int] = self.process.returncode
        except subprocess.TimeoutExpired:
            self.stop()
            output, status = self.process.communicate()[0], None
        finally:
            self.stop()
        return Ended(status, output, time.monotonic() - started)

    def stop(self) -> None:
        """End what was started here, with all that it started."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def with_mutant(self, mutant: Mutant, python: pathlib.Path) -> Ended:
        """The mutant's tests with the mistake in place; it is taken out again."""
        path = self.root / mutant.file
        wrong, right = applied(mutant, self.root), path.read_bytes()
        path.write_text(wrong, encoding="utf-8")
        try:
            return self.run(python, mutant.tests)
        finally:
            path.write_bytes(right)
