# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs by others, from the package index, read the simulated GPUs as they read real ones."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

# Runs on main only: programs of others ask the simulated library; the simulator's own Python takes no part.


@pytest.fixture(scope="module")
def clients():
    """Directory of the programs; not being able to install them is a failure."""
    done = subprocess.run([str(simnode.SIM / "clients.sh")], stdout=subprocess.PIPE, universal_newlines=True, timeout=600, check=True)
    return pathlib.Path(done.stdout.strip()) / "bin"


def run(node, *command):
    environment = dict(node.environment, COLUMNS="120", LINES="60", TERM="dumb")
    return subprocess.run([str(part) for part in command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=simnode.LIMIT_S, check=False)


def test_nvitop(booted, clients):
    booted.sim("inject", "stray-process", "--gpu", "1")
    done = run(booted, clients / "nvitop", "-1", "--no-unicode")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Driver Version: %s" % simnode.OLD in done.stdout
    assert done.stdout.count("H100 80GB HBM3") == 8
    assert "71W / 700W" in done.stdout
    assert "1024MiB / 79.65GiB" in done.stdout
    assert "sleep infinity" in done.stdout


def test_gpustat(booted, clients):
    booted.sim("inject", "stray-process", "--gpu", "1", "--value", "2048")
    done = run(booted, clients / "gpustat", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["driver_version"] == simnode.OLD
    assert [gpu["index"] for gpu in answer["gpus"]] == list(range(8))
    assert {(gpu["name"], gpu["memory.total"], gpu["temperature.gpu"], gpu["power.draw"], gpu["fan.speed"]) for gpu in answer["gpus"]} == {
        ("NVIDIA H100 80GB HBM3", 81559, 31, 71, None)}
    assert [len(gpu["processes"]) for gpu in answer["gpus"]] == [0, 1, 0, 0, 0, 0, 0, 0]
    assert answer["gpus"][1]["processes"][0]["gpu_memory_usage"] == 2048


@pytest.mark.parametrize("program, arguments", [("nvitop", ["-1"]), ("gpustat", ["--json"])])
def test_without_a_driver_they_fail(node, clients, program, arguments):
    node.kernel()
    node.library(simnode.OLD)
    node.sim("boot")
    assert run(node, clients / program, *arguments).returncode != 0


def test_on_a_board_with_less(make_node, clients):
    node = make_node("l4").booted()
    assert run(node, clients / "nvitop", "-1", "--no-unicode").stdout.count(" L4 ") == 4
    assert len(json.loads(run(node, clients / "gpustat", "--json").stdout)["gpus"]) == 4
