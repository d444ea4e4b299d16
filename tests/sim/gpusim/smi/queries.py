# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The --query switches: lists of fields, answered as lines with commas, and their help."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from . import fields
from . import nvml as n
from . import values as v
from .usage import Usage

# name -> (names of the field and its unit, the same as a column)
GPU = (("timestamp", ""), ("gpu_name|name", ""), ("gpu_bus_id", ""), ("gpu_serial", ""), ("gpu_uuid", ""))
COLUMNS = {
    "compute-apps": GPU + (("pid", ""), ("process_name|name", ""), ("used_gpu_memory|used_memory", "MiB")),
    "accounted-apps": GPU
    + (
        ("vgpu_instance", ""),
        ("pid", ""),
        ("gpu_utilization|gpu_util", "%"),
        ("mem_utilization|mem_util", "%"),
        ("max_memory_usage", "MiB"),
        ("time", "ms"),
    ),
    "retired-pages": GPU
    + (("retired_pages.address", ""), ("retired_pages.timestamp", ""), ("retired_pages.cause", "")),
    "remapped-rows": GPU
    + tuple(
        ("remapped_rows." + name, "")
        for name in (
            "correctable",
            "uncorrectable",
            "pending",
            "failure",
            "histogram.max",
            "histogram.high",
            "histogram.partial",
            "histogram.low",
            "histogram.none",
        )
    ),
    "supported-clocks": GPU + (("memory|mem", "MHz"), ("graphics|gr", "MHz")),
}


def _compute_apps(nvml: n.Nvml, handle) -> Iterator[dict[str, str]]:
    for pid, used in nvml.processes(handle):
        yield {"pid": str(pid), "process_name": process_name(nvml, pid), "used_gpu_memory": v.mib(used)}


def process_name(nvml: n.Nvml, pid: int) -> str:
    try:
        return nvml.text("nvmlSystemGetProcessName", pid)
    except n.NvmlError:
        return "[Not Found]"


def _no_apps(_nvml: n.Nvml, _handle) -> Iterator[dict[str, str]]:
    """Accounting is off."""
    return iter(())


def _retired_pages(nvml: n.Nvml, handle) -> Iterator[dict[str, str]]:
    for cause, name in enumerate(("Single Bit ECC", "Double Bit ECC")):
        try:
            pages = ["0x%016x" % address for address in nvml.retired(handle, cause)]
        except n.NvmlError as error:
            pages = [v.failed(error)]
        for page in pages:
            yield {"retired_pages.address": page, "retired_pages.timestamp": v.NOTHING, "retired_pages.cause": name}


def _remapped_rows(nvml: n.Nvml, handle) -> Iterator[dict[str, str]]:
    """Here, other than in --query-gpu, what is pending and what has failed is 0 or 1."""
    row = {}
    for index, name in enumerate(("correctable", "uncorrectable", "pending", "failure")):
        try:
            row["remapped_rows." + name] = str(nvml.numbers("nvmlDeviceGetRemappedRows", handle, 4)[index])
        except n.NvmlError as error:
            row["remapped_rows." + name] = v.failed(error)
    for name in ("max", "high", "partial", "low", "none"):
        row["remapped_rows.histogram." + name] = fields.ask("remapped_rows.histogram." + name, nvml, handle)
    yield row


def _supported_clocks(nvml: n.Nvml, handle) -> Iterator[dict[str, str]]:
    for memory in nvml.listed("nvmlDeviceGetSupportedMemoryClocks", handle):
        for graphics in nvml.listed("nvmlDeviceGetSupportedGraphicsClocks", handle, memory):
            yield {"memory": v.mhz(memory), "graphics": v.mhz(graphics)}


ROWS: dict[str, Callable] = {
    "compute-apps": _compute_apps,
    "accounted-apps": _no_apps,
    "retired-pages": _retired_pages,
    "remapped-rows": _remapped_rows,
    "supported-clocks": _supported_clocks,
}


def _known(name: str, table: dict[str, tuple[str, str]]) -> tuple[str, str]:
    if name not in table:
        raise Usage('Field "%s" is not a valid field to query.\n\n' % name)
    return table[name]


def columns(subject: str) -> dict[str, tuple[str, str]]:
    """Each name of a field: the field's first name, and its unit."""
    rows = [("|".join(field.names), field.unit) for field in fields.TABLE] if subject == "gpu" else COLUMNS[subject]
    return {name: (names.split("|")[0], unit) for names, unit in rows for name in names.split("|")}


def check(subject: str, asked: str, form: set[str]) -> list[tuple[str, str]]:
    """The fields of a query, before the driver is asked for anything."""
    if "csv" not in form:
        raise Usage("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n")
    if form - {"csv", "noheader", "nounits"}:
        raise Usage("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
    table = columns(subject)
    return [_known(name.strip(), table) for name in asked.split(",")]


def answer(subject: str, nvml: n.Nvml, handles: list, wanted: list[tuple[str, str]], form: set[str]) -> str:
    """The lines of a query."""
    lines = [] if "noheader" in form else [", ".join(name + (" [%s]" % unit if unit else "") for name, unit in wanted)]
    for handle in handles:
        if subject == "gpu":
            rows = [{name: fields.ask(name, nvml, handle) for name, _unit in wanted}]
        else:
            about = {
                name: fields.ask(name, nvml, handle)
                for name, _unit in wanted
                if name in fields.BY_NAME and not name.startswith("remapped_rows")
            }
            rows = [{**about, **row} for row in ROWS[subject](nvml, handle)]
        for row in rows:
            cells = [row.get(name, v.NOTHING) for name, _unit in wanted]
            if "nounits" in form:
                cells = [re.sub(r"^(-?[\d.]+) (?:MiB|W|MHz|%|us|ms)$", r"\1", cell) for cell in cells]
            lines.append(", ".join(cells))
    return "".join(line + "\n" for line in lines)


def described(subject: str) -> str:
    """The help of a query: each field in quotation marks after an empty line, where exporters look for them."""
    lines = ['List of valid properties to query for the switch "--query-%s":' % subject, ""]
    if subject == "gpu":
        rows = [(field.names, field.about) for field in fields.TABLE]
    else:
        rows = [
            (
                tuple(names.split("|")),
                "As in --query-gpu." if names.split("|")[0] in fields.BY_NAME else "Of this query.",
            )
            for names, _unit in COLUMNS[subject]
        ]
    for names, about in rows:
        lines += [" or ".join('"%s"' % name for name in names), about, ""]
    return "\n".join(lines) + "\n"
