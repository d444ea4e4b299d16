# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One pass over the GPUs, with the oldest and the newest binding: every value is a value or a return code."""

from __future__ import annotations

import ctypes
import pathlib
import re
import struct

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes, fields, session, snapshot, subsets
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import fake_nvml, wheels

pytestmark = pytest.mark.pythons


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


def read_gpu(binding, key, number=0, **options):
    """Return one value of a GPU of a node with two."""
    return read(binding, **options)[0]["gpus"][number][key]


def ok(content):
    return {"value": content, "rc": 0}


def failed(rc, **more):
    return dict({"value": None, "rc": rc, "error": codes.name(rc)}, **more)


# By the public header: the size, and where the last member lies.
LAYOUTS = {
    "FabricInfo": (28, "state", 24),
    "FabricInfoV2": (36, "healthMask", 32),
    "FabricInfoV3": (40, "healthSummary", 36),
    "ProcessInfo": (24, "computeInstanceId", 20),
    "FieldValue": (40, "value", 32),
    "PciInfo": (68, "busId", 36),
    "Memory": (24, "used", 16),
    "MemoryV2": (40, "used", 32),
    "Bar1Memory": (24, "used", 16),
    "SramErrors": (104, "bThresholdExceeded", 96),
    "RemapHistogram": (20, "none", 16),
    "RepairStatus": (12, "bTpcRepairPending", 8),
    "MarginTemperature": (8, "marginTemperature", 4),
    "AddressingMode": (8, "value", 4),
    "ViolationTime": (16, "violationTime", 8),
    "DeviceAttributes": (40, "memorySizeMB", 32),
}


def test_structures_have_the_layouts_of_the_header():
    ours = dict(
        (name, kind)
        for name, kind in vars(fields).items()
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure)
    )
    assert set(ours) == set(LAYOUTS)
    for name, (size, last, offset) in LAYOUTS.items():
        assert (name, ctypes.sizeof(ours[name]), ours[name]._fields_[-1][0], getattr(ours[name], last).offset) == (
            name,
            size,
            last,
            offset,
        )


@pytest.mark.parametrize(
    "version, number, kind",
    [
        (fields.MEMORY_V2, 2, fields.MemoryV2),
        (fields.FABRIC_V2, 2, fields.FabricInfoV2),
        (fields.FABRIC_V3, 3, fields.FabricInfoV3),
        (fields.SRAM_ERRORS_V1, 1, fields.SramErrors),
        (fields.MARGIN_TEMPERATURE_V1, 1, fields.MarginTemperature),
        (fields.ADDRESSING_MODE_V1, 1, fields.AddressingMode),
        (fields.REPAIR_STATUS_V1, 1, fields.RepairStatus),
    ],
)
def test_versions_of_structures_are_number_and_size(version, number, kind):
    assert version == number << 24 | ctypes.sizeof(kind)


def test_no_number_and_no_layout_comes_from_the_binding():
    """Bindings have renumbered fields and laid structures out wrongly; only calls, handles and errors are taken from
    them.
    """
    for path in sorted(pathlib.Path(fields.__file__).parent.rglob("*.py")):
        assert re.findall(r"NVML_[A-Z]\w+|c_nvml\w+_t|binding\.nvml[A-Z]\w+", path.read_text()) == [], path.name


