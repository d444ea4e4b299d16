# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of a fleet as one document (schema gpufleet.precheck/1), from the answers of gpu_health. Pure."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _peers, _twins
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import leading, text

SCHEMA = "gpufleet.precheck/1"
# From the best to the worst. What is none of these is unknown.
VERDICTS = ("pass", "unknown", "fail")
JUDGED, UNREACHABLE, FAILED, MISSING = "judged", "unreachable", "failed", "missing"
STATES = (JUDGED, UNREACHABLE, FAILED, MISSING)
BARS = leading.BARS
# The check that says whether the GPUs are as many as they should be.
HARDWARE = "node.hardware"
# What ASKED says of the directory with the nodes' baselines; empty if none was given.
BASELINES = "baselines"
# The check that says whether there was a baseline to compare with.
USED = "baseline.usable"
NEXT_STEP = {
    UNREACHABLE: "Is the node on, and does it answer ssh with the inventory's address, user and key?",
    FAILED: "Correct what the message names and run it again; nothing is known about this node.",
    MISSING: "gpu_health was not run on this node, or it was skipped; run it again.",
}


def find_worst_verdict(verdicts: list) -> str:
    """Return the worst verdict: fail, then unknown, then pass. Without any it is unknown."""
    known = [verdict if verdict in VERDICTS else "unknown" for verdict in verdicts]
    return max(known, key=VERDICTS.index) if known else "unknown"


def build_document(
    names: list[str],
    results: dict[str, dict],
    fail_on: t.Sequence[str] = BARS,
    asked: dict | None = None,
    time: str = "",
) -> dict:
    """Return the report about the nodes NAMES.

    RESULTS: name -> result of gpu_health, in whatever state; FAIL_ON as gpu_health's.

    ASKED (text -> text) says in the report how it was run; TIME is when, in UTC. The verdict is the document's first
    field.
    """
    usual = _peers.expectation(_peers.of_results(results))
    results = {name: settle_result(result, usual) for name, result in results.items()}
    nodes = {name: describe_node(results.get(name), fail_on) for name in sorted(set(names))}
    for name, lacks in _peers.fewer(*count_gpus(nodes, results)).items():
        nodes[name] = add_missing_gpus(nodes[name], lacks, fail_on)
    twins = _twins.find({name: identify_machine(results.get(name)) for name in nodes})
    verdict = find_worst_verdict([entry["verdict"] for entry in nodes.values()] + (["fail"] if twins else []))
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
        "peers": find_outliers(nodes),
        "twins": _twins.words(twins),
        "uncompared": [name for name in nodes if nodes[name]["state"] == JUDGED and not nodes[name]["compared"]]
        if (asked or {}).get(BASELINES)
        else [],
        "nodes": nodes,
    }


def settle_result(result: dict, usual: dict) -> dict:
    """Return the result with the verdict that follows from the number of GPUs of other nodes."""
    return (
        dict(result, health=_peers.health_of(result, usual))
        if isinstance(model.item(result, "health"), dict)
        else result
    )


def count_gpus(nodes: dict[str, dict], results: dict[str, dict]) -> tuple[dict, set[str]]:
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
        or any(
            check["id"] == HARDWARE and isinstance(check.get("expected"), int) for check in list_checks(results[name])
        )
    }
    return {name: collections.Counter(gpu["name"] for gpu in entry["gpus"]) for name, entry in counts.items()}, told


