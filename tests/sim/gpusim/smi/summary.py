# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi without arguments, its list of GPUs and its version: the shapes that people and scripts know."""

from __future__ import annotations

import time

from . import nvml as n
from . import queries
from . import values as v
from .fields import ask

BANNER = "simulated by gpusim, no hardware"
WIDE = "+" + "-" * 89 + "+"
RULE = "+-----------------------------------------+------------------------+----------------------+"
DOUBLE = "|=========================================+========================+======================|"
MIG_RULE = "+------------------+----------------------------------+-----------+-----------------------+"


def cuda(nvml: n.Nvml) -> str:
    number = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
    return "%d.%d" % (number // 1000, number % 1000 // 10)


def version(nvml: n.Nvml) -> str:
    driver, library = nvml.text("nvmlSystemGetDriverVersion"), nvml.text("nvmlSystemGetNVMLVersion").split(".")
    return (
        "NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : %s\n(%s)\n"
        % (driver, ".".join(library[1:3]), driver, cuda(nvml), BANNER)
    )


def listed(nvml: n.Nvml, handles: list) -> str:
    """One line for each GPU, and below it one for each of its MIG devices."""
    lines = []
    for handle in handles:
        name = ask("name", nvml, handle)
        lines.append("GPU %s: %s (UUID: %s)" % (ask("index", nvml, handle), name, ask("uuid", nvml, handle)))
        for index, mig in enumerate(nvml.migs(handle)):
            profile = nvml.text("nvmlDeviceGetName", mig)[len(name) :].replace(" MIG ", "", 1).strip()
            lines.append("  MIG %-11s Device %2d: (UUID: %s)" % (profile, index, nvml.text("nvmlDeviceGetUUID", mig)))
    return "".join(line + "\n" for line in lines)


def _ecc(nvml: n.Nvml, handle) -> str:
    count = v.bare(ask("ecc.errors.uncorrected.volatile.total", nvml, handle))
    return (
        "On"
        if ask("mig.mode.current", nvml, handle) == "Enabled"
        else count
        if count.isdigit()
        else "Off"
        if ask("ecc.mode.current", nvml, handle) == "Disabled"
        else count
    )


def table(nvml: n.Nvml, handles: list) -> str:
    """The summary of the newer drivers."""
    driver = nvml.text("nvmlSystemGetDriverVersion")
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y") + "       ",
        WIDE,
        "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |" % (driver, driver, cuda(nvml)),
        "| %-87s |" % BANNER,
        RULE,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        DOUBLE,
    ]
    migs, processes = [], []
    for handle in handles:
        get = {
            name: v.bare(ask(name, nvml, handle))
            for name in (
                "index",
                "name",
                "persistence_mode",
                "pci.bus_id",
                "fan.speed",
                "temperature.gpu",
                "pstate",
                "power.draw",
                "power.limit",
                "memory.used",
                "memory.total",
                "utilization.gpu",
                "compute_mode",
                "mig.mode.current",
            )
        }
        usage = "%s / %5s" % tuple(get[name].split(".")[0] + "W" for name in ("power.draw", "power.limit"))
        memory = "%s / %9s" % tuple(get[name].replace(" ", "") for name in ("memory.used", "memory.total"))
        lines += [
            "| %3s  %-27.27s %5s  |   %16s %3s |%21s |"
            % (
                get["index"],
                get["name"],
                "On" if get["persistence_mode"] == "Enabled" else "Off",
                get["pci.bus_id"],
                "Off",
                _ecc(nvml, handle),
            ),
            "| %-4s %4sC %5s %22s |%23s |%9s %11.11s |"
            % (
                get["fan.speed"].replace(" ", ""),
                get["temperature.gpu"],
                get["pstate"],
                usage,
                memory,
                get["utilization.gpu"].replace(" ", ""),
                get["compute_mode"],
            ),
            "| %39s | %22s | %20s |" % ("", "", get["mig.mode.current"]),
            RULE,
        ]
        migs += [(get["index"], index, mig) for index, mig in enumerate(nvml.migs(handle))]
        processes += [
            (get["index"], kind[0], pid, used)
            for kind in ("Compute", "Graphics")
            for pid, used in nvml.processes(handle, kind)
        ]
    return "\n".join([*lines, "", *(_migs(nvml, migs) if migs else []), *_processes(nvml, processes)]) + "\n"


def _migs(nvml: n.Nvml, migs: list) -> list[str]:
    lines = [
        WIDE,
        "| %-87s |" % "MIG devices:",
        MIG_RULE,
        "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |",
        "|      ID  ID  Dev |                                  | SM     Unc| CE ENC  DEC  OFA  JPG |",
        "|==================+==================================+===========+=======================|",
    ]
    for gpu, index, mig in migs:
        sms, copy, decoder, encoder, jpeg, ofa = nvml.unpacked("@8IQ", "nvmlDeviceGetAttributes_v2", mig)[:6]
        memory = nvml.memory(mig)
        lines += [
            "|%3s %4d %3d %3d  | %16s / %-13s | %2d      0 | %2d  %2d   %2d   %2d   %2d |"
            % (
                gpu,
                nvml.number("nvmlDeviceGetGpuInstanceId", mig),
                nvml.number("nvmlDeviceGetComputeInstanceId", mig),
                index,
                "%dMiB" % (memory["used"] >> 20),
                "%dMiB" % (memory["total"] >> 20),
                sms,
                copy,
                encoder,
                decoder,
                ofa,
                jpeg,
            ),
            MIG_RULE,
        ]
    return [*lines, ""]


def _processes(nvml: n.Nvml, processes: list) -> list[str]:
    lines = [
        WIDE,
        "| %-87s |" % "Processes:",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|=========================================================================================|",
    ]
    for gpu, kind, pid, used in processes:
        name = queries.process_name(nvml, pid)
        lines.append(
            "| %4s   N/A  N/A %16d %6s   %-32s %12s |"
            % (gpu, pid, kind, name if len(name) <= 32 else "..." + name[-29:], "%dMiB" % (used >> 20))
        )
    if not processes:
        lines.append("| %-87s |" % " No running processes found")
    return [*lines, WIDE]
