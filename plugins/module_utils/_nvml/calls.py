# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML calls whose answer is always data: a value, or the return code that stands in its place.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import ctypes

from . import codes, fields


class Reader:
    """Calls one binding and turns whatever happens into a value of the snapshot."""

    def __init__(self, binding, progress=None):
        self._binding = binding
        self._progress = progress or (lambda where: None)

    def guard(self, where, read):
        """The value of READ(), or the code of what it raised. WHERE is told first, in case the call never returns."""
        self._progress(where)
        try:
            return codes.value(read())
        except self._binding.NVMLError as exc:
            return codes.missing(int(exc.value))
        except UnicodeDecodeError as exc:
            return codes.missing(codes.UNREADABLE, "NVML answered bytes that are no text: %s" % (exc,))
        except Exception as exc:  # noqa: BLE001 (whatever the binding raises, one value must not cost the others)
            if type(exc).__name__ == "NVMLLibraryMismatchError":
                return codes.missing(codes.FUNCTION_NOT_FOUND, "the library is older than the binding")
            return codes.missing(codes.UNREADABLE, "%s: %s" % (type(exc).__name__, exc))

    def call(self, name, *args):
        """Call the binding's function NAME."""
        function = getattr(self._binding, name, None)
        if function is None:
            return codes.missing(codes.FUNCTION_NOT_FOUND, "the binding has no %s" % (name,))
        return self.guard(name, lambda: _text(function(*args)))

    def raw(self, symbol, *args):
        """Call the library's function SYMBOL itself; raises NVMLError unless it answers SUCCESS or, to a size query, INSUFFICIENT_SIZE."""
        rc = self._binding._nvmlGetFunctionPointer(symbol)(*args)
        if rc not in (codes.SUCCESS, codes.INSUFFICIENT_SIZE):
            raise self._binding.NVMLError(rc)
        return rc

    def first(self, *attempts):
        """The answer of the first attempt that the library knows how to answer."""
        answer = codes.missing(codes.FUNCTION_NOT_FOUND)
        for attempt in attempts:
            answer = attempt()
            if answer["rc"] not in (codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH):
                break
        return answer

    def field(self, handle, number):
        """One field value; the array call itself never fails for a single field, the field says it."""

        def read():
            item = fields.FieldValue()
            item.fieldId = number
            self.raw("nvmlDeviceGetFieldValues", handle, ctypes.c_int(1), ctypes.byref(item))
            if item.nvmlReturn != codes.SUCCESS:
                raise self._binding.NVMLError(item.nvmlReturn)
            if item.valueType >= len(fields.FIELD_CONTENTS):
                raise ValueError("field %d has the unknown value type %d" % (number, item.valueType))
            return getattr(item.value, fields.FIELD_CONTENTS[item.valueType])

        return self.guard("nvmlDeviceGetFieldValues(%d)" % (number,), read)

    def memory(self, handle):
        """Total and used bytes of the frame buffer, as two values."""

        def version_2():
            return self.call("nvmlDeviceGetMemoryInfo", handle, fields.MEMORY_V2)

        def version_1():
            return self.call("nvmlDeviceGetMemoryInfo", handle)

        answer = self.first(version_2, version_1)
        return _attribute(answer, "total"), _attribute(answer, "used")

    def bar1_total(self, handle):
        return _attribute(self.call("nvmlDeviceGetBAR1MemoryInfo", handle), "bar1Total")

    def pci(self, handle):
        """Bus id and device id, as two values; written from the numbers, never from the text."""
        answer = self.call("nvmlDeviceGetPciInfo", handle)
        if answer["rc"] != codes.SUCCESS:
            return answer, dict(answer)
        info = answer["value"]
        bus_id = "%08x:%02x:%02x.0" % (info.domain, info.bus, info.device)
        device_id = "%04x:%04x" % (info.pciDeviceId & 0xFFFF, info.pciDeviceId >> 16)
        return codes.value(bus_id), codes.value(device_id)

    def pair(self, name, handle):
        """A call that answers the current and the pending value, as two values."""
        answer = self.call(name, handle)
        if answer["rc"] != codes.SUCCESS:
            return answer, dict(answer)
        current, pending = answer["value"]
        return codes.value(int(current)), codes.value(int(pending))

    def remapped_rows(self, handle):
        answer = self.call("nvmlDeviceGetRemappedRows", handle)
        if answer["rc"] == codes.SUCCESS:
            return codes.value(_remapped(*answer["value"]))
        if answer["rc"] not in (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND):
            return answer
        # The call is not supported while MIG instances exist; the fields may still answer.
        parts = [self.field(handle, number) for number in (
            fields.FI_REMAPPED_CORRECTABLE, fields.FI_REMAPPED_UNCORRECTABLE, fields.FI_REMAPPED_PENDING, fields.FI_REMAPPED_FAILURE)]
        if all(part["rc"] == codes.SUCCESS for part in parts):
            return codes.value(_remapped(*[part["value"] for part in parts]))
        return answer

    def gsp_version(self, handle):
        def read():
            text = ctypes.create_string_buffer(fields.GSP_VERSION_BYTES)
            self.raw("nvmlDeviceGetGspFirmwareVersion", handle, text)
            return text.value.decode("ascii")

        return self.guard("nvmlDeviceGetGspFirmwareVersion", read)

    def gsp_mode(self, handle):
        def read():
            enabled, default = ctypes.c_uint(), ctypes.c_uint()
            self.raw("nvmlDeviceGetGspFirmwareMode", handle, ctypes.byref(enabled), ctypes.byref(default))
            return {"enabled": bool(enabled.value), "default": bool(default.value)}

        return self.guard("nvmlDeviceGetGspFirmwareMode", read)

    def clocks_event_reasons(self, handle):
        return self.first(
            lambda: self.call("nvmlDeviceGetCurrentClocksEventReasons", handle),
            lambda: self.call("nvmlDeviceGetCurrentClocksThrottleReasons", handle))

    def processes(self, handle):
        """Compute processes by pid: a size query, then the list, again while it grows."""

        def read(symbol):
            count = ctypes.c_uint(0)
            if self.raw(symbol, handle, ctypes.byref(count), None) == codes.SUCCESS:
                return []
            for _attempt in range(4):
                room = count.value * 2 + 5
                count = ctypes.c_uint(room)
                table = (fields.ProcessInfo * room)()
                if self.raw(symbol, handle, ctypes.byref(count), table) == codes.SUCCESS:
                    found = [{"pid": int(row.pid), "used_bytes": _known(row.usedGpuMemory)} for row in table[:count.value]]
                    return sorted(found, key=lambda row: row["pid"])
            raise self._binding.NVMLError(codes.INSUFFICIENT_SIZE)

        attempts = ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"]
        return self.first(*[lambda symbol=symbol: self.guard(symbol, lambda: read(symbol)) for symbol in attempts])

    def nvlinks(self, handle):
        """Whether each link is active; None for a link that does not exist between links that do."""
        links = []
        first_refusal = None
        for link in range(fields.NVLINK_LIMIT):
            answer = self.call("nvmlDeviceGetNvLinkState", handle, link)
            if answer["rc"] == codes.SUCCESS:
                links.append(bool(answer["value"]))
                continue
            if answer["rc"] not in (codes.INVALID_ARGUMENT, codes.NOT_SUPPORTED):
                return answer
            first_refusal = first_refusal or answer
            if answer["rc"] == codes.INVALID_ARGUMENT or link == 0:
                break
            links.append(None)
        while links and links[-1] is None:
            links.pop()
        return codes.value(links) if links else first_refusal

    def fabric(self, handle):
        """State of the GPU in its NVLink fabric, through our own layouts of the structures. What a driver does not say is None."""

        def read(symbol, kind, version):
            info = kind()
            if version is not None:
                info.version = version
            self.raw(symbol, handle, ctypes.byref(info))
            cluster = bytes(bytearray(info.clusterUuid))
            return {
                "state": int(info.state), "status": int(info.status), "clique_id": int(info.cliqueId), "cluster_uuid": cluster.hex(),
                "health_mask": getattr(info, "healthMask", None), "health_summary": getattr(info, "healthSummary", None),
            }

        kinds = [
            ("nvmlDeviceGetGpuFabricInfoV", fields.FabricInfoV3, fields.FABRIC_V3),
            ("nvmlDeviceGetGpuFabricInfoV", fields.FabricInfoV2, fields.FABRIC_V2),
            ("nvmlDeviceGetGpuFabricInfo", fields.FabricInfo, None),
        ]
        return self.first(*[lambda way=way: self.guard(way[0], lambda: read(*way)) for way in kinds])


def _text(content):
    return content.decode("ascii") if isinstance(content, bytes) else content


def _known(used):
    return None if used == fields.MEMORY_NOT_AVAILABLE else int(used)


def _attribute(answer, attribute):
    if answer["rc"] != codes.SUCCESS:
        return dict(answer)
    return codes.value(int(getattr(answer["value"], attribute)))


def _remapped(correctable, uncorrectable, pending, failure):
    return {"correctable": int(correctable), "uncorrectable": int(uncorrectable), "pending": bool(pending), "failure": bool(failure)}
