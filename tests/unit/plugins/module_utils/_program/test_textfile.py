# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpufleet-node textfile as a node runs it: one file, without Ansible, without the binding; its exit statuses."""

from __future__ import annotations

import fcntl
import json
import stat
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._program import main, readings, textfile
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding, _node_program
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons

DONE, NOT_WRITTEN, BUSY = 0, 1, 9


@pytest.fixture(name="node", scope="module")
def _node(tmp_path_factory):
    base = tmp_path_factory.mktemp("node")
    node = simnode.Node(base / "root", simnode.built(), base / "templates", "h100-sxm", 2, "node-1")
    yield node.booted()
    node.close()


@pytest.fixture(name="place")
def _place(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.fixture(name="program")
def _program(place, node, monkeypatch):
    """program(*words): (exit status, standard error output). All but NVML is that of this machine."""
    version = wheels.VERSIONS[-1]
    source = (wheels.path(version) / "pynvml.py").read_bytes()
    monkeypatch.setattr(_binding, "find", lambda: _binding.Binding(source, version, ""))
    path = place / "gpufleet-node.pyz"
    path.write_bytes(_node_program.build().data)

    def run(*words):
        done = simnode.run([sys.executable, "-I", str(path), *arguments(place), *words], env=node.environment)
        assert done.stdout == "" and "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stderr

    return run


def arguments(place):
    found = [
        "textfile",
        "--directory",
        str(place / "out"),
        "--state-dir",
        str(place / "state"),
        "--lock-file",
        str(place / "lock"),
    ]
    for name in ("expectation", "boot-result", "mig-config", "digests"):
        found += ["--" + name, str(place / name)]
    return found


def test_the_program_alone(program, place):
    status, said = program("--gpus", "2")
    text = (place / "out/gpufleet.prom").read_text()
    assert status == DONE, said
    for line in ("gpufleet_nvml_answers 1", "gpufleet_gpus_present 2", "gpufleet_gpus_expected 2"):
        assert line in text.splitlines()
    assert json.loads((place / "state/textfile.json").read_text())["schema"] == "gpufleet.textfile-state/1"
    assert stat.S_IMODE((place / "lock").stat().st_mode) == 0o600


def test_nvml_that_cannot_be_read_is_told_and_no_failure(program, place, node):
    node.sim("inject", "error", "nvmlInitWithFlags", "9")
    try:
        status, said = program()
    finally:
        node.sim("clear")
    assert status == DONE and "snapshot" in said
    assert "gpufleet_nvml_answers 0" in (place / "out/gpufleet.prom").read_text().splitlines()


def test_a_directory_that_cannot_be_written_to_is_a_failure(program, place):
    (place / "out").rmdir()
    (place / "out").write_text("")
    status, said = program()
    assert status == NOT_WRITTEN and str(place / "out") in said


def test_of_two_runs_at_once_the_second_ends_at_once_and_writes_nothing(program, place):
    with open(str(place / "lock"), "w", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        status, said = program()
        assert status == BUSY and str(place / "lock") in said and list((place / "out").iterdir()) == []
    assert program()[0] == DONE, "the file is left, and nobody holds it"


@pytest.mark.parametrize("failed, status", [(False, DONE), (True, NOT_WRITTEN)])
def test_what_could_not_be_read_or_kept_is_told(place, monkeypatch, capsys, failed, status):
    seen = {}

    def run(sources, directory, data):
        seen.update(sources=sources, directory=directory, data=sorted(data))
        return textfile.Outcome("", ["holds: broken"], failed)

    monkeypatch.setattr(textfile, "run", run)
    monkeypatch.setattr(textfile, "tables", lambda package: {"xid": None, "node_series": None})
    assert main.run(arguments(place) + ["--gpus", "4", "--timeout", "7"]) == status
    assert "holds: broken" in capsys.readouterr().err
    assert seen["directory"] == str(place / "out") and seen["data"] == ["node_series", "xid"]
    given = [str(place / name) for name in ("state", "expectation", "boot-result", "mig-config")]
    assert seen["sources"] == readings.Sources(*given, digests=(str(place / "digests"),), gpus=4, timeout_s=7)


def test_what_most_nodes_need_not_is_not_imported(place):
    """Each run compiles what it imports: the judges of gpu_health alone would be half of what a run may cost."""
    code = (
        "import sys; sys.path.insert(0, %r); from gpufleet_node._program.main import parser; parser(); "
        "print(*sys.modules)"
    )
    path = place / "program.pyz"
    path.write_bytes(
        _node_program.pack(
            {
                "%s/%s" % (_node_program.PARENT, name): content
                for name, content in [("__init__.py", b""), *_node_program.code_files().items()]
            }
        )
    )
    done = simnode.run([sys.executable, "-I", "-c", code % str(path)], check=True)
    found = {name.split(".")[1] for name in done.stdout.split() if name.startswith("gpufleet_node.")}
    assert "_program" in found and not found & {"_health", "_mig", "_packages", "pynvml"}
