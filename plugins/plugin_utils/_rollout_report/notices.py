# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The notices that a webhook gets, from the events of a rollout. Pure."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.events import apply
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

SCHEMA = "gpufleet.event/1"
# Kinds of ledger events that may result in a notice.
NOTABLE = ("plan", "end", "control", "hold", "state")
VERBS = {
    "pause": "paused",
    "resume": "resumed",
    "stop": "stopped",
    "skip": "left out",
    "retry": "to be tried again",
    "set_budget": "limits changed",
    "break_lock": "lock broken",
    "retire": "node retired",
    "end": "ended",
}


@dataclasses.dataclass
class Notice:
    number: int  # of the event
    time: str
    kinds: t.List[str]
    lines: t.List[str]
    node: str = ""
    counts: t.Dict[str, int] = dataclasses.field(default_factory=dict)
    rollout_id: str = ""
    target: str = ""


def notable(event, canaries):
    """Return True if an event may result in a notice, without knowledge of the other events."""
    if event["event"] != "state":
        return event["event"] in NOTABLE
    return event["state"] in state.FAILED or event.get("node") in canaries


def notices(events):
    """Return the notices for a list of (number, event), first to last."""
    view, found, spent, told = state.Rollout(), [], "", False
    for number, event in events:
        if view.run is None and event["event"] != "plan":
            continue
        mine = event["event"] == "plan" or event.get("run") == view.run
        apply(view, event)
        if not mine or event["event"] not in NOTABLE:
            continue
        if event["event"] == "plan":
            spent, told = "", False
        kinds, lines = _of(view, event)
        if event["event"] == "state":
            if not told and view.nodes.canaries() and all(node.state in state.ENDED for node in view.nodes.canaries()):
                told = True
                kinds.append("canary")
                lines.append(_canaries(view))
            why = (
                limits.spent(view.policy, view.nodes.having(*state.FAILED), view.attempted)
                if event["state"] in state.FAILED
                else spent
            )
            if why and not spent:
                kinds.append("stopped")
                lines.append("No further node starts: %s." % why)
            spent = why or spent
        if kinds:
            found.append(
                Notice(
                    number,
                    event["time"],
                    kinds,
                    [text.line(line, 600) for line in lines],
                    event.get("node") or "",
                    view.nodes.count(),
                    view.rollout_id,
                    view.target,
                )
            )
    return found


def _of(view, event):
    kind = event["event"]
    if kind == "plan":
        return ["started"], [
            "Rollout %s began: %s to %s, at most %d down at a time."
            % (view.rollout_id, text.count(view.total, "node"), view.target, view.policy["max_down"])
        ]
    if kind == "end":
        counts = view.nodes.count()
        return ["finished"], [
            "Rollout %s is over: %s (%s)."
            % (
                view.rollout_id,
                state.verdict(view, True),
                ", ".join("%d %s" % (counts[name], name.replace("_", " ")) for name in state.STATES if counts.get(name))
                or "no nodes",
            )
        ]
    if kind == "control":
        return ["operator"], [
            "Rollout %s: %s%s by %s: %s."
            % (
                view.rollout_id,
                event["node"] + " " if event.get("node") else "",
                VERBS.get(event["verb"], event["verb"]),
                event["user"],
                event["reason"].rstrip("."),
            )
        ]
    if kind == "hold":
        held = "is held: %s" % event["reason"] if event["names"] else "is no longer held."
        return ["held"], ["Rollout %s %s" % (view.rollout_id, held)]
    if event["state"] in state.FAILED:
        node = view.nodes.get(event["node"])
        return ["failed"], [
            "%s is %s: %s"
            % (
                event["node"],
                event["state"].replace("_", " "),
                (node.reason if node else "") or "no reason was recorded",
            )
        ]
    return [], []


def _canaries(view):
    bad = [node for node in view.nodes.canaries() if node.state in state.FAILED]
    if bad:
        return "Canary %s failed: %s" % (bad[0].name, bad[0].reason or bad[0].state)
    return "The canaries have ended: %s." % limits.listed(
        "%s %s" % (node.name, node.state) for node in view.nodes.canaries()
    )


def wanted(found, kinds):
    """Return the notices of the wanted KINDS."""
    return [notice for notice in found if set(notice.kinds) & set(kinds)]


def payload(notice, kind, repeat):
    """Return the body to post. REPEAT: an earlier attempt may have arrived."""
    if kind == "slack":
        words = "\n".join(notice.lines) + (
            "\n(sent again: it is not known whether the first attempt arrived)" if repeat else ""
        )
        return json.dumps({"text": words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}).encode()
    return json.dumps(
        {
            "schema": SCHEMA,
            "id": "%s/%d" % (notice.rollout_id, notice.number),
            "rollout_id": notice.rollout_id,
            "target": notice.target,
            "time": notice.time,
            "events": notice.kinds,
            "text": "\n".join(notice.lines),
            "node": notice.node,
            "counts": notice.counts,
            "repeat": repeat,
        }
    ).encode()