def test_a_healthy_node(binding):
    taken, library = read(binding)
    assert (taken["schema"], taken["status"], taken["message"], taken["simulated"]) == (
        "gpufleet.snapshot/1",
        "ok",
        "",
        False,
    )
    assert taken["nvml"] == {"rc": 0, "error": None}
    assert taken["system"] == {
        "driver_version": ok("535.216.03"),
        "nvml_version": ok("12.535.216.03"),
        "cuda_driver_version": ok("12.2"),
    }
    assert taken["count"] == ok(2)
    assert library.calls.count("nvmlInitWithFlags") == 1
    assert library.calls[-1] == "nvmlShutdown"
    for gpu in taken["gpus"]:
        assert set(gpu) == {"index", "handle"} | set(snapshot.GPU_KEYS)
        assert all(is_value(value) for key, value in gpu.items() if key != "index")
    values = dict((key, item["value"]) for key, item in taken["gpus"][1].items() if key != "index")
    fabric = {
        "state": 3,
        "status": 0,
        "clique_id": 9,
        "cluster_uuid": b"0123456789abcdef".hex(),
        "health_mask": 0x55,
        "health_summary": None,
    }
    assert values == {
        "handle": True,
        "uuid": "GPU-00000001-0000-0000-0000-000000000000",
        "serial": "1653000000001",
        "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": "00000000:1b:00.0",
        "pci_device_id": "10de:2330",
        "pci_subsystem_id": "10de:16c1",
        "minor_number": 1,
        "board_part_number": "692-2G520-0200-000",
        "vbios_version": "96.00.74.00.01",
        "inforom_image_version": "G520.0200.00.05",
        "inforom_config_checksum": 0xCAFEF00D,
        "inforom_valid": True,
        "architecture": 9,
        "virtualization_mode": 0,
        "addressing_mode": 1,
        "memory_total_bytes": 85520809984,
        "memory_used_bytes": 20809984,
        "memory_free_bytes": 85000000000,
        "memory_reserved_bytes": 500000000,
        "bar1_total_bytes": 137438953472,
        "bar1_used_bytes": 472,
        "ecc_mode_current": 1,
        "ecc_mode_pending": 1,
        "ecc_volatile_corrected": 0,
        "ecc_volatile_uncorrected": 1,
        "ecc_aggregate_corrected": 1000,
        "ecc_aggregate_uncorrected": 1001,
        "ecc_counters": {
            "volatile": {"sram": {"corrected": 7, "uncorrected": 107}, "dram": {"corrected": 2, "uncorrected": 102}},
            "aggregate": {
                "sram": {"corrected": 1007, "uncorrected": 1107},
                "dram": {"corrected": 1002, "uncorrected": 1102},
            },
        },
        "sram_ecc": {
            "threshold_exceeded": True,
            "volatile_corrected": 200,
            "volatile_uncorrected": 22,
            "aggregate_corrected": 100,
            "aggregate_uncorrected": 11,
            "aggregate_uncorrected_parity": 10,
            "aggregate_uncorrected_secded": 1,
            "aggregate_uncorrected_by_unit": {"l2": 1, "sm": 2, "pcie": 3, "mcu": 4, "other": 5},
        },
        "remapped_rows": {"correctable": 1, "uncorrectable": 2, "pending": False, "failure": False},
        "remap_histogram": {"max": 640, "high": 1, "partial": 2, "low": 3, "none": 4},
        "retired_pages": None,
        "retired_pages_pending": None,
        "repair_status": {"channel_pending": True, "tpc_pending": False},
        "recovery_action": 0,
        "temperature_gpu_c": 34,
        "temperature_memory_c": 41,
        "temperature_margin_c": -3,
        "temperature_limits_c": {"slowdown": 92, "shutdown": 95, "gpu_max": 87, "memory_max": 105},
        "temperature_margin_limits_c": {"slowdown": -2, "shutdown": -8, "gpu_max": 0, "memory_max": 4},
        "power_usage_mw": 71000,
        "power_limit_mw": 700000,
        "power_limit_default_mw": 700000,
        "power_limit_enforced_mw": 700000,
        "power_limit_min_mw": 200000,
        "power_limit_max_mw": 700000,
        "pcie_gen_current": 5,
        "pcie_gen_max": 5,
        "pcie_gen_device_max": 5,
        "pcie_width_current": 16,
        "pcie_width_max": 16,
        "pcie_replay_count": 3,
        "mig_mode_current": 0,
        "mig_mode_pending": 0,
        "mig_max_devices": 0,
        "mig_instances": [],
        "persistence_mode": 1,
        "compute_mode": 0,
        "gsp_firmware_version": "535.216.03",
        "gsp_firmware_mode": {"enabled": True, "default": True},
        "clocks_event_reasons": 1,
        "clock_sm_mhz": 346,
        "clock_mem_mhz": 2619,
        "clocks_mhz": {"graphics": 345, "sm": 346, "mem": 2619, "video": 765},
        "clocks_max_mhz": {"graphics": 1980, "sm": 1981, "mem": 1982, "video": 1983},
        "applications_clocks_mhz": {"graphics": 1755, "mem": 2619},
        "applications_clocks_default_mhz": {"graphics": 1830, "mem": 2619},
        "violation_ns": {
            "power": 1000000000000,
            "thermal": 1000000000001,
            "sync_boost": 1000000000002,
            "board_limit": 1000000000003,
            "low_utilization": 1000000000004,
            "reliability": 1000000000005,
        },
        "compute_processes": [{"pid": 42, "used_bytes": None}, {"pid": 4711, "used_bytes": 1024}],
        "graphics_processes": [],
        "nvlink_active": [True] * 4,
        "nvlinks": [
            {
                "link": link,
                "active": True,
                "version": 5,
                "remote_pci": "00000000:%02x:00.0" % (0xC1 + link),
                "remote_type": "switch",
                "errors": {
                    "replay": link,
                    "recovery": 10000000000 + link,
                    "crc_flit": 20000000000 + link,
                    "crc_data": 30000000000 + link,
                },
            }
            for link in range(4)
        ],
        "p2p": {"GPU-00000000-0000-0000-0000-000000000000": {"read": 0, "write": 0, "nvlink": 0, "atomics": 5}},
        "fabric": fabric,
        "fabric_state": fabric,
    }
    assert taken["gpus"][1]["retired_pages_pending"] == failed(3)


