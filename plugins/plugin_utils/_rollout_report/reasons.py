# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reasons for the verdict on a rollout, what keeps its nodes from starting, and the next steps. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report.words import NEXT_STEP, WORST


def _names(nodes):
    return limits.listed(node.name for node in nodes)


def left_out(view):
    """Return the nodes that an operator skipped; other skipped nodes had nothing to do."""
    return [node for node in view.nodes.having("skipped") if node.order]


def reasons(view, verdict, spent, absent=()):
    """Return the reasons for the verdict, the most important first."""
    counts = view.nodes.count()
    found = _brakes(view, verdict, spent)
    for name in WORST:
        nodes = view.nodes.having(name)
        if nodes:
            found.append("%s %s: %s." % (text.count(len(nodes), "node"), name.replace("_", " "), _names(nodes)))
    flying = [node for node in view.nodes.having(*state.IN_FLIGHT) if not node.orphaned]
    for nodes, words in (
        (view.nodes.orphaned(), "in flight when the controller died"),
        (flying, "in flight" if verdict == "running" else "left in flight"),
        (view.nodes.having("pending"), "did not start yet" if verdict == "running" else "did not start"),
    ):
        if nodes:
            found.append("%s %s: %s." % (text.count(len(nodes), "node"), words, _names(nodes)))
    over = counts.get("done", 0) + counts.get("skipped", 0)
    without = left_out(view)
    if without:
        found.append(
            "%s left out by an operator, and still at its old version: %s."
            % (
                text.count(len(without), "node"),
                limits.listed("%s (%s)" % (node.name, node.order.rstrip(".")) for node in without),
            )
        )
    if verdict == "complete":
        found.append(
            "Every %snode is done or had nothing to do: %d done, %d skipped."
            % ("other " if without else "", counts.get("done", 0), counts.get("skipped", 0) - len(without))
        )
    elif not counts:
        found.append("No node was planned.")
    elif over:
        found.append("%d of %s done or skipped." % (over, text.count(sum(counts.values()), "node")))
    if absent:
        states = {}
        for node in absent:
            states[node.state] = states.get(node.state, 0) + 1
        found.append(
            "%s of earlier runs %s not part of this one: %s."
            % (
                text.count(len(absent), "node"),
                "was" if len(absent) == 1 else "were",
                ", ".join("%d %s" % (states[name], name.replace("_", " ")) for name in state.STATES if name in states),
            )
        )
    return found


def brakes(view):
    """Return what keeps further nodes from starting while a rollout runs, with the next steps."""
    spent = limits.spent(view.policy, view.nodes.having(*state.FAILED), view.attempted) if view.policy else ""
    found = _brakes(view, "running", spent)
    return found + _releases(view, spent) if found else []


def _brakes(view, verdict, spent):
    """Return what keeps nodes from starting."""
    found = []
    if view.stopped:
        found.append("Stopped by %s." % view.stopped)
    if view.refused:
        found.append("The plan was refused, so only nodes in flight are finished: %s" % view.refused)
    if spent:
        found.append("No further node starts: %s." % spent)
    if view.policy.get("approved") == "":
        found.append("This plan is not approved, so no node starts.")
    if view.paused and verdict == "running":
        found.append("Paused by %s." % view.paused)
    if view.held and verdict == "running":
        found.append("Held: %s." % view.held_reason.rstrip("."))
    return found


def _releases(view, spent):
    """Return the next steps for what keeps nodes from starting while a rollout runs."""
    found = []
    if view.paused:
        found.append("Nodes in flight finish. To continue: rollout_control with rollout_verb=resume.")
    if view.held:
        found.append(
            "Nodes in flight finish. The queries are sent again automatically; to continue without them: "
            "rollout_control with rollout_verb=set_budget and rollout_limits={\"holds\": {}}."
        )
    if spent or view.stopped:
        found.append("Let the nodes in flight finish; then the rollout ends.")
    return found


def next_steps(view, verdict, spent, several=False):
    """Return the next steps for the reader, the most urgent first. SEVERAL: of a plan for several controllers."""
    found = [
        "%s (%s): %s" % (_names(nodes), name.replace("_", " "), NEXT_STEP[name])
        for name in WORST
        for nodes in [view.nodes.having(name)]
        if nodes
    ]
    if verdict == "running":
        return found + _releases(view, spent)
    if view.nodes.orphaned() or view.nodes.having(*state.IN_FLIGHT):
        found.insert(
            0,
            "Run the same %s again: first it examines the nodes that were left in flight, and finishes "
            "them or rolls them back." % ("jobs, over the same hosts," if several else "playbook",),
        )
    if view.nodes.having("pending"):
        found.append(
            "The nodes that did not start serve as before. %s to continue%s. Or roll back the nodes that are done with "
            "gpufleet.lifecycle.rollback."
            % (
                ("When the cause is known, run the same playbook again", "Run the jobs that have them")[several],
                ", with a larger budget if you want that" if spent else "",
            )
        )
    if left_out(view):
        found.append(
            "%s (left out by an operator): %s."
            % (
                _names(left_out(view)),
                "the next run includes it, unless it is skipped again"
                if view.finished
                else (
                    "to include it in the next run, which continues this one: rollout_control with rollout_verb=retry"
                ),
            )
        )
    return found
