# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that are files: what an interrupted or a wrong installation leaves behind.

What was there is kept, and put back at the end.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import os
import re
import shutil

from . import library, modules, state

ASIDE = "/var/lib/gpusim/aside"
DPKG_STATUS = "/var/lib/dpkg/status"
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")


def _notes() -> list[dict]:
    return json.loads(state.read_text(ASIDE + "/list.json") or "[]")


def _note(fault: str, path: str, kept: str | None) -> None:
    notes = _notes() + [{"fault": fault, "path": path, "kept": kept}]
    state.write_text(ASIDE + "/list.json", json.dumps(notes, indent=1) + "\n")


def keep(fault: str, path: str) -> None:
    """Remembers a file, or that there is none, before it changes."""
    target, kept = state.path(path), None
    os.makedirs(state.path(ASIDE), exist_ok=True)
    if os.path.lexists(target):
        kept = "%s/%d" % (ASIDE, len(_notes()))
        if os.path.islink(target):
            os.symlink(os.readlink(target), state.path(kept))
        else:
            shutil.copy2(target, state.path(kept))
    _note(fault, path, kept)


def restore(fault: str | None) -> list[str]:
    """Puts back what the fault (or all faults) changed, last change first; answers which faults there were."""
    notes = _notes()
    mine = [note for note in notes if fault is None or note["fault"] == fault]
    for note in reversed(mine):
        target = state.path(note["path"])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        if note["kept"] is not None:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.move(state.path(note["kept"]), target)
    left = [note for note in notes if note not in mine]
    if left:
        state.write_text(ASIDE + "/list.json", json.dumps(left, indent=1) + "\n")
    elif notes:
        shutil.rmtree(state.path(ASIDE))
    return sorted({note["fault"] for note in mine})


def active() -> list[str]:
    return sorted({note["fault"] for note in _notes()})


# ---- the libraries of the driver package ----


def _libraries() -> list[str]:
    """Files and links of the driver's libraries, by their paths on the node."""
    found = []
    for base in LIBRARY_FOLDERS:
        folders = [base]
        with contextlib.suppress(OSError):
            folders += ["%s/nvidia/%s" % (base, name) for name in sorted(os.listdir(state.path(base + "/nvidia")))]
        for folder in folders:
            with contextlib.suppress(OSError):
                found += [
                    "%s/%s" % (folder, name)
                    for name in sorted(os.listdir(state.path(folder)))
                    if re.match(r"lib(nvidia|cuda)[a-z-]*\.so\.", name)
                ]
    return found


def library_missing(_options) -> str:
    version = library.library_version()
    if not version:
        raise state.SimError("no driver library is installed: there is none to take away")
    for path in _libraries():
        if os.path.basename(path).startswith("libnvidia-ml.so."):
            keep("library-missing", path)
            os.unlink(state.path(path))
    return "libnvidia-ml of %s is gone" % version


def library_version(options) -> str:
    """The libraries are those of another version: the userland was upgraded, and the module was not loaded again."""
    old, new = library.library_version(), options.words[0]
    if not old:
        raise state.SimError("no driver library is installed: there is none to upgrade")
    if not re.fullmatch(r"\d{3}\.\d+(\.\d+)?", new):
        raise state.SimError("'%s' is no driver version" % new)
    for path in _libraries():
        target = state.path(path)
        if os.path.islink(target) and old in os.readlink(target):
            keep("library-version", path)
            other = os.readlink(target).replace(old, new)
            os.unlink(target)
            os.symlink(other, target)
        elif path.endswith("." + old):
            other = path[: -len(old)] + new
            keep("library-version", path)
            keep("library-version", other)
            # As a package manager does it: the new file is another one, and whoever has the old one open keeps it.
            shutil.copy2(target, state.path(other))
            os.unlink(target)
    return "the driver's libraries are those of %s, after %s" % (new, old)


# ---- packages ----


def packages_half_installed(options) -> str:
    """dpkg was interrupted in the middle of the driver's packages."""
    pattern = options.words[0] if options.words else r"(lib)?nvidia-.*"
    text = state.read_text(DPKG_STATUS)
    changed = 0
    paragraphs = []
    for paragraph in text.split("\n\n"):
        name = re.search(r"^Package: (\S+)$", paragraph, re.MULTILINE)
        if name and re.fullmatch(pattern, name.group(1)) and "Status: install ok installed" in paragraph:
            paragraph = paragraph.replace("Status: install ok installed", "Status: install reinstreq half-installed")
            changed += 1
        paragraphs.append(paragraph)
    if not changed:
        raise state.SimError("%s has no installed package that is called like '%s'" % (DPKG_STATUS, pattern))
    keep("packages-half-installed", DPKG_STATUS)
    state.write_text(DPKG_STATUS, "\n\n".join(paragraphs))
    return "%d packages are half-installed" % changed


# ---- module files ----

OPENERS = {
    ".xz": (lzma.decompress, lambda data: lzma.compress(data, check=lzma.CHECK_CRC32)),
    ".gz": (gzip.decompress, gzip.compress),
}


def _module_files() -> list[str]:
    found = [modules.module_file(name, state.release()) for name in modules.NEEDS]
    if found[0] is None:
        raise state.SimError("this kernel (%s) has no nvidia module" % state.release())
    return [path for path in found if path]


def module_not_built(_options) -> str:
    for path in _module_files():
        keep("module-not-built", path)
        os.unlink(state.path(path))
    return "kernel %s has no nvidia modules" % state.release()


def module_wrong_kernel(_options) -> str:
    """The files are there, and say that they are for another kernel."""
    release = state.release()
    other = re.sub(r"\d", lambda digit: str((int(digit.group()) + 1) % 10), release).encode()
    for path in _module_files():
        keep("module-wrong-kernel", path)
        unpack, pack = OPENERS.get(os.path.splitext(path)[1], (bytes, bytes))
        with open(state.path(path), "rb") as stream:
            data = unpack(stream.read())
        if b"vermagic=" + release.encode() not in data:
            raise state.SimError(
                "%s is not for kernel %s already, or compressed in a way the simulator does not read" % (path, release)
            )
        with open(state.path(path), "wb") as stream:
            stream.write(pack(data.replace(b"vermagic=" + release.encode(), b"vermagic=" + other)))
    return "the modules of kernel %s are built for %s" % (release, other.decode())


# name -> (words it takes, what it does, function)
CATALOGUE = {
    "library-missing": ((), "the driver's libnvidia-ml is gone from the disk: rc 12", library_missing),
    "library-version": (
        ("VERSION",),
        "the driver's libraries are those of another version, and the loaded module is not: rc 18",
        library_version,
    ),
    "packages-half-installed": (
        ("[REGEX]",),
        "dpkg was interrupted: the driver's packages are half-installed",
        packages_half_installed,
    ),
    "module-not-built": ((), "the running kernel has no nvidia modules on disk", module_not_built),
    "module-wrong-kernel": (
        (),
        "the running kernel's nvidia modules say that they are for another kernel",
        module_wrong_kernel,
    ),
}
