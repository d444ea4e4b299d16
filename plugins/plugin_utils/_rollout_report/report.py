# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout, as a document, a table, Markdown and JUnit XML. Pure.

All of them begin with the verdict and its reasons.
"""

from __future__ import annotations

import datetime

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import keys, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import junit, markdown, text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import estimate, limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import timeline

SCHEMA = "gpufleet.report/1"
# With more nodes than this, those without problems are counted instead of listed.
LISTED = 300
# The next step for a node, and whether it serves.
NEXT_STEP = {
    "lost": (
        "Check that it is powered on and answers ssh. Then run the same playbook again: it examines the node first."
    ),
    "quarantined": (
        "Keep it out of service. Read quarantine.json on the node (in /var/lib/gpufleet) and check its "
        "hardware. If there is no such file, only its schedulers keep it out of service: find out why the "
        "resume failed, then run the same playbook again."
    ),
    "rolled_back": (
        "Nothing is urgent: it serves with its earlier driver, which was proven. Fix the cause before it is "
        "tried again (rollout_control, retry)."
    ),
    "failed": "Nothing was changed on it and it serves as before. Fix the cause, then run the same playbook again.",
}
SERVES = {"lost": "unknown", "quarantined": "no", "rolled_back": "yes, as before", "failed": "as before"}
CONTROLLER = "localhost"
# The length of a reason in the table; the report has all of it.
REASON = 300
WORST = ("lost", "quarantined", "failed", "rolled_back")


def document(view, ended, time=None, last_event=None, story=None):
    """Return the report of a rollout. ENDED: True if its run has ended. TIME: now, in the format of the ledger.

    The verdict, the counts and the budgets are of the last run. STORY, a Timeline, has nodes of earlier runs.
    """
    absent, earlier = (story.absent, story.earlier) if story is not None else ([], {})
    verdict = state.verdict(view, ended)
    failed = view.nodes.having(*state.FAILED)
    spent = limits.spent(view.policy, failed, view.attempted) if view.policy else ""
    counts = view.nodes.count()
    return {
        "verdict": verdict,
        "reasons": reasons(view, verdict, spent, absent),
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
        "nodes": dict(
            {node.name: _node(node, True, earlier) for node in view.nodes.everything()},
            **{node.name: _node(node, False, earlier) for node in absent},
        ),
    }


def left_out(view):
    """Return the nodes that an operator skipped; other skipped nodes had nothing to do."""
    return [node for node in view.nodes.having("skipped") if node.order]


def _node(node, in_run, earlier):
    return {
        "state": node.state,
        "in_run": in_run,
        "from": node.from_version,
        "to": node.to_version,
        "layout": node.layout.get("name", ""),
        "reason": node.reason,
        "failure": node.failure,
        "domains": node.domains,
        "canary": node.canary,
        "attempt": node.attempt,
        keys.ORPHANED: node.orphaned,
        "ended": node.ended,
        "evidence": [],  # directories on the controller, for nodes that need attention
        "steps": _steps(node.steps),
        "earlier": [dict(attempt, steps=_steps(attempt["steps"])) for attempt in earlier.get(node.name, ())],
    }


def _steps(steps):
    return [
        {"name": step.name, "started": step.started, "finished": step.finished, "status": step.status} for step in steps
    ]


def budgets(view, failed):
    """Return the use and the limit of each budget."""
    policy = view.policy
    down = len(view.nodes.having(*(state.NOT_SERVING + state.OUT_OF_SERVICE)))
    return {
        "down": {
            "used": down + policy.get("broken_elsewhere", 0),
            "limit": policy.get("max_down"),
            "window": view.window,
        },
        "draining": {"used": len(view.nodes.having("draining")), "limit": policy.get("max_draining")},
        "failures": {
            "used": sum(timeline.failure_weight(node) for node in failed),
            "limit": policy.get("failure_budget"),
        },
    }


def left(view, time):
    """Return the estimate of the remaining time; None without data for it."""
    if not view.policy or not time:
        return None
    now = timeline.seconds(time)
    took = [
        timeline.seconds(node.ended) - timeline.seconds(node.steps[0].started)
        for node in view.nodes.having("done")
        if node.ended and node.steps
    ]
    ages = [
        now - timeline.seconds(node.steps[0].started) if node.steps else 0.0
        for node in view.nodes.having(*state.IN_FLIGHT)
    ]
    slots = view.policy["max_down"] - len(view.nodes.having(*state.OUT_OF_SERVICE)) - view.policy["broken_elsewhere"]
    expected, bound = estimate.remaining(len(view.nodes.having("pending")), ages, slots, took, view.policy["node_s"])
    return {"expected_s": round(expected), "lower_bound_s": round(bound), "measured": len(took)}


def _names(nodes):
    return limits.listed(node.name for node in nodes)


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


def next_steps(view, verdict, spent):
    """Return the next steps for the reader, the most urgent first."""
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
            "Run the same playbook again: first it examines the nodes that were left in flight, and finishes "
            "them or rolls them back.",
        )
    if view.nodes.having("pending"):
        found.append(
            "The nodes that did not start serve as before. When the cause is known, run the same playbook again to "
            "continue%s. Or roll back the nodes that are done with gpufleet.lifecycle.rollback."
            % (", with a larger budget if you want that" if spent else "")
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


def duration(started, finished):
    """Return the duration between two times in readable form; empty if one of them is missing."""
    if not started or not finished:
        return ""
    return span(timeline.seconds(finished) - timeline.seconds(started))


def both(time):
    """Return a time of the ledger in UTC, and in the time zone of this controller if that differs; empty for none."""
    if not time:
        return ""
    moment = datetime.datetime.fromtimestamp(timeline.seconds(time)).astimezone()
    utc = time[:19].replace("T", " ") + " UTC"
    return utc if not moment.utcoffset() else "%s (%s)" % (utc, moment.strftime("%Y-%m-%d %H:%M:%S %Z"))


def span(seconds):
    """Return a number of seconds in readable form."""
    seconds = int(round(seconds))
    if seconds < 60:
        return "%d s" % seconds
    if seconds < 3600:
        return "%d min %02d s" % divmod(seconds, 60)
    return "%d h %02d min" % divmod(seconds // 60, 60)


def took(node):
    """Return the duration of a node's steps in readable form."""
    ends = [step["finished"] for step in node["steps"] if step["finished"]]
    return duration(node["steps"][0]["started"], ends[-1]) if ends else ""


