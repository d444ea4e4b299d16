# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi tells of a GPU: the fields of --query-gpu, and of them the documents of -q and -q -x."""

from __future__ import annotations

import re
import time
from typing import Callable, NamedTuple, Union
from xml.sax.saxutils import escape

from . import nvml as n

CODES = {
    n.NOT_SUPPORTED: "[N/A]",
    n.NO_FUNCTION: "[N/A]",
    n.DEPRECATED: "[Requested functionality has been deprecated]",
    n.LOST: "[GPU is lost]",
    n.RESET_REQUIRED: "[GPU requires reset]",
    n.NO_PERMISSION: "[Insufficient Permissions]",
}
ON = {0: "Disabled", 1: "Enabled"}
YES = {0: "No", 1: "Yes"}
COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
RECOVERY = {0: "None", 1: "Reset", 2: "Reboot", 3: "Drain P2P", 4: "Drain and Reset"}
FABRIC_STATES = {1: "Not Started", 2: "In Progress", 3: "Completed"}
REASONS = {
    "gpu_idle": (0x1, "Idle"),
    "applications_clocks_setting": (0x2, "Applications Clocks Setting"),
    "sw_power_cap": (0x4, "SW Power Cap"),
    "hw_slowdown": (0x8, "HW Slowdown"),
    "hw_thermal_slowdown": (0x40, "HW Thermal Slowdown"),
    "hw_power_brake_slowdown": (0x80, "HW Power Brake Slowdown"),
    "sync_boost": (0x10, "Sync Boost"),
    "sw_thermal_slowdown": (0x20, "SW Thermal Slowdown"),
}
# Start of a field's name -> the unit of its number.
UNITS = {"memory.": "MiB", "power.": "W", "enforced.power.": "W", "clocks.": "MHz", "utilization.": "%", "fan.": "%"}
# The same in the documents alone.
SUFFIXES = {
    "temperature.": " C",
    "threshold.": " C",
    "margin.": " C",
    "pcie.link.width.": "x",
    "remapped_rows.histogram.": " bank(s)",
}


# ---- fields ----

Read = Callable[[n.Gpu], Union[int, float, str]]


def text(name: str, *arguments) -> Read:
    return lambda gpu: gpu.text(name, *arguments)


def number(name: str, *arguments) -> Read:
    return lambda gpu: gpu.number(name, *arguments)


def member(name: str, count: int, index: int, names: dict[int, str] | None = None) -> Read:
    """Read one of the numbers that a function answers."""

    def read(gpu: n.Gpu) -> int | str:
        value = gpu.numbers(name, count)[index]
        return names.get(value, "Unknown") if names else value

    return read


def watts(name: str) -> Read:
    return lambda gpu: gpu.number(name) / 1000


def nvml_field(field: int) -> Read:
    return lambda gpu: gpu.field(field)


def reason(bit: int) -> Read:
    return lambda gpu: "Active" if gpu.long("CurrentClocksThrottleReasons") & bit else "Not Active"


def ecc(kind: int, counter: int, place: int) -> Read:
    return lambda gpu: gpu.long("MemoryErrorCounter", kind, counter, place)


def histogram(index: int) -> Read:
    return lambda gpu: gpu.unpacked("@5I", "RowRemapperHistogram")[index]


def memory(key: str) -> Read:
    return lambda gpu: gpu.memory()[key] >> 20


def read_fabric_status(gpu: n.Gpu) -> str:
    """Return the result of the registration, once it has ended."""
    fabric = gpu.fabric()
    return gpu.nvml.error(fabric["status"]) if fabric["state"] == 3 else "N/A"


def read_margin(gpu: n.Gpu) -> int:
    """Return the degrees below the highest operating temperature, which NVML states from branch 570 on."""
    try:
        return gpu.unpacked("@Ii", "MarginTemperature", version=1)[1]
    except n.NvmlError as error:
        if error.code != n.NO_FUNCTION:
            raise
        gpu.field(196)
        return gpu.number("TemperatureThreshold", 3) - gpu.number("Temperature", 0)


