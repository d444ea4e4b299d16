# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controllers that work on one rollout together, its members.

A plan that was made for several controllers belongs to none of them. Each joins it with the hosts of its own inventory,
and has a lease by the clock of the database, which each gate and each step of its nodes extends. A member whose lease
has run out, or whose process is visibly gone, is dead: another one may join with its hosts, which ends its part, so
that it is refused at its next step. As long as no other has joined with its hosts, a member whose lease ran out, such
as in a long installation or while the database was away, extends it and continues.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner as owners
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa


@dataclasses.dataclass
class Member:
    member: str  # its id
    run: str  # of the plan that it joined
    owner: t.Dict[str, t.Any]  # the identity of its controller
    hosts: t.List[str]  # those of its inventory that are in the plan
    joined: str
    heartbeat: str
    until: str  # the end of its lease
    ended: t.Optional[str] = None
    why: str = ""  # how its part ended
    gone: t.List[str] = dataclasses.field(default_factory=list)  # hosts that have left its play
    refused: str = ""  # why it only finishes nodes that were down


def is_shared(record) -> bool:
    """Return True if the plan was made for several controllers. RECORD: the owner's record of a rollout."""
    return bool(record) and bool(record.get("shared"))


def load_members(connection, database, rollout_id, run) -> list[Member]:
    """Return the members of a run of a rollout, as the database has them."""
    table = database.table["member"]
    query = sa.select(table.c.body).where(table.c.rollout_id == rollout_id, table.c.run == run)
    return [Member(**json.loads(body)) for (body,) in connection.execute(query)]


def make_shared_record(run, now) -> dict:
    """Return the owner's record of a plan for several controllers."""
    text = format_time(now)
    return {"owner": {}, "run": run, "time": text, "heartbeat": text, "shared": True}


def is_alive(member, now, proc="/proc") -> bool:
    """Return True if the member still works on the rollout. A process that is visible counts more than its lease."""
    if member.ended:
        return False
    seen = owners.judge_liveness(member.owner, proc, member.heartbeat, now)
    return seen == "alive" or seen != "dead" and format_time(now) < member.until


def record_of(member) -> dict:
    """Return the member in the form of an owner's record."""
    return {"owner": member.owner, "run": member.run, "time": member.joined, "heartbeat": member.heartbeat}


def find_living(transaction, now=None) -> list[Member]:
    """Return the living members of the transaction's rollout."""
    now = now or transaction.clock()
    return [member for member in transaction.members() if is_alive(member, now)]


def find_at_work(transaction, now) -> list[Member]:
    """Return the members that may be at work: the living, and those with an unexpired ticket for a node in flight.

    Nothing extends the lease of a member while its only node is in one long step. One whose process is gone is not
    among them.
    """
    in_flight = transaction.view.nodes.with_state(*state.IN_FLIGHT)
    tickets = {node.name for node in in_flight if node.ticket and format_time(now) < node.ticket.expires}
    return [
        member
        for member in transaction.members()
        if is_alive(member, now)
        or not member.ended
        and tickets.intersection(member.hosts)
        and owners.judge_liveness(member.owner, heard=member.heartbeat, now=now) != "dead"
    ]


def is_running(transaction, now) -> bool:
    """Return True if a controller that has the transaction's rollout may still be at work."""
    if is_shared(transaction.owner):
        return bool(find_at_work(transaction, now))
    return owners.is_running(transaction.owner, now)


def find_reporter(transaction, now=None) -> dict | None:
    """Return the identity of the controller that reports on a running rollout: its owner, or the first living member.

    None if no controller is left.
    """
    record = transaction.owner
    if not is_shared(record):
        return record["owner"] if record and not record.get("ended") else None
    candidates = find_living(transaction, now)
    return min(candidates, key=lambda member: (member.joined, member.member)).owner if candidates else None


def find_own(transaction, identity) -> Member | None:
    """Return this controller's member, the one that joined last; None if it never joined this plan."""
    mine = [member for member in transaction.members() if owners.is_same(member.owner, identity)]
    return max(mine, key=lambda member: (member.ended is None, member.joined)) if mine else None


def find_refusal(transaction, identity) -> str:
    """Return why this controller, a member, starts no node; empty if it may, or is alone."""
    member = find_own(transaction, identity) if is_shared(transaction.owner) else None
    return member.refused if member else ""


def find_hosts(transaction, identity) -> frozenset[str] | None:
    """Return the hosts of this controller's part, a frozenset; None if the rollout has one controller, for all."""
    if not is_shared(transaction.owner):
        return None
    member = find_own(transaction, identity)
    return frozenset(member.hosts if member else ())


def find_present_hosts(transaction, identity, hosts_of_play) -> list[str] | set[str] | None:
    """Return the hosts that a controller still has in its play: HOSTS_OF_PLAY of this one, those of other members.

    None if HOSTS_OF_PLAY is None.
    """
    if hosts_of_play is None or not is_shared(transaction.owner):
        return hosts_of_play
    mine = find_own(transaction, identity)
    others = [member for member in find_living(transaction) if mine is None or member.member != mine.member]
    return set(hosts_of_play).union(*[set(member.hosts) - set(member.gone) for member in others])


