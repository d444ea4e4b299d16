# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The webhook's queue: the position in the ledger's events that was sent last, and the process that sends the rest.

The events are the queue, and the ledger keeps the position. One sender at a time has a lease. Before a post it records
the event, and after it the success. So a crash loses nothing, and repeats only what may not have arrived; a repeat is
marked as one. The URL is a secret: it is sent through a pipe and never written. Ansible's uri and notification modules
post once, from a task, and do not know what an earlier run has sent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import files, owner, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.text import dump, timestamp
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import notices

# Only the command-line programs of Ansible set up the import hook for collections, so these lines create the packages
# above the module.
BOOT = """
import importlib, json, sys, types
asked = json.load(sys.stdin)
sys.path[:] = asked["path"]
for name, path in asked["packages"]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
importlib.import_module(asked["module"]).main(asked)
"""


def start_process(module, asked, keep=()):
    """Start MODULE.main(ASKED) in a new session, and do not wait for it.

    ASKED is sent through a pipe, so that it is not visible in the arguments. KEEP: file descriptors that it inherits.
    """
    package = module.partition(".plugins.")[0]
    root = os.path.abspath(__file__)
    for dummy in range(4):
        root = os.path.dirname(root)
    parts = package.split(".")
    packages = [(".".join(parts[:end]), [root] if end == len(parts) else []) for end in range(1, len(parts) + 1)]
    process = subprocess.Popen(
        [sys.executable, "-c", BOOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        close_fds=True,
        pass_fds=keep,
    )
    with process.stdin as pipe:
        pipe.write(
            json.dumps(
                dict(
                    asked,
                    path=[os.path.abspath(entry) for entry in sys.path if entry],
                    packages=packages,
                    module=module,
                )
            ).encode()
        )
    return process


NAME = "webhook"
LOOK_S = 2.0
# A sender that cannot post for this long ends. The next event, or the next run, starts another one.
GIVE_UP_S = 3600.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# Status codes for a message that the receiver does not accept. It is left out after this number of attempts.
UNFIT, UNFIT_TRIES = (400, 413, 415, 422), 3
EMPTY = {"seen": 0, "sending": None, "told": 0, "left_out": 0, "error": "", "sender": None, "until": 0.0}


class WebhookError(Exception):
    """The webhook cannot be used; the message says why, without the URL."""


def check(webhook):
    """Refuse a webhook that cannot be used; return None if there is none."""
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


class Outbox:
    """The position in the events of a rollout that was sent last, in the ledger."""

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
        return self.ledger.store.read(self._read) or dict(EMPTY)

    def change(self, work):
        """Replace the record with WORK(record, now) in a transaction, unless that is None; return the current record.

        NOW is the time by the clock of the ledger.
        """

        def once(connection, repeated):
            record, now = self._read(connection), self.ledger.store.now(connection)
            new = work(dict(record), now)
            if new is None:
                return record
            table, where = self._where()
            connection.execute(sa.delete(table).where(*where))
            connection.execute(sa.insert(table).values(time=timestamp(now), body=dump(new), **self._key))
            return new

        return self.ledger.store.transact(self.ledger.rollout_id, once)

    def waiting(self):
        """Return (True if there is something to send, the record, True if a sender has the lease)."""

        def read(connection):
            record = self._read(connection)
            event, node = self.ledger.store.table["event"], self.ledger.store.table["node"]
            mine = event.c.rollout_id == self.ledger.rollout_id
            query = (
                sa.select(event.c.body)
                .where(mine, event.c.id > record["seen"], event.c.kind.in_(notices.NOTABLE))
                .order_by(event.c.id)
            )
            canaries = {
                name
                for (name,) in connection.execute(
                    sa.select(node.c.name).where(node.c.rollout_id == self.ledger.rollout_id, node.c.canary.is_(True))
                )
            }
            left = any(notices.notable(json.loads(body), canaries) for (body,) in connection.execute(query))
            return left, record, taken(record, self.ledger.store.now(connection))

        return self.ledger.store.read(read) or (False, dict(EMPTY), False)

    def events(self):
        """Return (number, event) of all events."""
        table = self.ledger.store.table["event"]
        query = (
            sa.select(table.c.id, table.c.body).where(table.c.rollout_id == self.ledger.rollout_id).order_by(table.c.id)
        )
        return self.ledger.store.read(
            lambda connection: [(number, json.loads(body)) for number, body in connection.execute(query)], nothing=[]
        )


def taken(record, now):
    """Return True if another sender has the lease at the time NOW."""
    return bool(record["sender"]) and now.timestamp() < record["until"] and owner.liveness(record["sender"]) != "dead"


class Sender:
    def __init__(self, ledger, webhook, give_up_s=GIVE_UP_S, pause_s=FIRST_PAUSE_S):
        self.outbox = Outbox(ledger)
        self.webhook = webhook
        self.give_up_s, self.pause_s = give_up_s, pause_s
        self.me = dict(owner.identify(os.getpid()), token=uuid.uuid4().hex)

    def lease(self, seconds, **fields):
        """Take or extend the lease for SECONDS and write FIELDS; None if another sender has it."""

        def work(record, now):
            mine = bool(record["sender"]) and record["sender"].get("token") == self.me["token"]
            if not mine and taken(record, now):
                return None
            return dict(record, sender=self.me, until=now.timestamp() + seconds, **fields)

        record = self.outbox.change(work)
        return record if record["sender"] and record["sender"].get("token") == self.me["token"] else None

    def run(self):
        """Send everything that is left; True if all was sent."""
        while True:
            if not self.lease(self.webhook["timeout"] + 30):
                return True  # another sender has the lease, and looks for new events at its end
            if not self.send():
                return False
            if not self.outbox.waiting()[0]:
                return True

    def send(self):
        """Send the notices that are left; True if all were sent."""
        events = self.outbox.events()
        record = self.outbox.read()
        left = [
            notice
            for notice in notices.wanted(notices.notices(events), self.webhook["events"])
            if notice.number > record["seen"]
        ]
        for notice in left:
            if not self.deliver(notice):
                self.outbox.change(lambda found, now: dict(found, sender=None, until=0.0))
                return False
        last = events[-1][0] if events else 0
        self.outbox.change(lambda found, now: dict(found, seen=max(found["seen"], last), sender=None, until=0.0))
        return True

    def deliver(self, notice):
        """Post one notice, with retries; False if the retries ended, or another sender took the lease."""
        until, pause, unfit = time.monotonic() + self.give_up_s, self.pause_s, 0
        while True:
            repeat = self.outbox.read()["sending"] == notice.number
            record = self.lease(self.webhook["timeout"] + 30, sending=notice.number)
            if not record:
                return False
            error, arrived, after = self.post(notice, repeat)
            if not error:
                return bool(
                    self.lease(
                        self.webhook["timeout"] + 30,
                        seen=notice.number,
                        sending=None,
                        told=record["told"] + 1,
                        error="",
                    )
                )
            unfit += error.startswith("HTTP ") and int(error.split()[1]) in UNFIT
            if unfit >= UNFIT_TRIES:
                return bool(
                    self.lease(30, seen=notice.number, sending=None, left_out=record["left_out"] + 1, error=error)
                )
            wait = max(pause, after or 0.0)
            if time.monotonic() + wait > until:
                self.lease(0, error=error, sending=notice.number if arrived or repeat else None)
                return False
            # If the answer was lost, it is not known whether the notice arrived.
            if not self.lease(
                wait + self.webhook["timeout"] + 30, error=error, sending=notice.number if arrived or repeat else None
            ):
                return False
            time.sleep(wait)
            pause = min(LONGEST_PAUSE_S, pause * 2)

    def post(self, notice, repeat):
        """Return (error, whether it may have arrived, seconds that the receiver asks to wait)."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "gpufleet.lifecycle",
            "Idempotency-Key": "%s/%d" % (notice.rollout_id, notice.number),
        }
        try:
            answer = web.request(
                self.webhook["url"],
                self.webhook["timeout"],
                notices.payload(notice, self.webhook["kind"], repeat),
                headers,
            )
        except web.WebError as exc:
            return str(exc), exc.sent, None
        if 200 <= answer.status < 300:
            return "", True, None
        return (
            "HTTP %d" % answer.status,
            False,
            min(LONGEST_PAUSE_S, answer.retry_after_s) if answer.retry_after_s else None,
        )


def main(asked):
    """Run a sender in its own process."""
    ledger = Ledger(asked["artifact_dir"], asked["rollout_id"], asked["ledger"])
    Sender(ledger, asked["webhook"], asked["give_up_s"], asked["pause_s"]).run()


def start(ledger, webhook, give_up_s=GIVE_UP_S, pause_s=FIRST_PAUSE_S):
    """Start a sender in the background."""
    return start_process(
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
    """Start a sender if there is something to send and none runs. Does not wait or raise."""
    if not webhook or not webhook.get("url"):
        return
    path = ledger.path("webhook.lock")
    try:
        if idle and files.written_within(path, LOOK_S):
            return
        with files.locked(path, 0.0) as handle:
            if handle is None:
                return
            files.write_json(handle, {"time": time.time()})
            left, dummy, busy = Outbox(ledger).waiting()
            if left and not busy:
                start(ledger, webhook)
    except (OSError, store.StoreError) as exc:
        complain(
            "The webhook of rollout %s could not be notified: %s. The rollout continues, and notices are sent later."
            % (ledger.rollout_id, exc)
        )


def flush(ledger, webhook, complain=lambda words: None):
    """At the end of a run, wait for a while until all notices are sent."""
    if not webhook or not webhook.get("url"):
        return
    kick(ledger, webhook, complain=complain)
    until = time.monotonic() + webhook["timeout"] + 5
    try:
        while True:
            left, record, dummy = Outbox(ledger).waiting()
            if not left or time.monotonic() > until:
                break
            time.sleep(0.2)
    except store.StoreError as exc:
        complain("It is not known whether the webhook of rollout %s got all notices: %s" % (ledger.rollout_id, exc))
        return
    if left:
        complain(
            "The webhook of rollout %s did not get all notices yet%s. A process retries for up to %d minutes, and the "
            "next run of the rollout sends what is left."
            % (ledger.rollout_id, " (%s)" % record["error"] if record["error"] else "", GIVE_UP_S // 60)
        )
    if record["left_out"]:
        complain(
            "The webhook of rollout %s refused %d notices (%s); they were left out."
            % (ledger.rollout_id, record["left_out"], record["error"])
        )
