# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document about a rollout, which begins with the verdict and its reasons, and its parts in words. Pure."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, plan_text
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
        "Nothing is urgent: it serves with its earlier driver, which was proven. Fix the cause before it is tried "
        "again: %s."
    ),
    "failed": (
        "Nothing was changed on it: it is in the state in which the run found it. Fix the cause before it is tried "
        "again: %s."
    ),
}
AGAIN = "run the same playbook again"
# A run that continues an interrupted one leaves such nodes as they are.
RETRY = "rollout_control with rollout_verb=retry, while the rollout runs or before the run that continues it"
SERVES = {"lost": "unknown", "quarantined": "no", "rolled_back": "yes, as before", "failed": "as before"}
# The length of a reason in a table, and in what refers to a reason that was printed before; the report has all of it.
REASON, REFERENCE = 300, 80
WORST = ("lost", "quarantined", "failed", "rolled_back")


def build_document(
    view: state.Rollout,
    ended: bool,
    time: str | None = None,
    last_event: str | None = None,
    story: timeline.Timeline | None = None,
    several: bool = False,
    edition: tuple[str | None, int] = (None, 0),
    before: t.Sequence[state.Node] = (),
) -> dict[str, t.Any]:
    """Return the report of a rollout. ENDED: True if its run has ended. TIME: now, in the format of the ledger.

    The verdict, the counts and the budgets are of the last run. STORY, a Timeline, has nodes of earlier runs. SEVERAL:
    the plan was made for several controllers. EDITION: (identity of the ledger, number of events that the report is
    made of), by which an older report of another controller is told from a newer one. BEFORE: nodes that were done in
    earlier rollouts, for estimates as long as none is done in this one.
    """
    absent, earlier = (story.absent, story.earlier) if story is not None else ([], {})
    nodes = view.nodes.list_all()
    usual = dict(measure_steps(before), **measure_steps(nodes))
    verdict = state.judge_rollout(view, ended)
    failed = view.nodes.with_state(*state.FAILED)
    spent = limits.explain_spent_budget(view.policy, failed, view.attempt_count) if view.policy else ""
    return {
        "verdict": verdict,
        "reasons": list_reasons(view, verdict, spent, absent),
        "next_steps": list_next_steps(view, verdict, spent, several),
        "schema": SCHEMA,
        "rollout_id": view.rollout_id,
        "ledger": edition[0],
        "events": edition[1],
        "time": time or view.finished or view.started,
        "started": view.started,
        "finished": view.finished,
        "last_event": last_event or view.finished or view.started,
        "target": view.target,
        "sha256": view.sha256,
        "counts": count_states(view),
        "left_out": [node.name for node in find_left_out(view)],
        "paused": view.paused,
        "stopped": view.stopped,
        "held": list(view.held),
        "spent": spent,
        "budgets": measure_budgets(view, failed),
        "estimate": None if ended or verdict != "running" else estimate_end(view, time, before),
        "policy": view.policy,
        "nodes": dict(
            {node.name: _describe_node(node, True, earlier, time, usual) for node in nodes},
            **{node.name: _describe_node(node, False, earlier) for node in absent},
        ),
    }


def count_states(view: state.Rollout) -> dict[str, int]:
    """Return {state: number of nodes}, of the states in which there are any."""
    found = view.nodes.count()
    return {name: found[name] for name in state.STATES if found.get(name)}


def measure_steps(nodes: t.Iterable[state.Node]) -> dict[str, float]:
    """Return {step: seconds that it usually took}, from steps of NODES that came to a good end."""
    durations: dict[str, list[float]] = {}
    for node in nodes:
        for step in node.steps:
            if step.finished and step.status == "ok":
                length = timeline.parse_time(step.finished) - timeline.parse_time(step.started)
                durations.setdefault(step.name, []).append(length)
    return {name: plan_text.median(found) for name, found in durations.items()}


