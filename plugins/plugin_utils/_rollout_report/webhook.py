# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The webhook of a rollout: the notices about its events, and the position up to which they were sent.

The events are the queue, and the ledger keeps the position. Each task that records an event sends what is left, and so
does a node that waits. One task at a time has the lease, by the clock of the database. It records a notice before it
posts it, and the success after it, so that a crash loses nothing and repeats only what may not have arrived; a repeat
is marked as one. After a failure no task posts for a while. Ansible's uri and notification modules post once, from a
task of a role, and do not know what an earlier run has sent.
"""

from __future__ import annotations

import dataclasses
import json
import time
import typing as t
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files, state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.events import apply_event
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import dump_json, format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

SCHEMA = "gpufleet.event/1"
NAME = "webhook"  # of the record in the ledger, and of the file by which tasks of one controller take turns
LOOK_S = 2.0
LEASE_S = 30.0  # beside the timeout of a post
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# Status codes for a message that the receiver does not accept. It is left out after this number of attempts.
UNFIT, UNFIT_TRIES = (400, 413, 415, 422), 3
# sent: the number of the last event that needs no post any more. posting: the event of a post that may have arrived.
# tries: posts of one event that failed. resume: the time of the next post. holder, until: the lease.
EMPTY = {
    "sent": 0,
    "posting": None,
    "delivered": 0,
    "left_out": 0,
    "error": "",
    "tries": 0,
    "resume": 0.0,
    "holder": None,
    "until": 0.0,
}
# Kinds of ledger events that may result in a notice.
NOTABLE = ("plan", "end", "control", "hold", "state")
VERBS = {
    "pause": "paused",
    "resume": "resumed",
    "stop": "stopped",
    "skip": "left out",
    "retry": "to be tried again",
    "retire": "retired",
    "set_budget": "limits changed",
    "break_lock": "lock broken",
    "end": "ended",
}


class WebhookError(Exception):
    """The webhook cannot be used; the message says why, without the URL."""


def check_webhook(webhook: dict | None) -> dict | None:
    """Return the webhook, None if there is none; refuse one that cannot be used."""
    if not webhook or not webhook.get("url"):
        return None
    wrong = web.complaint(webhook["url"])
    if wrong:
        raise WebhookError("The url of rollout_webhook cannot be used: %s." % wrong)
    if not 0 < webhook["timeout"] <= 120:
        raise WebhookError(
            "The timeout of rollout_webhook is %g; expected more than 0 and at most 120 seconds." % webhook["timeout"]
        )
    return webhook


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


def may_notify(event: dict, canaries: set[str]) -> bool:
    """Return True if an event may result in a notice, without knowledge of the other events."""
    if event["event"] != "state":
        return event["event"] in NOTABLE
    return event["state"] in state.FAILED or event.get("node") in canaries


def list_notices(events: list[tuple[int, dict]], kinds: t.Sequence[str]) -> list[Notice]:
    """Return the notices of the wanted KINDS for a list of (number, event), first to last."""
    view, found, spent, has_canaries = state.Rollout(), [], "", False
    for number, event in events:
        if view.run is None and event["event"] != "plan":
            continue
        mine = event["event"] == "plan" or event.get("run") == view.run
        apply_event(view, event)
        if not mine or event["event"] not in NOTABLE:
            continue
        if event["event"] == "plan":
            spent, has_canaries = "", False
        causes, lines = _describe_event(view, event)
        if event["event"] == "state":
            if (
                not has_canaries
                and view.nodes.canaries()
                and all(node.state in state.ENDED for node in view.nodes.canaries())
            ):
                has_canaries = True
                causes.append("canary")
                lines.append(_describe_canaries(view))
            why = (
                limits.explain_spent_budget(view.policy, view.nodes.with_state(*state.FAILED), view.attempt_count)
                if event["state"] in state.FAILED
                else spent
            )
            if why and not spent:
                causes.append("stopped")
                lines.append("No further node starts: %s." % why)
            spent = why or spent
        if set(causes) & set(kinds):
            found.append(
                Notice(
                    number,
                    event["time"],
                    causes,
                    [text.one_line(line, 600) for line in lines],
                    event.get("node") or "",
                    view.nodes.count(),
                    view.rollout_id,
                    view.target,
                )
            )
    return found


def _describe_event(view, event) -> tuple[list, list]:
    """Return (kinds, lines) of the notice for an event; ([], []) if it has none."""
    kind = event["event"]
    if kind == "plan":
        return ["started"], [
            "Rollout %s began: %s to %s, at most %d down at a time."
            % (view.rollout_id, text.count_noun(view.total, "node"), view.target, view.policy["max_down"])
        ]
    if kind == "end":
        counts = view.nodes.count()
        return ["finished"], [
            "Rollout %s is over: %s (%s)."
            % (
                view.rollout_id,
                state.judge_rollout(view, True),
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


def _describe_canaries(view) -> str:
    bad = [node for node in view.nodes.canaries() if node.state in state.FAILED]
    if bad:
        return "Canary %s failed: %s" % (bad[0].name, bad[0].reason or bad[0].state)
    return "The canaries have ended: %s." % limits.list_names(
        "%s %s" % (node.name, node.state) for node in view.nodes.canaries()
    )


def render_body(notice: Notice, kind: str, repeat: bool) -> bytes:
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


class Outbox:
    """The notices of a rollout that are left to send, and the lease of the task that sends them."""

    def __init__(self, ledger: Ledger, webhook: dict) -> None:
        self.ledger, self.webhook, self.token = ledger, webhook, uuid.uuid4().hex
        self._key = {"rollout_id": ledger.rollout_id, "node": "", "name": NAME}

    def _where(self) -> tuple:
        table = self.ledger.store.table["document"]
        return table, [table.c[key] == value for key, value in self._key.items()]

    def _load_record(self, connection) -> dict:
        table, where = self._where()
        body = connection.execute(sa.select(table.c.body).where(*where)).scalar()
        return dict(EMPTY, **(json.loads(body) if body else {}))

    def update(self, work: t.Callable[[dict, float], dict | None]) -> dict | None:
        """Replace the record with WORK(record, now) in a transaction, and return it; None if WORK returns None.

        NOW is the time by the clock of the ledger, in seconds since 1970.
        """

        def once(connection, repeated) -> dict | None:
            record, now = self._load_record(connection), self.ledger.store.now(connection)
            new = work(record, now.timestamp())
            if new is not None:
                table, where = self._where()
                connection.execute(sa.delete(table).where(*where))
                connection.execute(sa.insert(table).values(time=format_time(now), body=dump_json(new), **self._key))
            return new

        return self.ledger.store.transact(self.ledger.rollout_id, once)

    def look(self) -> tuple[bool, bool, dict]:
        """Return (True if a notice is left, True if it may be posted now, the record)."""

        def read_state(connection) -> tuple[bool, bool, dict]:
            record, now = self._load_record(connection), self.ledger.store.now(connection).timestamp()
            event, node = self.ledger.store.table["event"], self.ledger.store.table["node"]
            mine = event.c.rollout_id == self.ledger.rollout_id
            query = sa.select(event.c.body).where(mine, event.c.id > record["sent"], event.c.kind.in_(NOTABLE))
            canaries = {
                name
                for (name,) in connection.execute(
                    sa.select(node.c.name).where(node.c.rollout_id == self.ledger.rollout_id, node.c.canary.is_(True))
                )
            }
            is_left = any(may_notify(json.loads(body), canaries) for (body,) in connection.execute(query))
            return is_left, is_left and is_free(record, now), record

        return self.ledger.store.query(read_state) or (False, False, dict(EMPTY))

    def read_events(self) -> list[tuple[int, dict]]:
        """Return (number, event) of all events."""
        table = self.ledger.store.table["event"]
        query = (
            sa.select(table.c.id, table.c.body).where(table.c.rollout_id == self.ledger.rollout_id).order_by(table.c.id)
        )
        return self.ledger.store.query(
            lambda connection: [(number, json.loads(body)) for number, body in connection.execute(query)], nothing=[]
        )

    def take_lease(self) -> dict | None:
        """Take the lease and return the record; None if another task has it, or a failure was a moment ago."""
        return self.update(lambda record, now: self._extend(record, now) if is_free(record, now) else None)

    def _extend(self, record, now, **fields) -> dict:
        return dict(record, holder=self.token, until=now + self.webhook["timeout"] + LEASE_S, **fields)

    def _record(self, change: t.Callable[[dict, float], dict]) -> dict | None:
        """Change the record as long as this task has the lease; return it, None if another task took the lease."""
        return self.update(
            lambda record, now: (
                self._extend(record, now, **change(record, now)) if record["holder"] == self.token else None
            )
        )

    def send(self) -> None:
        """Post the notices that are left, up to the first failure."""
        if not self.look()[1] or not self.take_lease():
            return
        events = self.read_events()
        last = events[-1][0] if events else 0
        pending = list_notices(events, self.webhook["events"])
        for notice in pending:
            # Read again each time, since another task may have had the lease before this one.
            before = self.look()[2]
            if notice.number > before["sent"] and not self._deliver(notice, before["posting"] == notice.number):
                break
        else:
            self._record(lambda record, now: {"sent": max(record["sent"], last)})
        self.update(
            lambda record, now: dict(record, holder=None, until=0.0) if record["holder"] == self.token else None
        )

    def _deliver(self, notice: Notice, repeat: bool) -> bool:
        """Post one notice; False if that failed, or another task took the lease."""
        if not self._record(lambda record, now: {"posting": notice.number}):
            return False
        error, may_have_arrived, pause_s = self._post(notice, repeat)

        def note(record, now) -> dict:
            if not error:
                return {
                    "sent": notice.number,
                    "posting": None,
                    "tries": 0,
                    "delivered": record["delivered"] + 1,
                    "error": "",
                }
            tries = record["tries"] + 1
            if tries >= UNFIT_TRIES and error.startswith("HTTP ") and int(error.split()[1]) in UNFIT:
                left_out = record["left_out"] + 1
                return {"sent": notice.number, "posting": None, "tries": 0, "left_out": left_out, "error": error}
            wait_s = max(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries - 1, 10)), pause_s or 0.0)
            posting = notice.number if may_have_arrived or repeat else None
            return {"posting": posting, "tries": tries, "resume": now + wait_s, "error": error}

        record = self._record(note)
        return record is not None and record["sent"] == notice.number

    def _post(self, notice, repeat) -> tuple[str, bool, float | None]:
        """Return (error, True if the notice may have arrived, seconds that the receiver asks to wait)."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "gpufleet.lifecycle",
            "Idempotency-Key": "%s/%d" % (notice.rollout_id, notice.number),
        }
        body = render_body(notice, self.webhook["kind"], repeat)
        try:
            answer = web.request(self.webhook["url"], self.webhook["timeout"], body, headers)
        except web.WebError as exc:
            return str(exc), exc.sent, None
        if 200 <= answer.status < 300:
            return "", True, None
        wait_s = min(LONGEST_PAUSE_S, answer.retry_after_s) if answer.retry_after_s else None
        return "HTTP %d" % answer.status, False, wait_s