def add_missing_gpus(entry: dict, lacks: str, fail_on: t.Sequence[str]) -> dict:
    """Return the entry of a node with the finding that it has fewer GPUs than other nodes."""
    found = describe_finding(
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
        worst=find_worst_finding(findings),
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


def identify_machine(result: dict) -> dict:
    """Return the identity of the machine that a result of gpu_health is about: as the audit of the driver says, and the
    GPUs as NVML does.
    """
    baseline = model.item(result, "baseline")
    told = model.item(baseline, "audit", "identity")
    uuids = [model.uuid(gpu) for gpu in model.gpus(model.item(baseline, "snapshot"))]
    return dict(told if isinstance(told, dict) else {}, **({"gpus": uuids} if uuids and all(uuids) else {}))


def list_checks(result: dict) -> list[dict]:
    """Return the well-formed checks of a result, sorted. Others make its verdict unknown in describe_node()."""
    health = model.item(result, "health")
    listed = model.item(health, "checks")
    checks = [entry for entry in listed if _is_check(entry)] if isinstance(listed, list) else []
    return sorted(checks, key=lambda entry: (entry["id"], entry["entity"], entry["status"], str(entry.get("message"))))


def _is_check(check) -> bool:
    return (
        isinstance(check, dict)
        and all(isinstance(check.get(key), str) and check[key] for key in ("id", "entity"))
        and check.get("status") in model.STATUSES
    )


def find_state(result: dict | None) -> tuple[str, str]:
    """Return whether there is a verdict in RESULT, and why not."""
    if not isinstance(result, dict) or not result:
        return MISSING, ""
    if result.get("unreachable"):
        return UNREACHABLE, text.clean_text(result.get("msg") or "the node cannot be reached").strip()
    if result.get("timedout"):  # Ansible's word for a task that the keyword timeout ended
        return UNREACHABLE, "the node did not answer: " + text.clean_text(
            result.get("msg") or "the time of the task passed"
        ).strip()
    health = result.get("health")
    if isinstance(health, dict) and isinstance(health.get("checks"), list) and health["checks"]:
        return JUDGED, ""
    if result.get("skipped"):
        return MISSING, text.clean_text(result.get("skip_reason") or "").strip()
    return FAILED, text.clean_text(result.get("msg") or "gpu_health answered no verdict").strip()


def describe_node(result: dict | None, fail_on: t.Sequence[str] = BARS) -> dict:
    """Return the entry of one node in the report."""
    state, message = find_state(result)
    health = result["health"] if state == JUDGED else {}
    checks = list_checks(result) if state == JUDGED else []
    verdict = _judge_node(health, checks)
    findings = [
        describe_finding(check)
        for check in checks
        if check["status"] in ("fail", "unknown", "waived") or is_notice(check)
    ]
    reading = model.item(result, "baseline") if state == JUDGED else None
    return {
        "verdict": verdict,
        "state": state,
        "fails": state != JUDGED or verdict in fail_on,
        "message": message,
        "next_step": NEXT_STEP.get(state, ""),
        "action": str(health.get("action") or ("none" if verdict == "pass" else "hold")),
        "worst": find_worst_finding(findings),
        "counts": dict(
            {status: len([check for check in checks if check["status"] == status]) for status in model.STATUSES},
            notices=len([check for check in checks if is_notice(check)]),
        ),
        "simulated": bool(health.get("simulated")),
        "time": str(health.get("time") or ""),
        "boot_id": str(health.get("boot_id") or ""),
        "kernel": str(model.item(reading, "audit", "kernel", "running") or ""),
        "compared": any(check["id"] == USED and check["status"] == model.PASS for check in checks),
        "driver": text.plain_json(health["driver"]) if isinstance(health.get("driver"), dict) else {},
        "gpus": list_gpus(model.item(reading, "snapshot")),
        "findings": findings,
        "passed": _count_ids(check["id"] for check in checks if check["status"] == model.PASS),
        "not_applicable": _count_ids(check["id"] for check in checks if check["status"] == model.NOT_APPLICABLE),
        "changes": text.plain_json(health["changes"]) if isinstance(health.get("changes"), list) else [],
        "attribution": text.plain_json(health["attribution"]) if isinstance(health.get("attribution"), dict) else {},
    }


def _judge_node(health, checks) -> str:
    """Return the verdict of gpu_health, and never a better one than its checks give."""
    if not health:
        return "unknown"
    statuses = [check["status"] for check in checks]
    own = [status for status in statuses if status in VERDICTS]
    damaged = len(checks) != len(health["checks"])
    return find_worst_verdict(
        [health.get("verdict")] + own + (["unknown"] if damaged or model.PASS not in statuses else [])
    )


def is_notice(check: dict) -> bool:
    return check.get("notice") is True


def describe_finding(check: dict) -> dict:
    """Return a check for the report."""
    entry = {
        key: text.plain_json(check.get(key))
        for key in ("id", "entity", "status", "observed", "expected", "source", "action", "message")
    }
    entry["action"] = entry["action"] if entry["action"] in model.ACTIONS else "hold"
    entry["message"] = "" if entry["message"] is None else str(entry["message"])
    for key in ("since", "waiver", "driver_suspect"):
        if check.get(key) is not None:
            entry[key] = text.plain_json(check[key])
    if is_notice(check):
        entry["notice"] = True
    return entry


def find_worst_finding(findings: list[dict]) -> dict | None:
    """Return the finding that a person should read first; None if there is none."""
    return next((dict(entry) for entry, dummy in leading.sort_findings(findings)), None)


def _count_ids(idents) -> dict[str, int]:
    counted = {}
    for ident in sorted(idents):
        counted[ident] = counted.get(ident, 0) + 1
    return counted


def list_gpus(snapshot: t.Any) -> list[dict]:
    """Return the GPUs of a snapshot. A value that could not be read is its NVML code."""
    gpus = []
    for position, gpu in enumerate(model.gpus(snapshot)):
        readable = model.is_opened(gpu)
        gpus.append(
            {
                "index": gpu["index"] if isinstance(gpu.get("index"), int) else position,
                "entity": model.entity(gpu),
                "uuid": model.uuid(gpu),
                "pci": model.address(gpu),
                "name": _read_text(gpu, "name"),
                "serial": _read_text(gpu, "serial"),
                "vbios": _read_value(gpu, "vbios_version") if readable else None,
                "inforom": _read_value(gpu, "inforom_image_version") if readable else None,
                "gsp": _read_text(gpu, "gsp_firmware_version"),
                "memory_bytes": _read_value(gpu, "memory_total_bytes") if readable else None,
                "power_limit_mw": _read_value(gpu, "power_limit_mw") if readable else None,
                "nvlinks": _count_links(gpu) if readable else None,
                "pcie_width": _read_value(gpu, "pcie_width_current") if readable else None,
            }
        )
    return gpus


def _read_text(gpu, key) -> str | None:
    found = model.reading(gpu, key)
    return str(found.value) if found.known else None


def _read_value(gpu, key) -> float | str | None:
    found = model.reading(gpu, key)
    if found.known:
        return (
            found.value
            if isinstance(found.value, (int, float)) and not isinstance(found.value, bool)
            else str(found.value)
        )
    return None if found.rc is None else found.error


def _count_links(gpu) -> int | None:
    found = model.reading(gpu, "nvlink_active")
    if found.known and isinstance(found.value, list):
        return len([link for link in found.value if link is True])
    return None if found.rc is None else found.error


# Fewer have no majority that means anything.
FEWEST = 3

Trait = collections.namedtuple("Trait", ["key", "label", "unit"])
TRAITS = (
    Trait("driver", "driver", str),
    Trait("vbios", "VBIOS", str),
    Trait("inforom", "InfoROM", str),
    Trait("memory_bytes", "memory", lambda value: "%.1f GiB" % (value / 2.0**30)),
    Trait("power_limit_mw", "power limit", lambda value: "%g W" % (value / 1000.0)),
    Trait("nvlinks", "NVLinks up", str),
    Trait("pcie_width", "PCIe width", lambda value: "x%d" % (value,)),
)


def find_outliers(nodes: dict[str, dict]) -> list[dict]:
    """Return a notice for each GPU model and trait in which not all are alike. NODES: name -> node of the document.

    A value counts per GPU, a driver per node. What cannot be read differs from what can: its code is the value then.
    """
    models = {}
    for name in sorted(nodes):
        for gpu in nodes[name]["gpus"]:
            if gpu["name"]:
                models.setdefault(gpu["name"], []).append((name, gpu))
    notices = []
    for gpu_model in sorted(models):
        for trait in TRAITS:
            notice = _find_odd(gpu_model, trait, _list_values(trait, models[gpu_model], nodes))
            if notice:
                notices.append(notice)
    return notices


def _list_values(trait, members, nodes) -> list[tuple]:
    """Return [(node, index or None, value as shown)] of the known values."""
    found = []
    if trait.key == "driver":
        for name in sorted({name for name, gpu in members}):
            version = nodes[name]["driver"].get("loaded") or nodes[name]["driver"].get("nvml")
            if version:
                found.append((name, None, str(version)))
        return found
    for name, gpu in members:
        value = gpu.get(trait.key)
        if value is not None:
            number = not isinstance(value, (str, bool))
            found.append((name, gpu["index"], trait.unit(value) if number or trait.unit is str else value))
    return found


def _find_odd(gpu_model, trait, values) -> dict | None:
    counted = collections.Counter(value for dummy, dummy2, value in values)
    if len(values) < FEWEST or len(counted) < 2:
        return None
    most, number = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[0]
    majority = most if number * 2 > len(values) else None
    odd = {}
    for node, index, value in values:
        if value != majority:
            odd.setdefault((node, value), []).append(index)
    return {
        "model": gpu_model,
        "trait": trait.label,
        "majority": majority,
        "alike": number if majority is not None else 0,
        "of": len(values),
        "per": "node" if trait.key == "driver" else "GPU",
        "odd": [
            {"node": node, "value": value, "gpus": [index for index in indexes if index is not None]}
            for (node, value), indexes in sorted(odd.items())
        ],
    }


def describe_outlier(notice: dict) -> str:
    """Return a notice in words."""
    if notice["majority"] is None:
        values = collections.Counter()
        for entry in notice["odd"]:
            values[entry["value"]] += len(entry["gpus"]) or 1
        parts = [
            "%d × %s" % (number, value)
            for value, number in sorted(values.items(), key=lambda item: (-item[1], item[0]))
        ]
        return text.one_line("%s: no common %s: %s" % (notice["model"], notice["trait"], ", ".join(parts)))
    return text.one_line(
        "%s: %s is %s on %d of %s, but %s"
        % (
            notice["model"],
            notice["trait"],
            notice["majority"],
            notice["alike"],
            text.count_noun(notice["of"], notice["per"]),
            "; ".join("%s on %s" % (entry["value"], describe_place(entry)) for entry in notice["odd"]),
        )
    )


def describe_place(entry: dict) -> str:
    """Return a node and its GPUs, such as C(gpu-a-1 GPU 3)."""
    if not entry["gpus"]:
        return entry["node"]
    return "%s GPU%s %s" % (
        entry["node"],
        "" if len(entry["gpus"]) == 1 else "s",
        ", ".join(str(index) for index in entry["gpus"]),
    )