def failed_step(node):
    """Return the step in which a node failed."""
    names = [step["name"] for step in node["steps"] if step["status"] == "failed"]
    return names[0] if names else ""


def count(doc):
    """Return the number of nodes in each state, such as C(3 done, 1 rolled_back)."""
    return ", ".join("%d %s" % (number, name) for name, number in doc["counts"].items()) or "no nodes"


def troubled(doc):
    """Return (name, node) of the nodes that need attention, the worst first."""
    found = [(name, node) for name, node in doc["nodes"].items() if node["state"] in WORST or node[keys.ORPHANED]]
    return sorted(found, key=lambda entry: (WORST.index(entry[1]["state"]) if entry[1]["state"] in WORST else -1,))


def when_over(doc):
    """Return the estimate in words; empty if there is none."""
    found = doc["estimate"]
    if not found:
        return ""
    return "about %s left, at least %s (%s)" % (
        span(found["expected_s"]),
        span(found["lower_bound_s"]),
        "from %s" % text.count(found["measured"], "node")
        if found["measured"]
        else "from rollout_node_s, since no node is done yet",
    )


def said(node, limit=None):
    """Return the reason of a node on one line, with a note if the node is not in the last run."""
    reason = text.line(node["reason"], limit)
    return reason if node["in_run"] else "not part of this run%s" % (", " + reason if reason else "")


def wanted(node, unknown="-"):
    """Return the target of a node on one line: its version and, if one was wanted, its MIG layout."""
    return (text.line(node["to"]) or unknown) + (
        ", MIG layout %s" % text.line(node["layout"]) if node["layout"] else ""
    )


