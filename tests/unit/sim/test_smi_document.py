# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi -q as XML and as text, and what tells how GPUs are connected: the places that others read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

# What Telegraf's input reads of a GPU, by the schema that it takes from the document type; of 13, with what an H100
# answers to driver 580.105.08.
BOTH = """performance_state product_name product_architecture uuid compute_mode serial vbios_version display_active \
display_mode ecc_mode/current_ecc
fan_speed fb_memory_usage/total fb_memory_usage/used fb_memory_usage/free fb_memory_usage/reserved
retired_pages/multiple_single_bit_retirement/retired_count retired_pages/double_bit_retirement/retired_count \
retired_pages/pending_blacklist
retired_pages/pending_retirement remapped_rows/remapped_row_corr remapped_rows/remapped_row_unc \
remapped_rows/remapped_row_pending
remapped_rows/remapped_row_failure temperature/gpu_temp utilization/gpu_util utilization/memory_util \
utilization/encoder_util
utilization/decoder_util utilization/jpeg_util utilization/ofa_util pci/pci_gpu_link_info/pcie_gen/current_link_gen
pci/pci_gpu_link_info/link_widths/current_link_width encoder_stats/session_count encoder_stats/average_fps \
encoder_stats/average_latency
fbc_stats/session_count fbc_stats/average_fps fbc_stats/average_latency clocks/graphics_clock clocks/sm_clock \
clocks/mem_clock clocks/video_clock
mig_mode/current_mig clocks_event_reasons/clocks_event_reason_hw_slowdown""".split()
V12 = [*BOTH, "gpu_power_readings/power_draw", "module_power_readings/power_draw", "gpu_reset_status/reset_required"]
V13 = {
    "product_brand": "NVIDIA",
    "product_architecture": "Hopper",
    "display_mode": "Requested functionality has been deprecated",
    "pci/pci_bus": "1B",
    "pci/pci_device_id": "233010DE",
    "pci/pci_sub_system_id": "16C110DE",
    "pci/pci_gpu_link_info/link_widths/max_link_width": "16x",
    "pci/replay_counter": "0",
    "gpu_recovery_action": "None",
    "ecc_errors/volatile/sram_uncorrectable_parity": "0",
    "ecc_errors/aggregate/sram_uncorrectable_secded": "0",
    "ecc_errors/aggregate/sram_threshold_exceeded": "No",
    "ecc_errors/aggregate_uncorrectable_sram_sources/sram_sm": "0",
    "ecc_errors/channel_repair_pending": "No",
    "remapped_rows/row_remapper_histogram/row_remapper_histogram_max": "2560 bank(s)",
    "temperature/gpu_temp_max_tlimit_threshold": "-8 C",
    "temperature/gpu_temp_slow_tlimit_threshold": "-2 C",
    "temperature/gpu_temp_max_gpu_tlimit_threshold": "0 C",
    "temperature/gpu_temp_max_mem_tlimit_threshold": "0 C",
    "gpu_power_readings/average_power_draw": "71.25 W",
    "gpu_power_readings/instant_power_draw": "71.25 W",
    "gpu_power_readings/current_power_limit": "700.00 W",
    "gpu_power_readings/min_power_limit": "200.00 W",
    "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake": "0 us",
    "applications_clocks/graphics_clock": "1980 MHz",
    "max_clocks/video_clock": "1545 MHz",
    "fabric/state": "Completed",
    "fabric/health/summary": "N/A",
    "capabilities/egm": "disabled",
    "board_id": "0x1b00",
    "inforom_version/img_version": "G520.0200.00.05",
}


def document(node, *arguments):
    text = node.tool("nvidia-smi", "-q", "-x", *arguments).stdout
    return text, ElementTree.fromstring(text)


def test_what_others_read_with_an_older_driver(booted):
    text, tree = document(booted)
    assert "nvsmi_device_v12.dtd" in text
    assert tree.findtext("cuda_version") == "12.2"
    for gpu in tree.findall("gpu"):
        assert [path for path in V12 if not (gpu.findtext(path) or "").strip()] == []
    assert gpu.findtext("gpu_power_readings/power_draw") == "71.25 W"


def test_what_others_read_with_a_newer_driver(make_node):
    text, tree = document(make_node().booted("580.105.08"))
    assert "nvsmi_device_v13.dtd" in text
    gpu = tree.find("gpu")
    assert [path for path in BOTH if not (gpu.findtext(path) or "").strip()] == []
    assert {path: gpu.findtext(path) for path in V13} == V13
    clocks = [item.text for item in gpu.findall("supported_clocks/supported_mem_clock/supported_graphics_clock")]
    assert (clocks[0], clocks[1], clocks[-1], len(clocks)) == ("1980 MHz", "1965 MHz", "345 MHz", 2 * 110)


