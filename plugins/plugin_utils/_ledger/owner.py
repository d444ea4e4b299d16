# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller that owns a rollout, and whether it is alive.

Tasks of one playbook run in many short-lived worker processes, so no file lock can be held from the first task to the
last. The owner is the process that all of them share, the playbook itself. Its identity differs from that of a process
with the same pid later, after a reboot, or in another container. If its process cannot be seen, its liveness is
unknown, which never counts as dead.
"""

from __future__ import annotations

import datetime
import os
import socket

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import proc_tasks
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time

# The interval in which the gate and the steps of a controller record that it is alive, and the age of that record from
# which on an operator may break its lock, where its process cannot be seen.
HEARTBEAT_S = 30
FRESH_S = 120
# The time for which a controller that cannot be seen keeps its nodes after its last heartbeat, where its end is known
# from elsewhere. Longer than most steps, since nothing extends it while the only node in flight is in one.
LEASE_S = 900
GONE = "gone"
IDENTITY = ("boot_id", "pid_namespace", "pid", "started")


class OwnerError(Exception):
    """The rollout belongs to another controller; the message says to which one and what to do."""


def _read_line(path) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None


def identify_process_table(proc: str = "/proc") -> dict:
    """Return the identity of this process table: host, boot and PID namespace."""
    try:
        pid_namespace = os.readlink(os.path.join(proc, "self", "ns", "pid"))
    except OSError:
        pid_namespace = None
    return {
        "host": socket.gethostname(),
        "boot_id": (_read_line(os.path.join(proc, "sys", "kernel", "random", "boot_id")) or "").strip() or None,
        "pid_namespace": pid_namespace,
    }


def identify_process(pid: int, proc: str = "/proc") -> dict:
    """Return the identity of a process of this process table."""
    return dict(identify_process_table(proc), pid=pid, started=proc_tasks.read_start(pid, proc))


def find_boot_time(now: datetime.datetime, proc: str = "/proc") -> datetime.datetime | None:
    """Return when this machine was booted, by the clock that says NOW; None if that is unknown.

    The kernel's own time of the boot is by the clock of this machine, which may be wrong.
    """
    words = (_read_line(os.path.join(proc, "uptime")) or "").split()
    try:
        return now - datetime.timedelta(seconds=float(words[0]))
    except (IndexError, ValueError, OverflowError):
        return None


def find_start(pid: int, proc: str = "/proc") -> int | str | None:
    """Return when a process of this process table started, in ticks since boot; GONE if there is none, None if unknown.

    Whether the process exists is asked by a signal, which also works where /proc hides the processes of other users.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return GONE
    except PermissionError:
        pass
    except (OverflowError, TypeError):
        return None
    found = proc_tasks.parse(_read_line(os.path.join(proc, str(pid), "stat")))
    if found is None:
        return None
    return GONE if found["state"] in ("Z", "X") else found["started"]


def judge_process(owner: dict, here: dict, start: int | str | None) -> str:
    """Return C(alive), C(dead) or C(unknown), from what find_start() returned for the owner's pid on this machine.

    Pid 1 is always unknown: it is also the parent of a worker whose playbook has ended.
    """
    certain = all(owner.get(key) and owner.get(key) == here[key] for key in ("boot_id", "pid_namespace"))
    if not certain or not isinstance(owner.get("pid"), int) or owner["pid"] <= 1 or start is None:
        return "unknown"
    if start == GONE:
        return "dead"
    if owner.get("started") is None:
        return "unknown"
    return "alive" if start == owner["started"] else "dead"


def judge_liveness(
    owner: dict, proc: str = "/proc", heard: str | None = None, now: datetime.datetime | None = None
) -> str:
    """Return C(alive), C(dead), or C(unknown) if this controller cannot see the processes of the other one.

    C(heard) is the time of the last heartbeat. An owner with this machine's name and another boot is dead only if its
    heartbeats stopped before this boot. Otherwise it may be another machine with the same name.
    """
    here = identify_process_table(proc)
    if owner.get("boot_id") and here["boot_id"] and owner["boot_id"] != here["boot_id"]:
        if (
            owner.get("host") != here["host"]
            or owner.get("pid_namespace") != here["pid_namespace"]
            or heard is None
            or now is None
        ):
            return "unknown"
        boot = find_boot_time(now, proc)
        return "dead" if boot is not None and _parse_time(heard) < boot and age_s(heard, now) >= FRESH_S else "unknown"
    return judge_process(owner, here, find_start(owner.get("pid"), proc))


