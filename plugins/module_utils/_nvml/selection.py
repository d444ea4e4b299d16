# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of a snapshot by the names that people give them: UUID, PCI address or NVML index."""

from __future__ import annotations

from . import codes


class Choice(Exception):
    """A GPU was asked for that is not there; the text says which."""


def choose_gpus(gpus, wanted) -> list[dict]:
    """The GPUs that were asked for, each known by UUID, PCI address or NVML index; all if nothing was."""
    if not wanted:
        return gpus
    found = []
    for name in wanted:
        fitting = [gpu for gpu in gpus if str(name).strip().lower() in names(gpu)]
        if len(fitting) != 1:
            raise Choice(
                "gpus has %r, and that is %s; NVML shows %s"
                % (
                    name,
                    "more than one GPU" if fitting else "no GPU of this node",
                    ", ".join(sorted(names(gpu)[-1] for gpu in gpus)) or "none",
                )
            )
        if fitting[0] not in found:
            found.append(fitting[0])
    return found


def names(gpu) -> list[str]:
    known = [str(gpu["index"])]
    address = value(gpu, "pci_bus_id")
    if address:
        # As NVML writes it, and as the kernel does.
        known += [address.lower(), address.lower()[-12:]]
    uuid = value(gpu, "uuid")
    return known + ([uuid.lower()] if uuid else [])


def value(gpu, key):
    """Return the value KEY of GPU, None if it was not read."""
    entry = gpu.get(key)
    return entry.get("value") if isinstance(entry, dict) and entry.get("rc") == codes.SUCCESS else None
