# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The orchestrator: order, exit status, and that nothing outlives it.

With small scripts in the place of the true stages.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.tools import run_tests, stages, times
from tests.tools.outcome import FAILED, NOT_RUN, PASSED
from tests.tools.stages import Stage


@pytest.fixture(autouse=True)
def logs(tmp_path, monkeypatch):
    """No test here writes into the checkout."""
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "LOGS", tmp_path / "logs")
    monkeypatch.setenv("GPUFLEET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def with_stages(monkeypatch, *given):
    monkeypatch.setattr(stages, "all_stages", lambda: list(given))


def by_name(outcomes):
    return {outcome.name: outcome for outcome in outcomes}


def test_all_well_is_exit_status_0(monkeypatch, capsys):
    with_stages(monkeypatch, Stage("a", "unit", "echo '2 passed in 0.1s'"), Stage("b", "lint", "true"))
    assert run_tests.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed"


def test_one_failure_is_exit_status_1_and_shows_its_output(monkeypatch, capsys):
    with_stages(monkeypatch, Stage("a", "unit", "echo the reason; exit 3"), Stage("b", "lint", "true"))
    assert run_tests.main([]) == 1
    out = capsys.readouterr().out
    assert "    the reason" in out
    assert out.splitlines()[-1] == "1 passed, 1 failed"


def test_only_what_was_asked_for_runs(monkeypatch, tmp_path):
    with_stages(
        monkeypatch,
        Stage("a", "unit", "touch {0}/a".format(tmp_path)),
        Stage("b", "lint", "touch {0}/b".format(tmp_path)),
    )
    assert run_tests.main(["lint"]) == 0
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "b").exists()


def test_an_unknown_stage_is_refused(monkeypatch, capsys):
    with_stages(monkeypatch, Stage("a", "unit", "true"))
    with pytest.raises(SystemExit) as ended:
        run_tests.main(["unti"])
    assert ended.value.code == 2
    assert "unti" in capsys.readouterr().err


def test_a_stage_starts_after_what_it_follows(monkeypatch, tmp_path):
    order = tmp_path / "order"
    with_stages(
        monkeypatch,
        Stage("late", "molecule", "echo late >> {0}".format(order), after=("early", "not part of this run")),
        Stage("early", "unit", "sleep 0.5; echo early >> {0}".format(order)),
    )
    assert run_tests.main([]) == 0
    assert order.read_text().split() == ["early", "late"]


def test_a_stage_whose_need_failed_fails_without_running(monkeypatch, tmp_path, capsys):
    needy = Stage("m", "molecule", "touch {0}/m".format(tmp_path), needs=("drivers",), after=("drivers",))
    with_stages(monkeypatch, Stage("drivers", "molecule", "exit 1", background=True), needy)
    assert run_tests.main([]) == 1
    assert not (tmp_path / "m").exists()
    assert "drivers failed, which it needs" in capsys.readouterr().out


def test_no_more_than_jobs_run_side_by_side_and_the_background_takes_no_place(monkeypatch, tmp_path):
    """Each stage waits for another one beside it, and the background for all of them."""
    until = "for _ in $(seq 3000); do test {0} && break; sleep 0.02; done"
    wait = until.format("$(ls {0}/now {0}/over | grep -c ^s) -ge 2".format(tmp_path))
    count = "touch {0}/now/$0; %s; ls {0}/now | wc -l >> {0}/seen; mv {0}/now/$0 {0}/over" % wait
    for name in ("now", "over"):
        (tmp_path / name).mkdir()
    background = Stage("bg", "molecule", until.format("$(ls {0}/over | wc -l) = 4".format(tmp_path)), background=True)
    names = ["s%d" % number for number in range(4)]
    with_stages(
        monkeypatch, background, *[Stage(name, "unit", count.format(tmp_path).replace("$0", name)) for name in names]
    )
    assert run_tests.main(["--jobs", "2"]) == 0
    assert max(int(word) for word in (tmp_path / "seen").read_text().split()) == 2


