# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated nvidia-smi: what the collection and the tests on machines ask, and the real one's exit statuses."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

OLD, NEW = simnode.OLD, simnode.NEW


def smi(node, *arguments, **keywords):
    return node.tool("nvidia-smi", *arguments, **keywords)


def query(node, fields, *arguments):
    return smi(node, "--query-gpu=" + fields, "--format=csv,noheader", *arguments).stdout.splitlines()


def test_summary_has_versions_and_gpus_and_says_that_it_is_simulated(booted):
    text = smi(booted).stdout
    assert "simulated by gpusim" in text and "Driver Version: %s " % OLD in text and "CUDA Version: 12.2 " in text
    assert text.count("NVIDIA H100 80GB HBM3") == 8


def test_query_has_the_fields_of_each_gpu(booted):
    assert query(booted, "index,name,pci.bus_id", "-i", "0") == ["0, NVIDIA H100 80GB HBM3, 00000000:1B:00.0"]
    assert smi(booted, "-pm", "1", "-i", "1").stdout.endswith("All done.\n")
    assert query(booted, "persistence_mode", "-i", "0,1") == ["Disabled", "Enabled"]


def test_gpu_is_found_by_each_of_its_names(booted):
    serial, uuid = booted.ask("[text(n.nvmlDeviceGetSerial, handle(1)), text(n.nvmlDeviceGetUUID, handle(1))]")
    for name in ("1", uuid, serial, "00000000:43:00.0", "0000:43:00.0"):
        assert query(booted, "index,uuid", "-i", name) == ["1, " + uuid], name
    for name in ("8", "GPU-00000000-0000-0000-0000-000000000000", "0000:44:00.0"):
        assert smi(booted, "-pm", "1", "-i", name, check=False).returncode == 6, name


def test_gpu_after_a_missing_one_keeps_its_name(booted):
    booted.sim("inject", "gpu-missing", "--gpu", "0")
    assert query(booted, "index,pci.bus_id")[0] == "0, 00000000:43:00.0"


def test_document_has_the_driver_the_gpus_and_their_processes(booted):
    booted.sim("inject", "stray-process", "--gpu", "2")
    tree = ElementTree.fromstring(smi(booted, "-q", "-x").stdout)
    assert (tree.findtext("driver_version"), tree.findtext("attached_gpus")) == (OLD, "8")
    gpus = tree.findall("gpu")
    assert [gpu.get("id") for gpu in gpus] == query(booted, "pci.bus_id")
    assert [len(gpu.findall("processes/process_info")) for gpu in gpus] == [0, 0, 1, 0, 0, 0, 0, 0]
    (process,) = tree.findall("gpu/processes/process_info")
    assert [element.text for element in process][1:] == ["C", "sleep", "1024 MiB"]


@pytest.mark.parametrize(
    "words",
    ["dmon", "-L", "-q", "-q -d ECC", "-pm 2", "-i", "-x", "--query-gpu=name", "--gpu-reset -x"]
    + ["--query-gpu=%s --format=csv,noheader" % field for field in ("serial", "name,power.draw")],
)
def test_other_command_lines_are_refused(booted, words):
    done = smi(booted, *words.split(), check=False)
    assert (done.returncode, "knows only these options" in done.stdout) == (2, True)


@pytest.mark.parametrize(
    "prepare, status",
    [
        (lambda node: node.library(None), 12),
        (lambda node: node.tool("rmmod", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"), 9),
        (lambda node: node.library(NEW), 18),
        (lambda node: node.sim("inject", "gpu-lost", "--gpu", "1"), 15),
    ],
    ids=["no library", "no driver", "another version", "a lost GPU"],
)
def test_failure_of_nvml_is_the_exit_status(booted, prepare, status):
    prepare(booted)
    done = smi(booted, check=False)
    assert done.returncode == status and done.stdout
