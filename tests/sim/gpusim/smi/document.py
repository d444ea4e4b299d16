# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that nvidia-smi -q tells of one GPU, as a tree: a title for the text, an element for the XML, and a value or a
part of the tree.

The elements are those of captures with drivers 535.54, 570.148, 580.105 and 590.48; the branches between them are taken
for the older one's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import nvml as n
from . import queries
from . import values as v
from .fields import ask, plain

NONE = "N/A"


class Item(NamedTuple):
    """One line, or a part with lines of its own. The text does not show a title of "", nor the XML an element of ""."""

    title: str
    element: str
    value: str | list
    xml: str | None = None


class Document:
    """The document of one GPU."""

    def __init__(self, nvml: n.Nvml, handle):
        self.nvml, self.handle, self.branch = nvml, handle, nvml.branch()

    def get(self, field: str, before: str = "", after: str = "") -> str:
        """The value of a field of --query-gpu, with what this document writes around a number."""
        value = v.bare(ask(field, self.nvml, self.handle))
        return before + value + after if value.lstrip("-").replace(".", "").isdigit() else value

    def asked(self, function: Callable) -> str:
        try:
            return function(self.nvml, self.handle)
        except n.NvmlError as error:
            return v.bare(v.failed(error))

    def items(self) -> list[Item]:
        return [
            *self._product(),
            *self._pci(),
            *self._performance(),
            *self._memory(),
            *self._errors(),
            *self._temperature(),
            *self._power(),
            *self._clocks(),
            *self._rest(),
        ]

    def _pair(self, title: str, element: str, suffix: str, current: str, pending: str) -> Item:
        return Item(
            title,
            element,
            [Item("Current", "current_" + suffix, current), Item("Pending", "pending_" + suffix, pending)],
        )

    def _product(self) -> list[Item]:
        get, asked, newer = self.get, self.asked, self.branch >= 570
        inforom = [
            Item(title, element, get("inforom." + name))
            for title, element, name in (
                ("Image Version", "img_version", "img"),
                ("OEM Object", "oem_object", "oem"),
                ("ECC Object", "ecc_object", "ecc"),
                ("Power Management Object", "pwr_object", "pwr"),
            )
        ]
        platform = [
            Item(title, element, asked(plain("nvmlDeviceGetModuleId")) if element == "module_id" else NONE)
            for title, element in (
                ("Chassis Serial Number", "chassis_serial_number"),
                ("Slot Number", "slot_number"),
                ("Tray Index", "tray_index"),
                ("Host ID", "host_id"),
                ("Peer Type", "peer_type"),
                ("Module Id", "module_id"),
                ("GPU Fabric GUID", "gpu_fabric_guid"),
            )
        ]
        gsp = Item("GSP Firmware Version", "gsp_firmware_version", asked(gsp_version))
        virtual = Item(
            "GPU Virtualization Mode",
            "gpu_virtualization_mode",
            [
                Item(
                    "Virtualization Mode",
                    "virtualization_mode",
                    asked(
                        lambda nvml, handle: v.named(
                            v.VIRTUALIZATION, nvml.number("nvmlDeviceGetVirtualizationMode", handle)
                        )
                    ),
                ),
                Item("Host VGPU Mode", "host_vgpu_mode", NONE),
                *([Item("vGPU Heterogeneous Mode", "vgpu_heterogeneous_mode", NONE)] if newer else []),
            ],
        )
        needed = "Requested functionality has been deprecated" if newer else "No"
        reset = Item(
            "GPU Reset Status",
            "gpu_reset_status",
            [
                Item("Reset Required", "reset_required", needed),
                Item("Drain and Reset Recommended", "drain_and_reset_recommended", needed),
            ],
        )
        found = [
            Item("Product Name", "product_name", get("name")),
            Item(
                "Product Brand",
                "product_brand",
                asked(lambda nvml, handle: v.named(v.BRANDS, nvml.number("nvmlDeviceGetBrand", handle))),
            ),
            Item(
                "Product Architecture",
                "product_architecture",
                asked(lambda nvml, handle: v.named(v.ARCHITECTURES, nvml.number("nvmlDeviceGetArchitecture", handle))),
            ),
            Item("Display Mode", "display_mode", get("display_mode")),
            *([Item("Display Attached", "display_attached", get("display_attached"))] if self.branch >= 580 else []),
            Item("Display Active", "display_active", get("display_active")),
            Item("Persistence Mode", "persistence_mode", get("persistence_mode")),
            Item("Addressing Mode", "addressing_mode", get("addressing_mode")),
            self._pair("MIG Mode", "mig_mode", "mig", get("mig.mode.current"), get("mig.mode.pending")),
            *self._migs(),
            Item("Accounting Mode", "accounting_mode", get("accounting.mode")),
            Item("Accounting Mode Buffer Size", "accounting_mode_buffer_size", get("accounting.buffer_size")),
            self._pair("Driver Model", "driver_model", "dm", NONE, NONE),
            Item("Serial Number", "serial", get("serial")),
            Item("GPU UUID", "uuid", get("uuid")),
            Item("Minor Number", "minor_number", asked(plain("nvmlDeviceGetMinorNumber"))),
            Item("VBIOS Version", "vbios_version", get("vbios_version")),
            Item(
                "MultiGPU Board",
                "multigpu_board",
                asked(lambda nvml, handle: v.yes(nvml.number("nvmlDeviceGetMultiGpuBoard", handle))),
            ),
            Item(
                "Board ID", "board_id", asked(lambda nvml, handle: "0x%x" % nvml.number("nvmlDeviceGetBoardId", handle))
            ),
            Item(
                "Board Part Number",
                "board_part_number",
                asked(lambda nvml, handle: nvml.text("nvmlDeviceGetBoardPartNumber", handle)),
            ),
            Item("GPU Part Number", "gpu_part_number", NONE),
            Item("FRU Part Number", "gpu_fru_part_number", NONE),
            Item("Platform Info", "platformInfo", platform)
            if newer
            else Item("Module ID", "gpu_module_id", asked(plain("nvmlDeviceGetModuleId"))),
            Item("Inforom Version", "inforom_version", inforom),
            self._pair("GPU Operation Mode", "gpu_operation_mode", "gom", NONE, NONE),
        ]
        if not newer:
            return [*found, gsp, virtual, reset]
        found += [Item("GPU C2C Mode", "c2c_mode", NONE), virtual]
        found += [reset] if self.branch < 580 else []
        return [*found, Item("GPU Recovery Action", "gpu_recovery_action", get("gpu_recovery_action")), gsp]

    def _migs(self) -> list[Item]:
        devices = []
        for index, mig in enumerate(self.nvml.migs(self.handle)):
            (sms, copy, decoder, encoder, jpeg, ofa, _gi, _ci, size) = self.nvml.unpacked(
                "@8IQ", "nvmlDeviceGetAttributes_v2", mig
            )
            del size
            shared = [
                Item(title, element, str(count))
                for title, element, count in (
                    ("Multiprocessor count", "multiprocessor_count", sms),
                    ("Copy Engine count", "copy_engine_count", copy),
                    ("Encoder count", "encoder_count", encoder),
                    ("Decoder count", "decoder_count", decoder),
                    ("OFA count", "ofa_count", ofa),
                    ("JPG count", "jpg_count", jpeg),
                )
            ]
            memory = self.nvml.memory(mig)
            devices.append(
                Item(
                    "MIG Device",
                    "mig_device",
                    [
                        Item("Index", "index", str(index)),
                        Item(
                            "GPU Instance ID",
                            "gpu_instance_id",
                            str(self.nvml.number("nvmlDeviceGetGpuInstanceId", mig)),
                        ),
                        Item(
                            "Compute Instance ID",
                            "compute_instance_id",
                            str(self.nvml.number("nvmlDeviceGetComputeInstanceId", mig)),
                        ),
                        Item("Device Attributes", "device_attributes", [Item("Shared", "shared", shared)]),
                        Item(
                            "ECC Errors",
                            "ecc_error_count",
                            [
                                Item(
                                    "Volatile",
                                    "volatile_count",
                                    [Item("SRAM Uncorrectable", "sram_uncorrectable", "0")],
                                )
                            ],
                        ),
                        Item(
                            "Shared FB Memory Usage",
                            "fb_memory_usage",
                            [
                                Item(key.capitalize(), key, v.mib(memory[key]))
                                for key in ("total", "reserved", "used", "free")
                            ],
                        ),
                        Item(
                            "Shared BAR1 Memory",
                            "bar1_memory_usage",
                            [Item(key.capitalize(), key, NONE) for key in ("total", "used", "free")],
                        ),
                    ],
                )
            )
        return [Item("", "mig_devices", devices or "None")]

    def _pci(self) -> list[Item]:
        get, asked = self.get, self.asked

        def hexadecimal(title: str, element: str, field: str) -> Item:
            value = get(field)
            return Item(title, element, value, value[2:])

        generations = [
            Item(title, element, get("pcie.link.gen." + name))
            for title, element, name in (
                ("Max", "max_link_gen", "max"),
                ("Current", "current_link_gen", "current"),
                ("Device Current", "device_current_link_gen", "gpucurrent"),
                ("Device Max", "max_device_link_gen", "gpumax"),
                ("Host Max", "max_host_link_gen", "hostmax"),
            )
        ]
        widths = [
            Item(title, element, get("pcie.link.width." + name, after="x"))
            for title, element, name in (("Max", "max_link_width", "max"), ("Current", "current_link_width", "current"))
        ]
        replays = asked(plain("nvmlDeviceGetPcieReplayCounter"))
        rollovers = asked(lambda nvml, handle: str(nvml.field(handle, 95)))
        rates = [
            asked(lambda nvml, handle, way=way: "%d KB/s" % nvml.number("nvmlDeviceGetPcieThroughput", handle, way))
            for way in (0, 1)
        ]
        return [
            Item("IBMNPU", "ibmnpu", [Item("Relaxed Ordering Mode", "relaxed_ordering_mode", NONE)]),
            Item(
                "PCI",
                "pci",
                [
                    hexadecimal("Bus", "pci_bus", "pci.bus"),
                    hexadecimal("Device", "pci_device", "pci.device"),
                    hexadecimal("Domain", "pci_domain", "pci.domain"),
                    *(
                        [
                            hexadecimal("Base Classcode", "pci_base_class", "pci.baseClass"),
                            hexadecimal("Sub Classcode", "pci_sub_class", "pci.subClass"),
                        ]
                        if self.branch >= 570
                        else []
                    ),
                    hexadecimal("Device Id", "pci_device_id", "pci.device_id"),
                    Item("Bus Id", "pci_bus_id", get("pci.bus_id")),
                    hexadecimal("Sub System Id", "pci_sub_system_id", "pci.sub_device_id"),
                    Item(
                        "GPU Link Info",
                        "pci_gpu_link_info",
                        [Item("PCIe Generation", "pcie_gen", generations), Item("Link Width", "link_widths", widths)],
                    ),
                    Item(
                        "Bridge Chip",
                        "pci_bridge_chip",
                        [Item("Type", "bridge_chip_type", NONE), Item("Firmware", "bridge_chip_fw", NONE)],
                    ),
                    Item("Replays Since Reset", "replay_counter", replays),
                    Item("Replay Number Rollovers", "replay_rollover_counter", rollovers),
                    Item("Tx Throughput", "tx_util", rates[0]),
                    Item("Rx Throughput", "rx_util", rates[1]),
                    Item("Atomic Caps Outbound", "atomic_caps_outbound", NONE),
                    Item("Atomic Caps Inbound", "atomic_caps_inbound", NONE),
                ],
            ),
        ]

    def _performance(self) -> list[Item]:
        mask = self.asked(lambda nvml, handle: str(nvml.long("nvmlDeviceGetCurrentClocksThrottleReasons", handle)))
        bits = dict(v.REASONS)
        reasons = []
        for title, name in (
            ("Idle", "gpu_idle"),
            ("Applications Clocks Setting", "applications_clocks_setting"),
            ("SW Power Cap", "sw_power_cap"),
            ("HW Slowdown", "hw_slowdown"),
            ("    HW Thermal Slowdown", "hw_thermal_slowdown"),
            ("    HW Power Brake Slowdown", "hw_power_brake_slowdown"),
            ("Sync Boost", "sync_boost"),
            ("SW Thermal Slowdown", "sw_thermal_slowdown"),
            ("Display Clock Setting", "display_clocks_setting"),
        ):
            reasons.append(
                Item(title, "clocks_event_reason_" + name, v.active(int(mask), bits[name]) if mask.isdigit() else mask)
            )
        counters = [
            Item(title, "clocks_event_reasons_counters_" + element, self.get("clocks_event_reasons_counters." + name))
            for title, element, name in (
                ("SW Power Capping", "sw_power_cap", "sw_power_cap"),
                ("Sync Boost", "sync_boost", "sync_boost"),
                ("SW Thermal Slowdown", "sw_therm_slowdown", "sw_thermal_slowdown"),
                ("HW Thermal Slowdown", "hw_therm_slowdown", "hw_thermal_slowdown"),
                ("HW Power Braking", "hw_power_brake", "hw_power_brake_slowdown"),
            )
        ]
        return [
            Item("Fan Speed", "fan_speed", self.get("fan.speed")),
            Item("Performance State", "performance_state", self.get("pstate")),
            Item("Clocks Event Reasons", "clocks_event_reasons", reasons),
            *(
                [Item("Clocks Event Reasons Counters", "clocks_event_reasons_counters", counters)]
                if self.branch >= 580
                else []
            ),
            *([Item("Sparse Operation Mode", "sparse_operation_mode", NONE)] if self.branch >= 570 else []),
        ]

    def _memory(self) -> list[Item]:
        get = self.get
        bar1 = {}
        for index, key in enumerate(("total", "free", "used")):
            bar1[key] = self.asked(
                lambda nvml, handle, index=index: v.mib(
                    nvml.unpacked("@3Q", "nvmlDeviceGetBAR1MemoryInfo", handle)[index]
                )
            )
        stats = [
            ("Active Sessions", "session_count"),
            ("Average FPS", "average_fps"),
            ("Average Latency", "average_latency"),
        ]
        return [
            Item(
                "FB Memory Usage",
                "fb_memory_usage",
                [Item(key.capitalize(), key, get("memory." + key)) for key in ("total", "reserved", "used", "free")],
            ),
            Item(
                "BAR1 Memory Usage",
                "bar1_memory_usage",
                [Item(key.capitalize(), key, bar1[key]) for key in ("total", "used", "free")],
            ),
            Item(
                "Conf Compute Protected Memory Usage",
                "cc_protected_memory_usage",
                [Item(key.capitalize(), key, get("protected_memory." + key)) for key in ("total", "used", "free")],
            ),
            Item("Compute Mode", "compute_mode", get("compute_mode")),
            Item(
                "Utilization",
                "utilization",
                [
                    Item(title, element, get("utilization." + name))
                    for title, element, name in (
                        ("GPU", "gpu_util", "gpu"),
                        ("Memory", "memory_util", "memory"),
                        ("Encoder", "encoder_util", "encoder"),
                        ("Decoder", "decoder_util", "decoder"),
                        ("JPEG", "jpeg_util", "jpeg"),
                        ("OFA", "ofa_util", "ofa"),
                    )
                ],
            ),
            *(
                Item(title, element, [Item(name, tag, "0") for name, tag in stats])
                for title, element in (("Encoder Stats", "encoder_stats"), ("FBC Stats", "fbc_stats"))
            ),
            *(
                [self._pair("DRAM Encryption Mode", "dram_encryption_mode", "dram_encryption", NONE, NONE)]
                if self.branch >= 570
                else []
            ),
        ]

    def _errors(self) -> list[Item]:
        get, old, by_place = (
            self.get,
            self.branch < 550,
            self.get("ecc.errors.corrected.aggregate.register_file") != NONE,
        )
        found = [self._pair("ECC Mode", "ecc_mode", "ecc", get("ecc.mode.current"), get("ecc.mode.pending"))]
        parts = []
        for title, name in (("Volatile", "volatile"), ("Aggregate", "aggregate")):
            corrected, uncorrected = ("ecc.errors.%s.%s." % (kind, name) for kind in ("corrected", "uncorrected"))
            if by_place:
                lines = [
                    Item(
                        group,
                        element,
                        [
                            Item(title, tag, get(start + field))
                            for title, tag, field in (
                                ("Device Memory", "device_memory", "device_memory"),
                                ("Register File", "register_file", "register_file"),
                                ("L1 Cache", "l1_cache", "l1_cache"),
                                ("L2 Cache", "l2_cache", "l2_cache"),
                                ("Texture Memory", "texture_memory", "texture_memory"),
                                ("CBU", "cbu", "cbu"),
                                ("Total", "total", "total"),
                            )
                        ],
                    )
                    for group, element, start in (
                        ("Single Bit", "single_bit", corrected),
                        ("Double Bit", "double_bit", uncorrected),
                    )
                ]
            else:
                lines = [Item("SRAM Correctable", "sram_correctable", get(corrected + "sram"))]
                lines += (
                    [Item("SRAM Uncorrectable", "sram_uncorrectable", get(uncorrected + "sram"))]
                    if old
                    else [
                        Item(
                            "SRAM Uncorrectable Parity", "sram_uncorrectable_parity", get(uncorrected + "sram.parity")
                        ),
                        Item(
                            "SRAM Uncorrectable SEC-DED", "sram_uncorrectable_secded", get(uncorrected + "sram.secded")
                        ),
                    ]
                )
                lines += [
                    Item("DRAM Correctable", "dram_correctable", get(corrected + "dram")),
                    Item("DRAM Uncorrectable", "dram_uncorrectable", get(uncorrected + "dram")),
                ]
                if name == "aggregate" and not old:
                    lines.append(
                        Item(
                            "SRAM Threshold Exceeded",
                            "sram_threshold_exceeded",
                            get(uncorrected + "sram.thresholdExceeded"),
                        )
                    )
            parts.append(Item(title, name, lines))
        if not old and not by_place:
            parts.append(
                Item(
                    "Aggregate Uncorrectable SRAM Sources",
                    "aggregate_uncorrectable_sram_sources",
                    [
                        Item("SRAM " + title, element, get("ecc.errors.uncorrected.aggregate.sram." + name))
                        for title, element, name in (
                            ("L2", "sram_l2", "l2"),
                            ("SM", "sram_sm", "sm"),
                            ("Microcontroller", "sram_microcontroller", "mcu"),
                            ("PCIE", "sram_pcie", "pcie"),
                            ("Other", "sram_other", "other"),
                        )
                    ],
                )
            )
        if self.branch >= 580:
            for index, (title, element) in enumerate(
                (("Channel Repair Pending", "channel_repair_pending"), ("TPC Repair Pending", "tpc_repair_pending"))
            ):
                parts.append(
                    Item(
                        title,
                        element,
                        self.asked(
                            lambda nvml, handle, index=index: v.yes(
                                nvml.unpacked("@3I", "nvmlDeviceGetRepairStatus", handle, version=1)[index + 1]
                            )
                        ),
                    )
                )
        return [*found, Item("ECC Errors", "ecc_errors", parts), *self._pages_and_rows()]

    def _pages_and_rows(self) -> list[Item]:
        get = self.get
        counts = [
            Item("", element, [Item("", "retired_count", get(field)), Item("", "retired_pagelist", NONE)])
            for element, field in (
                ("multiple_single_bit_retirement", "retired_pages.sbe"),
                ("double_bit_retirement", "retired_pages.dbe"),
            )
        ]
        pending = get("retired_pages.pending")
        pages = Item(
            "Retired Pages",
            "retired_pages",
            [
                *counts,
                Item("Single Bit ECC", "", get("retired_pages.sbe")),
                Item("Double Bit ECC", "", get("retired_pages.dbe")),
                Item("Pending Page Blacklist", "pending_blacklist", pending),
                Item("", "pending_retirement", pending),
            ],
        )
        rows = get("remapped_rows.correctable")
        if rows == NONE:
            return [pages, Item("Remapped Rows", "remapped_rows", NONE)]
        return [
            pages,
            Item(
                "Remapped Rows",
                "remapped_rows",
                [
                    Item("Correctable Error", "remapped_row_corr", rows),
                    Item("Uncorrectable Error", "remapped_row_unc", get("remapped_rows.uncorrectable")),
                    Item("Pending", "remapped_row_pending", get("remapped_rows.pending")),
                    Item("Remapping Failure Occurred", "remapped_row_failure", get("remapped_rows.failure")),
                    Item(
                        "Bank Remap Availability Histogram",
                        "row_remapper_histogram",
                        [
                            Item(
                                name.capitalize(),
                                "row_remapper_histogram_" + name,
                                get("remapped_rows.histogram." + name, after=" bank(s)"),
                            )
                            for name in ("max", "high", "partial", "low", "none")
                        ],
                    ),
                ],
            ),
        ]

    def _temperature(self) -> list[Item]:
        left = self.get("temperature.gpu.tlimit", after=" C")

        def degrees(function: Callable) -> str:
            return self.asked(lambda nvml, handle: "%d C" % function(nvml, handle))

        if left == NONE:
            limits = [
                (
                    title,
                    element,
                    degrees(
                        lambda nvml, handle, kind=kind: nvml.number("nvmlDeviceGetTemperatureThreshold", handle, kind)
                    ),
                )
                for title, element, kind in (
                    ("GPU Shutdown Temp", "gpu_temp_max_threshold", 0),
                    ("GPU Slowdown Temp", "gpu_temp_slow_threshold", 1),
                    ("GPU Max Operating Temp", "gpu_temp_max_gpu_threshold", 3),
                    ("Memory Max Operating Temp", "gpu_temp_max_mem_threshold", 2),
                )
            ]
        else:
            limits = [
                (title, element, degrees(lambda nvml, handle, number=number: nvml.field(handle, number)))
                for title, element, number in (
                    ("GPU Shutdown T.Limit Temp", "gpu_temp_max_tlimit_threshold", 193),
                    ("GPU Slowdown T.Limit Temp", "gpu_temp_slow_tlimit_threshold", 194),
                    ("GPU Max Operating T.Limit Temp", "gpu_temp_max_gpu_tlimit_threshold", 196),
                    ("Memory Max Operating T.Limit Temp", "gpu_temp_max_mem_tlimit_threshold", 195),
                )
            ]
        target = [
            Item("GPU Target Temperature", "gpu_target_temperature", NONE),
            Item("Memory Current Temp", "memory_temp", self.get("temperature.memory", after=" C")),
        ]
        return [
            Item(
                "Temperature",
                "temperature",
                [
                    Item("GPU Current Temp", "gpu_temp", self.get("temperature.gpu", after=" C")),
                    Item("GPU T.Limit Temp", "gpu_temp_tlimit", left),
                    *(Item(*limit) for limit in limits[:3]),
                    *target,
                    Item(*limits[3]),
                ],
            ),
            Item(
                "Supported GPU Target Temp",
                "supported_gpu_target_temp",
                [
                    Item("GPU Target Temp Min", "gpu_target_temp_min", NONE),
                    Item("GPU Target Temp Max", "gpu_target_temp_max", NONE),
                ],
            ),
        ]

    def _power(self) -> list[Item]:
        get, newer, state = self.get, self.branch >= 570, Item("", "power_state", self.get("pstate"))
        drawn = (
            [
                Item("Average Power Draw", "average_power_draw", get("power.draw.average")),
                Item("Instantaneous Power Draw", "instant_power_draw", get("power.draw.instant")),
            ]
            if newer
            else [Item("Power Draw", "power_draw", get("power.draw"))]
        )
        limits = [
            Item(title, element, get(field))
            for title, element, field in (
                ("Current Power Limit", "current_power_limit", "enforced.power.limit"),
                ("Requested Power Limit", "requested_power_limit", "power.limit"),
                ("Default Power Limit", "default_power_limit", "power.default_limit"),
                ("Min Power Limit", "min_power_limit", "power.min_limit"),
                ("Max Power Limit", "max_power_limit", "power.max_limit"),
            )
        ]
        found = [Item("GPU Power Readings", "gpu_power_readings", [state, *drawn, *limits])]
        if newer:
            found.append(
                Item(
                    "GPU Memory Power Readings",
                    "gpu_memory_power_readings",
                    [
                        Item("Average Power Draw", "average_power_draw", NONE),
                        Item("Instantaneous Power Draw", "instant_power_draw", NONE),
                    ],
                )
            )
        found.append(
            Item(
                "Module Power Readings",
                "module_power_readings",
                [state, *(item._replace(value=NONE) for item in [*drawn, *limits])],
            )
        )
        if newer:
            found += [
                Item("Power Smoothing", "power_smoothing", NONE),
                Item(
                    "Workload Power Profiles",
                    "power_profiles",
                    [
                        Item("Requested Profiles", "power_profile_requested_profiles", NONE),
                        Item("Enforced Profiles", "power_profile_enforced_profiles", NONE),
                    ],
                ),
            ]
        return found

    def _clocks(self) -> list[Item]:
        get = self.get
        most = self.asked(lambda nvml, handle: v.mhz(nvml.number("nvmlDeviceGetMaxClockInfo", handle, 3)))
        boost = self.asked(lambda nvml, handle: v.mhz(nvml.number("nvmlDeviceGetMaxCustomerBoostClock", handle, 0)))
        return [
            Item(
                "Clocks",
                "clocks",
                [
                    Item(title, element, get("clocks.current." + name))
                    for title, element, name in (
                        ("Graphics", "graphics_clock", "graphics"),
                        ("SM", "sm_clock", "sm"),
                        ("Memory", "mem_clock", "memory"),
                        ("Video", "video_clock", "video"),
                    )
                ],
            ),
            *(
                Item(
                    title,
                    element,
                    [
                        Item("Graphics", "graphics_clock", get("clocks.%s.graphics" % name)),
                        Item("Memory", "mem_clock", get("clocks.%s.memory" % name)),
                    ],
                )
                for title, element, name in (
                    ("Applications Clocks", "applications_clocks", "applications"),
                    ("Default Applications Clocks", "default_applications_clocks", "default_applications"),
                )
            ),
            Item("Deferred Clocks", "deferred_clocks", [Item("Memory", "mem_clock", NONE)]),
            Item(
                "Max Clocks",
                "max_clocks",
                [
                    *(
                        Item(title, element, get("clocks.max." + name))
                        for title, element, name in (
                            ("Graphics", "graphics_clock", "graphics"),
                            ("SM", "sm_clock", "sm"),
                            ("Memory", "mem_clock", "memory"),
                        )
                    ),
                    Item("Video", "video_clock", most),
                ],
            ),
            Item("Max Customer Boost Clocks", "max_customer_boost_clocks", [Item("Graphics", "graphics_clock", boost)]),
            Item(
                "Clock Policy",
                "clock_policy",
                [Item("Auto Boost", "auto_boost", NONE), Item("Auto Boost Default", "auto_boost_default", NONE)],
            ),
            *([Item("Voltage", "voltage", [Item("Graphics", "graphics_volt", NONE)])] if self.branch < 580 else []),
        ]

    def _rest(self) -> list[Item]:
        get, health = self.get, [("Summary", "summary")] if self.branch >= 580 else []
        health += [
            ("Bandwidth", "bandwidth"),
            ("Route Recovery in progress", "route_recovery_in_progress"),
            ("Route Unhealthy", "route_unhealthy"),
            ("Access Timeout Recovery", "access_timeout_recovery"),
        ]
        health += [("Incorrect Configuration", "incorrect_configuration")] if self.branch >= 580 else []
        place = [
            Item("CliqueId", "cliqueId", get("fabric.cliqueId")),
            Item("ClusterUUID", "clusterUuid", get("fabric.clusterUuid")),
            Item("Health", "health", [Item(title, name, get("fabric.health." + name)) for title, name in health]),
        ]
        return [
            Item(
                "Fabric",
                "fabric",
                [
                    Item("State", "state", get("fabric.state")),
                    Item("Status", "status", get("fabric.status")),
                    *(place if self.branch >= 550 else []),
                ],
            ),
            self._supported_clocks(),
            self._processes(),
            Item("", "accounted_processes", []),
            *([Item("Capabilities", "capabilities", [Item("EGM", "egm", "disabled")])] if self.branch >= 580 else []),
        ]

    def _supported_clocks(self) -> Item:
        """Told in the XML, and in the text when it is asked for."""
        try:
            memories = self.nvml.listed("nvmlDeviceGetSupportedMemoryClocks", self.handle)
            lists = [
                (memory, self.nvml.listed("nvmlDeviceGetSupportedGraphicsClocks", self.handle, memory))
                for memory in memories
            ]
        except n.NvmlError as error:
            return Item("Supported Clocks", "supported_clocks", v.bare(v.failed(error)))
        return Item(
            "Supported Clocks",
            "supported_clocks",
            [
                Item(
                    "",
                    "supported_mem_clock",
                    [
                        Item("Memory", "value", v.mhz(memory)),
                        *(Item("    Graphics", "supported_graphics_clock", v.mhz(clock)) for clock in clocks),
                    ],
                )
                for memory, clocks in lists
            ],
        )

    def _processes(self) -> Item:
        found = []
        for kind, letter in (("Compute", "C"), ("Graphics", "G")):
            for pid, used in self.nvml.processes(self.handle, kind):
                found.append(
                    Item(
                        "",
                        "process_info",
                        [
                            Item("GPU instance ID", "gpu_instance_id", NONE),
                            Item("Compute instance ID", "compute_instance_id", NONE),
                            Item("Process ID", "pid", str(pid)),
                            Item("    Type", "type", letter),
                            Item("    Name", "process_name", queries.process_name(self.nvml, pid)),
                            Item("    Used GPU Memory", "used_memory", v.mib(used)),
                        ],
                    )
                )
        return Item("Processes", "processes", found)


def gsp_version(nvml: n.Nvml, handle) -> str:
    """The function has no length: its buffer holds 64 characters."""
    return nvml.unpacked("@64s", "nvmlDeviceGetGspFirmwareVersion", handle)[0].split(b"\0")[0].decode()
