# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of mutants fits the code, and the tool says of each what is true.

With small projects in the place of the checkout.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.tools.common import ROOT
from tests.tools.mutants import __main__ as tool
from tests.tools.mutants import catalogue, trial

SUBJECTS = {
    "answers",
    "gate",
    "ledger",
    "plan",
    "verdict",
    "xid",
    "kernel-log",
    "packages",
    "dkms",
    "reload",
    "slurm",
    "kubernetes",
    "report",
    "simulator",
    "lab",
    "monitoring",
    "services",
    "dcgm",
    "textfile",
}
MUTANTS = catalogue.read()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_fits_the_code(mutant):
    assert catalogue.applied(mutant, ROOT) != (ROOT / mutant.file).read_text(encoding="utf-8")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_that_a_mutant_names_are_there(mutant):
    assert (ROOT / "tests" / "tools" / "requirements" / (mutant.environment + ".txt")).exists()
    for test in mutant.tests:
        path, dummy, name = test.partition("::")
        assert path.startswith("tests/unit/") and (ROOT / path).exists(), test
        assert not name or "def {0}(".format(name.partition("[")[0]) in (ROOT / path).read_text(encoding="utf-8"), test


def test_there_are_forty_and_each_subject_has_some():
    assert len(MUTANTS) >= 40
    counts = {subject: len(catalogue.choose(MUTANTS, [subject])) for subject in SUBJECTS}
    assert {mutant.subject for mutant in MUTANTS} == SUBJECTS
    assert {subject: count for subject, count in counts.items() if count < 2} == {}


def test_no_two_mutants_are_the_same_mistake():
    places = [(mutant.file, mutant.before) for mutant in MUTANTS]
    assert len(places) == len(set(places))


ENTRY = {"name": "one", "file": "calc.py", "before": "a", "after": "b", "harm": "it hurts", "tests": ["test_calc.py"]}


