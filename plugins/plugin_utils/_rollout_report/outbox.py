# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which events of a rollout were told to the webhook, kept in the ledger; and the process that tells the others.

The events themselves are the queue: what counts is how far it was told. One sender at a time holds a lease. Before it posts it writes
which event, afterwards that it arrived, so that a crash loses nothing, and repeats nothing but what may not have arrived; such a repeat
says that it is one. The URL is a secret: it travels through a pipe and is never written anywhere. Ansible's uri and notification modules post once, from a task
of a play, and know nothing of what an earlier run had told.
"""

from __future__ import annotations

import json
import os
import time
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files, owner, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger, dump, timestamp
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import background, notices

NAME = "webhook"
LOOK_S = 2.0
# A sender that can post nothing for so long ends; the next event, or the next run, starts another one.
GIVE_UP_S = 3600.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# What the other side says about this message and not about the whole webhook; after so many tries it is left out.
UNFIT, UNFIT_TRIES = (400, 413, 415, 422), 3
EMPTY = {"seen": 0, "sending": None, "told": 0, "left_out": 0, "error": "", "sender": None, "until": 0.0}


class WebhookError(Exception):
    """The webhook cannot be used; the message says why, and not where it is."""


def check(webhook):
    """Refuse a webhook that could not be told anything; None when there is none."""
    if not webhook or not webhook.get("url"):
        return None
    wrong = web.complaint(webhook["url"])
    if wrong:
        raise WebhookError("The url of rollout_webhook cannot be used: %s." % wrong)
    if not 0 < webhook["timeout"] <= 120:
        raise WebhookError("The timeout of rollout_webhook is %g; expected more than 0 and at most 120 seconds." % webhook["timeout"])
    return webhook


class Outbox:
    """How far a rollout was told."""

    def __init__(self, ledger):
        self.ledger = ledger
        self._key = {"rollout_id": ledger.rollout_id, "node": "", "name": NAME}

    def _where(self):
        table = self.ledger.store.table["document"]
        return table, [table.c[key] == value for key, value in self._key.items()]

    def _read(self, connection):
        table, where = self._where()
        body = connection.execute(sa.select(table.c.body).where(*where)).scalar()
        return dict(EMPTY, **(json.loads(body) if body else {}))

    def read(self):
        with self.ledger.store.reading() as connection:
            return dict(EMPTY) if connection is None else self._read(connection)

    def change(self, work):
        """WORK(record) in a transaction; what it returns replaces the record, None leaves it. Returns the record as it is then."""

        def once(connection, repeated):
            record = self._read(connection)
            new = work(dict(record))
            if new is None:
                return record
            table, where = self._where()
            connection.execute(sa.delete(table).where(*where))
            connection.execute(sa.insert(table).values(time=timestamp(), body=dump(new), **self._key))
            return new

        return self.ledger.store.transact(self.ledger.rollout_id, once)

    def waiting(self):
        """Whether anything is left to tell, and the record."""
        with self.ledger.store.reading() as connection:
            if connection is None:
                return False, dict(EMPTY)
            record = self._read(connection)
            event, node = self.ledger.store.table["event"], self.ledger.store.table["node"]
            mine = event.c.rollout_id == self.ledger.rollout_id
            query = sa.select(event.c.body).where(mine, event.c.id > record["seen"], event.c.kind.in_(notices.NOTABLE)).order_by(event.c.id)
            canaries = {name for (name,) in connection.execute(
                sa.select(node.c.name).where(node.c.rollout_id == self.ledger.rollout_id, node.c.canary.is_(True)))}
            return any(notices.notable(json.loads(body), canaries) for (body,) in connection.execute(query)), record

    def events(self):
        """(number, event) of the whole story."""
        with self.ledger.store.reading() as connection:
            if connection is None:
                return []
            table = self.ledger.store.table["event"]
            query = (
                sa.select(table.c.id, table.c.body)
                .where(table.c.rollout_id == self.ledger.rollout_id)
                .order_by(table.c.id)
            )
            return [(number, json.loads(body)) for number, body in connection.execute(query)]


def taken(record, now):
    """Whether another sender is at it."""
    return bool(record["sender"]) and now < record["until"] and owner.liveness(record["sender"]) != "dead"


class Sender:
    def __init__(self, ledger, webhook, give_up_s=GIVE_UP_S, pause_s=FIRST_PAUSE_S):
        self.outbox = Outbox(ledger)
        self.webhook = webhook
        self.give_up_s, self.pause_s = give_up_s, pause_s
        self.me = dict(owner.identify(os.getpid()), token=uuid.uuid4().hex)

    def lease(self, seconds, **fields):
        """Take the lease, or keep it, for SECONDS and write FIELDS; False when it is another's."""

        def work(record):
            now = time.time()
            mine = bool(record["sender"]) and record["sender"].get("token") == self.me["token"]
            if not mine and taken(record, now):
                return None
            return dict(record, sender=self.me, until=now + seconds, **fields)

        record = self.outbox.change(work)
        return record if record["sender"] and record["sender"].get("token") == self.me["token"] else None

    def run(self):
        """Tell what is left; True when all of it was told."""
        while True:
            if not self.lease(self.webhook["timeout"] + 30):
                return True  # another one is at it, and looks again when it is done
            if not self.tell():
                return False
            if not self.outbox.waiting()[0]:
                return True

    def tell(self):
        events = self.outbox.events()
        record = self.outbox.read()
        left = [notice for notice in notices.wanted(notices.notices(events), self.webhook["events"]) if notice.number > record["seen"]]
        for notice in left:
            if not self.deliver(notice):
                self.outbox.change(lambda found: dict(found, sender=None, until=0.0))
                return False
        last = events[-1][0] if events else 0
        self.outbox.change(lambda found: dict(found, seen=max(found["seen"], last), sender=None, until=0.0))
        return True

    def deliver(self, notice):
        """Post one notice, again and again if need be; False when that was given up or taken over."""
        until, pause, unfit = time.monotonic() + self.give_up_s, self.pause_s, 0
        while True:
            repeat = self.outbox.read()["sending"] == notice.number
            record = self.lease(self.webhook["timeout"] + 30, sending=notice.number)
            if not record:
                return False
            error, arrived, after = self.post(notice, repeat)
            if not error:
                return bool(self.lease(self.webhook["timeout"] + 30, seen=notice.number, sending=None, told=record["told"] + 1, error=""))
            unfit += error.startswith("HTTP ") and int(error.split()[1]) in UNFIT
            if unfit >= UNFIT_TRIES:
                return bool(self.lease(30, seen=notice.number, sending=None, left_out=record["left_out"] + 1, error=error))
            wait = max(pause, after or 0.0)
            if time.monotonic() + wait > until:
                self.lease(0, error=error, sending=notice.number if arrived or repeat else None)
                return False
            # Whether it arrived is known but for an answer that was lost.
            if not self.lease(wait + self.webhook["timeout"] + 30, error=error, sending=notice.number if arrived or repeat else None):
                return False
            time.sleep(wait)
            pause = min(LONGEST_PAUSE_S, pause * 2)

    def post(self, notice, repeat):
        """(what went wrong, whether it may have arrived, seconds the other side asks to wait)."""
        headers = {"Content-Type": "application/json", "User-Agent": "gpufleet.lifecycle", "Idempotency-Key": "%s/%d" % (notice.rollout_id, notice.number)}
        try:
            answer = web.request(self.webhook["url"], self.webhook["timeout"], notices.payload(notice, self.webhook["kind"], repeat), headers)
        except web.WebError as exc:
            return str(exc), exc.sent, None
        if 200 <= answer.status < 300:
            return "", True, None
        return "HTTP %d" % answer.status, False, min(LONGEST_PAUSE_S, answer.retry_after_s) if answer.retry_after_s else None


