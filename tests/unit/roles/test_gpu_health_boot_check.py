# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check at boot as role gpu_health installs it: what it writes, what does not start without it, what it refuses."""

from __future__ import annotations

import hashlib
import pathlib

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_node
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w

pytestmark = pytest.mark.slow

UNIT, DROPIN = "gpufleet-boot-check.service", "gpufleet-boot-check.conf"
PROGRAM = [
    "plugins/action/node_program.py",
    "plugins/modules/node_program.py",
    "plugins/module_utils/_mig",
    "plugins/module_utils/_program",
]
WANTED = {"gpu_health_expected_driver_version": w.DRIVER, "gpu_health_expect": {"hardware": {"gpus": 2}}}


@pytest.fixture(name="node")
def _node(healthy, tmp_path):
    """A node whose program answers that it passes."""
    node = simulated_node.SimulatedNode(tmp_path / "node", healthy().copy(tmp_path / "root"), ["gpu_health"], PROGRAM)
    node.program("python-of-boot", 'echo "$@" >> "%s/ran"' % node.root)
    node.unit(UNIT, "loaded", "inactive", "dead", "success", "disabled")  # as systemd has it once the file is there
    yield node
    node.close()


def units(node):
    return pathlib.Path(str(node.root)) / "systemd"


def play(node, *options, **variables):
    root = pathlib.Path(str(node.root))
    paths = dict(
        __gpu_health_units=str(units(node)),
        __gpu_health_program=str(root / "lib/gpufleet-node.pyz"),
        __gpu_health_expectation=str(root / "boot/boot-check.json"),
        __gpu_health_python=str(node.bin / "python-of-boot"),
    )
    return node.play("gpu_health", *options, tasks_from="boot_check", **dict(dict(WANTED, **paths), **variables))


def expectation(node):
    return boot_expectation.read_expectation(str(node.root / "boot/boot-check.json"))


def dropins(node):
    return sorted(str(path.relative_to(units(node))) for path in units(node).rglob(DROPIN))


@pytest.mark.cores
def test_foreseen_done_and_nothing_left_to_do(node):
    foreseen = play(node, "--check")
    assert (foreseen.rc, foreseen.failed) == (0, 0), foreseen.output
    assert foreseen.changed and not units(node).exists() and node.log == []
    done = play(node)
    assert done.rc == 0, done.output
    program = node.root / "lib/gpufleet-node.pyz"
    assert (node.root / "lib/gpufleet-node.pyz.sha256").read_text() == "%s  %s\n" % (
        hashlib.sha256(program.read_bytes()).hexdigest(),
        program,
    )
    found = expectation(node)
    assert (found["driver_version"], found["hardware"], found["mig_file"]) == (w.DRIVER, {"gpus": 2}, None)
    assert found["policy"] == w.POLICY
    assert dropins(node) == ["kubelet.service.d/" + DROPIN, "slurmd.service.d/" + DROPIN]
    for path in units(node).rglob(DROPIN):
        assert {"Requires=" + UNIT, "After=" + UNIT} <= set(path.read_text().splitlines())
    unit = (units(node) / UNIT).read_text().splitlines()
    after, before, started = (
        [line.split("=", 1)[1] for line in unit if line.startswith(key)] for key in ("After=", "Before=", "ExecStart=")
    )
    assert {"nvidia-persistenced.service", "nvidia-fabricmanager.service", "gpufleet-mig.service"} <= set(
        after[0].split()
    )
    assert set(before[0].split()) == {"slurmd.service", "kubelet.service"}
    assert not [line for line in unit if line.startswith(("Requires", "Wants"))]
    assert "WantedBy=multi-user.target" in unit and "Condition" not in "".join(unit), "without its expectation it fails"
    ran = (node.root / "ran").read_text().splitlines()
    assert len(ran) == 1 and started[0].endswith(" " + ran[0]) and " boot-check " in ran[0], (
        "what the unit runs, once, by the role"
    )
    assert "enable " + UNIT in node.log
    assert not [line for line in node.log if line.startswith(("start", "restart", "stop"))]
    again = play(node)
    assert (again.rc, again.changed) == (0, 0), again.output


def test_whom_it_keeps_from_starting_is_the_variables_choice(node):
    assert play(node, nvidia_mig_config="all-1g.10gb").rc == 0 and len(dropins(node)) == 2
    assert expectation(node)["mig_file"] == "/etc/gpufleet/mig.json", "a layout is wanted where one is named"
    result = play(node, gpu_health_boot_required_by=["slurmd.service"])
    assert (
        result.rc == 0 and dropins(node) == ["slurmd.service.d/" + DROPIN] and node.log.count("daemon-reload") == 2
    ), result.output


def test_what_is_refused(node):
    """Nothing keeps a scheduler from starting, neither by half an expectation nor for a node that does not pass."""
    result = play(node, gpu_health_expect={"hardware": {"model": "NVIDIA H100*"}})
    assert result.rc != 0 and "hardware" in result.words and "gpu-1" in result.words, result.output
    assert not (node.root / "boot/boot-check.json").exists()
    node.program("python-of-boot", "echo GPU health FAIL >&2; exit 1")
    result = play(node)
    assert result.rc != 0 and "GPU health FAIL" in result.words, result.output
    assert dropins(node) == [] and not (units(node) / UNIT).exists() and node.log == []
