# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the report files of a rollout while it runs.

Each task that writes to the ledger updates the files afterwards, unless they are younger than an interval that grows
with the number of nodes. Then a later task does it, also one of a node that waits. An error of a report is a warning
and never stops a rollout.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files as places
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.nodes import node_of
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import check_node, format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import plan_text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import formats, page, report, timeline

NAMES = {
    "json": "report.json",
    "markdown": "report.md",
    "junit": "junit.xml",
    "html": "report.html",
    "prometheus": "rollout.prom",
}
# The interval between two updates is a second for so many nodes: writing 10,000 of them takes about five seconds.
NODES_A_SECOND = 100.0
# The interval between two looks of nodes that wait.
LOOK_S = 2.0
# How long a writer waits for another one, at the end of a run and in between.
PATIENCE_S, SHORT_PATIENCE_S = 20.0, 0.5
# With more nodes than this, report.json has one line.
DENSE = 1000
# The number of failed nodes whose evidence is listed, and of bundles for each.
EVIDENCE, BUNDLES = 200, 20
# Documents of a node with the findings of its failure and of its failed rollback.
FINDINGS = {"findings": "", "findings-rollback": report.ROLLBACK}
# The number of nodes of earlier rollouts that estimates are made from.
DONE_NODES = 50
TEXTFILE = "gpufleet_rollout_%s.prom"

Complain = t.Callable[[str], t.Any]


def drop_message(message: str) -> None:
    """Drop a message."""


def gather_document(ledger: Ledger, ended: bool | None = None) -> tuple[dict, timeline.Timeline]:
    """Return (document, timeline) of a rollout as it is now. ENDED: True if its run has ended, None to read it."""
    events = ledger.events()
    story = timeline.build_timeline(events)
    over = story.view.finished is not None if ended is None else ended
    read = ledger.rehearse(lambda one: (one.owner, one.ledger_id, format_time(one.clock())))
    record, identity, now = read or (None, None, None)
    doc = report.build_document(
        story.view,
        over,
        now,
        events[-1]["time"] if events else None,
        story,
        members.is_shared(record),
        (identity, len(events)),
        read_done_nodes(ledger),
    )
    findings = load_findings(ledger)
    for number, (name, node) in enumerate(report.list_troubled(doc)):
        node["evidence"] = find_bundles(ledger, name) if number < EVIDENCE else []
        # A node that was planned again has those of an earlier attempt in the ledger.
        began = node["steps"][0]["started"] if node["steps"] else None
        node["findings"] = [one for saved, found in findings.get(name, ()) if began and saved >= began for one in found]
    return doc, story


def load_findings(ledger: Ledger) -> dict[str, list[tuple[str, list[dict]]]]:
    """Return {node: [(time, findings)]} of the nodes that failed, with the findings of a failed rollback last."""
    table = ledger.store.table["document"]
    query = (
        sa.select(table.c.node, table.c.name, table.c.time, table.c.body)
        .where(table.c.rollout_id == ledger.rollout_id, table.c.name.in_(FINDINGS))
        .order_by(table.c.node, table.c.name)
    )
    found: dict[str, list[tuple[str, list[dict]]]] = {}
    for node, name, saved, body in ledger.store.query(lambda connection: connection.execute(query).all(), nothing=[]):
        checks = [dict(check, step=FINDINGS[name]) for check in json.loads(body)["checks"]]
        found.setdefault(node, []).append((saved, checks))
    return found


def read_done_nodes(ledger: Ledger) -> list[state.Node]:
    """Return nodes that were done in other rollouts of the ledger, the newest rollouts first, for estimates."""
    table, rollout = ledger.store.table["node"], ledger.store.table["rollout"]
    query = (
        sa.select(table.c.body)
        .join(rollout, rollout.c.rollout_id == table.c.rollout_id)
        .where(table.c.rollout_id != ledger.rollout_id, table.c.state == "done")
        .order_by(rollout.c.planned.desc(), table.c.name)
        .limit(DONE_NODES)
    )
    return [
        node_of(body)
        for body in ledger.store.query(lambda connection: connection.execute(query).scalars().all(), nothing=[])
    ]


def estimate_node(ledger: Ledger, node_s: float) -> float:
    """Return the seconds that a node usually took in other rollouts of the ledger; NODE_S if there are none."""
    took = report.measure_nodes(read_done_nodes(ledger))
    return plan_text.median(took) if took else node_s


