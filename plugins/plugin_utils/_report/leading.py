# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which finding of a verdict leads, and which follow from others. Pure.

A finding is a check of gpu_health that failed or is unknown. The one that leads is the cause of the others, or the most
severe: its message has the one next step. The others are in the report.
"""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model, registry

Finding = t.Mapping[str, t.Any]

BARS = ("fail", "unknown")
# What follows when a GPU is lost, and is no error of its own.
OF_A_LOST_GPU = (
    *("gpu.handle", "gpu.init_failed", "gpu.present", "gpu.on_bus", "gpu.count", "node.hardware", "gpu.hardware"),
    *("gpu.device_node", "gpu.recovery_action", "gpu.nvlink*", "gpu.p2p", "gpu.fabric*", "gpu.pcie_*", "gpu.mig_*"),
    *("smoke.*", "node.cdi"),
)
OF_A_SILENT_DRIVER = ("driver.nvml", "driver.versions_agree", "gpu.*", "node.hardware", "smoke.*", "reading.complete")
# Check: those whose findings follow from one of it, of the same GPU or where either is of the whole node. The first
# causes come first, since nothing explains what stands above it.
CAUSES = {
    "driver.nouveau": ("driver.loaded", "nvml.answers", *OF_A_SILENT_DRIVER),
    "nvml.library_match": ("driver.client_mismatch", "nvml.answers", *OF_A_SILENT_DRIVER),
    "gpu.xid": ("gpu.fallen_off", "nvml.answers", *OF_A_LOST_GPU),
    "gpu.fallen_off": ("nvml.answers", *OF_A_LOST_GPU),
    "nvml.answers": OF_A_SILENT_DRIVER,
    "gpu.handle": OF_A_LOST_GPU,
    "gpu.present": ("gpu.on_bus", "gpu.count", "node.hardware", "smoke.*"),
    "gpu.on_bus": ("gpu.count", "node.hardware"),
    "gpu.count": ("node.hardware",),
}
# Of these only findings with such an action are the cause of others: most XIDs lose no GPU.
SEVERE = {"gpu.xid": ("reset_gpu", "reboot", "hold", "field_diag")}
# The beginning of the name of a GPU that could not be identified.
NAMELESS = "gpu index "
LISTED = 5

_ORDER = {row.ident: number for number, row in enumerate(registry.TABLE)}


def list_findings(checks: t.Iterable[Finding]) -> list[Finding]:
    """Return the checks that failed or are unknown."""
    return [check for check in checks if check.get("status") in BARS]


def _is_same_gpu(one: Finding, other: Finding) -> bool:
    """Return True unless two findings are of different GPUs. One that could not be identified may be any."""
    names = [str(finding.get("entity") or model.NODE) for finding in (one, other)]
    return names[0] == names[1] or any(name == model.NODE or name.startswith(NAMELESS) for name in names)


def _place_among_causes(ident: t.Any) -> int:
    return list(CAUSES).index(ident) if ident in CAUSES else len(CAUSES)


def _is_cause(finding: Finding) -> bool:
    ident = finding.get("id")
    return ident in CAUSES and (ident not in SEVERE or finding.get("action") in SEVERE[ident])


def explains(cause: Finding, other: Finding) -> bool:
    """Return True if a finding follows from another one, CAUSE."""
    return (
        _is_cause(cause)
        and _place_among_causes(cause["id"]) < _place_among_causes(other.get("id"))
        and any(fnmatch.fnmatchcase(str(other.get("id")), pattern) for pattern in CAUSES[cause["id"]])
        and _is_same_gpu(cause, other)
    )


def sort_findings(checks: t.Iterable[Finding]) -> list[tuple[Finding, str]]:
    """Return (finding, id of the check that explains it) of CHECKS, the one that leads first.

    Those that nothing explains come first: failed before unknown, causes before others, then by the severity of their
    action.
    """

    def rank(finding) -> tuple:
        action = finding.get("action")
        return (
            BARS.index(finding["status"]),
            _place_among_causes(finding.get("id")) if _is_cause(finding) else len(CAUSES),
            -(model.ACTIONS.index(action) if action in model.ACTIONS else 0),
            _ORDER.get(finding.get("id"), len(_ORDER)),
            str(finding.get("id")),
            str(finding.get("entity")),
        )

    found = sorted(list_findings(checks), key=rank)
    causes = sorted(found, key=lambda cause: _place_among_causes(cause.get("id")))
    explained = [(one, next((cause["id"] for cause in causes if explains(cause, one)), "")) for one in found]
    return sorted(explained, key=lambda entry: entry[1] != "")


def describe_findings(checks: t.Iterable[Finding], otherwise: str = "") -> str:
    """Return the message of the finding that leads, with its next step, and the checks that it does not explain by id.

    Those of GPUs without a name are beside it too if there are more of them than GPUs with the finding that leads: one
    XID loses one GPU. OTHERWISE: what is returned if no finding has a message.
    """
    found = [(finding, cause) for finding, cause in sort_findings(checks) if finding.get("message")]
    if not found:
        return otherwise
    lead = found[0][0]
    alike = {str(one.get("entity")) for one, cause in found if not cause and one.get("id") == lead.get("id")}
    lost = {}
    for one, cause in found:
        if cause == lead.get("id") and str(one.get("entity")).startswith(NAMELESS):
            lost.setdefault(one["entity"], "%s of %s" % (one.get("id"), one["entity"]))
    names = [_name_beside(lead, one) for one, cause in found[1:] if not cause]
    others = list(dict.fromkeys([*names, *(lost.values() if len(lost) > len(alike) else ())]))
    more = " and %d more" % (len(others) - LISTED) if len(others) > LISTED else ""
    return lead["message"] + (" Beside it: %s%s." % (", ".join(others[:LISTED]), more) if others else "")


def _name_beside(lead: Finding, finding: Finding) -> str:
    """Return the check of a finding, with its entity if it is the check that leads: the same fault of another GPU."""
    ident = str(finding.get("id"))
    return "%s of %s" % (ident, finding.get("entity")) if ident == lead.get("id") else ident


def tabulate(checks: t.Iterable[Finding]) -> list[dict[str, t.Any]]:
    """Return all findings for a report, the one that leads first, each with the check that explains it."""
    keys = ("id", "entity", "status", "action", "since", "message")
    return [
        {**{key: finding.get(key) for key in keys}, "explained_by": cause} for finding, cause in sort_findings(checks)
    ]
