# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated nvidia-smi: the command lines that the collection's modules and the tests on machines use."""

from __future__ import annotations

import argparse
import sys
from xml.sax.saxutils import escape

from . import library, reset
from . import nvml as n

BANNER = "simulated by gpusim, no hardware"
ON = {0: "Disabled", 1: "Enabled"}
# The fields of --query-gpu.
FIELDS = {
    "index": lambda gpu: str(gpu.number("Index")),
    "name": lambda gpu: gpu.text("Name"),
    "uuid": lambda gpu: gpu.text("UUID"),
    "pci.bus_id": lambda gpu: gpu.address(),
    "persistence_mode": lambda gpu: ON[gpu.number("PersistenceMode")],
}
USAGE = """This simulated nvidia-smi knows only these options:
    nvidia-smi                                                         versions and GPUs
    nvidia-smi -q -x                                                   the document of the evidence
    nvidia-smi --query-gpu=FIELD,... --format=csv,noheader [-i GPU]    FIELD: %s
    nvidia-smi -pm 0|1 [-i GPU]                                        persistence mode
    nvidia-smi --gpu-reset [-i GPU]                                    reset
GPU: an index, UUID, serial number or PCI address, or several with commas.
""" % ", ".join(FIELDS)
FAILURES = {
    9: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    12: "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
    n.MISMATCH: "Failed to initialize NVML: Driver/library version mismatch",
    n.NOT_FOUND: "No devices were found",
}


class UsageError(Exception):
    """The command line asks for what this program does not do."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UsageError


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(add_help=False, allow_abbrev=False)
    command = parser.add_mutually_exclusive_group()
    command.add_argument("-q", "--query", action="store_true")
    command.add_argument("--query-gpu", dest="fields", type=_words)
    command.add_argument("-pm", "--persistence-mode", dest="mode", type=int, choices=[0, 1])
    command.add_argument("-r", "--gpu-reset", dest="reset", action="store_true")
    parser.add_argument("-i", "--id", dest="gpus", type=_words, default=[])
    parser.add_argument("-x", "--xml-format", dest="xml", action="store_true")
    parser.add_argument("--format", dest="form", type=_words, default=[])
    asked = parser.parse_args(arguments)
    form = ["csv", "noheader"] if asked.fields else []
    if asked.xml != asked.query or sorted(asked.form) != form or not set(asked.fields or []) <= set(FIELDS):
        raise UsageError
    return asked


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def find_gpus(nvml: n.Nvml, words: list[str]) -> list[n.Gpu]:
    """Return the GPUs that -i names, or all."""
    chosen = reset.chosen(words)
    if not chosen:
        raise n.NvmlError(n.NOT_FOUND)
    present = reset.present()
    return [nvml.gpu(present.index(number)) for number in chosen]


def format_summary(nvml: n.Nvml, gpus: list[n.Gpu]) -> str:
    driver = nvml.driver()
    lines = [
        "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |" % (driver, driver, nvml.cuda()),
        "| %-87s |" % BANNER,
        *("| %3s  %-27.27s %-53s |" % (gpu.number("Index"), gpu.text("Name"), gpu.address()) for gpu in gpus),
    ]
    return "\n".join(lines) + "\n"


def format_document(nvml: n.Nvml, gpus: list[n.Gpu]) -> str:
    """Return the elements of -q -x that name the driver, the GPUs and the processes that use them."""
    lines = [
        '<?xml version="1.0" ?>',
        "<!-- %s -->" % BANNER,
        "<nvidia_smi_log>",
        "\t<driver_version>%s</driver_version>" % nvml.driver(),
        "\t<cuda_version>%s</cuda_version>" % nvml.cuda(),
        "\t<attached_gpus>%d</attached_gpus>" % nvml.count(),
    ]
    for gpu in gpus:
        lines += [
            '\t<gpu id="%s">' % gpu.address(),
            "\t\t<product_name>%s</product_name>" % gpu.text("Name"),
            "\t\t<uuid>%s</uuid>" % gpu.text("UUID"),
            "\t\t<processes>",
        ]
        for kind, pid, used in gpu.processes():
            lines.append(
                "\t\t\t<process_info><pid>%d</pid><type>%s</type><process_name>%s</process_name>"
                "<used_memory>%d MiB</used_memory></process_info>"
                % (pid, kind, escape(nvml.process_name(pid)), used >> 20)
            )
        lines += ["\t\t</processes>", "\t</gpu>"]
    return "\n".join([*lines, "</nvidia_smi_log>"]) + "\n"


def set_persistence_mode(gpus: list[n.Gpu], mode: int) -> str:
    for gpu in gpus:
        gpu.nvml.call("nvmlDeviceSetPersistenceMode", gpu.handle, mode)
    return "All done.\n"


def answer(nvml: n.Nvml, asked: argparse.Namespace) -> str:
    gpus = find_gpus(nvml, asked.gpus)
    if asked.query:
        return format_document(nvml, gpus)
    if asked.fields:
        return "".join(", ".join(FIELDS[name](gpu) for name in asked.fields) + "\n" for gpu in gpus)
    if asked.mode is not None:
        return set_persistence_mode(gpus, asked.mode)
    return format_summary(nvml, gpus)


def main(arguments: list[str]) -> int:
    try:
        asked = parse(arguments)
    except UsageError:
        sys.stdout.write(USAGE)
        return 2
    nvml = n.Nvml()
    try:
        nvml.call("nvmlInit_v2")
        if asked.reset:
            return reset.run(asked.gpus)
        sys.stdout.write(answer(nvml, asked))
    except n.NvmlError as error:
        print(FAILURES.get(error.code) or nvml.error(error.code))
        if error.code == n.MISMATCH:
            print("NVML library version: %s" % ".".join(library.library_version().split(".")[:2]))
        return min(error.code, 255)
    return 0
