# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the ledger requires before it records the final state of a node. Pure.

A driver version is not a proof. A node that was changed is done, or rolled back, only with a passed verdict of the
health gate from after its last change. The task that reports the final state sends this verdict. The steps in the
ledger take precedence over what the task reports.
"""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.versions import upstream
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state, tickets
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.steps import CHANGING, STOPPED, reached

# The document that holds the verdict, and the phases of gpu_health in which a node is compared with its baseline.
DOCUMENT = "health-after"
PHASES = ("post", "soak")


def require_version(node, version):
    """Refuse another version than the plan's. VERSION: the version that the role was given; empty if none."""
    if version and version != node.to_version:
        raise tickets.StateError(
            "gpu_node_upgrade_version of %s is %s; expected %s, the version of the plan. Leave that variable out, on "
            "the command line (-e) too. Nothing was changed by this step." % (node.name, version, node.to_version)
        )


def require_end(node, ended, documents):
    """Refuse a final state that contradicts the steps of the node, or whose proof is missing in DOCUMENTS."""
    far = reached([step.name for step in node.steps])
    if ended in ("skipped", "pending") and far or ended == "failed" and far not in ("", STOPPED):
        raise tickets.StateError(
            "%s cannot end as %s, which means that nothing was changed on it: %s. Expected done, rolled_back, "
            "quarantined or lost. The next run of the rollout examines the "
            "node." % (node.name, ended, _last_change(node))
        )
    if ended not in state.PROVEN:
        return
    wrong = missing(node, documents.get(DOCUMENT), node.to_version if ended == "done" else None)
    if wrong:
        raise tickets.StateError(
            "%s cannot end as %s: %s. Expected the result of gpu_health after its last change, in the document %s, "
            "with verdict pass. The next run of the rollout examines the node." % (node.name, ended, wrong, DOCUMENT)
        )


def missing(node, health, version=None):
    """Return why HEALTH, a document of the schema gpufleet.health/1, is no proof of the node; empty if it is one.

    VERSION: the driver or package version that has to run (None: any).
    """
    if not isinstance(health, dict) or not health:
        return "there is no verdict on it"
    if health.get("verdict") != "pass":
        return "its verdict is %s" % (health.get("verdict") or "unknown")
    if health.get("phase") not in PHASES:
        return "its verdict is of phase %s, in which it was not compared with its baseline" % (
            health.get("phase") or "unknown"
        )
    if health.get("node") != node.name:
        return "the verdict is on %s" % (health.get("node") or "an unknown node")
    expected = (health.get("driver") or {}).get("expected")
    if not expected or version and expected != upstream(version):
        return "the verdict is on driver %s" % (expected or "unknown")
    changed = _changed_at(node)
    if changed and (health.get("time") or "")[:19] < changed[:19]:  # to the second, as in a verdict
        return "the verdict is of %s, and %s" % (health.get("time") or "an unknown time", _last_change(node))
    return ""


def unproven_elsewhere(mine, others):
    """Return for each node the other rollout that changed it last and left it unproven.

    MINE: the nodes of this rollout before this run, by name. OTHERS: (rollout id, node) of other rollouts.
    """
    latest = {name: (last_change(node), "", node) for name, node in mine.items() if last_change(node)}
    for rollout_id, node in others:
        found = last_change(node)
        if found and found > latest.get(node.name, ("",))[0]:
            latest[node.name] = (found, rollout_id, node)
    return {
        name: rollout_id for name, (dummy, rollout_id, node) in latest.items() if rollout_id and state.unproven(node)
    }


def last_change(node):
    """Return when the last step that changes the node began; empty if none did."""
    return max((step.started for step in node.steps if step.name in CHANGING), default="")


def _changed_at(node):
    """Return the time of the last change in this attempt. Earlier attempts may have times of another clock."""
    if not node.began:
        return ""
    return max(
        [step.started for step in node.steps if step.name in CHANGING and step.started >= node.began] + [node.began]
    )


def _last_change(node):
    steps = [step for step in node.steps if step.name in CHANGING]
    return (
        "step %s began at %s" % (steps[-1].name, steps[-1].started) if steps else "it got its ticket at %s" % node.began
    )
