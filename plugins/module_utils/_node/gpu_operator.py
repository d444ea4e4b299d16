# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detect a GPU Operator that brings this node's driver in a container, or one that brings none, by its files below
/run.

The operator's validator writes ``driver-ready`` for a driver of the host as well, and says in it whose driver it is.
"""

from __future__ import annotations

import os
import re

from . import files

VALIDATIONS = "/run/nvidia/validations"
READY = VALIDATIONS + "/driver-ready"
CONTAINER = VALIDATIONS + "/.driver-ctr-ready"
DRIVER_ROOT = "/run/nvidia/driver"
PROGRAM = DRIVER_ROOT + "/usr/bin/nvidia-smi"
NEXT_STEP = (
    "Let the operator change its driver (spec.driver.version of its ClusterPolicy or NVIDIADriver), or take "
    "the driver from it (spec.driver.enabled: false, or the label nvidia.com/gpu.deploy.driver=false on the "
    "node) and reboot, then run again."
)


def read_operator(root) -> dict:
    """``{"owner": bool|None, "signs": [...]}``; None when what is there cannot be read."""
    try:
        return judge(text_of(root, READY), exists(root, CONTAINER), exists(root, PROGRAM))
    except OSError as exc:
        return {"owner": None, "signs": ["%s: %s" % (exc.filename, exc.strerror)]}


def text_of(root, path) -> str | None:
    try:
        with open(files.under(root, path), encoding="utf-8", errors="replace") as handle:
            return handle.read(4096)
    except (FileNotFoundError, NotADirectoryError):
        return None


def exists(root, path) -> bool:
    try:
        os.lstat(files.under(root, path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def judge(ready, container, program) -> dict:
    """The answer for the text of driver-ready (None: it is not there), and whether the container's mark and its driver
    are there.
    """
    said = re.search(r"^IS_HOST_DRIVER=(true|false)\s*$", ready or "", re.M)
    if said and said.group(1) == "true":
        return {"owner": False, "signs": ["%s says that the driver is the host's" % READY]}
    signs = ["%s says that the driver is not the host's" % READY] if said else []
    signs += ["%s is there" % CONTAINER] if container else []
    signs += ["a driver is mounted at %s" % DRIVER_ROOT] if program else []
    return {"owner": bool(signs), "signs": signs}
