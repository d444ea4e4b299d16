# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for nvidia-smi: the few commands that roles and people use. It asks the simulated NVML, and says so."""
from __future__ import annotations

import ctypes
import os
import re
import sys
import time

from . import library, state

BANNER = "NVIDIA-SMI (simulated by gpusim, no hardware)"
NOT_SUPPORTED = 3
FAILURES = {
    9: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is "
       "installed and running.\n",
    12: "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly "
        "installed and present in your system.\nPlease also try adding directory that contains libnvidia-ml.so to your system PATH.\n",
}


class NvmlError(Exception):
    def __init__(self, code: int):
        super().__init__(str(code))
        self.code = code


class Nvml:
    """The simulated library, called by name."""

    def __init__(self):
        name = state.path(library.INSTALLED)
        self.library = ctypes.CDLL(name if os.path.exists(name) else "libnvidia-ml.so.1")
        if not hasattr(self.library, "gpusim_marker"):
            raise state.SimError("libnvidia-ml.so.1 is not the simulated one")
        self.library.nvmlErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise NvmlError(code)

    def text(self, name: str, *arguments) -> str:
        buffer = ctypes.create_string_buffer(96)
        self.call(name, *arguments, buffer, 96)
        return buffer.value.decode()

    def number(self, name: str, *arguments, kind=ctypes.c_uint) -> int:
        value = kind()
        self.call(name, *arguments, ctypes.byref(value))
        return value.value

    def numbers(self, name: str, handle, count: int, kind=ctypes.c_uint) -> list[int]:
        values = [kind() for _index in range(count)]
        self.call(name, handle, *[ctypes.byref(value) for value in values])
        return [value.value for value in values]

    def structure(self, name: str, handle, size: int) -> list[int]:
        values = (ctypes.c_ulonglong * size)()
        self.call(name, handle, ctypes.byref(values))
        return list(values)


def _on(value: int) -> str:
    return "Enabled" if value else "Disabled"


def _mib(value: int) -> str:
    return "%d MiB" % (value >> 20)


def _watt(value: int) -> str:
    return "%.2f W" % (value / 1000)


def _pci(nvml: Nvml, handle) -> str:
    buffer = ctypes.create_string_buffer(68)
    nvml.call("nvmlDeviceGetPciInfo_v3", handle, buffer)
    return buffer.raw[36:68].split(b"\0")[0].decode()


def _remapped(index: int):
    return lambda nvml, handle: str(nvml.numbers("nvmlDeviceGetRemappedRows", handle, 4)[index])


def _ecc_errors(kind: int, counter: int):
    return lambda nvml, handle: str(nvml.number("nvmlDeviceGetTotalEccErrors", handle, kind, counter, kind=ctypes.c_ulonglong))


def _mode(name: str, index: int):
    return lambda nvml, handle: _on(nvml.numbers(name, handle, 2)[index])


def _plain(name: str, unit: str = ""):
    return lambda nvml, handle: str(nvml.number(name, handle)) + unit


def _clock(kind: int):
    return lambda nvml, handle: "%d MHz" % nvml.number("nvmlDeviceGetClockInfo", handle, kind)


