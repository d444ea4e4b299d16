# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the driver's packages from dpkg, and if dpkg was interrupted."""

from __future__ import annotations

import re

from . import files, versions
from .runner import missing

FORMAT = "${Package}\\t${Architecture}\\t${Version}\\t${db:Status-Abbrev}\\t${source:Package}\\n"
DRIVER_SOURCES = re.compile(r"^nvidia-(graphics-drivers|open-gpu-kernel-modules|tesla-)")
NAMES = re.compile(
    r"^(nvidia|libnvidia|libcuda1|libnvcuvid|libgl(x|es)?-nvidia|firmware-nvidia|xserver-xorg-video-nvidia|"
    r"cuda-drivers|datacenter-gpu)"
)
# they carry driver-like versions, but need not be the driver's
OWN_VERSION = re.compile(
    r"^(nvidia-(persistenced|settings|modprobe|xconfig|installer-cleanup|support|cuda-.*|container.*)|"
    r"libnvidia-container.*)$"
)
INTERRUPTED = {"H": "half-installed", "U": "unpacked", "F": "half-configured"}


def read(root, runner):
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
    answer["packages"] = dict(
        (name, item) for name, item in parsed.items() if NAMES.match(name) and item["status"][1:2] == "i"
    )
    answer["interrupted"] = [
        {"package": name, "state": state_of(item["status"])}
        for name, item in sorted(parsed.items())
        if state_of(item["status"])
    ]
    return answer


def parse(out):
    packages = {}
    for line in out.splitlines():
        fields = line.split("\t")
        if len(fields) != 5:
            continue
        name, arch, version, status, source = fields
        previous = packages.get(name)
        if previous and previous["status"][1:2] == "i" and status[1:2] != "i" and not state_of(status):
            continue  # another architecture of an installed package, known but not installed
        packages[name] = {"version": version, "arch": arch, "status": status, "source": source}
    return packages


def state_of(status):
    """The name of an interrupted state, or None: the second letter is the state, the third says reinstall."""
    if status[2:3] == "R":
        return "reinstallation required"
    return INTERRUPTED.get(status[1:2])


def is_driver_package(name, item):
    """True for packages that must be of the driver's version."""
    if "driver" in item:
        return item["driver"]  # rpm's reader knows
    upstream = versions.upstream(item["version"])
    if OWN_VERSION.match(name) or not versions.is_driver_version(upstream):
        return False
    if DRIVER_SOURCES.match(item["source"]):
        return True
    return bool(re.match(r"^(nvidia-|libnvidia-|libcuda1$|firmware-nvidia)", name)) and item["source"] != name
