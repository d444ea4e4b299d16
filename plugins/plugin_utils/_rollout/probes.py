# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of each node before a rollout, from the results of the tasks that read it. Pure."""

from __future__ import annotations

import collections
import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.versions import upstream
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _peers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction

# A driver version such as 535.261.03, or the version of its packages such as 535.261.03-1~bpo12+1.
VERSION = re.compile(r"([0-9]+:)?[0-9]+(\.[0-9]+){1,3}(-[A-Za-z0-9.+~]+)?")


@dataclasses.dataclass(frozen=True)
class Probe:
    """The state of a node before the rollout."""

    name: str
    reachable: bool = True
    version: t.Optional[str] = None
    package: t.Optional[str] = None  # the version of the packages it comes from
    quarantined: str = ""  # the reason in its quarantine marker
    error: str = ""
    domains: t.Dict[str, str] = dataclasses.field(default_factory=dict)
    stratum: str = ""  # GPU model and kernel: nodes for which one canary is representative
    at_work: t.Optional[bool] = None  # True if processes compute on its GPUs now
    kernel: t.Optional[str] = None  # the running kernel
    next_kernel: t.Optional[str] = None  # the kernel of the next boot
    kernels: t.Optional[t.Tuple[str, ...]] = None  # kernels that can boot; None if unknown
    verdict: str = ""  # of gpu_health, if it has the wanted version already
    complaint: str = ""  # why the verdict is not pass
    unproven_in: str = ""  # another rollout that changed it last and has not proven it
    identity: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)  # of the machine, from driver_audit
    lacks: str = ""  # missing GPUs, compared with other nodes of its model
    layout: t.Optional[bool] = None  # True if it has the wanted MIG layout; None if not read, or unknown


def judge_with_peers(
    result: t.Optional[t.Mapping[str, t.Any]], peers: t.Mapping[str, t.Any]
) -> t.Optional[t.Mapping[str, t.Any]]:
    """Return a gpu_health RESULT with its verdict as it is once it is known what the node's PEERS have
    (expect.peers).
    """
    health = _peers.health_of(result, peers) if isinstance(result, dict) else None
    return dict(result, health=health) if health else result


def read_verdict(result: t.Optional[t.Mapping[str, t.Any]]) -> t.Tuple[str, str]:
    """Return (verdict, complaint) of a gpu_health result; empty for a node that was not checked."""
    result = result or {}
    if result.get("skipped") or not result:
        return "", ""
    health = result.get("health") or {}
    verdict = health.get("verdict") or "unknown"
    if verdict == "pass":
        return verdict, ""
    bad = [
        check.get("message")
        for status in ("fail", "unknown")
        for check in health.get("checks") or []
        if check.get("status") == status
    ]
    said = " ".join(filter(None, bad[:3])) or str(result.get("msg") or "its health could not be read").split("\n", 1)[0]
    return verdict, redaction.reason(said)


# What Ansible says where it reaches a node and may not become root: of sudo, su or doas, or their password.
NO_ROOT = re.compile(
    r"(Missing|Incorrect) \w+ password|privilege (escalation|output)|\b(sudo|su|doas): |not in the sudoers", re.I
)
# The status in gpu_mig's result, in check mode, of a GPU that has the wanted layout.
THERE = "same"
# Failure codes of gpu_mig for a layout that the GPUs can never have; other failures may be gone after the drain. The
# last one is of the playbooks: Slurm cannot be given the layout, so the node could not be resumed, or another unit
# makes a layout of its own at each boot.
UNFIT = ("uncovered", "not_supported", "unknown_profile", "does_not_fit", "refused_by_playbook")
# Failure codes that a drain, or the reset for a layout, ends.
PASSING = ("in_use",)


