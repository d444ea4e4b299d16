# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of module node_state: what roles read and write in the node's state directory and beside it.

The claim of a rollout, the node's notes, and files of the collection.
"""

from __future__ import annotations

import os
import re
import stat
import time
from typing import Any, Callable, Dict, Optional, Tuple

from . import claim, files, identity, lock, notes

CLAIM, FILES = "claim", "files"
READ, PRESENT, ABSENT = "read", "present", "absent"
HELD, QUARANTINED, RELEASED = "held", "quarantined", "released"
STATES = {CLAIM: (READ, HELD, QUARANTINED, RELEASED), FILES: (PRESENT,)}
MARKER = "quarantine.json"
SCHEDULED = "/run/systemd/shutdown/scheduled"
DUE_S = 3600
MODE = 0o644
LONGEST = 1024 * 1024
ARGUMENTS = {
    "record": {"type": "str", "choices": [CLAIM, FILES] + list(notes.NAMES), "default": CLAIM},
    "state": {"type": "str", "choices": [READ, PRESENT, ABSENT, HELD, QUARANTINED, RELEASED], "default": READ},
    "content": {"type": "dict"},
    "directory": {"type": "path", "default": files.OWN},
    "over": {"type": "dict"},
    "changed": {"type": "bool", "default": False},
    "other_ledger_s": {"type": "int", "default": 0},
    "refuse_held": {"type": "bool", "default": False},
    "step": {"type": "str"},
    "lock_timeout_s": {"type": "int", "default": 600},
}
Params = Dict[str, Any]
Result = Dict[str, Any]


class TaskError(Exception):
    """Nothing was changed; the message says why."""


def perform(
    params: Params,
    check: bool,
    run: Callable[..., Tuple[int, str, str]],
    lock_path: str = lock.DEFAULT_PATH,
    root: str = "/",
) -> Result:
    """Return the result of the module. RUN calls commands.

    Raises:
        TaskError: nothing was changed.
        LockTimeout: the node's lock was not free in time, or the task belongs to an earlier attempt of a rollout.
    """
    record, state = params["record"], params["state"]
    known = STATES.get(record, (READ, PRESENT, ABSENT))
    if state not in known:
        raise TaskError(
            "record %s has no state %s; expected %s. Nothing was changed." % (record, state, " or ".join(known))
        )
    if state == PRESENT and not params["content"]:
        raise TaskError("state is present and content is empty. Nothing was changed.")
    if record == FILES:
        return perform_files(params, check, lock_path)
    if record == CLAIM:
        return perform_claim(params, check, run, lock_path, root)
    return perform_note(params, check, lock_path)


def hold_lock(params: Params, path: str, rollout_id: Optional[str], step: Optional[str]) -> lock.NodeLock:
    owner = {"module": "node_state", "rollout_id": rollout_id, "step": step}
    return lock.NodeLock(path=path, owner=owner, timeout_s=params["lock_timeout_s"])


# ---- the claim ----


def perform_claim(
    params: Params, check: bool, run: Callable[..., Tuple[int, str, str]], lock_path: str, root: str
) -> Result:
    """Read the node's claim and marker, claim it for a rollout, or give it up."""
    if params["state"] == READ:
        return read_marks(params)
    mine = complete_claim(params)
    if check:
        return read_marks(params)
    # Wait for a change in progress: what another attempt began ends before this attempt has the node.
    with hold_lock(params, lock_path, mine["rollout_id"], params["state"]):
        before = read_marks(params)
        if params["state"] == HELD:
            return take_node(params, before, mine, is_going_down(run, root), root)
        return give_up_node(params, before, mine)


def is_going_down(run: Callable[..., Tuple[int, str, str]], root: str = "/", now: Optional[float] = None) -> bool:
    """Return whether systemd is stopping everything, or has a shutdown scheduled that is due."""
    if run(["systemctl", "is-system-running"], 20)[1].strip() == "stopping":
        return True
    path = files.under(root, SCHEDULED)
    if not os.path.exists(path):
        return False
    # systemd-logind writes the time in microseconds of the clock (src/login/logind-dbus.c).
    found = re.search(r"^USEC=([0-9]{1,18})$", files.read_text(path) or "", re.M)
    return found is None or int(found.group(1)) / 1e6 - (time.time() if now is None else now) < DUE_S


def read_marks(params: Params) -> Result:
    """Return the claim and the marker of the node. Raises OSError if the marker cannot be looked for."""
    path = os.path.join(params["directory"], MARKER)
    try:
        os.stat(path)
        is_marked = True
    except (FileNotFoundError, NotADirectoryError):
        is_marked = False
    found, problem = claim.read_claim(params["directory"])
    last, last_problem = claim.read_last(params["directory"], time.time())
    return {
        "changed": False,
        "quarantine": {"exists": is_marked, "path": path},
        "claim": found,
        "last_change": last,
        "problem": problem or last_problem,
        "no_room": claim.room(params["directory"]),
    }


def complete_claim(params: Params) -> Dict[str, Any]:
    """Return the claim that the task is about. Raises TaskError if it is not complete."""
    mine = dict(params["content"] or {})
    missing = [
        key for key in ("ledger", "rollout_id", "attempt", "run", "plan", "controller") if mine.get(key) in (None, "")
    ]
    if missing:
        raise TaskError("claim has no %s. Nothing was changed." % ", ".join(missing))
    return dict(mine, attempt=int(mine["attempt"]))


