# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role nvidia_fabricmanager on simulated nodes: what it writes, what it restarts, and that the fabric and no unit
is its proof.
"""

from __future__ import annotations

import pathlib

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_node
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w

pytestmark = pytest.mark.slow

UNIT = "nvidia-fabricmanager.service"
STOPPED = ("loaded", "inactive", "dead", "success", "disabled")
CONFIG = """# Options of a fabric manager, as its package has them.
#   0 - bare metal
FABRIC_MODE=0
FABRIC_MODE_RESTART=0
LOG_LEVEL=4
"""


@pytest.fixture(name="node")
def _node(healthy, tmp_path):
    """Makes a node whose fabric manager was never started: its GPUs have joined nothing until it is."""
    made = []

    def make(model="h200", started=False):
        world = healthy(model).copy(tmp_path / ("root%d" % len(made)))
        node = simulated_node.SimulatedNode(tmp_path / ("node%d" % len(made)), world, ["nvidia_fabricmanager"])
        made.append(node)
        world.write("fabricmanager.cfg", CONFIG)
        node.program(
            "modprobe",
            'mkdir -p "%s/run/gpusim/sys/module/$1" && echo live > "%s/run/gpusim/sys/module/$1/initstate"'
            % (node.root, node.root),
        )
        if not started:
            node.unit(UNIT, *STOPPED)
            world.sim(*"inject fabric-stuck --value 1 --gpu all".split())
            node.on_start(UNIT, "clear fabric-stuck")
        return node

    yield make
    for node in made:
        node.close()


def variables_of(node, **given):
    root = pathlib.Path(str(node.root))
    known = dict(
        nvidia_fabricmanager_config_file=str(root / "fabricmanager.cfg"),
        __nvidia_fabricmanager_mark=str(root / "mark"),
        __nvidia_fabricmanager_modules_file=str(root / "modules.conf"),
        __nvidia_fabricmanager_modules_loaded=str(root / "sys/module"),
        nvidia_fabricmanager_timeout=1,
        nvidia_fabricmanager_delay=1,
    )
    return dict(known, **given)


def play(node, *options, **given):
    return node.play("nvidia_fabricmanager", *options, **variables_of(node, **given))


def config(node):
    return (node.root / "fabricmanager.cfg").read_text()


@pytest.mark.cores
def test_a_node_with_switches(node):
    """Foreseen, done, nothing left to do; the GPUs have joined, and the file has what was asked for and else what it
    had.
    """
    one = node()
    asked = {"FABRIC_MODE_RESTART": 1, "ABORT_CUDA_JOBS_ON_FM_EXIT": 1}
    foreseen = play(one, "--check", nvidia_fabricmanager_config=asked)
    assert (foreseen.rc, foreseen.failed) == (0, 0), foreseen.output
    assert foreseen.changed == 2 and one.log == [] and config(one) == CONFIG and not (one.root / "mark").exists()

    done = play(one, nvidia_fabricmanager_config=asked)
    assert (done.rc, done.changed) == (0, 2), done.output
    assert config(one) == CONFIG.replace("RESTART=0", "RESTART=1") + "ABORT_CUDA_JOBS_ON_FM_EXIT=1\n"
    assert one.log == ["enable " + UNIT, "start " + UNIT] and not (one.root / "mark").exists()
    assert one.state["units"][UNIT][1] == "active" and one.state["units"][UNIT][4] == "enabled"

    again = play(one, nvidia_fabricmanager_config=asked)
    assert (again.rc, again.changed) == (0, 0), again.output
    assert len(one.log) == 2


def test_a_unit_that_runs_is_no_proof(node):
    """It is active and of the right version, and the GPUs have joined nothing."""
    one = node()
    one.on_start(UNIT, "faults")
    result = play(one)
    assert result.rc != 0 and one.state["units"][UNIT][1] == "active"
    assert "is not proven after 1 s" in result.words
    for index in (0, 1):
        assert one.world.uuid(index) in result.words


@pytest.mark.parametrize("fault", ["inject fabric-unhealthy --gpu 1", "inject fabric-stuck --gpu 1"])
def test_one_gpu_that_has_not_joined_a_healthy_fabric(node, fault):
    one = node(started=True)
    one.world.sim(*fault.split())
    result = play(one)
    assert result.rc != 0 and one.world.uuid(1) in result.words and one.world.uuid(0) not in result.words


def test_another_version_is_refused_before_anything_is_changed(node):
    one = node()
    one.services(daemons={"nv-fabricmanager": w.NEWER})
    for options in ([], ["--check"]):
        result = play(one, *options, nvidia_fabricmanager_config={"LOG_LEVEL": 3})
        assert result.rc != 0 and one.log == [] and config(one) == CONFIG
        for words in (w.NEWER, w.DRIVER, "Next step", "nvidia_driver_components", "gpu-1"):
            assert words in result.words


def test_what_cannot_be_seen_is_no_node_without_a_fabric(node):
    one = node()
    one.world.remove("run/gpusim/sys/bus")
    result = play(one)
    assert result.rc != 0 and one.log == [] and "NVSwitches on the PCI bus cannot be listed" in result.words


def test_a_node_without_a_fabric_is_left_alone(node):
    one = node("l4", started=True)
    result = play(one, nvidia_fabricmanager_config={"LOG_LEVEL": 3})
    assert (result.rc, result.changed) == (0, 0), result.output
    assert one.log == [] and config(one) == CONFIG and "needs no fabric manager" in result.words


def test_no_restart_while_gpus_are_in_use(node):
    one = node(started=True)
    one.world.sim(*"inject stray-process --gpu 1".split())
    refused = play(one, nvidia_fabricmanager_config={"LOG_LEVEL": 3})
    assert refused.rc != 0 and one.log == [] and config(one) == CONFIG
    assert "pid" in refused.words and "Drain the node" in refused.words
    # what changes nothing is no reason to refuse
    assert play(one).rc == 0


def test_a_run_that_ended_between_the_file_and_the_restart(node):
    one = node(started=True)
    (one.root / "mark").write_text("")
    result = play(one)
    assert result.rc == 0, result.output
    assert one.log == ["restart " + UNIT] and not (one.root / "mark").exists()


def test_options_that_there_are_not(node):
    one, wrong = node(), [{"FABRIC_MODE": 3}, {"FABRIC_MODES": 0}, {"LOG_LEVEL": "loud"}]
    given = [variables_of(one, nvidia_fabricmanager_config=options) for options in wrong]
    reasons, result = one.cases(*([one.include("nvidia_fabricmanager", **variables)] for variables in given))
    assert all(name in reason for options, reason in zip(wrong, reasons) for name in options), result.output
    assert one.log == [] and config(one) == CONFIG


def test_boards_with_nvlink_5(node):
    """The modules are loaded now and at each boot; without the subnet manager nothing is started."""
    one = node("b200")
    one.world.remove("run/gpusim/sys/module/ib_umad")
    one.world.remove(w.SUBNET_MANAGER)
    one.world.remove(w.SUBNET_PROCESS)
    refused = play(one)
    assert refused.rc != 0 and one.log == [] and "nvlsm" in refused.words and "4 adapters" in refused.words
    one.world.write(w.SUBNET_MANAGER, "")
    one.world.write(w.SUBNET_PROCESS, "nvlsm\n")
    done = play(one)
    assert (done.rc, done.changed) == (0, 3), done.output
    assert (one.root / "modules.conf").read_text().split("\n")[1:] == ["mlx5_core", "ib_umad", ""]
    assert (one.root / "run/gpusim/sys/module/ib_umad").is_dir()
    again = play(one)
    assert (again.rc, again.changed) == (0, 0), again.output


def test_first_run_in_check_mode_on_a_node_that_has_nothing_yet(node):
    one = node()
    (one.root / "fabricmanager.cfg").unlink()
    one.world.remove("usr/bin/nv-fabricmanager")
    one.unit(UNIT, "not-found", "inactive", "dead", "success", "")
    foreseen = play(one, "--check", nvidia_fabricmanager_config={"LOG_LEVEL": 3})
    assert (foreseen.rc, foreseen.changed) == (0, 1), foreseen.output
    refused = play(one, nvidia_fabricmanager_config={"LOG_LEVEL": 3})
    assert refused.rc != 0 and "is not installed" in refused.words and one.log == []
