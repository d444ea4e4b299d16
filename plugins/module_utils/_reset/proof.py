# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge whether a reset did what it is for: GPUs before and after, and the kernel log. Pure functions.

That nvidia-smi says so proves nothing: it says so of a GPU whose mode still waits, too.
"""

from __future__ import annotations

from .._nvml.selection import value
from . import gpus as gpu_facts

PROVEN, UNPROVEN, FAILED, UNCHANGED, PLANNED = "reset", "unproven", "failed", "not_reset", "planned"
# Events of the kernel log that speak against a GPU, beside XIDs.
BAD_EVENTS = ("fallen_off", "rm_init_failed", "probe_failed", "needs_reset", "uvm_fatal", "oops")
RECOVERY_XID = 154
HEALTH = "look at gpu_health and the kernel log; reboot the node, and power-cycle it if that does not help"


def make_problem(
    ident: str, message: str, gpu: str | None = None, found=None, expected=None, next_step: str = HEALTH
) -> dict:
    """Return one thing that a reset left as it should not be."""
    return {"id": ident, "gpu": gpu, "found": found, "expected": expected, "message": message, "next_step": next_step}


def read_state(gpu: dict) -> dict:
    """Return of one GPU what a reset changes, for the result and its diff."""
    modes = dict((which, gpu_facts.read_mode(gpu, which)) for which in gpu_facts.MODES)
    return dict(
        modes,
        mig_instances=gpu_facts.list_instances(gpu),
        repairs_pending=gpu_facts.list_repairs(gpu),
        recovery_action=value(gpu, "recovery_action"),
        volatile_ecc_errors=gpu_facts.volatile_errors(gpu),
    )


def predict_state(before: dict) -> dict:
    """Return STATE as a reset should leave it."""
    after = dict(before, mig_instances=[], repairs_pending=[])
    for which in gpu_facts.MODES:
        if before[which]:
            after[which] = {"current": before[which]["pending"], "pending": before[which]["pending"]}
    after["recovery_action"] = None if before["recovery_action"] is None else 0
    # Without ECC there is nothing to count.
    after["volatile_ecc_errors"] = 0 if after["ecc_mode"] and after["ecc_mode"]["current"] else None
    return after


def list_evidence(before: dict, after: dict) -> list:
    """Return what only a reset (or a load of the driver) brings about and was seen to happen, of one GPU's states."""
    found = [
        which
        for which in gpu_facts.MODES
        if before[which]
        and after[which]
        and before[which]["current"] != before[which]["pending"]
        and after[which]["current"] == before[which]["pending"]
    ]
    found += ["mig_instances"] * bool(before["mig_instances"] and after["mig_instances"] == [])
    found += ["repairs_pending"] * bool(before["repairs_pending"] and not after["repairs_pending"])
    found += ["recovery_action"] * bool(before["recovery_action"] and after["recovery_action"] == 0)
    found += ["volatile_ecc_errors"] * bool(before["volatile_ecc_errors"] and after["volatile_ecc_errors"] == 0)
    return found


def find_same_gpu(gpu: dict, everyone: list) -> dict | None:
    """Return the GPU of EVERYONE that is this one: by UUID, or where that could not be read, by NVML's index."""
    uuid = value(gpu, "uuid")
    return next(
        (item for item in everyone if (value(item, "uuid") == uuid if uuid else item["index"] == gpu["index"])), None
    )


def missing(before: list, after: list) -> list:
    """Return a problem for each GPU that NVML showed before and does not show, or does not open, now."""
    found = []
    for gpu in before:
        now, name = find_same_gpu(gpu, after), gpu_facts.name_gpu(gpu)
        if now is None:
            found.append(
                make_problem("gpu_missing", "GPU %s was there before the reset and is gone" % name, name, None, name)
            )
        elif gpu_facts.read_code(gpu, "handle") == 0 and gpu_facts.read_code(now, "handle") != 0:
            found.append(
                make_problem(
                    "gpu_lost",
                    "NVML does not open GPU %s any more: %s" % (name, now["handle"].get("error")),
                    name,
                    now["handle"].get("error"),
                    "SUCCESS",
                )
            )
    if len(after) > len(before):
        found.append(
            make_problem(
                "gpu_unexpected",
                "NVML shows %d GPUs after the reset and showed %d before" % (len(after), len(before)),
                None,
                len(after),
                len(before),
            )
        )
    return found


def not_persistent(before: list, after: list, owed: list) -> list:
    """Return a problem for each GPU whose persistence mode has to be on again, as OWED says by name, and is off."""
    names = [(gpu_facts.name_gpu(gpu), find_same_gpu(gpu, after)) for gpu in before]
    return [
        make_problem(
            "persistence_on",
            "persistence mode of GPU %s is off, and was on before the reset" % name,
            name,
            0,
            1,
            "look at nvidia-persistenced.service, and run nvidia-smi -pm 1 -i %s" % name,
        )
        for name, now in names
        if name in owed and now is not None and value(now, "persistence_mode") == 0
    ]


