# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's CUDA interface through ctypes: what a short test needs and no more.

The names, with their _v2, and the types are those of the public header cuda.h. Every argument has its type, as a
pointer that is passed as a C int loses its upper half.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
import uuid
from collections.abc import Iterator

from . import kernels

POINTER = ctypes.c_void_p
ADDRESS = ctypes.c_uint64
SIZE = ctypes.c_size_t
INT = ctypes.c_int
UINT = ctypes.c_uint


class Uuid(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 16)]


_OUT = ctypes.POINTER
# Function: the types of its arguments. All answer a CUresult.
CALLS = {
    "cuInit": (UINT,),
    "cuDriverGetVersion": (_OUT(INT),),
    "cuGetErrorName": (INT, _OUT(ctypes.c_char_p)),
    "cuDeviceGetCount": (_OUT(INT),),
    "cuDeviceGet": (_OUT(INT), INT),
    "cuDeviceGetUuid_v2": (_OUT(Uuid), INT),
    "cuDeviceGetUuid": (_OUT(Uuid), INT),
    "cuDeviceGetPCIBusId": (ctypes.c_char_p, INT, INT),
    "cuDevicePrimaryCtxRetain": (_OUT(POINTER), INT),
    "cuDevicePrimaryCtxRelease_v2": (INT,),
    "cuCtxSetCurrent": (POINTER,),
    "cuCtxSynchronize": (),
    "cuModuleLoadData": (_OUT(POINTER), ctypes.c_char_p),
    "cuModuleUnload": (POINTER,),
    "cuModuleGetFunction": (_OUT(POINTER), POINTER, ctypes.c_char_p),
    "cuMemGetInfo_v2": (_OUT(SIZE), _OUT(SIZE)),
    "cuMemAlloc_v2": (_OUT(ADDRESS), SIZE),
    "cuMemFree_v2": (ADDRESS,),
    "cuMemAllocHost_v2": (_OUT(POINTER), SIZE),
    "cuMemFreeHost": (POINTER,),
    "cuMemcpyHtoD_v2": (ADDRESS, POINTER, SIZE),
    "cuMemcpyDtoH_v2": (POINTER, ADDRESS, SIZE),
    "cuMemcpyHtoDAsync_v2": (ADDRESS, POINTER, SIZE, POINTER),
    "cuMemcpyDtoHAsync_v2": (POINTER, ADDRESS, SIZE, POINTER),
    "cuMemcpyDtoDAsync_v2": (ADDRESS, ADDRESS, SIZE, POINTER),
    "cuEventCreate": (_OUT(POINTER), UINT),
    "cuEventDestroy_v2": (POINTER,),
    "cuEventRecord": (POINTER, POINTER),
    "cuEventSynchronize": (POINTER,),
    "cuEventElapsedTime": (_OUT(ctypes.c_float), POINTER, POINTER),
    "cuLaunchKernel": (POINTER, UINT, UINT, UINT, UINT, UINT, UINT, UINT, POINTER, _OUT(POINTER), _OUT(POINTER)),
}
NO_SUCH_FUNCTION = -1


class CudaError(Exception):
    """A call did not answer success: which one, the number, and the driver's name for it."""

    def __init__(self, call, rc, name) -> None:
        super().__init__("%s: %s (%s)" % (call, name, rc))
        self.call, self.rc, self.name = call, rc, name

    def data(self) -> dict:
        return {"call": self.call, "rc": self.rc, "name": self.name}