def layout_looked_at(result: t.Optional[t.Mapping[str, t.Any]]) -> t.Tuple[t.Optional[bool], str, str]:
    """Return (layout present, why the node cannot be read, why the layout is impossible) of gpu_mig in check mode.

    An empty result is that of a node that was not read, so everything is unknown.
    """
    result = result or {}
    if not result or result.get("skipped") or result.get("unreachable"):
        return None, "", ""
    rows, failures = result.get("gpus") or [], result.get("failures") or []
    said = redaction.reason(result.get("msg") or "gpu_mig gave no answer")
    if any(failure.get("code") in UNFIT for failure in failures):
        return None, "", said
    if not rows or any(failure.get("code") not in PASSING for failure in failures):
        return None, "its MIG layout could not be read: %s" % said, ""
    return all(row.get("status") == THERE for row in rows), "", ""


def count_gpus(audits: t.Mapping[str, t.Any]) -> t.Dict[str, t.Dict[str, int]]:
    """Return {node: {PCI device: number of GPUs}} of the nodes that answered, as driver_audit found them on the bus."""
    found = {}
    for name, audit in audits.items():
        devices = ((audit or {}).get("audit") or {}).get("pci") or []
        found[name] = dict(collections.Counter(str(item.get("device")) for item in devices))
    return found


def make_probe(
    name: str,
    audit: t.Any,
    marker: t.Any,
    places: t.Dict[str, str],
    health: t.Any = None,
    unproven_in: str = "",
    lacks: str = "",
    look: t.Any = None,
) -> Probe:
    """Return the state of a node from driver_audit, node_state and, if it has the wanted version, gpu_health.

    MARKER may be a stat of the quarantine marker instead. LOOK: gpu_mig in check mode, if a layout is wanted.
    """
    audit, marker = audit or {}, marker or {}
    verdict, complaint = read_verdict(health)
    if audit.get("unreachable") or marker.get("unreachable"):
        why = redaction.reason(audit.get("msg") or marker.get("msg"))
        if NO_ROOT.search(why):
            lacks = "Ansible cannot become root on it: %s. Check sudo for the account of the connection" % why.rstrip(
                ". "
            )
            return Probe(name, error=lacks, domains=places)
        return Probe(name, reachable=False, error=why, domains=places)
    layout, unread, dummy = layout_looked_at(look)
    found = audit.get("audit") or {}
    mark = marker.get("quarantine", marker.get("stat"))
    versions = found.get("versions") or {}
    error = ""
    if audit.get("failed") or "audit" not in audit:
        error = str(audit.get("msg") or "driver_audit gave no answer")
    elif mark is None:
        error = str(marker.get("msg") or "its quarantine marker could not be read")
    elif marker.get("problem"):
        error = "%s. Remove the file if no rollout has the node in flight" % marker["problem"]
    elif marker.get("no_room"):
        error = "nothing can be kept on it: %s. Free space, or set gpu_node_upgrade_state_dir" % marker["no_room"]
    elif unread:
        error = unread
    quarantined = "%s lies on the node" % mark.get("path", "a marker") if (mark or {}).get("exists") else ""
    kernel = found.get("kernel") or {}
    devices = sorted({str(item.get("device")) for item in found.get("pci") or []})
    stratum = "%s on %s" % (", ".join(devices) or "no GPU", kernel.get("running") or "unknown kernel")
    version, package = versions.get("loaded") or versions.get("library"), versions.get("package")
    if package and upstream(package) != version:
        package = None  # the driver on disk is not the loaded one
    strange = [one for one in (version, package) if one and not VERSION.fullmatch(one)]
    if strange:
        # A rollback of the whole fleet would ask for it.
        version = package = None
        error = error or "its driver version is %r; expected one such as 535.261.03. Examine the node" % strange[0]
    users = found.get("compute_users")
    return Probe(
        name,
        version=version,
        package=package,
        quarantined=quarantined,
        error=redaction.reason(error),
        domains=places,
        stratum=stratum,
        at_work=None if users is None else users > 0,
        kernel=kernel.get("running"),
        next_kernel=kernel.get("next_boot"),
        kernels=None if kernel.get("installed") is None else tuple(kernel["installed"]),
        identity=found.get("identity") or {},
        verdict=verdict,
        complaint=complaint,
        unproven_in=unproven_in,
        lacks=lacks,
        layout=layout,
    )
