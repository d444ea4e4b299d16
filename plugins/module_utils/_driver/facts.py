# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything outside NVML that a verdict on the driver needs, read once."""

from __future__ import annotations

import os
import re

from .._dkms import dkms
from .._kernel import kernels, loaded, modules, secureboot
from .._node import dpkg, files, gpu_operator, identity, pci
from .._node.runner import Runner, missing
from .._packages import dnf_output, systems
from .._packages.driver_tables import REDHAT9_CUDA
from .._packages.manager import parse_os_release
from . import driver_files

RUNFILE = ("/usr/bin/nvidia-uninstall", "/var/log/nvidia-installer.log", "/usr/bin/nvidia-installer")

RPM_NAMES = re.compile(
    r"^(nvidia|libnvidia|kmod-nvidia|cuda-drivers|libnvsdm|nvlsm|xorg-x11-nvidia|datacenter-gpu|dnf-plugin-nvidia)"
)
RPM_TABLE = systems.instantiate_table(REDHAT9_CUDA)


def read(root="/", runner=None, uname=os.uname) -> dict:
    runner = runner or Runner()
    kernel = kernels.read(root, runner, uname)
    names = list(kernel["installed"])
    names += [name for name in (kernel["running"], kernel["next_boot"]) if name and name not in names]
    found = dict((name, modules.read(root, name, runner)) for name in names)
    if found.get(kernel["running"]):
        found[kernel["running"]]["sources"] = modules.sources(root, found[kernel["running"]], runner)
    return {
        "kernel": kernel,
        "modules": found,
        "headers": dict((name, kernels.headers_present(root, name)) for name in names),
        "loaded": loaded.read_driver(root),
        "library": driver_files.read_libraries(root),
        "gsp_firmware": driver_files.read_firmware(root),
        "gsp_disabled": driver_files.is_firmware_disabled(root),
        "secure_boot": secureboot.read(root, runner),
        "pci": pci.read_devices(root),
        "identity": identity.read_identity(root),
        "dpkg": read_packages(root, runner),
        "dkms": dkms.read(root, runner),
        "operator": gpu_operator.read_operator(root),
        "runfile": [path for path in RUNFILE if os.path.lexists(files.under(root, path))],
    }


def read_packages(root, runner) -> dict:
    """Return the driver packages that the system's package manager has.

    A node of one family may have the other's tools: the system decides, and one that has no package is not its own.
    """
    family = systems.family_of(parse_os_release(files.read_text(files.under(root, "/etc/os-release")) or ""))
    found = read_rpm(root, runner) if family == "dnf" else None
    if found is None:
        found = dpkg.read_packages(root, runner)
        if not found["available"] and family is None:
            found = read_rpm(root, runner) or found
    return found


def read_rpm(root, runner) -> dict | None:
    """As ``dpkg.read_packages``; None when rpm is not on this machine.

    A package of the driver's version says so: ``driver`` is true.
    """
    rc, out, err = runner(
        ["rpm"] + (["--root", root] if root != "/" else []) + ["-qa", "--qf", dnf_output.QUERY_FORMAT], 60
    )
    if missing(rc):
        return None
    answer = {"manager": "rpm", "available": rc == 0, "error": None, "packages": {}, "interrupted": [], "journal": 0}
    skipped = dnf_output.find_rpm_errors(err)
    if rc or skipped:
        answer.update(available=False, error="rpm -qa answered rc %s: %s" % (rc, "; ".join(skipped) or err.strip()))
        return answer
    if not out.strip():
        answer.update(available=False, error="rpm has no package on this machine")
    for name, have in sorted(dnf_output.parse_query(out).items()):
        if not have["ok"]:
            answer["interrupted"].append({"package": name, "state": have["status"]})
        if RPM_NAMES.match(name):
            answer["packages"][name] = {
                "version": have["version"],
                "arch": have["architecture"],
                "status": have["status"],
                "source": have["source"],
                "driver": systems.is_member(RPM_TABLE, name, have["source"], have["version"]),
            }
    return answer