# The fields of --query-gpu, named as nvidia-smi 590.48.01 does.
FIELDS: dict[str, Read] = {
    "driver_version": lambda gpu: gpu.nvml.driver(),
    "index": number("Index"),
    "name": text("Name"),
    "serial": text("Serial"),
    "uuid": text("UUID"),
    "pci.bus_id": lambda gpu: gpu.pci()["address"],
    "pci.device_id": lambda gpu: "0x%08X" % gpu.pci()["id"],
    "pci.sub_device_id": lambda gpu: "0x%08X" % gpu.pci()["subsystem"],
    "pcie.link.gen.current": number("CurrPcieLinkGeneration"),
    "pcie.link.gen.max": number("MaxPcieLinkGeneration"),
    "pcie.link.width.current": number("CurrPcieLinkWidth"),
    "pcie.link.width.max": number("MaxPcieLinkWidth"),
    "persistence_mode": member("PersistenceMode", 1, 0, ON),
    "vbios_version": text("VbiosVersion"),
    "inforom.img": text("InforomImageVersion"),
    "inforom.ecc": text("InforomVersion", 1),
    "gpu_recovery_action": lambda gpu: RECOVERY.get(gpu.field(230), "Unknown"),
    "fan.speed": number("FanSpeed"),
    "pstate": lambda gpu: "P%d" % gpu.number("PerformanceState"),
    **{"clocks_event_reasons." + name: reason(bit) for name, (bit, _title) in REASONS.items()},
    **{"memory." + key: memory(key) for key in ("total", "reserved", "used", "free")},
    "compute_mode": member("ComputeMode", 1, 0, COMPUTE_MODES),
    "utilization.gpu": lambda gpu: gpu.unpacked("@2I", "UtilizationRates")[0],
    "mig.mode.current": member("MigMode", 2, 0, ON),
    "mig.mode.pending": member("MigMode", 2, 1, ON),
    "ecc.mode.current": member("EccMode", 2, 0, ON),
    "ecc.mode.pending": member("EccMode", 2, 1, ON),
    **{
        "ecc.errors.%s.%s.%s" % (kind_name, counter_name, place_name): ecc(kind, counter, place)
        for kind, kind_name in enumerate(("corrected", "uncorrected"))
        for counter, counter_name in enumerate(("volatile", "aggregate"))
        for place, place_name in ((7, "sram"), (2, "dram"))
    },
    "remapped_rows.correctable": member("RemappedRows", 4, 0),
    "remapped_rows.uncorrectable": member("RemappedRows", 4, 1),
    "remapped_rows.pending": member("RemappedRows", 4, 2, YES),
    "remapped_rows.failure": member("RemappedRows", 4, 3, YES),
    **{
        "remapped_rows.histogram." + name: histogram(index)
        for index, name in enumerate(("max", "high", "partial", "low", "none"))
    },
    "temperature.gpu": number("Temperature", 0),
    "temperature.gpu.tlimit": read_margin,
    "temperature.memory": nvml_field(82),
    "power.draw": watts("PowerUsage"),
    "power.limit": watts("PowerManagementLimit"),
    "enforced.power.limit": watts("EnforcedPowerLimit"),
    "power.default_limit": watts("PowerManagementDefaultLimit"),
    "power.min_limit": lambda gpu: gpu.numbers("PowerManagementLimitConstraints", 2)[0] / 1000,
    "power.max_limit": lambda gpu: gpu.numbers("PowerManagementLimitConstraints", 2)[1] / 1000,
    **{
        "clocks.%s.%s" % (group, name): number(function, kind)
        for group, function in (
            ("current", "ClockInfo"),
            ("applications", "ApplicationsClock"),
            ("max", "MaxClockInfo"),
        )
        for kind, name in enumerate(("graphics", "sm", "memory"))
    },
    "fabric.state": lambda gpu: FABRIC_STATES.get(gpu.fabric()["state"], "N/A"),
    "fabric.status": read_fabric_status,
    "fabric.cliqueId": lambda gpu: gpu.fabric()["clique"],
}
# What the documents have and --query-gpu does not.
DOCUMENT_FIELDS: dict[str, Read] = {
    "replays": number("PcieReplayCounter"),
    "rollovers": nvml_field(95),
    "threshold.shutdown": number("TemperatureThreshold", 0),
    "threshold.slowdown": number("TemperatureThreshold", 1),
    "margin.shutdown": nvml_field(193),
    "margin.slowdown": nvml_field(194),
    "sram.exceeded": lambda gpu: YES[gpu.unpacked("@I11QI4x", "SramEccErrorStatus", version=1)[-1]],
}


def find_by_start(table: dict[str, str], name: str) -> str:
    return next((value for start, value in table.items() if name.startswith(start)), "")


def ask(name: str, gpu: n.Gpu) -> str:
    """Return the value of a field as --query-gpu writes it, or the reason why there is none."""
    try:
        value = (FIELDS.get(name) or DOCUMENT_FIELDS[name])(gpu)
    except n.NvmlError as error:
        return CODES.get(error.code, "[Unknown Error]")
    unit = find_by_start(UNITS, name)
    if isinstance(value, str) or not unit:
        return str(value)
    return ("%.2f %s" if unit == "W" else "%d %s") % (value, unit)


