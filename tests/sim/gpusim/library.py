# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The installed libnvidia-ml.so.1: which functions it has. A driver has no functions of later ones."""

from __future__ import annotations

import os
import re
import struct

from . import state

PRISTINE = "/usr/local/lib/gpusim/libnvidia-ml.so.1"
INSTALLED = "/usr/local/lib/libnvidia-ml.so.1"

# What src/nvml_symbols.c keeps in the library for each function: its name, and the first driver branch that has it.
BRANCHES = re.compile(rb"(nvml\w+) (\d{3})\n")


def library_version() -> str:
    """The version of the installed package's own library file, found as the dynamic linker finds it."""
    pattern = re.compile(r"^libnvidia-ml\.so\.(\d+\..+)$")
    for base in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        match = pattern.match(os.path.basename(os.path.realpath(state.path(base + "/libnvidia-ml.so.1"))))
        if match and os.path.exists(state.path(base + "/libnvidia-ml.so.1")):
            return match.group(1)
        folders = [state.path(base)]
        if os.path.isdir(state.path(base + "/nvidia")):
            folders = (
                sorted(entry.path for entry in os.scandir(state.path(base + "/nvidia")) if entry.is_dir()) + folders
            )
        for folder in folders:
            found = [pattern.match(name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
            versions = sorted(
                (match.group(1) for match in found if match),
                key=lambda text: [int(part) for part in re.findall(r"\d+", text)],
            )
            if versions:
                return versions[-1]
    return ""


def missing_symbols() -> set[str]:
    version = library_version()
    branch = int(version.split(".")[0]) if version else None
    missing = {name for name, first in branches().items() if branch is not None and branch < first}
    faults = state.read(state.FAULTS)
    for section in faults.sections():
        if faults.get(section, "driver", fallback=version) == version:
            missing.update(faults.get(section, "missing", fallback="").split())
    return missing


def without_symbols(data: bytes, names: set[str]) -> bytes:
    """The library with functions taken out of its dynamic symbol table: dlsym() does not find them any more."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise state.SimError("%s is no 64-bit little-endian ELF file" % PRISTINE)
    result = bytearray(data)
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + index * size) for index in range(count)]
    left = set(names)
    for header in headers:
        if header[1] != 11:
            continue
        strings = headers[header[6]][4]
        for place in range(header[4], header[4] + header[5], 24):
            (name_at,) = struct.unpack_from("<I", data, place)
            start = strings + name_at
            name = data[start : data.index(b"\0", start)].decode()
            if name in names:
                # Undefined and without an address: what the linker skips.
                struct.pack_into("<HQ", result, place + 6, 0, 0)
                left.discard(name)
    if left:
        raise state.SimError("the library has no function %s" % ", ".join(sorted(left)))
    return bytes(result)


def branches() -> dict[str, int]:
    """The first driver branch that has a function."""
    with open(state.path(PRISTINE), "rb") as stream:
        return {name.decode(): int(first) for name, first in BRANCHES.findall(stream.read())}


def symbols() -> set[str]:
    return set(branches())


def relink() -> set[str]:
    """Writes the library anew when its functions have to change; answers which are missing."""
    if not os.path.exists(state.path(PRISTINE)):
        return set()
    missing = missing_symbols()
    with open(state.path(PRISTINE), "rb") as stream:
        wanted = without_symbols(stream.read(), missing)
    target = state.path(INSTALLED)
    try:
        with open(target, "rb") as stream:
            same = stream.read() == wanted
    except OSError:
        same = False
    if not same:
        temporary = "%s.%d" % (target, os.getpid())
        with open(temporary, "wb") as stream:
            stream.write(wanted)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    return missing
