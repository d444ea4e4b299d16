# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTML report of a rollout: first what an operator needs, then the charts. Pure."""

from __future__ import annotations

import urllib.parse

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import html, text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import order
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import report, timeline
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report.timeline import TimeScale

WIDTH, LEFT, RIGHT = 1130.0, 210.0, 1000.0
ROW, HEAD, CHART = 18.0, 24.0, 58.0
# Limits: failure domains in the chart, cards that are open, cards at all, names in a list, nodes in flight in the
# chart.
DOMAINS, OPEN_CARDS, CARDS, NAMES, FLYING = 150, 6, 200, 500, 60
SIGN = {
    "done": "✓",
    "skipped": "–",
    "failed": "✕",
    "rolled_back": "↩",
    "quarantined": "⊘",
    "lost": "?",
    "pending": "·",
    "draining": "▸",
    "down": "▸",
    "validating": "▸",
    "soaking": "▸",
}
TONE = {
    "done": "pass",
    "skipped": "pass",
    "failed": "unknown",
    "rolled_back": "unknown",
    "quarantined": "fail",
    "lost": "unreachable",
    "pending": "all",
    "draining": "unknown",
    "down": "unknown",
    "validating": "unknown",
    "soaking": "unknown",
}
# States of nodes that an operator has to look at now. A failed or rolled back node serves.
URGENT = ("lost", "quarantined")
HEADLINE = {"rolled_back": "put back to the earlier driver and proven"}
PHASES = {
    "prepare": "prepare",
    "drain": "drain",
    "down": "down",
    "validate": "validate",
    "soak": "soak",
    "rollback": "roll back",
}
QUIET = ("done", "skipped", "pending")


def name_state(name: str) -> str:
    return name.replace("_", " ")


def render_page(doc: dict, story: timeline.Timeline) -> str:
    return html.render_page("rollout.html.j2", build_view(doc, story), ("style.css", "rollout.css"))


def build_view(doc: dict, story: timeline.Timeline) -> dict:
    """Return the values for the template."""
    bad = report.list_troubled(doc)
    counts, tone = doc["counts"], choose_tone(doc)
    flying = sum(counts.get(name, 0) for name in state.IN_FLIGHT)
    end = timeline.parse_time(doc["time"]) or story.last
    scale = TimeScale(_find_busy(story, end), LEFT, RIGHT) if story.points else None
    large = len(doc["nodes"]) > report.LISTED
    return {
        "title": "Rollout %s: %s" % (doc["rollout_id"], doc["verdict"]),
        "kind": "Driver rollout %s to %s" % (doc["rollout_id"], doc["target"]),
        "verdict": doc["verdict"],
        "tone": tone,
        # What went as the policy says is not called a failure in the first line.
        "badge": "" if doc["verdict"] == "failed" and tone == "unknown" else doc["verdict"].upper(),
        "headline": write_headline(doc),
        "made": format_moment(doc["time"]),
        "simulated": False,
        "reasons": doc["reasons"],
        "next_steps": doc["next_steps"],
        "over": report.describe_estimate(doc),
        "running": doc["verdict"] == "running",
        "tiles": [
            (
                "attention",
                tone if tone != "pass" else "unknown",
                len(bad),
                "need%s attention" % ("s" if len(bad) == 1 else ""),
            ),
            ("timeline", "unknown", flying, "in flight"),
            (
                "nodes",
                "all",
                counts.get("pending", 0),
                "did not start" + (" yet" if doc["verdict"] == "running" else ""),
            ),
            ("nodes", "pass", counts.get("done", 0), "done"),
            ("nodes", "all", sum(counts.values()), "in all"),
        ],
        "cards": [_build_card(name, node, len(bad) <= OPEN_CARDS, doc["finished"]) for name, node in bad[:CARDS]],
        "more_cards": max(0, len(bad) - CARDS),
        "budgets": _draw_budgets(doc, story, scale, end) if scale else [],
        "scale": _draw_scale(scale) if scale else None,
        "timeline": _draw_timeline(doc, story, scale, end, large) if scale else None,
        "phases": [
            {"key": key, "label": label}
            for key, label in PHASES.items()
            if any(span.phase == key for spans in story.spans.values() for span in spans)
        ],
        "journal": story.journal[-report.LISTED :],
        "rows": [
            _build_row(name, node) for name, node in doc["nodes"].items() if not (large and node["state"] in QUIET)
        ][: report.LISTED],
        "folded": _fold_quiet(doc) if large else [],
        "how": list_settings(doc),
        "moment": format_moment,
        "duration": report.format_duration,
        "failed_step": report.find_failed_step,
        "name_state": name_state,
        "reason_length": report.REASON,
        "finding_columns": report.FINDING_COLUMNS,
        "geometry": {"width": WIDTH, "left": LEFT, "right": RIGHT},
    }


