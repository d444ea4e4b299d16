# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated nvidia-smi: the command lines that modules, tests and runbooks of the collection use, and no others."""

from __future__ import annotations

import argparse
import ctypes
import re
import sys
import time

from . import library, reset, state
from . import nvml as n
from . import smi_document as document
from .smi_document import ask, bare

BANNER = "simulated by gpusim, no hardware"
FAILURES = {
    9: (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.\n"
    ),
    12: (
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
        "Driver is properly installed and present in your system.\n"
        "Please also try adding directory that contains libnvidia-ml.so to your system PATH.\n"
    ),
}
USAGE = """This simulated nvidia-smi knows only these options:
    nvidia-smi [-i GPU]                                summary
    nvidia-smi -L [-i GPU]                             list of GPUs and MIG devices
    nvidia-smi -q [-x | -d SECTION,...] [-i GPU]       all of it, or sections: {sections}
    nvidia-smi --query-gpu=FIELD,... --format=csv[,noheader][,nounits] [-i GPU]
    nvidia-smi -pm 0|1 [-i GPU]                        persistence mode
    nvidia-smi --gpu-reset [-i GPU]                    reset
GPU: an index, UUID, serial number or PCI address, or several with commas.
FIELD: {fields}
"""
WIDE = "+" + "-" * 89 + "+"
RULE = "+-----------------------------------------+------------------------+----------------------+"
DOUBLE = "|=========================================+========================+======================|"
SUMMARY = (
    "index name persistence_mode pci.bus_id fan.speed temperature.gpu pstate power.draw power.limit memory.used "
    "memory.total utilization.gpu compute_mode mig.mode.current ecc.mode.current"
).split()


class UsageError(Exception):
    """The command line asks for what this program does not do. The text is printed."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UsageError(describe_usage())


def describe_usage() -> str:
    return USAGE.format(sections=", ".join(document.SECTIONS), fields=", ".join(sorted(document.FIELDS)))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(add_help=False, allow_abbrev=False)
    command = parser.add_mutually_exclusive_group()
    command.add_argument("-L", "--list-gpus", dest="list", action="store_true")
    command.add_argument("-q", "--query", action="store_true")
    command.add_argument("--query-gpu", dest="fields", type=_words)
    command.add_argument("-pm", "--persistence-mode", dest="mode", type=int, choices=[0, 1])
    command.add_argument("-r", "--gpu-reset", dest="reset", action="store_true")
    parser.add_argument("-i", "--id", dest="gpus", type=_words)
    parser.add_argument("-x", "--xml-format", dest="xml", action="store_true")
    parser.add_argument("-d", "--display", dest="sections", type=lambda text: _words(text.upper()), default=[])
    parser.add_argument("--format", dest="form", type=_words, default=[])
    asked = parser.parse_args(arguments)
    if (
        (asked.xml or asked.sections)
        and not asked.query
        or not set(asked.sections) <= set(document.SECTIONS)
        or not set(asked.form) <= {"csv", "noheader", "nounits"}
        or bool(asked.fields) != ("csv" in asked.form)
    ):
        parser.error("an invalid combination")
    for name in asked.fields or []:
        if name not in document.FIELDS:
            raise UsageError('Field "%s" is not a valid field to query.\n\n%s' % (name, describe_usage()))
    return asked


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


# ---- GPUs ----


def _is_named(gpu: n.Gpu, word: str) -> bool:
    address = gpu.pci()["address"]
    return word.upper() in (address, address[4:], address[9:]) or word in (gpu.text("UUID"), gpu.text("Serial"))


def _report_unreachable(nvml: n.Nvml, index: int, code: int) -> None:
    """NVML has no address of a GPU without a handle: the node's description has."""
    there = [gpu for gpu in range(state.gpu_count()) if state.gpu_now(gpu, "absent", "0") != "1"]
    address = state.gpu_value(there[index], "pci") if index < len(there) else str(index)
    advice = ".  Reboot the system to recover this GPU" if code == n.LOST else ""
    print("Unable to determine the device handle for GPU%s: %s%s" % (address[4:].upper(), nvml.error(code), advice))


def find_gpus(nvml: n.Nvml, words: list[str] | None) -> list[n.Gpu]:
    """Return the GPUs that -i names, or all."""
    found = []
    for index in range(nvml.count()):
        handle = ctypes.c_void_p()
        is_wanted = words is None or str(index) in words
        try:
            nvml.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        except n.NvmlError as error:
            if not is_wanted:
                continue
            _report_unreachable(nvml, index, error.code)
            raise
        gpu = n.Gpu(nvml, handle)
        # A short number is an index and no serial number.
        names = [word for word in words or [] if not word.isdigit() or len(word) > 3]
        if is_wanted or any(_is_named(gpu, word) for word in names):
            found.append(gpu)
    if not found:
        print("No devices were found")
        raise n.NvmlError(n.NOT_FOUND)
    return found


# ---- answers ----


def list_gpus(gpus: list[n.Gpu]) -> str:
    """Return one line for each GPU, and below it one for each of its MIG devices."""
    lines = []
    for gpu in gpus:
        name = ask("name", gpu)
        lines.append(_heading(gpu))
        for index, device in enumerate(gpu.mig_devices()):
            profile = device.text("Name")[len(name) :].replace(" MIG ", "", 1).strip()
            lines.append("  MIG %-11s Device %2d: (UUID: %s)" % (profile, index, device.text("UUID")))
    return "\n".join(lines) + "\n"


