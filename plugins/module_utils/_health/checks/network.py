# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from GPUs to the network: InfiniBand and RoCE ports, and the modules for direct access to GPU memory."""

from __future__ import annotations

import re

from .. import model, nodefacts, policy
from ..nodefacts import Checks

UP = "ACTIVE"
LOOK = "Look at ibstat and at the cable."
# Modules for direct access, and what takes the place of an older one.
DIRECT = {
    "nvidia_peermem": ("nvidia_peermem", "nv_peer_mem"),
    "nv_peer_mem": ("nv_peer_mem", "nvidia_peermem"),
    "gdrdrv": ("gdrdrv",),
    "nvidia_fs": ("nvidia_fs",),
}
RATE = re.compile(r"^(\d+(?:\.\d+)?) Gb/sec")


def check_infiniband(ctx) -> list[dict]:
    """One check for every port that is there now or was in the baseline."""
    ident = "node.infiniband"
    now = nodefacts.of_kind(model.item(ctx.system, "infiniband"), dict)
    old = nodefacts.read_baseline(ctx, "system", "infiniband", kind=dict)
    if now is None:
        return [
            Checks(ident).unknown(
                None, None, "The InfiniBand ports cannot be listed. Look at /sys/class/infiniband on the node."
            )
        ]
    if old.given and not old.known:
        return [
            Checks(ident).unknown(
                None, None, "The baseline does not have the InfiniBand ports. %s" % (nodefacts.AGAIN,), "baseline"
            )
        ]
    result = [
        check_port(ctx, Checks(ident, name), now.get(name), (old.value or {}).get(name), name in (old.value or {}))
        for name in sorted(set(now) | set(old.value or {}), key=str)
    ]
    return result or [Checks(ident).none("There are no InfiniBand ports.")]


def check_port(ctx, checks, now, old, was_there) -> dict:
    name = checks.entity
    state, speed = model.item(now, "state"), parse_rate(now)
    if was_there and not isinstance(model.item(old, "state"), str):
        return checks.unknown(
            format_port(now),
            None,
            "The baseline does not have the state of port %s. %s" % (name, nodefacts.AGAIN),
            "baseline",
        )
    if was_there and name not in ctx.system["infiniband"]:
        return report_missing_port(checks, old)
    if not isinstance(state, str) or (state == UP and speed is None):
        return checks.unknown(
            format_port(now), format_port(old), "The state or the rate of port %s cannot be read. %s" % (name, LOOK)
        )
    if was_there and old["state"] == UP:
        return compare_port(ctx, checks, now, old)
    if was_there or state == UP:
        return checks.good(format_port(now), format_port(old), "baseline" if was_there else None)
    return checks.none("Port %s is %s, and there is no baseline in which it was up." % (name, state), format_port(now))


def report_missing_port(checks, old) -> dict:
    if old["state"] == UP:
        return checks.fail(
            "missing",
            format_port(old),
            "Port %s of the baseline is missing. Look at lspci, and whether its driver is loaded." % (checks.entity,),
            "hold",
            "baseline",
        )
    return checks.notice(
        "missing",
        format_port(old),
        "Port %s of the baseline, which was %s, is missing. %s" % (checks.entity, old["state"], LOOK),
        "baseline",
    )


def compare_port(ctx, checks, now, old) -> dict:
    """A port that was up in the baseline."""
    name = checks.entity
    if now["state"] != UP:
        return checks.fail(
            format_port(now),
            format_port(old),
            "Port %s was up in the baseline and is %s (%s). %s" % (name, now["state"], now.get("phys_state"), LOOK),
            "hold",
            "baseline",
        )
    if parse_rate(old) is None:
        return checks.unknown(
            format_port(now),
            format_port(old),
            "The baseline does not have the rate of port %s. %s" % (name, nodefacts.AGAIN),
            "baseline",
        )
    if parse_rate(now) < parse_rate(old):
        return checks.fail(
            format_port(now),
            format_port(old),
            "Port %s is slower than in the baseline: %s, it was %s. %s"
            % (name, now.get("rate"), old.get("rate"), LOOK),
            "hold",
            "baseline",
        )
    if now.get("link_layer") != old.get("link_layer"):
        return checks.fail(
            now.get("link_layer"),
            old.get("link_layer"),
            "Port %s is %s now and was %s in the baseline. Set the port's link type back."
            % (name, now.get("link_layer"), old.get("link_layer")),
            "hold",
            "baseline",
        )
    downs = [nodefacts.of_kind(one.get("link_downed"), int) for one in (old, now)]
    if nodefacts.same_boot(ctx) and None not in downs and downs[1] > downs[0]:
        return checks.notice(
            format_port(now),
            format_port(old),
            "The link of port %s went down %d times since the baseline. %s" % (name, downs[1] - downs[0], LOOK),
            "baseline",
        )
    return checks.good(format_port(now), format_port(old), "baseline")


