# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make mistakes in copies of the checkout, one at a time, and see that its tests notice each of them.

python3 -m tests.tools.mutants [--jobs N] [--list] [NAME|SUBJECT ...]

The tests that should notice a mistake are run without it first and have to pass. The exit status is 0 only when every
mistake was noticed by a test that failed. The output of each run is kept in .lab/logs/mutants/. The checkout itself is
never changed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import queue
import signal
import sys
import tempfile
import typing as t

from tests.tools import common
from tests.tools.mutants import catalogue, trial

LOGS = common.ROOT / ".lab" / "logs" / "mutants"


def python_of(environment: str) -> pathlib.Path:
    """The interpreter of an environment, made first if need be."""
    return common.venv(environment) / "bin" / "python"


@dataclasses.dataclass
class Place:
    """Where mutants, project and interpreters come from, and where output goes."""

    mutants: pathlib.Path = catalogue.LIST
    logs: pathlib.Path = LOGS
    copy: t.Callable[[pathlib.Path], t.Any] = common.copy_checkout
    interpreter: t.Callable[[str], pathlib.Path] = python_of


def say(text: str) -> None:
    """One line of progress, at once."""
    print(text, flush=True)


class Run:
    """The mutants of one call, on as many copies as there are jobs."""

    def __init__(self, mutants: t.Sequence[catalogue.Mutant], place: Place, copies: t.Sequence[trial.Copy]) -> None:
        self.mutants, self.place, self.copies = mutants, place, copies
        self.idle: "queue.SimpleQueue[trial.Copy]" = queue.SimpleQueue()
        for copy in copies:
            self.idle.put(copy)
        self.pythons = {name: place.interpreter(name) for name in {mutant.environment for mutant in mutants}}
        place.logs.mkdir(parents=True, exist_ok=True)

    def _on_a_copy(self, work: t.Callable[[trial.Copy], trial.Ended], log: str) -> trial.Ended:
        copy = self.idle.get()
        try:
            ended = work(copy)
        finally:
            self.idle.put(copy)
        (self.place.logs / (log + ".log")).write_text(ended.output, encoding="utf-8")
        return ended

    def _without(self, number: int, checks: t.Tuple[str, t.Tuple[str, ...]]) -> str:
        name, tests = checks
        ended = self._on_a_copy(lambda copy: copy.run(self.pythons[name], tests), "without-{0:02d}".format(number))
        why = trial.usable(ended)
        say(
            "without a mutant: {0}: {1}, {2:.0f} s".format(
                " ".join(tests), why or "{0} passed".format(ended.passed), ended.seconds
            )
        )
        return why

    def _with(self, mutant: catalogue.Mutant, useless: str) -> trial.Verdict:
        if useless:
            verdict = trial.Verdict(mutant, trial.ERROR, useless, 0.0)
        else:
            try:
                ended = self._on_a_copy(
                    lambda copy: copy.with_mutant(mutant, self.pythons[mutant.environment]), mutant.name
                )
                verdict = trial.judge(mutant, ended)
            except catalogue.MutantError as exc:
                verdict = trial.Verdict(mutant, trial.ERROR, str(exc), 0.0)
        words = "caught by {0}" if verdict.result == trial.CAUGHT else verdict.result.upper() + ": {0}"
        say("{0}: {1}, {2:.0f} s".format(mutant.name, words.format(verdict.by), verdict.seconds))
        return verdict

    def verdicts(self) -> t.List[trial.Verdict]:
        """One for each mutant, in their order."""
        checks = list(dict.fromkeys(mutant.checks for mutant in self.mutants))
        with concurrent.futures.ThreadPoolExecutor(max_workers=len(self.copies)) as pool:
            try:
                useless = dict(zip(checks, pool.map(self._without, range(1, len(checks) + 1), checks)))
                return list(pool.map(lambda mutant: self._with(mutant, useless[mutant.checks]), self.mutants))
            except BaseException:
                # What waits for its turn does not begin, and what runs ends now.
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in self.copies:
                    copy.stop()
                raise


def table(verdicts: t.Sequence[trial.Verdict]) -> str:
    """Every mutant, where it is and which test noticed it."""
    rows = ["| mutant | file | caught by |", "|---|---|---|"]
    for one in verdicts:
        by = (
            "`{0}`".format(one.by.replace("|", "\\|"))
            if one.result == trial.CAUGHT
            else "{0}: {1}".format(one.result.upper(), one.by)
        )
        rows.append("| {0} | `{1}` | {2} |".format(one.mutant.name, one.mutant.file, by))
    return "\n".join(rows)


def total(verdicts: t.Sequence[trial.Verdict]) -> str:
    """The plain lines at the very end: who was not caught, and the numbers."""
    of = {
        result: [one for one in verdicts if one.result == result]
        for result in (trial.CAUGHT, trial.SURVIVED, trial.ERROR)
    }
    lines = [
        "survived: {0} ({1}): {2}".format(one.mutant.name, one.mutant.file, one.mutant.harm)
        for one in of[trial.SURVIVED]
    ]
    lines += ["error: {0}: {1}".format(one.mutant.name, one.by) for one in of[trial.ERROR]]
    numbers = "{0} caught, {1} survived".format(len(of[trial.CAUGHT]), len(of[trial.SURVIVED]))
    return "\n".join(
        [*lines, numbers + (", {0} could not be judged".format(len(of[trial.ERROR])) if of[trial.ERROR] else "")]
    )


def main(arguments: t.Sequence[str], place: t.Optional[Place] = None) -> int:
    """Try the mutants that were asked for and answer the exit status."""
    place = place or Place()
    parser = argparse.ArgumentParser(prog="python3 -m tests.tools.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="mutants side by side, each in a copy of its own"
    )
    parser.add_argument("--list", action="store_true", help="name the mutants and end")
    parser.add_argument("wanted", nargs="*", metavar="NAME|SUBJECT")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error("--jobs is {0}; expected 1 or more".format(options.jobs))
    try:
        mutants = catalogue.choose(catalogue.read(place.mutants), options.wanted)
    except catalogue.MutantError as exc:
        parser.error(str(exc))
    if options.list:
        for mutant in mutants:
            say("{0:11} {1}: {2}".format(mutant.subject, mutant.name, mutant.harm))
        return 0
    with tempfile.TemporaryDirectory(prefix="gpufleet-mutants-") as scratch:
        roots = [pathlib.Path(scratch) / str(number) for number in range(min(options.jobs, len(mutants)))]
        for root in roots:
            place.copy(root)
        verdicts = Run(mutants, place, [trial.Copy(root) for root in roots]).verdicts()
    say("")
    say(table(verdicts))
    say("")
    say(total(verdicts))
    return 0 if all(one.result == trial.CAUGHT for one in verdicts) else 1


def until_interrupted(arguments: t.Sequence[str], place: t.Optional[Place] = None) -> int:
    """The same, for a process of its own: whoever ends it ends what it started, and leaves no copy."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return main(arguments, place)
    except KeyboardInterrupt:
        say("interrupted: everything that ran was stopped")
        return 130


if __name__ == "__main__":
    sys.exit(until_interrupted(sys.argv[1:]))
