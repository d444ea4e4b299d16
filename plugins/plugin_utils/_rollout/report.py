# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened, as a document, a table, Markdown and JUnit XML. Pure.

Private to the collection: it may change at any time.

The verdict and why it is so come first in all of them.
"""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import junit, markdown, text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import estimate, limits, state, timeline

SCHEMA = "gpufleet.report/1"
# More nodes than these are counted instead of listed, where nothing is wrong with them.
LISTED = 300
# What to do about a node, and whether it serves.
NEXT_STEP = {
    "lost": "Is it on, does it answer ssh? Then run the same playbook again: it looks at the node before anything else.",
    "quarantined": "Keep it out of service. Read quarantine.json on the node (in /var/lib/gpufleet) and have its hardware looked at. Where there is none, "
                   "its schedulers alone keep it out: see why they did not take it back, then run the same playbook again.",
    "rolled_back": "Nothing tonight: it serves with the driver it had, which was proven. Clear the cause before it is tried again (rollout_control, retry).",
    "failed": "Nothing was changed on it and it serves as before. Clear the cause, then run the same playbook again.",
}
SERVES = {"lost": "unknown", "quarantined": "no", "rolled_back": "yes, as before", "failed": "as before"}
WORST = ("lost", "quarantined", "failed", "rolled_back")


def document(view, ended, time=None, last_event=None):
    """The report of a rollout; ENDED says whether its last play has been reached, TIME is now as the ledger spells it."""
    verdict = state.verdict(view, ended)
    failed = view.nodes.having(*state.FAILED)
    spent = limits.spent(view.policy, failed, view.attempted) if view.policy else ""
    counts = view.nodes.count()
    return {
        "verdict": verdict,
        "reasons": reasons(view, verdict, spent),
        "next_steps": next_steps(view, verdict, spent),
        "schema": SCHEMA,
        "rollout_id": view.rollout_id,
        "time": time or view.finished or view.started,
        "started": view.started,
        "finished": view.finished,
        "last_event": last_event or view.finished or view.started,
        "target": view.target,
        "sha256": view.sha256,
        "counts": {name: counts[name] for name in state.STATES if counts.get(name)},
        "left_out": [node.name for node in left_out(view)],
        "paused": view.paused,
        "stopped": view.stopped,
        "held": list(view.held),
        "spent": spent,
        "budgets": budgets(view, failed),
        "estimate": None if ended or verdict != "running" else left(view, time),
        "policy": view.policy,
        "nodes": {node.name: _node(node) for node in view.nodes.everything()},
    }


def left_out(view):
    """Nodes that an operator skipped; the others that are skipped had nothing to do."""
    return [node for node in view.nodes.having("skipped") if node.order]


def _node(node):
    return {
        "state": node.state,
        "from": node.from_version,
        "to": node.to_version,
        "reason": node.reason,
        "failure": node.failure,
        "domains": node.domains,
        "canary": node.canary,
        "attempt": node.attempt,
        "suspect": node.suspect,
        "ended": node.ended,
        "steps": [{"name": step.name, "started": step.started, "finished": step.finished, "status": step.status} for step in node.steps],
    }


def budgets(view, failed):
    """How much of each budget is used, and of how much."""
    policy = view.policy
    down = len(view.nodes.having(*(state.NOT_SERVING + state.OUT_OF_SERVICE)))
    return {
        "down": {"used": down + policy.get("broken_elsewhere", 0), "limit": policy.get("max_down"), "window": view.window},
        "draining": {"used": len(view.nodes.having("draining")), "limit": policy.get("max_draining")},
        "failures": {"used": sum(timeline.failure_weight(node) for node in failed), "limit": policy.get("failure_budget")},
    }


def left(view, time):
    """The estimate of what is left; none while there is nothing to make it from."""
    if not view.policy or not time:
        return None
    now = timeline.seconds(time)
    took = [timeline.seconds(node.ended) - timeline.seconds(node.steps[0].started) for node in view.nodes.having("done") if node.ended and node.steps]
    ages = [now - timeline.seconds(node.steps[0].started) if node.steps else 0.0 for node in view.nodes.having(*state.IN_FLIGHT)]
    slots = view.policy["max_down"] - len(view.nodes.having(*state.OUT_OF_SERVICE)) - view.policy["broken_elsewhere"]
    expected, bound = estimate.remaining(len(view.nodes.having("pending")), ages, slots, took, view.policy["node_s"])
    return {"expected_s": round(expected), "lower_bound_s": round(bound), "measured": len(took)}


def _names(nodes):
    return limits.listed(node.name for node in nodes)


def reasons(view, verdict, spent):
    """Why the verdict is what it is, the most important first."""
    counts = view.nodes.count()
    found = _brakes(view, verdict, spent)
    for name in WORST:
        nodes = view.nodes.having(name)
        if nodes:
            found.append("%s %s: %s." % (text.count(len(nodes), "node"), name.replace("_", " "), _names(nodes)))
    going = [node for node in view.nodes.having(*state.IN_FLIGHT) if not node.suspect]
    for nodes, words in ((view.nodes.suspects(), "in flight when the controller died"), (going, "in flight" if verdict == "running" else "left in flight"),
                         (view.nodes.having("pending"), "did not go yet" if verdict == "running" else "did not go")):
        if nodes:
            found.append("%s %s: %s." % (text.count(len(nodes), "node"), words, _names(nodes)))
    over = counts.get("done", 0) + counts.get("skipped", 0)
    without = left_out(view)
    if without:
        found.append("%s left out by an operator, and still at its old version: %s." % (text.count(len(without), "node"), limits.listed(
            "%s (%s)" % (node.name, node.order.rstrip(".")) for node in without)))
    if verdict == "complete":
        found.append("Every %snode is done or had nothing to do: %d done, %d skipped." % (
            "other " if without else "", counts.get("done", 0), counts.get("skipped", 0) - len(without)))
    elif not counts:
        found.append("No node was planned.")
    elif over:
        found.append("%d of %s done or skipped." % (over, text.count(sum(counts.values()), "node")))
    return found


def _brakes(view, verdict, spent):
    """What keeps nodes from starting."""
    found = []
    if view.stopped:
        found.append("Stopped by %s." % view.stopped)
    if spent:
        found.append("No further node starts: %s." % spent)
    if view.policy.get("approved") == "":
        found.append("Nobody has approved this plan, so no node starts.")
    if view.paused and verdict == "running":
        found.append("Paused by %s." % view.paused)
    if view.held and verdict == "running":
        found.append("Held: %s." % view.held_reason.rstrip("."))
    return found


def next_steps(view, verdict, spent):
    """What the person who reads this should do, the most urgent first."""
    found = ["%s (%s): %s" % (_names(nodes), name.replace("_", " "), NEXT_STEP[name]) for name in WORST for nodes in [view.nodes.having(name)] if nodes]
    if verdict == "running":
        if view.paused:
            found.append("Nodes in flight finish. To go on: rollout_control with rollout_verb=resume.")
        if view.held:
            found.append("Nodes in flight finish. The queries are asked again by themselves; to go on without them: rollout_control with "
                         "rollout_verb=set_budget and rollout_limits={\"holds\": {}}.")
        if spent or view.stopped:
            found.append("Let the nodes in flight finish; the rollout then ends by itself.")
        return found
    if view.nodes.suspects() or view.nodes.having(*state.IN_FLIGHT):
        found.insert(0, "Run the same playbook again: it looks at the nodes that were left in flight first, and finishes them or puts them back.")
    if view.nodes.having("pending"):
        found.append("The nodes that did not go serve as before. When the cause is clear, run the same playbook again to go on%s; or take back those that are "
                     "done with gpufleet.lifecycle.rollback." % (", with a larger budget if that is what you want" if spent else ""))
    if left_out(view):
        found.append("%s (left out by an operator): %s." % (_names(left_out(view)), "the next run takes it, unless it is skipped again" if view.finished else (
            "to take it in the run that goes on: rollout_control with rollout_verb=retry")))
    return found


def duration(started, finished):
    """Seconds as people read them; empty when one end is missing."""
    if not started or not finished:
        return ""
    return span(timeline.seconds(finished) - timeline.seconds(started))


def span(seconds):
    seconds = int(round(seconds))
    if seconds < 60:
        return "%d s" % seconds
    if seconds < 3600:
        return "%d min %02d s" % divmod(seconds, 60)
    return "%d h %02d min" % divmod(seconds // 60, 60)


def took(node):
    ends = [step["finished"] for step in node["steps"] if step["finished"]]
    return duration(node["steps"][0]["started"], ends[-1]) if ends else ""


def failed_step(node):
    """The step in which a node failed; of one that is gone, the one it was at."""
    names = [step["name"] for step in node["steps"] if step["status"] == "failed"]
    return names[0] if names else ""


def count(doc):
    """C(3 done, 1 rolled_back)."""
    return ", ".join("%d %s" % (number, name) for name, number in doc["counts"].items()) or "no nodes"


def troubled(doc):
    """(name, node) of the nodes that need somebody, the worst first."""
    found = [(name, node) for name, node in doc["nodes"].items() if node["state"] in WORST or node["suspect"]]
    return sorted(found, key=lambda entry: (WORST.index(entry[1]["state"]) if entry[1]["state"] in WORST else -1,))


def when_over(doc):
    """The estimate in words; empty when there is none."""
    found = doc["estimate"]
    if not found:
        return ""
    return "about %s to go, not less than %s (%s)" % (
        span(found["expected_s"]), span(found["lower_bound_s"]),
        "from %s" % text.count(found["measured"], "node") if found["measured"] else "from the policy's word, since no node is done yet")


def table(doc):
    """The summary as lines of plain text. What counts stands last, where the eye of a terminal rests."""
    rows = [("node", "state", "from", "to", "took")]
    folded = len(doc["nodes"]) > LISTED
    for name, node in doc["nodes"].items():
        if not (folded and node["state"] in ("done", "skipped", "pending") and not node["suspect"]):
            rows.append((text.line(name), node["state"], text.line(node["from"]) or "-", text.line(node["to"]) or "-", took(node) or "-"))
    lines = text.columns(rows)
    if folded:
        lines.append("... and %s that %s done, skipped or pending" % (text.count(len(doc["nodes"]) - len(rows) + 1, "node"), "is" if len(
            doc["nodes"]) == len(rows) else "are"))
    lines.extend("%s: %s" % (text.line(name), text.line(node["reason"])) for name, node in doc["nodes"].items()
                 if node["reason"] and not (folded and node["state"] in ("done", "skipped", "pending")))
    if when_over(doc):
        lines.append(when_over(doc))
    without = doc["left_out"]
    lines.append("%s%s: %s, target %s" % (
        doc["verdict"], ", without %s that an operator left out (%s)" % (text.count(len(without), "node"), limits.listed(map(text.line, without)))
        if without else "", count(doc), text.line(doc["target"])))
    return lines


# Markdown

def markdown_text(doc):
    """The same for people who read Markdown."""
    escape = markdown.escape
    lines = ["# Driver rollout to %s: %s" % (escape(doc["target"]), doc["verdict"]), ""]
    lines += ["- " + escape(reason) for reason in doc["reasons"]]
    lines += markdown.section("What to do", ["%d. %s" % (number, escape(step)) for number, step in enumerate(doc["next_steps"], start=1)])
    lines += ["", escape("Rollout %s, started %s, finished %s%s. %s." % (
        doc["rollout_id"], doc["started"], doc["finished"] or "not yet",
        ", after %s" % duration(doc["started"], doc["finished"]) if doc["finished"] else "", count(doc)))]
    if when_over(doc):
        lines += ["", escape(when_over(doc)[:1].upper() + when_over(doc)[1:] + ".")]
    bad = troubled(doc)
    lines += markdown.section("Nodes that need attention", bad and markdown.table(("node", "state", "failed in", "reason", "serves"), (
        (name, node["state"], failed_step(node) or "-", node["reason"], SERVES.get(node["state"], "unknown")) for name, node in bad)))
    lines += markdown.section("Budgets", markdown.table(("budget", "used", "limit"), (
        (name, str(entry["used"]), str(entry["limit"])) for name, entry in doc["budgets"].items())))
    some = [(name, node) for name, node in doc["nodes"].items() if len(doc["nodes"]) <= LISTED or node["state"] not in ("done", "skipped", "pending")]
    lines += markdown.section("Nodes", markdown.table(("node", "state", "from", "to", "took", "reason"), (
        (name, node["state"], node["from"] or "-", node["to"] or "-", took(node) or "-", node["reason"]) for name, node in some)))
    if len(some) < len(doc["nodes"]):
        lines += ["", "%s more are done, skipped or pending; report.json names them." % text.count(len(doc["nodes"]) - len(some), "node")]
    for name, node in some[:LISTED]:
        if node["steps"]:
            lines += markdown.section(name, markdown.table(("step", "started", "took", "status"), (
                (step["name"], step["started"], duration(step["started"], step["finished"]) or "-", step["status"]) for step in node["steps"])), 3)
    return "\n".join(lines) + "\n"


# JUnit

def junit_text(doc):
    """A suite about the rollout as a whole, then one with a case for each node."""
    verdict = doc["verdict"]
    outcome = {"complete": "passed", "running": "skipped", "failed": "failure"}.get(verdict, "error")
    whole = junit.Case("verdict", "gpufleet.rollout", outcome, verdict, "%s: %s" % (verdict, count(doc)), "\n".join(doc["reasons"] + doc["next_steps"]))
    properties = [("verdict", verdict), ("rollout", doc["rollout_id"]), ("target", doc["target"]), ("plan", doc["sha256"])]
    time = doc["time"] or ""
    return junit.render([
        junit.Suite("rollout", "gpufleet.rollout", time, properties, [whole], doc["reasons"]),
        junit.Suite("nodes", "gpufleet.rollout", time, [], [_case(name, node) for name, node in doc["nodes"].items()], []),
    ])


def _case(name, node):
    place = "gpufleet.rollout.%s" % (",".join("%s-%s" % item for item in sorted(node["domains"].items())) or "nodes")
    said = node["reason"] or node["state"]
    if node["state"] == "done":
        return junit.Case(name, place, "passed", "", "", "")
    if node["state"] in state.FAILED:
        steps = "\n".join("%s: %s, %s" % (step["name"], step["status"], duration(step["started"], step["finished"]) or "open") for step in node["steps"])
        return junit.Case(name, place, "error" if node["state"] == "lost" else "failure", node["state"], said, "%s\n%s\n%s" % (
            said, NEXT_STEP[node["state"]], steps))
    # Whoever is in flight or did not go has no verdict, and is none that passed.
    return junit.Case(name, place, "skipped", "", "%s%s" % (node["state"], ": " + node["reason"] if node["reason"] else ""), "")