def is_free(record: dict, now: float) -> bool:
    """Return True if a task may post at the time NOW: none has the lease, and no failure was a moment ago."""
    return now >= record["until"] and now >= record["resume"]


def send_pending(
    ledger: Ledger, webhook: dict | None, idle: bool = False, complain: t.Callable[[str], t.Any] = lambda message: None
) -> None:
    """Send what is left. Errors go to COMPLAIN. IDLE: only if the last look was a while ago."""
    if not webhook or not webhook.get("url"):
        return
    path = ledger.path(NAME + ".lock")
    try:
        if idle and files.written_within(path, LOOK_S):
            return
        with files.open_locked(path, 0.0) as handle:
            if handle is not None:
                files.write_json(handle, {})
                Outbox(ledger, webhook).send()
    except (OSError, store.StoreError) as exc:
        complain(
            "The webhook of rollout %s could not be notified: %s. The rollout continues, and notices are sent later."
            % (ledger.rollout_id, exc)
        )


def flush_pending(
    ledger: Ledger, webhook: dict | None, complain: t.Callable[[str], t.Any] = lambda message: None
) -> None:
    """Send what is left at the end of a run, and try again for a while."""
    if not webhook or not webhook.get("url"):
        return
    until = time.monotonic() + webhook["timeout"] + 5
    try:
        while True:
            outbox = Outbox(ledger, webhook)
            outbox.send()
            is_left, dummy, record = outbox.look()
            if not is_left or time.monotonic() > until:
                break
            time.sleep(0.2)
    except store.StoreError as exc:
        complain("It is not known whether the webhook of rollout %s got all notices: %s" % (ledger.rollout_id, exc))
        return
    if is_left:
        complain(
            "The webhook of rollout %s did not get all notices yet%s. The next run of the rollout sends what is left."
            % (ledger.rollout_id, " (%s)" % record["error"] if record["error"] else "")
        )
    if record["left_out"]:
        complain(
            "The webhook of rollout %s refused %d notices (%s); they were left out."
            % (ledger.rollout_id, record["left_out"], record["error"])
        )
