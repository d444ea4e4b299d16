# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates the report files of a rollout while it runs, at little cost.

Many short-lived processes write to the ledger. Each updates the files afterwards, unless that would take more than a
small share of the controller's time. Then a later process does it, also one of a node that waits. An error of a report
is a warning and never stops a rollout.
"""

from __future__ import annotations

import os
import re
import time

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files as places
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.names import check_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.text import timestamp
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import (
    formats,
    metrics,
    page,
    report,
    timeline,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report.words import troubled

NAMES = {
    "json": "report.json",
    "markdown": "report.md",
    "junit": "junit.xml",
    "html": "report.html",
    "prometheus": "rollout.prom",
}
# The share of the time for reports, the seconds of it that can be saved up, and the interval of checks.
SHARE, SAVED_S, LOOK_S = 0.05, 4.0, 2.0
# How long a writer waits for another one.
PATIENCE_S = 20.0
# With more nodes than this, report.json has one line.
DENSE = 1000
# The number of failed nodes whose evidence is listed, and of bundles for each.
EVIDENCE, BUNDLES = 200, 20
TEXTFILE = "gpufleet_rollout_%s.prom"


def gather(ledger, ended=None):
    """Return (document, timeline) of a rollout as it is now. ENDED: True if its run has ended, None to read it."""
    events = ledger.events()
    story = timeline.build(events)
    over = story.view.finished is not None if ended is None else ended
    read = ledger.rehearse(lambda one: (one.owner, one.ledger_id, timestamp(one.clock())))
    owner, identity, now = read or (None, None, None)
    doc = report.document(
        story.view,
        over,
        now,
        events[-1]["time"] if events else None,
        story,
        members.shared(owner),
        (identity, len(events)),
    )
    for name, node in troubled(doc)[:EVIDENCE]:
        node["evidence"] = bundles(ledger, name)
    return doc, story


def bundles(ledger, name):
    """Return the directories with evidence of a node on the controller, in the order of its attempts."""
    place = os.path.join(
        os.path.abspath(os.path.expanduser(ledger.artifact_dir)), "evidence", ledger.rollout_id, check_node(name)
    )
    try:
        found = os.listdir(place)
    except OSError:
        return []  # there are none, or they are on another host, which the reason names
    attempts = sorted((int(one.partition("-")[0]), one) for one in found if one.partition("-")[0].isdigit())
    return [os.path.join(place, one) for dummy, one in attempts][-BUNDLES:]


def contents(doc, story):
    """Return the files of a report by name."""
    return {
        NAMES["json"]: files.json_text(doc, len(doc["nodes"]) > DENSE),
        NAMES["markdown"]: formats.markdown_text(doc),
        NAMES["junit"]: formats.junit_text(doc),
        NAMES["html"]: page.html_text(doc, story),
        NAMES["prometheus"]: metrics.render(doc),
    }


def textfile_name(rollout_id):
    return TEXTFILE % re.sub(r"[^A-Za-z0-9_]", "_", rollout_id)


def _account(handle):
    """Return (seconds saved up, when, seconds that writing took, last event) of the last update."""
    found = places.read_json(handle)
    try:
        return (
            float(found.get("saved_s", SAVED_S)),
            float(found.get("time", 0)),
            float(found.get("took_s", 0)),
            found.get("event"),
        )
    except (ValueError, TypeError):
        return SAVED_S, 0.0, 0.0, None


def refresh(ledger, now=False, idle=False, textfile_dir="", complain=lambda words: None, ended=None):
    """Write the files if an update is due, or NOW; return the document if one was made.

    IDLE: only if the last check was a while ago. ENDED: as in gather(). Errors go to COMPLAIN, but with NOW an error of
    the ledger is raised.
    """
    path = ledger.path("report.lock")
    try:
        if idle and not now and places.written_within(path, LOOK_S):
            return None
        with places.locked(path, PATIENCE_S if now else 0.5) as handle:
            if handle is None and not now:
                return None  # another process writes; a later update has what is missing
            doc = _write(ledger, handle, now, textfile_dir, complain, ended)
            return doc
    except OSError as exc:
        complain(
            "The report of rollout %s cannot be written on the controller: %s. The rollout continues without it."
            % (ledger.rollout_id, exc)
        )
    except store.StoreError as exc:
        if now:
            raise
        complain("The report of rollout %s was not brought up to date: %s" % (ledger.rollout_id, exc))
    return gathered(ledger, complain, ended)[0] if now else None


def gathered(ledger, complain, ended=None):
    """Return the result of gather(); (None, None) and a warning if that fails."""
    try:
        return gather(ledger, ended)
    except store.StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 (whatever is wrong with a report, it is not worth a rollout)
        complain(
            "The report of rollout %s cannot be made: %s: %s. The rollout continues without it."
            % (ledger.rollout_id, type(exc).__name__, redaction.redact(exc))
        )
        return None, None


def _write(ledger, handle, now, textfile_dir, complain, ended):
    saved, then, took, event = _account(handle) if handle is not None else (0.0, 0.0, 0.0, None)
    begun = time.time()
    saved = min(max(SAVED_S, 2 * took), saved + SHARE * max(0.0, begun - then)) if then else saved
    if not now:
        if saved < took or ledger.last_event() == event:
            places.write_json(handle, {"saved_s": saved, "time": begun, "took_s": took, "event": event})
            return None
    event = ledger.last_event()
    doc, story = gathered(ledger, complain, ended)
    try:
        if doc is None:
            return None
        made = contents(doc, story)
        files.write(ledger.directory, made)
        if textfile_dir:
            files.write(textfile_dir, {textfile_name(ledger.rollout_id): made[NAMES["prometheus"]]}, 0o644)
    except Exception as exc:  # noqa: BLE001 (whatever is wrong with a report, it is not worth a rollout)
        complain(
            "The report of rollout %s cannot be written on the controller: %s: %s. The rollout continues without "
            "it." % (ledger.rollout_id, type(exc).__name__, redaction.redact(exc))
        )
    finally:
        if handle is not None:
            took = time.time() - begun
            places.write_json(handle, {"saved_s": saved - took, "time": time.time(), "took_s": took, "event": event})
    return doc
