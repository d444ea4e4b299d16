# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated NVML as the commands here call it: functions by name, and what nvidia-smi reads of a GPU."""

from __future__ import annotations

import ctypes
import os
import struct

from . import library, state

NOT_FOUND, FUNCTION_NOT_FOUND, MISMATCH = 6, 13, 18


class NvmlError(Exception):
    """A function's return code that is not 0."""

    def __init__(self, code: int):
        super().__init__(str(code))
        self.code = code


class Nvml:
    """The library."""

    def __init__(self):
        name = state.path(library.INSTALLED)
        self.library = ctypes.CDLL(name if os.path.exists(name) else "libnvidia-ml.so.1")
        if not hasattr(self.library, "gpusim_marker"):
            raise state.SimError("libnvidia-ml.so.1 is not the simulated one")
        self.library.nvmlErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments) -> None:
        function = getattr(self.library, name, None)
        code = FUNCTION_NOT_FOUND if function is None else function(*arguments)
        if code:
            raise NvmlError(code)

    def error(self, code: int) -> str:
        return self.library.nvmlErrorString(code).decode()

    def text(self, name: str, *arguments) -> str:
        buffer = ctypes.create_string_buffer(256)
        self.call(name, *arguments, buffer, 256)
        return buffer.value.decode()

    def number(self, name: str, *arguments, kind=ctypes.c_uint) -> int:
        value = kind()
        self.call(name, *arguments, ctypes.byref(value))
        return value.value

    def driver(self) -> str:
        return self.text("nvmlSystemGetDriverVersion")

    def cuda(self) -> str:
        version = self.number("nvmlSystemGetCudaDriverVersion_v2")
        return "%d.%d" % (version // 1000, version % 1000 // 10)

    def count(self) -> int:
        return self.number("nvmlDeviceGetCount_v2")

    def gpu(self, index: int) -> Gpu:
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        return Gpu(self, handle)

    def process_name(self, pid: int) -> str:
        try:
            with open("/proc/%d/cmdline" % pid, encoding="utf-8", errors="replace") as stream:
                return stream.read().partition("\0")[0]
        except OSError:
            return "[Not Found]"


class Gpu:
    """A GPU. The methods take the part of a function's name that follows nvmlDeviceGet."""

    def __init__(self, nvml: Nvml, handle):
        self.nvml, self.handle = nvml, handle

    def text(self, name: str) -> str:
        return self.nvml.text("nvmlDeviceGet" + name, self.handle)

    def number(self, name: str) -> int:
        return self.nvml.number("nvmlDeviceGet" + name, self.handle)

    def address(self) -> str:
        layout = "@16s5I32s"
        buffer = ctypes.create_string_buffer(struct.calcsize(layout))
        self.nvml.call("nvmlDeviceGetPciInfo_v3", self.handle, buffer)
        return struct.unpack(layout, buffer.raw)[6].split(b"\0")[0].decode()

    def processes(self) -> list[tuple[str, int, int]]:
        """Return type (C or G), process id and bytes of each process that uses the GPU."""
        found = []
        for kind in ("Compute", "Graphics"):
            count, buffer = ctypes.c_uint(64), (ctypes.c_ulonglong * (3 * 64))()
            self.nvml.call("nvmlDeviceGet%sRunningProcesses_v3" % kind, self.handle, ctypes.byref(count), buffer)
            found += [(kind[0], buffer[3 * row] & 0xFFFFFFFF, buffer[3 * row + 1]) for row in range(count.value)]
        return found
