# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpufleet-node as a node runs it: one file, without Ansible and without the binding installed; its exit statuses, and
what it refuses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding, _node_program
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._mig.mignode import everywhere, mig, named
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons

WANTED = {"d3g_40gb": 1, "d1g_10gb": 2}


@pytest.fixture
def node(make_node):
    return make_node(gpus=2).booted()


@pytest.fixture
def build(monkeypatch):
    """The program, with the binding of a wheel."""
    version = wheels.VERSIONS[-1]
    source = (wheels.path(version) / "pynvml.py").read_bytes()
    monkeypatch.setattr(_binding, "find", lambda: _binding.Binding(source, version, ""))
    return _node_program.build


@pytest.fixture
def program(tmp_path, build, node):
    """program(*words): (exit status, output) on the node."""
    path = tmp_path / "gpufleet-node.pyz"
    path.write_bytes(build().data)

    def run(*words, config=None):
        arguments = [
            "--config",
            str(config or tmp_path / "mig.json"),
            "--lock-file",
            str(tmp_path / "lock"),
            "--lock-timeout",
            "0",
        ]
        done = simnode.run(
            [sys.executable, "-I", str(path), *words, *(arguments if words[:1] == ("mig",) else [])],
            env=node.environment,
            stderr=subprocess.STDOUT,
        )
        return done.returncode, done.stdout

    (tmp_path / "mig.json").write_text(json.dumps(everywhere(**WANTED)))
    return run


def test_the_same_code_gives_the_same_bytes(build):
    first, second = build(), build()
    assert first == second and len(first.sha256) == 64 and first.binding_version == wheels.VERSIONS[-1]


def test_without_a_binding_there_is_no_program(monkeypatch):
    def none():
        raise _binding.BindingError("the controller has no nvidia-ml-py")

    monkeypatch.setattr(_binding, "find", none)
    with pytest.raises(_binding.BindingError):
        _node_program.build()


def test_assert_apply_assert_apply(program, node):
    status, said = program("mig", "assert")
    assert status == 1 and "GPU 0" in said and "MIG off" in said
    assert mig(node, state="exported")["config"]["mig-configs"]["current"][0]["mig-enabled"] is False, "it only looked"
    assert program("mig", "apply")[0] == 0
    assert mig(node, check=True, **everywhere(**WANTED))["changed"] is False
    assert program("mig", "assert")[0] == 0 and program("mig", "apply")[0] == 0


def test_a_layout_gpu_by_gpu_is_made_too(program, node, tmp_path):
    gpus = [
        {"gpus": [str(number)], "mig_enabled": bool(number), "mig_devices": named(WANTED) if number else {}}
        for number in range(2)
    ]
    (tmp_path / "gpus.json").write_text(json.dumps({"layout": gpus}))
    assert program("mig", "assert", config=tmp_path / "gpus.json")[0] == 1
    assert program("mig", "apply", config=tmp_path / "gpus.json")[0] == 0
    found = mig(node, check=True, layout=gpus)
    assert [row["before"]["enabled"] for row in found["gpus"]] == [False, True] and found["changed"] is False


def test_what_nvml_refuses_is_a_failure(program, node):
    node.sim("inject", "error", "nvmlDeviceCreateGpuInstanceWithPlacement", "999", "--gpu", "1")
    status, said = program("mig", "apply")
    assert status == 1 and "GPU 1" in said and program("mig", "assert")[0] == 1


def test_without_a_driver_it_fails(program, node):
    node.sim("inject", "error", "nvmlInitWithFlags", "9")
    assert program("mig", "apply")[0] == 1 and program("mig", "assert")[0] == 1


