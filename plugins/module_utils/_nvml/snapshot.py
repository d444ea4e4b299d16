# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The snapshot: everything the collection reads from NVML, in one pass, as data (schema gpufleet.snapshot/1).

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import time

from . import binding as binding_module
from . import calls, codes, fields, session

SCHEMA = "gpufleet.snapshot/1"
SYSTEM_KEYS = ("driver_version", "nvml_version", "cuda_driver_version")
GPU_KEYS = (
    "uuid", "serial", "name", "pci_bus_id", "pci_device_id", "minor_number", "board_part_number", "vbios_version",
    "inforom_image_version", "memory_total_bytes", "memory_used_bytes", "bar1_total_bytes", "ecc_mode_current", "ecc_mode_pending",
    "ecc_volatile_uncorrected", "ecc_aggregate_uncorrected", "remapped_rows", "retired_pages_pending", "recovery_action",
    "temperature_gpu_c", "power_usage_mw", "power_limit_mw", "power_limit_default_mw", "power_limit_enforced_mw", "pcie_gen_current",
    "pcie_gen_max", "pcie_width_current", "pcie_width_max", "mig_mode_current", "mig_mode_pending", "persistence_mode", "compute_mode",
    "gsp_firmware_version", "gsp_firmware_mode", "clocks_event_reasons", "clock_sm_mhz", "clock_mem_mhz", "compute_processes",
    "nvlink_active", "fabric_state",
)
# Values that one plain call answers.
PLAIN = (
    ("uuid", "nvmlDeviceGetUUID", ()),
    ("serial", "nvmlDeviceGetSerial", ()),
    ("name", "nvmlDeviceGetName", ()),
    ("minor_number", "nvmlDeviceGetMinorNumber", ()),
    ("board_part_number", "nvmlDeviceGetBoardPartNumber", ()),
    ("vbios_version", "nvmlDeviceGetVbiosVersion", ()),
    ("inforom_image_version", "nvmlDeviceGetInforomImageVersion", ()),
    ("ecc_volatile_uncorrected", "nvmlDeviceGetTotalEccErrors", (fields.MEMORY_ERROR_UNCORRECTED, fields.ECC_VOLATILE)),
    ("ecc_aggregate_uncorrected", "nvmlDeviceGetTotalEccErrors", (fields.MEMORY_ERROR_UNCORRECTED, fields.ECC_AGGREGATE)),
    ("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", ()),
    ("temperature_gpu_c", "nvmlDeviceGetTemperature", (fields.TEMPERATURE_GPU,)),
    ("power_usage_mw", "nvmlDeviceGetPowerUsage", ()),
    ("power_limit_mw", "nvmlDeviceGetPowerManagementLimit", ()),
    ("power_limit_default_mw", "nvmlDeviceGetPowerManagementDefaultLimit", ()),
    ("power_limit_enforced_mw", "nvmlDeviceGetEnforcedPowerLimit", ()),
    ("pcie_gen_current", "nvmlDeviceGetCurrPcieLinkGeneration", ()),
    ("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration", ()),
    ("pcie_width_current", "nvmlDeviceGetCurrPcieLinkWidth", ()),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", ()),
    ("persistence_mode", "nvmlDeviceGetPersistenceMode", ()),
    ("compute_mode", "nvmlDeviceGetComputeMode", ()),
    ("clock_sm_mhz", "nvmlDeviceGetClockInfo", (fields.CLOCK_SM,)),
    ("clock_mem_mhz", "nvmlDeviceGetClockInfo", (fields.CLOCK_MEM,)),
)


def blank(status, message, rc=None, binding=None):
    """A snapshot without a reading: STATUS and MESSAGE say why, and no value pretends to be one."""
    nothing = codes.missing(codes.UNREADABLE if rc is None else rc)
    return {
        "schema": SCHEMA,
        "simulated": False,
        "status": status,
        "message": message,
        "binding": binding or {"version": None, "source": "none"},
        "nvml": {"rc": rc, "error": None if rc in (None, codes.SUCCESS) else codes.name(rc)},
        "system": dict((key, dict(nothing)) for key in SYSTEM_KEYS),
        "gpus": [],
        "count": dict(nothing),
        "duration_s": 0.0,
    }