def test_processes_and_mig_devices_in_the_document(booted):
    booted.sim("inject", "stray-process", "--gpu", "0")
    booted.sim("mig", "3g.40gb", "1g.10gb", "--gpu", "1")
    tree = document(booted)[1]
    busy, mig = tree.findall("gpu")[:2]
    assert [
        (item.findtext("type"), item.findtext("process_name"), item.findtext("used_memory"))
        for item in busy.findall("processes/process_info")
    ] == [("C", "sleep", "1024 MiB")]
    devices = mig.findall("mig_devices/mig_device")
    assert [device.findtext("index") for device in devices] == ["0", "1"]
    assert [device.findtext("device_attributes/shared/multiprocessor_count") for device in devices] == ["60", "16"]
    assert all(device.findtext("fb_memory_usage/total").endswith(" MiB") for device in devices)
    assert mig.findtext("utilization/gpu_util") == "N/A"
    assert mig.findtext("remapped_rows") == "N/A"


@pytest.mark.parametrize(
    "sections, titles",
    [
        ("MEMORY", ["FB Memory Usage", "BAR1 Memory Usage", "Conf Compute Protected Memory Usage"]),
        ("ecc,ROW_REMAPPER", ["ECC Mode", "ECC Errors", "Remapped Rows"]),
        ("COMPUTE", ["Compute Mode                          : Default"]),
        ("PERFORMANCE", ["Performance State                     : P0", "Clocks Event Reasons"]),
        ("SUPPORTED_CLOCKS", ["Supported Clocks"]),
    ],
)
def test_sections(booted, sections, titles):
    text = booted.tool("nvidia-smi", "-q", "-d", sections, "-i", "0").stdout
    assert "\n==============NVSMI LOG==============\n" in text
    assert re.findall(r"(?m)^    (\S.*)$", text) == titles


def test_boards_state_their_temperatures_as_degrees_or_as_what_is_left(make_node):
    assert re.findall(
        r"(GPU \w+ (?:T.Limit )?Temp) +: (\S+)",
        make_node("a100-sxm").booted("570.148.08").tool("nvidia-smi", "-q", "-d", "TEMPERATURE", "-i", "0").stdout,
    ) == [("GPU Current Temp", "31"), ("GPU Shutdown Temp", "92"), ("GPU Slowdown Temp", "89")]
    assert re.findall(
        r"(GPU \w+ T.Limit Temp|Temp T.Limit|GPU T.Limit Temp) +: (\S+)",
        make_node("l4").booted("550.90.07").tool("nvidia-smi", "-q", "-d", "TEMPERATURE", "-i", "0").stdout,
    ) == [("GPU T.Limit Temp", "56"), ("GPU Shutdown T.Limit Temp", "-5"), ("GPU Slowdown T.Limit Temp", "-2")]


# ---- connections ----


@pytest.mark.parametrize(
    "model, rows",
    [
        ("h100-sxm", [[" X "] + ["NV18"] * 7, ["NV18"] * 7 + [" X "]]),
        ("a100-sxm", [[" X ", "NV4", "NV4", "NV4"], ["NV4", "NV4", "NV4", " X "]]),
        ("v100-sxm", [[" X ", "NV2", "NV2", "NV2"], ["NV2", "NV2", "NV2", " X "]]),
        ("l4", [[" X ", "NODE", "SYS", "SYS"], ["SYS", "SYS", "NODE", " X "]]),
    ],
)
def test_matrix(make_node, model, rows):
    node = make_node(model).booted()
    lines = node.tool("nvidia-smi", "topo", "-m").stdout.splitlines()
    table = [line.split("\t") for line in lines if re.match(r"GPU\d", line)]
    assert (
        lines[0]
        == "\t\x1b[4m"
        + "\t".join("GPU%d" % gpu for gpu in range(len(table)))
        + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
    )
    assert [table[0][1:-4], table[-1][1:-4]] == rows
    assert [row[-4:] for row in (table[0], table[-1])] == [["0-1", "0", "", "N/A"], ["0-1", "1", "", "N/A"]]


def test_links(make_node):
    node = make_node("a100-sxm").booted()
    node.sim("inject", "nvlink-down", "--gpu", "0", "--link", "2")
    lines = node.tool("nvidia-smi", "nvlink", "-s").stdout.splitlines()
    assert len(lines) == 4 * 13
    assert lines[1:4] == ["\t Link 0: 25.781 GB/s", "\t Link 1: 25.781 GB/s", "\t Link 2: <inactive>"]
    # The other end of it.
    assert [number for number, line in enumerate(lines) if "inactive" in line] == [3, 3 * 13 + 1]
    node.sim("inject", "nvlink-errors", "crc_data", "--gpu", "1", "--link", "4", "--value", "7")
    text = node.tool("nvidia-smi", "nvlink", "-e", "-i", "1").stdout
    assert [line for line in text.splitlines() if re.search(r"Errors: [^0]", line) and "CRC" not in line] == []
    assert re.findall(r"\t Link (\d+): CRC Errors: [1-9]", text) == ["4"]
    assert make_node("l4").booted().tool("nvidia-smi", "nvlink", "--status", "-i", "0").stdout.splitlines()[1:] == [
        "Device does not have or support Nvlink"
    ]
