# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of --query-gpu: names, units, and where each value comes from.

The names are those of nvidia-smi 590.48.01.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from . import nvml as n
from . import values as v

GRAPHICS, SM, MEMORY, VIDEO = range(4)
MODULE_POWER = ("draw.average", "draw.instant", "limit", "enforced", "default_limit", "min_limit", "max_limit")


class Field(NamedTuple):
    """One field: its name and others for the same, the unit in the heading, a line for the help, and how it is
    asked.
    """

    names: tuple[str, ...]
    unit: str
    about: str
    ask: Callable[[n.Nvml, object], str]


TABLE: list[Field] = []


def add(names: str, about: str, ask: Callable[[n.Nvml, object], str], unit: str = "") -> None:
    TABLE.append(Field(tuple(names.split("|")), unit, about, ask))


def nothing(_nvml: n.Nvml, _handle) -> str:
    """No board here has it."""
    return v.NOTHING


def plain(function: str) -> Callable:
    return lambda nvml, handle: str(nvml.number(function, handle))


def text(function: str, *arguments) -> Callable:
    return lambda nvml, handle: nvml.text(function, handle, *arguments)


def mode(function: str, index: int) -> Callable:
    return lambda nvml, handle: v.on(nvml.numbers(function, handle, 2)[index])


def timestamp(_nvml: n.Nvml, _handle) -> str:
    now = time.time()
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + ".%03d" % (now * 1000 % 1000)


def memory(key: str) -> Callable:
    return lambda nvml, handle: v.mib(nvml.memory(handle)[key])


def utilization(index: int) -> Callable:
    return lambda nvml, handle: v.percent(nvml.unpacked("@2I", "nvmlDeviceGetUtilizationRates", handle)[index])


def engine(name: str) -> Callable:
    return lambda nvml, handle: v.percent(nvml.numbers("nvmlDeviceGet%sUtilization" % name, handle, 2)[0])


def ecc(kind: int, counter: int, place: int | None) -> Callable:
    if place is None:
        return lambda nvml, handle: str(nvml.long("nvmlDeviceGetTotalEccErrors", handle, kind, counter))
    return lambda nvml, handle: str(nvml.long("nvmlDeviceGetMemoryErrorCounter", handle, kind, counter, place))


def retired(cause: int) -> Callable:
    def ask(nvml: n.Nvml, handle) -> str:
        return str(len(nvml.retired(handle, cause)))

    return ask


def remapped(index: int) -> Callable:
    return lambda nvml, handle: (str if index < 2 else v.yes)(
        nvml.numbers("nvmlDeviceGetRemappedRows", handle, 4)[index]
    )


def histogram(index: int) -> Callable:
    return lambda nvml, handle: str(nvml.unpacked("@5I", "nvmlDeviceGetRowRemapperHistogram", handle)[index])


def sram(key: str) -> Callable:
    return lambda nvml, handle: (v.yes if key == "exceeded" else str)(nvml.sram(handle)[key])


def clock(function: str, kind: int) -> Callable:
    return lambda nvml, handle: v.mhz(nvml.number("nvmlDeviceGet" + function, handle, kind))


def power(function: str) -> Callable:
    return lambda nvml, handle: v.watt(nvml.number("nvmlDeviceGet" + function, handle))


def limits(index: int) -> Callable:
    return lambda nvml, handle: v.watt(nvml.numbers("nvmlDeviceGetPowerManagementLimitConstraints", handle, 2)[index])


def reason(bit: int) -> Callable:
    return lambda nvml, handle: v.active(nvml.long("nvmlDeviceGetCurrentClocksThrottleReasons", handle), bit)