QUERIES = {
    "timestamp": lambda nvml, handle: time.strftime("%Y/%m/%d %H:%M:%S.000"),
    "driver_version": lambda nvml, handle: nvml.text("nvmlSystemGetDriverVersion"),
    "count": lambda nvml, handle: str(nvml.number("nvmlDeviceGetCount_v2")),
    "index": _plain("nvmlDeviceGetIndex"),
    "name": lambda nvml, handle: nvml.text("nvmlDeviceGetName", handle),
    "uuid": lambda nvml, handle: nvml.text("nvmlDeviceGetUUID", handle),
    "serial": lambda nvml, handle: nvml.text("nvmlDeviceGetSerial", handle),
    "vbios_version": lambda nvml, handle: nvml.text("nvmlDeviceGetVbiosVersion", handle),
    "pci.bus_id": _pci,
    "persistence_mode": lambda nvml, handle: _on(nvml.number("nvmlDeviceGetPersistenceMode", handle)),
    "compute_mode": lambda nvml, handle: {0: "Default", 2: "Prohibited", 3: "Exclusive_Process"}[nvml.number("nvmlDeviceGetComputeMode", handle)],
    "memory.total": lambda nvml, handle: _mib(nvml.structure("nvmlDeviceGetMemoryInfo", handle, 3)[0]),
    "memory.free": lambda nvml, handle: _mib(nvml.structure("nvmlDeviceGetMemoryInfo", handle, 3)[1]),
    "memory.used": lambda nvml, handle: _mib(nvml.structure("nvmlDeviceGetMemoryInfo", handle, 3)[2]),
    "temperature.gpu": lambda nvml, handle: str(nvml.number("nvmlDeviceGetTemperature", handle, 0)),
    "power.draw": lambda nvml, handle: _watt(nvml.number("nvmlDeviceGetPowerUsage", handle)),
    "power.limit": lambda nvml, handle: _watt(nvml.number("nvmlDeviceGetPowerManagementLimit", handle)),
    "power.default_limit": lambda nvml, handle: _watt(nvml.number("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
    "enforced.power.limit": lambda nvml, handle: _watt(nvml.number("nvmlDeviceGetEnforcedPowerLimit", handle)),
    "pcie.link.gen.current": _plain("nvmlDeviceGetCurrPcieLinkGeneration"),
    "pcie.link.gen.max": _plain("nvmlDeviceGetMaxPcieLinkGeneration"),
    "pcie.link.width.current": _plain("nvmlDeviceGetCurrPcieLinkWidth"),
    "pcie.link.width.max": _plain("nvmlDeviceGetMaxPcieLinkWidth"),
    "ecc.mode.current": _mode("nvmlDeviceGetEccMode", 0),
    "ecc.mode.pending": _mode("nvmlDeviceGetEccMode", 1),
    "ecc.errors.corrected.volatile.total": _ecc_errors(0, 0),
    "ecc.errors.uncorrected.volatile.total": _ecc_errors(1, 0),
    "ecc.errors.corrected.aggregate.total": _ecc_errors(0, 1),
    "ecc.errors.uncorrected.aggregate.total": _ecc_errors(1, 1),
    "mig.mode.current": _mode("nvmlDeviceGetMigMode", 0),
    "mig.mode.pending": _mode("nvmlDeviceGetMigMode", 1),
    "clocks.sm": _clock(1),
    "clocks.mem": _clock(2),
    "clocks.gr": _clock(0),
    "remapped_rows.correctable": _remapped(0),
    "remapped_rows.uncorrectable": _remapped(1),
    "remapped_rows.pending": _remapped(2),
    "remapped_rows.failure": _remapped(3),
    "utilization.gpu": lambda nvml, handle: "%d %%" % (nvml.structure("nvmlDeviceGetUtilizationRates", handle, 1)[0] & 0xFFFFFFFF),
    "utilization.memory": lambda nvml, handle: "%d %%" % (nvml.structure("nvmlDeviceGetUtilizationRates", handle, 1)[0] >> 32),
}
ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_serial": "serial", "gpu_bus_id": "pci.bus_id", "clocks.current.sm": "clocks.sm",
           "clocks.current.memory": "clocks.mem", "clocks.current.graphics": "clocks.gr"}


def _ask(query: str, nvml: Nvml, handle) -> str:
    try:
        return QUERIES[query](nvml, handle)
    except NvmlError as error:
        if error.code == NOT_SUPPORTED:
            return "[N/A]"
        if error.code == 15:
            return "[GPU is lost]"
        raise


class Usage(Exception):
    """The command line asks for what this stand-in does not know."""


def _handles(nvml: Nvml, wanted: str | None) -> list:
    handles = []
    for index in range(nvml.number("nvmlDeviceGetCount_v2")):
        handle = ctypes.c_void_p()
        try:
            nvml.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        except NvmlError as error:
            if wanted is not None and wanted != str(index):
                continue
            print("Unable to determine the device handle for GPU %d: %s" % (index, nvml.library.nvmlErrorString(error.code).decode()))
            raise
        if wanted is None or wanted in (str(index), nvml.text("nvmlDeviceGetUUID", handle), _pci(nvml, handle)):
            handles.append(handle)
    if wanted is not None and not handles:
        print("No devices were found")
        raise NvmlError(6)
    return handles


def _query(nvml: Nvml, handles: list, names: list[str], form: set[str]) -> None:
    names = [ALIASES.get(name, name) for name in names]
    for name in names:
        if name not in QUERIES:
            raise Usage('Field "%s" is not a valid field to query.\n' % name)
    if "noheader" not in form:
        units = {"memory.": " [MiB]", "power.": " [W]", "enforced.power": " [W]", "clocks.": " [MHz]", "utilization.": " [%]"}
        heads = [name + next((unit for start, unit in units.items() if name.startswith(start)), "") for name in names]
        print(", ".join(heads))
    for handle in handles:
        values = [_ask(name, nvml, handle) for name in names]
        if "nounits" in form:
            values = [re.sub(r"^([\d.]+) (MiB|W|MHz|%)$", r"\1", value) for value in values]
        print(", ".join(values))


def _processes(nvml: Nvml, handle) -> list[tuple[int, int]]:
    count = ctypes.c_uint(0)
    code = nvml.library.nvmlDeviceGetComputeRunningProcesses_v2(handle, ctypes.byref(count), None)
    if code == 7:
        buffer = (ctypes.c_ulonglong * (3 * (count.value + 8)))()
        count.value += 8
        nvml.call("nvmlDeviceGetComputeRunningProcesses_v2", handle, ctypes.byref(count), buffer)
        return [(buffer[3 * index] & 0xFFFFFFFF, buffer[3 * index + 1]) for index in range(count.value)]
    if code:
        raise NvmlError(code)
    return []


def _table(nvml: Nvml, handles: list) -> None:
    line = "+" + "-" * 91 + "+"
    print(time.strftime("%a %b %e %H:%M:%S %Y"))
    print(line)
    print("| %-89s |" % BANNER)
    cuda = nvml.number("nvmlSystemGetCudaDriverVersion_v2", kind=ctypes.c_int)
    print("| %-89s |" % ("Driver Version: %s    CUDA Version: %d.%d" % (nvml.text("nvmlSystemGetDriverVersion"), cuda // 1000, cuda % 1000 // 10)))
    print(line)
    print("| %-3s %-26s %-6s %-18s %-6s %-12s %-12s |" % ("GPU", "Name", "Pers-M", "Bus-Id", "Temp", "Power", "Memory used"))
    print(line)
    rows = []
    for handle in handles:
        ask = {name: _ask(name, nvml, handle) for name in (
            "index", "name", "persistence_mode", "pci.bus_id", "temperature.gpu", "power.draw", "memory.used")}
        print("| %-3s %-26s %-6s %-18s %-6s %-12s %-12s |" % (
            ask["index"], ask["name"][:26], "On" if ask["persistence_mode"] == "Enabled" else "Off", ask["pci.bus_id"],
            ask["temperature.gpu"] + "C", ask["power.draw"], ask["memory.used"]))
        rows += [(ask["index"], pid, used) for pid, used in _processes(nvml, handle)]
    print(line)
    print("| %-89s |" % "Processes:")
    for index, pid, used in rows:
        print("| %-89s |" % ("  GPU %s  PID %d  Type C  %s" % (index, pid, _mib(used))))
    if not rows:
        print("| %-89s |" % "  No running processes found")
    print(line)


SECTIONS = (
    ("Product Name", "name"), ("Persistence Mode", "persistence_mode"), ("Serial Number", "serial"), ("GPU UUID", "uuid"),
    ("VBIOS Version", "vbios_version"), ("Current MIG Mode", "mig.mode.current"), ("Pending MIG Mode", "mig.mode.pending"),
    ("Bus Id", "pci.bus_id"), ("PCIe Generation", "pcie.link.gen.current"), ("Link Width", "pcie.link.width.current"),
    ("FB Memory Total", "memory.total"), ("FB Memory Used", "memory.used"), ("Compute Mode", "compute_mode"),
    ("Current ECC Mode", "ecc.mode.current"), ("Pending ECC Mode", "ecc.mode.pending"),
    ("Volatile Uncorrectable ECC", "ecc.errors.uncorrected.volatile.total"), ("Remapped Rows Pending", "remapped_rows.pending"),
    ("Remapping Failure Occurred", "remapped_rows.failure"), ("GPU Current Temp", "temperature.gpu"),
    ("Power Draw", "power.draw"), ("Power Limit", "power.limit"), ("Default Power Limit", "power.default_limit"),
)


def _long(nvml: Nvml, handles: list, xml: bool) -> None:
    driver = nvml.text("nvmlSystemGetDriverVersion")
    if xml:
        print('<?xml version="1.0" ?>\n<!-- %s -->\n<nvidia_smi_log>\n\t<driver_version>%s</driver_version>\n\t<attached_gpus>%d</attached_gpus>' % (
            BANNER, driver, len(handles)))
    else:
        print("\n==============NVSMI LOG (simulated by gpusim)==============\n")
        print("%-41s : %s" % ("Timestamp", time.strftime("%a %b %e %H:%M:%S %Y")))
        print("%-41s : %s" % ("Driver Version", driver))
        print("%-41s : %d\n" % ("Attached GPUs", len(handles)))
    for handle in handles:
        if xml:
            print('\t<gpu id="%s">' % _pci(nvml, handle))
        else:
            print("GPU %s" % _pci(nvml, handle))
        for title, query in SECTIONS:
            value = _ask(query, nvml, handle).replace("[N/A]", "N/A")
            if xml:
                tag = title.lower().replace(" ", "_").replace("gpu_uuid", "uuid")
                print("\t\t<%s>%s</%s>" % (tag, value, tag))
            else:
                print("    %-37s : %s" % (title, value))
        if xml:
            print("\t</gpu>")
    if xml:
        print("</nvidia_smi_log>")


FLAGS = {"-L": "list", "--list-gpus": "list", "-q": "long", "--query": "long", "-h": "help", "--help": "help", "--version": "version"}
VALUED = {"-i": "gpu", "--id": "gpu", "-pm": "pm", "--persistence-mode": "pm", "-pl": "pl", "--power-limit": "pl", "--query-gpu": "query",
          "--format": "form", "-mig": "mig", "--multi-instance-gpu": "mig", "--query-compute-apps": "apps"}


def _arguments(arguments: list[str]) -> dict:
    """The command line, with the real tool's one-dash words."""
    asked: dict = {"command": "table", "gpu": None, "form": set()}
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word in FLAGS:
            asked["command"] = FLAGS[word]
        elif word in ("-x", "--xml-format"):
            asked["form"].add("xml")
        elif name in VALUED:
            if not equals and not words:
                raise Usage("Option %s needs a value.\n" % name)
            _take(asked, VALUED[name], value if equals else words.pop(0))
        else:
            raise Usage("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
    if asked["command"] in ("query", "apps") and "csv" not in asked["form"]:
        raise Usage("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n")
    return asked


def _take(asked: dict, key: str, value: str) -> None:
    if key == "form":
        asked["form"].update(value.split(","))
    elif key == "gpu":
        asked["gpu"] = value
    else:
        asked["command"], asked["value"] = key, value


def _list(nvml: Nvml, handles: list, _asked: dict) -> None:
    for handle in handles:
        print("GPU %s: %s (UUID: %s)" % (_ask("index", nvml, handle), _ask("name", nvml, handle), _ask("uuid", nvml, handle)))


def _on_or_off(asked: dict) -> int:
    if asked["value"] not in ("0", "1"):
        raise Usage("-%s takes 0 or 1.\n" % asked["command"])
    return int(asked["value"])


def _set_persistence(nvml: Nvml, handles: list, asked: dict) -> None:
    value = _on_or_off(asked)
    for handle in handles:
        nvml.call("nvmlDeviceSetPersistenceMode", handle, value)
        print("%s persistence mode for GPU %s (simulated)." % (_on(value), _pci(nvml, handle)))
    print("All done.")


def _set_mig(nvml: Nvml, handles: list, asked: dict) -> None:
    value = _on_or_off(asked)
    for handle in handles:
        nvml.number("nvmlDeviceSetMigMode", handle, value, kind=ctypes.c_int)
        print("%s MIG Mode for GPU %s (simulated)" % (_on(value), _pci(nvml, handle)))
    print("All done.")


def _set_power(nvml: Nvml, handles: list, asked: dict) -> None:
    try:
        watts = float(asked["value"])
    except ValueError:
        raise Usage("-pl takes watts.\n") from None
    for handle in handles:
        nvml.call("nvmlDeviceSetPowerManagementLimit", handle, int(watts * 1000))
        print("Power limit for GPU %s was set to %.2f W (simulated)." % (_pci(nvml, handle), watts))
    print("All done.")


def _apps(nvml: Nvml, handles: list, names: list[str], form: set[str]) -> None:
    known = {"pid", "used_memory", "used_gpu_memory", "gpu_uuid", "process_name", "name"}
    for name in names:
        if name not in known:
            raise Usage('Field "%s" is not a valid field to query.\n' % name)
    if "noheader" not in form:
        print(", ".join(names))
    for handle in handles:
        for pid, used in _processes(nvml, handle):
            row = {"pid": str(pid), "used_memory": _mib(used), "used_gpu_memory": _mib(used), "gpu_uuid": _ask("uuid", nvml, handle)}
            row["process_name"] = row["name"] = nvml.text("nvmlSystemGetProcessName", pid)
            print(", ".join(row[name].replace(" MiB", "") if "nounits" in form else row[name] for name in names))


def _names(asked: dict) -> list[str]:
    return [name.strip() for name in asked["value"].split(",")]


ACTIONS = {
    "table": lambda nvml, handles, asked: _table(nvml, handles),
    "list": _list,
    "long": lambda nvml, handles, asked: _long(nvml, handles, "xml" in asked["form"]),
    "query": lambda nvml, handles, asked: _query(nvml, handles, _names(asked), asked["form"]),
    "apps": lambda nvml, handles, asked: _apps(nvml, handles, _names(asked), asked["form"]),
    "pm": _set_persistence,
    "mig": _set_mig,
    "pl": _set_power,
}


def main(arguments: list[str]) -> int:
    try:
        asked = _arguments(arguments)
        if asked["command"] == "help":
            print("%s\n\nnvidia-smi [-L | -q [-x] | --query-gpu=FIELDS --format=csv[,noheader][,nounits] | --query-compute-apps=FIELDS "
                  "--format=csv | -pm 0|1 | -pl WATTS | -mig 0|1] [-i GPU]" % BANNER)
            return 0
        nvml = Nvml()
        nvml.call("nvmlInit_v2")
        if asked["command"] == "version":
            print("%s\nNVML version : %s\nDRIVER version : %s" % (BANNER, nvml.text("nvmlSystemGetNVMLVersion"), nvml.text("nvmlSystemGetDriverVersion")))
            return 0
        ACTIONS[asked["command"]](nvml, _handles(nvml, asked["gpu"]), asked)
    except Usage as error:
        sys.stdout.write(str(error))
        return 2
    except NvmlError as error:
        if error.code in FAILURES:
            print(FAILURES[error.code])
        elif error.code == 18:
            print("Failed to initialize NVML: Driver/library version mismatch")
            print("NVML library version: %s" % ".".join(library.library_version().split(".")[:2]))
        else:
            print("nvidia-smi (simulated): %s" % nvml.library.nvmlErrorString(error.code).decode())
        return error.code if error.code < 256 else 255
    return 0