@pytest.mark.parametrize("rc", [9, 12, 18, 4, 999])
def test_nvml_that_does_not_start_is_data(binding, rc):
    taken, dummy = read(binding, init=rc)
    assert taken["status"] == "nvml_error"
    assert taken["nvml"] == {"rc": rc, "error": codes.NAMES[rc]}
    assert codes.NAMES[rc] in taken["message"] and codes.INIT_ADVICE[rc] in taken["message"]
    assert taken["gpus"] == []
    for value in [taken["count"]] + list(taken["system"].values()):
        assert value == failed(rc)


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
    assert all(value == failed(15) for key, value in lost.items() if key != "index")


@pytest.mark.parametrize(
    "symbol, key",
    [
        ("nvmlDeviceGetUUID", "uuid"),
        ("nvmlDeviceGetPciInfo_v3", "pci_bus_id"),
        ("nvmlDeviceGetEccMode", "ecc_mode_pending"),
        ("nvmlDeviceGetMigMode", "mig_mode_current"),
        ("nvmlDeviceGetBAR1MemoryInfo", "bar1_total_bytes"),
        ("nvmlDeviceGetFieldValues", "recovery_action"),
        ("nvmlDeviceGetGspFirmwareMode", "gsp_firmware_mode"),
        ("nvmlDeviceGetNvLinkState", "nvlink_active"),
    ],
)
def test_a_missing_symbol_and_a_refusal_are_data(binding, symbol, key):
    taken, dummy = read(binding, without=[symbol])
    assert taken["gpus"][0][key] == failed(13)
    taken, dummy = read(binding, fail={(symbol, 1): 15})
    assert taken["gpus"][0][key]["rc"] == 0
    assert taken["gpus"][1][key] == failed(15)


def test_a_code_that_the_binding_does_not_know_keeps_its_number(binding):
    assert read_gpu(binding, "power_usage_mw", fail={"nvmlDeviceGetPowerUsage": 77}) == failed(77)


def test_a_failed_field_is_read_from_the_field_itself(binding):
    assert read_gpu(binding, "recovery_action", recovery=None) == failed(3)


def test_remapped_rows_under_mig_come_from_the_fields(binding):
    assert read_gpu(binding, "remapped_rows", mig=1) == {
        "value": {"correctable": 5, "uncorrectable": 6, "pending": True, "failure": False},
        "rc": 0,
    }
    assert read_gpu(binding, "remapped_rows", mig=1, fail={"nvmlDeviceGetFieldValues": 3}) == failed(3)


def test_fabric_version_3_is_tried_first(binding):
    taken, dummy = read(binding, fabric=3)
    assert taken["gpus"][0]["fabric_state"]["value"]["health_summary"] == 1
    assert taken["gpus"][0]["fabric_state"]["value"]["state"] == 3


def test_the_fabric_call_without_a_version_is_the_last_resort(binding):
    taken, dummy = read(binding, without=["nvmlDeviceGetGpuFabricInfoV"])
    assert taken["gpus"][0]["fabric_state"]["value"] == {
        "state": 2,
        "status": 0,
        "clique_id": 7,
        "cluster_uuid": b"fedcba9876543210".hex(),
        "health_mask": None,
        "health_summary": None,
    }
    assert read_gpu(
        binding, "fabric_state", without=["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"]
    ) == failed(13)
    assert read_gpu(binding, "fabric_state", fail={"nvmlDeviceGetGpuFabricInfoV": 3}) == failed(3)


