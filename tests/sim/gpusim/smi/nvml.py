# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated NVML as nvidia-smi calls it: functions by name, and the structures that it reads."""

from __future__ import annotations

import ctypes
import os
import struct

from .. import library, state

INVALID, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, TOO_SMALL, NO_FUNCTION = 2, 3, 4, 6, 7, 13
LOST, RESET_REQUIRED, MISMATCH, DEPRECATED = 15, 16, 18, 26
ULONGLONG, SINT = 3, 5


class NvmlError(Exception):
    """A code that a function answered."""

    def __init__(self, code: int):
        super().__init__(str(code))
        self.code = code


class Nvml:
    """The library, called by name."""

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

    def long(self, name: str, *arguments) -> int:
        return self.number(name, *arguments, kind=ctypes.c_ulonglong)

    def numbers(self, name: str, handle, count: int, kind=ctypes.c_uint) -> list[int]:
        values = [kind() for _index in range(count)]
        self.call(name, handle, *[ctypes.byref(value) for value in values])
        return [value.value for value in values]

    def unpacked(self, layout: str, name: str, *arguments, version: int = 0) -> tuple:
        """The members of a structure. One with a version begins with it."""
        size = struct.calcsize(layout)
        buffer = ctypes.create_string_buffer(size)
        if version:
            struct.pack_into("=I", buffer, 0, size | version << 24)
        self.call(name, *arguments, buffer)
        return struct.unpack(layout, buffer.raw)

    def field(self, handle, number: int, scope: int = 0) -> int:
        """The value of one of NVML's fields."""
        buffer = ctypes.create_string_buffer(struct.pack("@IIqqIIQ", number, scope, 0, 0, 0, 0, 0))
        self.call("nvmlDeviceGetFieldValues", handle, 1, buffer)
        kind, code, value = struct.unpack_from("@IIQ", buffer, 24)
        if code:
            raise NvmlError(code)
        return value if kind == ULONGLONG else struct.unpack_from("@i" if kind == SINT else "@I", buffer, 32)[0]

    # ---- structures ----

    def pci(self, handle) -> dict:
        legacy, domain, bus, device, ident, subsystem, address = self.unpacked(
            "@16s5I32s", "nvmlDeviceGetPciInfo_v3", handle
        )
        del legacy
        return {
            "domain": domain,
            "bus": bus,
            "device": device,
            "id": ident,
            "subsystem": subsystem,
            "address": address.split(b"\0")[0].decode(),
        }

    def memory(self, handle) -> dict:
        _version, total, reserved, free, used = self.unpacked("@IQQQQ", "nvmlDeviceGetMemoryInfo_v2", handle, version=2)
        return {"total": total, "reserved": reserved, "free": free, "used": used}

    def fabric(self, handle) -> dict:
        """Cluster, status, clique, state and health, in the newest form that the driver has."""
        try:
            values = self.unpacked("@I16sIIBIB3x", "nvmlDeviceGetGpuFabricInfoV", handle, version=3)
        except NvmlError as error:
            if error.code not in (25, NO_FUNCTION):
                raise
            cluster, status, clique, now = self.unpacked("@16sIIB3x", "nvmlDeviceGetGpuFabricInfo", handle)
            values = (0, cluster, status, clique, now, 0, 0)
        return dict(zip(("version", "cluster", "status", "clique", "state", "mask", "summary"), values))

    def sram(self, handle) -> dict:
        names = (
            "agg_parity",
            "agg_secded",
            "agg_corrected",
            "vol_parity",
            "vol_secded",
            "vol_corrected",
            "l2",
            "sm",
            "pcie",
            "mcu",
            "other",
            "exceeded",
        )
        values = self.unpacked("@I11QI4x", "nvmlDeviceGetSramEccErrorStatus", handle, version=1)
        return dict(zip(names, values[1:]))

    def processes(self, handle, kind: str = "Compute") -> list[tuple[int, int]]:
        """(process, bytes) of each process that uses the GPU."""
        name = "nvmlDeviceGet%sRunningProcesses_v2" % kind
        count = ctypes.c_uint(0)
        try:
            self.call(name, handle, ctypes.byref(count), None)
            return []
        except NvmlError as error:
            if error.code != TOO_SMALL:
                raise
        count.value += 8
        buffer = (ctypes.c_ulonglong * (3 * count.value))()
        self.call(name, handle, ctypes.byref(count), buffer)
        return [(buffer[3 * index] & 0xFFFFFFFF, buffer[3 * index + 1]) for index in range(count.value)]

    def migs(self, handle) -> list:
        """Handles of the MIG devices of a GPU."""
        found = []
        try:
            most = self.number("nvmlDeviceGetMaxMigDeviceCount", handle)
        except NvmlError:
            return []
        for index in range(most):
            mig = ctypes.c_void_p()
            try:
                self.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index, ctypes.byref(mig))
            except NvmlError:
                continue
            found.append(mig)
        return found

    def listed(self, name: str, handle, *arguments) -> list[int]:
        """What a function with a count and a buffer of numbers answers."""
        count = ctypes.c_uint(0)
        try:
            self.call(name, handle, *arguments, ctypes.byref(count), None)
        except NvmlError as error:
            if error.code != TOO_SMALL:
                raise
        values = (ctypes.c_uint * max(count.value, 1))()
        if count.value:
            self.call(name, handle, *arguments, ctypes.byref(count), values)
        return list(values)[: count.value]

    def retired(self, handle, cause: int) -> list[int]:
        """Addresses of retired pages."""
        count = ctypes.c_uint(64)
        pages = (ctypes.c_ulonglong * count.value)()
        self.call("nvmlDeviceGetRetiredPages", handle, cause, ctypes.byref(count), pages)
        return list(pages)[: count.value]

    def branch(self) -> int:
        return int(self.text("nvmlSystemGetDriverVersion").split(".")[0])