def table(doc):
    """Return the summary as lines of plain text. The verdict is last, so that it is visible in a terminal."""
    rows = [("node", "state", "from", "to", "took", "reason")]
    folded = len(doc["nodes"]) > LISTED
    for name, node in doc["nodes"].items():
        if not (folded and node["state"] in ("done", "skipped", "pending") and not node[keys.ORPHANED]):
            rows.append(
                (
                    text.line(name),
                    node["state"],
                    text.line(node["from"]) or "-",
                    wanted(node),
                    took(node) or "-",
                    said(node, REASON) or "-",
                )
            )
    lines = text.columns(rows)
    if folded:
        lines.append(
            "... and %s that %s done, skipped or pending"
            % (text.count(len(doc["nodes"]) - len(rows) + 1, "node"), "is" if len(doc["nodes"]) == len(rows) else "are")
        )
    if when_over(doc):
        lines.append(when_over(doc))
    without = doc["left_out"]
    lines.append(
        "%s%s: %s, target %s"
        % (
            doc["verdict"],
            ", without %s that an operator left out (%s)"
            % (text.count(len(without), "node"), limits.listed(map(text.line, without)))
            if without
            else "",
            count(doc),
            text.line(doc["target"]),
        )
    )
    return lines


def summary(doc, path):
    """Return the table, the reasons, the next steps and the PATH of the report. The verdict is last."""
    lines = table(doc)
    return (
        lines[:-1]
        + [""]
        + [text.line(reason) for reason in doc["reasons"]]
        + ["next: %s" % text.line(step) for step in doc["next_steps"]]
        + ["report: %s" % path, lines[-1]]
    )


def blame(doc, hosts, gone, host, verdict, part=None):
    """Return {host: message} for the HOSTS that have to fail at the end of a run.

    PART are the hosts of this controller, if others work on the rollout too (None: it has all of them). Then the run
    fails for its own nodes alone.

    VERDICT is the message about the whole rollout, HOST the host of the task. Nodes without problems do not fail: the
    controller fails with the verdict. GONE are hosts that have left the play, failed or unreachable, and set Ansible's
    exit status already. If nothing else makes the playbook fail, HOST does.
    """
    if doc["verdict"] == "complete":
        return {}
    if part is not None and all(
        node["state"] in ("done", "skipped") for name, node in doc["nodes"].items() if name in part
    ):
        return {}
    mine = {name: node for name, node in doc["nodes"].items() if name in hosts and node["in_run"]}
    found = {
        name: "%s is %s%s" % (name, node["state"], ": " + node["reason"] if node["reason"] else "")
        for name, node in mine.items()
        if node["state"] in state.FAILED
    }
    if CONTROLLER in hosts:
        return dict(found, **{CONTROLLER: verdict})
    found.update(
        {
            name: "%s is %s: %s" % (name, node["state"], node["reason"] or doc["reasons"][0])
            for name, node in mine.items()
            if node["state"] in ("pending",) + state.IN_FLIGHT or node[keys.ORPHANED]
        }
    )
    told = found or any(
        name in gone and node["in_run"] and node["state"] not in ("done", "skipped")
        for name, node in doc["nodes"].items()
    )
    return found if told else {host: verdict}


# Markdown