def test_an_older_library_answers_through_the_older_calls(binding):
    taken, dummy = read(
        binding,
        without=[
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetComputeRunningProcesses_v3",
        ],
    )
    gpu = taken["gpus"][0]
    assert gpu["clocks_event_reasons"] == ok(9)
    assert gpu["memory_total_bytes"] == ok(85520809984)
    assert [process["pid"] for process in gpu["compute_processes"]["value"]] == [42, 4711]


@pytest.mark.parametrize(
    "links, expected", [(0, failed(2)), (18, ok([True] * 18)), (36, ok([True] * 36)), (99, ok([True] * 36))]
)
def test_the_loop_over_links_ends(binding, links, expected):
    assert read_gpu(binding, "nvlink_active", gpus=1, links=links) == expected


def test_a_link_that_fails_for_another_reason_leaves_no_half_list(binding):
    assert read_gpu(binding, "nvlink_active", gpus=1, fail={"nvmlDeviceGetNvLinkState": 15}) == failed(15)


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

    binding.nvmlDeviceGetSerial = old
    taken, dummy = read(binding)
    assert taken["gpus"][0]["serial"]["rc"] == 13


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
    assert taken["count"] == failed(-1)
    assert taken["nvml"] == {"rc": None, "error": None}


def test_no_binding_names_both_places():
    taken = snapshot.take(load=lambda: (None, {"version": None, "source": "none"}), deadline_s=30)
    assert taken["status"] == "no_binding"
    assert "controller" in taken["message"] and "node" in taken["message"] and "nvidia-ml-py" in taken["message"]


def test_take_reads_in_a_child(binding):
    library = fake_nvml.FakeNvml()
    fake_nvml.install(binding, library)
    taken = snapshot.take(load=lambda: (binding, {"version": "1", "source": "node"}), deadline_s=30)
    assert taken["status"] == "ok" and len(taken["gpus"]) == 2
    assert taken["binding"] == {"version": "1", "source": "node"}
    assert library.calls == []
    assert taken["duration_s"] > 0


@pytest.mark.parametrize(
    "content, kind, expected",
    [
        (struct.pack("=d", 1.5), 0, 1.5),
        (struct.pack("=II", 4294967295, 1), 1, 4294967295),
        (struct.pack("=Q", 1 << 40), 2, 1 << 40),
        (struct.pack("=Q", 1 << 40), 3, 1 << 40),
        (struct.pack("=q", -5), 4, -5),
        (struct.pack("=iI", -5, 1), 5, -5),
        (struct.pack("=HHI", 7, 1, 1), 6, 7),
    ],
)
def test_a_field_is_read_by_the_type_it_says(binding, content, kind, expected):
    library = fake_nvml.FakeNvml(gpus=1)

    def answer(handle, count, values):
        base = ctypes.addressof(values._obj)
        ctypes.memmove(base + 24, struct.pack("=II", kind, 0) + content, 16)
        return 0

    library.nvmlDeviceGetFieldValues = answer
    taken = snapshot.read_pass(fake_nvml.install(binding, library), {}, gather=["repair"])
    assert taken["gpus"][0]["recovery_action"] == ok(expected)


def test_a_field_of_an_unknown_type_is_not_guessed(binding):
    library = fake_nvml.FakeNvml(gpus=1)
    library.nvmlDeviceGetFieldValues = lambda handle, count, values: (
        ctypes.memset(ctypes.addressof(values._obj) + 24, 7, 1) and 0
    )
    taken = snapshot.read_pass(fake_nvml.install(binding, library), {}, gather=["repair"])
    assert taken["gpus"][0]["recovery_action"]["rc"] == -1
    assert "unknown value type 7" in taken["gpus"][0]["recovery_action"]["detail"]


@pytest.mark.parametrize("number", [1, 4, 5, 7, 99])
def test_a_recovery_action_of_any_number_is_kept(binding, number):
    assert read_gpu(binding, "recovery_action", recovery=number) == ok(number)


