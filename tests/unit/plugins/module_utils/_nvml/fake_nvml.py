# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A library in Python whose methods have the names and parameters of NVML's C functions, laid out after the public
header.
"""

from __future__ import annotations

import ctypes
import struct

OK, INVALID, NOT_SUPPORTED, NOT_FOUND, TOO_SMALL, VERSION = 0, 2, 3, 6, 7, 25
MIG_BASE = 9000


def put(pointer, value):
    pointer._obj.value = value
    return OK


def put_text(buffer, text):
    data = text if isinstance(text, bytes) else text.encode("ascii")
    buffer.value = data
    return OK


class FakeNvml:
    """GPUS of one model. FAIL maps a symbol, or (symbol, index), to a return code; symbols in WITHOUT do not exist."""

    def __init__(
        self,
        gpus=2,
        driver="535.216.03",
        init=OK,
        fail=None,
        without=(),
        links=4,
        fabric=2,
        recovery=0,
        mig=0,
        retired=None,
        instances=(),
        link_fields=(),
    ):
        self._gpus, self._driver, self._init, self._links, self._fabric = gpus, driver, init, links, fabric
        self._recovery, self._mig, self._retired, self._instances = recovery, mig, retired, instances
        self._link_fields = link_fields
        self._fail = fail or {}
        self._without = set(without)
        self.calls = []

    def __getattribute__(self, name):
        if name.startswith("nvml"):
            if name in self._without:
                raise AttributeError(name)
            function = object.__getattribute__(self, name)

            def counted(*args):
                self.calls.append(name)
                index = None
                if args and isinstance(args[0], ctypes._Pointer):  # a GPU; a MIG device is a plain pointer
                    index = self.index(args[0])
                elif name == "nvmlDeviceGetHandleByIndex_v2":
                    index = args[0].value
                for key in ((name, index), name):
                    if key in self._fail:
                        return self._fail[key]
                return function(*args)

            return counted
        return object.__getattribute__(self, name)

    @staticmethod
    def index(handle):
        return ctypes.cast(handle, ctypes.c_void_p).value - 1000

    def nvmlInitWithFlags(self, flags):
        return self._init

    def nvmlShutdown(self):
        return OK

    def nvmlErrorString(self, rc):
        return b"code"

    def nvmlSystemGetDriverVersion(self, buffer, size):
        return put_text(buffer, self._driver)

    def nvmlSystemGetNVMLVersion(self, buffer, size):
        return put_text(buffer, "12.535.216.03")

    def nvmlSystemGetCudaDriverVersion_v2(self, version):
        return put(version, 12020)

    def nvmlDeviceGetCount_v2(self, count):
        return put(count, self._gpus)

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 1000 + index.value
        return OK

    def nvmlDeviceGetUUID(self, handle, buffer, size):
        if isinstance(handle, ctypes.c_void_p):
            return put_text(buffer, "MIG-%08d" % self._mig_number(handle))
        return put_text(buffer, "GPU-%08d-0000-0000-0000-000000000000" % self.index(handle))

    def nvmlDeviceGetSerial(self, handle, buffer, size):
        return put_text(buffer, "16530%08d" % self.index(handle))

    def nvmlDeviceGetName(self, handle, buffer, size):
        if isinstance(handle, ctypes.c_void_p):
            return put_text(buffer, "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
        return put_text(buffer, "NVIDIA H100 80GB HBM3")

    def nvmlDeviceGetBoardPartNumber(self, handle, buffer, size):
        return put_text(buffer, "692-2G520-0200-000")

    def nvmlDeviceGetVbiosVersion(self, handle, buffer, size):
        return put_text(buffer, "96.00.74.00.01")

    def nvmlDeviceGetInforomImageVersion(self, handle, buffer, size):
        return put_text(buffer, "G520.0200.00.05")

    def nvmlDeviceGetPciInfo_v3(self, handle, info):
        index = self.index(handle)
        # busIdLegacy[16], domain, bus, device, pciDeviceId, pciSubSystemId, busId[32]
        bus = b"%08X:%02X:%02X.0" % (0, 0x1A + index, 0)
        data = struct.pack("=16sIIIII32s", b"legacy", 0, 0x1A + index, 0, 0x233010DE, 0x16C110DE, bus)
        ctypes.memmove(ctypes.addressof(info._obj), data, len(data))
        return OK

    def nvmlDeviceGetMinorNumber(self, handle, out):
        return put(out, self.index(handle))

    def nvmlDeviceGetMemoryInfo(self, handle, info):
        ctypes.memmove(ctypes.addressof(info._obj), struct.pack("=QQQ", 85520809984, 85000000000, 520809984), 24)
        return OK

    def nvmlDeviceGetMemoryInfo_v2(self, handle, info):
        if info._obj.version != 0x2000028:
            return VERSION
        ctypes.memmove(
            ctypes.addressof(info._obj),
            struct.pack("=IIQQQQ", 0x2000028, 0, 85520809984, 500000000, 85000000000, 20809984),
            40,
        )
        return OK

    def nvmlDeviceGetBAR1MemoryInfo(self, handle, info):
        ctypes.memmove(ctypes.addressof(info._obj), struct.pack("=QQQ", 137438953472, 137438953000, 472), 24)
        return OK

    def nvmlDeviceGetEccMode(self, handle, current, pending):
        put(current, 1)
        return put(pending, 1)

    def nvmlDeviceGetTotalEccErrors(self, handle, kind, counter, out):
        return put(out, 1000 * counter.value + kind.value)

    def nvmlDeviceGetRemappedRows(self, handle, correctable, uncorrectable, pending, failure):
        if self._mig:
            return NOT_SUPPORTED
        put(correctable, 1)
        put(uncorrectable, 2)
        put(pending, 0)
        return put(failure, 0)

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle, out):
        return NOT_SUPPORTED

    def nvmlDeviceGetFieldValues(self, handle, count, values):
        known = {
            230: self._recovery,
            142: 5,
            143: 6,
            144: 1,
            145: 0,
            82: 41,
            193: -8,
            194: -2,
            195: 4,
            196: 0,
            74: 740,
            94: 94,
        }
        # The contents are as wide as their type says; what lies beside them in the union is not to be read.
        signed = {193, 194, 195, 196}
        base = ctypes.addressof(values._obj)
        number = ctypes.c_uint.from_address(base).value
        content = known.get(number)
        if number in self._link_fields:
            content = 100 * number + ctypes.c_uint.from_address(base + 4).value
        rc = NOT_SUPPORTED if content is None else OK
        # fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value
        data = struct.pack("=IIqqII", number, 0, 1, 1, 5 if number in signed else 1, rc)
        data += (
            struct.pack("=iI", content, 0xDEADBEEF)
            if number in signed
            else struct.pack("=II", content or 0, 0xDEADBEEF)
        )
        ctypes.memmove(base, data, len(data))
        return OK

    def nvmlDeviceGetRetiredPages(self, handle, cause, count, table):
        if self._retired is None:
            return NOT_SUPPORTED
        put(count, self._retired[cause.value])
        return TOO_SMALL if self._retired[cause.value] else OK

    def nvmlDeviceGetRowRemapperHistogram(self, handle, histogram):
        ctypes.memmove(ctypes.addressof(histogram._obj), struct.pack("=IIIII", 640, 1, 2, 3, 4), 20)
        return OK

    def nvmlDeviceGetRepairStatus(self, handle, status):
        # version, bChannelRepairPending, bTpcRepairPending
        return self._fill(status, 0x100000C, struct.pack("=III", 0x100000C, 1, 0))

    def nvmlDeviceGetSramEccErrorStatus(self, handle, status):
        # version, aggregate: parity, sec-ded, corrected; volatile: the same; buckets L2, SM, PCIe, MCU, other;
        # threshold
        data = struct.pack("=IxxxxQQQQQQQQQQQIxxxx", 0x1000068, 10, 1, 100, 20, 2, 200, 1, 2, 3, 4, 5, 1)
        return self._fill(status, 0x1000068, data)

    def nvmlDeviceGetMarginTemperature(self, handle, margin):
        return self._fill(margin, 0x1000008, struct.pack("=Ii", 0x1000008, -3))

    def nvmlDeviceGetAddressingMode(self, handle, mode):
        return self._fill(mode, 0x1000008, struct.pack("=II", 0x1000008, 1))

    @staticmethod
    def _fill(structure, version, data):
        """A driver that fills exactly its own structure, and knows no other version of it."""
        if structure._obj.version != version:
            return VERSION
        ctypes.memmove(ctypes.addressof(structure._obj), data, len(data))
        return OK

    def nvmlDeviceGetMemoryErrorCounter(self, handle, error, period, location, out):
        if location.value not in (2, 7):
            return NOT_SUPPORTED
        return put(out, 1000 * period.value + 100 * error.value + location.value)

    def nvmlDeviceGetInforomConfigurationChecksum(self, handle, out):
        return put(out, 0xCAFEF00D)

    def nvmlDeviceValidateInforom(self, handle):
        return OK

    def nvmlDeviceGetArchitecture(self, handle, out):
        return put(out, 9)

    def nvmlDeviceGetVirtualizationMode(self, handle, out):
        return put(out, 0)

    def nvmlDeviceGetMaxClockInfo(self, handle, kind, out):
        return put(out, 1980 + kind.value)

    def nvmlDeviceGetApplicationsClock(self, handle, kind, out):
        return put(out, {0: 1755, 2: 2619}[kind.value])

    def nvmlDeviceGetDefaultApplicationsClock(self, handle, kind, out):
        return put(out, {0: 1830, 2: 2619}[kind.value])

    def nvmlDeviceGetViolationStatus(self, handle, policy, times):
        if policy.value > 5:
            return INVALID
        ctypes.memmove(ctypes.addressof(times._obj), struct.pack("=QQ", 1, 1000000000000 + policy.value), 16)
        return OK

    def nvmlDeviceGetTemperatureThreshold(self, handle, kind, out):
        return put(out, {0: 95, 1: 92, 2: 105, 3: 87}[kind.value])

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle, lowest, highest):
        put(lowest, 200000)
        return put(highest, 700000)

    def nvmlDeviceGetGpuMaxPcieLinkGeneration(self, handle, out):
        return put(out, 5)

    def nvmlDeviceGetPcieReplayCounter(self, handle, out):
        return put(out, 3)

    def nvmlDeviceGetNvLinkVersion(self, handle, link, out):
        return put(out, 5)

    def nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle, link, info):
        data = struct.pack("=16sIIIII32s", b"legacy", 0, 0xC1 + link.value % 4, 0, 0x22A310DE, 0, b"ignored")
        ctypes.memmove(ctypes.addressof(info._obj), data, len(data))
        return OK

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link, out):
        return put(out, 2)

    def nvmlDeviceGetNvLinkErrorCounter(self, handle, link, counter, out):
        return put(out, 10000000000 * counter.value + link.value)

    def nvmlDeviceGetP2PStatus(self, handle, other, capability, out):
        return put(out, 5 if capability.value == 3 else 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle, out):
        return put(out, 7 if self._mig else 0)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index, device):
        if index.value not in self._instances:
            return NOT_FOUND
        return put(device, MIG_BASE + index.value)

    @staticmethod
    def _mig_number(device):
        return device.value - MIG_BASE

    def nvmlDeviceGetGpuInstanceId(self, device, out):
        return put(out, 10 - self._mig_number(device))

    def nvmlDeviceGetComputeInstanceId(self, device, out):
        return put(out, 0)

    def nvmlDeviceGetAttributes_v2(self, device, attributes):
        # multiprocessors, engines: copy, decoder, encoder, JPEG, OFA; slices: GPU, compute; MiB
        data = struct.pack("=IIIIIIIIQ", 16, 1, 1, 0, 1, 0, 1, 1, 9984)
        ctypes.memmove(ctypes.addressof(attributes._obj), data, len(data))
        return OK

    def nvmlDeviceGetTemperature(self, handle, sensor, out):
        return put(out, 34)

    def nvmlDeviceGetPowerUsage(self, handle, out):
        return put(out, 71000)

    def nvmlDeviceGetPowerManagementLimit(self, handle, out):
        return put(out, 700000)

    nvmlDeviceGetPowerManagementDefaultLimit = nvmlDeviceGetPowerManagementLimit
    nvmlDeviceGetEnforcedPowerLimit = nvmlDeviceGetPowerManagementLimit

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle, out):
        return put(out, 5)

    nvmlDeviceGetMaxPcieLinkGeneration = nvmlDeviceGetCurrPcieLinkGeneration

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle, out):
        return put(out, 16)

    nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth

    def nvmlDeviceGetMigMode(self, handle, current, pending):
        put(current, self._mig)
        return put(pending, self._mig)

    def nvmlDeviceGetPersistenceMode(self, handle, out):
        return put(out, 1)

    def nvmlDeviceGetComputeMode(self, handle, out):
        return put(out, 0)

    def nvmlDeviceGetGspFirmwareVersion(self, handle, buffer):
        return put_text(buffer, self._driver)

    def nvmlDeviceGetGspFirmwareMode(self, handle, enabled, default):
        put(enabled, 1)
        return put(default, 1)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle, out):
        return put(out, 1)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, out):
        return put(out, 9)

    def nvmlDeviceGetClockInfo(self, handle, kind, out):
        return put(out, {0: 345, 1: 346, 2: 2619, 3: 765}[kind.value])

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, table):
        if table is None:
            put(count, 2)
            return TOO_SMALL
        data = struct.pack("=IIQIIIIQII", 4711, 0, 1024, 1, 2, 42, 0, 0xFFFFFFFFFFFFFFFF, 3, 4)
        ctypes.memmove(table, data, len(data))
        return put(count, 2)

    nvmlDeviceGetComputeRunningProcesses_v2 = nvmlDeviceGetComputeRunningProcesses_v3

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle, count, table):
        return put(count, 0)

    def nvmlDeviceGetNvLinkState(self, handle, link, out):
        if link.value >= self._links:
            return INVALID
        return put(out, 1)

    def nvmlDeviceGetGpuFabricInfoV(self, handle, info):
        wanted = info._obj.version
        if wanted != {2: 0x2000024, 3: 0x3000028}[self._fabric]:
            return VERSION
        # version, clusterUuid[16], status, cliqueId, state, healthMask, (healthSummary)
        data = struct.pack("=I16sIIBxxxI", wanted, b"0123456789abcdef", 0, 9, 3, 0x55)
        if self._fabric == 3:
            data += struct.pack("=Bxxx", 1)
        ctypes.memmove(ctypes.addressof(info._obj), data, len(data))
        return OK

    def nvmlDeviceGetGpuFabricInfo(self, handle, info):
        # clusterUuid[16], status, cliqueId, state
        data = struct.pack("=16sIIB", b"fedcba9876543210", 0, 7, 2)
        ctypes.memmove(ctypes.addressof(info._obj), data, len(data))
        return OK


def install(binding, library):
    """Let BINDING use LIBRARY in place of libnvidia-ml.so.1."""
    binding.nvmlLib = library
    binding._nvmlGetFunctionPointer_cache.clear()
    return binding
