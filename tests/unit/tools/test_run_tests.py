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
    for name in ("CI", "GPUFLEET_TEST_MINUTES", "GPUFLEET_TEST_DEADLINE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def with_stages(monkeypatch, *given):
    monkeypatch.setattr(stages, "all_stages", lambda everything=False: list(given))


def by_name(outcomes):
    return {outcome.name: outcome for outcome in outcomes}


def test_all_well_is_exit_status_0(monkeypatch, capsys):
    with_stages(monkeypatch, Stage("a", "unit", "echo '2 passed in 0.1s'"), Stage("b", "lint", "true"))
    assert run_tests.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed"


@pytest.mark.parametrize(
    ("elapsed_s", "done", "ahead", "within_s", "answer"),
    [
        (10.0, 0.0, 100.0, 0.0, True),  # as long as it takes
        (10.0, 0.0, 0.0, 60.0, True),  # nothing is left
        (10.0, 0.0, 100.0, 6000.0, False),  # how fast the machine is is not known yet
        (100.0, 50.0, 50.0, 200.0, True),
        (100.0, 50.0, 51.0, 200.0, False),
        (300.0, 50.0, 0.0, 200.0, True),
    ],
)
def test_what_is_ahead_is_measured_by_what_is_done(elapsed_s, done, ahead, within_s, answer):
    assert stages.in_time(elapsed_s, done, ahead, within_s) is answer


OPTIONAL = Stage("extra", "unit", "echo '1 passed in 0.1s'", cost=1000.0, optional=True)


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [([], True), (["--within", "600"], True), (["--within", "0.001"], False), (["--within", "0.001", "extra"], True)],
)
def test_an_optional_stage_is_left_out_where_there_is_no_time_for_it(monkeypatch, capsys, arguments, ran):
    with_stages(monkeypatch, Stage("must", "unit", "echo '2 passed in 0.1s'", cost=10.0), OPTIONAL)
    monkeypatch.setenv("CI", "true")
    assert run_tests.main(arguments) == 0
    out = capsys.readouterr().out
    assert ("WARNING: extra: NOT RUN" in out) != ran and (" ok   extra" in out) == ran
    if not ran:
        assert out.splitlines()[-1] == "2 passed, 0 failed, 1 stages not run"


def test_what_has_to_run_runs_in_no_time_too(monkeypatch, capsys):
    with_stages(monkeypatch, Stage("must", "unit", "echo '2 passed in 0.1s'"))
    assert run_tests.main(["--within", "0.0001"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"


@pytest.mark.parametrize(("arguments", "name"), [(["--list"], "quick"), (["--list", "--all"], "slow")])
def test_the_slow_tests_run_when_all_are_wanted(monkeypatch, capsys, arguments, name):
    monkeypatch.setattr(
        stages, "all_stages", lambda everything=False: [Stage("slow" if everything else "quick", "unit", "true")]
    )
    assert run_tests.main(arguments) == 0
    assert capsys.readouterr().out.split() == ["unit", name]


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
    early, there = tmp_path / "early", {}
    with_stages(
        monkeypatch,
        Stage("late", "molecule", "true", after=("early", "not part of this run")),
        Stage("early", "unit", "touch {0}".format(early)),
    )
    start = run_tests.start
    monkeypatch.setattr(run_tests, "start", lambda stage: there.update({stage.name: early.exists()}) or start(stage))
    assert run_tests.main([]) == 0
    assert there == {"early": False, "late": True}


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
        ({"name": stages.LONGEST[0], "group": "unit"}, "0"),
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


def test_stages_that_share_a_machine_follow_each_other(monkeypatch):
    with_stages(
        monkeypatch,
        Stage("a", "molecule", "true", nodes=("n1",)),
        Stage("b", "molecule", "true", nodes=("n1", "n2")),
        Stage("c", "molecule", "true", nodes=(stages.ALL_NODES,)),
    )
    seen, start, finish = [], run_tests.start, run_tests.finish
    monkeypatch.setattr(run_tests, "start", lambda stage: seen.append("> " + stage.name) or start(stage))
    monkeypatch.setattr(run_tests, "finish", lambda one: seen.append("< " + one.stage.name) or finish(one))
    assert run_tests.main(["--jobs", "3"]) == 0
    assert seen == ["> a", "< a", "> b", "< b", "> c", "< c"]


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


def gone(process, patience_s=600):
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
    child = tmp_path / "child"
    script = "echo the last word; sleep 1200 & echo $! > {0}; wait".format(child)
    with_stages(monkeypatch, Stage("hangs", "unit", script, limit_s=3600), Stage("well", "lint", "true"))
    # Its limit has passed when it has begun to hang, and that of the other one never.
    monkeypatch.setattr(
        run_tests.Running,
        "seconds",
        property(lambda one: 3601.0 if one.stage.name == "hangs" and child.exists() and child.read_text() else 1.0),
    )
    assert run_tests.main([]) == 1
    out = capsys.readouterr().out
    assert "    the last word" in out and "within its limit" in out
    assert out.splitlines()[-1] == "1 passed, 1 failed"
    assert gone(pathlib.Path("/proc", child.read_text().strip())), "what it had started is ended with it"


def test_at_the_deadline_all_that_runs_is_ended_with_its_output_and_the_rest_fails(monkeypatch, capsys):
    with_stages(
        monkeypatch,
        Stage("hangs", "unit", "echo the last word; sleep 300"),
        Stage("later", "lint", "true", after=("hangs",)),
        Stage("down", "unit", "echo cleaned", clean_up=True),
    )
    assert run_tests.main(["--deadline", "0.02"]) == 1
    out = capsys.readouterr().out
    assert "    the last word" in out and "FAILED hangs" in out and "FAILED later: did not begin" in out
    assert " ok   down" in out and out.splitlines()[-1] == "1 passed, 2 failed"


def test_cleaning_up_that_hangs_is_ended_and_fails(monkeypatch):
    with_stages(
        monkeypatch, Stage("m", "molecule", "true"), Stage("down", "molecule", "sleep 300", clean_up=True, limit_s=1)
    )
    assert run_tests.main([]) == 1


def test_times_are_kept_and_the_next_run_names_what_grew(monkeypatch, tmp_path, capsys):
    work = "{0} -c 'import time\nwhile time.process_time() < 0.5: pass'; echo '1.50s call     tests/a.py::b'"
    busy = Stage("busy", "unit", work.format(sys.executable))
    with_stages(monkeypatch, busy, Stage("later", "unit", "true", after=("busy",)))
    assert run_tests.main([]) == 0
    kept = times.load([tmp_path / "logs" / "times.json"])
    assert kept == times.load([tmp_path / "cache" / "times.json"]), "for the first run of another checkout"
    assert kept["stages"]["busy"]["cpu_s"] >= 0.5 > kept["stages"]["later"]["cpu_s"]
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
stages.all_stages = lambda everything=False: given
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
