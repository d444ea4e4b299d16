# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times, nodes and estimates of a report in words. Pure."""

from __future__ import annotations

import datetime

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import timeline

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
    "failed": (
        "Nothing was changed on it: it is in the state in which the run found it. Fix the cause, then run the same "
        "playbook again."
    ),
}
SERVES = {"lost": "unknown", "quarantined": "no", "rolled_back": "yes, as before", "failed": "as before"}
# The length of a reason in the table; the report has all of it.
REASON = 300
WORST = ("lost", "quarantined", "failed", "rolled_back")


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
    found = [(name, node) for name, node in doc["nodes"].items() if node["state"] in WORST or node["orphaned"]]
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