def take_node(params: Params, before: Result, mine: Dict[str, Any], going_down: bool, root: str) -> Result:
    """Write the claim unless another attempt or rollout has the node."""
    answer = dict(before, going_down=going_down, boot_id=identity.read_boot_id(root))
    why = claim.refusal(before["claim"], before["problem"], mine, params["over"])
    if not why and before["claim"] is None:
        why = claim.changed_elsewhere(before["last_change"], mine["ledger"], params["other_ledger_s"], params["over"])
    if why:
        raise TaskError(why)
    # An operator may have put it in quarantine since the rollout was planned: the caller sees the marker, and there is
    # no claim.
    if going_down or before["quarantine"]["exists"] or claim.alike(before["claim"], mine):
        return answer
    if before["no_room"]:
        raise TaskError("its claim could not be kept: %s" % before["no_room"])
    now = dict(mine, state=claim.HELD, time=time.strftime(claim.TIME, time.gmtime()))
    claim.write(params["directory"], now)
    return dict(answer, changed=True, claim=dict(now, schema=claim.SCHEMA, fence=claim.fence(now)))


def give_up_node(params: Params, before: Result, mine: Dict[str, Any]) -> Result:
    """Remove the claim, or record in it that the node stays out of service. The claim of another attempt stays."""
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


# ---- notes ----


def perform_note(params: Params, check: bool, lock_path: str) -> Result:
    """Read, write or remove a note."""
    if params["state"] == READ or check:
        return change_note(params, check)
    if not params["refuse_held"]:
        # Without the lock, so that a node is marked too on which something hangs; and not by what is left of an earlier
        # attempt of a rollout.
        try:
            claim.require(os.environ.get(claim.FENCE, ""))
        except claim.ClaimError as exc:
            raise TaskError(str(exc)) from None
        return change_note(params, check)
    # A rollout takes its nodes under the same lock, and looks for the quarantine marker under it: one sees the other.
    with hold_lock(params, lock_path, "", params["record"]):
        return change_note(params, check)


def change_note(params: Params, check: bool) -> Result:
    directory, name, state = params["directory"], params["record"], params["state"]
    before, problem = notes.read_note(directory, name)
    path = notes.path_of(directory, name)
    exists = os.path.lexists(path)
    result = {"changed": False, "path": path, "exists": exists, "note": before, "problem": problem}
    if state == READ:
        return result
    if params["refuse_held"]:
        held, why = claim.read_claim(directory)
        if why or held and held["state"] == claim.HELD:
            raise TaskError(
                "the node cannot be taken: %s. Nothing was changed." % (why or "it is " + claim.describe_owner(held))
            )
    after = params["content"] if state == PRESENT else None
    changed = before != after if state == PRESENT else exists
    diff = {
        "before_header": path,
        "after_header": path,
        "before": "" if before is None else notes.render_note(before),
        "after": "" if after is None else notes.render_note(after),
    }
    if changed and not check:
        if state == PRESENT:
            notes.write(directory, name, after)
        else:
            notes.remove(directory, name)
    return dict(result, changed=changed, exists=state == PRESENT, note=after, problem="", diff=diff)


# ---- files ----


def perform_files(params: Params, check: bool, lock_path: str) -> Result:
    """Write files of the collection, all of them or, if one cannot be compared, none."""
    if check:
        return write_files(params["content"], True)
    with hold_lock(params, lock_path, "", params["step"]):
        return write_files(params["content"], False)


def write_files(contents: Dict[str, Any], check: bool) -> Result:
    problems = [words for words in (find_problem(path, content) for path, content in contents.items()) if words]
    if problems:
        raise TaskError("%s. Nothing was changed." % "; ".join(problems))
    found = dict((path, read_file(path)) for path in contents)
    due = [path for path, content in contents.items() if found[path] != (content, MODE, True)]
    for path in [] if check else due:
        directory = os.path.dirname(path)
        if not os.path.isdir(directory):
            os.makedirs(directory)
            os.chmod(directory, 0o755)  # independent of the umask
        files.write_atomically(path, contents[path], MODE)
        os.chown(path, os.geteuid(), os.getegid())  # a file that is equal is left alone, no matter who owns it
    diff = [
        {
            "before_header": path,
            "after_header": path,
            "before": found[path][0] if found[path] else "",
            "after": contents[path],
        }
        for path in due
    ]
    return {"changed": bool(due), "written": due, "diff": diff}


def find_problem(path: str, content: Any) -> str:
    """Return why a file cannot be written; empty if it can."""
    if not os.path.isabs(path):
        return "%s is no absolute path" % path
    if not isinstance(content, str):
        return "%s has no text but %s" % (path, type(content).__name__)
    return "%s would be longer than %d bytes" % (path, LONGEST) if len(content.encode("utf-8")) > LONGEST else ""


def read_file(path: str) -> Optional[Tuple[str, int, bool]]:
    """Return (text, mode, whether it is this user's) of a file; None if there is none."""
    try:
        about = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(about.st_mode):
        raise TaskError(
            "%s is no regular file; expected one, or nothing. Nothing was changed. Next step: look who made it." % path
        )
    with open(path, "rb") as stream:
        text = stream.read(LONGEST + 1).decode("utf-8", "replace")
    return text, stat.S_IMODE(about.st_mode), about.st_uid == os.geteuid()
