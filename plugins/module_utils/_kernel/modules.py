# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA kernel modules on disk: which file a kernel would load, and what it says of itself."""

from __future__ import annotations

import os
import re

from .._node import files
from .._node.runner import missing

MAIN = re.compile(
    r"^(?P<name>nvidia(?:[-_](?:current|srv|server|open|tesla|legacy|\d+(?:xx)?))*)\.ko(?:\.(?:xz|zst|gz))?$"
)
# in the order in which depmod looks, so that the first hit is the one that a kernel loads
PLACES = ("updates", "extra", "kernel", "weak-updates")
FIELDS = ("version", "vermagic", "signer", "license", "sig_key", "srcversion")
PARTS = ("modeset", "drm", "uvm", "peermem")
OPEN_LICENSE = "Dual MIT/GPL"


def find(root, kernel) -> list[str]:
    """Paths (below the root) of every main NVIDIA module of a kernel, the one that loads first.

    A link that leads nowhere, such as weak-modules(8) leaves where the module of its kernel has gone, is passed over as
    depmod does.
    """
    base = files.under(root, "/lib/modules", kernel)
    preferred = preferred_name(root)
    found = []
    for order, place in enumerate(PLACES):
        for directory in directories(os.path.join(base, place), place):
            for name in files.listing(directory) or []:
                match, path = MAIN.match(name), "/" + os.path.relpath(os.path.join(directory, name), root)
                if match and files.resolve(root, path):
                    rank = (order, 0 if match.group("name").replace("_", "-") == preferred else 1, name)
                    found.append((rank, path))
    return [path for rank, path in sorted(found)]


def directories(base, place) -> list[str]:
    """Return the directories where NVIDIA's modules can lie in one of depmod's places; the kernel's own tree is only
    searched in nvidia*/.
    """
    if place == "kernel":
        names = [name for name in files.listing(base) or [] if name.startswith("nvidia")]
        names += [
            os.path.join("drivers", "video", name)
            for name in files.listing(os.path.join(base, "drivers/video")) or []
            if name.startswith("nvidia")
        ]
        if os.path.isdir(os.path.join(base, "drivers/video")):
            names.append("drivers/video")
        return [os.path.join(base, name) for name in names]
    return [base] + sorted(os.path.join(top, name) for top, names, dummy in os.walk(base) for name in names)


def preferred_name(root) -> str | None:
    """The module that ``modprobe nvidia`` is sent to by modprobe's configuration, as Debian's packages do it."""
    directory = "/etc/modprobe.d"
    for name in files.listing(files.under(root, directory)) or []:
        where = files.resolve(root, "%s/%s" % (directory, name)) if name.endswith(".conf") else None
        content = (files.read_text(files.under(root, where)) if where else None) or ""
        found = re.search(r"^\s*install\s+nvidia\s.*?\s(nvidia[-_][\w-]+)", content, re.M)
        if found:
            return found.group(1).replace("_", "-")
    return None


def describe(root, path, runner) -> dict:
    """Return the fields of ``modinfo`` about a module file; ``error`` says why a field is not known."""
    answer = dict.fromkeys(FIELDS)
    link = files.resolve(root, path) if "/weak-updates/" in path else None
    answer.update(path=path, link=None if link == path else link, error=None)
    rc, out, err = runner(["modinfo", files.under(root, path)], 30)
    if missing(rc):
        answer["error"] = "modinfo is not installed (package kmod)"
        return answer
    if rc:
        answer["error"] = "modinfo answered rc %s: %s" % (rc, err.strip())
        return answer
    answer.update(parse_modinfo(out))
    return answer


def parse_modinfo(out) -> dict:
    values = {}
    for line in out.splitlines():
        key, colon, value = line.partition(":")
        if colon and key in FIELDS:
            values.setdefault(key, value.strip())
    return dict((key, values.get(key)) for key in FIELDS)


def read(root, kernel, runner) -> dict | None:
    """The module a kernel would load, or None; other candidates are under ``others`` with their versions."""
    paths = find(root, kernel)
    if not paths:
        return None
    answer = describe(root, paths[0], runner)
    answer["listed"] = is_listed(root, kernel, paths[0])
    answer["others"] = [describe(root, path, runner) for path in paths[1:]]
    return answer


def is_listed(root, kernel, path) -> bool | None:
    """Return whether modprobe finds a module file: what depmod(8) did not list does not exist to it.

    None where the list cannot be read. Without a list modprobe finds nothing.
    """
    base = "/lib/modules/%s/" % kernel
    place = files.under(root, base, "modules.dep")
    content = files.read_text(place)
    if content is None and os.path.lexists(place):
        return None
    names = set(line.partition(":")[0] for line in (content or "").splitlines())
    return path in names or path[len(base) :] in names


def sources(root, item, runner) -> dict[str, str]:
    """``{module: srcversion}`` of a driver on disk, by the names that its modules have when they are loaded.

    The parts lie beside the main module: nvidia-current-uvm.ko.xz beside nvidia-current.ko.xz.
    """
    stem, dot, suffix = item["path"].partition(".ko")
    found = {"nvidia": item["srcversion"]}
    for part in PARTS:
        path = "%s-%s.ko%s" % (stem, part, suffix)
        if os.path.exists(files.under(root, path)):
            found["nvidia_%s" % part] = describe(root, path, runner)["srcversion"]
    return dict((name, value) for name, value in found.items() if value)


def made_for(kernel, module) -> bool:
    """Return whether a kernel loads a module: it was made for this kernel, or for one of the same symbols.

    Of a module with modversions the kernel compares the symbols and not the release (kernel/module/version.c,
    same_magic); weak-modules(8) links such a module from the kernel that it was made for.
    """
    magic = (module.get("vermagic") or "").split()
    other = re.match(r"/(?:usr/)?lib/modules/([^/]+)/", module.get("link") or "")
    return magic[:1] == [kernel] or bool(other and "modversions" in magic and magic[0] == other.group(1))


def flavour(license_text) -> str | None:
    """open or proprietary by the module's license; None when there is none."""
    if not license_text:
        return None
    return "open" if license_text == OPEN_LICENSE else "proprietary"
