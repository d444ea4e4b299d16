# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell scripts that prepare a machine, with stand-ins for the commands that would change it."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

from tests.tools.common import ROOT

TOOLS = ROOT / "tests" / "tools"
NEEDED = (
    "bash",
    "sed",
    "sort",
    "dirname",
    "cat",
    "env",
    "grep",
    "awk",
    "sha256sum",
    "cut",
    "mkdir",
    "flock",
    "rm",
    "tail",
    "touch",
)


@pytest.fixture
def machine(tmp_path):
    """A PATH with what the scripts use and nothing else."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in NEEDED:
        (binaries / name).symlink_to(shutil.which(name))
    return tmp_path


def command(binaries, name, script):
    path = binaries / name
    path.write_text("#!/bin/bash\n{0}\n".format(script))
    path.chmod(0o755)


def run(script, *arguments, machine, **variables):
    environment = dict({"PATH": str(machine / "bin"), "HOME": str(machine)}, **variables)
    return subprocess.run(
        ["/bin/bash", str(TOOLS / script), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        check=False,
        timeout=600,
    )


@pytest.mark.parametrize("name", ["", "nonsense"])
def test_an_unknown_environment_is_refused_with_the_known_ones(machine, name):
    done = run("venv.sh", name, machine=machine)
    assert done.returncode == 2
    assert "core218" in done.stderr


def test_a_missing_interpreter_has_an_exit_status_of_its_own(machine):
    if pathlib.Path("/usr/bin/python3.8").exists() or pathlib.Path("/usr/local/bin/python3.8").exists():
        pytest.fail("this test needs a machine whose own Python is not 3.8; give it one")
    done = run("venv.sh", "--interpreter", "py38", machine=machine, PYENV_ROOT=str(machine / "none"))
    assert done.returncode == 3
    assert "Python 3.8" in done.stderr
    assert done.stdout == ""


def test_the_newest_interpreter_is_the_one_with_the_highest_minor_version(machine):
    for directory, minor in (("a", 9), ("b", 14), ("c", 11), ("d", 10)):
        place = machine / "pyenv" / "versions" / ("3." + directory) / "bin"
        place.mkdir(parents=True)
        command(place, "python3", "echo {0} {1}/python3".format(minor, place))
    done = run("venv.sh", "--interpreter", "newest", machine=machine, PYENV_ROOT=str(machine / "pyenv"))
    assert done.stdout.strip() == str(machine / "pyenv" / "versions" / "3.b" / "bin" / "python3")


def test_the_systems_own_interpreters_come_before_those_on_the_path(machine):
    command(machine / "bin", "python3.12", "echo 12 {0}/bin/python3.12".format(machine))
    done = run("venv.sh", "--interpreters", machine=machine, PYENV_ROOT=str(machine / "none"))
    places = [line.split(" ", 1)[1] for line in done.stdout.splitlines()]
    own = [place.startswith("/usr/bin/") for place in places]
    assert str(machine / "bin" / "python3.12") in places and own == sorted(own, reverse=True) and own[0]


def test_a_shim_that_does_not_start_is_passed_over(machine):
    command(machine / "bin", "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    done = run("venv.sh", "--interpreters", machine=machine, PYENV_ROOT=str(machine / "none"))
    assert done.returncode == 0
    assert "python3.13" not in done.stdout


@pytest.mark.parametrize(("minors", "taken"), [((11, 12, 13), 12), ((11, 13), 11), ((9, 14), None)])
def test_the_execution_environments_own_python_comes_first(machine, minors, taken):
    script = (TOOLS / "venv.sh").read_text().replace("/usr/bin/python3", "/nonexistent/python3")
    (machine / "tools" / "requirements").mkdir(parents=True)
    (machine / "tools" / "requirements" / "ee.txt").touch()
    (machine / "tools" / "venv.sh").write_text(script.replace("/usr/local/bin/python3", "/nonexistent/python3"))
    (machine / "tools" / "venv.sh").chmod(0o755)
    for minor in minors:
        command(machine / "bin", "python3.%d" % minor, "echo {0} /a/python3.{0}".format(minor))
    done = run(
        str(machine / "tools" / "venv.sh"), "--interpreter", "ee", machine=machine, PYENV_ROOT=str(machine / "none")
    )
    assert (done.returncode, done.stdout.strip()) == ((0, "/a/python3.%d" % taken) if taken else (3, ""))


def test_a_change_of_a_list_that_is_kept_elsewhere_makes_another_environment(machine):
    """On a copy of the tools, whose Python makes an environment of nothing."""
    tools, given = machine / "x" / "tests" / "tools", machine / "x" / "meta" / "ee-requirements.txt"
    shutil.copytree(str(TOOLS / "requirements"), str(tools / "requirements"))
    shutil.copy2(str(TOOLS / "venv.sh"), str(tools))
    given.parent.mkdir()
    place = machine / "pyenv" / "versions" / "3.12.0" / "bin"
    place.mkdir(parents=True)
    make = "mkdir -p $3/bin; printf '#!/bin/bash\\n' > $3/bin/python; chmod +x $3/bin/python"
    script = 'case "$*" in *join*) echo 3.12.0 ;; *version_info*) echo 12 {0}/python3 ;; *) {1} ;; esac'
    command(place, "python3", script.format(place, make))
    (machine / "bin" / "chmod").symlink_to(shutil.which("chmod"))

    def made(text):
        given.write_text(text)
        variables = dict(PYENV_ROOT=str(machine / "pyenv"), GPUFLEET_CACHE=str(machine / "cache"))
        done = run(str(tools / "venv.sh"), "ee", machine=machine, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = made("kubernetes>=31\n")
    assert made("kubernetes>=32\n") != first == made("kubernetes>=31\n")


def test_an_environment_that_cannot_be_made_is_not_left_half_made(machine):
    place = machine / "pyenv" / "versions" / "3.8.0" / "bin"
    place.mkdir(parents=True)
    command(
        place,
        "python3",
        'case "$*" in *join*) echo 3.8.0 ;; *version_info*) echo 8 {0}/python3 ;; *) exit 9 ;; esac'.format(place),
    )
    done = run(
        "venv.sh", "py38", machine=machine, PYENV_ROOT=str(machine / "pyenv"), GPUFLEET_CACHE=str(machine / "cache")
    )
    assert done.returncode == 1
    assert "could not make 'py38'" in done.stderr
    assert [name for name in os.listdir(str(machine / "cache" / "venv")) if name.startswith("py38-")] == []
