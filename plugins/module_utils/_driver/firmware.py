# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GSP firmware on disk, by driver version, and whether the driver is told not to use it."""

from __future__ import annotations

import fnmatch
import re

from .._node import files


def read(root):
    """Driver versions that have GSP firmware under /lib/firmware."""
    base = files.under(root, "/lib/firmware/nvidia")
    found = []
    for name in files.listing(base) or []:
        if re.match(r"^\d{3}\.\d+", name) and fnmatch.filter(files.listing("%s/%s" % (base, name)) or [], "gsp*.bin"):
            found.append(name)
    return found


def disabled(root):
    """True when modprobe's configuration switches GSP firmware off (proprietary modules only)."""
    directory = files.under(root, "/etc/modprobe.d")
    for name in files.listing(directory) or []:
        content = files.read_text("%s/%s" % (directory, name)) or ""
        if name.endswith(".conf") and re.search(
            r"^\s*options\s+nvidia\S*\s.*NVreg_EnableGpuFirmware=0\b", content, re.M
        ):
            return True
    return False
