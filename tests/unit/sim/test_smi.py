# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nvidia-smi stand-in: the real one's failures, and a banner that says what it is."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

OLD, NEW = simnode.OLD, simnode.NEW


def smi(node, *arguments, **keywords):
    return node.tool("nvidia-smi", *arguments, **keywords)


def query(node, fields, *arguments, form="csv,noheader"):
    return smi(node, "--query-gpu=" + ",".join(fields), "--format=" + form, *arguments).stdout.splitlines()


def test_summary_has_versions_gpus_and_processes_and_says_that_it_is_simulated(booted):
    booted.sim("inject", "stray-process", "--gpu", "2")
    text = smi(booted).stdout
    assert "simulated by gpusim" in text
    assert re.search(r"Driver Version: %s +CUDA Version: 12\.2 " % re.escape(OLD), text)
    assert len(re.findall(r"NVIDIA H100 80GB HBM3", text)) == 8
    assert re.search(r"\| +2 +N/A +N/A +\d+ +C +sleep +1024MiB \|", text)
    assert {len(line) for line in text.splitlines() if line[:1] in ("|", "+")} == {91}


def test_list_has_gpus_and_their_mig_devices(booted):
    booted.sim("mig", "3g.40gb", "1g.10gb", "--gpu", "1")
    lines = smi(booted, "-L").stdout.splitlines()
    uuids = booted.ask(
        "[text(n.nvmlDeviceGetUUID, handle(0))] + [text(n.nvmlDeviceGetUUID, "
        "n.nvmlDeviceGetMigDeviceHandleByIndex(handle(1), index)) for index in (0, 1)]"
    )
    assert len(lines) == 10
    assert [lines[number] for number in (0, 2, 3)] == [
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: %s)" % uuids[0],
        "  MIG 3g.40gb     Device  0: (UUID: %s)" % uuids[1],
        "  MIG 1g.10gb     Device  1: (UUID: %s)" % uuids[2],
    ]


def test_query_has_headings_and_units(booted):
    fields = ["index", "driver_version", "memory.total", "ecc.mode.current", "pci.bus_id", "power.limit", "fan.speed"]
    assert query(booted, fields, "-i", "0", form="csv") == [
        "index, driver_version, memory.total [MiB], ecc.mode.current, pci.bus_id, power.limit [W], fan.speed [%]",
        "0, %s, 81559 MiB, Enabled, 00000000:1B:00.0, 700.00 W, [N/A]" % OLD,
    ]
    assert query(booted, fields[2:4], "-i", "3", form="csv,noheader,nounits") == ["81559, Enabled"]


def test_query_has_the_reason_where_there_is_no_value(booted):
    booted.sim("inject", "reset-required", "--gpu", "0")
    booted.sim("inject", "error", "nvmlDeviceGetPowerUsage", "999", "--gpu", "1")
    booted.sim("inject", "remap-pending", "--gpu", "2")
    assert query(booted, ["uuid", "power.draw", "remapped_rows.pending"])[0] == ", ".join(["[GPU requires reset]"] * 3)
    assert query(booted, ["power.draw", "remapped_rows.pending"], "-i", "1,2") == [
        "[Unknown Error], No",
        "71.25 W, Yes",
    ]


def test_gpus_are_found_by_each_of_their_names(booted):
    serial, uuid = booted.ask("[text(n.nvmlDeviceGetSerial, handle(1)), text(n.nvmlDeviceGetUUID, handle(1))]")
    for name in ("1", uuid, serial, "00000000:43:00.0", "0000:43:00.0", "43:00.0", "0000:43:00.0".lower()):
        assert query(booted, ["index"], "-i", name) == ["1"], name
    assert query(booted, ["index"], "--id=0,%s" % uuid) == ["0", "1"]
    for name in ("8", "GPU-00000000-0000-0000-0000-000000000000", "0000:44:00.0"):
        done = smi(booted, "-L", "-i", name, check=False)
        assert (done.returncode, done.stdout) == (6, "No devices were found\n"), name


def test_documents_have_the_driver_the_gpus_and_their_processes(booted):
    booted.sim("inject", "stray-process", "--gpu", "0")
    booted.sim("inject", "remap-pending", "--gpu", "1")
    tree = ElementTree.fromstring(smi(booted, "-q", "-x").stdout)
    assert (tree.findtext("driver_version"), tree.findtext("cuda_version")) == (OLD, "12.2")
    gpus = tree.findall("gpu")
    assert [gpu.get("id") for gpu in gpus] == query(booted, ["pci.bus_id"])
    assert [gpu.findtext("remapped_rows/remapped_row_pending") for gpu in gpus[:3]] == ["No", "Yes", "No"]
    assert [
        (item.findtext("type"), item.findtext("process_name"), item.findtext("used_memory"))
        for item in tree.findall("gpu/processes/process_info")
    ] == [("C", "sleep", "1024 MiB")]
    values = {element.tag: element.text for element in gpus[0].iter() if element.tag != "gpu" and not len(element)}
    lines = [
        line.split(":", 1)[1].strip() for line in smi(booted, "-q", "-i", "0").stdout.splitlines() if " : " in line
    ]
    assert set(values.values()) <= set(lines)
    assert len(values) > 50 and "Unknown" not in " ".join(lines)


@pytest.mark.parametrize(
    "sections, titles",
    [
        ("ecc,ROW_REMAPPER", ["ECC Mode", "ECC Errors", "Remapped Rows"]),
        ("TEMPERATURE", ["Temperature"]),
        ("PERFORMANCE,POWER", ["Performance State", "Clocks Event Reasons", "GPU Power Readings"]),
    ],
)
def test_sections(booted, sections, titles):
    text = smi(booted, "-q", "-d", sections, "-i", "0").stdout
    assert [title.strip() for title in re.findall(r"(?m)^    (\S[^:\n]*)", text)] == titles


@pytest.mark.parametrize("model, driver", [("l4", "535.216.03"), ("v100-sxm", "470.256.02"), ("h200", "590.48.01")])
def test_boards_and_drivers_with_less_answer_every_command(make_node, model, driver):
    node = make_node(model, 1)
    node.firmware(driver)
    node.booted(driver)
    for arguments in ([], ["-L"], ["-q"], ["-q", "-x"]):
        assert "Unknown" not in smi(node, *arguments).stdout, arguments


def test_persistence_mode(booted):
    assert smi(booted, "-pm", "1", "-i", "1").stdout.endswith("All done.\n")
    assert query(booted, ["persistence_mode"], "-i", "0,1") == ["Disabled", "Enabled"]


def test_what_is_not_known_is_refused(booted):
    for arguments in (
        ["dmon"],
        ["topo", "-m"],
        ["-pl", "450"],
        ["-h"],
        ["-pm", "2"],
        ["-i"],
        ["-x"],
        ["-q", "-L"],
        ["-d", "ECC"],
        ["-q", "-d", "CLOCK"],
        ["--query-gpu=name"],
        ["--query-gpu=name", "--format=csv,pretty"],
        ["--query-gpu=device_minor", "--format=csv"],
        ["-L", "--format=csv"],
        ["--gpu-reset", "-L"],
    ):
        done = smi(booted, *arguments, check=False)
        assert (done.returncode, "knows only these options" in done.stdout) == (2, True), arguments


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
