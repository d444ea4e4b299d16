# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi -q and -q -x: the documents of the GPUs as text and as XML."""

from __future__ import annotations

import time
from xml.sax.saxutils import escape

from . import nvml as n
from .document import Document, Item
from .usage import INVALID, Usage

# -d: section -> elements
SECTIONS = {
    "MEMORY": {"fb_memory_usage", "bar1_memory_usage", "cc_protected_memory_usage"},
    "UTILIZATION": {"utilization"},
    "ECC": {"ecc_mode", "ecc_errors"},
    "TEMPERATURE": {"temperature"},
    "POWER": {"gpu_power_readings", "gpu_memory_power_readings", "module_power_readings"},
    "CLOCK": {
        "clocks",
        "applications_clocks",
        "default_applications_clocks",
        "deferred_clocks",
        "max_clocks",
        "max_customer_boost_clocks",
        "clock_policy",
    },
    "COMPUTE": {"compute_mode"},
    "PIDS": {"processes"},
    "PERFORMANCE": {
        "performance_state",
        "clocks_event_reasons",
        "clocks_event_reasons_counters",
        "sparse_operation_mode",
    },
    "SUPPORTED_CLOCKS": {"supported_clocks"},
    "PAGE_RETIREMENT": {"retired_pages"},
    "ACCOUNTING": {"accounting_mode", "accounting_mode_buffer_size"},
    "ENCODER_STATS": {"encoder_stats"},
    "SUPPORTED_GPU_TARGET_TEMP": {"supported_gpu_target_temp"},
    "VOLTAGE": {"voltage"},
    "FBC_STATS": {"fbc_stats"},
    "ROW_REMAPPER": {"remapped_rows"},
    "GSP_FIRMWARE_VERSION": {"gsp_firmware_version"},
    "POWER_SMOOTHING": {"power_smoothing"},
    "POWER_PROFILES": {"power_profiles"},
}
ONLY_WHEN_ASKED = {"supported_clocks", "supported_gpu_target_temp"}


def check(sections: set[str] | None) -> None:
    if sections is not None and not sections <= set(SECTIONS):
        raise Usage(INVALID)


def _head(nvml: n.Nvml) -> list[tuple[str, str, str]]:
    cuda = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
    return [
        ("Timestamp", "timestamp", time.strftime("%a %b %e %H:%M:%S %Y")),
        ("Driver Version", "driver_version", nvml.text("nvmlSystemGetDriverVersion")),
        ("CUDA Version", "cuda_version", "%d.%d" % (cuda // 1000, cuda % 1000 // 10)),
    ]


def _line(title: str, value: str, width: int) -> str:
    return "%-*s: %s" % (width, title, value)


def _lines(items: list[Item], depth: int, width: int) -> list[str]:
    lines = []
    for item in items:
        inside = "    " * depth
        if isinstance(item.value, list) and not item.title:
            lines += _lines(item.value, depth, width)
        elif not item.title:
            continue
        elif isinstance(item.value, list) and item.value:
            lines += [inside + item.title, *_lines(item.value, depth + 1, width)]
        else:
            lines.append(_line(inside + item.title, "None" if isinstance(item.value, list) else item.value, width))
    return lines


def text(nvml: n.Nvml, handles: list, sections: set[str] | None) -> str:
    """All of it, or the sections of -d."""
    width = 55 if nvml.branch() >= 570 else 42
    wanted = None if sections is None else set().union(*(SECTIONS[name] for name in sections))
    lines = ["", "==============NVSMI LOG==============", ""]
    lines += [_line(title, value, width) for title, _element, value in _head(nvml)]
    lines += ["", _line("Attached GPUs", str(nvml.number("nvmlDeviceGetCount_v2")), width)]
    for handle in handles:
        items = [
            item
            for item in Document(nvml, handle).items()
            if (item.element not in ONLY_WHEN_ASKED if wanted is None else item.element in wanted)
        ]
        lines += ["GPU %s" % nvml.pci(handle)["address"], *_lines(items, 1, width), ""]
    return "\n".join(lines) + "\n"


def _elements(items: list[Item], depth: int) -> list[str]:
    lines = []
    for item in items:
        inside = "\t" * depth
        if not item.element:
            continue
        if isinstance(item.value, list):
            lines += [
                "%s<%s>" % (inside, item.element),
                *_elements(item.value, depth + 1),
                "%s</%s>" % (inside, item.element),
            ]
        else:
            value = escape(item.value if item.xml is None else item.xml)
            lines.append("%s<%s>%s</%s>" % (inside, item.element, value, item.element))
    return lines


def xml(nvml: n.Nvml, handles: list) -> str:
    branch = nvml.branch()
    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v%d.dtd">'
        % (13 if branch >= 580 else 12 if branch >= 530 else 11),
        "<!-- simulated by gpusim, no hardware -->",
        "<nvidia_smi_log>",
    ]
    lines += ["\t<%s>%s</%s>" % (element, value, element) for _title, element, value in _head(nvml)]
    lines.append("\t<attached_gpus>%d</attached_gpus>" % nvml.number("nvmlDeviceGetCount_v2"))
    for handle in handles:
        lines += [
            '\t<gpu id="%s">' % nvml.pci(handle)["address"],
            *_elements(Document(nvml, handle).items(), 2),
            "\t</gpu>",
            "",
        ]
    return "\n".join([*lines, "</nvidia_smi_log>"]) + "\n"