def is_running(record: dict, now: datetime.datetime) -> bool:
    """Return True if the run in the record of an owner may still go on."""
    return (
        bool(record)
        and not record.get("ended")
        and judge_liveness(record["owner"], heard=record["heartbeat"], now=now) != "dead"
    )


def is_complete(owner: dict) -> bool:
    """Return True if every part of the identity is known."""
    return all(owner.get(key) for key in IDENTITY)


def is_same(one: dict, other: dict) -> bool:
    """Return True if two identities are equal. Where parts are unknown, the host has to be equal too."""
    return all(one.get(key) == other.get(key) for key in IDENTITY + (() if is_complete(one) else ("host",)))


def describe_owner(owner: dict) -> str:
    """Return the owner in words: its process, host and AWX job."""
    job = owner.get("job") or {}
    return "process %s on %s%s" % (
        owner.get("pid"),
        owner.get("host"),
        " (AWX job %s)" % job["id"] if job.get("id") else "",
    )


def _parse_time(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)


def age_s(text: str, now: datetime.datetime) -> int:
    """Return the seconds since a time of the ledger."""
    return max(0, int((now - _parse_time(text)).total_seconds()))


def is_ahead(text: str, now: datetime.datetime) -> bool:
    """Return True if a heartbeat is from the future: the ledger's clock was set back since, so its age is not known."""
    return _parse_time(text) > now + datetime.timedelta(seconds=HEARTBEAT_S)


def is_due(text: str, now: datetime.datetime) -> bool:
    """Return True if a controller has to write its heartbeat again."""
    return age_s(text, now) >= HEARTBEAT_S or is_ahead(text, now)


def is_ended_job(owner: dict, mine: dict) -> bool:
    """Return True if AWX has ended the job of OWNER, by its own account, since the job of the owner MINE runs.

    AWX runs a template or a workflow once at a time (allow_simultaneous), and counts a job as ended whose execution
    node it lost. Jobs of one workflow job, such as slices, run beside each other.
    """
    job, own = owner.get("job") or {}, mine.get("job") or {}
    workflow = job.get("workflow")
    return bool(
        job.get("awx")
        and job["awx"] == own.get("awx")
        and job["id"] != own["id"]
        and not (workflow and workflow == own.get("workflow"))
        and any(job.get(key) and job[key] == own.get(key) for key in ("template", "workflow_name"))
    )


def list_names(names) -> str:
    """Return the first names of a list in a sentence, and the number of the others."""
    names = list(names)
    return ", ".join(names[:5]) + (" and %d more" % (len(names) - 5) if len(names) > 5 else "")