class Driver:
    """The functions of one libcuda; each raises CudaError for what is no success.

    PROGRESS is told each call first, in case it never returns.
    """

    def __init__(self, path, progress=None, load=ctypes.CDLL) -> None:
        self._library = load(path)
        self._progress = progress or (lambda where: None)
        self._functions = {}

    @property
    def is_simulated(self) -> bool:
        """Tell if the library is the simulator, which has a symbol of its own."""
        return hasattr(self._library, "gpusim_marker")

    def _function(self, name):
        if name not in self._functions:
            try:
                function = getattr(self._library, name)
            except AttributeError:
                raise CudaError(name, NO_SUCH_FUNCTION, "FUNCTION_NOT_FOUND") from None
            function.restype = INT
            function.argtypes = CALLS[name]
            self._functions[name] = function
        return self._functions[name]

    def call(self, name, *args) -> None:
        rc = self._function(name)(*args)
        if rc != 0:
            raise CudaError(name, rc, self.error_name(rc))

    def wait(self, name, *args) -> None:
        """A call that may wait for the GPU."""
        self._progress(name)
        self.call(name, *args)

    def out(self, kind, name, *args):
        """The value that a call writes to its first argument."""
        answer = kind()
        self.call(name, ctypes.byref(answer), *args)
        return answer.value

    def error_name(self, rc) -> str:
        text = ctypes.c_char_p()
        try:
            if self._function("cuGetErrorName")(rc, ctypes.byref(text)) == 0 and text.value:
                return text.value.decode("ascii", "replace")
        except CudaError:
            pass
        return "CUDA_ERROR_%d" % (rc,)

    def version(self) -> str:
        number = self.out(INT, "cuDriverGetVersion")
        return "%d.%d" % (number // 1000, number % 1000 // 10)

    def start(self) -> None:
        self.wait("cuInit", 0)

    def devices(self):
        """Handle, UUID and PCI address of each GPU that CUDA sees."""
        found = []
        for ordinal in range(self.out(INT, "cuDeviceGetCount")):
            device = self.out(INT, "cuDeviceGet", ordinal)
            found.append({"device": device, "uuid": self.uuid(device), "pci_bus_id": self.address(device)})
        return found

    def uuid(self, device) -> str:
        answer = Uuid()
        try:
            self.call("cuDeviceGetUuid_v2", ctypes.byref(answer), device)
        except CudaError as exc:
            if exc.rc != NO_SUCH_FUNCTION:
                raise
            self.call("cuDeviceGetUuid", ctypes.byref(answer), device)
        return "GPU-%s" % (uuid.UUID(bytes=bytes(bytearray(answer.bytes))),)

    def address(self, device):
        text = ctypes.create_string_buffer(32)
        self.call("cuDeviceGetPCIBusId", text, len(text), device)
        return text.value.decode("ascii", "replace").lower()


class Gpu:
    """One GPU at work, within its primary context. What is still allocated at the end is freed with it."""

    def __init__(self, driver, device) -> None:
        self.driver = driver
        self.device = device
        self._module = None
        self._functions = {}

    def __enter__(self):
        self.driver._progress("cuDevicePrimaryCtxRetain")
        context = self.driver.out(POINTER, "cuDevicePrimaryCtxRetain", self.device)
        try:
            self.driver.call("cuCtxSetCurrent", context)
            self.driver._progress("cuModuleLoadData")
            self._module = self.driver.out(POINTER, "cuModuleLoadData", kernels.PTX.encode("ascii"))
            for kernel in kernels.KERNELS:
                self._functions[kernel] = self.driver.out(
                    POINTER, "cuModuleGetFunction", self._module, kernel.name.encode("ascii")
                )
        except CudaError:
            self._release()
            raise
        return self

    def __exit__(self, kind, value, trace) -> None:
        self._release()

    def _release(self) -> None:
        # After an error the context refuses everything, also this; the process ends soon and frees all of it.
        with contextlib.suppress(CudaError):
            if self._module is not None:
                self.driver.call("cuModuleUnload", self._module)
        with contextlib.suppress(CudaError):
            self.driver.call("cuDevicePrimaryCtxRelease_v2", self.device)

    def free_memory(self):
        free, total = SIZE(), SIZE()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    @contextlib.contextmanager
    def memory(self, size) -> Iterator:
        """An address of SIZE bytes on the GPU."""
        address = self.driver.out(ADDRESS, "cuMemAlloc_v2", size)
        try:
            yield address
        finally:
            with contextlib.suppress(CudaError):
                self.driver.call("cuMemFree_v2", address)

    @contextlib.contextmanager
    def host_memory(self, size) -> Iterator:
        """An address of SIZE bytes of the node that the GPU reaches by itself (page-locked)."""
        address = self.driver.out(POINTER, "cuMemAllocHost_v2", size)
        try:
            yield address
        finally:
            with contextlib.suppress(CudaError):
                self.driver.call("cuMemFreeHost", address)

    def write(self, address, data) -> None:
        source = ctypes.create_string_buffer(data, len(data))
        self.driver.wait("cuMemcpyHtoD_v2", address, ctypes.cast(source, POINTER), len(data))

    def copy_out(self, address, size):
        target = ctypes.create_string_buffer(size)
        self.driver.wait("cuMemcpyDtoH_v2", ctypes.cast(target, POINTER), address, size)
        return target.raw

    def launch(self, kernel, grid, block, *values) -> None:
        """Start a kernel of kernels.py; GRID and BLOCK are (x, y)."""
        holders = [kernels.KINDS[kind](value) for kind, value in zip(kernel.parameters, values)]
        if len(holders) != len(kernel.parameters) or len(values) != len(holders):
            raise ValueError("%s takes %d values, not %d" % (kernel.name, len(kernel.parameters), len(values)))
        pointers = (POINTER * len(holders))(*[ctypes.cast(ctypes.pointer(holder), POINTER) for holder in holders])
        self.driver.call(
            "cuLaunchKernel",
            self._functions[kernel],
            grid[0],
            grid[1],
            1,
            block[0],
            block[1],
            1,
            0,
            None,
            pointers,
            None,
        )

    def linear(self, kernel, words, *values) -> None:
        self.launch(kernel, (kernels.choose_grid(words), 1), (kernels.BLOCK, 1), *values)

    def finish(self) -> None:
        """Wait until the GPU has done everything; an error of a kernel shows here."""
        self.driver.wait("cuCtxSynchronize")

    @contextlib.contextmanager
    def stopwatch(self) -> Iterator:
        """A function that times work on the GPU with its own clock: seconds(work)."""
        begin = self.driver.out(POINTER, "cuEventCreate", 0)
        end = self.driver.out(POINTER, "cuEventCreate", 0)

        def seconds(work):
            self.driver.call("cuEventRecord", begin, None)
            work()
            self.driver.call("cuEventRecord", end, None)
            self.driver.wait("cuEventSynchronize", end)
            return self.driver.out(ctypes.c_float, "cuEventElapsedTime", begin, end) / 1000.0

        try:
            yield seconds
        finally:
            for event in (begin, end):
                with contextlib.suppress(CudaError):
                    self.driver.call("cuEventDestroy_v2", event)


LIBRARY = "libcuda.so.1"
# Where the loader looks without its cache, in its order; the first ones are what administrators put in front.
PLACES = ("usr/local/lib", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
LINE = re.compile(r"^\s*libcuda\.so\.1 \((?P<kind>[^)]*)\) => (?P<path>/.*)$")
# What marks a library of this machine's word length in the loader's cache.
WORDS = {"x86_64": "x86-64", "aarch64": "AArch64"}


class Untrusted(Exception):
    """The library must not be loaded; the text says why."""


def find_library(root="/", runner=None, machine=None) -> str | None:
    """The path of libcuda.so.1 below ROOT, or None: what the loader's cache says, then the usual directories."""
    if runner is not None:
        rc, out, dummy = runner(["/sbin/ldconfig", "-p"], 20)
        if rc == 0:
            path = find_cached(out, machine or os.uname().machine)
            if path and os.path.exists(os.path.join(root, path.lstrip("/"))):
                return path
    for place in PLACES:
        path = os.path.join("/", place, LIBRARY)
        if os.path.exists(os.path.join(root, path.lstrip("/"))):
            return path
    return None


def find_cached(text, machine) -> str | None:
    """The first libcuda.so.1 for MACHINE in the output of ldconfig -p; its order is the loader's."""
    wanted = WORDS.get(machine)
    for line in text.splitlines():
        match = LINE.match(line)
        if match and (wanted is None or wanted in match.group("kind")):
            return match.group("path")
    return None


def require_trusted(path, user=None) -> str:
    """Return the real path of PATH if only root (and this user) can change it or anything on the way to it; raises
    Untrusted otherwise.
    """
    user = os.geteuid() if user is None else user
    try:
        real = os.path.realpath(path)
        about = os.stat(real)
        if not stat.S_ISREG(about.st_mode):
            raise Untrusted("%s is not a regular file" % (real,))
        for start in (os.path.abspath(path), real):
            _find_way(start, user)
    except OSError as exc:
        raise Untrusted("%s cannot be looked at: %s" % (path, exc.strerror)) from exc
    return real


def _find_way(path, user) -> None:
    while True:
        about = os.lstat(path)
        if about.st_uid not in (0, user):
            raise Untrusted("%s belongs to uid %d, not to root" % (path, about.st_uid))
        # The mode of a link means nothing, and in a sticky directory only owners replace files.
        shared = about.st_mode & 0o022 and not stat.S_ISLNK(about.st_mode)
        if shared and not (stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX):
            raise Untrusted("%s can be changed by other users (mode %04o)" % (path, stat.S_IMODE(about.st_mode)))
        parent = os.path.dirname(path)
        if parent == path:
            return
        path = parent


def loader_problem(environment, user=None) -> str | None:
    """Return why the loader of this process must not be trusted to load the libraries that libcuda needs, or None.

    The loader read its variables when the process began. sudo removes them; if they are set, only paths that root alone
    can change are accepted.
    """
    user = os.geteuid() if user is None else user
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"):
        for place in re.split(r"[:; ]", environment.get(name, "")):
            try:
                if place and not os.path.isabs(place):
                    raise Untrusted("%s is no absolute path" % (place,))
                if place and os.path.exists(place):
                    for start in (os.path.abspath(place), os.path.realpath(place)):
                        _find_way(start, user)
            except (Untrusted, OSError) as exc:
                return "%s is set for this task, and %s; remove it from the task's environment" % (name, exc)
    return None


def library_version(real) -> str | None:
    """The driver version in the name of the library's file, or None."""
    match = re.search(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)$", real)
    return match.group(1) if match else None


def clean_environment(environment, visible) -> None:
    """Take out of ENVIRONMENT whatever steers CUDA and the loader, and show the one GPU that is to be tested.

    Variables such as CUDA_VISIBLE_DEVICES, CUDA_INJECTION64_PATH, CUDA_LAUNCH_BLOCKING or an MPS pipe would test
    something else.
    """
    for name in list(environment):
        if re.match(r"^(CUDA|NVIDIA|NV|CU|LD)_", name):
            del environment[name]
    environment["CUDA_VISIBLE_DEVICES"] = visible
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    # No files of compiled kernels in a home directory: what the driver compiles is part of what is tested.
    environment["CUDA_CACHE_DISABLE"] = "1"
