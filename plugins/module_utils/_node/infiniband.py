# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""InfiniBand and RoCE ports, as the kernel shows them."""

from __future__ import annotations

import os

from . import files

ATTRIBUTES = ("state", "phys_state", "rate", "link_layer")


def read_ports(root) -> dict | None:
    """``{"mlx5_0/1": {"state", "phys_state", "rate", "link_layer", "link_downed"}}``; None when it cannot be listed.

    Without an RDMA driver there is no such class of devices, which is {} as long as the other classes are there.
    """
    base = files.under(root, "/sys/class/infiniband")
    names = files.listing(base)
    if names is None:
        return {} if not os.path.lexists(base) and files.listing(os.path.dirname(base)) is not None else None
    found = {}
    for name in names:
        ports = os.path.join(base, name, "ports")
        for port in files.listing(ports) or [None]:
            found["%s/%s" % (name, port or "?")] = describe(os.path.join(ports, port)) if port else None
    return found


def describe(path) -> dict:
    """One port: the words without their numbers, ``4: ACTIVE`` is ACTIVE; None for what cannot be read."""
    answer = {}
    for name in ATTRIBUTES:
        value = files.read_line(os.path.join(path, name))
        head, colon, rest = (value or "").partition(":")
        answer[name] = (rest.strip() if colon and head.strip().isdigit() else value) or None
    count = files.read_line(os.path.join(path, "counters", "link_downed"))
    answer["link_downed"] = int(count) if count and count.isdigit() else None
    return answer
