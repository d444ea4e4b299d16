# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The notes of a node about itself: small JSON documents in its state directory, each there whole or not at all."""

from __future__ import annotations

import json
import os

from . import claim, files, lock

READ, PRESENT, ABSENT = "read", "present", "absent"
# The name of a note, which is that of its file without the ending, and what it is for.
NAMES = ("drain", "quarantine", "recovery", "thermal_relief")
LONGEST = 1024 * 1024
ARGUMENTS = {
    "name": {"type": "str", "choices": list(NAMES), "required": True},
    "state": {"type": "str", "choices": [READ, PRESENT, ABSENT], "default": READ},
    "directory": {"type": "path", "default": files.OWN},
    "note": {"type": "dict"},
    "refuse_held": {"type": "bool", "default": False},
    "lock_timeout_s": {"type": "int", "default": 60},
}


class NoteError(Exception):
    """Nothing was changed; the message says why."""


def path_of(directory, name):
    return os.path.join(directory, name + ".json")


def read(directory, name):
    """(note, problem); None and no problem where there is none."""
    path = path_of(directory, name)
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(LONGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    except (OSError, UnicodeDecodeError) as exc:
        return None, "%s cannot be read: %s" % (path, exc)
    if len(text) > LONGEST:
        return None, "%s is longer than %d bytes" % (path, LONGEST)
    try:
        note = json.loads(text)
    except ValueError as exc:
        return None, "%s is not JSON: %s" % (path, exc)
    return (note, "") if isinstance(note, dict) else (None, "%s holds no dictionary" % path)


def spelled(note):
    return json.dumps(note, indent=4, sort_keys=True) + "\n"


def write(directory, name, note):
    """Put a note in the place of the one that lies there; a reader finds either, also after a loss of power."""
    claim.put(directory, name + ".json", spelled(note))


def remove(directory, name):
    os.unlink(path_of(directory, name))
    files.sync_directory(directory)


def perform(params, check, lock_path=lock.DEFAULT_PATH):
    """The result of the module node_note."""
    if params["state"] == PRESENT and not params["note"]:
        raise NoteError("state is present and note is empty; expected what the note shall say. Nothing was changed.")
    if params["state"] == READ or check:
        return _perform(params, check)
    if not params["refuse_held"]:
        # Without the lock, so that a node is marked too on which something hangs; and not by what is left of an earlier
        # attempt of a rollout.
        try:
            claim.require(os.environ.get(claim.FENCE, ""))
        except claim.ClaimError as exc:
            raise NoteError(str(exc)) from None
        return _perform(params, check)
    # A rollout takes its nodes under the same lock, and looks for the quarantine marker under it: one sees the other.
    owner = {"module": "node_note", "rollout_id": "", "step": params["name"]}
    with lock.NodeLock(path=lock_path, owner=owner, timeout_s=params["lock_timeout_s"]):
        return _perform(params, check)


def _perform(params, check):
    directory, name, state = params["directory"], params["name"], params["state"]
    before, problem = read(directory, name)
    path = path_of(directory, name)
    there = os.path.lexists(path)
    result = {"changed": False, "path": path, "exists": there, "note": before, "problem": problem}
    if state == READ:
        return result
    if params["refuse_held"]:
        held, why = claim.read(directory)
        if why or held and held["state"] == claim.HELD:
            raise NoteError(
                "the node cannot be taken: %s. Nothing was changed." % (why or "it is " + claim.described(held))
            )
    wanted = params["note"] if state == PRESENT else None
    changed = before != wanted if state == PRESENT else there
    result.update(
        changed=changed,
        exists=state == PRESENT,
        note=wanted,
        problem="",
        diff={
            "before_header": path,
            "after_header": path,
            "before": spelled(before) if before is not None else "",
            "after": spelled(wanted) if wanted is not None else "",
        },
    )
    if changed and not check:
        if state == PRESENT:
            write(directory, name, wanted)
        else:
            remove(directory, name)
    return result
