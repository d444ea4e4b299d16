# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the ledger requires before it records the final state of a node. Pure.

A driver version is not a proof. A node that was changed is done, or rolled back, only with a passed verdict of the
health gate from after its last change. The task that reports the final state sends this verdict. The steps in the
ledger take precedence over what the task reports.

Nor is a verdict a proof of a MIG layout, since it compares the GPUs with what was read after the layout was made. Where
the plan wants one, a node is done only with what gpu_mig read back in the step of this attempt that made it.
"""

from __future__ import annotations

import json

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.versions import upstream
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _gpu_use
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.state import CHANGING, STOPPED
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import entries
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe

# The document that holds the verdict, and the phases of gpu_health in which a node is compared with its baseline.
DOCUMENT = "health-after"
PHASES = ("post", "soak")
# The documents of the node before its change: the verdict that lets it go down, and what was read for it.
BEFORE, BASELINE = "health-before", "baseline"
# The document that holds the MIG layout that was made, the step that makes it, and the states in the result of gpu_mig
# of a GPU that has it.
LAYOUT_DOCUMENT, LAYOUT_STEP, LAID_OUT = "layout-after", "mig", ("same", "changed")


def require_as_planned(node, policy, given) -> None:
    """Refuse another change than the plan's.

    GIVEN: the options of rollout_gate and rollout_step about it. An option that is None, or an empty version or
    on_failure, was not given by the role.
    """
    for name, value, expected, what in (
        ("version", given["version"] or None, node.to_version, str),
        ("on_failure", given["on_failure"] or None, policy.get("on_failure") or given["on_failure"], str),
        ("layout", given["layout"], node.layout, _layout_name),
        ("install", given["install"], node.install, json.dumps),
        ("kernel", given["kernel"], node.to_kernel, lambda value: value or "empty"),
        ("peers", given["peers"], node.peers, lambda value: json.dumps(value, sort_keys=True)),
    ):
        if value is not None and not _is_same(value, expected):
            raise state.StateError(
                "gpu_node_upgrade_%s of %s is %s; expected %s, as in the plan. Leave that variable out, on the command "
                "line (-e) and in vars of import_playbook too. Nothing was changed by this step."
                % (name, node.name, what(value), what(expected) + _describe_difference(what, value, expected))
            )


def require_way_back(node, previous, baseline) -> None:
    """Refuse a rollback to another version than the one that ran before the change.

    PREVIOUS: the version that the role is about to install; empty if it installs none. BASELINE: the node before the
    change, as the ledger has it; None if it has none.
    """
    versions = ((baseline or {}).get("audit") or {}).get("versions") or {}
    expected = {node.from_version, versions.get("loaded"), versions.get("package")} - {None, ""}
    if previous and previous not in expected:
        raise state.StateError(
            "%s would be rolled back to driver %s; expected %s, which ran before the change. Nothing was changed by "
            "this step." % (node.name, previous, " or ".join(sorted(expected)) or "none, since none is recorded")
        )


def _layout_name(layout) -> str:
    return str(layout.get("name") or "a layout without a name") if layout else "empty"


def _describe_difference(what, value, expected) -> str:
    return " with another content" if what(value) == what(expected) else ""


def _is_same(one, other) -> bool:
    """Return True if both are the same, whether they were read from a ledger or made by a template."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def require_end(node, ended, documents) -> None:
    """Refuse a final state that contradicts the steps of the node, or whose proof is missing in DOCUMENTS."""
    far = state.find_progress(node)
    if ended in ("skipped", "pending") and far or ended == "failed" and far not in ("", STOPPED):
        raise state.StateError(
            "%s cannot end as %s, which means that nothing was changed on it: %s. Expected done, rolled_back, "
            "quarantined or lost. The next run of the rollout examines the "
            "node." % (node.name, ended, _last_change(node))
        )
    if ended not in state.PROVEN:
        return
    planned = (node.to_version, node.to_kernel) if ended == "done" else (None, "")
    wrong = find_missing_proof(node, documents.get(DOCUMENT), *planned)
    if wrong:
        raise state.StateError(
            "%s cannot end as %s: %s. Expected the result of gpu_health after its last change, in the document %s, "
            "with verdict pass. The next run of the rollout examines the node." % (node.name, ended, wrong, DOCUMENT)
        )
    wrong = unlike_layout(node, documents.get(LAYOUT_DOCUMENT)) if ended == "done" else ""
    if wrong:
        raise state.StateError(
            "%s cannot end as %s: %s. Expected that gpu_mig made MIG layout %s in step %s of this attempt, and its "
            "result in the document %s. The next run of the rollout examines the node."
            % (node.name, ended, wrong, _layout_name(node.layout), LAYOUT_STEP, LAYOUT_DOCUMENT)
        )


