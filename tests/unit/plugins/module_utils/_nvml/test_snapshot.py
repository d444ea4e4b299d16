# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One pass over the GPUs, with the oldest and the newest binding: every value is a value or a return code."""

from __future__ import annotations

import ctypes

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes, fields, session, snapshot
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import fake_nvml, wheels


@pytest.fixture(params=wheels.VERSIONS)
def binding(request):
    return wheels.load(request.param)


def read(binding, **options):
    library = fake_nvml.FakeNvml(**options)
    taken = snapshot.read_pass(fake_nvml.install(binding, library), {"version": "x", "source": "shipped"})
    return taken, library


def is_value(thing):
    if thing["rc"] == 0:
        return set(thing) == {"value", "rc"} and thing["value"] is not None
    return thing["value"] is None and thing["error"] == codes.name(thing["rc"])


def test_structures_have_the_sizes_of_the_header():
    assert ctypes.sizeof(fields.FabricInfo) == 28 and fields.FabricInfo.state.offset == 24
    assert ctypes.sizeof(fields.FabricInfoV2) == fields.FABRIC_V2 & 0xFFFFFF
    assert ctypes.sizeof(fields.FabricInfoV3) == fields.FABRIC_V3 & 0xFFFFFF
    assert ctypes.sizeof(fields.ProcessInfo) == 24
    assert ctypes.sizeof(fields.FieldValue) == 40


def test_a_healthy_node(binding):
    taken, library = read(binding)
    assert (taken["schema"], taken["status"], taken["message"], taken["simulated"]) == ("gpufleet.snapshot/1", "ok", "", False)
    assert taken["nvml"] == {"rc": 0, "error": None}
    assert taken["system"] == {
        "driver_version": {"value": "535.216.03", "rc": 0},
        "nvml_version": {"value": "12.535.216.03", "rc": 0},
        "cuda_driver_version": {"value": "12.2", "rc": 0},
    }
    assert taken["count"] == {"value": 2, "rc": 0}
    assert library.calls.count("nvmlInitWithFlags") == 1
    assert library.calls[-1] == "nvmlShutdown"
    for gpu in taken["gpus"]:
        assert set(gpu) == {"index", "handle"} | set(snapshot.GPU_KEYS)
        assert all(is_value(value) for key, value in gpu.items() if key != "index")
    values = dict((key, item["value"]) for key, item in taken["gpus"][1].items() if key != "index")
    assert values == {
        "handle": True, "uuid": "GPU-00000001-0000-0000-0000-000000000000", "serial": "1653000000001", "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": "00000000:1b:00.0", "pci_device_id": "10de:2330", "minor_number": 1, "board_part_number": "692-2G520-0200-000",
        "vbios_version": "96.00.74.00.01", "inforom_image_version": "G520.0200.00.05", "memory_total_bytes": 85520809984,
        "memory_used_bytes": 20809984, "bar1_total_bytes": 137438953472, "ecc_mode_current": 1, "ecc_mode_pending": 1,
        "ecc_volatile_uncorrected": 0, "ecc_aggregate_uncorrected": 7,
        "remapped_rows": {"correctable": 1, "uncorrectable": 2, "pending": False, "failure": False}, "retired_pages_pending": None,
        "recovery_action": 0, "temperature_gpu_c": 34, "power_usage_mw": 71000, "power_limit_mw": 700000, "power_limit_default_mw": 700000,
        "power_limit_enforced_mw": 700000, "pcie_gen_current": 5, "pcie_gen_max": 5, "pcie_width_current": 16, "pcie_width_max": 16,
        "mig_mode_current": 0, "mig_mode_pending": 0, "persistence_mode": 1, "compute_mode": 0, "gsp_firmware_version": "535.216.03",
        "gsp_firmware_mode": {"enabled": True, "default": True}, "clocks_event_reasons": 1, "clock_sm_mhz": 345, "clock_mem_mhz": 2619,
        "compute_processes": [{"pid": 42, "used_bytes": None}, {"pid": 4711, "used_bytes": 1024}], "nvlink_active": [True] * 4,
        "fabric_state": {"state": 3, "status": 0, "clique_id": 9, "cluster_uuid": b"0123456789abcdef".hex(), "health_mask": 0x55,
                         "health_summary": None},
    }
    assert taken["gpus"][1]["retired_pages_pending"] == {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}