def choose_tone(doc: dict) -> str:
    """Return the colour of the first line: red (fail) if a node needs an operator, amber (unknown) if not complete."""
    if doc["verdict"] == "complete":
        return "pass"
    left = [node for node in doc["nodes"].values() if node["orphaned"] and node["in_run"]]
    if doc["verdict"] != "running" and any(doc["counts"].get(name) for name in state.IN_FLIGHT):
        left.append(None)
    return "fail" if left or any(doc["counts"].get(name) for name in URGENT) else "unknown"


def format_moment(time: str | None, length: int = 16) -> str:
    """Return 2026-01-31 12:00 for 2026-01-31T12:00:00.000Z."""
    return (time or "")[:length].replace("T", " ")


def write_headline(doc: dict) -> str:
    counts, total = doc["counts"], sum(doc["counts"].values())
    if doc["verdict"] == "complete":
        return "%s done or had nothing to do" % ("The node is" if total == 1 else "All %d nodes are" % total)
    parts = [
        "%d %s" % (counts[name], HEADLINE.get(name, name_state(name))) for name in report.WORST if counts.get(name)
    ]
    parts += ["%d in flight" % flying for flying in [sum(counts.get(name, 0) for name in state.IN_FLIGHT)] if flying]
    parts += (
        ["%d did not start%s" % (counts["pending"], " yet" if doc["verdict"] == "running" else "")]
        if counts.get("pending")
        else []
    )
    over = counts.get("done", 0) + counts.get("skipped", 0)
    done = "%d of %s done" % (over, text.count_noun(total, "node"))
    if any(counts.get(name) for name in URGENT):
        return "%s; %s" % (", ".join(parts), done)
    return ", ".join([done, *parts])


def list_settings(doc: dict) -> list[tuple[str, str]]:
    policy = doc["policy"] or {}
    shown = (
        ("max_down", "down at a time"),
        ("max_draining", "draining at a time"),
        ("failure_budget", "failure budget"),
        ("failure_percent", "failed, percent"),
        ("domain_caps", "of one failure domain"),
        ("growth_start", "down at first"),
        ("broken_elsewhere", "broken elsewhere"),
        ("holds", "asked before a go"),
    )
    return (
        [
            ("plan", doc["sha256"][:12]),
            ("started", format_moment(doc["started"], 19) + " UTC"),
            ("finished", format_moment(doc["finished"], 19) + " UTC" if doc["finished"] else "not yet"),
        ]
        + [(label, text.format_value(policy[key])) for key, label in shown if policy.get(key) not in (None, {}, [], 0)]
        + [("schema", doc["schema"])]
    )


def _describe_node(name, node) -> dict:
    """Return what the card and the row of a node have in common."""
    return {
        "name": name,
        "state": name_state(node["state"]),
        "tone": TONE[node["state"]],
        "sign": SIGN[node["state"]],
        "canary": node["canary"],
        "earlier": node["earlier"],
    }


def _build_card(name, node, opened, finished) -> dict:
    return dict(
        _describe_node(name, node),
        open=opened,
        where=", ".join("%s %s" % item for item in sorted(node["domains"].items())),
        step=report.find_failed_step(node),
        reason=report.describe_reason(node) or "No reason was recorded.",
        serves=report.SERVES.get(node["state"], "unknown"),
        next=report.find_next_step(node["state"], node["failure"], finished)
        if node["state"] in report.WORST
        else "Run the same playbook again: it examines this node first.",
        change="%s → %s" % (node["from"] or "unknown", report.describe_target(node, "unknown")),
        attempt=node["attempt"],
        findings=report.list_findings(node),
        steps=node["steps"],
        evidence=[
            {"href": "file://" + urllib.parse.quote(path), "words": path.rpartition("/")[2], "path": path}
            for path in node["evidence"]
        ],
    )


def _build_row(name, node) -> dict:
    found = dict(
        _describe_node(name, node),
        took=report.describe_duration(node) or "-",
        where=", ".join(node["domains"][key] for key in sorted(node["domains"])),
        change="%s → %s" % (node["from"] or "?", report.describe_target(node, "?")),
        reason=report.describe_reason(node, report.REASON),
    )
    # The card of a node that needs attention has its attempts.
    return dict(found, earlier=[]) if node["state"] in report.WORST else found