@pytest.mark.parametrize(
    ("stage", "nice"),
    [
        ({"name": stages.LONGEST, "group": "unit"}, "0"),
        ({"name": "a scenario", "group": "molecule"}, "0"),
        ({"name": "what fills gaps", "group": "unit"}, "5"),
        ({"name": "in the background", "group": "unit", "background": True}, "5"),
    ],
)
def test_the_longest_chains_go_before_what_fills_their_gaps(monkeypatch, tmp_path, stage, nice):
    seen = tmp_path / "seen"
    script = "nice > {0}; cat /proc/self/autogroup >> {0} 2>/dev/null || true".format(seen)
    with_stages(monkeypatch, Stage(script=script, **stage))
    assert run_tests.main([]) == 0
    own, *group = seen.read_text().split("\n")
    assert int(own) == min(os.nice(0) + int(nice), 19), "beside what these tests themselves step back"
    if group[:1] != [""]:  # a kernel that groups processes
        assert group[0].endswith(" nice " + nice)


def test_stages_that_share_a_machine_follow_each_other(monkeypatch, tmp_path):
    busy = "mkdir {0}/{1} || exit 1; sleep 0.4; rmdir {0}/{1}"
    with_stages(
        monkeypatch,
        Stage("a", "molecule", busy.format(tmp_path, "n1"), nodes=("n1",)),
        Stage("b", "molecule", busy.format(tmp_path, "n1"), nodes=("n1", "n2")),
        Stage(
            "c",
            "molecule",
            "test ! -e {0}/n1 && {1}".format(tmp_path, busy.format(tmp_path, "all")),
            nodes=(stages.ALL_NODES,),
        ),
    )
    assert run_tests.main(["--jobs", "3"]) == 0


def test_a_missing_interpreter_is_said_aloud(monkeypatch, capsys):
    with_stages(monkeypatch, Stage("a", "unit", "true", "py38"), Stage("b", "unit", "true"))
    monkeypatch.setattr(stages, "missing_interpreter", lambda stage: "Python 3.8" if stage.environment else "")
    assert run_tests.main([]) == 0
    out = capsys.readouterr().out
    assert "WARNING: a: NOT RUN: no Python 3.8 on this machine" in out
    assert out.splitlines()[-1] == "1 passed, 0 failed, 1 stages not run"


def test_a_missing_interpreter_fails_where_everything_must_run(monkeypatch):
    monkeypatch.setenv("CI", "true")
    assert run_tests.not_run("a", "Python 3.8").verdict == FAILED
    monkeypatch.setenv("CI", "false")
    assert run_tests.not_run("a", "Python 3.8").verdict == NOT_RUN


def test_cleaning_up_happens_after_a_failure_too_and_counts(monkeypatch, tmp_path):
    down = Stage("lab-down", "molecule", "touch {0}/down; exit 4".format(tmp_path), clean_up=True)
    with_stages(monkeypatch, Stage("m", "molecule", "exit 1"), down)
    scheduler_saw = []
    true_start = run_tests.start
    monkeypatch.setattr(run_tests, "start", lambda stage: scheduler_saw.append(stage.name) or true_start(stage))
    assert run_tests.main(["molecule"]) == 1
    assert scheduler_saw == ["m", "lab-down"]
    assert (tmp_path / "down").exists()


def test_outcomes_are_those_of_the_stages(monkeypatch):
    scheduler = run_tests.Scheduler([Stage("good", "unit", "true"), Stage("bad", "unit", "false")], jobs=2)
    outcomes = by_name(scheduler.run(threading.Event()))
    assert (outcomes["good"].verdict, outcomes["bad"].verdict) == (PASSED, FAILED)


