# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which controller runs a rollout, and whether it still lives.

Tasks of one playbook run in many short-lived worker processes, so no file lock can be held from the first task to the last. The owner
is the process that all of them share, the playbook itself, named so that a reused pid, a reboot or another container is told apart. What
cannot be seen of it is unknown, and never its end.
"""

from __future__ import annotations

import datetime
import os
import socket

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state

# How often a controller shows in the ledger that it lives (watcher.py, and whoever asks the ledger), and how long that is believed where its
# process cannot be seen.
HEARTBEAT_S = 30
FRESH_S = 120
GONE = "gone"
IDENTITY = ("boot_id", "pid_namespace", "pid", "started")


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


def booted(proc="/proc"):
    """When this machine was booted, an aware datetime; None when it cannot be told."""
    for line in (_read(os.path.join(proc, "stat")) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "btime" and words[1].isdigit():
            return datetime.datetime.fromtimestamp(int(words[1]), datetime.timezone.utc)
    return None


def seen(pid, proc="/proc"):
    """When a process of this process table started, in ticks since boot; GONE when there is none, None when that cannot be told.

    Whether there is one is asked of the kernel, which tells it also where /proc hides the processes of others.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return GONE
    except PermissionError:
        pass
    except (OverflowError, TypeError):
        return None
    text = _read(os.path.join(proc, str(pid), "stat"))
    if text is None or ")" not in text:
        return None
    return GONE if text.rpartition(")")[2].split()[:1] in (["Z"], ["X"]) else start_ticks(pid, proc)


def judged(owner, here, seen_there):
    """C(alive), C(dead) or C(unknown), by what was SEEN of the process with the owner's pid HERE.

    Process 1 is what an orphan has for its parent, so that who recorded it as the owner may have ended.
    """
    certain = all(owner.get(key) and owner.get(key) == here[key] for key in ("boot_id", "pid_namespace"))
    if not certain or not isinstance(owner.get("pid"), int) or owner["pid"] <= 1 or seen_there is None:
        return "unknown"
    if seen_there == GONE:
        return "dead"
    if owner.get("started") is None:
        return "unknown"
    return "alive" if seen_there == owner["started"] else "dead"


def liveness(owner, proc="/proc", heard=None, now=None):
    """C(alive), C(dead), or C(unknown) when this controller cannot see the other one's processes.

    C(heard) is when the ledger heard of it last. A machine of this one's name with another boot is this one before it was booted only
    when it was silent since; if not, it is a copy with the same name, which lives.
    """
    here = place(proc)
    if owner.get("boot_id") and here["boot_id"] and owner["boot_id"] != here["boot_id"]:
        if owner.get("host") != here["host"] or owner.get("pid_namespace") != here["pid_namespace"] or heard is None or now is None:
            return "unknown"
        boot = booted(proc)
        return "dead" if boot is not None and _parsed(heard) < boot and _age(heard, now) >= FRESH_S else "unknown"
    return judged(owner, here, seen(owner.get("pid"), proc))


def running(record, now=None):
    """Whether the run that the record of an owner tells of may still go on."""
    now = now or datetime.datetime.now(datetime.timezone.utc)
    return bool(record) and not record.get("ended") and liveness(record["owner"], heard=record["heartbeat"], now=now) != "dead"


def told(owner):
    """Whether all is known that tells it from every other process."""
    return all(owner.get(key) for key in IDENTITY)


def same(one, other):
    """Whether two are one; where not all is known, those of one host are only told apart by what is."""
    return all(one.get(key) == other.get(key) for key in IDENTITY + (() if told(one) else ("host",)))


def describe(owner):
    job = owner.get("job") or {}
    return "process %s on %s%s" % (owner.get("pid"), owner.get("host"), " (AWX job %s)" % job["id"] if job.get("id") else "")


def _parsed(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)


def _age(text, now):
    """Seconds since a time of the ledger."""
    return max(0, int((now - _parsed(text)).total_seconds()))


def _listed(names):
    names = list(names)
    return ", ".join(names[:5]) + (" and %d more" % (len(names) - 5) if len(names) > 5 else "")


