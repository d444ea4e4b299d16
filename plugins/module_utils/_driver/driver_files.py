# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's files on disk: GSP firmware, libraries, CUDA, and the daemons that come with it."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re

from .._node import files


def read_firmware(root) -> list[str]:
    """Driver versions that have GSP firmware under /lib/firmware."""
    base = files.under(root, "/lib/firmware/nvidia")
    found = []
    for name in files.listing(base) or []:
        if re.match(r"^\d{3}\.\d+", name) and fnmatch.filter(files.listing("%s/%s" % (base, name)) or [], "gsp*.bin"):
            found.append(name)
    return found


def is_firmware_disabled(root) -> bool:
    """True when modprobe's configuration switches GSP firmware off (proprietary modules only)."""
    directory = files.under(root, "/etc/modprobe.d")
    for name in files.listing(directory) or []:
        content = files.read_text("%s/%s" % (directory, name)) or ""
        if name.endswith(".conf") and re.search(
            r"^\s*options\s+nvidia\S*\s.*NVreg_EnableGpuFirmware=0\b", content, re.M
        ):
            return True
    return False


VERSIONED_LIBRARY = r"^%s\.so\.(?P<version>\d{3}\.\d+(?:\.\d+)?)$"
LIBRARY_PLACES = (
    "/usr/lib/*/nvidia/*",
    "/usr/lib/*/nvidia",
    "/usr/lib/*",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/lib/nvidia*",
    "/usr/local/lib",
    "/usr/local/lib64",
)


def read_libraries(root, name="libnvidia-ml") -> dict:
    """``{"version", "path", "candidates"}``; version is None with no candidate, or with several that no link decides.

    A library without a version in its name (a stand-in, a stub) says nothing: the version is the file's that the
    package installed, so that a library that shadows another does not hide what is installed.
    """
    candidates = find_libraries(root, name)
    found = sorted(set(candidates.values()))
    if len(found) == 1:
        path = sorted(path for path, version in candidates.items() if version == found[0])[0]
        return {"version": found[0], "path": path, "candidates": sorted(candidates)}
    linked = linked_version(root, name, candidates)
    path = sorted(path for path, version in candidates.items() if version == linked)[0] if linked else None
    return {"version": linked, "path": path, "candidates": sorted(candidates)}


def find_libraries(root, library) -> dict[str, str]:
    """Real files by their version: ``{path: version}``."""
    found = {}
    versioned = re.compile(VERSIONED_LIBRARY % re.escape(library))
    for directory in library_dirs(root):
        for name in files.listing(files.under(root, directory)) or []:
            match = versioned.match(name)
            real = files.resolve(root, os.path.join(directory, name)) if match else None
            if real and os.path.isfile(files.under(root, real)):
                found[real] = match.group("version")
    return found


def library_dirs(root) -> list[str]:
    """Directories of the loader's configuration and the usual places that exist."""
    patterns = list(LIBRARY_PLACES)
    conf = files.under(root, "/etc/ld.so.conf.d")
    for name in files.listing(conf) or []:
        for line in (files.read_text(os.path.join(conf, name)) or "").splitlines():
            if line.startswith("/"):
                patterns.append(line.strip())
    found = []
    for pattern in patterns:
        for path in sorted(glob.glob(files.under(root, pattern))):
            directory = "/" + os.path.relpath(path, root)
            if os.path.isdir(path) and directory not in found:
                found.append(directory)
    return found


def linked_version(root, library, candidates) -> str | None:
    """The version that its ``.so.1`` leads to, when every such link leads to the same one."""
    versions = set()
    for directory in library_dirs(root):
        real = files.resolve(root, os.path.join(directory, "%s.so.1" % library))
        if real in candidates:
            versions.add(candidates[real])
    return versions.pop() if len(versions) == 1 else None


PROGRAM_PLACES = ("/usr/bin", "/usr/sbin", "/usr/local/bin")
DAEMON_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


def find_program(root, name) -> str | None:
    """The program's path below the root; None where there is none."""
    for place in PROGRAM_PLACES:
        path = files.resolve(root, "%s/%s" % (place, name))
        if path and os.path.isfile(files.under(root, path)):
            return path
    return None


def read_daemon(root, runner, name) -> dict:
    """``{"present": bool, "version": text|None}``; the version is what the program itself answers, None if it does not
    say.
    """
    path = find_program(root, name)
    if path is None:
        return {"present": False, "version": None}
    rc, out, err = runner([files.under(root, path), "--version"], 10)
    found = DAEMON_VERSION.search(out + "\n" + err) if rc == 0 else None
    return {"present": True, "version": found.group(1) if found else None}


CUDA_VERSION = re.compile(r"(\d+\.\d+(?:\.\d+)?)")
COMPAT = re.compile(r"^libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
# Where distributions and NVIDIA's packages keep a toolkit.
TOOLKITS = re.compile(r"^cuda(-\d+(\.\d+)?)?$")
CUDA_PLACES = ("/usr/local", "/opt", "/usr/lib")


def read_libcuda(root) -> dict:
    """``{"path", "version", "candidates"}`` of the driver's libcuda; path and candidates are empty where there is
    none.
    """
    return read_libraries(root, "libcuda")


def read_toolkits(root) -> list[dict] | None:
    """``[{"path", "version", "compat"}]`` of the installed CUDA toolkits; None when the places cannot be listed.

    ``compat`` is the driver version of the forward compatibility library that lies in the toolkit, if there is one.
    """
    found, seen = [], set()
    for place in CUDA_PLACES:
        base = files.under(root, place)
        names = files.listing(base)
        if names is None:
            if os.path.lexists(base):
                return None
            continue
        for name in names:
            path = files.resolve(root, "%s/%s" % (place, name)) if TOOLKITS.match(name) else None
            if path and path not in seen and os.path.isdir(files.under(root, path)):
                seen.add(path)
                is_one, version = read_toolkit_version(root, path)
                if is_one:
                    found.append({"path": path, "version": version, "compat": read_compat(root, path)})
    return found


def read_toolkit_version(root, path) -> tuple[bool, str | None]:
    """(whether this is a toolkit, its version or None): by version.json, by the older version.txt, else by nvcc and the
    directory's name.
    """
    content = files.read_text(files.under(root, path, "version.json"))
    if content is not None:
        try:
            value = json.loads(content)["cuda"]["version"]
        except (ValueError, KeyError, TypeError):
            return True, None
        return True, value if isinstance(value, str) and CUDA_VERSION.match(value) else None
    content = files.read_text(files.under(root, path, "version.txt"))
    if content is not None:
        found = CUDA_VERSION.search(content)
        return True, found.group(1) if found else None
    named = CUDA_VERSION.search(os.path.basename(path))
    if read_compat(root, path) is not None or os.path.exists(files.under(root, path, "bin/nvcc")):
        return True, named.group(1) if named else None
    return False, None


def read_compat(root, path) -> str | None:
    versions = sorted(
        match.group(1) for match in map(COMPAT.match, files.listing(files.under(root, path, "compat")) or []) if match
    )
    return versions[-1] if versions else None
