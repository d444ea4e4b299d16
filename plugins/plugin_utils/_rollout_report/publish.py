# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the report files of a rollout up to date while it runs, at little cost.

Many short-lived processes write to the ledger. Whoever did so brings the files up to date, unless that would take more than a small
share of the controller's time: a burst is written at once, and what came too thick is written by the next who looks, a node that waits
among them. A report that cannot be written keeps nobody from anything; that it could not is said.
"""

from __future__ import annotations

import os
import re
import time

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files as places
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import check_node, timestamp
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import metrics, page, report, timeline

NAMES = {"json": "report.json", "markdown": "report.md", "junit": "junit.xml", "html": "report.html", "prometheus": "rollout.prom"}
# The share of the time that may go into reports, the seconds of it that may be saved up, and how often anybody looks whether it is due.
SHARE, SAVED_S, LOOK_S = 0.05, 4.0, 2.0
# How long a writer waits for another one.
PATIENCE_S = 20.0
# More nodes than these, and report.json stands on one line.
DENSE = 1000
# For so many nodes in trouble the evidence is looked for, and so many of their bundles are told.
EVIDENCE, BUNDLES = 200, 20
TEXTFILE = "gpufleet_rollout_%s.prom"


def gather(ledger, ended=None):
    """(document, story) of a rollout as it is now; ENDED overrules whether its last play has been reached."""
    events = ledger.events()
    story = timeline.build(events)
    over = story.view.finished is not None if ended is None else ended
    doc = report.document(story.view, over, timestamp(), events[-1]["time"] if events else None, story)
    for name, node in report.troubled(doc)[:EVIDENCE]:
        node["evidence"] = bundles(ledger, name)
    return doc, story


def bundles(ledger, name):
    """The directories with evidence about a node that this rollout kept on the controller, in the order of its attempts."""
    place = os.path.join(
        os.path.abspath(os.path.expanduser(ledger.artifact_dir)), "evidence", ledger.rollout_id, check_node(name)
    )
    try:
        found = os.listdir(place)
    except OSError:
        return []  # there are none, or they lie on another host, which the reason names
    attempts = sorted((int(one.partition("-")[0]), one) for one in found if one.partition("-")[0].isdigit())
    return [os.path.join(place, one) for dummy, one in attempts][-BUNDLES:]


def contents(doc, story):
    """Every file of a report by its name."""
    return {
        NAMES["json"]: files.json_text(doc, len(doc["nodes"]) > DENSE), NAMES["markdown"]: report.markdown_text(doc), NAMES["junit"]: report.junit_text(doc),
        NAMES["html"]: page.html_text(doc, story), NAMES["prometheus"]: metrics.render(doc),
    }


def textfile_name(rollout_id):
    return TEXTFILE % re.sub(r"[^A-Za-z0-9_]", "_", rollout_id)


def _account(handle):
    """What is known of earlier writing: the seconds saved up, when that was, how long writing took, and the last event that was written."""
    found = places.note(handle)
    try:
        return float(found.get("saved_s", SAVED_S)), float(found.get("time", 0)), float(found.get("took_s", 0)), found.get("event")
    except (ValueError, TypeError):
        return SAVED_S, 0.0, 0.0, None


def refresh(ledger, now=False, idle=False, textfile_dir="", complain=lambda words: None, ended=None):
    """Write the files when that is due, or NOW. IDLE: only when the last look was a while ago. Returns the document if one was made.

    ENDED overrules whether the run is over, as in gather.

    Whatever goes wrong is told to COMPLAIN, but what the ledger says NOW is asked for is raised: the caller wants to know it.
    """
    path = ledger.path("report.lock")
    try:
        if idle and not now and places.looked_lately(path, LOOK_S):
            return None
        with places.alone(path, PATIENCE_S if now else 0.5) as handle:
            if handle is None and not now:
                return None  # somebody writes; what is missing is written by the next who looks
            doc = _write(ledger, handle, now, textfile_dir, complain, ended)
            return doc
    except OSError as exc:
        complain(
            "The report of rollout %s cannot be written on the controller: %s. The rollout goes on without it."
            % (ledger.rollout_id, exc)
        )
    except store.StoreError as exc:
        if now:
            raise
        complain("The report of rollout %s was not brought up to date: %s" % (ledger.rollout_id, exc))
    return gathered(ledger, complain, ended)[0] if now else None


def gathered(ledger, complain, ended=None):
    """What gather gives; (None, None) when it cannot be made, which is told."""
    try:
        return gather(ledger, ended)
    except store.StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 (whatever is wrong with a report, it is not worth a rollout)
        complain(
            "The report of rollout %s cannot be made: %s: %s. The rollout goes on without it."
            % (ledger.rollout_id, type(exc).__name__, exc)
        )
        return None, None


def _write(ledger, handle, now, textfile_dir, complain, ended):
    saved, then, took, event = _account(handle) if handle is not None else (0.0, 0.0, 0.0, None)
    begun = time.time()
    saved = min(max(SAVED_S, 2 * took), saved + SHARE * max(0.0, begun - then)) if then else saved
    if not now:
        if saved < took or ledger.last_event() == event:
            places.keep(handle, {"saved_s": saved, "time": begun, "took_s": took, "event": event})
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
        complain("The report of rollout %s cannot be written on the controller: %s: %s. The rollout goes on without it." % (
            ledger.rollout_id, type(exc).__name__, exc))
    finally:
        if handle is not None:
            took = time.time() - begun
            places.keep(handle, {"saved_s": saved - took, "time": time.time(), "took_s": took, "event": event})
    return doc