def unlike_layout(node, made) -> str:
    """Return why MADE is no proof that the node has the MIG layout of the plan; empty if it is one, or none is wanted.

    MADE: {"layout", "gpus"}, the layout that was made, and the rows of the result of gpu_mig.
    """
    if not node.layout:
        return ""
    if not any(step.name == LAYOUT_STEP and step.sequence >= node.granted for step in node.steps):
        return "no MIG layout was made in this attempt"
    if not isinstance(made, dict) or not made.get("layout"):
        return "there is no result of a MIG layout"
    if not _is_same(made["layout"], node.layout):
        return "the result is of MIG layout %s" % (_layout_name(made["layout"]),)
    gpus = [gpu if isinstance(gpu, dict) else {} for gpu in made.get("gpus") or []]
    if not gpus:
        return "the result of the MIG layout names no GPU"
    bad = [gpu for gpu in gpus if gpu.get("status") not in LAID_OUT]
    return "GPU %s is %s" % (bad[0].get("gpu") or "unknown", bad[0].get("status") or "unknown") if bad else ""


def unfit_to_go_down(node, health, baseline) -> str:
    """Return why a node may not go down by its documents in the ledger; empty if the planned machine was found fit and
    idle.

    HEALTH and BASELINE: the documents BEFORE and BASELINE; None if the ledger has none.
    """
    wrong = _no_verdict(node, health) or (
        "the verdict is of phase %s" % (health.get("phase") or "unknown") if health.get("phase") != "baseline" else ""
    )
    wrong = wrong or _too_early(node, health, node.granted)
    if wrong:
        return "not found fit before the change: %s" % wrong
    snapshot = baseline.get("snapshot") if isinstance(baseline, dict) else None
    if not isinstance(snapshot, dict):
        return "not found idle before the change: there is no baseline of it"
    identity = (baseline.get("audit") or {}).get("identity") or {}
    if entries.is_same_machine(node, Probe(node.name, identity=identity)) is False:
        return "another machine has its name than the one that was planned; correct its address, or run again"
    return _gpu_use.in_use(snapshot.get("gpus"))


def _no_verdict(node, health) -> str:
    """Return why HEALTH is no passed verdict on the node; empty if it is one."""
    if not isinstance(health, dict) or not health:
        return "there is no verdict on it"
    if health.get("verdict") != "pass":
        return "its verdict is %s" % (health.get("verdict") or "unknown")
    return "" if health.get("node") == node.name else "the verdict is on %s" % (health.get("node") or "an unknown node")


def find_missing_proof(node, health, version=None, kernel="") -> str:
    """Return why HEALTH, a document of the schema gpufleet.health/1, is no proof of the node; empty if it is one.

    VERSION: the driver or package version that has to run (None: any). KERNEL: the kernel (empty: any).
    """
    wrong = _no_verdict(node, health)
    if wrong:
        return wrong
    if health.get("phase") not in PHASES:
        return "its verdict is of phase %s, in which it was not compared with its baseline" % (
            health.get("phase") or "unknown"
        )
    expected = (health.get("driver") or {}).get("expected")
    if not expected or version and expected != upstream(version):
        return "the verdict is on driver %s" % (expected or "unknown")
    if kernel and health.get("kernel") != kernel:
        return "kernel %s ran, and %s is planned" % (health.get("kernel") or "unknown", kernel)
    return _too_early(node, health, max(last_change(node), node.granted))


def _too_early(node, health, last) -> str:
    """Return why a verdict is not from after the transaction with the number LAST; empty if it is.

    The verdict has the number of the step or grant that it was made in, which no clock decides.
    """
    number = health.get("sequence")
    if isinstance(number, bool) or not isinstance(number, int) or number < last:
        return "the verdict has the number %s, and %s, with the number %d" % (number, _last_change(node), last)
    return ""


def unproven_elsewhere(mine, others) -> dict:
    """Return for each node the other rollout that changed it last and left it unproven.

    MINE: the nodes of this rollout before this run, by name. OTHERS: (rollout id, node) of other rollouts.
    """
    latest = {name: (last_change(node), "", node) for name, node in mine.items() if last_change(node)}
    for rollout_id, node in others:
        found = last_change(node)
        if found and found > latest.get(node.name, (0,))[0]:
            latest[node.name] = (found, rollout_id, node)
    return {
        name: rollout_id for name, (dummy, rollout_id, node) in latest.items() if rollout_id and state.is_unproven(node)
    }


def last_change(node) -> int:
    """Return the number of the last step that changes the node; 0 if none began."""
    return max((step.sequence for step in node.steps if step.name in CHANGING), default=0)


def _last_change(node) -> str:
    steps = [step for step in node.steps if step.name in CHANGING]
    return (
        "step %s began at %s" % (steps[-1].name, steps[-1].started) if steps else "it got its ticket at %s" % node.began
    )
