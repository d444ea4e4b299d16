# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of module node_claim: read the node's claim and marker, claim it for a rollout, or release it."""

from __future__ import annotations

import os
import re
import time

from . import claim, files, identity, lock

READ, HELD, QUARANTINED, RELEASED = "read", "held", "quarantined", "released"
MARKER = "quarantine.json"
SCHEDULED = "/run/systemd/shutdown/scheduled"
# A shutdown that is planned for later than this leaves the node the time of its upgrade.
DUE_S = 3600
ARGUMENTS = {
    "state": {"type": "str", "choices": [READ, HELD, QUARANTINED, RELEASED], "default": READ},
    "directory": {"type": "path", "default": files.OWN},
    "claim": {"type": "dict"},
    "over": {"type": "dict"},
    "changed": {"type": "bool", "default": False},
    "other_ledger_s": {"type": "int", "default": 0},
    "lock_timeout_s": {"type": "int", "default": 600},
}


class TaskError(Exception):
    """Nothing was changed; the message says why."""


def going_down(run, root="/", now=None):
    """Tell if the node is about to reboot: systemd is stopping everything, or has a shutdown scheduled that is due."""
    if run(["systemctl", "is-system-running"], 20)[1].strip() == "stopping":
        return True
    path = files.under(root, SCHEDULED)
    if not os.path.exists(path):
        return False
    # systemd-logind writes the time in microseconds of the clock (src/login/logind-dbus.c).
    found = re.search(r"^USEC=([0-9]{1,18})$", files.read_text(path) or "", re.M)
    return found is None or int(found.group(1)) / 1e6 - (time.time() if now is None else now) < DUE_S


def looked(params):
    """Return the claim and the marker of the node. Raises OSError if the marker cannot be looked for."""
    path = os.path.join(params["directory"], MARKER)
    try:
        os.stat(path)
        marked = True
    except (FileNotFoundError, NotADirectoryError):
        marked = False
    found, problem = claim.read(params["directory"])
    last, unread = claim.read_last(params["directory"], time.time())
    return {
        "changed": False,
        "quarantine": {"exists": marked, "path": path},
        "claim": found,
        "last_change": last,
        "problem": problem or unread,
        "no_room": claim.room(params["directory"]),
    }


def wanted(params):
    """The claim that the task is about."""
    mine = dict(params["claim"] or {})
    missing = [
        key for key in ("ledger", "rollout_id", "attempt", "run", "plan", "controller") if mine.get(key) in (None, "")
    ]
    if missing:
        raise TaskError("claim has no %s. Nothing was changed." % ", ".join(missing))
    return dict(mine, attempt=int(mine["attempt"]))


def perform(params, check, run, lock_path=lock.DEFAULT_PATH, root="/"):
    """The result of the module. RUN calls commands."""
    if params["state"] == READ:
        return looked(params)
    mine = wanted(params)
    if check:
        return dict(looked(params), changed=False)
    # Wait for a change in progress: what another attempt began ends before this attempt has the node.
    owner = {"module": "node_claim", "rollout_id": mine["rollout_id"], "step": params["state"]}
    with lock.NodeLock(path=lock_path, owner=owner, timeout_s=params["lock_timeout_s"]):
        before = looked(params)
        if params["state"] == HELD:
            return held(params, before, mine, going_down(run, root), root)
        return settled(params, before, mine)


def held(params, before, mine, leaving, root):
    answer = dict(before, going_down=leaving, boot_id=identity.read_boot_id(root))
    why = claim.refusal(before["claim"], before["problem"], mine, params["over"])
    if not why and before["claim"] is None:
        why = claim.changed_elsewhere(before["last_change"], mine["ledger"], params["other_ledger_s"], params["over"])
    if why:
        raise TaskError(why)
    # An operator may have put it in quarantine since the rollout was planned: the caller is told by the marker, and
    # there is no claim.
    if leaving or before["quarantine"]["exists"] or claim.alike(before["claim"], mine):
        return answer
    if before["no_room"]:
        raise TaskError("its claim could not be kept: %s" % before["no_room"])
    now = dict(mine, state=claim.HELD, time=time.strftime(claim.TIME, time.gmtime()))
    claim.write(params["directory"], now)
    return dict(answer, changed=True, claim=dict(now, schema=claim.SCHEMA, fence=claim.fence(now)))


def settled(params, before, mine):
    """Give the node up, or say on it that it stays out of service. What belongs to another attempt is left alone."""
    found = before["claim"]
    if before["problem"]:
        raise TaskError(before["problem"])
    if not claim.alike(found, mine):
        return before
    if params["state"] == RELEASED:
        if params["changed"]:
            claim.finish(params["directory"], found, time.time())
        else:
            claim.remove(params["directory"])
        return dict(before, changed=True, claim=None)
    if found["state"] != claim.QUARANTINED:
        now = dict(found, state=claim.QUARANTINED)
        claim.write(params["directory"], now)
        return dict(before, changed=True, claim=now)
    return before
