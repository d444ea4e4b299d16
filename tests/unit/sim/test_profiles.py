# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated boards answer what captures of real ones show, and each value of a profile has a source."""

from __future__ import annotations

import fnmatch
import importlib.util

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

SPEC = importlib.util.spec_from_file_location("profile_table", str(simnode.SIM / "profile_table.py"))
profile_table = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(profile_table)

# What captures with that driver show.
CAPTURES = {
    ("a100-sxm", "570.148.08"): {
        "name": "NVIDIA A100-SXM4-40GB",
        "pci.device_id": "0x20B010DE",
        "pci.sub_device_id": "0x134F10DE",
        "memory.total": "40960 MiB",
        "memory.reserved": "518 MiB",
        "vbios_version": "92.00.45.00.03",
        "inforom.ecc": "6.16",
        "remapped_rows.histogram.max": "640",
        "temperature.gpu.tlimit": "[N/A]",
        "power.default_limit": "400.00 W",
        "power.min_limit": "100.00 W",
        "clocks.current.graphics": "210 MHz",
        "clocks.applications.graphics": "1095 MHz",
        "clocks.max.memory": "1215 MHz",
        "fabric.state": "[N/A]",
        "pcie.link.gen.max": "4",
        "gpu_recovery_action": "None",
    },
    ("h100-sxm", "580.105.08"): {
        "name": "NVIDIA H100 80GB HBM3",
        "pci.sub_device_id": "0x16C110DE",
        "memory.total": "81559 MiB",
        "memory.reserved": "480 MiB",
        "remapped_rows.histogram.max": "2560",
        "temperature.gpu.tlimit": "56",
        "power.min_limit": "200.00 W",
        "clocks.applications.graphics": "1980 MHz",
        "fabric.state": "Completed",
    },
    ("h200", "590.48.01"): {
        "name": "NVIDIA H200",
        "pci.device_id": "0x233510DE",
        "pci.sub_device_id": "0x18BE10DE",
        "pcie.link.gen.max": "5",
        "pcie.link.width.max": "16",
        "vbios_version": "96.00.A5.00.03",
        "inforom.img": "G520.0280.02.02",
        "inforom.ecc": "7.16",
        "gpu_recovery_action": "None",
        "fan.speed": "[N/A]",
        "pstate": "P0",
        "clocks_event_reasons.gpu_idle": "Active",
        "clocks_event_reasons.hw_slowdown": "Not Active",
        "memory.total": "143771 MiB",
        "memory.reserved": "614 MiB",
        "memory.used": "0 MiB",
        "compute_mode": "Default",
        "utilization.gpu": "0 %",
        "ecc.mode.current": "Enabled",
        "ecc.errors.corrected.volatile.dram": "0",
        "ecc.errors.corrected.volatile.sram": "0",
        "remapped_rows.correctable": "0",
        "remapped_rows.pending": "No",
        "remapped_rows.histogram.max": "3072",
        "temperature.gpu.tlimit": "56",
        "power.limit": "700.00 W",
        "power.min_limit": "200.00 W",
        "clocks.current.memory": "3201 MHz",
        "clocks.applications.graphics": "[Requested functionality has been deprecated]",
        "clocks.max.sm": "1980 MHz",
        "mig.mode.current": "Disabled",
        "fabric.state": "Completed",
        "fabric.status": "Success",
        "fabric.cliqueId": "0",
    },
    ("b200", "580.105.08"): {
        "name": "NVIDIA B200",
        "pci.device_id": "0x290110DE",
        "pci.sub_device_id": "0x199910DE",
        "memory.total": "183359 MiB",
        "memory.reserved": "728 MiB",
        "remapped_rows.histogram.max": "3840",
        "temperature.gpu.tlimit": "57",
        "power.default_limit": "1000.00 W",
        "power.min_limit": "200.00 W",
        "clocks.current.graphics": "120 MHz",
        "clocks.max.graphics": "1965 MHz",
        "clocks.max.memory": "3996 MHz",
        "clocks.applications.graphics": "1965 MHz",
    },
    ("l4", "550.90.07"): {
        "name": "NVIDIA L4",
        "pci.sub_device_id": "0x16CA10DE",
        "memory.total": "23034 MiB",
        "pstate": "P8",
        "clocks.current.memory": "405 MHz",
        "clocks.max.memory": "6251 MHz",
        "remapped_rows.histogram.max": "96",
        "power.max_limit": "72.00 W",
        "power.min_limit": "40.00 W",
        "temperature.memory": "[N/A]",
        "fabric.state": "[N/A]",
        "mig.mode.current": "[N/A]",
    },
    ("v100-sxm", "550.127.05"): {
        "name": "Tesla V100-SXM2-32GB",
        "pci.sub_device_id": "0x124910DE",
        "inforom.ecc": "5.0",
        "pcie.link.gen.max": "3",
        "power.max_limit": "300.00 W",
        "power.min_limit": "150.00 W",
        "clocks.applications.graphics": "1290 MHz",
        "clocks.max.graphics": "1530 MHz",
        "ecc.errors.uncorrected.volatile.sram": "[N/A]",
        "remapped_rows.pending": "[N/A]",
        "temperature.gpu.tlimit": "[N/A]",
        "fabric.state": "[N/A]",
    },
}
# Margins of the thresholds of fields 193, 194 and 196.
MARGINS = {"h100-sxm": [-8, -2, 0], "h200": [-8, -2, 0], "b200": [-5, -3, 0], "l4": [-5, -2, 0]}


@pytest.mark.parametrize("model, driver", list(CAPTURES))
def test_boards_answer_as_captures_show(make_node, model, driver):
    node = make_node(model)
    node.kernel()
    node.library(driver)
    node.module(driver, licence="Dual MIT/GPL")
    node.firmware(driver)
    node.sim("boot")
    expected = CAPTURES[model, driver]
    answer = (
        node.tool("nvidia-smi", "--query-gpu=" + ",".join(expected), "--format=csv,noheader", "-i", "0")
        .stdout.strip()
        .split(", ")
    )
    assert dict(zip(expected, answer)) == expected
    margins = node.ask(
        "[(lambda item: item.value.siVal if item.nvmlReturn == 0 else 'rc %d' % item.nvmlReturn)"
        "(n.nvmlDeviceGetFieldValues(handle(), [number])[0]) for number in (193, 194, 196)]"
    )
    assert margins == MARGINS.get(model, ["rc 3"] * 3)


def test_each_value_has_a_source():
    models = profile_table.profiles()
    assert [
        (model, key) for model, values in models.items() for key in values if profile_table.source(model, key) is None
    ] == []
    assert sorted(profile_table.named_captures()) == sorted(models)
    assert profile_table.source("h200", "no_such_key") is None


def test_each_pattern_of_the_sources_fits_a_key():
    models = profile_table.profiles()
    stale = [
        (section, pattern)
        for section, sources in profile_table.sections().items()
        for patterns in sources.values()
        for pattern in patterns.split()
        if not any(
            fnmatch.fnmatchcase(key, pattern)
            for model in ([section] if section != "all" else models)
            for key in models[model]
        )
    ]
    assert stale == []


def test_the_table_of_values_is_that_of_the_profiles():
    assert (profile_table.PROFILES / "README.md").read_text(encoding="utf-8") == profile_table.table(), (
        "run python3 tests/sim/profile_table.py > tests/sim/profiles/README.md"
    )
