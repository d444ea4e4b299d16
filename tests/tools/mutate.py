# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply mistakes to copies of the checkout, one at a time, and check that `make test` catches each.

python3 -m tests.tools.mutate [--jobs N] [--list] [NAME|SUBJECT ...]

The mutants are the entries of tests/tools/mutants/*.toml (CONTRIBUTING.md, "Mutants"). Their tests have to pass in an
unchanged copy first. The exit status is 0 only when a test fails for every mutant. The output of each run is kept in
.lab/logs/mutants/.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile

import tomllib

from tests.tools import common

CATALOGUE = common.ROOT / "tests" / "tools" / "mutants"
LOGS = common.ROOT / ".lab" / "logs" / "mutants"
LIMIT_S = 900
ALL_PASSED, SOME_FAILED = 0, 1  # exit statuses of pytest; any other means that tests could not be collected or run
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-rf", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow")


class MutantError(Exception):
    """An entry of the catalogue is invalid or no longer fits the code."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One mistake, and the tests that have to catch it."""

    name: str
    subject: str
    file: str
    before: str
    after: str
    harm: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """Return the text of the file with the mistake in it.

        Raises: MutantError unless the text to replace stands there exactly once.
        """
        if text.count(self.before) != 1:
            raise MutantError(f"{self.file} has the text to replace {text.count(self.before)} times; expected once")
        return text.replace(self.before, self.after)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result for one mutant: the test that caught it, or the reason why none did."""

    mutant: Mutant
    caught_by: str = ""
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.mutant.name}: " + (f"caught by {self.caught_by}" if self.caught_by else self.problem)


def read_catalogue(wanted: list[str]) -> list[Mutant]:
    """Return the mutants with these names or subjects, or all if none is given.

    Raises: MutantError for an unknown name, a name that stands twice, or an invalid entry.
    """
    found = []
    for path in sorted(CATALOGUE.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            try:
                found.append(Mutant(subject=path.stem, **dict(entry, tests=tuple(entry["tests"]))))
            except (KeyError, TypeError) as error:
                raise MutantError(f"{path.name}: invalid entry {entry.get('name')!r}: {error}") from None
    names = [mutant.name for mutant in found]
    known = {*names, *(mutant.subject for mutant in found)}
    problems = [f"{name} stands twice" for name in sorted({name for name in names if names.count(name) > 1})]
    problems += [f"{name} is not known; --list names all" for name in wanted if name not in known]
    if problems:
        raise MutantError("; ".join(problems))
    return [mutant for mutant in found if not wanted or mutant.name in wanted or mutant.subject in wanted]


class Copy:
    """A copy of the checkout in which tests run, with one mutant at a time."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = common.copy_checkout(root)
        self.process: subprocess.Popen | None = None
        subprocess.run([str(root / "tests/tools/collections.sh")], stdout=subprocess.DEVNULL, check=True)

    def run_tests(self, tests: tuple[str, ...], log: str) -> tuple[int | None, str]:
        """Run tests up to the first failure.

        Returns: the exit status of pytest (None: it was killed after LIMIT_S seconds), and the name of the failed test
        or the last line.
        """
        # Compiled files are told apart by size and time alone, which a mutant may leave as they were.
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", NO_COLOR="1")
        with open(LOGS / (log + ".log"), "w+", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [*PYTEST, *tests],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = self.process.wait(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self.stop()
            output.seek(0)
            text = output.read()
        failed = re.search(r"^FAILED (\S.*?)(?: - .*)?$", text, re.MULTILINE)
        return status, failed.group(1) if failed else (text.strip().splitlines() or ["no output"])[-1]

    def try_mutant(self, mutant: Mutant) -> Verdict:
        """Apply the mutant, run its tests, and take it out again."""
        path = self.root / mutant.file
        original = path.read_text(encoding="utf-8")
        try:
            path.write_text(mutant.apply(original), encoding="utf-8")
            status, told = self.run_tests(mutant.tests, mutant.name)
        except MutantError as error:
            return Verdict(mutant, problem=f"ERROR: {error}")
        finally:
            path.write_text(original, encoding="utf-8")
        if status == SOME_FAILED:
            return Verdict(mutant, caught_by=told)
        if status == ALL_PASSED:
            return Verdict(mutant, problem=f"SURVIVED ({mutant.file}): {mutant.harm}")
        return Verdict(mutant, problem=f"ERROR: its tests did not run to their end: {told}")

    def stop(self) -> None:
        """Kill the tests with all their children."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()


def judge_all(mutants: list[Mutant], copies: list[Copy]) -> list[Verdict]:
    """Try all mutants, side by side in the copies, and print each verdict at once."""
    idle: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        idle.put(copy)

    def judge(tests: tuple[str, ...], number: int) -> list[Verdict]:
        """Judge the mutants that have these tests."""
        copy = idle.get()
        try:
            same = [mutant for mutant in mutants if mutant.tests == tests]
            status, told = copy.run_tests(tests, f"unchanged-{number}")
            if status != ALL_PASSED:
                problem = f"ERROR: its tests do not pass without it: {told}"
                verdicts = [Verdict(mutant, problem=problem) for mutant in same]
            else:
                verdicts = [copy.try_mutant(mutant) for mutant in same]
            print("\n".join(map(str, verdicts)), flush=True)
            return verdicts
        finally:
            idle.put(copy)

    groups = list(dict.fromkeys(mutant.tests for mutant in mutants))
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(copies)) as pool:
        try:
            found = list(pool.map(judge, groups, range(len(groups))))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.stop()
            raise
    return [verdict for verdicts in found for verdict in verdicts]


def main() -> int:
    """Try the mutants that the command line names and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants side by side")
    parser.add_argument("--list", action="store_true", help="name the mutants and end")
    parser.add_argument("wanted", nargs="*", metavar="NAME|SUBJECT")
    options = parser.parse_args()
    try:
        mutants = read_catalogue(options.wanted)
    except MutantError as error:
        parser.error(str(error))
    if options.list:
        print("\n".join(f"{mutant.subject:10} {mutant.name}: {mutant.harm}" for mutant in mutants))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    LOGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpufleet-mutants-") as scratch:
        verdicts = judge_all(mutants, [Copy(pathlib.Path(scratch) / str(number)) for number in range(options.jobs)])
    print("\n".join(["", *(str(verdict) for verdict in verdicts if not verdict.caught_by)]))
    caught = sum(1 for verdict in verdicts if verdict.caught_by)
    print(f"{caught} of {len(verdicts)} mutants caught")
    return 0 if caught == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
