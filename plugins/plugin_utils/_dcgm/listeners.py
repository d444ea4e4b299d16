# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the process that listens on a port of a node in the output of ss, and decide if the exporter may use the port.
Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import catalog

USER = re.compile(r'\("([^"]*)",pid=(\d+)')
# What ss -e says of a socket of another user than root, and where the socket was made.
OWNER = re.compile(r" uid:(\d+)\b")
CGROUP = re.compile(r" cgroup:(/\S*)")
OURS = ("dcgm-exporter",)


def find_listeners(text: str, port: int) -> t.List[t.Dict[str, t.Any]]:
    """Return who listens on a TCP port, of the output of ss -Hltnpe."""
    found = []
    for line in text.splitlines():
        cells = line.split()
        if len(cells) >= 4 and cells[0] == "LISTEN" and cells[3].rpartition(":")[2] == str(port):
            users = [{"program": program, "pid": int(pid)} for program, pid in USER.findall(line)]
            owner, cgroup = OWNER.search(line), CGROUP.search(line)
            found.append(
                {
                    "address": cells[3],
                    "users": users,
                    "uid": int(owner.group(1)) if owner else 0,
                    "cgroup": cgroup.group(1) if cgroup else None,
                }
            )
    return found


def is_exporter(listener: t.Dict[str, t.Any], unit: str) -> bool:
    """Whether a listener is the exporter that root started.

    Any user can give a process its name: the socket is root's, or was made in the control group of the UNIT.
    """
    named = listener["users"] and all(user["program"].startswith(OURS) for user in listener["users"])
    in_unit = "%s/" % listener["cgroup"] if listener["cgroup"] else ""
    return bool(named and (listener["uid"] == 0 or in_unit.startswith("/system.slice/%s/" % unit)))


def is_served(text: str, port: int, unit: str) -> bool:
    """Whether the exporter listens on this port, and nothing else does."""
    found = find_listeners(text, port)
    return bool(found) and all(is_exporter(one, unit) for one in found)


def decide(text: str, port: int, active: bool, unit: str) -> t.List[t.Dict[str, t.Any]]:
    """Return what stands against the exporter on this port.

    ACTIVE says whether its own unit runs, which then may be the listener.
    """
    for one in find_listeners(text, port):
        if active and is_exporter(one, unit):
            continue
        who = (
            ", ".join("%s (pid %d)" % (user["program"], user["pid"]) for user in one["users"])
            or "a process that ss does not name"
        )
        return [
            catalog.make_refusal(
                "port_taken",
                "Something else listens on the port of the exporter.",
                "%s on %s" % (who, one["address"]),
                "port %d free" % port,
                "stop it, or choose another port in nvidia_dcgm_exporter_port and gpu_monitoring_ports",
            )
        ]
    return []
