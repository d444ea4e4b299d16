# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the driver's packages from rpm, in the shape of ``_node.dpkg``, and whether it was interrupted."""

from __future__ import annotations

import re

from .._node.runner import missing
from . import dnf_output, driver_family, systems
from .driver_tables import REDHAT9_CUDA

NAMES = re.compile(
    r"^(nvidia|libnvidia|kmod-nvidia|cuda-drivers|libnvsdm|nvlsm|xorg-x11-nvidia|datacenter-gpu|dnf-plugin-nvidia)"
)
TABLE = systems.instantiate(REDHAT9_CUDA)


def read(root, runner):
    """As ``dpkg.read``; None when rpm is not on this machine.

    A package of the driver's version says so: ``driver`` is true.
    """
    rc, out, err = runner(
        ["rpm"] + (["--root", root] if root != "/" else []) + ["-qa", "--qf", dnf_output.QUERY_FORMAT], 60
    )
    if missing(rc):
        return None
    answer = {"manager": "rpm", "available": rc == 0, "error": None, "packages": {}, "interrupted": [], "journal": 0}
    if rc:
        answer["error"] = "rpm -qa answered rc %s: %s" % (rc, err.strip())
        return answer
    if not out.strip():
        answer.update(available=False, error="rpm has no package on this machine")
    for name, have in sorted(dnf_output.parse_query(out).items()):
        if not have["ok"]:
            answer["interrupted"].append({"package": name, "state": have["status"]})
        if NAMES.match(name):
            answer["packages"][name] = {
                "version": have["version"],
                "arch": have["architecture"],
                "status": have["status"],
                "source": have["source"],
                "driver": driver_family.member(TABLE, name, have["source"], have["version"]),
            }
    return answer
