# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated NVML as the commands here call it: functions by name, and the structures that nvidia-smi reads."""

from __future__ import annotations

import ctypes
import os
import struct

from . import library, state

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, TOO_SMALL, NO_FUNCTION = 3, 4, 6, 7, 13
LOST, RESET_REQUIRED, MISMATCH, DEPRECATED = 15, 16, 18, 26
ULONGLONG, SINT = 3, 5


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
        code = NO_FUNCTION if function is None else function(*arguments)
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

    def process_name(self, pid: int) -> str:
        try:
            return self.text("nvmlSystemGetProcessName", pid)
        except NvmlError:
            return "[Not Found]"


class Gpu:
    """A GPU or a MIG device. The methods take the part of a function's name that follows nvmlDeviceGet."""

    def __init__(self, nvml: Nvml, handle):
        self.nvml, self.handle = nvml, handle

    def text(self, name: str, *arguments) -> str:
        return self.nvml.text("nvmlDeviceGet" + name, self.handle, *arguments)

    def number(self, name: str, *arguments) -> int:
        return self.nvml.number("nvmlDeviceGet" + name, self.handle, *arguments)

    def long(self, name: str, *arguments) -> int:
        return self.nvml.number("nvmlDeviceGet" + name, self.handle, *arguments, kind=ctypes.c_ulonglong)

    def numbers(self, name: str, count: int) -> list[int]:
        values = [ctypes.c_uint() for _index in range(count)]
        self.nvml.call("nvmlDeviceGet" + name, self.handle, *[ctypes.byref(value) for value in values])
        return [value.value for value in values]

    def unpacked(self, layout: str, name: str, version: int = 0) -> tuple:
        """Return the members of a structure. One with a version begins with it."""
        size = struct.calcsize(layout)
        buffer = ctypes.create_string_buffer(size)
        if version:
            struct.pack_into("=I", buffer, 0, size | version << 24)
        self.nvml.call("nvmlDeviceGet" + name, self.handle, buffer)
        return struct.unpack(layout, buffer.raw)

    def field(self, number: int, scope: int = 0) -> int:
        """Return the value of one of NVML's fields."""
        buffer = ctypes.create_string_buffer(struct.pack("@IIqqIIQ", number, scope, 0, 0, 0, 0, 0))
        self.nvml.call("nvmlDeviceGetFieldValues", self.handle, 1, buffer)
        kind, code, value = struct.unpack_from("@IIQ", buffer, 24)
        if code:
            raise NvmlError(code)
        return value if kind == ULONGLONG else struct.unpack_from("@i" if kind == SINT else "@I", buffer, 32)[0]

    def pci(self) -> dict:
        values = self.unpacked("@16s5I32s", "PciInfo_v3")
        return {"id": values[4], "subsystem": values[5], "address": values[6].split(b"\0")[0].decode()}

    def memory(self) -> dict:
        values = self.unpacked("@IQQQQ", "MemoryInfo_v2", version=2)
        return dict(zip(("total", "reserved", "free", "used"), values[1:]))

    def fabric(self) -> dict:
        return dict(zip(("cluster", "status", "clique", "state"), self.unpacked("@16sIIB3x", "GpuFabricInfo")))

    def processes(self) -> list[tuple[str, int, int]]:
        """Return type (C or G), process id and bytes of each process that uses the GPU."""
        found = []
        for kind in ("Compute", "Graphics"):
            count, buffer = ctypes.c_uint(64), (ctypes.c_ulonglong * (3 * 64))()
            self.nvml.call("nvmlDeviceGet%sRunningProcesses_v2" % kind, self.handle, ctypes.byref(count), buffer)
            found += [(kind[0], buffer[3 * row] & 0xFFFFFFFF, buffer[3 * row + 1]) for row in range(count.value)]
        return found

    def mig_devices(self) -> list[Gpu]:
        found = []
        try:
            most = self.number("MaxMigDeviceCount")
        except NvmlError:
            return []
        for index in range(most):
            handle = ctypes.c_void_p()
            try:
                self.nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", self.handle, index, ctypes.byref(handle))
            except NvmlError:
                continue
            found.append(Gpu(self.nvml, handle))
        return found