def markdown_text(doc):
    """Return the report as Markdown."""
    escape = markdown.escape
    lines = ["# Driver rollout to %s: %s" % (escape(doc["target"]), doc["verdict"]), ""]
    lines += ["- " + escape(reason) for reason in doc["reasons"]]
    lines += markdown.section(
        "What to do", ["%d. %s" % (number, escape(step)) for number, step in enumerate(doc["next_steps"], start=1)]
    )
    lines += [
        "",
        escape(
            "Rollout %s, started %s, finished %s%s. %s."
            % (
                doc["rollout_id"],
                both(doc["started"]),
                both(doc["finished"]) or "not yet",
                ", after %s" % duration(doc["started"], doc["finished"]) if doc["finished"] else "",
                count(doc),
            )
        ),
    ]
    if when_over(doc):
        lines += ["", escape(when_over(doc)[:1].upper() + when_over(doc)[1:] + ".")]
    bad = troubled(doc)
    lines += markdown.section(
        "Nodes that need attention",
        bad
        and markdown.table(
            ("node", "state", "failed in", "reason", "serves"),
            (
                (name, node["state"], failed_step(node) or "-", said(node), SERVES.get(node["state"], "unknown"))
                for name, node in bad
            ),
        ),
    )
    lines += markdown.section(
        "Evidence",
        ["- %s: %s" % (escape(name), escape(", ".join(node["evidence"]))) for name, node in bad if node["evidence"]],
    )
    lines += markdown.section(
        "Budgets",
        markdown.table(
            ("budget", "used", "limit"),
            ((name, str(entry["used"]), str(entry["limit"])) for name, entry in doc["budgets"].items()),
        ),
    )
    some = [
        (name, node)
        for name, node in doc["nodes"].items()
        if len(doc["nodes"]) <= LISTED or node["state"] not in ("done", "skipped", "pending")
    ]
    lines += markdown.section(
        "Nodes",
        markdown.table(
            ("node", "state", "from", "to", "took", "reason"),
            (
                (name, node["state"], node["from"] or "-", wanted(node), took(node) or "-", said(node))
                for name, node in some
            ),
        ),
    )
    if len(some) < len(doc["nodes"]):
        lines += [
            "",
            "%s more are done, skipped or pending; report.json names them."
            % text.count(len(doc["nodes"]) - len(some), "node"),
        ]
    for name, node in some[:LISTED]:
        if node["steps"]:
            lines += markdown.section(
                name,
                markdown.table(
                    ("step", "started", "took", "status"),
                    (
                        (
                            step["name"],
                            step["started"],
                            duration(step["started"], step["finished"]) or "-",
                            step["status"],
                        )
                        for step in node["steps"]
                    ),
                ),
                3,
            )
        if node["earlier"]:
            lines += markdown.section(
                "%s: earlier attempts" % name,
                markdown.table(
                    ("attempt", "ended", "state", "failed in", "reason"),
                    (
                        (str(one["attempt"]), one["ended"] or "-", one["state"], failed_step(one) or "-", one["reason"])
                        for one in node["earlier"]
                    ),
                ),
                3,
            )
    return "\n".join(lines) + "\n"


# JUnit


def junit_text(doc):
    """Return the report as JUnit XML: a suite for the whole rollout, and one with a case for each node."""
    verdict = doc["verdict"]
    outcome = {"complete": "passed", "running": "skipped", "failed": "failure"}.get(verdict, "error")
    whole = junit.Case(
        "verdict",
        "gpufleet.rollout",
        outcome,
        verdict,
        "%s: %s" % (verdict, count(doc)),
        "\n".join(doc["reasons"] + doc["next_steps"]),
    )
    properties = [
        ("verdict", verdict),
        ("rollout", doc["rollout_id"]),
        ("target", doc["target"]),
        ("plan", doc["sha256"]),
    ]
    time = doc["time"] or ""
    return junit.render(
        [
            junit.Suite("rollout", "gpufleet.rollout", time, properties, [whole], doc["reasons"]),
            junit.Suite(
                "nodes", "gpufleet.rollout", time, [], [_case(name, node) for name, node in doc["nodes"].items()], []
            ),
        ]
    )


def _case(name, node):
    place = "gpufleet.rollout.%s" % (",".join("%s-%s" % item for item in sorted(node["domains"].items())) or "nodes")
    words = node["reason"] or node["state"]
    if not node["in_run"]:
        return junit.Case(name, place, "skipped", "", "not part of this run, %s: %s" % (node["state"], words), "")
    if node["state"] == "done":
        return junit.Case(name, place, "passed", "", "", "")
    if node["state"] in state.FAILED:
        steps = "\n".join(
            [
                "%s: %s, %s" % (step["name"], step["status"], duration(step["started"], step["finished"]) or "open")
                for step in node["steps"]
            ]
            + ["earlier, attempt %d: %s, %s" % (one["attempt"], one["state"], one["reason"]) for one in node["earlier"]]
        )
        return junit.Case(
            name,
            place,
            "error" if node["state"] == "lost" else "failure",
            node["state"],
            words,
            "%s\n%s\n%s" % (words, NEXT_STEP[node["state"]], steps),
        )
    # A node that is in flight or did not start has no verdict, which is not a pass.
    return junit.Case(
        name, place, "skipped", "", "%s%s" % (node["state"], ": " + node["reason"] if node["reason"] else ""), ""
    )