def check_remains(gpu: dict, now: dict) -> list:
    """Return the problems of one GPU that was reset: what still waits, is not as it was wished, or cannot be read."""
    name, before, after, found = gpu_facts.name_gpu(gpu), read_state(gpu), read_state(now), []
    for which in gpu_facts.MODES:
        wanted, has = before[which], after[which]
        if has and has["current"] != has["pending"]:
            found.append(
                make_problem(
                    "mode_pending",
                    "%s of GPU %s still waits: it is %s, and %s is pending"
                    % (which, name, has["current"], has["pending"]),
                    name,
                    has["current"],
                    has["pending"],
                )
            )
        elif has and wanted and has["current"] != wanted["pending"]:
            found.append(
                make_problem(
                    "mode_not_applied",
                    "%s of GPU %s is %s, and %s was pending" % (which, name, has["current"], wanted["pending"]),
                    name,
                    has["current"],
                    wanted["pending"],
                )
            )
    if after["recovery_action"]:
        found.append(
            make_problem(
                "recovery_action",
                "the driver asks for recovery action %s of GPU %s" % (after["recovery_action"], name),
                name,
                after["recovery_action"],
                0,
            )
        )
    if after["repairs_pending"]:
        found.append(
            make_problem(
                "repair_pending",
                "repairs of GPU %s still wait: %s" % (name, ", ".join(after["repairs_pending"])),
                name,
                after["repairs_pending"],
                [],
            )
        )
    if after["mig_instances"]:
        found.append(
            make_problem(
                "instances_left",
                "GPU %s still has its MIG instances, which no reset leaves" % name,
                name,
                len(after["mig_instances"]),
                0,
            )
        )
    if (value(now, "remapped_rows") or {}).get("failure") and not (value(gpu, "remapped_rows") or {}).get("failure"):
        found.append(
            make_problem(
                "remap_failed",
                "a row of GPU %s could not be remapped" % name,
                name,
                True,
                False,
                "take the node out of service; have the GPU replaced",
            )
        )
    keys = gpu_facts.list_unread_keys(now)
    if keys or gpu_facts.RESET_REQUIRED in [gpu_facts.read_code(now, key) for key in ("uuid", "ecc_mode_current")]:
        found.append(
            make_problem(
                "unread",
                "GPU %s does not tell what became of it: %s" % (name, ", ".join(keys) or "it asks for a reset"),
                name,
                keys,
                [],
            )
        )
    return found


def check_kernel_log(log: dict | None, targets: list) -> tuple:
    """Return (problems, warnings) of the kernel log since the reset began.

    An XID that tells that nothing is left to recover speaks for the reset.
    """
    if not log or log.get("watermark") is None:
        return [], ["the kernel log has no position to read on from: whether XIDs came with the reset is not known"]
    warnings = (
        []
        if log["complete"]
        else ["the kernel log since the reset is not complete: %s" % (log["problem"] or "it cannot be told why")]
    )
    names = dict(
        (value(gpu, "pci_bus_id")[-12:], gpu_facts.name_gpu(gpu)) for gpu in targets if value(gpu, "pci_bus_id")
    )
    found = []
    for event in log["events"]:
        whose = event.get("pci")
        told = event["kind"] == "xid" and event.get("xid") == RECOVERY_XID
        recovered = told and (event.get("recovery") or {}).get("to") == 0
        if recovered or event["kind"] not in BAD_EVENTS + ("xid",):
            continue
        if whose is None or whose in names or len(names) < len(targets):
            found.append(
                make_problem(
                    "kernel_log",
                    "the kernel log says since the reset: %s" % event["text"],
                    names.get(whose),
                    event.get("xid") or event["kind"],
                )
            )
    return found, warnings


def make_rows(before: list, plan: dict, after: list, problems: list) -> list:
    """Return one row for each GPU that was to be reset; AFTER is empty where nothing was done or read."""
    broken, found = set(item["gpu"] for item in problems), []
    for gpu in (item for item in before if item["index"] in plan["targets"]):
        name, old, now = gpu_facts.name_gpu(gpu), read_state(gpu), find_same_gpu(gpu, after)
        new = read_state(now) if now else None
        seen = list_evidence(old, new) if new else []
        seen += ["reset_required"] * bool(
            now and "reset_required" in gpu_facts.list_needs(gpu) and "reset_required" not in gpu_facts.list_needs(now)
        )
        status = FAILED if None in broken or name in broken else PROVEN if seen else UNPROVEN
        found.append(
            {
                "gpu": name,
                "uuid": value(gpu, "uuid"),
                "pci_bus_id": value(gpu, "pci_bus_id"),
                "index": gpu["index"],
                "needs": gpu_facts.list_needs(gpu),
                "added": gpu["index"] in plan["added"],
                "before": old,
                "after": new,
                "evidence": seen,
                "status": status,
            }
        )
    return found


def make_planned_rows(before: list, plan: dict, status: str) -> list:
    """Return the rows of GPUs of which nothing was reset: as they are, or in check mode as they would be."""
    return [
        dict(
            row, after=predict_state(row["before"]) if status == PLANNED else row["before"], status=status, evidence=[]
        )
        for row in make_rows(before, plan, [], [])
    ]