def _fold_quiet(doc) -> list[dict]:
    """Return the names of nodes that need no attention, by state."""
    found = []
    for name in QUIET:
        names = [one for one, node in doc["nodes"].items() if node["state"] == name]
        if names:
            found.append(
                {
                    "state": name,
                    "count": len(names),
                    "names": ", ".join(names[:NAMES]),
                    "more": max(0, len(names) - NAMES),
                }
            )
    return found


# Charts. Numbers are rounded here, the template escapes all text.


def _find_busy(story, end) -> list[tuple]:
    times = [(span.start, end if span.end is None else span.end) for spans in story.spans.values() for span in spans]
    return (
        times
        + [(point.time, point.time) for point in story.points]
        + [
            (
                story.last,
                max(story.last, end)
                if any(span.end is None for spans in story.spans.values() for span in spans)
                else story.last,
            )
        ]
    )


def _draw_scale(scale) -> dict[str, list]:
    return {
        "ticks": [{"x": "%.1f" % where, "words": label} for where, label in scale.ticks()],
        "breaks": [{"x": "%.1f" % where, "words": report.format_span(length)} for where, length in scale.breaks()],
    }


def draw_steps(scale, changes, end, height, most) -> str:
    """Return a step line through (time, value) as a path, with at most one column per pixel and without losing
    peaks.
    """
    if not changes:
        return ""

    def y(value) -> float:
        return height - (height - 8) * min(1.0, value / float(most))

    columns = {}
    for time, value in changes:
        columns.setdefault(int(scale.x(time)), []).append((scale.x(time), value))
    path = []
    for entries in columns.values():
        kept = (
            entries
            if len(entries) <= 4
            else [
                entries[0],
                max(entries, key=lambda entry: entry[1]),
                min(entries, key=lambda entry: entry[1]),
                entries[-1],
            ]
        )
        for where, value in sorted(kept, key=lambda entry: entry[0]):
            path.append("%s%.1f %s%.1f" % ("H" if path else "M", where, "V" if path else " ", y(value)))
    return " ".join(path) + " H%.1f" % scale.x(end)


def _close_path(path, scale, first, height) -> str:
    return "%s V%.1f H%.1f Z" % (path, height, scale.x(first)) if path else ""


def _draw_budgets(doc, story, scale, end) -> list[dict]:
    last = max(end, story.last)
    drawn = []
    for key, title, used, limit, window in (
        ("down", "Down slots", "down", "max_down", "window"),
        ("draining", "Draining", "draining", "max_draining", ""),
        ("failures", "Failures", "failures", "failure_budget", ""),
    ):
        points = [(point.time, getattr(point, used)) for point in story.points]
        limits = [(point.time, getattr(point, limit)) for point in story.points]
        most = max([1] + [value for dummy, value in points + limits]) * 1.1
        line = draw_steps(scale, points, last, CHART, most)
        grown = [(point.time, point.window) for point in story.points if window and point.window is not None]
        now = doc["budgets"][key]
        peak = max(value for dummy, value in points)
        drawn.append(
            {
                "key": key,
                "title": title,
                "line": line,
                "area": _close_path(line, scale, points[0][0], CHART),
                "limit": draw_steps(scale, limits, last, CHART, most),
                "limit_y": "%.1f" % (CHART - (CHART - 8) * limits[-1][1] / most),
                "window": draw_steps(scale, grown, last, CHART, most),
                "height": CHART,
                "used": now["used"],
                "of": now["limit"],
                "peak": peak,
                "full": now["limit"] is not None and now["used"] >= now["limit"],
            }
        )
    return drawn


def _group_nodes(doc, names) -> list[tuple]:
    """Return (title, nodes) by failure domain: by rack if there are racks."""
    keys = sorted({key for name in names for key in doc["nodes"][name]["domains"]})
    key = "rack" if "rack" in keys else keys[0] if keys else ""
    groups = {}
    for name in names:
        groups.setdefault(doc["nodes"][name]["domains"].get(key, ""), []).append(name)
    return [
        (place if place.startswith(key) else "%s %s" % (key, place), groups[place])
        if place
        else ("other nodes" if key else "", groups[place])
        for place in sorted(groups, key=order.natural_key)
    ]