@pytest.mark.parametrize("rc", [9, 12, 18, 4, 999])
def test_nvml_that_does_not_start_is_data(binding, rc):
    taken, dummy = read(binding, init=rc)
    assert taken["status"] == "nvml_error"
    assert taken["nvml"] == {"rc": rc, "error": codes.NAMES[rc]}
    assert codes.NAMES[rc] in taken["message"] and codes.INIT_ADVICE[rc] in taken["message"]
    assert taken["gpus"] == []
    for value in [taken["count"]] + list(taken["system"].values()):
        assert value == {"value": None, "rc": rc, "error": codes.NAMES[rc]}


def test_the_binding_without_a_library_answers_library_not_found(binding, monkeypatch):
    def absent(name):
        raise OSError(name)

    monkeypatch.setattr(binding, "CDLL", absent)
    taken = snapshot.read_pass(binding, {"version": "x", "source": "node"})
    assert taken["nvml"] == {"rc": 12, "error": "LIBRARY_NOT_FOUND"}
    assert taken["status"] == "nvml_error"


def test_a_gpu_whose_handle_is_refused_stays_in_the_list(binding):
    taken, dummy = read(binding, gpus=3, fail={("nvmlDeviceGetHandleByIndex_v2", 1): 15})
    assert taken["status"] == "ok"
    assert [gpu["handle"]["rc"] for gpu in taken["gpus"]] == [0, 15, 0]
    lost = taken["gpus"][1]
    assert set(lost) == {"index", "handle"} | set(snapshot.GPU_KEYS)
    assert all(value == {"value": None, "rc": 15, "error": "GPU_IS_LOST"} for key, value in lost.items() if key != "index")


@pytest.mark.parametrize("symbol, key", [
    ("nvmlDeviceGetUUID", "uuid"), ("nvmlDeviceGetPciInfo_v3", "pci_bus_id"), ("nvmlDeviceGetEccMode", "ecc_mode_pending"),
    ("nvmlDeviceGetMigMode", "mig_mode_current"), ("nvmlDeviceGetBAR1MemoryInfo", "bar1_total_bytes"),
    ("nvmlDeviceGetFieldValues", "recovery_action"), ("nvmlDeviceGetGspFirmwareMode", "gsp_firmware_mode"),
    ("nvmlDeviceGetNvLinkState", "nvlink_active"),
])
def test_a_missing_symbol_and_a_refusal_are_data(binding, symbol, key):
    taken, dummy = read(binding, without=[symbol])
    assert taken["gpus"][0][key] == {"value": None, "rc": 13, "error": "FUNCTION_NOT_FOUND"}
    taken, dummy = read(binding, fail={(symbol, 1): 15})
    assert taken["gpus"][0][key]["rc"] == 0
    assert taken["gpus"][1][key] == {"value": None, "rc": 15, "error": "GPU_IS_LOST"}


def test_a_code_that_the_binding_does_not_know_keeps_its_number(binding):
    taken, dummy = read(binding, fail={"nvmlDeviceGetPowerUsage": 77})
    assert taken["gpus"][0]["power_usage_mw"] == {"value": None, "rc": 77, "error": "CODE_77"}


def test_a_failed_field_is_read_from_the_field_itself(binding):
    taken, dummy = read(binding, recovery=None)
    assert taken["gpus"][0]["recovery_action"] == {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}


def test_remapped_rows_under_mig_come_from_the_fields(binding):
    taken, dummy = read(binding, mig=1)
    assert taken["gpus"][0]["remapped_rows"] == {
        "value": {"correctable": 5, "uncorrectable": 6, "pending": True, "failure": False}, "rc": 0}
    taken, dummy = read(binding, mig=1, fail={"nvmlDeviceGetFieldValues": 3})
    assert taken["gpus"][0]["remapped_rows"] == {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}


def test_fabric_version_3_is_tried_first(binding):
    taken, dummy = read(binding, fabric=3)
    assert taken["gpus"][0]["fabric_state"]["value"]["health_summary"] == 1
    assert taken["gpus"][0]["fabric_state"]["value"]["state"] == 3


def test_the_fabric_call_without_a_version_is_the_last_resort(binding):
    taken, dummy = read(binding, without=["nvmlDeviceGetGpuFabricInfoV"])
    assert taken["gpus"][0]["fabric_state"]["value"] == {
        "state": 2, "status": 0, "clique_id": 7, "cluster_uuid": b"fedcba9876543210".hex(), "health_mask": None, "health_summary": None}
    taken, dummy = read(binding, without=["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"])
    assert taken["gpus"][0]["fabric_state"] == {"value": None, "rc": 13, "error": "FUNCTION_NOT_FOUND"}
    taken, dummy = read(binding, fail={"nvmlDeviceGetGpuFabricInfoV": 3})
    assert taken["gpus"][0]["fabric_state"] == {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}


