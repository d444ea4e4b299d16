# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of each node: its state, its current and target version, and why it is left out. Pure."""

from __future__ import annotations

import hashlib
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.order import PlanError, natural_key
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import VERSION, Probe

# Steps in which a node may be unreachable for a while: a reload may become a reboot.
REBOOTS = ("reboot", "reload", "rollback_reboot", "rollback_reload")
# Notes on nodes whose driver is rolled back without the earlier kernel: the kernel, and their names.
KERNEL_GONE = (
    "kernel %s, which ran with the earlier driver, is no longer installed on %s: the driver is rolled back, the kernel "
    "stays"
)
KERNEL_UNKNOWN = (
    "it is not known whether kernel %s, which ran with the earlier driver, is still installed on %s: driver_audit did "
    "not list the kernels that can boot. The driver is rolled back, the kernel stays. To roll the kernel back too, "
    "find the cause (driver_audit on the node, /lib/modules and /boot) and plan again before the rollout starts"
)
# A note on nodes that have the driver and are left as they are.
KERNEL_STAYS = "kernel %s is not booted on %s, where the driver is already: the kernel that runs there stays"


def identify_machine(probe: Probe) -> t.Dict[str, str]:
    """Return what is known of a node that tells its machine from others: its system, its board and its GPUs."""
    gpus = sorted(probe.identity.get("gpus") or ())
    found = {key: probe.identity.get(key) for key in ("machine_id", "board_serial")}
    found["gpus"] = hashlib.sha256("\n".join(gpus).encode()).hexdigest()[:16] if gpus else None
    return {key: value for key, value in found.items() if value}


def is_same_machine(before: state.Node, probe: Probe) -> t.Optional[bool]:
    """Return True if the node is the machine that the ledger has under its name, with the same system and GPUs.

    None if that is unknown, as of a node that does not answer, or that has lost a GPU.
    """
    now = identify_machine(probe)
    is_alike = {key: now[key] == before.machine[key] for key in now if key in before.machine}
    if not (is_alike.get("machine_id", True) and is_alike.get("board_serial", True)):
        return False
    return True if is_alike.get("machine_id") and is_alike.get("gpus", True) else None


def find_versions(target: str, targets: t.Optional[t.Mapping[str, str]], names: t.Iterable[str]) -> t.Dict[str, str]:
    """Return the target version of each node; refuse a value that is not a version."""
    wanted = {name: target or (targets or {}).get(name) for name in names}
    for name in names:
        if not VERSION.fullmatch(wanted[name] or ""):
            if not wanted[name]:
                raise PlanError(
                    "No driver version is given for %s. Set nvidia_driver_version (or rollout_version), such as "
                    "535.261.03. Nothing was changed." % name
                )
            raise PlanError(
                "The driver version of %s is %r; expected digits and dots, such as 535.261.03, or a package version "
                "such as 535.261.03-1. Correct rollout_version or nvidia_driver_version. Nothing was changed."
                % (name, wanted[name])
            )
    return wanted


def kept_version(probe: Probe, before: t.Optional[state.Node]) -> t.Optional[str]:
    """Return the version that stays where only a MIG layout is wanted.

    It is that of the node, or the one that an earlier run found on a node that it left unproven.
    """
    return before.from_version or probe.version if before is not None and state.is_unproven(before) else probe.version


def describe_target(to_version: t.Optional[str], layout: t.Optional[t.Mapping[str, t.Any]], driver: bool = True) -> str:
    """Return the target of a node in words. DRIVER: False if only a MIG layout is wanted."""
    parts = [to_version or "unknown"] if driver or not layout else []
    return " and ".join(parts + (["MIG layout %s" % layout["name"]] if layout else []))


def _has_layout(probe, layout, before) -> bool:
    """Return True if the node has the wanted layout. If it was not read, this rollout must have created it."""
    if not layout or probe.layout:
        return True
    if probe.layout is not None or before is None:
        return False
    return before.state == "done" and before.layout == layout and bool(is_same_machine(before, probe))


def _classify_failure(found, before) -> tuple[str, str]:
    """Return (class, signature) of a node in the failed state FOUND: sick, unless an earlier run changed the node."""
    if before is not None and before.state in state.FAILED:
        return before.failure or state.HARD, before.signature
    if before is not None and before.state in state.IN_FLIGHT:
        return state.LOST if found == "lost" else state.HARD, before.signature
    return state.SICK, ""


