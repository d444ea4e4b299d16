# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout as lines of a terminal, Markdown, JUnit XML and metrics for Prometheus, and who fails at its
end. Each format begins or ends with the verdict and its reasons. Pure.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import formats, text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, plan
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import report, timeline

CONTROLLER = "localhost"
COLUMNS = ("node", "state", "from", "to", "took", "reason")


def render_table(doc: dict, length: int = report.REASON) -> list[str]:
    """Return the summary as lines of plain text, with reasons of at most LENGTH characters.

    The verdict is last, so that it is visible in a terminal.
    """
    some = _select_nodes(doc)
    lines = text.align_columns([COLUMNS, *_list_rows(some, length)])
    left = len(doc["nodes"]) - len(some)
    if left:
        verb = "is" if left == 1 else "are"
        lines.append("... and %s that %s done, skipped or pending" % (text.count_noun(left, "node"), verb))
    if report.describe_estimate(doc):
        lines.append(report.describe_estimate(doc))
    lines.append(
        "%s%s: %s, target %s"
        % (doc["verdict"], "".join(_list_exceptions(doc)), report.describe_counts(doc), text.one_line(doc["target"]))
    )
    return lines


def _list_exceptions(doc) -> Iterator:
    """Yield the nodes that the verdict leaves out although they are not done: a line that is read alone must say so."""
    if doc["left_out"]:
        yield ", without %s that an operator left out (%s)" % (
            text.count_noun(len(doc["left_out"]), "node"),
            limits.list_names(map(text.one_line, doc["left_out"])),
        )
    open_ones = [
        "%s %s" % (text.one_line(name), node["state"])
        for name, node in doc["nodes"].items()
        if not node["in_run"] and node["state"] not in ("done", "skipped")
    ]
    if open_ones:
        yield ", without %s of earlier runs (%s)" % (
            text.count_noun(len(open_ones), "node"),
            limits.list_names(open_ones),
        )


def render_summary(doc: dict, path: str, length: int = report.REASON) -> list[str]:
    """Return the table, the reasons, the next steps and the PATH of the report. The verdict is last."""
    lines = render_table(doc, length)
    return (
        lines[:-1]
        + [""]
        + [text.one_line(reason) for reason in doc["reasons"]]
        + ["next: %s" % text.one_line(step) for step in doc["next_steps"]]
        + ["report: %s" % path, lines[-1]]
    )


def find_failing_hosts(
    doc: dict,
    hosts: t.Sequence[str],
    gone: t.Iterable[str],
    host: str,
    verdict: str,
    part: t.Iterable[str] | None = None,
) -> dict[str, str]:
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
        name: "%s is %s%s"
        % (name, node["state"], ": " + text.one_line(node["reason"], report.REFERENCE) if node["reason"] else "")
        for name, node in mine.items()
        if node["state"] in state.FAILED
    }
    if CONTROLLER in hosts:
        return dict(found, **{CONTROLLER: verdict})
    found.update(
        {
            name: "%s is %s: %s" % (name, node["state"], node["reason"] or doc["reasons"][0])
            for name, node in mine.items()
            if node["state"] in ("pending",) + state.IN_FLIGHT or node["orphaned"]
        }
    )
    told = found or any(
        name in gone and node["in_run"] and node["state"] not in ("done", "skipped")
        for name, node in doc["nodes"].items()
    )
    return found if told else {host: verdict}


def _list_rows(nodes, limit=None) -> Iterator:
    """Yield a row for each of NODES, (name, node), with at most LIMIT characters of its reason."""
    for name, node in nodes:
        yield (
            text.one_line(name),
            node["state"],
            text.one_line(node["from"]) or "-",
            report.describe_target(node),
            report.describe_duration(node) or "-",
            report.describe_reason(node, limit) or "-",
        )


def _select_nodes(doc) -> list[tuple]:
    """Return (name, node) of all nodes, or of many those that are in flight or failed."""
    is_large = len(doc["nodes"]) > report.LISTED
    return [
        (name, node)
        for name, node in doc["nodes"].items()
        if not is_large or node["state"] not in ("done", "skipped", "pending") or node["orphaned"]
    ]


