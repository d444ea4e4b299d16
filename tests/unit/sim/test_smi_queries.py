# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The query switches of the nvidia-smi stand-in: the fields that exporters and scripts ask for, as captures of real
boards have them.
"""

from __future__ import annotations

import re

import pytest

# What is asked for by nvidia_gpu_exporter (when it does not ask for all), Telegraf's older input, DeepOps' and Slurm's
# node checks, and prologs that look at clocks, ECC, retired pages and MIG.
ASKED = {
    "nvidia_gpu_exporter": (
        "timestamp driver_version count name serial uuid pci.bus_id pci.domain pci.bus pci.device pci.device_id "
        "pci.sub_device_id pcie.link.gen.current pcie.link.gen.max pcie.link.width.current pcie.link.width.max index "
        "display_mode display_active persistence_mode accounting.mode accounting.buffer_size driver_model.current "
        "driver_model.pending vbios_version inforom.img inforom.oem inforom.ecc inforom.pwr gom.current gom.pending "
        "fan.speed pstate clocks_throttle_reasons.supported clocks_throttle_reasons.active "
        "clocks_throttle_reasons.gpu_idle clocks_throttle_reasons.applications_clocks_setting "
        "clocks_throttle_reasons.sw_power_cap clocks_throttle_reasons.hw_slowdown "
        "clocks_throttle_reasons.hw_thermal_slowdown clocks_throttle_reasons.hw_power_brake_slowdown "
        "clocks_throttle_reasons.sw_thermal_slowdown clocks_throttle_reasons.sync_boost memory.total memory.used "
        "memory.free compute_mode compute_cap utilization.gpu utilization.memory encoder.stats.sessionCount "
        "encoder.stats.averageFps encoder.stats.averageLatency ecc.mode.current ecc.mode.pending "
        "ecc.errors.corrected.volatile.device_memory ecc.errors.corrected.volatile.l2_cache "
        "ecc.errors.uncorrected.aggregate.total retired_pages.single_bit_ecc.count retired_pages.double_bit.count "
        "retired_pages.pending temperature.gpu temperature.memory power.management power.draw power.limit "
        "enforced.power.limit power.default_limit power.min_limit power.max_limit clocks.current.graphics "
        "clocks.current.video clocks.applications.graphics clocks.default_applications.memory clocks.max.sm "
        "mig.mode.current mig.mode.pending"
    ),
    "Telegraf": (
        "fan.speed memory.total memory.used memory.free pstate temperature.gpu name uuid compute_mode utilization.gpu "
        "utilization.memory index power.draw pcie.link.gen.current pcie.link.width.current encoder.stats.sessionCount "
        "clocks.gr clocks.sm clocks.mem clocks.video"
    ),
    "node checks and prologs": (
        "gpu_name gpu_bus_id gpu_serial gpu_uuid compute_cap ecc.errors.uncorrected.volatile.dram "
        "ecc.errors.uncorrected.volatile.sram ecc.errors.corrected.volatile.total retired_pages.sbe retired_pages.dbe "
        "clocks_event_reasons.hw_slowdown remapped_rows.pending remapped_rows.failure gpu_recovery_action fabric.state "
        "fabric.status temperature.gpu.tlimit clocks.max.mem persistence_mode inforom.checksum_validation"
    ),
}
# Of an idle H200 with driver 590.48.01.
H200 = {
    "name": "NVIDIA H200",
    "pci.domain": "0x0000",
    "pci.device": "0x00",
    "pci.device_id": "0x233510DE",
    "pci.sub_device_id": "0x18BE10DE",
    "pci.baseClass": "0x3",
    "pcie.link.gen.max": "5",
    "pcie.link.gen.hostmax": "[N/A]",
    "pcie.link.width.max": "16",
    "display_mode": "[Requested functionality has been deprecated]",
    "display_active": "Disabled",
    "addressing_mode": "None",
    "accounting.mode": "Disabled",
    "accounting.buffer_size": "4000",
    "driver_model.current": "[N/A]",
    "vbios_version": "96.00.A5.00.03",
    "inforom.img": "G520.0280.02.02",
    "inforom.oem": "2.1",
    "inforom.ecc": "7.16",
    "inforom.pwr": "[N/A]",
    "inforom.checksum_validation": "valid",
    "gpu_recovery_action": "None",
    "fan.speed": "[N/A]",
    "pstate": "P0",
    "clocks_event_reasons.supported": "0x00000000000001FF",
    "clocks_event_reasons.active": "0x0000000000000001",
    "clocks_event_reasons.gpu_idle": "Active",
    "clocks_event_reasons.hw_slowdown": "Not Active",
    "clocks_event_reasons_counters.hw_thermal_slowdown": "0 us",
    "memory.total": "143771 MiB",
    "memory.reserved": "614 MiB",
    "memory.used": "0 MiB",
    "compute_mode": "Default",
    "compute_cap": "9.0",
    "utilization.gpu": "0 %",
    "utilization.ofa": "0 %",
    "ecc.mode.current": "Enabled",
    "ecc.errors.corrected.volatile.dram": "0",
    "ecc.errors.corrected.volatile.l1_cache": "[N/A]",
    "ecc.errors.corrected.volatile.sram": "0",
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "No",
    "ecc.errors.uncorrected.aggregate.sram.sm": "0",
    "retired_pages.pending": "[N/A]",
    "remapped_rows.correctable": "0",
    "remapped_rows.pending": "No",
    "remapped_rows.histogram.max": "3072",
    "power.management": "[Requested functionality has been deprecated]",
    "power.limit": "700.00 W",
    "power.min_limit": "200.00 W",
    "module.power.limit": "[N/A]",
    "clocks.current.memory": "3201 MHz",
    "clocks.applications.graphics": "[Requested functionality has been deprecated]",
    "clocks.max.sm": "1980 MHz",
    "mig.mode.current": "Disabled",
    "protected_memory.total": "0 MiB",
    "fabric.state": "Completed",
    "fabric.status": "Success",
    "fabric.cliqueId": "0",
    "fabric.clusterUuid": "00000000-0000-0000-0000-000000000000",
    "fabric.health.summary": "N/A",
    "hostname": "[N/A]",
}


def query(node, fields, *more, form="csv,noheader", subject="gpu"):
    return node.tool("nvidia-smi", "--query-%s=%s" % (subject, ",".join(fields)), "--format=" + form, *more)


def test_what_a_real_h200_answers(make_node):
    node = make_node("h200")
    node.firmware("590.48.01")
    node.booted("590.48.01")
    assert dict(zip(H200, query(node, H200, "-i", "0").stdout.strip().split(", "))) == H200
    assert query(node, ["gsp.mode.current", "temperature.gpu.tlimit"], "-i", "0").stdout == "Enabled, 56\n"


@pytest.mark.parametrize("model, driver", [("l4", "535.216.03"), ("v100-sxm", "470.256.02"), ("h100-sxm", "590.48.01")])
def test_every_field_of_the_help_is_answered_and_what_others_ask_for_is_there(make_node, model, driver):
    node = make_node(model).booted(driver)
    text = node.tool("nvidia-smi", "--help-query-gpu").stdout
    # As nvidia_gpu_exporter finds them.
    fields = re.findall(r'(?m)\n\s*\n^"([^"]+)"', text)
    assert len(fields) == len(set(fields)) == 212
    head, line = query(node, fields, "-i", "0", form="csv").stdout.splitlines()
    assert [name.split(" ")[0] for name in head.split(", ")] == fields
    assert len(line.split(", ")) == len(fields)
    assert "Unknown" not in line
    names = {name for line in text.splitlines() if line.startswith('"') for name in re.findall(r'"([^"]+)"', line)}
    assert {tool: sorted(set(asked.split()) - names) for tool, asked in ASKED.items()} == {tool: [] for tool in ASKED}


def test_units_and_other_names_of_a_field(booted):
    fields = [
        "memory.total",
        "power.draw",
        "clocks.sm",
        "utilization.gpu",
        "fan.speed",
        "gpu_name",
        "temperature.gpu",
        "clocks_throttle_reasons.active",
    ]
    assert query(booted, fields, "-i", "0", form="csv").stdout.splitlines() == [
        (
            "memory.total [MiB], power.draw [W], clocks.current.sm [MHz], utilization.gpu [%], fan.speed [%], name, "
            "temperature.gpu, clocks_event_reasons.active"
        ),
        "81559 MiB, 71.25 W, 345 MHz, 0 %, [N/A], NVIDIA H100 80GB HBM3, 31, 0x0000000000000001",
    ]
    assert query(booted, fields[:4], "-i", "0", form="csv,nounits").stdout.splitlines()[1] == "81559, 71.25, 345, 0"


def test_a_field_that_there_is_not(booted):
    done = booted.tool("nvidia-smi", "--query-gpu=name,device_minor", "--format=csv", check=False)
    assert (done.returncode, done.stdout) == (2, 'Field "device_minor" is not a valid field to query.\n\n')
    done = booted.tool("nvidia-smi", "--query-compute-apps=pid,colour", "--format=csv", check=False)
    assert (done.returncode, done.stdout) == (2, 'Field "colour" is not a valid field to query.\n\n')


def test_a_value_that_cannot_be_read_stands_as_its_reason(booted):
    booted.sim("inject", "reset-required", "--gpu", "0")
    booted.sim("inject", "error", "nvmlDeviceGetPowerUsage", "999", "--gpu", "1")
    booted.sim("inject", "remap-pending", "--gpu", "2")
    lines = query(booted, ["uuid", "power.draw", "remapped_rows.pending"]).stdout.splitlines()
    assert lines[0] == "[GPU requires reset], [GPU requires reset], [GPU requires reset]"
    assert [line.split(", ")[1:] for line in lines[1:4]] == [
        ["[Unknown Error]", "No"],
        ["71.25 W", "Yes"],
        ["71.25 W", "No"],
    ]


def test_rows_that_were_remapped_are_numbers_in_their_own_query(booted):
    booted.sim("inject", "remap-pending", "--gpu", "1")
    fields = [
        "gpu_bus_id",
        "remapped_rows.uncorrectable",
        "remapped_rows.pending",
        "remapped_rows.failure",
        "remapped_rows.histogram.max",
    ]
    assert query(booted, fields, "-i", "1", subject="remapped-rows").stdout == "00000000:43:00.0, 1, 1, 0, 2560\n"


def test_pages_that_were_retired(make_node):
    node = make_node("v100-sxm").booted()
    node.sim("inject", "retired-pages", "--gpu", "0", "--value", "2")
    fields = ["gpu_bus_id", "retired_pages.address", "retired_pages.cause"]
    assert query(node, fields, "-i", "0", subject="retired-pages").stdout.splitlines() == [
        "00000000:01:00.0, 0x%016x, Double Bit ECC" % address for address in (0x10001, 0x20001)
    ]
    assert (
        query(node, ["retired_pages.sbe", "retired_pages.dbe", "retired_pages.pending"], "-i", "0").stdout
        == "0, 2, No\n"
    )


def test_processes_that_compute(booted):
    booted.sim("inject", "stray-process", "--gpu", "3", "--value", "2048")
    uuid = booted.ask("text(n.nvmlDeviceGetUUID, handle(3))")
    line = query(booted, ["gpu_uuid", "pid", "process_name", "used_memory"], subject="compute-apps").stdout
    assert re.fullmatch(r"%s, \d+, sleep, 2048 MiB\n" % uuid, line)
    assert query(booted, ["pid"], subject="accounted-apps").stdout == ""


def test_clocks_that_a_board_can_run_at(make_node):
    node = make_node("l4").booted()
    clocks = [
        tuple(map(int, line.split(", ")))
        for line in query(
            node, ["mem", "gr"], "-i", "0", form="csv,noheader,nounits", subject="supported-clocks"
        ).stdout.splitlines()
    ]
    assert {memory for memory, _graphics in clocks} == {6251, 405}
    assert [graphics for memory, graphics in clocks if memory == 405] == list(range(2040, 209, -15))
    assert "used_gpu_memory" in node.tool("nvidia-smi", "--help-query-compute-apps").stdout