def try_gather(
    ledger: Ledger, complain: Complain, ended: bool | None = None
) -> tuple[dict | None, timeline.Timeline | None]:
    """Return the result of gather(); (None, None) and a warning if that fails, except for an error of the ledger."""
    try:
        return gather_document(ledger, ended)
    except store.StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 (an error of a report never stops a rollout)
        complain(
            "The report of rollout %s cannot be made: %s: %s. The rollout continues without it."
            % (ledger.rollout_id, type(exc).__name__, redaction.redact(exc))
        )
        return None, None


def find_bundles(ledger: Ledger, name: str) -> list[str]:
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


def render_files(doc: dict, story: timeline.Timeline) -> dict[str, str]:
    """Return the files of a report by name."""
    return {
        NAMES["json"]: files.json_text(doc, len(doc["nodes"]) > DENSE),
        NAMES["markdown"]: formats.render_markdown(doc),
        NAMES["junit"]: formats.render_junit(doc),
        NAMES["html"]: page.render_page(doc, story),
        NAMES["prometheus"]: formats.render_metrics(doc),
    }


def textfile_name(rollout_id: str) -> str:
    return TEXTFILE % re.sub(r"[^A-Za-z0-9_]", "_", rollout_id)


def refresh_files(
    ledger: Ledger,
    now: bool = False,
    idle: bool = False,
    textfile_dir: str = "",
    complain: Complain = drop_message,
    ended: bool | None = None,
    identity: dict | None = None,
) -> dict | None:
    """Write the files if an update is due, or NOW; return the document if NOW.

    IDLE: the caller waits, and leaves the update to others while they write. ENDED: as in gather(). IDENTITY: this
    controller, for TEXTFILE_DIR. Errors go to COMPLAIN, but with NOW an error of the ledger is raised.
    """
    path = ledger.path("report.lock")
    doc = None
    try:
        if idle and not now and places.written_within(path, LOOK_S):
            return None
        with places.open_locked(path, PATIENCE_S if now else SHORT_PATIENCE_S) as handle:
            if handle is None and not now:
                return None  # another process writes; a later update has what is missing
            last = ledger.last_event()
            if not now and not _is_due(places.read_json(handle), last, time.time()):
                os.utime(path)  # for those that wait
                return None
            doc, story = try_gather(ledger, complain, ended)
            if doc is None:
                return None
            _write_files(ledger, doc, story, textfile_dir, identity)
            if handle is not None:
                places.write_json(handle, {"event": last, "nodes": len(doc["nodes"]), "time": time.time()})
            return doc
    except store.StoreError as exc:
        if now:
            raise
        complain("The report of rollout %s was not brought up to date: %s" % (ledger.rollout_id, exc))
    except Exception as exc:  # noqa: BLE001 (an error of a report never stops a rollout)
        complain(
            "The report of rollout %s cannot be written on the controller: %s: %s. The rollout continues without it."
            % (ledger.rollout_id, type(exc).__name__, redaction.redact(exc))
        )
    return doc or try_gather(ledger, complain, ended)[0] if now else None


def _is_due(note: dict, last_event: int | None, now: float) -> bool:
    """Return True if the files are older than the interval, and something happened since NOTE, that of their update."""
    try:
        age_s = now - float(note["time"])
        return note["event"] != last_event and not 0 <= age_s < note["nodes"] / NODES_A_SECOND
    except (KeyError, ValueError, TypeError):
        return True


def _write_files(ledger, doc, story, textfile_dir, identity) -> None:
    rendered = render_files(doc, story)
    files.write(ledger.directory, rendered)
    if not textfile_dir:
        return
    name = textfile_name(ledger.rollout_id)
    if doc["verdict"] != "running" or is_reporter(ledger, identity):
        files.write(textfile_dir, {name: rendered[NAMES["prometheus"]]}, 0o644)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(textfile_dir, name))


def is_reporter(ledger: Ledger, identity: dict | None) -> bool:
    """Return True if this controller writes the file for Prometheus: the owner, or the first of the living members.

    Another one removes its file, which would say C(running) for ever.
    """
    reporter = ledger.rehearse(members.find_reporter)
    return bool(reporter) and (identity is None or owner.is_same(reporter, identity))
