# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of a fleet as one document (schema gpufleet.precheck/1), out of what gpu_health answered for every node.

Pure.
"""

from __future__ import annotations

import collections

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _peers, _twins
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import peers, text

SCHEMA = "gpufleet.precheck/1"
# From the best to the worst. What is none of these is unknown.
VERDICTS = ("pass", "unknown", "fail")
JUDGED, UNREACHABLE, FAILED, MISSING = "judged", "unreachable", "failed", "missing"
STATES = (JUDGED, UNREACHABLE, FAILED, MISSING)
BARS = ("fail", "unknown")
# The check that says whether the GPUs are as many as they should be.
HARDWARE = "node.hardware"
# The check that says whether there was a baseline to compare with, and the one that much of the rest follows from.
USED, ROOT = "baseline.usable", "nvml.answers"
NEXT_STEP = {
    UNREACHABLE: "Is the node on, and does it answer ssh with the inventory's address, user and key?",
    FAILED: "Correct what the message names and run it again; nothing is known about this node.",
    MISSING: "gpu_health was not run on this node, or it was skipped; run it again.",
}


def worst(verdicts: list) -> str:
    """fail before unknown before pass; nothing at all is unknown."""
    known = [verdict if verdict in VERDICTS else "unknown" for verdict in verdicts]
    return max(known, key=VERDICTS.index) if known else "unknown"


def document(names, results, fail_on=BARS, asked=None, time=""):
    """The report about the nodes NAMES.

    RESULTS: name -> result of gpu_health, in whatever state; FAIL_ON as gpu_health's.

    ASKED (text -> text) says in the report how it was run; TIME is when, in UTC. The verdict is the document's first
    field.
    """
    usual = _peers.expectation(_peers.of_results(results))
    results = {name: settled(result, usual) for name, result in results.items()}
    nodes = {name: node(results.get(name), fail_on) for name in sorted(set(names))}
    for name, lacks in _peers.fewer(*counted(nodes, results)).items():
        nodes[name] = lacking(nodes[name], lacks, fail_on)
    twins = _twins.find({name: identity(results.get(name)) for name in nodes})
    verdict = worst([entry["verdict"] for entry in nodes.values()] + (["fail"] if twins else []))
    return {
        "verdict": verdict,
        "schema": SCHEMA,
        "time": time,
        "simulated": any(entry["simulated"] for entry in nodes.values()),
        "asked": {str(key): str(value) for key, value in sorted((asked or {}).items())},
        "fail_on": sorted(fail_on),
        "counts": dict(
            {word: len([entry for entry in nodes.values() if entry["verdict"] == word]) for word in reversed(VERDICTS)},
            **{state: len([entry for entry in nodes.values() if entry["state"] == state]) for state in STATES},
            nodes=len(nodes),
            notices=sum(entry["counts"]["notices"] for entry in nodes.values()),
        ),
        "failed_nodes": [name for name in nodes if nodes[name]["fails"] or twins and name in (twins.one, twins.other)],
        "peers": peers.outliers(nodes),
        "twins": _twins.words(twins),
        "nodes": nodes,
    }


def settled(result, usual):
    """RESULT with its verdict as it is once it is known how many GPUs other nodes have."""
    return (
        dict(result, health=_peers.health_of(result, usual))
        if isinstance(model.item(result, "health"), dict)
        else result
    )


def counted(nodes, results):
    """({node: {model: number of GPUs}} of the nodes that were judged, those of them that have a baseline, or of which
    the number was said).
    """
    counts = {
        name: entry
        for name, entry in nodes.items()
        if entry["state"] == JUDGED and entry["gpus"] and all(gpu["name"] for gpu in entry["gpus"])
    }
    # A number was said; what the table of boards has is a list.
    told = {
        name
        for name, entry in counts.items()
        if entry["compared"]
        or any(check["id"] == HARDWARE and isinstance(check.get("expected"), int) for check in checks_of(results[name]))
    }
    return {name: collections.Counter(gpu["name"] for gpu in entry["gpus"]) for name, entry in counts.items()}, told


def lacking(entry, lacks, fail_on):
    """The node ENTRY with the finding that it has fewer GPUs than other nodes."""
    found = finding(
        {
            "id": HARDWARE,
            "entity": "node",
            "status": "fail",
            "observed": len(entry["gpus"]),
            "expected": None,
            "source": "peers",
            "action": "hold",
            "message": "The node %s." % lacks,
        }
    )
    others = [one for one in entry["findings"] if (one["id"], one["status"]) != (HARDWARE, "fail")]
    findings = sorted(others + [found], key=lambda one: (one["id"], one["entity"], one["status"], one["message"]))
    not_applicable = {ident: number for ident, number in entry["not_applicable"].items() if ident != HARDWARE}
    passed = {ident: number for ident, number in entry["passed"].items() if ident != HARDWARE}
    counts = dict(entry["counts"], fail=entry["counts"]["fail"] + len(findings) - len(entry["findings"]))
    counts["not_applicable"] -= entry["not_applicable"].get(HARDWARE, 0)
    counts["pass"] -= entry["passed"].get(HARDWARE, 0)
    return dict(
        entry,
        verdict="fail",
        fails="fail" in fail_on,
        action=max(entry["action"], "hold", key=model.ACTIONS.index),
        worst=worst_finding(findings),
        counts=counts,
        findings=findings,
        passed=passed,
        not_applicable=not_applicable,
        # What its own verdict told fails the node already.
        **(
            {}
            if any(one["id"] == HARDWARE and one["status"] == "fail" for one in entry["findings"])
            else {"lacks": lacks}
        ),
    )


def identity(result):
    """Return the identity of the machine that a result of gpu_health is about: as the audit of the driver says, and the
    GPUs as NVML does.
    """
    baseline = model.item(result, "baseline")
    told = model.item(baseline, "audit", "identity")
    uuids = [model.uuid(gpu) for gpu in model.gpus(model.item(baseline, "snapshot"))]
    return dict(told if isinstance(told, dict) else {}, **({"gpus": uuids} if uuids and all(uuids) else {}))


def checks_of(result):
    """All checks of a result, sorted; those that are none are left out here and counted by node()."""
    health = model.item(result, "health")
    listed = model.item(health, "checks")
    checks = [entry for entry in listed if _well_formed(entry)] if isinstance(listed, list) else []
    return sorted(checks, key=lambda entry: (entry["id"], entry["entity"], entry["status"], str(entry.get("message"))))


def _well_formed(check):
    return (
        isinstance(check, dict)
        and all(isinstance(check.get(key), str) and check[key] for key in ("id", "entity"))
        and check.get("status") in model.STATUSES
    )


def state_of(result):
    """Return whether there is a verdict in RESULT, and why not."""
    if not isinstance(result, dict) or not result:
        return MISSING, ""
    if result.get("unreachable"):
        return UNREACHABLE, text.clean(result.get("msg") or "the node cannot be reached").strip()
    if result.get("timedout"):  # Ansible's word for a task that the keyword timeout ended
        return UNREACHABLE, "the node did not answer: " + text.clean(
            result.get("msg") or "the time of the task passed"
        ).strip()
    health = result.get("health")
    if isinstance(health, dict) and isinstance(health.get("checks"), list) and health["checks"]:
        return JUDGED, ""
    if result.get("skipped"):
        return MISSING, text.clean(result.get("skip_reason") or "").strip()
    return FAILED, text.clean(result.get("msg") or "gpu_health answered no verdict").strip()


def node(result, fail_on=BARS):
    """Return the entry of one node in the report."""
    state, message = state_of(result)
    health = result["health"] if state == JUDGED else {}
    checks = checks_of(result) if state == JUDGED else []
    verdict = _verdict(health, checks)
    findings = [
        finding(check) for check in checks if check["status"] in ("fail", "unknown", "waived") or noticed(check)
    ]
    reading = model.item(result, "baseline") if state == JUDGED else None
    return {
        "verdict": verdict,
        "state": state,
        "fails": state != JUDGED or verdict in fail_on,
        "message": message,
        "next_step": NEXT_STEP.get(state, ""),
        "action": str(health.get("action") or ("none" if verdict == "pass" else "hold")),
        "worst": worst_finding(findings),
        "counts": dict(
            {status: len([check for check in checks if check["status"] == status]) for status in model.STATUSES},
            notices=len([check for check in checks if noticed(check)]),
        ),
        "simulated": bool(health.get("simulated")),
        "time": str(health.get("time") or ""),
        "boot_id": str(health.get("boot_id") or ""),
        "kernel": str(model.item(reading, "audit", "kernel", "running") or ""),
        "compared": any(check["id"] == USED and check["status"] == model.PASS for check in checks),
        "driver": text.plain(health["driver"]) if isinstance(health.get("driver"), dict) else {},
        "gpus": inventory(model.item(reading, "snapshot")),
        "findings": findings,
        "passed": _tally(check["id"] for check in checks if check["status"] == model.PASS),
        "not_applicable": _tally(check["id"] for check in checks if check["status"] == model.NOT_APPLICABLE),
        "changes": text.plain(health["changes"]) if isinstance(health.get("changes"), list) else [],
        "attribution": text.plain(health["attribution"]) if isinstance(health.get("attribution"), dict) else {},
    }


def _verdict(health, checks):
    """Return the verdict of gpu_health, and never a better one than its checks give."""
    if not health:
        return "unknown"
    statuses = [check["status"] for check in checks]
    own = [status for status in statuses if status in VERDICTS]
    damaged = len(checks) != len(health["checks"])
    return worst([health.get("verdict")] + own + (["unknown"] if damaged or model.PASS not in statuses else []))


def noticed(check: dict) -> bool:
    return check.get("notice") is True


def finding(check: dict) -> dict:
    """A check for the report."""
    entry = {
        key: text.plain(check.get(key))
        for key in ("id", "entity", "status", "observed", "expected", "source", "action", "message")
    }
    entry["action"] = entry["action"] if entry["action"] in model.ACTIONS else "hold"
    entry["message"] = "" if entry["message"] is None else str(entry["message"])
    for key in ("since", "waiver", "driver_suspect"):
        if check.get(key) is not None:
            entry[key] = text.plain(check[key])
    if noticed(check):
        entry["notice"] = True
    return entry


def worst_finding(findings: list[dict]) -> dict | None:
    """The finding a person should read first."""
    bad = [entry for entry in findings if entry["status"] in BARS]
    if not bad:
        return None
    return min(
        bad,
        key=lambda entry: (
            BARS.index(entry["status"]),
            entry["id"] != ROOT,
            -model.ACTIONS.index(entry["action"]),
            entry["id"],
            entry["entity"],
        ),
    )


def _tally(idents):
    counted = {}
    for ident in sorted(idents):
        counted[ident] = counted.get(ident, 0) + 1
    return counted


def inventory(snapshot):
    """The GPUs of a snapshot, as far as they can be named. A value that could not be read is its NVML code."""
    gpus = []
    for position, gpu in enumerate(model.gpus(snapshot)):
        readable = model.is_opened(gpu)
        gpus.append(
            {
                "index": gpu["index"] if isinstance(gpu.get("index"), int) else position,
                "entity": model.entity(gpu),
                "uuid": model.uuid(gpu),
                "pci": model.address(gpu),
                "name": _known(gpu, "name"),
                "serial": _known(gpu, "serial"),
                "vbios": _value(gpu, "vbios_version") if readable else None,
                "inforom": _value(gpu, "inforom_image_version") if readable else None,
                "gsp": _known(gpu, "gsp_firmware_version"),
                "memory_bytes": _value(gpu, "memory_total_bytes") if readable else None,
                "power_limit_mw": _value(gpu, "power_limit_mw") if readable else None,
                "nvlinks": _links(gpu) if readable else None,
                "pcie_width": _value(gpu, "pcie_width_current") if readable else None,
            }
        )
    return gpus


def _known(gpu, key):
    found = model.reading(gpu, key)
    return str(found.value) if found.known else None


def _value(gpu, key):
    found = model.reading(gpu, key)
    if found.known:
        return (
            found.value
            if isinstance(found.value, (int, float)) and not isinstance(found.value, bool)
            else str(found.value)
        )
    return None if found.rc is None else found.error


def _links(gpu):
    found = model.reading(gpu, "nvlink_active")
    if found.known and isinstance(found.value, list):
        return len([link for link in found.value if link is True])
    return None if found.rc is None else found.error