def written(directory, name, *entries):
    """A list of mutants as a file."""
    lines = []
    for entry in entries:
        lines.append("[[mutant]]")
        lines += [
            "{0} = {1}".format(key, [*value] if isinstance(value, list) else "'''{0}'''".format(value))
            for key, value in entry.items()
        ]
    directory.mkdir(exist_ok=True)
    (directory / (name + ".toml")).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Not A Name"}, "small letters"),
        ({"before": " "}, "one: before is ' '"),
        ({"harm": ""}, "one: harm is ''"),
        ({"after": "a"}, "one: it changes nothing"),
        ({"tests": []}, "one: tests is "),
        ({"test": "test_calc.py"}, "one: test is not known"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused(tmp_path, change, words):
    with pytest.raises(catalogue.MutantError, match=words):
        catalogue.read(written(tmp_path, "subject", dict(ENTRY, **change)))


def test_two_mutants_of_one_name_are_refused(tmp_path):
    written(tmp_path, "other", ENTRY)
    with pytest.raises(catalogue.MutantError, match="two mutants have the name one"):
        catalogue.read(written(tmp_path, "subject", ENTRY))


@pytest.mark.parametrize("content", ["", "mutant = 1\n", "[[mutants]]\nname = 'one'\n", "[[mutant]\n"])
def test_a_file_that_is_no_list_of_mutants_is_refused(tmp_path, content):
    (tmp_path / "subject.toml").write_text(content, encoding="utf-8")
    with pytest.raises(catalogue.MutantError, match="subject.toml"):
        catalogue.read(tmp_path)


@pytest.mark.parametrize(("text", "words"), [("b", "occurs no times"), ("a, a", "occurs 2 times")])
def test_a_mutant_whose_text_is_not_there_exactly_once_is_refused(tmp_path, text, words):
    (mutant,) = catalogue.read(written(tmp_path, "subject", ENTRY))
    assert catalogue.mutated(mutant, "x a y") == "x b y"
    with pytest.raises(catalogue.MutantError, match=words):
        catalogue.mutated(mutant, text)


CALC = "def least(one, other):\n    return min(one, other)\n\n\ndef most(one, other):\n    return max(one, other)\n"
PROJECT = {
    "calc.py": CALC,
    "test_calc.py": "import calc\n\n\ndef test_of_least():\n    assert calc.least(1, 2) == 1\n",
    "test_red.py": "def test_that_fails_anyway():\n    assert False\n",
    "test_nothing.py": "import calc\n",
    "test_slow.py": (
        "import calc\nimport pytest\n\n\n@pytest.mark.slow(also='test_calc.py')\ndef test_of_least():\n"
        "    assert calc.least(1, 2) == 1\n"
    ),
    "test_skipped.py": (
        "import pytest\n\n\n@pytest.mark.skip(reason='not here')\ndef test_that_is_left_out():\n    pass\n"
    ),
}
LEAST = {"file": "calc.py", "before": "min(", "after": "max(", "harm": "the wrong end"}
TRIED = [
    dict(LEAST, name="noticed", tests=["test_calc.py"]),
    dict(LEAST, name="unnoticed", before="max(", after="min(", tests=["test_calc.py"]),
    dict(LEAST, name="red-anyway", tests=["test_red.py"]),
    dict(LEAST, name="no-tests", tests=["test_nothing.py"]),
    dict(LEAST, name="all-skipped", tests=["test_skipped.py"]),
    dict(LEAST, name="only-slow", tests=["test_slow.py"]),
    dict(LEAST, name="no-such-file", tests=["test_calc.py", "test_gone.py"]),
    dict(LEAST, name="no-program", after="max((", tests=["test_calc.py"]),
    dict(LEAST, name="stale", before="mean(", tests=["test_calc.py"]),
]


def project(directory):
    directory.mkdir()
    for name, text in PROJECT.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def tried(base, *arguments):
    """Exit status and output of the tool on the small project."""
    place = tool.Place(
        base / "mutants",
        base / "logs",
        lambda target: shutil.copytree(str(base / "project"), str(target)),
        lambda dummy: pathlib.Path(sys.executable),
    )
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = tool.main(arguments, place)
    return status, out.getvalue()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A small project, and mutants of it."""
    found = tmp_path_factory.mktemp("mutants")
    project(found / "project")
    written(found / "mutants", "small", *TRIED)
    return found


@pytest.fixture(scope="module")
def all_tried(base):
    """What the tool says when every mutant is tried."""
    return tried(base, "--jobs", "2")


def line_of(output, name):
    return next(line for line in output.splitlines() if line.startswith(name + ": "))


def test_a_mutant_is_caught_by_the_test_that_fails(all_tried):
    assert line_of(all_tried[1], "noticed").startswith("noticed: caught by test_calc.py::test_of_least, ")
    assert "| noticed | `calc.py` | `test_calc.py::test_of_least` |" in all_tried[1].splitlines()


def test_a_mutant_that_no_test_notices_survives_and_is_a_failure(all_tried):
    status, output = all_tried
    assert status == 1
    assert line_of(output, "unnoticed").startswith(
        "unnoticed: SURVIVED: none of the 1 tests that should notice it failed, "
    )
    assert "survived: unnoticed (calc.py): the wrong end" in output.splitlines()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("red-anyway", "the tests do not pass without it: test_red.py::test_that_fails_anyway"),
        ("no-tests", "the tests do not pass without it: no tests ran"),
        ("all-skipped", "no test ran without it: 1 skipped"),
        ("only-slow", "the tests do not pass without it: 1 deselected"),
        ("no-such-file", "the tests do not pass without it: "),
        ("no-program", "the tests could not be run with it: "),
        ("stale", "stale: the text that it replaces occurs no times in calc.py"),
    ],
)
def test_what_proves_nothing_is_an_error_and_not_caught(all_tried, name, words):
    status, output = all_tried
    assert status == 1
    assert line_of(output, name).startswith("{0}: ERROR: {1}".format(name, words))
    assert any(line.startswith("error: {0}: {1}".format(name, words)) for line in output.splitlines())


def test_the_numbers_stand_at_the_end(all_tried):
    assert all_tried[1].splitlines()[-1] == "1 caught, 1 survived, 7 could not be judged"


def test_the_project_itself_is_not_changed(all_tried, base):
    assert {path.name: path.read_text(encoding="utf-8") for path in (base / "project").iterdir()} == PROJECT


def test_only_those_that_are_named_are_tried_and_all_caught_is_exit_status_0(base):
    status, output = tried(base, "noticed")
    assert status == 0
    assert output.splitlines()[-1] == "1 caught, 0 survived"


def test_the_list_names_mutants_and_subjects_and_tries_none(base):
    status, output = tried(base, "--list", "small")
    assert status == 0
    assert [line.split()[:2] for line in output.splitlines()] == [["small", entry["name"] + ":"] for entry in TRIED]


@pytest.mark.parametrize("arguments", [["unknown"], ["--jobs", "0"]])
def test_what_cannot_be_done_is_refused(base, arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        tried(base, *arguments)
    assert ended.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_tests_that_do_not_end_prove_nothing_and_leave_no_process(tmp_path, monkeypatch):
    communicate = subprocess.Popen.communicate

    def communicate_then(process, *more, **options):
        """Their time runs once they have begun."""
        deadline = time.monotonic() + 600
        while not begun(tmp_path):
            assert time.monotonic() < deadline, "the tests were never begun"
            time.sleep(0.02)
        return communicate(process, *more, **options)

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate_then)
    ended = trial.Copy(tmp_path, limit_s=0.5).run(slow(tmp_path), ["test_calc.py"])
    assert ended.status is None and "too long" in trial.usable(ended)
    (mutant,) = catalogue.read(written(tmp_path / "list", "subject", ENTRY))
    assert trial.judge(mutant, ended).result == trial.ERROR
    assert not alive(int((tmp_path / "started").read_text(encoding="utf-8")))


def slow(directory):
    """In the place of an interpreter: a process that starts another one and waits for it."""
    program = directory / "python"
    program.write_text("#!/bin/sh\nsleep 1200 &\necho $! > {0}/started\nwait\n".format(directory), encoding="utf-8")
    program.chmod(0o755)
    return program


def begun(directory):
    """Whether the process that it starts runs."""
    started = directory / "started"
    return started.exists() and started.read_text(encoding="utf-8").endswith("\n")


INTERRUPTED = """
import pathlib, sys
from tests.tools.mutants import __main__ as tool
base = pathlib.Path(sys.argv[1])
place = tool.Place(base / "list", base / "logs", lambda target: target.mkdir(), lambda dummy: base / "python")
sys.exit(tool.until_interrupted(["--jobs", "1"], place))
"""


def test_an_interrupted_run_leaves_no_process_and_no_copy(tmp_path):
    slow(tmp_path)
    written(tmp_path / "list", "subject", ENTRY)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], cwd=str(ROOT), env=dict(os.environ, TMPDIR=str(scratch))
    )
    gone = False
    try:
        deadline = time.monotonic() + 600
        while not begun(tmp_path):
            assert time.monotonic() < deadline and run.poll() is None, "the tests were never begun"
            time.sleep(0.1)
        run.terminate()
        assert run.wait(timeout=600) == 130
        gone = not alive(int((tmp_path / "started").read_text(encoding="utf-8")))
    finally:
        run.kill()
        run.wait()
        if not gone:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((tmp_path / "started").read_text(encoding="utf-8")), signal.SIGKILL)
    assert gone
    assert list(scratch.iterdir()) == []


def alive(pid):
    """Whether a process does anything yet. One that was killed may stay as a zombie where nobody asks for its end."""
    for dummy in range(6000):
        try:
            if (
                pathlib.Path("/proc/{0}/stat".format(pid)).read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                == "Z"
            ):
                return False
        except OSError:
            return False
        time.sleep(0.1)
    return True
