# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the driver's packages from dpkg, and if dpkg was interrupted."""

from __future__ import annotations

import re
from collections import Counter

from . import files, versions
from .runner import missing

FORMAT = "${Package}\\t${Architecture}\\t${Version}\\t${db:Status-Abbrev}\\t${source:Package}\\n"
DRIVER_SOURCES = re.compile(r"^nvidia-(graphics-drivers|open-gpu-kernel-modules|tesla-)")
NAMES = re.compile(
    r"^(nvidia|libnvidia|libcuda1|libnvcuvid|libgl(x|es)?-nvidia|firmware-nvidia|xserver-xorg-video-nvidia|"
    r"cuda-drivers|datacenter-gpu|linux-(modules|objects)-nvidia-[0-9])"
)
# they carry driver-like versions, but need not be the driver's
OWN_VERSION = re.compile(
    r"^(nvidia-(persistenced|settings|modprobe|xconfig|installer-cleanup|support|cuda-.*|container.*)|"
    r"libnvidia-container.*)$"
)
ANY_ARCHITECTURE = ("all", "noarch", "(none)", "")
# dpkg --audit names these. Where triggers have not run, the initrd or the cache of libraries is the one before.
INTERRUPTED = {
    "H": "half-installed",
    "U": "unpacked",
    "F": "half-configured",
    "W": "waits for triggers",
    "t": "triggers have not run",
}
INSTALLED = "iWt"


def read_packages(root, runner) -> dict:
    """``{"available", "error", "packages": {name: {...}}, "interrupted": [{package, state}], "journal": int}``"""
    argv = ["dpkg-query", "-W", "-f", FORMAT]
    if root != "/":
        argv.insert(1, "--admindir=%s" % files.under(root, "/var/lib/dpkg"))
    rc, out, err = runner(argv, 60)
    journal = [name for name in files.listing(files.under(root, "/var/lib/dpkg/updates")) or [] if name.isdigit()]
    answer = {"available": True, "error": None, "packages": {}, "interrupted": [], "journal": len(journal)}
    if missing(rc) or rc:
        answer.update(
            available=False,
            error="dpkg-query is not on this machine"
            if missing(rc)
            else "dpkg-query answered rc %s: %s" % (rc, err.strip()),
        )
        return answer
    parsed = parse(out)
    if not parsed:  # a dpkg that was never used: the system is another package manager's
        answer.update(available=False, error="dpkg has no package on this machine")
    answer["packages"] = dict(
        (name, item) for name, item in parsed.items() if NAMES.match(name) and item["status"][1:2] in INSTALLED
    )
    answer["interrupted"] = [
        {"package": name, "state": state_of(item["status"])}
        for name, item in sorted(parsed.items())
        if state_of(item["status"])
    ]
    return answer


def native_architecture(architectures) -> str | None:
    """Return the architecture that most packages have; a 32-bit x86 one only where there is no other."""
    counted = Counter(arch for arch in architectures if arch not in ANY_ARCHITECTURE)
    return max(counted, key=lambda arch: (not re.match("i[3-6]86$", arch), counted[arch]), default=None)


def key_of(name, arch, native) -> str:
    """Return what tells an installed package apart: its name, with the architecture where that is a foreign one."""
    return name if arch in ANY_ARCHITECTURE or native in (None, arch) else "%s:%s" % (name, arch)


def parse(out) -> dict[str, dict]:
    packages = {}
    rows = [fields for fields in (line.split("\t") for line in out.splitlines()) if len(fields) == 5]
    native = native_architecture(row[1] for row in rows)
    for name, arch, version, status, source in rows:
        packages[key_of(name, arch, native)] = {"version": version, "arch": arch, "status": status, "source": source}
    return packages


def state_of(status) -> str | None:
    """The name of an interrupted state, or None: the second letter is the state, the third says reinstall."""
    if status[2:3] == "R":
        return "reinstallation required"
    return INTERRUPTED.get(status[1:2])


def is_side_by_side(name, version) -> bool:
    """Return whether a package is made to lie beside those of other versions: its name has the whole version.

    Ubuntu's firmware is; each driver asks for its own, and apt leaves the one before until autoremove.
    """
    return name.split(":", 1)[0].endswith("-%s" % versions.upstream(version))


def is_driver_package(name, item) -> bool:
    """True for packages that must be of the driver's version."""
    if "driver" in item:
        return item["driver"]  # rpm's reader knows
    name, upstream = name.split(":", 1)[0], versions.upstream(item["version"])
    if OWN_VERSION.match(name) or is_side_by_side(name, item["version"]) or not versions.is_driver_version(upstream):
        return False
    if DRIVER_SOURCES.match(item["source"]):
        return True
    return bool(re.match(r"^(nvidia-|libnvidia-|libcuda1$|firmware-nvidia)", name)) and item["source"] != name