def render_markdown(doc: dict) -> str:
    """Return the report as Markdown."""
    section, table = formats.Section, formats.Table
    bad, some, estimate = report.list_troubled(doc), _select_nodes(doc), report.describe_estimate(doc)
    when = "Rollout %s, started %s, finished %s%s. %s." % (
        doc["rollout_id"],
        report.format_time(doc["started"]),
        report.format_time(doc["finished"]) or "not yet",
        ", after %s" % report.format_duration(doc["started"], doc["finished"]) if doc["finished"] else "",
        report.describe_counts(doc),
    )
    troubled = (
        (
            name,
            node["state"],
            report.find_failed_step(node) or "-",
            report.describe_reason(node),
            report.SERVES.get(node["state"], "unknown"),
        )
        for name, node in bad
    )
    budgets = ((name, str(entry["used"]), str(entry["limit"])) for name, entry in doc["budgets"].items())
    evidence = ["%s: %s" % (name, ", ".join(node["evidence"])) for name, node in bad if node["evidence"]]
    left = len(doc["nodes"]) - len(some)
    folded = "%s more are done, skipped or pending; report.json names them." % text.count_noun(left, "node")
    sections = [
        section("", doc["reasons"]),
        section("What to do", doc["next_steps"], 2, True),
        section("", when),
        section("", estimate and estimate[:1].upper() + estimate[1:] + "."),
        section("Nodes that need attention", table(("node", "state", "failed in", "reason", "serves"), troubled)),
        section("Evidence", evidence),
        section("Budgets", table(("budget", "used", "limit"), budgets)),
        section("Nodes", table(COLUMNS, _list_rows(some))),
        section("", folded if left else ""),
    ]
    for name, node in some[: report.LISTED]:
        steps = (
            (
                step["name"],
                step["started"],
                report.format_duration(step["started"], step["finished"]) or "-",
                step["status"],
            )
            for step in node["steps"]
        )
        earlier = (
            (str(one["attempt"]), one["ended"] or "-", one["state"], report.find_failed_step(one) or "-", one["reason"])
            for one in node["earlier"]
        )
        sections.append(section(name, table(("step", "started", "took", "status"), steps), 3))
        head = ("attempt", "ended", "state", "failed in", "reason")
        sections.append(section("%s: findings" % name, table(report.FINDING_COLUMNS, report.list_findings(node)), 3))
        sections.append(section("%s: earlier attempts" % name, table(head, earlier), 3))
    return formats.render_markdown("Driver rollout to %s: %s" % (doc["target"], doc["verdict"]), sections)


def render_junit(doc: dict) -> str:
    """Return the report as JUnit XML: a suite for the whole rollout, and one with a case for each node."""
    verdict = doc["verdict"]
    outcome = {"complete": "passed", "running": "skipped", "failed": "failure"}.get(verdict, "error")
    whole = formats.Case(
        "verdict",
        "gpufleet.rollout",
        outcome,
        verdict,
        "%s: %s" % (verdict, report.describe_counts(doc)),
        "\n".join(doc["reasons"] + doc["next_steps"]),
    )
    properties = [
        ("verdict", verdict),
        ("rollout", doc["rollout_id"]),
        ("target", doc["target"]),
        ("plan", doc["sha256"]),
    ]
    time = doc["time"] or ""
    return formats.render_junit(
        [
            formats.Suite("rollout", "gpufleet.rollout", time, properties, [whole], doc["reasons"]),
            formats.Suite(
                "nodes",
                "gpufleet.rollout",
                time,
                [],
                [_make_case(name, node, doc["finished"]) for name, node in doc["nodes"].items()],
                [],
            ),
        ]
    )


def _make_case(name, node, finished) -> formats.Case:
    place = "gpufleet.rollout.%s" % (",".join("%s-%s" % item for item in sorted(node["domains"].items())) or "nodes")
    words = node["reason"] or node["state"]
    if not node["in_run"]:
        return formats.Case(name, place, "skipped", "", "not part of this run, %s: %s" % (node["state"], words), "")
    if node["state"] == "done":
        return formats.Case(name, place, "passed", "", "", "")
    if node["state"] in state.FAILED:
        steps = "\n".join(
            [
                "%s: %s, %s"
                % (step["name"], step["status"], report.format_duration(step["started"], step["finished"]) or "open")
                for step in node["steps"]
            ]
            + ["earlier, attempt %d: %s, %s" % (one["attempt"], one["state"], one["reason"]) for one in node["earlier"]]
        )
        return formats.Case(
            name,
            place,
            "error" if node["state"] == "lost" else "failure",
            node["state"],
            words,
            "%s\n%s\n%s" % (words, report.find_next_step(node["state"], node["failure"], finished), steps),
        )
    # A node that is in flight or did not start has no verdict, which is not a pass.
    return formats.Case(
        name, place, "skipped", "", "%s%s" % (node["state"], ": " + node["reason"] if node["reason"] else ""), ""
    )


VERDICTS = ("complete", "failed", "incomplete", "running")