def format_seconds(seconds: float) -> str:
    """Return seconds in the unit that suits their number."""
    return (
        "%d s" % seconds
        if seconds < 120
        else "%d min" % (seconds // 60)
        if seconds < 7200
        else "%d h" % (seconds // 3600)
    )


def explain_refusal(name, found, shared, own, now, break_lock=False, proc="/proc", mine=None) -> str:
    """Return why the owner of a rollout keeps this controller from starting; empty if it does not.

    C(own): it is the rollout that this controller starts. C(shared): nodes that both rollouts have. C(mine): this
    controller. The lock of a controller that is alive, or that has just written, is never broken. That of a job of AWX
    that has ended, by AWX's account, is free when its lease has run out.
    """
    if found is None or found.get("ended") or (not own and not shared):
        return ""
    alive = judge_liveness(found["owner"], proc, found["heartbeat"], now)
    silent, ahead = age_s(found["heartbeat"], now), is_ahead(found["heartbeat"], now)
    if alive == "dead":
        return ""
    beside = "" if own else " and shares %s with this one" % list_names(shared)
    who = "by %s since %s%s; its last heartbeat %s. Nothing was started." % (
        describe_owner(found["owner"]),
        found["time"],
        beside,
        "is from the future, %s, since the ledger's clock was set back" % found["heartbeat"]
        if ahead
        else "was %s ago" % format_seconds(silent),
    )
    if alive == "alive":
        return "Rollout %s is being run %s Wait for it, or end it first." % (name, who)
    is_over = not ahead and is_ended_job(found["owner"], mine or {})
    left = (LEASE_S if is_over else FRESH_S) - silent
    if silent < FRESH_S and not ahead:
        return (
            "Rollout %s is being run %s Its process is not visible from this controller, but its heartbeat is recent. "
            "End it there. If it is gone, try again in %d s." % (name, who, left)
        )
    if break_lock or is_over and left <= 0:
        return ""
    return (
        "Rollout %s is recorded as run %s Its process is not visible from this controller. Make sure that it is "
        "gone, then run again with rollout_break_lock=true%s."
        % (name, who, ", or start this job again in %d s without it" % left if is_over else "")
    )


def claim_rollout(
    transaction, rollout_id, run, nodes, owner, break_lock=False, proc="/proc", now=None, abandon=()
) -> None:
    """Make C(owner) the owner of the transaction's rollout, or refuse.

    Refused is a rollout that another controller runs, and one that shares a node with a rollout that another controller
    runs. Nodes that another rollout has in flight are refused too, also if its controller is dead, unless they are in
    C(abandon).
    """
    now = now or transaction.clock()
    transaction.block_new_rollouts()  # before anything is read of other rollouts
    for mine in transaction.holders(now):
        if not (is_same(mine["owner"], owner) and is_complete(owner)):
            why = explain_refusal(rollout_id, mine, [], True, now, break_lock, proc, owner)
            if why:
                raise OwnerError(why)
    require_free(transaction, nodes, owner, now, break_lock, proc, abandon)
    text = format_time(now)
    transaction.hold({"owner": owner, "run": run, "time": text, "heartbeat": text})


def require_free(transaction, nodes, owner, now, break_lock=False, proc="/proc", abandon=()) -> None:
    """Refuse C(nodes) that another rollout has: of a controller that is running, or in flight."""
    for name, other in transaction.others.find_owners(now):
        if other.get("ended") or (is_same(other["owner"], owner) and is_complete(owner)):
            continue
        shared = transaction.others.find_shared(name, nodes)
        why = explain_refusal(name, other, shared, False, now, break_lock, proc, owner)
        if why:
            raise OwnerError(why)
    left = [entry for entry in transaction.others.in_flight_among(nodes) if entry[1] not in abandon]
    if left:
        other, name, value = left[0]
        names = sorted(entry[1] for entry in left if entry[0] == other)
        raise OwnerError(
            "%s is %s in rollout %s, whose run was interrupted%s. What is installed on it is not known. Run that "
            "rollout again first (rollout_id=%s): it examines the node, and finishes it or rolls it back. Or take the "
            "node as it is, with rollout_abandon=%s in this run. Nothing was changed."
            % (
                name,
                value,
                other,
                ", as are %s" % list_names(one for one in names if one != name) if len(names) > 1 else "",
                other,
                ",".join(names[:5]),
            )
        )


def require_owner(transaction, rollout_id, owner, now=None) -> str:
    """Return the run that this controller owns, and record its heartbeat; refuse any other controller."""
    record = transaction.owner
    if record is None:
        raise OwnerError("Rollout %s was never planned in this ledger. Run rollout_plan first." % rollout_id)
    if not is_same(record["owner"], owner):
        raise OwnerError(
            "Rollout %s was taken over by %s at %s, so this controller may not continue it."
            % (rollout_id, describe_owner(record["owner"]), record["time"])
        )
    if record.get("broken"):
        raise OwnerError(
            "The lock of rollout %s was broken by %s, so this controller may not continue it. To continue it here, run "
            "the playbook again." % (rollout_id, record["broken"])
        )
    now = now or transaction.clock()
    if is_due(record["heartbeat"], now):
        transaction.hold(dict(record, heartbeat=format_time(now)))
    return record["run"]


def release_rollout(transaction, owner, now=None) -> None:
    """Record that the run has ended, for controllers that cannot see the processes of this one."""
    record = transaction.owner
    if record is not None and is_same(record["owner"], owner):
        transaction.hold(dict(record, ended=format_time(now or transaction.clock())))
