# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nvidia-smi stand-in: the real one's failures, and a banner that says what it is."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons

OLD, NEW = simnode.OLD, simnode.NEW


def smi(node, *arguments, **keywords):
    return node.tool("nvidia-smi", *arguments, **keywords)


def test_the_table_says_that_it_is_simulated(booted):
    booted.sim("inject", "stray-process", "--gpu", "2")
    text = smi(booted).stdout
    assert "simulated by gpusim" in text
    assert "Driver Version: %s    CUDA Version: 12.2" % OLD in text
    assert len(re.findall(r"NVIDIA H100 80GB HBM3", text)) == 8
    assert re.search(r"GPU 2  PID \d+  Type C  1024 MiB", text)


def test_list(booted):
    lines = smi(booted, "-L").stdout.splitlines()
    assert len(lines) == 8
    assert re.fullmatch(r"GPU 0: NVIDIA H100 80GB HBM3 \(UUID: GPU-[0-9a-f-]{36}\)", lines[0])


def test_queries(booted):
    fields = "index,driver_version,memory.total,ecc.mode.current,persistence_mode,pci.bus_id,remapped_rows.pending,power.limit"
    lines = smi(booted, "--query-gpu=" + fields, "--format=csv").stdout.splitlines()
    assert lines[0] == "index, driver_version, memory.total [MiB], ecc.mode.current, persistence_mode, pci.bus_id, remapped_rows.pending, power.limit [W]"
    assert lines[1] == "0, %s, 81559 MiB, Enabled, Disabled, 00000000:1B:00.0, 0, 700.00 W" % OLD
    assert smi(booted, "--query-gpu", "memory.total,power.limit", "--format=csv,noheader,nounits", "-i", "3").stdout == "81559, 700.00\n"


def test_not_supported(make_node):
    node = make_node("l4").booted()
    assert smi(node, "--query-gpu=mig.mode.current", "--format=csv,noheader", "-i", "0").stdout == "[N/A]\n"


def test_long_and_xml(booted):
    assert "Attached GPUs                             : 8" in smi(booted, "-q").stdout
    tree = ElementTree.fromstring(smi(booted, "-q", "-x").stdout)
    assert tree.findtext("driver_version") == OLD
    assert len(tree.findall("gpu")) == 8
    assert tree.find("gpu").findtext("uuid").startswith("GPU-")


def test_setting(booted):
    assert smi(booted, "-pm", "1").stdout.endswith("All done.\n")
    assert smi(booted, "--query-gpu=persistence_mode", "--format=csv,noheader", "-i", "0").stdout == "Enabled\n"
    smi(booted, "-pl", "450", "-i", "1")
    assert smi(booted, "--query-gpu=power.limit", "--format=csv,noheader", "-i", "1").stdout == "450.00 W\n"
    assert smi(booted, "-mig", "1", "-i", "1").returncode == 0
    assert smi(booted, "--query-gpu=mig.mode.current", "--format=csv,noheader", "-i", "1").stdout == "Enabled\n"
    assert smi(booted, "-pl", "9999", "-i", "1", check=False).returncode == 2


def test_without_a_driver(node):
    node.kernel()
    node.library(OLD)
    node.sim("boot")
    done = smi(node, check=False)
    assert done.returncode == 9
    assert done.stdout == ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is "
                           "installed and running.\n\n")


def test_with_a_library_of_another_version(booted):
    booted.library(NEW)
    done = smi(booted, "-L", check=False)
    assert (done.returncode, done.stdout) == (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.261\n")


def test_without_a_library(node):
    done = smi(node, check=False)
    assert done.returncode == 12
    assert done.stdout.startswith("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")


def test_a_lost_gpu(booted):
    booted.sim("inject", "gpu-lost", "--gpu", "1")
    done = smi(booted, "-L", check=False)
    assert done.returncode == 15
    assert "GPU is lost" in done.stdout
    assert smi(booted, "-L", "-i", "0").returncode == 0


@pytest.mark.parametrize("arguments", [["--frobnicate"], ["--query-gpu=nothing", "--format=csv"], ["--query-gpu=name"], ["-pm", "2"], ["-pl", "much"], ["-i"]])
def test_bad_arguments(booted, arguments):
    assert smi(booted, *arguments, check=False).returncode == 2