def _was_brought(before, to_version, layout) -> bool:
    """Return True if this rollout brought the node to its target and proved it, also if it was found sick, away or in
    quarantine since.
    """
    if before is None or before.to_version != to_version or before.layout != (layout or {}):
        return False
    return before.state == "done" or before.state in state.FAILED and before.failure == state.SICK and before.proven


def _plan_finished(probe, to_version, before, layout, driver) -> dict:
    """Return the plan of a node that is at its target: done if this rollout proved it, else by its verdict now.

    An unknown verdict does not cancel an earlier proof of the same machine, since not everything can be read on a node
    in use. A failed verdict does, until one passes.
    """
    brought = _was_brought(before, to_version, layout)
    mine = {"from": before.from_version, "from_kernel": before.from_kernel} if brought else {}
    stays = brought and before.state == "done" and probe.verdict != "fail" and is_same_machine(before, probe)
    if brought and (probe.verdict == "pass" or stays):
        return dict(mine, state="done")
    if probe.verdict == "pass":
        return {"state": "skipped", "reason": "already at %s" % describe_target(to_version, layout, driver)}
    if brought:
        reason = "was done earlier, and now: %s" % (probe.complaint or "its health is not known")
        return {"state": "failed", "reason": reason}
    return {
        "state": "failed",
        "reason": "already at %s, and not proven: %s"
        % (describe_target(to_version, layout, driver), probe.complaint or "its GPUs were not checked"),
    }


def _find_version(probe, to_version) -> str | None:
    """Return the version of the node, as a package version if the target is one, else as a driver version."""
    return probe.package or probe.version if "-" in to_version else probe.version


def _find_version_before(before, present, kernel) -> dict:
    """Return the version and kernel that an earlier run found on a node before its change, else those found now."""
    return {"from": before.from_version or present, "from_kernel": before.from_kernel or kernel}


def set_kernels(
    nodes: t.Dict[str, t.Dict[str, t.Any]], probes: t.Iterable[Probe], wanted: t.Mapping[str, str]
) -> t.List[str]:
    """Set the kernel of each node in the plan that has to boot another one; return notes on the other nodes.

    WANTED: for each node the kernel that ran with the version to which it is rolled back.
    """
    gone: t.Dict[str, t.List[str]] = {}
    unknown: t.Dict[str, t.List[str]] = {}
    stays: t.Dict[str, t.List[str]] = {}
    for probe in probes:
        kernel, entry = wanted.get(probe.name), nodes[probe.name]
        if not kernel or probe.kernel == probe.next_kernel == kernel:
            continue
        if not (entry["state"] == "pending" or entry.get("orphaned")):
            if (
                entry["state"] in ("done", "skipped")
                and probe.kernel not in (None, "", kernel)
                and not entry.get("order")
            ):
                stays.setdefault(kernel, []).append(probe.name)
        elif kernel in (probe.kernels or ()):
            entry["to_kernel"] = kernel
        else:
            (unknown if probe.kernels is None else gone).setdefault(kernel, []).append(probe.name)
    return [
        words % (kernel, limits.list_names(sorted(names, key=natural_key)))
        for words, found in ((KERNEL_GONE, gone), (KERNEL_UNKNOWN, unknown), (KERNEL_STAYS, stays))
        for kernel, names in sorted(found.items())
    ]


def require_kernel(
    kernel: str, nodes: t.Mapping[str, t.Mapping[str, t.Any]], probes: t.Iterable[Probe], driver: t.Mapping[str, bool]
) -> None:
    """Refuse a kernel that is to boot with the driver and is not installed on a node that is to get it."""
    going = [probe for probe in probes if nodes[probe.name]["state"] == "pending" or nodes[probe.name].get("orphaned")]
    if not any(driver.values()):
        raise PlanError(
            "rollout_kernel is %s, and no node gets a driver. Set rollout_version, or leave rollout_kernel out. "
            "Nothing was changed." % kernel
        )
    lacking = [probe.name for probe in going if driver[probe.name] and kernel not in (probe.kernels or ())]
    if lacking:
        found = sorted(
            {one for probe in going if probe.name in lacking for one in probe.kernels or ()}, key=natural_key
        )
        raise PlanError(
            "Kernel %s (rollout_kernel) is not installed on %s: there is %s. Stage it first (role kernel_hold, "
            "tasks_from upgrade, with kernel_hold_driver_version), or leave rollout_kernel out. Nothing was changed."
            % (kernel, limits.list_names(sorted(lacking, key=natural_key)), ", ".join(found) or "none that is known")
        )


