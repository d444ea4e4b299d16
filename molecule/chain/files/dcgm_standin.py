# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for dcgm-exporter on a simulated node: what NVML answers, under DCGM's names, on its port.

It reads NVML by the binding of gpufleet-node, at each scrape. What NVML does not tell has no sample. Clock events are
counted as dcgm-exporter counts them: samples of the last five minutes.
"""

from __future__ import annotations

import collections
import http.server
import sys
import time

sys.path.insert(0, "/usr/local/lib/gpufleet/gpufleet-node.pyz")
import pynvml

WINDOW_S = 300
EVENTS = {
    0x1: "gpu_idle",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
LINKS = 12
MIB = 1024 * 1024
samples: collections.deque = collections.deque()


def ask(function, *arguments):
    """Return what NVML answers, None where it does not."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


def read_links(handle, counter: int):
    counts = [ask(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, counter) for link in range(LINKS)]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def read_gpu(handle) -> dict:
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    usage = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power = ask(pynvml.nvmlDeviceGetPowerUsage, handle)
    rows = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    found = {
        "DCGM_FI_DEV_GPU_UTIL": usage and usage.gpu,
        "DCGM_FI_DEV_FB_USED": memory and memory.used // MIB,
        "DCGM_FI_DEV_FB_FREE": memory and memory.free // MIB,
        "DCGM_FI_DEV_GPU_TEMP": ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "DCGM_FI_DEV_POWER_USAGE": power and power / 1000,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ask(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        "DCGM_FI_DEV_ROW_REMAP_PENDING": rows and rows[2],
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": rows and rows[3],
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ask(pynvml.nvmlDeviceGetPcieReplayCounter, handle),
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": read_links(handle, pynvml.NVML_NVLINK_ERROR_DL_REPLAY),
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": read_links(handle, pynvml.NVML_NVLINK_ERROR_DL_RECOVERY),
    }
    return {name: value for name, value in found.items() if value is not None}


def count_events(uuid: str, now: float) -> dict:
    while samples and samples[0][0] < now - WINDOW_S:
        samples.popleft()
    mine = [bits for dummy, of, bits in samples if of == uuid]
    return {name: sum(bool(bits & bit) for bits in mine) for bit, name in EVENTS.items()}


def render(now: float) -> str:
    lines = []
    pynvml.nvmlInit()
    try:
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = ask(pynvml.nvmlDeviceGetHandleByIndex, number)
            uuid = handle and ask(pynvml.nvmlDeviceGetUUID, handle)
            if not uuid:
                continue
            labels = 'gpu="%d",UUID="%s",modelName="%s"' % (number, uuid, pynvml.nvmlDeviceGetName(handle))
            lines += ["%s{%s} %s" % (name, labels, value) for name, value in read_gpu(handle).items()]
            bits = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
            if bits is not None:
                samples.append((now, uuid, bits))
            lines += [
                'DCGM_EXP_CLOCK_EVENTS_COUNT{%s,clock_event="%s"} %d' % (labels, name, count)
                for name, count in count_events(uuid, now).items()
            ]
    finally:
        pynvml.nvmlShutdown()
    return "\n".join(lines) + "\n"


class Exporter(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the name is http.server's
        try:
            text = render(time.time())
        except pynvml.NVMLError:
            text = ""  # dcgm-exporter goes on answering
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *arguments) -> None:
        """Write no line for each scrape."""


if __name__ == "__main__":
    http.server.HTTPServer(("", 9400), Exporter).serve_forever()