def escape_label(value: object) -> str:
    """Return the value of a label, escaped."""
    return text.clean_text(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _format_sample(name, labels, value) -> str:
    shown = ",".join('%s="%s"' % (key, escape_label(label)) for key, label in labels)
    return "%s{%s} %s" % (name, shown, ("%.3f" % value).rstrip("0").rstrip(".") if isinstance(value, float) else value)


def list_metrics(doc: dict) -> tuple:
    """Return (name, help, [(labels, value)]) of all metrics. Unknown values have no sample."""
    mine = ("rollout", doc["rollout_id"])
    budgets, now = doc["budgets"], doc["estimate"]

    def one(value) -> list[tuple]:
        return [((mine,), value)] if value is not None else []

    return (
        (
            "info",
            "The target version of the rollout and the digest of its plan.",
            [((mine, ("target", doc["target"]), ("plan", doc["sha256"][:12])), 1)],
        ),
        (
            "verdict",
            "1 for the current verdict of the rollout.",
            [((mine, ("verdict", word)), int(doc["verdict"] == word)) for word in VERDICTS],
        ),
        (
            "nodes",
            "Nodes of the plan by state.",
            [((mine, ("state", name)), doc["counts"].get(name, 0)) for name in state.STATES],
        ),
        (
            "down_nodes",
            "Down slots in use: nodes that serve no work, are lost, or are broken elsewhere.",
            one(budgets["down"]["used"]),
        ),
        ("down_budget", "Down slots of the policy.", one(budgets["down"]["limit"])),
        ("down_window", "Down slots that growth allows now.", one(budgets["down"]["window"])),
        ("draining_nodes", "Nodes that drain.", one(budgets["draining"]["used"])),
        ("draining_budget", "Nodes that may drain at a time.", one(budgets["draining"]["limit"])),
        (
            "failures",
            "Failures in the failure budget, where a lost node counts twice.",
            one(budgets["failures"]["used"]),
        ),
        ("failure_budget", "Failures at which no further node starts.", one(budgets["failures"]["limit"])),
        ("paused", "1 while an operator has paused the rollout.", one(int(bool(doc["paused"])))),
        (
            "stopped",
            "1 when an operator has stopped the rollout, or a budget is spent.",
            one(int(bool(doc["stopped"] or doc["spent"]))),
        ),
        ("held", "1 while a hold query keeps nodes from starting.", one(int(bool(doc["held"])))),
        (
            "remaining_seconds",
            "Expected time until the last node has ended.",
            one(float(now["expected_s"]) if now else None),
        ),
        (
            "started_timestamp_seconds",
            "Time of the last plan of the rollout.",
            one(timeline.parse_time(doc["started"])),
        ),
        ("finished_timestamp_seconds", "Time at which the rollout ended.", one(timeline.parse_time(doc["finished"]))),
        (
            "last_event_timestamp_seconds",
            "Time of the last event in its ledger.",
            one(timeline.parse_time(doc["last_event"])),
        ),
        ("report_timestamp_seconds", "Time at which this file was written.", one(timeline.parse_time(doc["time"]))),
    )


def render_metrics(doc: dict) -> str:
    """Return the file. It begins with the verdict in a comment."""
    lines = ["# rollout %s: %s" % (text.one_line(doc["rollout_id"]), text.one_line(doc["verdict"]))]
    lines += ["# %s" % text.one_line(reason, 300) for reason in doc["reasons"][:5]]
    for name, meaning, samples in list_metrics(doc):
        if samples:
            whole = "gpufleet_rollout_" + name
            lines += ["# HELP %s %s" % (whole, meaning), "# TYPE %s gauge" % whole]
            lines += [_format_sample(whole, labels, value) for labels, value in samples]
    return "\n".join(lines) + "\n"


KINDS = ("install", "upgrade", "downgrade", "reinstall", "remove")


def preview_packages(previews: dict[str, t.Any]) -> list[str]:
    """Return lines about PREVIEWS, the results of driver_packages by node.

    Nodes without a usable result are left out.
    """
    alike = {}
    for name in sorted(previews):
        found = previews[name] if isinstance(previews[name], dict) else {}
        packages, transaction = (found.get("resolved") or {}).get("packages"), found.get("transaction")
        if packages is not None and transaction is not None and found.get("resolvable", True):
            alike.setdefault(_list_changes(transaction), []).append(name)
    said = []
    for changes, names in sorted(alike.items(), key=lambda item: (-len(item[1]), item[1])):
        said.append("packages of %s: %s" % (text.count_noun(len(names), "node"), limits.list_names(names)))
        said += ["  %s" % change for change in changes] or ["  nothing would be installed or removed"]
    return said


def find_refused_hosts(nodes: dict[str, dict], hosts: t.Sequence[str], host: str) -> dict[str, str]:
    """Return {host: message} for the HOSTS that have to fail, as the rollout itself would not be complete.

    NODES: the nodes of the plan, by name. HOST: the host of the task, which fails if no other one can.
    """
    out = {name: nodes[name] for name in plan.find_blocked_nodes(nodes)}
    if not out:
        return {}
    found = {
        name: "%s would be left out: %s%s" % (name, node["state"], ", " + node["reason"] if node.get("reason") else "")
        for name, node in out.items()
        if name in hosts
    }
    if CONTROLLER in hosts or not found:
        found[CONTROLLER if CONTROLLER in hosts else host] = (
            "Check mode: the rollout would not be complete. %s of %s would be left out: %s. The plan above says "
            "why. Repair them, or leave them out of the hosts."
            % (
                len(out),
                text.count_noun(len(nodes), "node"),
                limits.list_names([text.one_line(name) for name in sorted(out)]),
            )
        )
    return found


def _list_changes(transaction) -> tuple:
    return tuple(
        "%s: %s" % (kind, text.one_line(", ".join(sorted(_name_package(entry) for entry in transaction[kind]))))
        for kind in KINDS
        if transaction.get(kind)
    )


def _name_package(entry) -> str:
    return "%s %s" % (entry.get("name"), entry.get("version")) if isinstance(entry, dict) else str(entry)
