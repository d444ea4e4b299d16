# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secure Boot: its state, and the keys a kernel module may be signed with."""

from __future__ import annotations

import os
import re

from .._node import files
from .._node.runner import missing

VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def read(root, runner):
    """``{"state": enabled|disabled|unknown, "keys": [names]|None, "built_in": [names]}``; keys are read only where they
    matter.

    ``keys`` are the machine owner's, ``built_in`` those that the running kernel trusts besides, such as the
    distribution's.
    """
    state = read_state(root, runner)
    found = {"state": state, "keys": None, "built_in": []}
    if state == "enabled":
        found.update(
            keys=read_keys(runner), built_in=parse_kernel_keys(files.read_text(files.under(root, "/proc/keys")) or "")
        )
    return found


def read_state(root, runner):
    if not os.path.isdir(files.under(root, "/sys/firmware/efi")):
        return "disabled" if files.listing(files.under(root, "/sys")) is not None else "unknown"
    try:
        with open(files.under(root, VARIABLE), "rb") as handle:
            value = handle.read(16)
    except OSError:
        value = b""
    if len(value) == 5:  # four bytes of attributes, one of state
        return "enabled" if value[4] == 1 else "disabled"
    rc, out, dummy = runner(["mokutil", "--sb-state"], 30)
    return parse_state(out) if rc == 0 else "unknown"


def parse_state(out):
    found = re.search(r"^SecureBoot\s+(enabled|disabled)", out, re.M)
    return found.group(1) if found else "unknown"


def read_keys(runner):
    """Names (CN) of the enrolled machine owner keys; None when they cannot be listed."""
    rc, out, dummy = runner(["mokutil", "--list-enrolled"], 30)
    if missing(rc) or rc:
        return None
    return parse_keys(out)


def parse_keys(out):
    names = re.findall(r"^\s*Subject:.*?\bCN\s*=\s*([^,/\n]+)", out, re.M)
    return sorted(set(name.strip() for name in names))


def parse_kernel_keys(text):
    """Names of the certificates in the kernel's keyrings, as root sees them in /proc/keys."""
    names = re.findall(r"\sasymmetri\s+(.+?): [0-9a-f]+: X509\.", text)
    return sorted(set(name.strip() for name in names))
