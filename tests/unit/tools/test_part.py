# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/tools/part.sh: the results on which the exit status of `make test` depends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

import pytest

PYTEST_OUTPUT = "FAILED tests/unit/test_a.py::test_b - assert 1 == 2\n1 failed, 41 passed in 3.21s"


@pytest.fixture
def part(tmp_path, collection_root):
    """Return a function that runs a copy of the script and returns its result."""
    script = tmp_path / "tests" / "tools" / "part.sh"
    script.parent.mkdir(parents=True)
    shutil.copy2(str(collection_root / "tests" / "tools" / "part.sh"), str(script))

    def run(*words):
        return subprocess.run(
            ["bash", str(script), *words], stdout=subprocess.PIPE, universal_newlines=True, timeout=600, check=False
        )

    run.script, run.logs = script, tmp_path / ".lab" / "logs" / "test"
    return run


def test_part_that_passes_is_counted(part):
    assert part("good", "10", "echo", "3 passed in 1.00s").returncode == 0
    summary = part("--summary")
    assert summary.returncode == 0
    assert summary.stdout.splitlines()[-1] == "3 passed, 0 failed"


@pytest.mark.parametrize(
    "line", ["Python interpreter 3.99 not found.", "Session x skipped: Python interpreters 3.98, 3.99 not found."]
)
def test_part_that_passes_prints_which_sessions_nox_left_out(part, line):
    passed = part("pythons", "10", "bash", "-c", "echo before; echo '%s' >&2; echo after" % line)
    assert passed.returncode == 0
    assert [text.strip() for text in passed.stdout.splitlines() if "not run:" in text] == ["not run: " + line]
    assert "not run:" not in part("good", "10", "echo", "interpreter found").stdout


def test_part_that_fails_names_its_tests_on_the_last_lines(part):
    part("good", "10", "true")
    failed = part("bad", "10", "bash", "-c", "echo '%s'; exit 1" % PYTEST_OUTPUT)
    assert failed.returncode == 1 and "1 failed, 41 passed" in failed.stdout
    summary = part("--summary")
    assert summary.returncode == 1
    assert summary.stdout.splitlines()[-2:] == [PYTEST_OUTPUT.splitlines()[0], "41 passed, 1 failed"]


def test_part_without_tests_that_fails_counts_as_one(part):
    part("lint", "10", "false")
    assert part("--summary").stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_part_that_hangs_ends_at_its_limit_with_its_last_output(part):
    hung = part("hangs", "0.01", "bash", "-c", "echo last words; exec sleep 1000")
    assert hung.returncode == 124 and "last words" in hung.stdout
    assert part("--summary").returncode == 1


def test_part_that_is_interrupted_cleans_up_and_has_failed(part, tmp_path):
    # The signal reaches all processes of the part; bash itself makes the files.
    script = "trap ': > %s/cleaned; exit 1' TERM; : > %s/started; sleep 1000 & wait" % (tmp_path, tmp_path)
    process = subprocess.Popen(["bash", str(part.script), "stopped", "10", "bash", "-c", script])
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=600) != 0
    assert (tmp_path / "cleaned").exists()
    assert part("--summary").returncode == 1


def test_part_that_did_not_record_a_result_has_failed(part):
    part("good", "10", "true")
    (part.logs / "killed.started").touch()
    assert part("--summary").returncode == 1


@pytest.mark.parametrize("status, expected", [(0, 0), (2, 2)], ids=["all parts began", "no rule for a part"])
def test_run_fails_when_make_fails_before_a_part_begins(part, tmp_path, collection_root, monkeypatch, status, expected):
    tools, binaries = part.script.parent, tmp_path / "bin"
    shutil.copy2(str(collection_root / "tests" / "tools" / "test.sh"), str(tools))
    binaries.mkdir()
    for path, script in (
        (tools / "nox.sh", "exit 0"),
        (binaries / "make", "case $* in setup-test) exit 0 ;; *) exit %d ;; esac" % status),
    ):
        path.write_text("#!/bin/bash\n%s\n" % script)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (binaries, os.environ["PATH"]))
    done = subprocess.run(
        ["bash", str(tools / "test.sh"), "part-x"], stdout=subprocess.DEVNULL, timeout=600, check=False
    )
    assert done.returncode == expected


def test_run_that_is_interrupted_ends_after_its_parts_cleaned_up(part, tmp_path, collection_root):
    tools = part.script.parent
    shutil.copy2(str(collection_root / "tests" / "tools" / "test.sh"), str(tools))
    (tools / "nox.sh").write_text("#!/bin/bash\n")
    (tools / "nox.sh").chmod(0o755)
    command = "trap ': > $@.cleaned; exit 1' TERM; : > $@.started; sleep 1000 & wait"
    (tmp_path / "Makefile").write_text(
        'SHELL := /bin/bash\nsetup-test:\npart-x part-y:\n\t@tests/tools/part.sh $@ 10 bash -c "%s"\n' % command
    )
    process = subprocess.Popen(["bash", str(tools / "test.sh"), "part-x", "part-y"], env={**os.environ, "JOBS": "2"})
    while not all((tmp_path / name).exists() for name in ("part-x.started", "part-y.started")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=600) != 0
    assert all((tmp_path / name).exists() for name in ("part-x.cleaned", "part-y.cleaned"))
