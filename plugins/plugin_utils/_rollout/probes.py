# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the look at the nodes before a rollout says of each, from the results of its tasks. Pure."""

from __future__ import annotations

import collections

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.versions import upstream
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import plan


def judged(result):
    """(verdict, complaint) of a gpu_health result; nothing of one that was not asked for."""
    result = result or {}
    if result.get("skipped") or not result:
        return "", ""
    health = result.get("health") or {}
    verdict = health.get("verdict") or "unknown"
    if verdict == "pass":
        return verdict, ""
    bad = [check.get("message") for status in ("fail", "unknown") for check in health.get("checks") or [] if check.get("status") == status]
    return verdict, " ".join(filter(None, bad[:3])) or str(result.get("msg") or "its health could not be read").split("\n", 1)[0]


def gpus(audits):
    """{node: {PCI device: number of GPUs}} of the nodes that answered, as driver_audit saw them on the bus."""
    found = {}
    for name, audit in audits.items():
        devices = ((audit or {}).get("audit") or {}).get("pci") or []
        found[name] = dict(collections.Counter(str(item.get("device")) for item in devices))
    return found


def probe(name, audit, marker, places, health=None, unproven_in="", lacks=""):
    """What is known of a node from driver_audit, node_claim (or a stat of the quarantine marker) and, where it has the version, gpu_health."""
    audit, marker = audit or {}, marker or {}
    verdict, complaint = judged(health)
    if audit.get("unreachable") or marker.get("unreachable"):
        return plan.Probe(name, reachable=False, error=str(audit.get("msg") or marker.get("msg") or ""), domains=places)
    found = audit.get("audit") or {}
    mark = marker.get("quarantine", marker.get("stat"))
    versions = found.get("versions") or {}
    error = ""
    if audit.get("failed") or "audit" not in audit:
        error = str(audit.get("msg") or "driver_audit gave no answer")
    elif mark is None:
        error = str(marker.get("msg") or "its quarantine marker could not be looked for")
    elif marker.get("problem"):
        error = "%s. Remove the file if no rollout is at work on the node" % marker["problem"]
    elif marker.get("no_room"):
        error = "the node's own notes of the rollout could not be kept: %s. Make room, or set gpu_node_upgrade_state_dir" % marker["no_room"]
    quarantined = "%s lies on the node" % mark.get("path", "a marker") if (mark or {}).get("exists") else ""
    kernel = found.get("kernel") or {}
    devices = sorted({str(item.get("device")) for item in found.get("pci") or []})
    stratum = "%s on %s" % (", ".join(devices) or "no GPU", kernel.get("running") or "unknown kernel")
    version, package = versions.get("loaded") or versions.get("library"), versions.get("package")
    if package and upstream(package) != version:
        package = None  # another driver is on disk than the one that runs
    users = found.get("compute_users")
    return plan.Probe(name, version=version, package=package, quarantined=quarantined, error=error, domains=places, stratum=stratum,
                      at_work=None if users is None else users > 0, kernel=kernel.get("running"), next_kernel=kernel.get("next_boot"),
                      kernels=None if kernel.get("installed") is None else tuple(kernel["installed"]), identity=found.get("identity") or {},
                      verdict=verdict, complaint=complaint, unproven_in=unproven_in, lacks=lacks)