def bare(value: str) -> str:
    """Return a value without the brackets of --query-gpu."""
    return value[1:-1] if value.startswith("[") else value


# ---- documents ----

# A title in the text, an element in the XML, and a field. The elements are those of captures with driver 535.54.
TREE = """
Product Name                      product_name                      name
Persistence Mode                  persistence_mode                  persistence_mode
MIG Mode                          mig_mode
    Current                       current_mig                       mig.mode.current
    Pending                       pending_mig                       mig.mode.pending
Serial Number                     serial                            serial
GPU UUID                          uuid                              uuid
VBIOS Version                     vbios_version                     vbios_version
GPU Recovery Action               gpu_recovery_action               gpu_recovery_action
PCI                               pci
    Bus Id                        pci_bus_id                        pci.bus_id
    GPU Link Info                 pci_gpu_link_info
        PCIe Generation           pcie_gen
            Max                   max_link_gen                      pcie.link.gen.max
            Current               current_link_gen                  pcie.link.gen.current
        Link Width                link_widths
            Max                   max_link_width                    pcie.link.width.max
            Current               current_link_width                pcie.link.width.current
    Replays Since Reset           replay_counter                    replays
    Replay Number Rollovers       replay_rollover_counter           rollovers
Performance State                 performance_state                 pstate
Clocks Event Reasons              clocks_event_reasons
%s
FB Memory Usage                   fb_memory_usage
    Total                         total                             memory.total
    Reserved                      reserved                          memory.reserved
    Used                          used                              memory.used
    Free                          free                              memory.free
ECC Mode                          ecc_mode
    Current                       current_ecc                       ecc.mode.current
    Pending                       pending_ecc                       ecc.mode.pending
ECC Errors                        ecc_errors
    Volatile                      volatile
        SRAM Correctable          sram_correctable                  ecc.errors.corrected.volatile.sram
        SRAM Uncorrectable        sram_uncorrectable                ecc.errors.uncorrected.volatile.sram
        DRAM Correctable          dram_correctable                  ecc.errors.corrected.volatile.dram
        DRAM Uncorrectable        dram_uncorrectable                ecc.errors.uncorrected.volatile.dram
    Aggregate                     aggregate
        SRAM Correctable          sram_correctable                  ecc.errors.corrected.aggregate.sram
        SRAM Uncorrectable        sram_uncorrectable                ecc.errors.uncorrected.aggregate.sram
        DRAM Correctable          dram_correctable                  ecc.errors.corrected.aggregate.dram
        DRAM Uncorrectable        dram_uncorrectable                ecc.errors.uncorrected.aggregate.dram
        SRAM Threshold Exceeded   sram_threshold_exceeded           sram.exceeded
Remapped Rows                     remapped_rows
    Correctable Error             remapped_row_corr                 remapped_rows.correctable
    Uncorrectable Error           remapped_row_unc                  remapped_rows.uncorrectable
    Pending                       remapped_row_pending              remapped_rows.pending
    Remapping Failure Occurred    remapped_row_failure              remapped_rows.failure
    Bank Remap Availability Histogram  row_remapper_histogram
        Max                       row_remapper_histogram_max        remapped_rows.histogram.max
        High                      row_remapper_histogram_high       remapped_rows.histogram.high
        Partial                   row_remapper_histogram_partial    remapped_rows.histogram.partial
        Low                       row_remapper_histogram_low        remapped_rows.histogram.low
        None                      row_remapper_histogram_none       remapped_rows.histogram.none
Temperature                       temperature
    GPU Current Temp              gpu_temp                          temperature.gpu
    GPU T.Limit Temp              gpu_temp_tlimit                   temperature.gpu.tlimit
    GPU Shutdown Temp             gpu_temp_max_threshold            threshold.shutdown
    GPU Slowdown Temp             gpu_temp_slow_threshold           threshold.slowdown
    GPU Shutdown T.Limit Temp     gpu_temp_max_tlimit_threshold     margin.shutdown
    GPU Slowdown T.Limit Temp     gpu_temp_slow_tlimit_threshold    margin.slowdown
    Memory Current Temp           memory_temp                       temperature.memory
GPU Power Readings                gpu_power_readings
    Power Draw                    power_draw                        power.draw
    Current Power Limit           current_power_limit               enforced.power.limit
    Requested Power Limit         requested_power_limit             power.limit
    Default Power Limit           default_power_limit               power.default_limit
    Min Power Limit               min_power_limit                   power.min_limit
    Max Power Limit               max_power_limit                   power.max_limit
Fabric                            fabric
    State                         state                             fabric.state
    Status                        status                            fabric.status
    CliqueId                      cliqueId                          fabric.cliqueId
""" % "\n".join(
    "    {0}  clocks_event_reason_{1}  clocks_event_reasons.{1}".format(title, name)
    for name, (_bit, title) in REASONS.items()
)
ROW = re.compile(r"(?m)^( *)(\S.*?)  +(\S+)(?: +(\S+))?$")
# -d: section -> elements
SECTIONS = {
    "ECC": ("ecc_mode", "ecc_errors"),
    "ROW_REMAPPER": ("remapped_rows",),
    "TEMPERATURE": ("temperature",),
    "POWER": ("gpu_power_readings",),
    "PERFORMANCE": ("performance_state", "clocks_event_reasons"),
}


