# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of Alertmanager: who is told what, in which groups, and what holds what back. Pure.

A group is what one notification tells: a node, a rack, or an alert of the whole fleet. An alert that comes and goes
notifies once an hour at most: it stays for an hour after its end. An alert that holds others back, is held back, or
ends with a drain, must not stay: it would hold back what is new, be told when the other one ends, or stay beside a
repair. Such alerts have a group for each node, which notifies again after an hour at the earliest.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring.catalog import MonitoringError

NONE = "gpufleet-none"
HOT = ("GpuHot", "GpuThermalMarginLow", "GpuMemoryHot", "GpuThrottledThermal")
GROUPS = {
    "gpu|node|service": ["environment", "rack", "node"],
    "rack": ["environment", "rack"],
    "fleet": ["environment", "alertname"],
}
# Source, targets, and the labels in which they agree. A label that both lack would agree as well: each source has its
# own.
HELD_BACK = (
    (['alertname="RackLost"'], ['source="gpufleet"', 'scope=~"gpu|node|service"'], ["environment", "rack"]),
    (
        ['alertname="NodeUnreachable"'],
        ['source="gpufleet"', 'scope=~"gpu|node|service"', 'alertname!="NodeUnreachable"'],
        ["environment", "node"],
    ),
    (['alertname="RackHot"'], ['alertname=~"NodeGpusHot|NodeInletHot|%s"' % "|".join(HOT)], ["environment", "rack"]),
    (['alertname="NodeGpusHot"'], ['alertname=~"%s"' % "|".join(HOT)], ["environment", "node"]),
    (
        ['alertname="GpuFallenOffBus"'],
        ['alertname=~"GpuMissing|DcgmSeesFewerGpus|GpuHealthFailed"'],
        ["environment", "node"],
    ),
    (['alertname="GpuFallenOffBus"'], ['alertname="GpuRecoveryAction"'], ["environment", "node", "gpu"]),
    (['alertname="GpuNvmlSilent"'], ['alertname=~"DcgmEngineDown|DcgmStale|NodeSeriesStale"'], ["environment", "node"]),
)


def names(receivers: t.List[t.Dict[str, t.Any]]) -> t.List[str]:
    """Return the names of RECEIVERS, which are given as Alertmanager wants them."""
    found = []
    for number, receiver in enumerate(receivers, 1):
        name = receiver.get("name") if isinstance(receiver, dict) else None
        if not isinstance(name, str) or not name or name == NONE or name in found:
            raise MonitoringError(
                "Receiver %d of gpu_monitoring_receivers has the name %r; expected one of its own, and not %s."
                % (number, name, NONE)
            )
        found.append(name)
    return found


def by_severity(page: str, ticket: str, info: str) -> t.List[t.Dict[str, t.Any]]:
    """Return the routes by severity, within a group."""
    return [
        {"matchers": ['severity="page"'], "receiver": page, "repeat_interval": "4h"},
        {"matchers": ['severity="info"'], "receiver": info or NONE, "repeat_interval": "24h"},
        {"receiver": ticket, "repeat_interval": "24h"},
    ]


def config(
    receivers: t.List[t.Dict[str, t.Any]], page: str, ticket: str, info: str = "", other: str = ""
) -> t.Dict[str, t.Any]:
    """Return the configuration. PAGE, TICKET, INFO and OTHER name receivers; no INFO is told to no one."""
    known = names(receivers)
    for option, name in (("page", page), ("ticket", ticket), ("info", info), ("other", other)):
        if name not in known and (name or option in ("page", "ticket")):
            raise MonitoringError(
                "gpu_monitoring_receiver_%s is %r; expected one of gpu_monitoring_receivers: %s."
                % (option, name, ", ".join(known) or "none is given")
            )
    hourly = {
        "matchers": [
            'alertname=~"%s"' % "|".join(alert["id"] for alert in catalog.alerts() if not alert.get("keep", True))
        ],
        "group_by": ["environment", "rack", "node", "alertname"],
        "group_interval": "1h",
        "receiver": ticket,
        "routes": by_severity(page, ticket, info),
    }
    scopes = [
        {
            "matchers": ['scope=~"%s"' % scope],
            "group_by": labels,
            "receiver": ticket,
            "routes": by_severity(page, ticket, info),
        }
        for scope, labels in GROUPS.items()
    ]
    return {
        "route": {
            "receiver": other or ticket,
            "group_by": ["alertname", "environment"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "24h",
            "routes": [{"matchers": ['source="gpufleet"'], "receiver": ticket, "routes": [hourly, *scopes]}],
        },
        "inhibit_rules": [
            {"source_matchers": list(source), "target_matchers": list(target), "equal": list(equal)}
            for source, target, equal in HELD_BACK
        ],
        "receivers": [*receivers, {"name": NONE}],
    }