def slowed(field: int) -> Callable:
    """Time below the clocks, which NVML counts in nanoseconds."""
    return lambda nvml, handle: "%d us" % (nvml.field(handle, field) // 1000)


def fabric(key: str) -> Callable:
    def ask(nvml: n.Nvml, handle) -> str:
        now = nvml.fabric(handle)
        return {
            "state": lambda: v.fabric_state(now),
            "status": lambda: v.fabric_status(nvml, now),
            "cliqueId": lambda: str(now["clique"]),
            "clusterUuid": lambda: v.cluster(now),
        }.get(key, lambda: v.fabric_health(now, key))()

    return ask


def margin(nvml: n.Nvml, handle) -> str:
    """Degrees that are left to the highest operating temperature: NVML states them itself from branch 570 on."""
    try:
        return str(nvml.unpacked("@Ii", "nvmlDeviceGetMarginTemperature", handle, version=1)[1])
    except n.NvmlError as error:
        if error.code != n.NO_FUNCTION:
            raise
        nvml.field(handle, 196)
        return str(
            nvml.number("nvmlDeviceGetTemperatureThreshold", handle, 3)
            - nvml.number("nvmlDeviceGetTemperature", handle, 0)
        )


def _identity() -> None:
    add("timestamp", "Time of the query.", timestamp)
    add("driver_version", "Version of the loaded driver.", lambda nvml, handle: nvml.text("nvmlSystemGetDriverVersion"))
    add("vgpu_driver_capability.heterogenous_multivGPU", "Not on these boards.", nothing)
    add("count", "Number of GPUs.", lambda nvml, handle: str(nvml.number("nvmlDeviceGetCount_v2")))
    add("name|gpu_name", "Product name.", text("nvmlDeviceGetName"))
    add("serial|gpu_serial", "Serial number of the board.", text("nvmlDeviceGetSerial"))
    add("uuid|gpu_uuid", "UUID of the GPU.", text("nvmlDeviceGetUUID"))
    add(
        "pci.bus_id|gpu_bus_id",
        "PCI address, domain:bus:device.function.",
        lambda nvml, handle: nvml.pci(handle)["address"],
    )
    for name, key, width in (("domain", "domain", 4), ("bus", "bus", 2), ("device", "device", 2)):
        add(
            "pci." + name,
            "PCI %s, in hexadecimal." % name,
            lambda nvml, handle, key=key, width=width: "0x%0*X" % (width, nvml.pci(handle)[key]),
        )
    add("pci.baseClass", "PCI base class.", lambda nvml, handle: "0x3")
    add("pci.subClass", "PCI subclass.", lambda nvml, handle: "0x2")
    add("pci.device_id", "PCI device and vendor.", lambda nvml, handle: "0x%08X" % nvml.pci(handle)["id"])
    add("pci.sub_device_id", "PCI subsystem.", lambda nvml, handle: "0x%08X" % nvml.pci(handle)["subsystem"])
    for name in (
        "fractional_multiVgpu",
        "heterogeneous_timeSlice_profile",
        "heterogeneous_timeSlice_sizes",
        "homogeneous_placements",
        "mig_timeSlicing",
        "mig_timeSlicing_mode",
    ):
        add("vgpu_device_capability." + name, "Not on these boards.", nothing)
    for name, function in (
        ("gen.current", "CurrPcieLinkGeneration"),
        ("gen.gpucurrent", "CurrPcieLinkGeneration"),
        ("gen.max", "MaxPcieLinkGeneration"),
        ("gen.gpumax", "GpuMaxPcieLinkGeneration"),
        ("gen.hostmax", ""),
        ("width.current", "CurrPcieLinkWidth"),
        ("width.max", "MaxPcieLinkWidth"),
    ):
        add(
            "pcie.link." + name,
            "PCI Express link: %s." % name,
            plain("nvmlDeviceGet" + function) if function else nothing,
        )


def _modes() -> None:
    add("index", "NVML index of the GPU.", plain("nvmlDeviceGetIndex"))
    add(
        "display_mode",
        "Whether a display is attached; deprecated from driver 580 on, while NVML still answers.",
        lambda nvml, handle: (
            v.on(nvml.number("nvmlDeviceGetDisplayMode", handle)) if nvml.branch() < 580 else v.CODES[n.DEPRECATED]
        ),
    )
    add(
        "display_attached",
        "Whether a display may be attached; captures of boards without any say yes.",
        lambda nvml, handle: "Yes",
    )
    add(
        "display_active",
        "Whether a display is initialized.",
        lambda nvml, handle: v.on(nvml.number("nvmlDeviceGetDisplayActive", handle)),
    )
    add(
        "persistence_mode",
        "Persistence mode.",
        lambda nvml, handle: v.on(nvml.number("nvmlDeviceGetPersistenceMode", handle)),
    )
    add(
        "addressing_mode",
        "How the GPU reaches the memory of the system.",
        lambda nvml, handle: v.named(
            v.ADDRESSING, nvml.unpacked("@2I", "nvmlDeviceGetAddressingMode", handle, version=1)[1]
        ),
    )
    add(
        "accounting.mode",
        "Accounting mode.",
        lambda nvml, handle: v.on(nvml.number("nvmlDeviceGetAccountingMode", handle)),
    )
    add("accounting.buffer_size", "Processes that accounting keeps.", plain("nvmlDeviceGetAccountingBufferSize"))
    add("driver_model.current", "Of Windows.", nothing)
    add("driver_model.pending", "Of Windows.", nothing)
    add("vbios_version", "Version of the VBIOS.", text("nvmlDeviceGetVbiosVersion"))
    add("inforom.img|inforom.image", "Version of the InfoROM image.", text("nvmlDeviceGetInforomImageVersion"))
    for index, names in enumerate(("inforom.oem", "inforom.ecc", "inforom.pwr|inforom.power")):
        add(names, "Version of an object in the InfoROM.", text("nvmlDeviceGetInforomVersion", index))
    add("inforom.checksum_validation", "Whether the InfoROM is valid.", inforom)
    add(
        "gpu_recovery_action",
        "The recovery that the driver asks for.",
        lambda nvml, handle: v.named(v.RECOVERY, nvml.field(handle, 230)),
    )
    add("gom.current|gpu_operation_mode.current", "Not on these boards.", nothing)
    add("gom.pending|gpu_operation_mode.pending", "Not on these boards.", nothing)
    add(
        "fan.speed",
        "Speed of the fan.",
        lambda nvml, handle: v.percent(nvml.number("nvmlDeviceGetFanSpeed", handle)),
        "%",
    )
    add(
        "pstate",
        "Performance state.",
        lambda nvml, handle: "P%d" % nvml.number("nvmlDeviceGetPerformanceState", handle),
    )
    for name, function in (("supported", "Supported"), ("active", "Current")):
        add(
            "clocks_event_reasons.%s|clocks_throttle_reasons.%s" % (name, name),
            "Bits of clock event reasons, %s." % name,
            lambda nvml, handle, function=function: (
                "0x%016X" % nvml.long("nvmlDeviceGet%sClocksThrottleReasons" % function, handle)
            ),
        )
    for name, bit in v.REASONS:
        if name != "display_clocks_setting":
            add(
                "clocks_event_reasons.%s|clocks_throttle_reasons.%s" % (name, name),
                "A reason for lower clocks.",
                reason(bit),
            )
    for name, field in (
        ("sw_power_cap", 74),
        ("sync_boost", 76),
        ("sw_thermal_slowdown", 269),
        ("hw_thermal_slowdown", 270),
        ("hw_power_brake_slowdown", 271),
    ):
        add("clocks_event_reasons_counters." + name, "Time with lower clocks for a reason.", slowed(field), "us")


def inforom(nvml: n.Nvml, handle) -> str:
    try:
        nvml.call("nvmlDeviceValidateInforom", handle)
    except n.NvmlError as error:
        if error.code != 14:
            raise
        return "corrupted"
    return "valid"


def _memory_and_use() -> None:
    for key in ("total", "reserved", "used", "free"):
        add("memory." + key, "Memory of the GPU, %s." % key, memory(key), "MiB")
    add(
        "compute_mode",
        "Compute mode.",
        lambda nvml, handle: v.named(v.COMPUTE_MODES, nvml.number("nvmlDeviceGetComputeMode", handle)),
    )
    add(
        "compute_cap",
        "CUDA compute capability.",
        lambda nvml, handle: "%d.%d" % tuple(nvml.numbers("nvmlDeviceGetCudaComputeCapability", handle, 2)),
    )
    add("utilization.gpu", "Time in which a kernel ran.", utilization(0), "%")
    add("utilization.memory", "Time in which memory was read or written.", utilization(1), "%")
    for name, function in (("encoder", "Encoder"), ("decoder", "Decoder"), ("jpeg", "Jpg"), ("ofa", "Ofa")):
        add("utilization." + name, "Time in which the engine was used.", engine(function), "%")
    for name in ("sessionCount", "averageFps", "averageLatency"):
        add("encoder.stats." + name, "Sessions of the encoder: there are none.", lambda nvml, handle: "0")
    add("dramEncryption.mode.current", "Not on these boards.", nothing)
    add("dramEncryption.mode.pending", "Not on these boards.", nothing)


def _errors() -> None:
    add("ecc.mode.current", "ECC mode.", mode("nvmlDeviceGetEccMode", 0))
    add("ecc.mode.pending", "ECC mode after the next reset.", mode("nvmlDeviceGetEccMode", 1))
    places = (
        ("device_memory", 2),
        ("dram", 2),
        ("register_file", 3),
        ("l1_cache", 0),
        ("l2_cache", 1),
        ("texture_memory", 4),
        ("cbu", 6),
        ("sram", 7),
        ("total", None),
    )
    for kind, kind_name in enumerate(("corrected", "uncorrected")):
        for counter, counter_name in enumerate(("volatile", "aggregate")):
            for place_name, place in places:
                add(
                    "ecc.errors.%s.%s.%s" % (kind_name, counter_name, place_name),
                    "ECC errors, %s, %s: %s." % (kind_name, counter_name, place_name),
                    ecc(kind, counter, place),
                )
    for name, key in (
        ("volatile.sram.parity", "vol_parity"),
        ("volatile.sram.secded", "vol_secded"),
        ("aggregate.sram.parity", "agg_parity"),
        ("aggregate.sram.secded", "agg_secded"),
        ("aggregate.sram.thresholdExceeded", "exceeded"),
        ("aggregate.sram.l2", "l2"),
        ("aggregate.sram.sm", "sm"),
        ("aggregate.sram.mcu", "mcu"),
        ("aggregate.sram.pcie", "pcie"),
        ("aggregate.sram.other", "other"),
    ):
        add("ecc.errors.uncorrected." + name, "Uncorrected errors of SRAM by their kind or place.", sram(key))
    add(
        "retired_pages.single_bit_ecc.count|retired_pages.sbe",
        "Pages retired for several corrected errors.",
        retired(0),
    )
    add("retired_pages.double_bit.count|retired_pages.dbe", "Pages retired for an uncorrected error.", retired(1))
    add(
        "retired_pages.pending",
        "Whether pages wait for their retirement.",
        lambda nvml, handle: v.yes(nvml.number("nvmlDeviceGetRetiredPagesPendingStatus", handle)),
    )
    for index, names in enumerate(
        ("correctable|remapped_rows.sbe", "uncorrectable|remapped_rows.dbe", "pending", "failure")
    ):
        add("remapped_rows." + names, "Row remapping.", remapped(index))
    for index, name in enumerate(("max", "high", "partial", "low", "none")):
        add("remapped_rows.histogram." + name, "Memory banks by the spare rows that they have left.", histogram(index))


def _power_and_clocks() -> None:
    add(
        "temperature.gpu",
        "Temperature of the GPU.",
        lambda nvml, handle: str(nvml.number("nvmlDeviceGetTemperature", handle, 0)),
    )
    add("temperature.gpu.tlimit", "Degrees left to the limit.", margin)
    add("temperature.memory", "Temperature of the memory.", lambda nvml, handle: str(nvml.field(handle, 82)))
    add(
        "power.management",
        "Whether power is managed; deprecated from driver 590 on.",
        lambda nvml, handle: v.on(nvml.number("nvmlDeviceGetPowerManagementMode", handle)),
    )
    add("power.draw", "Power drawn.", power("PowerUsage"), "W")
    add(
        "power.draw.average|gpu.power.draw.average",
        "Power drawn on average.",
        lambda nvml, handle: v.watt(nvml.field(handle, 185)),
        "W",
    )
    add(
        "power.draw.instant|gpu.power.draw.instant",
        "Power drawn in this moment.",
        lambda nvml, handle: v.watt(nvml.field(handle, 186)),
        "W",
    )
    add("power.limit|gpu.power.requested_limit", "Power limit that was asked for.", power("PowerManagementLimit"), "W")
    add("enforced.power.limit|gpu.power.current_limit", "Power limit in force.", power("EnforcedPowerLimit"), "W")
    add(
        "power.default_limit|gpu.power.default_limit", "Default power limit.", power("PowerManagementDefaultLimit"), "W"
    )
    add("power.min_limit|gpu.power.min_limit", "Lowest power limit.", limits(0), "W")
    add("power.max_limit|gpu.power.max_limit", "Highest power limit.", limits(1), "W")
    for names in (
        "module.power.draw.average",
        "module.power.draw.instant",
        "module.power.limit|module.power.requested_limit",
        "module.enforced.power.limit|module.power.current_limit",
        "module.power.default_limit",
        "module.power.min_limit",
        "module.power.max_limit",
    ):
        add(names, "Not on these boards.", nothing, "W")
    for name, unit in (
        ("delayed_power_smoothing_supported", ""),
        ("primary_power_floor", "W"),
        ("secondary_power_floor", "W"),
        ("min_primary_floor_activation_offset", "W"),
        ("min_primary_floor_activation_point", "W"),
        ("window_multiplier", "ms"),
        *(
            (level + name, unit)
            for level in ("curr_profile.", "admin_override.")
            for name, unit in (
                ("secondary_power_floor", "W"),
                ("primary_floor_act_window_multiplier", ""),
                ("primary_floor_tar_window_multiplier", ""),
                ("primary_floor_act_offset", "W"),
            )
        ),
    ):
        add("power_smoothing." + name, "Not on these boards.", nothing, unit)
    add("edpp_multiplier", "Not on these boards.", nothing, "%")
    for name, kind in (("graphics", GRAPHICS), ("sm", SM), ("memory", MEMORY), ("video", VIDEO)):
        short = {"graphics": "gr", "memory": "mem"}.get(name, name)
        add("clocks.current.%s|clocks.%s" % (name, short), "Clock that runs now.", clock("ClockInfo", kind), "MHz")
    for group, function in (
        ("applications", "ApplicationsClock"),
        ("default_applications", "DefaultApplicationsClock"),
    ):
        for name, kind in (("graphics", GRAPHICS), ("memory", MEMORY)):
            add(
                "clocks.%s.%s|clocks.%s.%s" % (group, name, group, {"graphics": "gr", "memory": "mem"}[name]),
                "Application clock.",
                clock(function, kind),
                "MHz",
            )
    for names, kind in (("graphics|clocks.max.gr", GRAPHICS), ("sm", SM), ("memory|clocks.max.mem", MEMORY)):
        add("clocks.max." + names, "Highest clock.", clock("MaxClockInfo", kind), "MHz")


def _node() -> None:
    add("mig.mode.current", "MIG mode.", mode("nvmlDeviceGetMigMode", 0))
    add("mig.mode.pending", "MIG mode after the next reset.", mode("nvmlDeviceGetMigMode", 1))
    add("gsp.mode.current", "Whether the GSP runs.", mode("nvmlDeviceGetGspFirmwareMode", 0))
    add("gsp.mode.default", "Whether the GSP runs by default.", mode("nvmlDeviceGetGspFirmwareMode", 1))
    add("c2c.mode", "Link to a CPU of the same module.", nothing)
    for key in ("total", "used", "free"):
        add(
            "protected_memory." + key,
            "Memory of confidential computing: there is none.",
            lambda nvml, handle: "0 MiB",
            "MiB",
        )
    for key in ("state", "status", "cliqueId", "clusterUuid"):
        add("fabric." + key, "The GPU's place in the NVLink fabric.", fabric(key))
    for key in (
        "summary",
        "bandwidth",
        "route_recovery_in_progress",
        "route_unhealthy",
        "access_timeout_recovery",
        "incorrect_configuration",
    ):
        add("fabric.health." + key, "Health of the NVLink fabric.", fabric(key))
    for name in ("chassis_serial_number", "slot_number", "tray_index", "host_id", "peer_type"):
        add("platform." + name, "Not on these boards.", nothing)
    add("platform.module_id", "Place of the GPU on its baseboard.", plain("nvmlDeviceGetModuleId"))
    add("platform.gpu_fabric_guid", "Not on these boards.", nothing)
    add("hostname", "Not on these boards.", nothing)


for _part in (_identity, _modes, _memory_and_use, _errors, _power_and_clocks, _node):
    _part()
BY_NAME = {name: field for field in TABLE for name in field.names}


def ask(name: str, nvml: n.Nvml, handle) -> str:
    """The value of a field as it is written, or what stands in its place."""
    try:
        return BY_NAME[name].ask(nvml, handle)
    except n.NvmlError as error:
        return v.failed(error)
