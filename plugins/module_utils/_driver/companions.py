# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Daemons that come with the driver: fabric manager, IMEX, persistenced. Is the program there, and of which version."""

from __future__ import annotations

import os
import re

from .._node import files

PLACES = ("/usr/bin", "/usr/sbin", "/usr/local/bin")
VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


def program(root, name):
    """The program's path below the root; None where there is none."""
    for place in PLACES:
        path = files.resolve(root, "%s/%s" % (place, name))
        if path and os.path.isfile(files.under(root, path)):
            return path
    return None


def read(root, runner, name):
    """``{"present": bool, "version": text|None}``; the version is what the program itself answers, None if it does not
    say.
    """
    path = program(root, name)
    if path is None:
        return {"present": False, "version": None}
    rc, out, err = runner([files.under(root, path), "--version"], 10)
    found = VERSION.search(out + "\n" + err) if rc == 0 else None
    return {"present": True, "version": found.group(1) if found else None}