def _describe_node(node, in_run, earlier, time=None, usual=None) -> dict:
    step = node.open_step if in_run and node.state in state.IN_FLIGHT else None
    return {
        "state": node.state,
        "in_run": in_run,
        "in_step": {
            "name": step.name,
            "since": step.started,
            "for_s": round(timeline.parse_time(time) - timeline.parse_time(step.started)) if time else None,
            "usual_s": round(usual[step.name], 1) if step.name in (usual or {}) else None,
        }
        if step
        else None,
        "from": node.from_version,
        "to": node.to_version,
        "layout": node.layout.get("name", ""),
        "reason": node.reason,
        "failure": node.failure,
        "domains": node.domains,
        "canary": node.canary,
        "attempt": node.attempt,
        "orphaned": node.orphaned,
        "ended": node.ended,
        "evidence": [],  # directories on the controller, for nodes that need attention
        "findings": [],  # of its verdict, for nodes that need attention, the one that leads first
        "steps": _describe_steps(node.steps),
        "earlier": [dict(attempt, steps=_describe_steps(attempt["steps"])) for attempt in earlier.get(node.name, ())],
    }


def _describe_steps(steps) -> list[dict]:
    return [
        {"name": step.name, "started": step.started, "finished": step.finished, "status": step.status} for step in steps
    ]


def measure_budgets(view: state.Rollout, failed: list[state.Node]) -> dict[str, dict]:
    """Return the use and the limit of each budget."""
    policy = view.policy
    down = len(view.nodes.with_state(*(state.NOT_SERVING + state.OUT_OF_SERVICE)))
    return {
        "down": {
            "used": down + policy.get("broken_elsewhere", 0),
            "limit": policy.get("max_down"),
            "window": view.window,
        },
        "draining": {"used": len(view.nodes.with_state("draining")), "limit": policy.get("max_draining")},
        "failures": {
            "used": sum(timeline.weigh_failure(node) for node in failed),
            "limit": policy.get("failure_budget"),
        },
    }


def measure_nodes(nodes: t.Iterable[state.Node]) -> list[float]:
    """Return the seconds that each of NODES took from its first step to its end."""
    return [
        timeline.parse_time(node.ended) - timeline.parse_time(node.steps[0].started)
        for node in nodes
        if node.ended and node.steps
    ]


def estimate_end(view: state.Rollout, time: str | None, before: t.Sequence[state.Node] = ()) -> dict[str, t.Any] | None:
    """Return the estimate of the remaining time; None without data for it."""
    if not view.policy or not time:
        return None
    now = timeline.parse_time(time)
    measured = measure_nodes(view.nodes.with_state("done"))
    took = measured or measure_nodes(before)
    ages = [
        now - timeline.parse_time(node.steps[0].started) if node.steps else 0.0
        for node in view.nodes.with_state(*state.IN_FLIGHT)
    ]
    slots = (
        view.policy["max_down"] - len(view.nodes.with_state(*state.OUT_OF_SERVICE)) - view.policy["broken_elsewhere"]
    )
    expected, bound = plan_text.estimate_remaining(
        len(view.nodes.with_state("pending")), ages, slots, took, view.policy["node_s"]
    )
    return {
        "expected_s": round(expected),
        "lower_bound_s": round(bound),
        "measured": len(measured),
        "earlier": len(took) - len(measured),
    }


def _join_names(nodes) -> str:
    return limits.list_names(node.name for node in nodes)


def find_left_out(view: state.Rollout) -> list[state.Node]:
    """Return the nodes that an operator skipped; other skipped nodes had nothing to do."""
    return [node for node in view.nodes.with_state("skipped") if node.order]


