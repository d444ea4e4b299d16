# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the checkout's tests, stage beside stage, and say at the end what took how long.

python3 -m tests.tools.run_tests [--all] [--jobs N] [--within MINUTES] [--deadline MINUTES] [--list] [GROUP|STAGE ...]

Groups: lint, unit, sanity, molecule; none named means all of them. With --all their slow tests run too. What takes
longest goes first, and before what can fill gaps. The output of every stage is kept in .lab/logs/test/, and in
times.json there where the time went. A stage that has not come to its end within its limit is ended and has failed.
The exit status is 0 only when every stage ran and passed. With CI=true in the environment a stage that this machine
cannot run (an interpreter is missing) is a failure; without it the stage is named, loudly, as not run.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import typing as t

from tests.lab import config, network
from tests.tools import stages as catalogue
from tests.tools import times
from tests.tools.common import ROOT, cache_root
from tests.tools.outcome import FAILED, NOT_RUN, PASSED, Outcome, failures, judge, red_lines, table, total_line

LOGS = ROOT / ".lab" / "logs" / "test"
GRACE_S = 45.0  # what a stage gets to clean up after itself before it is killed
TAIL_LINES = 80
TEST_LABS = 50  # lab numbers from here up are for the scenarios


class Interrupted(Exception):
    """Somebody wants the run to end."""


@dataclasses.dataclass
class Running:
    """A stage in progress."""

    stage: catalogue.Stage
    process: subprocess.Popen
    log: pathlib.Path
    started: float
    cpu_s: float = 0.0
    overran: bool = False

    @property
    def seconds(self) -> float:
        """How long it has been at work."""
        return time.monotonic() - self.started

    def ended(self) -> bool:
        """Whether it has come to its end; then also what CPU time it and its children took."""
        if self.process.returncode is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = usage.ru_utime + usage.ru_stime
        return self.process.returncode is not None


def say(text: str) -> None:
    """One line of progress, at once."""
    print(text, flush=True)