def gone(process, patience_s=60):
    """Whether a process ends.

    One that was killed does so when it gets the processor next, which may take a while on a busy machine.
    """
    deadline = time.monotonic() + patience_s
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while (process / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X"):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True


def test_a_stage_that_hangs_is_ended_at_its_limit_and_shows_its_last_output(monkeypatch, tmp_path, capsys):
    hangs = Stage(
        "hangs", "unit", "echo the last word; sleep 300 & echo $! > {0}/child; wait".format(tmp_path), limit_s=1
    )
    with_stages(monkeypatch, hangs, Stage("well", "lint", "true"))
    assert run_tests.main([]) == 1
    out = capsys.readouterr().out
    assert "    the last word" in out and "within its limit" in out
    assert out.splitlines()[-1] == "1 passed, 1 failed"
    assert gone(pathlib.Path("/proc", (tmp_path / "child").read_text().strip())), "what it had started is ended with it"


def test_cleaning_up_that_hangs_is_ended_and_fails(monkeypatch):
    with_stages(
        monkeypatch, Stage("m", "molecule", "true"), Stage("down", "molecule", "sleep 300", clean_up=True, limit_s=1)
    )
    assert run_tests.main([]) == 1


def test_times_are_kept_and_the_next_run_names_what_grew(monkeypatch, tmp_path, capsys):
    work = "for ((i = 0; i < 300000; i++)); do :; done; echo '1.50s call     tests/a.py::b'"
    with_stages(monkeypatch, Stage("busy", "unit", work), Stage("later", "unit", "sleep 0.3", after=("busy",)))
    assert run_tests.main([]) == 0
    kept = times.load([tmp_path / "logs" / "times.json"])
    assert kept == times.load([tmp_path / "cache" / "times.json"]), "for the first run of another checkout"
    assert kept["stages"]["busy"]["cpu_s"] > 0.2 > kept["stages"]["later"]["cpu_s"]
    assert kept["longest_path"]["stages"] == ["busy", "later"] and kept["slowest"][0]["test"] == "tests/a.py::b"
    assert "longest path" in capsys.readouterr().out
    kept["stages"]["busy"]["wall_s"] = -times.GREW_S
    times.keep(tmp_path / "logs" / "times.json", kept, None)
    assert run_tests.main(["busy"]) == 0
    assert "grew most since the kept times: busy" in capsys.readouterr().out
    assert set(times.load([tmp_path / "logs" / "times.json"])["stages"]) == {"busy", "later"}, (
        "of stages that did not run the times stay"
    )
    assert times.load([tmp_path / "cache" / "times.json"])["stages"]["busy"]["wall_s"] > 0, (
        "part of a run is nobody's measure"
    )


SCRIPT = """
import os, pathlib, sys
sys.path.insert(0, {root!r})
from tests.tools import run_tests, stages
place = pathlib.Path({place!r})
run_tests.ROOT, run_tests.LOGS = place, place / "logs"
os.environ["GPUFLEET_CACHE"] = str(place / "cache")
child = "echo $$ > {place}/%s; sleep 300 & wait"
given = [stages.Stage("front", "molecule", child % "front"), stages.Stage("back", "molecule", child % "back", \
background=True),
         stages.Stage("lab-down", "molecule", "touch {place}/down", clean_up=True)]
stages.all_stages = lambda: given
sys.exit(run_tests.main([]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_everything_and_cleans_up(collection_root, tmp_path, number):
    script = SCRIPT.format(root=str(collection_root), place=str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )
    deadline = time.monotonic() + 600
    marks = [tmp_path / "front", tmp_path / "back"]
    while not all(mark.exists() and mark.read_text().strip() for mark in marks):
        assert time.monotonic() < deadline, "the stages did not start"
        time.sleep(0.05)
    groups = [int(mark.read_text()) for mark in marks]
    process.send_signal(number)
    output = process.communicate(timeout=600)[0]
    assert process.returncode == 130, output
    assert "interrupted" in output
    assert (tmp_path / "down").exists()
    for group in groups:
        with pytest.raises(ProcessLookupError):
            os.killpg(os.getpgid(group), 0)
