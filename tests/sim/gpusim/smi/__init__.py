# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for nvidia-smi: what roles, people, exporters and scripts call.

It asks the simulated NVML, and says so.
"""

from __future__ import annotations

import ctypes
import sys

from .. import library, reset, state
from . import nvml as n
from . import queries, render, settings, summary, topology, usage
from .nvml import Nvml, NvmlError

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
HELP = """nvidia-smi (%s)

    nvidia-smi [-i GPU]                                   summary
    nvidia-smi -L                                         list of GPUs and MIG devices
    nvidia-smi -q [-x | -d SECTION,...] [-i GPU]          all of it, or sections: %s
    nvidia-smi --query-NAME=FIELD,... --format=csv[,noheader][,nounits] [-i GPU]
    nvidia-smi --help-query-NAME                          NAME: %s
    nvidia-smi topo -m | nvlink -s | nvlink -e [-i GPU]   connections
    nvidia-smi -pm 0|1 | -pl WATTS | -mig 0|1 [-i GPU]    settings
    nvidia-smi --version

    GPU: an index, UUID, serial number or PCI address, or several with commas. -f FILE writes into a file.
"""
# What each command prints. GPUs are named with -i.
COMMANDS = {
    "table": lambda nvml, handles, asked: summary.table(nvml, handles),
    "list": lambda nvml, handles, asked: summary.listed(nvml, handles),
    "long": lambda nvml, handles, asked: (
        render.xml(nvml, handles) if "xml" in asked["form"] else render.text(nvml, handles, asked["display"])
    ),
    "topology": lambda nvml, handles, asked: topology.matrix(nvml, handles),
    "links": lambda nvml, handles, asked: topology.status(nvml, handles),
    "link-errors": lambda nvml, handles, asked: topology.errors(nvml, handles),
    "pm": lambda nvml, handles, asked: settings.persistence(nvml, handles, asked["value"]),
    "mig": lambda nvml, handles, asked: settings.mig(nvml, handles, asked["value"]),
    "pl": lambda nvml, handles, asked: settings.power(nvml, handles, asked["value"]),
}


def _unreachable(nvml: Nvml, index: int, code: int) -> None:
    """NVML has no address of a GPU without a handle: it is that of the node's description."""
    there = [gpu for gpu in range(state.gpu_count()) if state.gpu_now(gpu, "absent", "0") != "1"]
    address = state.gpu_value(there[index], "pci") if index < len(there) else str(index)
    print(
        "Unable to determine the device handle for GPU%s: %s%s"
        % (address[4:].upper(), nvml.error(code), ".  Reboot the system to recover this GPU" if code == n.LOST else "")
    )


def _is(nvml: Nvml, handle, word: str) -> bool:
    """Whether a word of -i names the GPU."""
    pci = nvml.pci(handle)
    legacy = "%04X:%02X:%02X.0" % (pci["domain"], pci["bus"], pci["device"])
    return word.upper() in (pci["address"], legacy, legacy[5:]) or word in (
        nvml.text("nvmlDeviceGetUUID", handle),
        nvml.text("nvmlDeviceGetSerial", handle),
    )


def _handles(nvml: Nvml, wanted: str | None) -> list:
    handles, words = [], None if wanted is None else [word.strip() for word in wanted.split(",")]
    for index in range(nvml.number("nvmlDeviceGetCount_v2")):
        handle = ctypes.c_void_p()
        try:
            nvml.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        except NvmlError as error:
            if words is not None and str(index) not in words:
                continue
            _unreachable(nvml, index, error.code)
            raise
        if (
            words is None
            or str(index) in words
            or any(not word.isdigit() or len(word) > 3 for word in words)
            and any(_is(nvml, handle, word) for word in words)
        ):
            handles.append(handle)
    if not handles:
        print("No devices were found")
        raise NvmlError(n.NOT_FOUND)
    return handles


def _write(text: str, file: str | None) -> None:
    if file is None:
        sys.stdout.write(text)
        return
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(text)


def _run(arguments: list[str]) -> int:
    resets = reset.asked(arguments)
    if resets is not None:
        return _reset(resets)
    asked = usage.parse(arguments)
    command, subject, wanted = asked["command"], "", []
    if command == "help":
        sys.stdout.write(HELP % (summary.BANNER, ", ".join(render.SECTIONS), ", ".join(usage.QUERIES)))
        return 0
    if command == "describe":
        _write(queries.described(asked["value"]), asked["file"])
        return 0
    if command.startswith("query-"):
        subject = command[len("query-") :]
        wanted = queries.check(subject, asked["value"], asked["form"])
    elif command in ("pm", "mig", "pl"):
        settings.check(command, asked["value"])
    render.check(asked["display"])
    nvml = Nvml()
    try:
        nvml.call("nvmlInit_v2")
        if command == "version":
            _write(summary.version(nvml), asked["file"])
            return 0
        handles = _handles(nvml, asked["gpu"])
        text = (
            queries.answer(subject, nvml, handles, wanted, asked["form"])
            if subject
            else COMMANDS[command](nvml, handles, asked)
        )
        _write(text, asked["file"])
    except NvmlError as error:
        _failed(nvml, error.code)
        return error.code if error.code < 256 else 255
    return 0


def _reset(asked: dict) -> int:
    nvml = Nvml()
    try:
        nvml.call("nvmlInit_v2")
        return reset.run(asked)
    except NvmlError as error:
        _failed(nvml, error.code)
        return error.code


def _failed(nvml: Nvml, code: int) -> None:
    if code in FAILURES:
        print(FAILURES[code])
    elif code == n.MISMATCH:
        print("Failed to initialize NVML: Driver/library version mismatch")
        print("NVML library version: %s" % ".".join(library.library_version().split(".")[:2]))
    elif code not in (n.NOT_FOUND, n.LOST):
        print("Failed: %s (simulated)" % nvml.error(code))


def main(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    except usage.Usage as error:
        sys.stdout.write(str(error))
        return 2
