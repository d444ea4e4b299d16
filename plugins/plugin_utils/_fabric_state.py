# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide if a node needs a fabric manager, if the installed one may be started, and if the GPUs have joined their
fabric.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use

NEEDED, NONE, UNKNOWN = "needed", "none", "unknown"
PASS, ABSENT = "pass", "not_applicable"
VERSION = "node.fabric_manager_version"
NOT_INSTALLED = "not installed"
# What has to pass on the node, and what has to pass where it applies.
OF_NODE, WHERE_IT_APPLIES = ("node.fabric_manager", VERSION), ("node.nvlink_modules", "node.nvlsm")
FABRIC = "gpu.fabric"
# What a GPU proves that has an NVSwitch and no state of a fabric in NVML (A100).
INSTEAD = ("gpu.nvlink", "gpu.p2p")


def decide(answer: Any) -> dict[str, Any]:
    """The state of the fabric, of the answer of gpu_health with all its checks."""
    checks = _checks(answer)
    gpus = _gpus(answer)
    switches, managers = _observed_devices(checks, "node.nvswitches"), _observed_devices(checks, "node.nvlink_managers")
    if switches or managers:
        fabric, why = (
            NEEDED,
            "%d NVSwitches on the PCI bus, %d adapters that manage NVLink switches"
            % (len(switches or []), len(managers or [])),
        )
    elif switches is None or managers is None:
        fabric, why = (
            UNKNOWN,
            _find_messages(checks, "node.nvswitches", "node.nvlink_managers")
            or "The answer of gpu_health has no checks of the fabric.",
        )
    else:
        fabric, why = (
            NONE,
            "There are no NVSwitches on the PCI bus, and no adapter of this node manages NVLink switches.",
        )
    missing = _missing(checks, gpus)
    return {
        "fabric": fabric,
        "why": why,
        "managed": bool(managers),
        "subnet_manager": _status(checks, "node.nvlsm", "observed") != NOT_INSTALLED,
        "installed": _status(checks, VERSION, "observed") not in (None, NOT_INSTALLED),
        "version": _version(checks),
        "proven": fabric == NEEDED and not missing,
        "missing": missing,
        "in_use": _gpu_use.in_use(gpus),
    }


def _checks(answer: Any) -> dict[str, list[Mapping[str, Any]]]:
    """The checks by their ids."""
    health = answer.get("health") if isinstance(answer, Mapping) else None
    found: dict[str, list[Mapping[str, Any]]] = {}
    for check in (health or {}).get("checks") or []:
        found.setdefault(check.get("id"), []).append(check)
    return found


def _gpus(answer: Any) -> list[Mapping[str, Any]]:
    baseline = answer.get("baseline") if isinstance(answer, Mapping) else None
    return ((baseline or {}).get("snapshot") or {}).get("gpus") or []


def _status(checks: Mapping[str, list[Mapping[str, Any]]], ident: str, key: str = "status") -> Any:
    return checks[ident][0].get(key) if len(checks.get(ident, ())) == 1 else None


def _observed_devices(checks: Mapping[str, list[Mapping[str, Any]]], ident: str) -> list[Any] | None:
    """The devices that a check found; None where it is not known which there are."""
    found = _status(checks, ident, "observed")
    return found if _status(checks, ident) in (PASS, ABSENT, "fail") and isinstance(found, list) else None


def _find_messages(checks: Mapping[str, list[Mapping[str, Any]]], *idents: str) -> str:
    return " ".join(
        dict.fromkeys(
            str(check.get("message"))
            for ident in idents
            for check in checks.get(ident, ())
            if check.get("status") not in (PASS, ABSENT)
        )
    )


def _version(checks: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, Any]:
    """The version of the fabric manager and that of the driver, and why it may not be started. Empty where it may."""
    found, wanted = _status(checks, VERSION, "observed"), _status(checks, VERSION, "expected")
    refusal = (
        ""
        if _status(checks, VERSION) == PASS
        else _find_messages(checks, VERSION) or "The version of the fabric manager is not known."
    )
    known = found if isinstance(found, str) and found != NOT_INSTALLED else None
    return {"found": known, "driver": wanted, "refusal": refusal, "differs": bool(known and wanted and known != wanted)}


def _missing(checks: Mapping[str, list[Mapping[str, Any]]], gpus: list[Mapping[str, Any]]) -> list[str]:
    """Return what is not proven, in sentences; empty if every GPU has joined a healthy fabric, and the node has
    everything that this needs.
    """
    wrong = [] if gpus else ["NVML lists no GPU whose fabric could be read."]
    for ident in OF_NODE + WHERE_IT_APPLIES:
        allowed = (PASS, ABSENT) if ident in WHERE_IT_APPLIES else (PASS,)
        if _status(checks, ident) not in allowed:
            wrong.append(_find_messages(checks, ident) or "The check %s was not made." % ident)
    of_gpus = {check.get("entity"): check for check in checks.get(FABRIC, ())}
    for index, gpu in enumerate(gpus):
        uuid = (gpu.get("uuid") or {}).get("value") or "GPU %d" % index
        check = of_gpus.get(uuid)
        if check is None:
            wrong.append("The fabric of %s was not judged." % uuid)
        elif check.get("status") == ABSENT:
            wrong += _without_state(checks, uuid)
        elif check.get("status") != PASS:
            wrong.append(str(check.get("message")))
    return wrong


def _without_state(checks: Mapping[str, list[Mapping[str, Any]]], uuid: str) -> list[str]:
    """The same of a GPU that does not tell the state of its fabric: by its NVLinks and its access to the others."""
    wrong = []
    for ident in INSTEAD:
        mine = [check for check in checks.get(ident, ()) if check.get("entity") == uuid]
        if [check.get("status") for check in mine] != [PASS]:
            wrong.append(
                "%s tells no state of its fabric, and %s"
                % (uuid, "; ".join(str(check.get("message")) for check in mine) or "the check %s was not made." % ident)
            )
    return wrong