def test_an_older_library_answers_through_the_older_calls(binding):
    taken, dummy = read(binding, without=["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2",
                                          "nvmlDeviceGetComputeRunningProcesses_v3"])
    gpu = taken["gpus"][0]
    assert gpu["clocks_event_reasons"] == {"value": 9, "rc": 0}
    assert gpu["memory_total_bytes"] == {"value": 85520809984, "rc": 0}
    assert [process["pid"] for process in gpu["compute_processes"]["value"]] == [42, 4711]


@pytest.mark.parametrize("links, expected", [
    (0, {"value": None, "rc": 2, "error": "INVALID_ARGUMENT"}),
    (18, {"value": [True] * 18, "rc": 0}),
    (36, {"value": [True] * 36, "rc": 0}),
    (99, {"value": [True] * 36, "rc": 0}),
])
def test_the_loop_over_links_ends(binding, links, expected):
    taken, dummy = read(binding, gpus=1, links=links)
    assert taken["gpus"][0]["nvlink_active"] == expected


def test_a_link_that_fails_for_another_reason_leaves_no_half_list(binding):
    taken, dummy = read(binding, gpus=1, fail={"nvmlDeviceGetNvLinkState": 15})
    assert taken["gpus"][0]["nvlink_active"] == {"value": None, "rc": 15, "error": "GPU_IS_LOST"}


def test_text_that_is_no_text_is_not_guessed(binding):
    library = fake_nvml.FakeNvml(gpus=1)
    library.nvmlDeviceGetName = lambda handle, buffer, size: fake_nvml.put_text(buffer, b"\xff\xfe")
    taken = snapshot.read_pass(fake_nvml.install(binding, library), {})
    name = taken["gpus"][0]["name"]
    assert (name["value"], name["rc"], name["error"]) == (None, -1, "UNREADABLE")
    assert "no text" in name["detail"]


def test_the_bindings_own_mismatch_error_is_a_missing_function(binding):
    class NVMLLibraryMismatchError(Exception):
        pass

    def old(handle):
        raise NVMLLibraryMismatchError("old library")

    binding.nvmlDeviceGetPowerUsage = old
    taken, dummy = read(binding)
    assert taken["gpus"][0]["power_usage_mw"]["rc"] == 13


def test_a_count_that_fails_is_an_error_of_nvml(binding):
    taken, dummy = read(binding, fail={"nvmlDeviceGetCount_v2": 999})
    assert (taken["status"], taken["gpus"], taken["count"]["rc"]) == ("nvml_error", [], 999)
    assert "did not count" in taken["message"]


def test_the_simulator_is_recognised_by_its_symbol(binding):
    library = fake_nvml.FakeNvml()
    library.gpusim_marker = 1
    assert snapshot.read_pass(fake_nvml.install(binding, library), {})["simulated"] is True


@pytest.mark.parametrize("status, expected", [("timeout", "timeout"), ("stuck", "stuck"), ("crashed", "nvml_error")])
def test_an_outcome_without_a_reading_has_no_values(status, expected):
    taken = snapshot.take(runner=lambda work, deadline, stuck: session.Outcome(status, None, "why"))
    assert (taken["status"], taken["message"], taken["gpus"]) == (expected, "why", [])
    assert taken["count"] == {"value": None, "rc": -1, "error": "UNREADABLE"}
    assert taken["nvml"] == {"rc": None, "error": None}


def test_no_binding_names_both_places():
    taken = snapshot.take(load=lambda archive: (None, {"version": None, "source": "none"}), deadline_s=30)
    assert taken["status"] == "no_binding"
    assert "controller" in taken["message"] and "node" in taken["message"] and "nvidia-ml-py" in taken["message"]


def test_take_reads_in_a_child(binding):
    library = fake_nvml.FakeNvml()
    fake_nvml.install(binding, library)
    taken = snapshot.take(load=lambda archive: (binding, {"version": "1", "source": "node"}), deadline_s=30)
    assert taken["status"] == "ok" and len(taken["gpus"]) == 2
    assert taken["binding"] == {"version": "1", "source": "node"}
    assert library.calls == []
    assert taken["duration_s"] > 0
