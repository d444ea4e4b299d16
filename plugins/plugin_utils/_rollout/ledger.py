# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of a rollout: an append-only journal that survives the death of its writer.

Private to the collection: it may change at any time.

One line of C(journal.jsonl) is one transaction: an event, or a list of events that hold together. A line counts once its newline is
on disk, so a torn last line is a transaction that never happened. Nothing outside this file knows how events are stored.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import re
import tempfile

ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}")
NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}")


class LedgerError(Exception):
    """The ledger cannot be used; the message says what to do."""


def timestamp(now=None):
    """UTC time as the documents of a rollout spell it."""
    now = now or datetime.datetime.now(datetime.timezone.utc)
    return now.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (now.microsecond // 1000)


def rollouts_dir(artifact_dir):
    return os.path.join(os.path.expanduser(artifact_dir), "rollouts")


def check_id(rollout_id):
    if not ROLLOUT_ID.fullmatch(rollout_id or ""):
        raise LedgerError("The rollout id %r is not usable as a directory name: letters, digits and . _ + ~ - are, up to 100 of them." % (rollout_id,))
    return rollout_id


def check_node(name):
    if not NODE_NAME.fullmatch(name or ""):
        raise LedgerError("The node name %r is not usable as a directory name: letters, digits and . _ : - are." % (name,))
    return name


def fsync_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path, text):
    """Replace a file whole, or leave the old one."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=".new-", dir=directory)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    fsync_dir(directory)


def write_json(path, document):
    write_file(path, json.dumps(document, indent=2, sort_keys=True) + "\n")


@contextlib.contextmanager
def locked(path):
    """Hold an exclusive lock on a file for as long as the block runs; the lock dies with its process."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def parse(data, path="journal"):
    """Events of a journal, and the length of the part that counts."""
    whole = data.rfind(b"\n") + 1
    events = []
    for number, line in enumerate(data[:whole].splitlines(), start=1):
        try:
            entry = json.loads(line)
        except ValueError as exc:
            raise LedgerError(
                "Line %d of %s is damaged (%s). A crash can only tear the last line, so something else wrote to it: "
                "restore the file, or start a rollout under another id." % (number, path, exc)
            ) from exc
        events.extend(entry if isinstance(entry, list) else [entry])
    return events, whole


class Transaction:
    """What is known under the lock, and what is to be added to it."""

    def __init__(self, events):
        self.events = events
        self.added = []

    def append(self, event, **fields):
        self.added.append(dict(fields, event=event, time=timestamp()))
        self.events.append(self.added[-1])


class Ledger:
    """Events of one rollout; the only class that knows where they lie."""

    def __init__(self, artifact_dir, rollout_id):
        self.rollout_id = check_id(rollout_id)
        self.base = rollouts_dir(artifact_dir)
        self.directory = os.path.join(self.base, rollout_id)
        self.journal = os.path.join(self.directory, "journal.jsonl")

    def exists(self):
        return os.path.exists(self.journal)

    def read(self):
        """All events so far; none when the rollout was never planned."""
        try:
            with open(self.journal, "rb") as stream:
                return parse(stream.read(), self.journal)[0]
        except FileNotFoundError:
            return []

    @contextlib.contextmanager
    def transaction(self):
        """Read, decide and write with nobody in between. Nothing is written when the block raises."""
        with locked(os.path.join(self.directory, "journal.lock")):
            fd = os.open(self.journal, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "r+b") as stream:
                data = stream.read()
                events, whole = parse(data, self.journal)
                transaction = Transaction(events)
                yield transaction
                if not transaction.added:
                    return
                line = json.dumps(transaction.added if len(transaction.added) > 1 else transaction.added[0], sort_keys=True)
                if whole < len(data):
                    stream.truncate(whole)
                stream.seek(whole)
                stream.write(line.encode("utf-8") + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
                if whole == 0:
                    fsync_dir(self.directory)

    def path(self, *names):
        """Where a document of this rollout lies."""
        return os.path.join(self.directory, *names)

    def save(self, node, name, document):
        """Keep a document of a node: its baseline, an audit, a verdict."""
        write_json(self.path(check_node(node), check_node(name) + ".json"), document)

    def load(self, node, name):
        try:
            with open(self.path(check_node(node), check_node(name) + ".json"), encoding="utf-8") as stream:
                return json.load(stream)
        except FileNotFoundError:
            return None


def remember_last(artifact_dir, rollout_id):
    write_file(os.path.join(rollouts_dir(artifact_dir), "last"), rollout_id + "\n")


def last_id(artifact_dir):
    """The id of the rollout that was planned last, or None."""
    try:
        with open(os.path.join(rollouts_dir(artifact_dir), "last"), encoding="utf-8") as stream:
            return stream.read().strip() or None
    except FileNotFoundError:
        return None