def start(stage: catalogue.Stage) -> Running:
    """Start a stage in a session of its own, so that all of it can be stopped."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / (stage.name + ".log")
    with open(str(log), "wb") as sink:
        process = subprocess.Popen(
            catalogue.command_line(stage),
            cwd=str(ROOT),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Running(stage, process, log, time.monotonic())


def signal_group(process: subprocess.Popen, number: int) -> None:
    """Send a signal to everything the stage started in its session."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def stop(running: t.Iterable[Running]) -> None:
    """End stages: first politely, then not."""
    alive = [one for one in running if not one.ended()]
    for one in alive:
        signal_group(one.process, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for one in alive:
        while not one.ended() and time.monotonic() < deadline:
            time.sleep(0.05)
        if not one.ended():
            say("    {0}: still there after {1:.0f} s, killed".format(one.stage.name, GRACE_S))
        # The leader may be gone while what it started is not.
        signal_group(one.process, signal.SIGKILL)
        while not one.ended():
            time.sleep(0.05)


def finish(one: Running) -> Outcome:
    """What a stage that ended came to."""
    output = one.log.read_text(encoding="utf-8", errors="replace")
    outcome = judge(one.stage.name, one.process.returncode, output, one.seconds, one.overran)
    outcome.cpu_s = one.cpu_s
    outcome.red = red_lines(output)
    return outcome


def show_failure(outcome: Outcome) -> None:
    """The end of a failed stage's output, where the reason is."""
    log = LOGS / (outcome.name + ".log")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    say(
        "----- {0}: the last {1} of {2} lines of {3}".format(
            outcome.name, min(TAIL_LINES, len(lines)), len(lines), log.relative_to(ROOT)
        )
    )
    for line in lines[-TAIL_LINES:]:
        say("    " + line)
    say("-----")


class Scheduler:
    """Keeps `jobs` stages going; a stage starts when those it is `after` have ended well."""

    def __init__(
        self, stages: t.Sequence[catalogue.Stage], jobs: int, within_s: float = 0.0, deadline_s: float = 0.0
    ) -> None:
        self.waiting = list(stages)
        self.jobs = jobs
        self.within_s = within_s
        self.deadline_s = deadline_s
        self.costs = {stage.name: stage.cost for stage in stages}
        self.running: t.List[Running] = []
        self.outcomes: t.List[Outcome] = []
        self.began = time.monotonic()

    def _blockers(self, stage: catalogue.Stage) -> t.List[str]:
        done = {outcome.name for outcome in self.outcomes}
        known = done | {one.stage.name for one in self.running} | {one.name for one in self.waiting}
        return [name for name in stage.after if name in known and name not in done]

    def _failed_need(self, stage: catalogue.Stage) -> t.Optional[str]:
        return next(
            (outcome.name for outcome in self.outcomes if outcome.name in stage.needs and outcome.verdict != PASSED),
            None,
        )

    def _take(self) -> None:
        for stage in list(self.waiting):
            failed = self._failed_need(stage)
            if failed:
                self.waiting.remove(stage)
                self._record(
                    Outcome(stage.name, FAILED, 0.0, failed=1, reason="{0} failed, which it needs".format(failed))
                )
                continue
            foreground = sum(1 for one in self.running if not one.stage.background)
            if self._blockers(stage) or (not stage.background and foreground >= self.jobs):
                continue
            if any(catalogue.share_a_node(stage, one.stage) for one in self.running):
                continue
            if stage.optional and not self._in_time(stage):
                if self._decided():
                    self.waiting.remove(stage)
                    self._record(Outcome(stage.name, NOT_RUN, 0.0, reason=self._too_late()))
                continue
            self.waiting.remove(stage)
            missing = catalogue.missing_interpreter(stage)
            if missing:
                self._record(not_run(stage.name, missing))
                continue
            say("  > {0}".format(stage.name))
            self.running.append(start(stage))

    def _in_time(self, stage: catalogue.Stage) -> bool:
        """Whether there is time for an optional stage beside all that has to run."""
        done, ahead = self._costs()
        return catalogue.in_time(time.monotonic() - self.began, done, ahead + stage.cost, self.within_s)

    def _decided(self) -> bool:
        """Whether it is known well enough that there will be no time: half of what has to run has ended."""
        done, ahead = self._costs()
        return done >= ahead

    def _costs(self) -> t.Tuple[float, float]:
        """What has ended, and what runs or has to."""
        done = sum(self.costs[outcome.name] for outcome in self.outcomes if outcome.verdict != NOT_RUN)
        ahead = [one.stage for one in self.running] + [one for one in self.waiting if not one.optional]
        return done, sum(one.cost for one in ahead)

    def _too_late(self) -> str:
        return "NOT RUN: on this machine the whole would not end within {0:.0f} min; 'make test-all' has it".format(
            self.within_s / 60
        )

    def _end_overdue(self) -> None:
        """End what has been at work for longer than its limit, and all of it at the run's deadline: its last output
        says where it was. Who ends the run from outside would show none.
        """
        over = 0 < self.deadline_s < time.monotonic() - self.began
        overdue = [one for one in self.running if (over or one.seconds > one.stage.limit_s) and not one.ended()]
        for one in overdue:
            one.overran = True
        stop(overdue)
        for stage in self.waiting if over else ():
            reason = "did not begin within the {0:.0f} min of the run".format(self.deadline_s / 60)
            self._record(Outcome(stage.name, FAILED, 0.0, failed=1, reason=reason))
        self.waiting = [] if over else self.waiting

    def _record(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        say("  {0} {1}  {2:.0f} s  {3}".format(outcome.mark, outcome.name, outcome.seconds, outcome.note))
        if outcome.verdict == FAILED and outcome.seconds > 0:
            show_failure(outcome)

    def run(self, ended: threading.Event) -> t.List[Outcome]:
        """Run everything; stop all of it and raise when `ended` is set."""
        try:
            while self.waiting or self.running:
                self._take()
                if ended.wait(0.2):
                    raise Interrupted
                self._end_overdue()
                for one in [one for one in self.running if one.ended()]:
                    self.running.remove(one)
                    signal_group(one.process, signal.SIGTERM)  # what it may have left in its session
                    outcome = finish(one)
                    outcome.started_s = one.started - self.began
                    self._record(outcome)
        finally:
            stop(self.running)
        return self.outcomes


def not_run(name: str, missing: str) -> Outcome:
    """A stage this machine has no interpreter for: a failure where everything must run, and said aloud anywhere
    else.
    """
    reason = "NOT RUN: no {0} on this machine".format(missing)
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        return Outcome(name, FAILED, 0.0, failed=1, reason=reason)
    return Outcome(name, NOT_RUN, 0.0, reason=reason)


def clean_up(stages: t.Sequence[catalogue.Stage]) -> t.List[Outcome]:
    """Undo what must not be left behind by the stages, however they ended."""
    outcomes = []
    for stage in catalogue.clean_up_after(stages):
        one = start(stage)
        while not one.ended():
            if one.seconds > stage.limit_s:
                one.overran = True
                stop([one])
            time.sleep(0.05)
        outcome = finish(one)
        outcomes.append(outcome)
        say("  {0} {1}  {2:.0f} s  {3}".format(outcome.mark, outcome.name, outcome.seconds, outcome.note))
        if outcome.verdict == FAILED:
            show_failure(outcome)
    return outcomes


def machine_time() -> t.Dict[str, float]:
    """What the machine's processors have done so far."""
    return times.machine(pathlib.Path("/proc/stat").read_text(encoding="ascii"), os.sysconf("SC_CLK_TCK"))


def kept_times(
    stages: t.Sequence[catalogue.Stage],
    outcomes: t.Sequence[Outcome],
    wall_s: float,
    machine_s: t.Mapping[str, float],
    whole: bool,
) -> str:
    """Keep where the time of this run went, and say it.

    Whole runs are kept beside the environments too, for the next checkout's first.
    """
    mine, shared = LOGS / "times.json", cache_root() / "times.json"
    before = times.load([mine, shared])
    logs = {
        one.name: (LOGS / (one.name + ".log")).read_text(encoding="utf-8", errors="replace")
        for one in outcomes
        if (LOGS / (one.name + ".log")).exists()
    }
    now = times.document(outcomes, {stage.name: stage.after for stage in stages}, wall_s, logs, machine_s)
    times.keep(mine, now, before)
    if whole and not [one for one in outcomes if one.verdict != PASSED]:
        times.keep(shared, now, before)
    return times.summary(before, now)


def main(arguments: t.Sequence[str]) -> int:
    """Run what was asked for and answer the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.tools.run_tests", description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="the tests with the mark slow too, as before a release")
    parser.add_argument(
        "--jobs",
        type=int,
        default=(os.cpu_count() or 1) + 1,
        help="stages side by side; one more than processors, as each waits now and then",
    )
    parser.add_argument(
        "--within",
        type=float,
        default=float(os.environ.get("GPUFLEET_TEST_MINUTES") or 0),
        metavar="MINUTES",
        help="leave out optional stages where all of them would take longer, and say which (0: none)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=float(os.environ.get("GPUFLEET_TEST_DEADLINE") or 0),
        metavar="MINUTES",
        help="end what still runs then, and fail with its last output (0: none)",
    )
    parser.add_argument("--list", action="store_true", help="name the stages and end")
    parser.add_argument("wanted", nargs="*", metavar="GROUP|STAGE")
    options = parser.parse_args(arguments)

    try:
        stages = catalogue.choose(catalogue.all_stages(options.all), options.wanted)
    except catalogue.UnknownStage as problem:
        parser.error(str(problem))
    if options.list:
        for stage in stages:
            say("{0:10} {1}".format(stage.group, stage.name))
        return 0

    if "GPUFLEET_LAB_ID" not in os.environ and any(stage.group == "molecule" for stage in stages):
        # A lab of the run's own: what `make lab-up` or another checkout has started stays as it is.
        os.environ["GPUFLEET_LAB_ID"] = str(network.unused(config.current(), TEST_LABS))
        say("lab: the scenarios use lab {0}".format(os.environ["GPUFLEET_LAB_ID"]))

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_unused: ended.set())

    began, machine_before = time.monotonic(), machine_time()
    interrupted = False
    # What was asked for by name is not left out.
    within_s = 0.0 if options.wanted else options.within * 60
    chosen = [stage for stage in stages if not stage.clean_up]
    scheduler = Scheduler(chosen, options.jobs, within_s, options.deadline * 60)
    try:
        scheduler.run(ended)
    except Interrupted:
        interrupted = True
        say("interrupted: everything that ran was stopped")
    # The handlers stay: a second Ctrl-C does not leave half of the cleaning undone.
    outcomes = scheduler.outcomes + clean_up(stages)

    wall_s = time.monotonic() - began
    machine_s = {name: seconds - machine_before[name] for name, seconds in machine_time().items()}
    say("")
    say(table(outcomes, wall_s))
    say(kept_times(stages, outcomes, wall_s, machine_s, whole=not options.wanted and not interrupted))
    for outcome in outcomes:
        if outcome.verdict == NOT_RUN:
            say("WARNING: {0}: {1}".format(outcome.name, outcome.reason))
    for line in failures(outcomes):
        say(line)
    say(total_line(outcomes))
    if interrupted:
        return 130
    return 1 if any(outcome.verdict == FAILED for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
