# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which controller runs a rollout, and whether it still lives.

Private to the collection: it may change at any time.

Tasks of one playbook run in many short-lived worker processes, so no file lock can be held from the first task to the last. The owner
is the process that all of them share, the playbook itself, named so that a reused pid, a reboot or another container is told apart.
"""

from __future__ import annotations

import json
import os
import socket

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import ledger


class OwnerError(Exception):
    """The rollout belongs to somebody else; the message says to whom and what to do."""


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None


def start_ticks(pid, proc="/proc"):
    """When a process started, in ticks since boot; None when there is no such process, or it is a zombie."""
    text = _read(os.path.join(proc, str(pid), "stat"))
    if text is None or ")" not in text:
        return None
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def place(proc="/proc"):
    """What tells this process table from every other one."""
    try:
        pid_namespace = os.readlink(os.path.join(proc, "self", "ns", "pid"))
    except OSError:
        pid_namespace = None
    return {
        "host": socket.gethostname(),
        "boot_id": (_read(os.path.join(proc, "sys", "kernel", "random", "boot_id")) or "").strip() or None,
        "pid_namespace": pid_namespace,
    }


def identify(pid, proc="/proc"):
    return dict(place(proc), pid=pid, started=start_ticks(pid, proc))


def liveness(owner, proc="/proc"):
    """C(alive), C(dead), or C(unknown) when this controller cannot see the other one's processes."""
    here = place(proc)
    if owner.get("boot_id") != here["boot_id"]:
        return "dead" if owner.get("host") == here["host"] and owner.get("pid_namespace") == here["pid_namespace"] else "unknown"
    if owner.get("pid_namespace") != here["pid_namespace"]:
        return "unknown"
    ticks = start_ticks(owner.get("pid"), proc)
    return "alive" if ticks is not None and ticks == owner.get("started") else "dead"


def same(one, other):
    keys = ("boot_id", "pid_namespace", "pid", "started")
    return all(one.get(key) == other.get(key) for key in keys)


def describe(owner):
    return "process %s on %s" % (owner.get("pid"), owner.get("host"))


def record(book):
    """Who runs, or ran, a rollout."""
    return _record(book.directory)


def _record(directory):
    text = _read(os.path.join(directory, "owner.json"))
    return json.loads(text) if text else None


def claim(book, run, nodes, owner, break_lock=False, proc="/proc"):
    """Make C(owner) the owner of a rollout, or say why not.

    Another live controller is refused on the same rollout, and on another rollout that shares a node with this one.
    """
    with ledger.locked(os.path.join(book.base, "owners.lock")):
        for name in sorted(os.listdir(book.base)):
            record = _record(os.path.join(book.base, name))
            if record is None or record.get("ended") or same(record["owner"], owner):
                continue
            shared = sorted(set(record["nodes"]) & set(nodes))
            if name != book.rollout_id and not shared:
                continue
            alive = liveness(record["owner"], proc)
            if alive == "alive" or (alive == "unknown" and not break_lock):
                raise OwnerError(
                    "Rollout %s is %s by %s since %s%s. Nothing was started. %s"
                    % (
                        name,
                        "being run" if alive == "alive" else "recorded as run",
                        describe(record["owner"]),
                        record["time"],
                        "" if name == book.rollout_id else " and shares %s with this one" % ", ".join(shared[:5]),
                        "Wait for it, or end it first."
                        if alive == "alive"
                        else "That process cannot be seen from here: make sure that it is gone, then run again with rollout_break_lock=true.",
                    )
                )
        ledger.write_json(book.path("owner.json"), {"owner": owner, "run": run, "nodes": sorted(nodes), "time": ledger.timestamp()})


def require(book, owner):
    """The run that this controller owns; anything else may not touch the rollout."""
    record = _record(book.directory)
    if record is None:
        raise OwnerError("Rollout %s was never planned in %s: rollout_plan has to run first." % (book.rollout_id, book.base))
    if not same(record["owner"], owner):
        raise OwnerError(
            "Rollout %s was taken over by %s at %s; this controller may not go on with it." % (book.rollout_id, describe(record["owner"]), record["time"])
        )
    return record["run"]


def release(book, owner):
    """Say that the run is over, for controllers that cannot see this one's processes."""
    with ledger.locked(os.path.join(book.base, "owners.lock")):
        record = _record(book.directory)
        if record is not None and same(record["owner"], owner):
            ledger.write_json(book.path("owner.json"), dict(record, ended=ledger.timestamp()))
