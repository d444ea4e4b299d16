# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The notes of a node: there whole or not at all, and not written where a rollout holds the node."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim, lock, notes

pytestmark = pytest.mark.pythons

NOTE = {"reason": "XID 79", "gpus": [{"serial": "1"}]}
CLAIM = {
    "ledger": "l",
    "rollout_id": "r",
    "attempt": 1,
    "run": "a",
    "plan": "p",
    "controller": "c",
    "state": "held",
    "time": "2026-01-31T12:00:00Z",
}


def perform(directory, check=False, **params):
    given = {name: spec.get("default") for name, spec in notes.ARGUMENTS.items()}
    given.update({"name": "quarantine", "directory": str(directory), "lock_timeout_s": 0}, **params)
    return notes.perform(given, check, str(directory) + ".lock")


def test_a_note_is_kept_read_and_removed_and_a_second_time_changes_nothing(tmp_path):
    place = tmp_path / "state"
    assert perform(place)["exists"] is False and perform(place, state="absent")["changed"] is False
    foreseen = perform(place, check=True, state="present", note=NOTE)
    assert foreseen["changed"] and json.loads(foreseen["diff"]["after"]) == NOTE and not place.exists()
    kept = perform(place, state="present", note=NOTE)
    assert kept["changed"] and kept["diff"] == foreseen["diff"]
    assert perform(place)["note"] == NOTE and not perform(place, state="present", note=NOTE)["changed"]
    assert os.listdir(str(place)) == ["quarantine.json"] and (place / "quarantine.json").stat().st_mode & 0o777 == 0o644
    assert perform(place, check=True, state="absent")["changed"] and perform(place)["exists"]
    assert perform(place, state="absent")["changed"] and not perform(place)["exists"]


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "\xff"])
def test_a_note_that_cannot_be_read_is_there_and_says_nothing(tmp_path, text):
    (tmp_path / "quarantine.json").write_bytes(text.encode("latin-1"))
    found = perform(tmp_path)
    assert found["exists"] and found["note"] is None and found["problem"]
    assert perform(tmp_path, state="present", note=NOTE)["changed"] and perform(tmp_path)["note"] == NOTE


def test_a_note_longer_than_any_of_ours_is_not_read(tmp_path):
    (tmp_path / "quarantine.json").write_text(json.dumps({"reason": "x" * notes.LONGEST}))
    assert perform(tmp_path)["problem"] and perform(tmp_path)["note"] is None


@pytest.mark.parametrize("found, refused", [(CLAIM, True), (dict(CLAIM, state="quarantined"), False), (None, False)])
def test_a_node_that_a_rollout_holds_keeps_its_notes(tmp_path, found, refused):
    if found:
        claim.write(str(tmp_path), found)
    for check in (True, False):
        if refused:
            with pytest.raises(notes.NoteError, match="rollout r "):
                perform(tmp_path, check, state="present", note=NOTE, refuse_held=True)
        else:
            assert perform(tmp_path, check, state="present", note=NOTE, refuse_held=True)["changed"]
    assert perform(tmp_path)["exists"] is not refused
    assert perform(tmp_path, state="present", note=dict(NOTE, more=1))["changed"], (
        "its own rollout writes it all the same"
    )


def test_a_claim_that_cannot_be_read_counts_as_held(tmp_path):
    (tmp_path / "claim.json").write_text("{")
    with pytest.raises(notes.NoteError, match="claim.json"):
        perform(tmp_path, state="present", note=NOTE, refuse_held=True)


def test_who_takes_the_node_at_this_moment_is_waited_for(tmp_path):
    place = tmp_path / "state"
    with lock.NodeLock(path=str(place) + ".lock", owner={"module": "node_claim"}), pytest.raises(lock.LockTimeout):
        perform(place, state="present", note=NOTE, refuse_held=True)
    assert not perform(place)["exists"]


def test_a_note_of_nothing_is_refused(tmp_path):
    with pytest.raises(notes.NoteError):
        perform(tmp_path, state="present", note={})


@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_is_left_of_an_earlier_attempt_leaves_no_note(tmp_path, monkeypatch, state):
    """Without the lock too, which something that hangs may hold."""
    claim.write(str(tmp_path), CLAIM)
    perform(tmp_path, name="recovery", state="present", note=NOTE)
    monkeypatch.setenv(claim.FENCE, claim.token(CLAIM, str(tmp_path)))
    with lock.NodeLock(path=str(tmp_path) + ".lock"):
        assert perform(tmp_path, state="present", note=NOTE)["changed"]
    claim.write(str(tmp_path), dict(CLAIM, attempt=2, run="b"))
    with pytest.raises(notes.NoteError, match="belongs to attempt 1"):
        perform(tmp_path, name="recovery", state=state, note={"reason": "late"})
    assert perform(tmp_path, name="recovery")["note"] == NOTE
    assert perform(tmp_path, check=True, name="recovery", state=state, note={"reason": "late"})["changed"], (
        "check mode changes nothing"
    )