def is_lost(node: state.Node) -> bool:
    """Return True if an earlier run lost the node after a change: what runs on it is not proven."""
    return node.state == "lost" and state.is_unproven(node)


def _plan_unfinished(before, present, to_version) -> dict | None:
    """Return the plan of a node that an earlier run of this rollout left unfinished; None for any other node."""
    if before is None:
        return None
    if before.state in state.IN_FLIGHT:
        return {"orphaned": True}
    if is_lost(before):
        return {"orphaned": True, "again": "lost, %s" % before.reason}
    if present == to_version and state.awaits_resume(before):
        return {"orphaned": True, "again": "the resume in its schedulers failed"}
    return None


def _from_the_beginning(probe, before) -> str:
    """Return why the node is changed from the beginning whatever its version; empty if its version may be enough."""
    if probe.unproven_in:
        return "changed in rollout %s, and not proven since" % probe.unproven_in
    if before is not None and state.is_unproven(before):
        # Its quarantine marker was removed, or it was retired and is there again: it was repaired, and its baseline may
        # not match its hardware any more. That holds until it is proven, also if a run ended before its turn.
        return "%s, %s" % (before.state, before.reason or "changed in an earlier run and not proven since")
    return ""


def _left_rebooting(before) -> bool:
    """Return True if a controller died while the node rebooted. The gate then waits for the node to answer."""
    return (
        before is not None
        and before.state in state.IN_FLIGHT
        and bool(before.steps)
        and before.steps[-1].name in REBOOTS
    )


def _has_other_board(probe, before) -> bool:
    """Return True if the machine that was in the middle of a change is another one: its board has another number."""
    serials = [probe.identity.get("board_serial"), before.machine.get("board_serial")] if before is not None else []
    is_changing = before is not None and before.state in state.IN_FLIGHT and before.state != "draining"
    return is_changing and all(serials) and serials[0] != serials[1]


def _out_of_reach(probe, before) -> dict[str, str] | None:
    """Return the plan of a node that does not answer, is another machine, or is in quarantine; None for any other."""
    if _has_other_board(probe, before):
        return {
            "state": "lost",
            "reason": "another machine has its name: board %s, and the one that was %s had board %s. It was not "
            "touched. Correct the address, or run again to upgrade it from the beginning"
            % (probe.identity["board_serial"], before.state, before.machine["board_serial"]),
        }
    if not probe.reachable and not _left_rebooting(before):
        return {"state": "lost", "reason": "did not answer before the rollout: %s" % (probe.error or "unreachable")}
    if probe.quarantined and before is not None and before.state == "quarantined" and before.reason:
        return {"state": "quarantined", "reason": before.reason}  # the cause, and not that there is one
    if probe.quarantined:
        return {
            "state": "quarantined",
            "reason": "was quarantined before: %s (repair it, then run return_to_service)"
            % (probe.quarantined.rstrip(". ")),
        }
    return None


def _find_obstacle(probe, to_version, before, wanted) -> str:
    """Return why a node that answers must not be changed; empty if it may be."""
    if probe.error:
        return "could not be examined: %s" % probe.error
    if not probe.version:
        return (
            "no driver was found to roll back to if %s fails: install one first (gpufleet.lifecycle.bringup)" % wanted
        )
    proven = before is not None and before.state == "done" and _find_version(probe, to_version) == to_version
    return "" if proven else probe.lacks


def entry_of(
    probe: Probe,
    to_version: t.Optional[str],
    before: t.Optional[state.Node],
    going_on: bool,
    layout: t.Optional[t.Dict[str, t.Any]] = None,
    driver: bool = True,
) -> t.Dict[str, t.Any]:
    """Return the plan of one node. GOING_ON: the run before was interrupted, and its requests and results still count.

    LAYOUT: the wanted MIG layout. Without DRIVER only the layout is wanted, and TO_VERSION is the version that stays.
    """
    is_other = before is not None and before.state not in state.IN_FLIGHT and is_same_machine(before, probe) is False
    entry = _plan_node(probe, to_version, None if is_other else before, going_on, layout, driver)
    entry["machine"] = dict(before.machine if before is not None and not is_other else {}, **identify_machine(probe))
    if _has_other_board(probe, before):
        entry["machine"] = dict(before.machine)  # the one that is lost
    if is_other:
        entry["replaced"] = True  # the steps of the machine before are none of this one
    elif entry["state"] in state.FAILED and _was_brought(before, to_version, layout):
        # Its steps are kept: a rollback needs its earlier version, and the next run the proof.
        entry.update(_find_version_before(before, entry["from"], entry["from_kernel"]), kept=True)
    if is_other and entry["state"] == "pending":
        entry.setdefault("again", "another machine has its name now")
    return entry