def parse_rate(entry) -> float | None:
    """Gigabits per second out of ``400 Gb/sec (4X NDR)``; None if that is not known."""
    found = RATE.match(str(model.item(entry, "rate") or ""))
    return float(found.group(1)) if found else None


def format_port(entry) -> str | None:
    return "%s, %s" % (model.item(entry, "state"), model.item(entry, "rate")) if isinstance(entry, dict) else None


def active_ports(ctx) -> dict:
    """As many ports are up as the policy asks for; it asks for none by itself."""
    checks = Checks("node.infiniband_active")
    wanted = policy.find_limit(ctx, "infiniband_active_ports_min")
    if not wanted:
        return checks.none("The policy does not ask for InfiniBand ports (infiniband_active_ports_min).")
    ports = nodefacts.of_kind(model.item(ctx.system, "infiniband"), dict)
    if ports is None:
        return checks.unknown(
            None, wanted, "The InfiniBand ports cannot be listed. Look at /sys/class/infiniband on the node."
        )
    up = [name for name, entry in ports.items() if model.item(entry, "state") == UP]
    unread = [name for name, entry in ports.items() if not isinstance(model.item(entry, "state"), str)]
    if len(up) >= wanted:
        return checks.good(len(up), wanted)
    if len(up) + len(unread) >= wanted:
        return checks.unknown(
            len(up),
            wanted,
            "The state of these ports cannot be read: %s. Look at ibstat." % (", ".join(sorted(map(str, unread))),),
        )
    return checks.fail(
        len(up),
        wanted,
        "%d InfiniBand ports are up; the policy asks for %s. Look at ibstat and at the cables." % (len(up), wanted),
    )


def direct_modules(ctx) -> dict:
    """Check that the kernel modules for direct access to GPU memory that were loaded at the baseline are loaded."""
    checks = Checks("node.gdr_modules", source="baseline")
    loaded = nodefacts.of_kind(model.item(ctx.system, "modules"), list)
    old = nodefacts.read_baseline(ctx, "system", "modules", kind=list)
    if loaded is None:
        return checks.unknown(None, None, "The loaded kernel modules cannot be listed. Run lsmod on the node.")
    here = sorted(name for name in DIRECT if name in loaded)
    if not old.given:
        return checks.none("There is no baseline to compare the loaded modules with.", here)
    if not old.known:
        return checks.unknown(
            here, None, "The baseline does not have the loaded kernel modules. %s" % (nodefacts.AGAIN,)
        )
    wanted = sorted(name for name in DIRECT if name in old.value)
    lost = [name for name in wanted if not any(other in loaded for other in DIRECT[name])]
    if lost:
        return checks.fail(
            here,
            wanted,
            "Kernel modules for direct access to GPU memory were loaded in the baseline and are not now: %s. Without "
            "them, network traffic of GPUs is copied through the host. Run modprobe %s; if it fails, build the module "
            "for this driver." % (", ".join(lost), lost[0]),
            "restart_service",
        )
    if not wanted:
        return checks.none("No module for direct access to GPU memory was loaded in the baseline.", here)
    return checks.good(here, wanted)


ROWS = (
    model.node_row(
        "node.infiniband",
        check_infiniband,
        "Every InfiniBand port that was up in the baseline is up, at the same rate",
        ("system.infiniband",),
        "Linux, Documentation/ABI/stable/sysfs-class-infiniband",
    ),
    model.node_row(
        "node.infiniband_active",
        active_ports,
        "As many InfiniBand ports are up as the policy asks for",
        ("system.infiniband",),
        "Linux, Documentation/ABI/stable/sysfs-class-infiniband",
    ),
    model.node_row(
        "node.gdr_modules",
        direct_modules,
        "The modules for direct access to GPU memory are loaded as in the baseline",
        ("system.modules",),
        "NVIDIA GPUDirect RDMA documentation",
    ),
)