def test_who_changes_the_node_is_waited_for(program, tmp_path):
    import fcntl

    with open(str(tmp_path / "lock"), "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        status, said = program("mig", "apply")
        assert status == 1 and "locked" in said
        assert program("mig", "assert")[0] == 1, "which needs no lock, and the layout is not there"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"config": {"version": "v1"}, "config_name": "wanted"}',
        '{"config": {"version": "v2"}, "config_name": "wanted"}',
        json.dumps(dict(everywhere(), config_name="other")),
        '{"layout": []}',
        '{"layout": {}}',
        '{"layout": [{"mig_devices": {}}]}',
        '{"layout": ["all"]}',
        '{"layout": [{"mig_enabled": true}]}',
    ],
)
def test_a_configuration_that_cannot_be_used_is_told(program, tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    for verb in ("assert", "apply"):
        status, said = program("mig", verb, config=tmp_path / "bad.json")
        assert status == 2 and str(tmp_path / "bad.json") in said and "Traceback" not in said


def test_a_configuration_that_others_can_change_is_not_used(program, tmp_path):
    os.chmod(str(tmp_path / "mig.json"), 0o666)
    assert program("mig", "assert")[0] == 2
    os.chmod(str(tmp_path / "mig.json"), 0o644)
    os.symlink(str(tmp_path / "mig.json"), str(tmp_path / "link.json"))
    assert program("mig", "assert", config=tmp_path / "link.json")[0] == 2
    assert program("mig", "assert", config=tmp_path / "none.json")[0] == 2


@pytest.fixture(name="boot_check")
def _boot_check(tmp_path, build, node):
    """boot_check(result): (exit status, the verdict on the output, the one in the file or None, what a person is
    told).
    """
    path = tmp_path / "gpufleet-node.pyz"
    path.write_bytes(build().data)

    def run(result):
        done = simnode.run(
            [
                sys.executable,
                "-I",
                str(path),
                "boot-check",
                "--expectation",
                str(tmp_path / "boot-check.json"),
                "--result",
                str(result),
                "--timeout",
                "60",
            ],
            env=node.environment,
        )
        assert "Traceback" not in done.stderr, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines()]
        return (
            done.returncode,
            said[0] if len(said) == 1 else said,
            json.loads(result.read_text()) if result.is_file() else None,
            done.stderr,
        )

    return run


def test_the_check_at_boot_without_an_expectation(boot_check, tmp_path):
    result = tmp_path / "run" / "gpufleet" / "boot-check.json"
    result.parent.mkdir(parents=True)
    result.write_text(json.dumps({"verdict": "pass"}))
    status, said, kept, told = boot_check(result)
    assert status == 5 and said == kept and (said["schema"], said["verdict"]) == ("gpufleet.health/1", "unknown")
    assert [check["id"] for check in said["checks"]] == ["boot.missing"] and str(tmp_path / "boot-check.json") in told


def test_the_check_at_boot_of_this_machine_by_the_program_alone(boot_check, tmp_path):
    """Its NVML is the simulator's and all else is this machine's, which has no such driver.

    The tables of the collection are in the program.
    """
    (tmp_path / "boot-check.json").write_text(
        json.dumps(
            {
                "schema": "gpufleet.boot-expectation/1",
                "driver_version": "1.2.3",
                "hardware": {"gpus": 2},
                "mig_file": str(tmp_path / "mig.json"),
                "policy": {},
            }
        )
    )
    (tmp_path / "mig.json").write_text(json.dumps(everywhere(**WANTED)))
    (tmp_path / "mig.json").chmod(0o644)
    status, said, kept, told = boot_check(tmp_path / "boot" / "result.json")
    assert status == 1 and said["verdict"] == kept["verdict"] == "fail" and said["simulated"] and "driver.nvml" in told
    found = dict(((check["id"], check["entity"]), check) for check in kept["checks"])
    assert found[("nvml.answers", "node")]["status"] == "pass" and found[("driver.nvml", "node")]["expected"] == "1.2.3"
    assert [check["status"] for (ident, dummy), check in found.items() if ident == "gpu.mig_layout"] == ["fail", "fail"]
    assert [check["status"] for (ident, dummy), check in found.items() if ident == "gpu.hardware"] == [
        "pass",
        "pass",
    ], "by the table of boards"
    assert len(said["checks"]) < len(kept["checks"]) and said["left_out"]["pass"]


def test_a_verdict_that_cannot_be_written_is_no_pass(boot_check, tmp_path):
    (tmp_path / "file").write_text("")
    status, said, kept, told = boot_check(tmp_path / "file" / "result.json")
    assert (status, said, kept) == (4, [], None) and told


@pytest.mark.parametrize("words", [(), ("mgi",)])
def test_a_command_line_that_cannot_be_read(program, words):
    status, said = program(*words)
    assert status == 2 and "usage: gpufleet-node" in said