def _draw_timeline(doc, story, scale, end, large) -> dict:
    """Return the rows of nodes, under headings of their failure domains.

    For many nodes: failed ones, some of those in flight, and the failure domains as areas.
    """
    y, rows, headings = HEAD, [], []
    groups = _group_nodes(doc, list(doc["nodes"]))
    if large:
        bad = [name for name, node in doc["nodes"].items() if node["state"] in state.FAILED]
        flying = [name for name, node in doc["nodes"].items() if node["state"] in state.IN_FLIGHT]
        groups = [
            ("failed", bad[: report.LISTED]),
            ("in flight (%d of %d)" % (min(FLYING, len(flying)), len(flying)), flying[:FLYING]),
        ]
    for title, members in groups:
        if title and members:
            headings.append({"title": text.one_line(title, 28), "y": y + 13})
            y += 20
        for name in members:
            rows.append(_draw_bars(name, doc["nodes"][name], story, scale, end, y))
            y += ROW
        y += 6 if members else 0
    domains = []
    if large:
        headings.append({"title": "failure domains", "y": y + 13})
        domains, y = _draw_domains(doc, story, scale, end, y + 20)
    return {
        "rows": rows,
        "headings": headings,
        "domains": domains,
        "height": y + 8,
        "large": large,
        "shown": len(rows),
        "now": "%.1f" % scale.x(end) if doc["verdict"] == "running" else "",
    }


def _draw_bars(name, node, story, scale, end, y) -> dict:
    bars = []
    for span in story.spans.get(name, ()):
        until = end if span.end is None else span.end
        x = scale.x(span.start)
        bars.append(
            {
                "phase": span.phase,
                "x": "%.1f" % x,
                "width": "%.1f" % max(1.5, scale.x(until) - x),
                "open": span.end is None,
                "title": "%s: %s, %s"
                % (
                    name,
                    PHASES[span.phase],
                    report.format_span(until - span.start) + (" so far" if span.end is None else ""),
                ),
            }
        )
    marks = [
        {"x": "%.1f" % scale.x(time), "sign": SIGN[ended], "title": "%s: %s" % (name, name_state(ended))}
        for time, ended in story.marks.get(name, ())
        if ended in state.FAILED
    ]
    short = text.one_line(name, 26)
    return {
        "name": name,
        "short": ("◆ " if node["canary"] else "") + short,
        "y": y,
        "bars": bars,
        "marks": marks,
        "tone": TONE[node["state"]],
        "state": "%s %s" % (SIGN[node["state"]], name_state(node["state"])),
        "bad": node["state"] in state.FAILED,
    }


def _draw_domains(doc, story, scale, end, y) -> tuple[list, float]:
    """Return failure domains as areas of the number of their nodes that do not serve; those with failures first."""
    found = []
    for title, members in _group_nodes(doc, list(doc["nodes"])):
        changes = {}
        for name in members:
            for span in story.spans.get(name, ()):
                if span.phase != "drain":
                    changes[span.start] = changes.get(span.start, 0) + 1
                    if span.end is not None:
                        changes[span.end] = changes.get(span.end, 0) - 1
        level, levels = 0, []
        for time in sorted(changes):
            level += changes[time]
            levels.append((time, level))
        bad = [name for name in members if doc["nodes"][name]["state"] in state.FAILED]
        done = len([name for name in members if doc["nodes"][name]["state"] in ("done", "skipped")])
        found.append(
            {
                "title": title or "all nodes",
                "levels": levels,
                "bad": bad,
                "said": "%d/%d done%s" % (done, len(members), ", %d ✕" % len(bad) if bad else ""),
            }
        )
    shown = sorted(found, key=lambda entry: not entry["bad"])[:DOMAINS]
    most = max([1] + [level for entry in shown for dummy, level in entry["levels"]])
    for entry in shown:
        line = draw_steps(scale, entry["levels"], end, 16, most)
        entry.update(
            y=y,
            short=text.one_line(entry["title"], 28),
            area=_close_path(line, scale, entry["levels"][0][0], 16) if line else "",
            marks=[
                {"x": "%.1f" % scale.x(time), "sign": SIGN[ended], "title": "%s: %s" % (name, name_state(ended))}
                for name in entry["bad"][:20]
                for time, ended in story.marks.get(name, ())[-1:]
            ],
        )
        y += 22
    if len(found) > len(shown):
        shown.append(
            {
                "title": "",
                "short": "and %d more" % (len(found) - len(shown)),
                "said": "",
                "y": y,
                "area": "",
                "marks": [],
                "bad": [],
            }
        )
        y += 22
    return shown, y + 8