def list_reasons(view: state.Rollout, verdict: str, spent: str, absent: t.Sequence[state.Node] = ()) -> list[str]:
    """Return the reasons for the verdict, the most important first."""
    counts = view.nodes.count()
    found = _find_brakes(view, verdict, spent)
    for name in WORST:
        nodes = view.nodes.with_state(name)
        if nodes:
            found.append(
                "%s %s: %s." % (text.count_noun(len(nodes), "node"), name.replace("_", " "), _join_names(nodes))
            )
    flying = [node for node in view.nodes.with_state(*state.IN_FLIGHT) if not node.orphaned]
    for nodes, words in (
        (view.nodes.find_orphaned(), "left in flight by an interrupted run"),
        (flying, "in flight" if verdict == "running" else "left in flight"),
        (view.nodes.with_state("pending"), "did not start yet" if verdict == "running" else "did not start"),
    ):
        if nodes:
            found.append("%s %s: %s." % (text.count_noun(len(nodes), "node"), words, _join_names(nodes)))
    over = counts.get("done", 0) + counts.get("skipped", 0)
    without = find_left_out(view)
    if without:
        found.append(
            "%s left out by an operator, and still at its old version: %s."
            % (
                text.count_noun(len(without), "node"),
                limits.list_names("%s (%s)" % (node.name, node.order.rstrip(".")) for node in without),
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
        found.append("%d of %s done or skipped." % (over, text.count_noun(sum(counts.values()), "node")))
    if absent:
        states = {}
        for node in absent:
            states[node.state] = states.get(node.state, 0) + 1
        found.append(
            "%s of earlier runs %s not part of this one: %s."
            % (
                text.count_noun(len(absent), "node"),
                "was" if len(absent) == 1 else "were",
                ", ".join("%d %s" % (states[name], name.replace("_", " ")) for name in state.STATES if name in states),
            )
        )
    return found


def list_brakes(view: state.Rollout) -> list[str]:
    """Return what keeps further nodes from starting while a rollout runs, with the next steps."""
    spent = (
        limits.explain_spent_budget(view.policy, view.nodes.with_state(*state.FAILED), view.attempt_count)
        if view.policy
        else ""
    )
    found = _find_brakes(view, "running", spent)
    return found + _list_releases(view, spent) if found else []


def _find_brakes(view, verdict, spent) -> list[str]:
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


def _list_releases(view, spent) -> list[str]:
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


def find_next_step(name: str, failure: str, finished: str | None) -> str:
    """Return the next step for a node in the failed state NAME.

    FAILURE: its class. FINISHED: when its run came to its end, None if it runs or was interrupted. The next run tries
    failed nodes again only after a run that ended, but for those that were sick before any change.
    """
    step = NEXT_STEP[name]
    return step % (AGAIN if finished or failure == state.SICK else RETRY) if "%s" in step else step


def list_next_steps(view: state.Rollout, verdict: str, spent: str, several: bool = False) -> list[str]:
    """Return the next steps for the reader, the most urgent first. SEVERAL: of a plan for several controllers."""
    steps: dict[tuple[str, str], list[state.Node]] = {}
    for name in WORST:
        for node in view.nodes.with_state(name):
            steps.setdefault((name, find_next_step(name, node.failure, view.finished)), []).append(node)
    found = [
        "%s (%s): %s" % (_join_names(nodes), name.replace("_", " "), step) for (name, step), nodes in steps.items()
    ]
    if verdict == "running":
        return found + _list_releases(view, spent)
    if view.nodes.find_orphaned() or view.nodes.with_state(*state.IN_FLIGHT):
        found.insert(
            0,
            "Run the same %s again: first it examines the nodes that were left in flight, and finishes "
            "them or rolls them back." % ("jobs, over the same hosts," if several else "playbook",),
        )
    if view.nodes.with_state("pending"):
        found.append(
            "The nodes that did not start serve as before. %s to continue%s. Or roll back the nodes that are done with "
            "gpufleet.lifecycle.rollback."
            % (
                ("When the cause is known, run the same playbook again", "Run the jobs that have them")[several],
                ", with a larger budget if you want that" if spent else "",
            )
        )
    if find_left_out(view):
        found.append(
            "%s (left out by an operator): %s."
            % (
                _join_names(find_left_out(view)),
                "the next run includes it, unless it is skipped again"
                if view.finished
                else (
                    "to include it in the next run, which continues this one: rollout_control with rollout_verb=retry"
                ),
            )
        )
    return found


def format_duration(started: str | None, finished: str | None) -> str:
    """Return the duration between two times in readable form; empty if one of them is missing."""
    if not started or not finished:
        return ""
    return format_span(timeline.parse_time(finished) - timeline.parse_time(started))


def format_time(time: str | None) -> str:
    """Return a time of the ledger in UTC, and in the time zone of this controller if that differs; empty for none."""
    if not time:
        return ""
    moment = datetime.datetime.fromtimestamp(timeline.parse_time(time)).astimezone()
    utc = time[:19].replace("T", " ") + " UTC"
    return utc if not moment.utcoffset() else "%s (%s)" % (utc, moment.strftime("%Y-%m-%d %H:%M:%S %Z"))


def format_span(seconds: float) -> str:
    """Return a number of seconds in readable form."""
    seconds = int(round(seconds))
    if seconds < 60:
        return "%d s" % seconds
    if seconds < 3600:
        return "%d min %02d s" % divmod(seconds, 60)
    return "%d h %02d min" % divmod(seconds // 60, 60)


def describe_duration(node: dict) -> str:
    """Return the duration of a node's steps in readable form."""
    ends = [step["finished"] for step in node["steps"] if step["finished"]]
    return format_duration(node["steps"][0]["started"], ends[-1]) if ends else ""


def find_failed_step(node: dict) -> str:
    """Return the step in which a node failed."""
    names = [step["name"] for step in node["steps"] if step["status"] == "failed"]
    return names[0] if names else ""


def describe_counts(doc: dict) -> str:
    """Return the number of nodes in each state, such as C(3 done, 1 rolled_back)."""
    return ", ".join("%d %s" % (number, name) for name, number in doc["counts"].items()) or "no nodes"


def list_troubled(doc: dict) -> list[tuple[str, dict]]:
    """Return (name, node) of the nodes that need attention, the worst first."""
    found = [(name, node) for name, node in doc["nodes"].items() if node["state"] in WORST or node["orphaned"]]
    return sorted(found, key=lambda entry: (WORST.index(entry[1]["state"]) if entry[1]["state"] in WORST else -1,))


def describe_estimate(doc: dict) -> str:
    """Return the estimate in words; empty if there is none."""
    found = doc["estimate"]
    if not found:
        return ""
    return "about %s left, at least %s (%s)" % (
        format_span(found["expected_s"]),
        format_span(found["lower_bound_s"]),
        "from %s" % text.count_noun(found["measured"], "node")
        if found["measured"]
        else "from %s of earlier rollouts" % text.count_noun(found["earlier"], "node")
        if found["earlier"]
        else "from rollout_node_s, since no node is done yet",
    )


def describe_step(name: str, for_s: float | None, usual_s: float | None) -> str:
    """Return the step that a node is in, such as C(install, since 7 min (usual: 23 s))."""
    since = "" if for_s is None else ", since %s" % owner.format_seconds(max(0, int(for_s)))
    return "%s%s%s" % (
        name,
        since,
        "" if usual_s is None else " (usual: %s)" % owner.format_seconds(max(1, round(usual_s))),
    )


def describe_reason(node: dict, limit: int | None = None) -> str:
    """Return the step and the reason of a node on one line, with a note if the node is not in the last run."""
    step = node["in_step"]
    parts = [describe_step(step["name"], step["for_s"], step["usual_s"])] if step else []
    reason = text.one_line("; ".join(parts + [node["reason"]] * bool(node["reason"])), limit)
    return reason if node["in_run"] else "not part of this run%s" % (", " + reason if reason else "")


FINDING_COLUMNS = ("check", "of", "status", "since", "what is wrong, and what to do", "follows from")
# Where a finding was made, when it is not the one for which the node failed, and since when it is there.
ROLLBACK, SINCE = "rollback", {"before": "before the change", "during": "the change"}


def list_findings(node: dict) -> list[tuple]:
    """Return a row for each finding of a node, the one that leads first."""
    return [
        tuple(
            text.one_line(cell) or "-"
            for cell in (
                found["id"],
                found["entity"],
                found["status"] + (", after the rollback" if found["step"] == ROLLBACK else ""),
                SINCE.get(found["since"], ""),
                found["message"],
                found["explained_by"],
            )
        )
        for found in node["findings"]
    ]


def describe_target(node: dict, unknown: str = "-") -> str:
    """Return the target of a node on one line: its version and, if one was wanted, its MIG layout."""
    return (text.one_line(node["to"]) or unknown) + (
        ", MIG layout %s" % text.one_line(node["layout"]) if node["layout"] else ""
    )