def main(asked):
    """The sender's process, which nobody waits for."""
    ledger = Ledger(asked["artifact_dir"], asked["rollout_id"], asked["ledger"])
    Sender(ledger, asked["webhook"], asked["give_up_s"], asked["pause_s"]).run()


def start(ledger, webhook, give_up_s=GIVE_UP_S, pause_s=FIRST_PAUSE_S):
    """Start a sender that is not waited for."""
    return background.start(
        __name__,
        {
            "webhook": webhook,
            "artifact_dir": ledger.artifact_dir,
            "rollout_id": ledger.rollout_id,
            "ledger": ledger.store.url.render_as_string(hide_password=False),
            "give_up_s": give_up_s,
            "pause_s": pause_s,
        },
    )


def kick(ledger, webhook, idle=False, complain=lambda words: None):
    """See to it that somebody tells what is left. Never waits, and never raises."""
    if not webhook or not webhook.get("url"):
        return
    path = ledger.path("webhook.lock")
    try:
        if idle and files.looked_lately(path, LOOK_S):
            return
        with files.alone(path, 0.0) as handle:
            if handle is None:
                return
            files.keep(handle, {"time": time.time()})
            left, record = Outbox(ledger).waiting()
            if left and not taken(record, time.time()):
                start(ledger, webhook)
    except (OSError, store.StoreError) as exc:
        complain(
            "The webhook of rollout %s was not told: %s. The rollout goes on; it is told later."
            % (ledger.rollout_id, exc)
        )


def flush(ledger, webhook, complain=lambda words: None):
    """At the end: give the last words a while to arrive."""
    if not webhook or not webhook.get("url"):
        return
    kick(ledger, webhook, complain=complain)
    until = time.monotonic() + webhook["timeout"] + 5
    try:
        while True:
            left, record = Outbox(ledger).waiting()
            if not left or time.monotonic() > until:
                break
            time.sleep(0.2)
    except store.StoreError as exc:
        complain("Whether the webhook of rollout %s was told everything is not known: %s" % (ledger.rollout_id, exc))
        return
    if left:
        complain(
            "The webhook of rollout %s was not told everything yet%s. A process goes on trying for up to %d minutes; the next run of the rollout "
            "tells what is left."
            % (ledger.rollout_id, " (%s)" % record["error"] if record["error"] else "", GIVE_UP_S // 60)
        )
    if record["left_out"]:
        complain(
            "The webhook of rollout %s did not take %d messages (%s); they were left out."
            % (ledger.rollout_id, record["left_out"], record["error"])
        )
