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
    assert re.search(r"Driver Version: %s +CUDA Version: 12\.2 " % re.escape(OLD), text)
    assert len(re.findall(r"NVIDIA H100 80GB HBM3", text)) == 8
    assert re.search(r"\| +2 +N/A +N/A +\d+ +C +sleep +1024MiB \|", text)
    assert {len(line) for line in text.splitlines() if line[:1] in ("|", "+")} == {91}


def test_list(booted):
    lines = smi(booted, "-L").stdout.splitlines()
    assert len(lines) == 8
    assert re.fullmatch(r"GPU 0: NVIDIA H100 80GB HBM3 \(UUID: GPU-[0-9a-f-]{36}\)", lines[0])


def test_queries(booted):
    fields = (
        "index,driver_version,memory.total,ecc.mode.current,persistence_mode,pci.bus_id,remapped_rows.pending,"
        "power.limit"
    )
    lines = smi(booted, "--query-gpu=" + fields, "--format=csv").stdout.splitlines()
    assert (
        lines[0] == "index, driver_version, memory.total [MiB], ecc.mode.current, persistence_mode, pci.bus_id, "
        "remapped_rows.pending, power.limit [W]"
    )
    assert lines[1] == "0, %s, 81559 MiB, Enabled, Disabled, 00000000:1B:00.0, No, 700.00 W" % OLD
    assert (
        smi(booted, "--query-gpu", "memory.total,power.limit", "--format=csv,noheader,nounits", "-i", "3").stdout
        == "81559, 700.00\n"
    )


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
    assert done.stdout == (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.\n\n"
    )


def test_with_a_library_of_another_version(booted):
    booted.library(NEW)
    done = smi(booted, "-L", check=False)
    assert (done.returncode, done.stdout) == (
        18,
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.261\n",
    )


def test_without_a_library(node):
    done = smi(node, check=False)
    assert done.returncode == 12
    assert done.stdout.startswith("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")


def test_a_lost_gpu(booted):
    booted.sim("inject", "gpu-lost", "--gpu", "1")
    done = smi(booted, "-L", check=False)
    assert (done.returncode, done.stdout) == (
        15,
        (
            "Unable to determine the device handle for GPU0000:43:00.0: GPU is lost.  Reboot the system to "
            "recover this GPU\n"
        ),
    )
    assert smi(booted, "-L", "-i", "0").returncode == 0


def test_bad_arguments(booted):
    for arguments in (["--query-gpu=name"], ["-pm", "2"], ["-pl", "much"], ["-i"], ["-q", "-L"]):
        assert smi(booted, *arguments, check=False).returncode == 2, arguments


def test_what_it_cannot_do_ends_as_with_the_real_one(booted):
    for arguments in (
        ["--frobnicate"],
        ["dmon"],
        ["pmon", "-c", "1"],
        ["vgpu", "-q"],
        ["topo", "-p2p", "r"],
        ["nvlink", "-R"],
        ["-q", "-d", "NOTHING"],
        ["-d", "ECC"],
        ["-x"],
        ["--query-gpu=name", "--format=csv,pretty"],
        ["--help-query-nothing"],
        ["-q", "-u"],
        ["-l", "1"],
    ):
        done = smi(booted, *arguments, check=False)
        assert (done.returncode, done.stdout) == (
            2,
            "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n",
        ), arguments


def test_what_the_readme_says_of_command_lines_is_so(booted):
    text = (simnode.SIM / "README.md").read_text(encoding="utf-8").split("## nvidia-smi\n")[1].split("\n## ")[0]
    missing = re.findall(r"`([^`]+)`", text.split("Not there:")[1].split("and other switches")[0])
    assert len(missing) > 40
    assert [word for word in missing if smi(booted, word, "1", check=False).returncode != 2] == []
    working = [
        words.replace("\\|", "|")
        for line in text.splitlines()
        if line.startswith("| `")
        for words in re.findall(r"`([^`]+)`", line.split(" | ")[0])
    ]
    values = {"FIELDS": "name", "SECTION,...": "ECC", "0|1": "0", "WATTS": "400", "csv[,noheader][,nounits]": "csv"}
    for words in working:
        for name, value in values.items():
            words = words.replace(name, value)
        if words.endswith("="):
            words += "gpu_uuid --format=csv"
        assert smi(booted, *words.replace("nvidia-smi", "").split(), check=False).returncode == 0, words


def test_a_gpu_by_each_of_its_names(booted):
    serial, uuid = booted.ask("[text(n.nvmlDeviceGetSerial, handle(1)), text(n.nvmlDeviceGetUUID, handle(1))]")
    for name in ("1", uuid, serial, "00000000:43:00.0", "0000:43:00.0", "43:00.0", "0000:43:00.0".lower()):
        assert smi(booted, "--query-gpu=index", "--format=csv,noheader", "-i", name).stdout == "1\n", name
    assert smi(booted, "--id=0,%s" % uuid, "--query-gpu=index", "--format=csv,noheader").stdout == "0\n1\n"
    for name in ("8", "GPU-00000000-0000-0000-0000-000000000000", "0000:44:00.0"):
        done = smi(booted, "-L", "-i", name, check=False)
        assert (done.returncode, done.stdout) == (6, "No devices were found\n"), name


def test_mig_devices_stand_below_their_gpu(booted):
    booted.sim("mig", "3g.40gb", "1g.10gb", "--gpu", "1")
    lines = smi(booted, "-L", "-i", "1").stdout.splitlines()
    assert [re.sub(r"UUID: \S+", "UUID)", line) for line in lines[1:]] == [
        "  MIG 3g.40gb     Device  0: (UUID)",
        "  MIG 1g.10gb     Device  1: (UUID)",
    ]
    uuids = booted.ask(
        "[text(n.nvmlDeviceGetUUID, n.nvmlDeviceGetMigDeviceHandleByIndex(handle(1), index)) for index in (0, 1)]"
    )
    assert [re.search(r"MIG-[0-9a-f-]+", line).group() for line in lines[1:]] == uuids


def test_into_a_file(booted, tmp_path):
    assert smi(booted, "-L", "-f", str(tmp_path / "list")).stdout == ""
    assert len((tmp_path / "list").read_text().splitlines()) == 8


def test_version(booted):
    assert re.findall(r"(?m)^(.*\S) +: (\S+)$", smi(booted, "--version").stdout) == [
        ("NVIDIA-SMI version", OLD),
        ("NVML version", OLD.rsplit(".", 1)[0]),
        ("DRIVER version", OLD),
        ("CUDA Version", "12.2"),
    ]