def _since(seconds):
    return "%d s" % seconds if seconds < 120 else "%d min" % (seconds // 60) if seconds < 7200 else "%d h" % (seconds // 3600)


def refusal(name, found, shared, own, now, break_lock=False, proc="/proc"):
    """Why another controller's hold on a rollout keeps this one from starting; empty when it does not.

    C(own): it is the rollout that this controller wants. C(shared): nodes that both have. A controller that is seen to live, or has
    just written, is never overruled.
    """
    if found is None or found.get("ended") or (not own and not shared):
        return ""
    alive = liveness(found["owner"], proc, found["heartbeat"], now)
    silent = _age(found["heartbeat"], now)
    if alive == "dead":
        return ""
    beside = "" if own else " and shares %s with this one" % _listed(shared)
    who = "by %s since %s%s, last heard of %s ago. Nothing was started." % (describe(found["owner"]), found["time"], beside, _since(silent))
    if alive == "alive":
        return "Rollout %s is being run %s Wait for it, or end it first." % (name, who)
    if silent < FRESH_S:
        return "Rollout %s is being run %s It cannot be seen from here but it has just written: end it there; if it is gone, try again in %d s." % (
            name, who, FRESH_S - silent)
    if break_lock:
        return ""
    return ("Rollout %s is recorded as run %s That process cannot be seen from here: make sure that it is gone, "
            "then run again with rollout_break_lock=true." % (name, who))


def claim(transaction, rollout_id, run, nodes, owner, break_lock=False, proc="/proc", now=None, abandon=()):
    """Make C(owner) the owner of the transaction's rollout, or say why not.

    Another live controller is refused on the same rollout, and on another rollout that shares a node with this one. So are nodes that
    another rollout has in flight, whatever became of its controller, unless they are in C(abandon).
    """
    now = now or datetime.datetime.now(datetime.timezone.utc)
    transaction.alone()  # before anything is read of other rollouts
    mine = transaction.owner
    if mine is not None and not (same(mine["owner"], owner) and told(owner)):
        why = refusal(rollout_id, mine, [], True, now, break_lock, proc)
        if why:
            raise OwnerError(why)
    for name, other in transaction.owners():
        if other.get("ended") or (same(other["owner"], owner) and told(owner)):
            continue
        why = refusal(name, other, transaction.shared(name, nodes), False, now, break_lock, proc)
        if why:
            raise OwnerError(why)
    left = [entry for entry in transaction.in_flight_elsewhere(nodes) if entry[1] not in abandon]
    if left:
        other, name, value = left[0]
        names = sorted(entry[1] for entry in left if entry[0] == other)
        raise OwnerError(
            "%s is %s in rollout %s, whose run broke off%s: nobody knows yet what is on it. Run that rollout again first (rollout_id=%s), which looks at "
            "the node and finishes it or puts it back; or take it as it is, with rollout_abandon=%s in this run. Nothing was changed."
            % (name, value, other, ", as are %s" % _listed(one for one in names if one != name) if len(names) > 1 else "", other, ",".join(names[:5])))
    text = state.timestamp(now)
    transaction.hold({"owner": owner, "run": run, "time": text, "heartbeat": text})


def require(transaction, rollout_id, owner, now=None):
    """The run that this controller owns, and a sign of life; anybody else may not touch the rollout."""
    record = transaction.owner
    if record is None:
        raise OwnerError("Rollout %s was never planned in this ledger: rollout_plan has to run first." % rollout_id)
    if not same(record["owner"], owner):
        raise OwnerError(
            "Rollout %s was taken over by %s at %s; this controller may not go on with it." % (rollout_id, describe(record["owner"]), record["time"])
        )
    if record.get("broken"):
        raise OwnerError("The lock of rollout %s was broken by %s; this controller may not go on with it. Run the playbook again if it should." % (
            rollout_id, record["broken"]))
    now = now or datetime.datetime.now(datetime.timezone.utc)
    if _age(record["heartbeat"], now) >= HEARTBEAT_S:
        transaction.hold(dict(record, heartbeat=state.timestamp(now)))
    return record["run"]


def beat(transaction, owner, run, now=None):
    """A sign of life of a controller that may have nothing to ask the ledger; False when the run is not its own any more, or is over."""
    record = transaction.owner
    if record is None or not same(record["owner"], owner) or record["run"] != run or record.get("ended") or record.get("broken"):
        return False
    transaction.hold(dict(record, heartbeat=state.timestamp(now or datetime.datetime.now(datetime.timezone.utc))))
    return True


def release(transaction, owner, now=None):
    """Say that the run is over, for controllers that cannot see this one's processes."""
    record = transaction.owner
    if record is not None and same(record["owner"], owner):
        transaction.hold(dict(record, ended=state.timestamp(now or datetime.datetime.now(datetime.timezone.utc))))