class Row(NamedTuple):
    """One line of a document. The value of a heading is None."""

    depth: int
    title: str
    element: str
    value: str | None


def list_rows(gpu: n.Gpu) -> list[Row]:
    """Return the document of a GPU."""
    rows = []
    for indent, title, element, field in ROW.findall(TREE):
        value = bare(ask(field, gpu)) if field else None
        if value and value.lstrip("-").isdigit():
            value += find_by_start(SUFFIXES, field)
        rows.append(Row(len(indent) // 4, title, element, value))
    processes = gpu.processes()
    rows.append(Row(0, "Processes", "processes", None if processes else "None"))
    for kind, pid, used in processes:
        rows += [
            Row(1, "Process", "process_info", None),
            Row(2, "Process ID", "pid", str(pid)),
            Row(2, "Type", "type", kind),
            Row(2, "Name", "process_name", gpu.nvml.process_name(pid)),
            Row(2, "Used GPU Memory", "used_memory", "%d MiB" % (used >> 20)),
        ]
    return rows


def list_head(nvml: n.Nvml) -> list[Row]:
    return [
        Row(0, "Timestamp", "timestamp", time.strftime("%a %b %e %H:%M:%S %Y")),
        Row(0, "Driver Version", "driver_version", nvml.driver()),
        Row(0, "CUDA Version", "cuda_version", nvml.cuda()),
        Row(0, "Attached GPUs", "attached_gpus", str(nvml.count())),
    ]


def format_text(rows: list[Row], depth: int) -> list[str]:
    lines = []
    for row in rows:
        title = "    " * (depth + row.depth) + row.title
        lines.append(title if row.value is None else "%-50s: %s" % (title, row.value))
    return lines


def text_document(nvml: n.Nvml, gpus: list[n.Gpu], sections: list[str]) -> str:
    """Return all of it, or the sections of -d."""
    wanted = [element for name in sections for element in SECTIONS[name]]
    lines = ["", "==============NVSMI LOG==============", "", *format_text(list_head(nvml), 0), ""]
    for gpu in gpus:
        rows, part = [], ""
        for row in list_rows(gpu):
            part = part if row.depth else row.element
            if not wanted or part in wanted:
                rows.append(row)
        lines += ["GPU %s" % gpu.pci()["address"], *format_text(rows, 1), ""]
    return "\n".join(lines) + "\n"


def format_xml(rows: list[Row], depth: int) -> list[str]:
    lines: list[str] = []
    opened: list[Row] = []
    for row in [*rows, None]:
        while opened and (row is None or row.depth <= opened[-1].depth):
            closed = opened.pop()
            lines.append("%s</%s>" % ("\t" * (depth + closed.depth), closed.element))
        if row is None:
            break
        start = "%s<%s>" % ("\t" * (depth + row.depth), row.element)
        if row.value is None:
            opened.append(row)
            lines.append(start)
        else:
            lines.append("%s%s</%s>" % (start, escape(row.value), row.element))
    return lines


def xml_document(nvml: n.Nvml, gpus: list[n.Gpu]) -> str:
    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<!-- simulated by gpusim, no hardware -->",
        "<nvidia_smi_log>",
        *format_xml(list_head(nvml), 1),
    ]
    for gpu in gpus:
        lines += ['\t<gpu id="%s">' % gpu.pci()["address"], *format_xml(list_rows(gpu), 2), "\t</gpu>"]
    return "\n".join([*lines, "</nvidia_smi_log>"]) + "\n"