def _heading(gpu: n.Gpu) -> str:
    return "GPU %s: %s (UUID: %s)" % (ask("index", gpu), ask("name", gpu), ask("uuid", gpu))


def summary(nvml: n.Nvml, gpus: list[n.Gpu]) -> str:
    driver = nvml.driver()
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y") + "       ",
        WIDE,
        "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |" % (driver, driver, nvml.cuda()),
        "| %-87s |" % BANNER,
        RULE,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        DOUBLE,
    ]
    processes = []
    for gpu in gpus:
        value = {name: bare(ask(name, gpu)) for name in SUMMARY}
        short = {name: text.replace(" ", "") for name, text in value.items()}
        persistence = "On" if value["persistence_mode"] == "Enabled" else "Off"
        usage = "%s / %5s" % tuple(value[name].split(".")[0] + "W" for name in ("power.draw", "power.limit"))
        memory = "%s / %9s" % (short["memory.used"], short["memory.total"])
        lines += [
            "| %3s  %-27.27s %5s  |   %16s Off |%21s |"
            % (value["index"], value["name"], persistence, value["pci.bus_id"], _uncorrected_errors(gpu, value)),
            "| %-4s %4sC %5s %22s |%23s |%9s %11.11s |"
            % (
                short["fan.speed"],
                value["temperature.gpu"],
                value["pstate"],
                usage,
                memory,
                short["utilization.gpu"],
                value["compute_mode"],
            ),
            "| %39s | %22s | %20s |" % ("", "", value["mig.mode.current"]),
            RULE,
        ]
        processes += [
            "| %4s   N/A  N/A %16d %6s   %-32.32s %12s |"
            % (value["index"], pid, kind, nvml.process_name(pid), "%dMiB" % (used >> 20))
            for kind, pid, used in gpu.processes()
        ]
    lines += [
        "",
        WIDE,
        "| %-87s |" % "Processes:",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|=========================================================================================|",
        *(processes or ["| %-87s |" % " No running processes found"]),
        WIDE,
    ]
    return "\n".join(lines) + "\n"


def _uncorrected_errors(gpu: n.Gpu, value: dict[str, str]) -> str:
    if value["mig.mode.current"] == "Enabled":
        return "On"
    if value["ecc.mode.current"] == "Disabled":
        return "Off"
    try:
        return str(gpu.long("TotalEccErrors", 1, 0))
    except n.NvmlError as error:
        return bare(document.CODES.get(error.code, "[Unknown Error]"))


def query(gpus: list[n.Gpu], names: list[str], form: list[str]) -> str:
    units = [document.find_by_start(document.UNITS, name) for name in names]
    headings = [name + (" [%s]" % unit if unit else "") for name, unit in zip(names, units)]
    rows = [] if "noheader" in form else [headings]
    for gpu in gpus:
        cells = [ask(name, gpu) for name in names]
        if "nounits" in form:
            cells = [re.sub(r"^(-?[\d.]+) (?:MiB|W|MHz|%)$", r"\1", cell) for cell in cells]
        rows.append(cells)
    return "".join(", ".join(row) + "\n" for row in rows)


def set_persistence_mode(gpus: list[n.Gpu], mode: int) -> str:
    lines = []
    for gpu in gpus:
        gpu.nvml.call("nvmlDeviceSetPersistenceMode", gpu.handle, mode)
        address = gpu.pci()["address"]
        lines.append("%s persistence mode for GPU %s (simulated)." % (document.ON[mode], address))
    return "\n".join([*lines, "All done."]) + "\n"


def answer(nvml: n.Nvml, asked: argparse.Namespace) -> str:
    gpus = find_gpus(nvml, asked.gpus)
    if asked.list:
        return list_gpus(gpus)
    if asked.query:
        return document.xml_document(nvml, gpus) if asked.xml else document.text_document(nvml, gpus, asked.sections)
    if asked.fields:
        return query(gpus, asked.fields, asked.form)
    if asked.mode is not None:
        return set_persistence_mode(gpus, asked.mode)
    return summary(nvml, gpus)


def _report_failure(nvml: n.Nvml, code: int) -> None:
    if code in FAILURES:
        print(FAILURES[code])
    elif code == n.MISMATCH:
        print("Failed to initialize NVML: Driver/library version mismatch")
        print("NVML library version: %s" % ".".join(library.library_version().split(".")[:2]))
    elif code not in (n.NOT_FOUND, n.LOST):
        print("Failed: %s (simulated)" % nvml.error(code))


def main(arguments: list[str]) -> int:
    try:
        asked = parse(arguments)
    except UsageError as error:
        sys.stdout.write(str(error))
        return 2
    nvml = n.Nvml()
    try:
        nvml.call("nvmlInit_v2")
        if asked.reset:
            return reset.run(asked.gpus or [])
        sys.stdout.write(answer(nvml, asked))
    except n.NvmlError as error:
        _report_failure(nvml, error.code)
        return min(error.code, 255)
    return 0
