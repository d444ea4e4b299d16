# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the state of the running kernel: boot, uptime, taint, and the modules it has loaded."""

from __future__ import annotations

import os
import re

from .._node import files


def uptime(root):
    """Seconds since the boot, or None."""
    value = (files.read_line(files.under(root, "/proc/uptime")) or "").partition(" ")[0]
    return float(value) if re.match(r"^\d+(\.\d+)?$", value) else None


def taint(root):
    """The bits of /proc/sys/kernel/tainted as a number, or None."""
    value = files.read_line(files.under(root, "/proc/sys/kernel/tainted"))
    return int(value) if value and value.isdigit() else None


def modules(root):
    """Names of the loaded modules; None when neither /sys/module nor /proc/modules can be read.

    Below /sys/module a module that was loaded has a file ``initstate``; what is built into the kernel has none.
    """
    base = files.under(root, "/sys/module")
    names = files.listing(base)
    if names is not None:
        return [name for name in names if os.path.exists(os.path.join(base, name, "initstate"))]
    content = files.read_text(files.under(root, "/proc/modules"))
    if content is None:
        return None
    return sorted(line.split(" ", 1)[0] for line in content.splitlines() if line.strip())