def _plan_node(
    probe: Probe,
    to_version: t.Optional[str],
    before: t.Optional[state.Node],
    going_on: bool,
    layout: t.Optional[t.Dict[str, t.Any]],
    driver: bool,
) -> t.Dict[str, t.Any]:
    """Return the plan of a node that is the machine of BEFORE, as far as is known."""
    present = _find_version(probe, to_version or "")
    entry = {
        "from": present,
        "to": to_version,
        "from_kernel": probe.kernel,
        "domains": dict(probe.domains),
        "state": "pending",
        "reason": "",
    }
    mine = before is not None and before.state in ("failed", "rolled_back") and before.failure != state.SICK
    away, unfinished, fresh = (
        _out_of_reach(probe, before),
        _plan_unfinished(before, present, to_version),
        _from_the_beginning(probe, before),
    )
    if before is not None and (state.is_unproven(before) or not probe.reachable):
        entry.update(_find_version_before(before, present, probe.kernel))  # for a later rollback
    if away:
        entry.update(away)
    elif unfinished:
        entry.update(unfinished, **_find_version_before(before, present, probe.kernel))
    elif going_on and before is not None and before.state == "skipped" and before.order:
        entry.update(state="skipped", reason=before.reason, order=before.order)
    elif _find_obstacle(probe, to_version, before, describe_target(to_version, layout, driver)):
        entry.update(
            state="failed",
            reason=_find_obstacle(probe, to_version, before, describe_target(to_version, layout, driver)),
        )
    elif fresh:
        entry.update(again=fresh)
    elif present == to_version and _has_layout(probe, layout, before):
        entry.update(_plan_finished(probe, to_version, before, layout, driver))
    elif mine and going_on:
        entry.update(state=before.state, reason=before.reason, kept=True)
    elif mine or before is not None and state.held_by_schedulers(before):
        entry.update(again="%s, %s" % (before.state, before.reason))
    if entry["state"] in state.FAILED:
        entry["failure"], entry["signature"] = _classify_failure(entry["state"], before)
    if layout:
        # An installed version is not installed again, unless an earlier change left its state unknown.
        entry.update(layout=layout, install=driver and (entry["from"] != to_version or bool(fresh)))
    return entry


def kept_entry(node: state.Node) -> t.Dict[str, t.Any]:
    """Return the entry of a node that stays as it is in the ledger."""
    in_flight = node.state in state.IN_FLIGHT
    return {
        "from": node.from_version,
        "to": node.to_version,
        "from_kernel": node.from_kernel,
        "domains": dict(node.domains),
        "state": node.state,
        "reason": node.reason,
        "failure": node.failure,
        "signature": node.signature,
        "order": node.order,
        "canary": node.canary,
        "layout": dict(node.layout),
        "install": node.install,
        "to_kernel": node.to_kernel,
        "machine": dict(node.machine),
        "kept": True,
        **({"orphaned": True} if in_flight else {}),
    }


def find_absent(
    previous: t.Any, names: t.Container[str], abandoned: t.Container[str], going_on: bool
) -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return nodes of an earlier run of this rollout that are not among its nodes now, but still count.

    Nodes out of service hold their slots. If the run was interrupted (GOING_ON), its failures count in this one.
    """
    entries = {}
    for node in previous.nodes.list_all() if previous else []:
        if node.name in names:
            continue
        entry = dict(kept_entry(node), failure=node.failure or state.SICK, order="", canary=False, to_kernel="")
        del entry["kept"]
        if node.state in state.OUT_OF_SERVICE:
            entries[node.name] = entry
        elif node.state in state.IN_FLIGHT and node.name not in abandoned:
            raise PlanError(
                "%s was in flight (%s%s) when its run was interrupted, and is not among the nodes of this run. Add it "
                "(inventory, --limit), or abandon it with rollout_abandon. Nothing was changed."
                % (node.name, node.state, ", in step %s" % node.steps[-1].name if node.steps else "")
            )
        elif node.state in state.IN_FLIGHT:
            entries[node.name] = dict(
                entry,
                orphaned=False,
                state="lost",
                reason="abandoned: it was %s when its run was interrupted" % node.state,
                failure=state.LOST,
            )
        elif going_on and node.state in state.FAILED and node.failure != state.SICK:
            entries[node.name] = dict(entry, kept=True)
    return entries