def test_calls_whose_layout_is_in_doubt_are_not_made(binding):
    library = read(binding)[1]
    assert not [name for name in library.calls if "UnrepairableMemoryFlag" in name]
    # Without a version they fill a shorter structure than the library expects.
    assert not {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"} & set(library.calls)


@pytest.mark.parametrize(
    "symbol, key",
    [
        ("nvmlDeviceGetSramEccErrorStatus", "sram_ecc"),
        ("nvmlDeviceGetMarginTemperature", "temperature_margin_c"),
        ("nvmlDeviceGetAddressingMode", "addressing_mode"),
        ("nvmlDeviceGetRepairStatus", "repair_status"),
    ],
)
def test_a_version_that_the_driver_does_not_know_is_told(binding, symbol, key):
    taken, dummy = read(binding, fail={symbol: 25})
    assert taken["gpus"][0][key] == failed(25)


def test_memory_of_a_driver_that_does_not_know_the_newer_structure(binding):
    taken, dummy = read(binding, fail={"nvmlDeviceGetMemoryInfo_v2": 25})
    gpu = taken["gpus"][0]
    assert gpu["memory_used_bytes"] == ok(520809984)
    assert gpu["memory_free_bytes"] == ok(85000000000)
    assert gpu["memory_reserved_bytes"] == failed(13)


def test_counters_that_a_gpu_lacks_are_none_and_an_error_is_an_error(binding):
    def sram_is(rc):
        library = fake_nvml.FakeNvml(gpus=1)
        real = library.nvmlDeviceGetMemoryErrorCounter
        library.nvmlDeviceGetMemoryErrorCounter = lambda handle, error, period, location, out: (
            rc if location.value == 7 else real(handle, error, period, location, out)
        )
        return snapshot.read_pass(fake_nvml.install(binding, library), {}, gather=["ecc"])["gpus"][0]["ecc_counters"]

    lacking = sram_is(3)
    assert lacking["rc"] == 0
    assert lacking["value"]["volatile"] == {
        "sram": {"corrected": None, "uncorrected": None},
        "dram": {"corrected": 2, "uncorrected": 102},
    }
    assert sram_is(15) == failed(15, detail="in ('volatile', 'sram', 'corrected')")


@pytest.mark.parametrize(
    "symbol, key",
    [
        ("nvmlDeviceGetMemoryErrorCounter", "ecc_counters"),
        ("nvmlDeviceGetApplicationsClock", "applications_clocks_mhz"),
        ("nvmlDeviceGetTemperatureThreshold", "temperature_limits_c"),
        ("nvmlDeviceGetMaxClockInfo", "clocks_max_mhz"),
        ("nvmlDeviceGetViolationStatus", "violation_ns"),
    ],
)
def test_a_value_of_which_no_part_answers_has_their_code(binding, symbol, key):
    taken, dummy = read(binding, fail={symbol: 3})
    assert taken["gpus"][0][key] == failed(3)
    taken, dummy = read(binding, fail={symbol: 999})
    assert (taken["gpus"][0][key]["value"], taken["gpus"][0][key]["rc"]) == (None, 999)


@pytest.mark.parametrize(
    "symbol, key, expected",
    [
        (
            "nvmlDeviceGetViolationStatus",
            "violation_ns",
            {
                "power": 740,
                "thermal": None,
                "sync_boost": None,
                "board_limit": None,
                "low_utilization": None,
                "reliability": None,
            },
        ),
        ("nvmlDeviceGetPcieReplayCounter", "pcie_replay_count", 94),
    ],
)
@pytest.mark.parametrize("how", [{"without": True}, {"rc": 26}])
def test_a_call_that_newer_drivers_drop_is_replaced_by_its_field(binding, symbol, key, expected, how):
    options = {"without": [symbol]} if "without" in how else {"fail": {symbol: how["rc"]}}
    assert read(binding, **options)[0]["gpus"][0][key] == ok(expected)


def test_retired_pages_are_counted_where_the_driver_has_no_field(binding):
    assert read_gpu(binding, "retired_pages", retired={0: 3, 1: 0}) == {"value": {"sbe": 3, "dbe": 0}, "rc": 0}
    assert read_gpu(binding, "retired_pages") == failed(3)
    assert read_gpu(binding, "retired_pages", fail={"nvmlDeviceGetFieldValues": 15})["rc"] == 15


@pytest.mark.parametrize("rc", [3, 13, 2, 27])
def test_what_a_link_does_not_tell_is_none(binding, rc):
    taken, dummy = read(
        binding,
        gpus=1,
        links=2,
        fail={"nvmlDeviceGetNvLinkErrorCounter": rc, "nvmlDeviceGetNvLinkRemotePciInfo_v2": rc},
    )
    assert taken["gpus"][0]["nvlinks"]["value"][1] == {
        "link": 1,
        "active": True,
        "version": 5,
        "remote_pci": None,
        "remote_type": "switch",
        "errors": {"replay": None, "recovery": None, "crc_flit": None, "crc_data": None},
    }


def test_the_newest_links_count_in_fields_of_the_link(binding):
    refused = {"nvmlDeviceGetNvLinkErrorCounter": 3}
    links = read_gpu(binding, "nvlinks", gpus=1, links=2, fail=refused, link_fields=(214, 215, 219, 221))["value"]
    assert links[1]["errors"] == {
        "replay": None,
        "crc_flit": None,
        "crc_data": None,
        "recovery": 21501,
        "recovery_failed": 21401,
        "effective": 21901,
        "symbol": 22101,
    }
    # Without the first of them none is asked for.
    links = read_gpu(binding, "nvlinks", gpus=1, links=2, fail=refused, link_fields=(219,))["value"]
    assert links[1]["errors"] == {"replay": None, "crc_flit": None, "crc_data": None, "recovery": None}


@pytest.mark.parametrize("rc", [15, 16, 999])
def test_a_link_that_cannot_be_read_leaves_no_half_links(binding, rc):
    taken, dummy = read(binding, gpus=1, links=2, fail={"nvmlDeviceGetNvLinkErrorCounter": rc})
    assert taken["gpus"][0]["nvlinks"] == failed(rc, detail="in replay of link 0")
    assert taken["gpus"][0]["nvlink_active"] == ok([True, True])


def test_a_link_between_others_that_does_not_exist_is_no_link(binding):
    library = fake_nvml.FakeNvml(gpus=1)
    library.nvmlDeviceGetNvLinkState = lambda handle, link, out: (
        fake_nvml.put(out, 0 if link.value == 2 else 1) if link.value in (0, 2) else fake_nvml.NOT_SUPPORTED
    )
    gpu = snapshot.read_pass(fake_nvml.install(binding, library), {})["gpus"][0]
    assert gpu["nvlink_active"] == ok([True, None, False])
    assert [(link["link"], link["active"]) for link in gpu["nvlinks"]["value"]] == [(0, True), (2, False)]


def test_peers_are_those_that_can_be_opened(binding):
    taken, dummy = read(binding, gpus=4, fail={("nvmlDeviceGetHandleByIndex_v2", 1): 15, ("nvmlDeviceGetUUID", 2): 999})
    names = dict((index, "GPU-%08d-0000-0000-0000-000000000000" % index) for index in range(4))
    assert set(taken["gpus"][0]["p2p"]["value"]) == {names[3]}
    assert taken["gpus"][1]["p2p"]["rc"] == 15
    assert set(taken["gpus"][2]["p2p"]["value"]) == {names[0], names[3]}
    assert read_gpu(binding, "p2p", gpus=1) == ok({})
    refused = read(binding, fail={("nvmlDeviceGetP2PStatus", 1): 3})[0]["gpus"]
    assert refused[0]["p2p"]["rc"] == 0 and refused[1]["p2p"] == failed(3)


def test_mig_instances_with_gaps_in_order(binding):
    assert read_gpu(binding, "mig_instances", gpus=1, mig=1, instances=(1, 4)) == {
        "rc": 0,
        "value": [
            {
                "gpu_instance": 10 - number,
                "compute_instance": 0,
                "uuid": "MIG-%08d" % number,
                "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
                "slices": 1,
                "compute_slices": 1,
                "memory_bytes": 9984 << 20,
            }
            for number in (4, 1)
        ],
    }


def test_mig_that_is_off_on_or_not_there(binding):
    def instances(**options):
        return read_gpu(binding, "mig_instances", gpus=1, **options)

    assert instances() == ok([])
    assert instances(mig=1) == ok([])
    assert instances(fail={"nvmlDeviceGetMigMode": 3}) == failed(3)
    assert instances(mig=1, fail={"nvmlDeviceGetMaxMigDeviceCount": 999}) == failed(999)
    assert instances(mig=1, fail={"nvmlDeviceGetMigDeviceHandleByIndex": 15}) == failed(15)
    assert instances(mig=1, instances=(0,), fail={"nvmlDeviceGetAttributes_v2": 999}) == failed(
        999, detail="in slices of MIG device 0"
    )


def test_process_is_named_by_what_proc_tells_of_it(tmp_path):
    directory = tmp_path / "7"
    directory.mkdir()
    (directory / "comm").write_text("python3\n")
    (directory / "status").write_text("Uid:\t4242424\t0\t0\t0\n")
    (directory / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_31/step_0\n")
    gpus = [{"compute_processes": ok([{"pid": 7}, {"pid": 8}]), "graphics_processes": failed(15)}]
    snapshot.name_processes(gpus, str(tmp_path))
    known, gone = gpus[0]["compute_processes"]["value"]
    assert (known["comm"], known["user"], known["job"]) == ("python3", "4242424", "31")
    assert (gone["pid"], gone["comm"], gone["user"]) == (8, None, None)


def test_a_list_of_processes_that_grows_is_asked_for_again_and_not_for_ever(binding):
    library = fake_nvml.FakeNvml(gpus=1)
    rooms = []

    def growing(handle, count, table):
        rooms.append(0 if table is None else len(table))
        needed = 10 * len(rooms)
        if len(rooms) < enough:
            return fake_nvml.put(count, needed) or fake_nvml.TOO_SMALL
        ctypes.memmove(table, struct.pack("=IIQII", 42, 0, 1, 0, 0), 24)
        return fake_nvml.put(count, 1)

    library.nvmlDeviceGetGraphicsRunningProcesses_v3 = growing
    enough = 4
    gpu = snapshot.read_pass(fake_nvml.install(binding, library), {}, gather=["processes"])["gpus"][0]
    assert gpu["graphics_processes"] == ok([{"pid": 42, "used_bytes": 1}]) and rooms == sorted(rooms)
    enough, rooms[:] = 99, []
    gpu = snapshot.read_pass(fake_nvml.install(binding, library), {}, gather=["processes"])["gpus"][0]
    assert gpu["graphics_processes"] == failed(7) and len(rooms) == 5


def test_an_inforom_that_is_corrupt_says_so(binding):
    assert read_gpu(binding, "inforom_valid", fail={"nvmlDeviceValidateInforom": 14}) == failed(14)


@pytest.mark.parametrize(
    "gather, names",
    [
        (None, list(subsets.NAMES)),
        ([], list(subsets.NAMES)),
        (["all"], list(subsets.NAMES)),
        (["min"], ["min"]),
        (["!all"], ["min"]),
        (["ecc", "power"], ["min", "ecc", "power"]),
        (["!p2p", "!min"], [name for name in subsets.NAMES if name != "p2p"]),
        (["all", "!ecc"], [name for name in subsets.NAMES if name != "ecc"]),
        (["!all", "ecc"], ["min", "ecc"]),
        (["ecc", "!ecc"], ["min"]),
    ],
)
def test_subsets(binding, gather, names):
    assert subsets.choose(gather) == names
    taken = snapshot.read_pass(
        fake_nvml.install(binding, fake_nvml.FakeNvml(fail={("nvmlDeviceGetHandleByIndex_v2", 1): 15})),
        {},
        gather=gather,
    )
    keys = {"index", "handle"} | set(key for subset in subsets.TABLE if subset.name in names for key in subset.keys)
    assert taken["subsets"] == names
    # The lost GPU too: what was not asked for is not there.
    assert [set(gpu) for gpu in taken["gpus"]] == [keys, keys]


@pytest.mark.parametrize("gather", [["nothing"], ["!nothing"], ["all", "Ecc"], [""], [None]])
def test_a_subset_that_does_not_exist_is_refused_before_anything_is_read(gather):
    with pytest.raises(subsets.SubsetError, match="expected one of all, min, identity"):
        snapshot.take(gather=gather, runner=None)


def test_every_key_belongs_to_one_subset():
    assert len(set(subsets.KEYS)) == len(subsets.KEYS)