def record_gone(transaction, identity, hosts_of_play) -> None:
    """Record which hosts have left the play of this controller, so that no node of another one waits for them."""
    member = find_own(transaction, identity) if is_shared(transaction.owner) and hosts_of_play is not None else None
    gone = sorted(set(member.hosts) - set(hosts_of_play)) if member else None
    if member and gone != member.gone:
        transaction.put_member(dataclasses.replace(member, gone=gone))


def _extend_lease(member, now) -> Member:
    return dataclasses.replace(
        member, heartbeat=format_time(now), until=format_time(now + datetime.timedelta(seconds=owners.LEASE_S))
    )


def require_membership(transaction, rollout_id, identity, now=None) -> str:
    """Return the run that this controller owns or is a member of, and record its heartbeat; refuse any other one."""
    if not is_shared(transaction.owner):
        return owners.require_owner(transaction, rollout_id, identity, now)
    now = now or transaction.clock()
    member = find_own(transaction, identity)
    if member is None:
        raise owners.OwnerError(
            "This run is no member of rollout %s: the plan was made again, or it never joined. Run the playbook again, "
            "with rollout_join=true and rollout_id=%s." % (rollout_id, rollout_id)
        )
    if member.ended:
        raise owners.OwnerError(
            "This run is no longer a member of rollout %s: %s. It may not continue with its nodes. Run the playbook "
            "again." % (rollout_id, member.why)
        )
    if owners.is_due(member.heartbeat, now):
        transaction.put_member(_extend_lease(member, now))
    return member.run


def end_membership(transaction, member, why, now=None) -> None:
    """Record that the part of a member has ended."""
    ended = format_time(now or transaction.clock())
    transaction.put_member(dataclasses.replace(member, ended=ended, why=why))


def release_part(transaction, identity, now=None) -> None:
    """Record that the run of this controller, or its part of it, has ended."""
    if not is_shared(transaction.owner):
        owners.release_rollout(transaction, identity, now)
        return
    member = find_own(transaction, identity)
    if member is not None and not member.ended:
        end_membership(transaction, member, "its playbook had ended", now)


def add_member(transaction, member_id, names, identity, now, break_lock=False, refused="") -> Member:
    """Make this controller a member with the hosts NAMES. Refuse hosts of a living member; end the parts of dead ones.

    REFUSED: why it only finishes those of its nodes that are down; empty if it works on all.
    BREAK_LOCK: end also the part of a member whose process cannot be seen, and that was silent for FRESH_S, or whose
    lease is from the future, as the clock of the ledger was set back. Returns the member.
    """
    text = format_time(now)
    for other in transaction.members():
        common = sorted(set(other.hosts) & set(names))
        if other.ended or not common:
            continue
        is_broken = (
            break_lock
            and (owners.is_ahead(other.heartbeat, now) or owners.age_s(other.heartbeat, now) >= owners.FRESH_S)
            and owners.judge_liveness(other.owner, heard=other.heartbeat, now=now) != "alive"
        )
        if is_alive(other, now) and not is_broken:
            raise owners.OwnerError(
                "%s in rollout %s already, as %s of a job that is running: %s, since %s, with its last heartbeat %s "
                "ago. Nothing was started. Wait for it, or end it first. A job that is gone keeps its hosts for %d s "
                "after its last heartbeat, or until you run with rollout_break_lock=true after %d s."
                % (
                    "%s is" % common[0] if len(common) == 1 else "%s are" % owners.list_names(common),
                    transaction.view.rollout_id,
                    "a host" if len(common) == 1 else "hosts",
                    owners.describe_owner(other.owner),
                    other.joined,
                    owners.format_seconds(owners.age_s(other.heartbeat, now)),
                    owners.LEASE_S,
                    owners.FRESH_S,
                )
            )
        end_membership(
            transaction,
            other,
            "its lease had run out, or its process was gone, and %s joined with %s at %s"
            % (owners.describe_owner(identity), common[0], text),
            now,
        )
    until = format_time(now + datetime.timedelta(seconds=owners.LEASE_S))
    run = transaction.owner["run"]
    member = Member(member_id, run, identity, sorted(names), text, text, until, refused=refused)
    transaction.put_member(member)
    return member


def describe_members(members, now) -> list[str]:
    """Return a line for each member: who it is, its hosts, and how it stands."""
    lines = []
    for member in sorted(members, key=lambda one: one.joined):
        if member.ended:
            stands = "ended at %s: %s" % (member.ended, member.why)
        elif is_alive(member, now):
            stands = "last heartbeat %s ago" % owners.format_seconds(owners.age_s(member.heartbeat, now))
        else:
            stands = "dead: its last heartbeat was at %s, and its process is gone or its lease has run out" % (
                member.heartbeat
            )
        lines.append(
            "member %s since %s, with %d host%s: %s"
            % (
                owners.describe_owner(member.owner),
                member.joined,
                len(member.hosts),
                "" if len(member.hosts) == 1 else "s",
                stands,
            )
        )
    return lines