def read_gpu(reader, index):
    """All values of the GPU at INDEX. One whose handle is refused stays in the list, with that code in every place."""
    handle_answer = reader.call("nvmlDeviceGetHandleByIndex", index)
    if handle_answer["rc"] != codes.SUCCESS:
        gpu = dict((key, dict(handle_answer)) for key in GPU_KEYS)
        gpu.update(index=index, handle=dict(handle_answer))
        return gpu
    handle = handle_answer["value"]
    gpu = {"index": index, "handle": codes.value(True)}
    for key, name, args in PLAIN:
        gpu[key] = reader.call(name, handle, *args)
    gpu["pci_bus_id"], gpu["pci_device_id"] = reader.pci(handle)
    gpu["memory_total_bytes"], gpu["memory_used_bytes"] = reader.memory(handle)
    gpu["bar1_total_bytes"] = reader.bar1_total(handle)
    gpu["ecc_mode_current"], gpu["ecc_mode_pending"] = reader.pair("nvmlDeviceGetEccMode", handle)
    gpu["mig_mode_current"], gpu["mig_mode_pending"] = reader.pair("nvmlDeviceGetMigMode", handle)
    gpu["remapped_rows"] = reader.remapped_rows(handle)
    gpu["recovery_action"] = reader.field(handle, fields.FI_RECOVERY_ACTION)
    gpu["gsp_firmware_version"] = reader.gsp_version(handle)
    gpu["gsp_firmware_mode"] = reader.gsp_mode(handle)
    gpu["clocks_event_reasons"] = reader.clocks_event_reasons(handle)
    gpu["compute_processes"] = reader.processes(handle)
    gpu["nvlink_active"] = reader.nvlinks(handle)
    gpu["fabric_state"] = reader.fabric(handle)
    return gpu


def read_system(reader):
    cuda = reader.first(
        lambda: reader.call("nvmlSystemGetCudaDriverVersion_v2"),
        lambda: reader.call("nvmlSystemGetCudaDriverVersion"))
    if cuda["rc"] == codes.SUCCESS:
        cuda = codes.value("%d.%d" % (cuda["value"] // 1000, cuda["value"] % 1000 // 10))
    return {
        "driver_version": reader.call("nvmlSystemGetDriverVersion"),
        "nvml_version": reader.call("nvmlSystemGetNVMLVersion"),
        "cuda_driver_version": cuda,
    }


def read_pass(nvml, binding, progress=None):
    """One nvmlInit, one pass over all GPUs with the binding module NVML."""
    reader = calls.Reader(nvml, progress)
    started = reader.call("nvmlInit")
    if started["rc"] != codes.SUCCESS:
        taken = blank("nvml_error", codes.init_message(started["rc"]), started["rc"], binding)
        if started.get("detail"):
            taken["message"] += " (%s)" % (started["detail"],)
        taken["simulated"] = simulated(nvml)
        return taken
    try:
        taken = blank("ok", "", codes.SUCCESS, binding)
        taken["simulated"] = simulated(nvml)
        taken["system"] = read_system(reader)
        taken["count"] = reader.call("nvmlDeviceGetCount")
        if taken["count"]["rc"] != codes.SUCCESS:
            taken["status"] = "nvml_error"
            taken["message"] = "NVML started but did not count the GPUs: %s (%s); look for NVRM lines in the kernel log" % (
                taken["count"]["error"], taken["count"]["rc"])
        else:
            taken["gpus"] = [read_gpu(reader, index) for index in range(int(taken["count"]["value"]))]
        return taken
    finally:
        reader.call("nvmlShutdown")


def simulated(nvml):
    """Whether the loaded library is the simulator, which marks itself with a symbol of its own."""
    return hasattr(getattr(nvml, "nvmlLib", None), "gpusim_marker")


def take(archive=None, deadline_s=60, stuck_file=None, load=None, runner=session.run):
    """Read all GPUs of this machine in a child that is never waited for past DEADLINE_S seconds.

    ARCHIVE is the verified content of the shipped binding, or None to use a binding that the machine has. STUCK_FILE remembers a
    child that could not be ended.
    """
    load = load or binding_module.load
    begun = time.monotonic()

    def work(progress):
        progress("loading the binding")
        nvml, described = load(archive)
        if nvml is None:
            return blank("no_binding", binding_module.NO_BINDING)
        return read_pass(nvml, described, progress)

    outcome = runner(work, deadline_s, stuck_file)
    if outcome.status == "ok":
        taken = outcome.value
    elif outcome.status in ("timeout", "stuck"):
        taken = blank(outcome.status, outcome.message)
    else:
        taken = blank("nvml_error", outcome.message)
    taken["duration_s"] = round(time.monotonic() - begun, 3)
    return taken
