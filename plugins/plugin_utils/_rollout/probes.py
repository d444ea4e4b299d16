# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes before a rollout, and their MIG layouts: as the tasks that read them answered, and as wanted. Pure.

A layout is {"name", "config"}, a configuration in the format of nvidia-mig-parted, or {"name", "layout"}, a list as for
the option of gpu_mig. In this form layouts with the same meaning are equal, which the digest of a plan needs.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import baseline as baselines
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import config
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.versions import upstream
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _peers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import leading
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.limits import list_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.order import PlanError

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
    otherwise = str(result.get("msg") or "its health could not be read").split("\n", 1)[0]
    return verdict, redaction.reason(leading.describe_findings(health.get("checks") or [], otherwise))


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


END = "Nothing was changed."
NAMED = 3  # nodes whose refusal is printed in full


def canonical_document(document: t.Any, name: str) -> t.Dict[str, t.Any]:
    """Return the configuration NAME of DOCUMENT as its own document. Raises ConfigError if it cannot be used."""
    entries = []
    for entry in config.choose(config.parse(document), name):
        made: t.Dict[str, t.Any] = {
            "devices": entry.devices if entry.devices == config.ALL else list(entry.devices),
            "mig-enabled": entry.enabled,
        }
        if entry.filters is not None:
            made["device-filter"] = list(entry.filters)
        if entry.enabled:
            made["mig-devices"] = dict(entry.wanted)
        entries.append(made)
    return {"version": config.VERSION, "mig-configs": {name: entries}}


def find_layouts(given: t.Mapping[str, t.Any], read: t.Callable[[str], t.Any]) -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return the layout of each node.

    GIVEN is {node: {"name", "configs", "file"}}, its nvidia_mig_config, nvidia_mig_configs and nvidia_mig_config_file.
    READ returns the document of a file. A layout without a source, with two, or that cannot be used, is refused.
    """
    found, known = {}, {}
    for node, one in given.items():
        one = one or {}
        name, configs, file = one.get("name"), one.get("configs"), one.get("file")
        if not isinstance(name, str) or not name.strip():
            raise PlanError(
                "nvidia_mig_config of %s is %s; expected the name of its MIG layout. %s"
                % (node, repr(name) if name else "empty", END)
            )
        if bool(configs) == bool(file):
            raise PlanError(
                "%s of nvidia_mig_configs and nvidia_mig_config_file is set for %s; expected one of the two, such as "
                "%s (docs/runbooks/mig.md makes a file of all layouts that a node can have). %s"
                % ("Neither" if not configs else "Each", node, config.EXAMPLE, END)
            )
        try:
            if file and (file, name) not in known:
                known[file, name] = canonical_document(read(str(file)), name)
            found[node] = {"name": name, "config": known[file, name] if file else canonical_document(configs, name)}
        except config.ConfigError as exc:
            raise PlanError(
                "The MIG layout of %s cannot be used: %s. Correct nvidia_mig_config, or the layout itself. "
                "%s" % (node, exc, END)
            ) from exc
    return found


def refuse_unfit(looks: t.Mapping[str, t.Any]) -> None:
    """Refuse layouts that GPUs cannot have. LOOKS: for each node the result of gpu_mig in check mode."""
    unfit = {node: why for node, look in looks.items() for why in [layout_looked_at(look)[2]] if why}
    if unfit:
        names = sorted(unfit)
        said = {node: unfit[node].removeprefix(node + ": ").removesuffix(END).rstrip(". ") for node in names[:NAMED]}
        raise PlanError(
            "%s cannot have the MIG layout that is wanted: %s %s"
            % (list_names(names), " ".join("%s: %s." % one for one in said.items()), END)
        )


def find_layouts_before(
    rollout_id: str, nodes: t.Iterable[t.Any], baseline_of: t.Callable[[str], t.Any]
) -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return the layouts that the rollout found on those of its NODES that started and whose layout it changes.

    BASELINE_OF returns the baseline of a node; None if there is none, so that nothing was changed on it.
    """
    found = {}
    for node in nodes:
        baseline = baseline_of(node.name) if node.layout and node.attempt else None
        if baseline is None:
            continue
        try:
            found[node.name] = {"name": "before %s" % rollout_id, "layout": baselines.entries(baseline.get("snapshot"))}
        except baselines.BaselineProblem as exc:
            raise PlanError(
                "Rollout %s recorded no earlier MIG layout of %s: %s. Make its layout with gpufleet.lifecycle.mig, or "
                "leave the node out. %s" % (rollout_id, node.name, exc, END)
            ) from exc
    return found
